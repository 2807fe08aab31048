//! The image that is always there: the host's own static busybox.
//!
//! The layer is a function of the binary alone, so every root that has the same package has the same digest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Command;

use model::{Error, ErrorKind, ImageId, Result};
use tar::{EntryType, Header};

use super::manifest::Config;
use super::{ImageStore, Imported, disk, tarball};

/// Where Debian's busybox-static puts it.
const BUSYBOX_PATH: &str = "/bin/busybox";
const PACKAGE_HINT: &str = "install the Debian package 'busybox-static'";
/// Larger than any busybox, smaller than anything that hurts.
const BUSYBOX_BYTES_MAX: u64 = 64 << 20;
const APPLETS_MAX: usize = 2000;

/// Folders, with their modes. Some are only there to be mounted upon.
const FOLDERS: &[(&str, u32)] = &[
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o1777),
];
/// Scripts name programs by these folders too.
const FOLDER_LINKS: &[(&str, &str)] = &[("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin")];
const FILES: &[(&str, &str)] = &[
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
];

impl ImageStore {
    /// Makes the built-in image. Blocks on the disk for a moment.
    pub fn builtin_busybox(&self, id: ImageId) -> Result<Imported> {
        self.builtin_busybox_from(id, Path::new(BUSYBOX_PATH))
    }

    /// The same from a busybox that lies elsewhere.
    pub fn builtin_busybox_from(&self, id: ImageId, path: &Path) -> Result<Imported> {
        let binary = binary_read(path)?;
        let applets = applets_list(path)?;
        let mut tar = self.blobs.temp()?;
        layer_write(tar.as_file_mut(), &binary, &applets).map_err(disk)?;
        let staged = self.blobs.stage(&mut tar.reopen().map_err(disk)?)?;
        let file = File::open(self.blobs.staged_path(&staged)).map_err(disk)?;
        let format = model::image::LayerFormat::Tar;
        let summary = tarball::scan(file, format, "the busybox layer", &self.limits, &mut |_| {})?;
        self.staged_commit(id, Config::of_rootfs(&summary.diff_id, true), vec![staged])
    }
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the built-in image cannot be made: {} {why}", path.display()))
        .hint(PACKAGE_HINT)
}

fn binary_read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(BUSYBOX_BYTES_MAX).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(unusable(path, "is not there")),
        other => other.map_err(disk)?,
    };
    match elf_is_static(&bytes) {
        None => Err(unusable(path, "is not a Linux program of 64 bits")),
        Some(false) => Err(unusable(path, "is linked dynamically and would not run alone")),
        Some(true) => Ok(bytes),
    }
}

/// Whether a 64-bit ELF program names no interpreter; nothing when it is no such program.
fn elf_is_static(bytes: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let table = usize::try_from(u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?)).ok()?;
    let (width, count) = (usize::from(u16_at(54)?), usize::from(u16_at(56)?));
    for number in 0..count {
        let at = table.checked_add(number * width)?;
        let kind = u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

fn applets_list(path: &Path) -> Result<Vec<String>> {
    let output = Command::new(path).arg("--list").output().map_err(disk)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sound = |name: &&str| !name.is_empty() && !name.contains('/') && *name != "busybox";
    let mut applets: Vec<String> = text.lines().filter(sound).take(APPLETS_MAX).map(str::to_owned).collect();
    applets.sort_unstable();
    applets.dedup();
    match applets.iter().any(|name| name == "sh") {
        true => Ok(applets),
        false => Err(unusable(path, "lists no shell among its applets")),
    }
}

fn layer_write(into: &mut File, binary: &[u8], applets: &[String]) -> io::Result<()> {
    let mut tar = tar::Builder::new(io::BufWriter::new(into));
    for (name, mode) in FOLDERS {
        tar.append_data(&mut header(EntryType::Directory, *mode, 0), format!("{name}/"), io::empty())?;
    }
    for (name, target) in FOLDER_LINKS {
        tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), name, target)?;
    }
    for (name, text) in FILES {
        tar.append_data(&mut header(EntryType::Regular, 0o644, text.len()), name, text.as_bytes())?;
    }
    tar.append_data(&mut header(EntryType::Regular, 0o755, binary.len()), "bin/busybox", binary)?;
    for applet in applets {
        tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), format!("bin/{applet}"), "busybox")?;
    }
    tar.into_inner()?.flush()
}

/// Owner, group and time are all zero, so that the same busybox gives the same digest.
fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}
