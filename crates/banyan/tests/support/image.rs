//! Images made in the test: a root file system from the host's busybox, what podman makes of it, a
//! registry on loopback that serves it, and files that are no images.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tar::{EntryType, Header};

use super::text;

/// A tar whose names are written as they are, however evil.
#[derive(Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn entry(mut self, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, name: &str, data: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name, "", data.as_ref())
    }

    pub fn folder(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

/// A root file system with a shell and `/marker`.
pub fn rootfs(marker: &str) -> Tar {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox =
        std::fs::read(busybox.expect("busybox is missing: apt-get install busybox-static")).unwrap();
    let tar = Tar::default().folder("bin/").file("bin/busybox", busybox).file("marker", marker);
    ["sh", "cat", "sleep", "echo"]
        .into_iter()
        .fold(tar, |tar, name| tar.symlink(&format!("bin/{name}"), "busybox"))
}

/// What podman makes of a root file system: `oci.tar`, `docker.tar` and the folder `layout` in `dir`.
pub fn podman_save(dir: &Path, rootfs: &[u8]) {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("rootfs.tar"), rootfs).unwrap();
    let podman = |words: &[&str]| {
        let done = Command::new("podman")
            .args(["--root", "storage", "--runroot", "run", "--storage-driver", "vfs"])
            .args(words)
            .current_dir(dir)
            .output()
            .expect("podman is missing: apt-get install podman");
        assert!(done.status.success(), "podman {words:?}: {}", text(&done.stderr));
    };
    let name = "localhost/test:1";
    let settings =
        ["-c", r#"CMD ["sh","-c","cat /marker; echo $FLAVOUR; sleep 100000"]"#, "-c", "ENV FLAVOUR=plum"];
    podman(&[&["import"], &settings[..], &["rootfs.tar", name]].concat());
    for (format, file) in
        [("oci-archive", "oci.tar"), ("docker-archive", "docker.tar"), ("oci-dir", "layout")]
    {
        podman(&["save", "--format", format, "-o", file, name]);
    }
}

/// A registry that serves one layout folder as `team/app:1`. It ends with the test binary.
pub fn registry(layout: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let layout = layout.clone();
            std::thread::spawn(move || {
                let _ = serve(stream, &layout);
            });
        }
    });
    format!("{address}/team/app")
}

fn serve(stream: TcpStream, layout: &Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, body) = match answer(path, layout) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", Vec::new()),
        };
        let media = "application/vnd.oci.image.manifest.v1+json";
        write!(out, "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n", body.len())?;
        out.write_all(&body)?;
    }
}

fn answer(path: &str, layout: &Path) -> Option<Vec<u8>> {
    if path == "/v2/" {
        return Some(b"{}".to_vec());
    }
    let index: Value = serde_json::from_slice(&std::fs::read(layout.join("index.json")).ok()?).ok()?;
    let manifest = index["manifests"][0]["digest"].as_str()?.to_owned();
    let digest = match path.strip_prefix("/v2/team/app/")?.split_once('/')? {
        ("manifests", "1") => manifest,
        ("manifests" | "blobs", digest) => digest.to_owned(),
        _ => return None,
    };
    std::fs::read(layout.join("blobs").join(digest.replace(':', "/"))).ok()
}

/// A root file system that can be a machine of a cluster: busybox, and this host's sshd with what it loads.
pub fn machine() -> Vec<u8> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("busybox is missing: apt-get install busybox-static");
    let applets = Command::new(busybox).arg("--list").output().unwrap();
    let mut tar = Tar::default();
    for folder in
        ["bin/", "etc/", "etc/ssh/", "lib/", "lib64/", "proc/", "root/", "run/", "srv/", "tmp/", "usr/"]
    {
        tar = tar.folder(folder);
    }
    for folder in ["usr/bin/", "usr/sbin/", "usr/lib/", "var/", "var/empty/", "var/lib/", "dev/", "sys/"] {
        tar = tar.folder(folder);
    }
    tar = tar.file("bin/busybox", std::fs::read(busybox).unwrap());
    for applet in text(&applets.stdout).lines().filter(|applet| *applet != "busybox") {
        tar = tar.symlink(&format!("bin/{applet}"), "busybox");
    }
    let mut there = std::collections::BTreeSet::new();
    for program in ["/usr/sbin/sshd", "/usr/bin/ssh-keygen"] {
        tar = tar.file(&program[1..], std::fs::read(program).expect("openssh-server is missing"));
        let loads = Command::new("ldd").arg(program).output().unwrap();
        for line in text(&loads.stdout).lines() {
            let path = line.split_whitespace().find(|word| word.starts_with('/'));
            let Some(path) = path.filter(|path| there.insert((*path).to_owned())) else { continue };
            let mut folder = String::new();
            for part in path[1..].split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev() {
                folder += &format!("{part}/");
                tar = tar.folder(&folder);
            }
            tar = tar.file(&path[1..], std::fs::read(path).unwrap());
        }
    }
    let users = "root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n";
    tar.file("etc/passwd", users)
        .file("etc/group", "root:x:0:\nnogroup:x:65534:\n")
        .file("etc/ssh/sshd_config", "")
        .end()
}
