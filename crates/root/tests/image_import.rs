//! Imports of archives that are built here, sound ones and hostile ones.
#![allow(clippy::unwrap_used)]

mod image_support;

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use image_support::*;
use model::image::LayerFormat;
use model::{Arch, ErrorKind};
use root::image::{ImageLimits, ImageStore};
use serde_json::json;
use tar::EntryType;

fn base() -> Vec<u8> {
    Tar::default().folder("./").folder("etc/").file("etc/motd", "hello").symlink("bin", "/usr/bin").end()
}

fn top() -> Vec<u8> {
    Tar::default().file("srv/data", "x".repeat(2000)).file("etc/.wh.motd", "").end()
}

#[tokio::test]
async fn an_oci_archive_comes_in_with_its_layers_and_settings() {
    let home = Home::new();
    let mut blobs = Blobs::default();
    let layers = [
        (OCI_LAYER, base(), base()),
        ("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&top()), top()),
        ("application/vnd.oci.image.layer.v1.tar+zstd", zstd(&top()), top()),
    ];
    let manifest = blobs.image(host_arch(), &layers);
    let imported = home.import(&blobs.layout("", &[manifest])).await.unwrap();
    let image = imported.manifest;
    assert_eq!(image.id, id());
    assert_eq!(image.platform.arch, Arch::HOST);
    assert_eq!(image.entrypoint, ["/bin/app"]);
    assert_eq!(image.command, ["--serve", "80"]);
    assert_eq!(image.user.as_deref(), Some("1000:1000"));
    assert_eq!(image.workdir.as_deref(), Some("/srv"));
    let env: Vec<_> = image.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["A=b=c", "EMPTY=", "PATH=/bin"]);
    let formats: Vec<_> = image.layers.iter().map(|layer| layer.format).collect();
    assert_eq!(formats, [LayerFormat::Tar, LayerFormat::TarGzip, LayerFormat::TarZstd]);
    for (layer, (_, blob, _)) in image.layers.iter().zip(&layers) {
        assert_eq!(home.blob(&layer.digest), *blob);
        assert_eq!(layer.size, blob.len() as u64);
    }
    assert_eq!(imported.size, layers.iter().map(|(_, blob, _)| blob.len() as u64).sum::<u64>());
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (3, 0));
}

#[tokio::test]
async fn a_layout_folder_comes_in_however_it_was_packed() {
    for prefix in ["./", "my-image/", "./my-image/"] {
        let mut blobs = Blobs::default();
        let manifest = blobs.image(host_arch(), &[(OCI_LAYER, base(), base())]);
        let tar = blobs.layout(prefix, &[manifest]);
        for packed in [tar.clone(), gzip(&tar), zstd(&tar)] {
            let home = Home::new();
            let image = home.import(&packed).await.unwrap().manifest;
            assert_eq!(image.layers[0].digest, sha(&base()), "{prefix}");
            assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (1, 0));
        }
    }
}

#[tokio::test]
async fn a_docker_archive_comes_in_also_with_linked_layers() {
    let home = Home::new();
    let diff_ids = [sha(&base()).to_string(), sha(&top()).to_string(), sha(&base()).to_string()];
    let manifest = json!([{
        "Config": "abc.json", "RepoTags": ["app:1", "app:latest"], "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"],
    }]);
    let tar = Tar::default()
        .folder("a/")
        .file("a/layer.tar", base())
        .file("b/layer.tar", gzip(&top()))
        .symlink("c/layer.tar", "../a/layer.tar")
        .file("abc.json", serde_json::to_vec(&config(host_arch(), &diff_ids)).unwrap())
        .file("manifest.json", serde_json::to_vec(&manifest).unwrap())
        .end();
    let image = home.import(&tar).await.unwrap().manifest;
    let found: Vec<_> = image.layers.iter().map(|layer| layer.digest.clone()).collect();
    assert_eq!(found, [sha(&base()), sha(&gzip(&top())), sha(&base())]);
    assert_eq!(image.entrypoint, ["/bin/app"]);
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (2, 0));
}

#[tokio::test]
async fn what_podman_saves_comes_in() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rootfs.tar"), base()).unwrap();
    let podman = |args: &[&str]| {
        let done = Command::new("podman")
            .args(["--root", "storage", "--runroot", "run", "--storage-driver", "vfs"])
            .args(args)
            .current_dir(dir.path())
            .output()
            .expect("the Debian package podman is installed");
        assert!(done.status.success(), "podman {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    podman(&["import", "-c", "CMD [\"/app\"]", "-c", "ENV A=b", "rootfs.tar", "localhost/test:1"]);
    podman(&["save", "--format", "oci-archive", "-o", "oci.tar", "localhost/test:1"]);
    podman(&["save", "--format", "docker-archive", "-o", "docker.tar", "localhost/test:1"]);
    podman(&["save", "--format", "oci-dir", "-o", "layout", "localhost/test:1"]);
    let packed = Command::new("tar").args(["-cf", "layout.tar", "layout"]).current_dir(dir.path()).status();
    assert!(packed.unwrap().success());
    for name in ["oci.tar", "docker.tar", "layout.tar"] {
        let home = Home::new();
        let imported = home.import(&std::fs::read(dir.path().join(name)).unwrap()).await.expect(name);
        assert_eq!(imported.manifest.command, ["/app"], "{name}");
        assert_eq!(imported.manifest.env["A"], "b", "{name}");
        assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (1, 0), "{name}");
    }
}

#[tokio::test]
async fn a_root_file_system_comes_in_as_it_is() {
    let tar = Tar::default().folder("bin/").file("bin/sh", "#!").file("manifest.json", "{}").end();
    for (packed, format) in [
        (tar.clone(), LayerFormat::Tar),
        (gzip(&tar), LayerFormat::TarGzip),
        (zstd(&tar), LayerFormat::TarZstd),
    ] {
        let home = Home::new();
        let image = home.import(&packed).await.unwrap().manifest;
        assert_eq!((image.layers.len(), image.layers[0].format), (1, format));
        assert_eq!(home.blob(&image.layers[0].digest), packed);
        assert_eq!(image.command, ["/bin/sh"]);
        assert_eq!(home.count("tmp"), 0);
    }
}

#[tokio::test]
async fn an_index_gives_the_image_of_this_machine() {
    let home = Home::new();
    let other = if Arch::HOST == Arch::Arm64 { "amd64" } else { "arm64" };
    let mut blobs = Blobs::default();
    let foreign = blobs.image(other, &[(OCI_LAYER, top(), top())]);
    let ours = blobs.image(host_arch(), &[(OCI_LAYER, base(), base())]);
    let mut note = blobs.put_json(OCI_MANIFEST, &json!({}));
    note["platform"] = json!({ "os": "unknown", "architecture": "unknown" });
    let inner = json!({ "schemaVersion": 2, "manifests": [foreign, ours, note] });
    let index = blobs.put_json(OCI_INDEX, &inner);
    let image = home.import(&blobs.layout("", &[index])).await.unwrap().manifest;
    assert_eq!(image.platform.arch, Arch::HOST);
    assert_eq!(image.layers[0].digest, sha(&base()));

    let lonely = home.import(&blobs.layout("", &[foreign])).await.unwrap().manifest;
    assert_eq!(lonely.platform.arch.to_string(), other, "an image for other nodes is welcome");
    let mut named = ours.clone();
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": "one" });
    let mut second = blobs.image(host_arch(), &[(OCI_LAYER, top(), top())]);
    second["annotations"] = json!({ "org.opencontainers.image.ref.name": "two" });
    let error = home.import(&blobs.layout("", &[named, second])).await.unwrap_err();
    assert!(error.message.contains("one, two"), "{error}");
}

/// What is refused, why, and that nothing is left of it.
async fn refused(name: &str, bytes: &[u8], kind: ErrorKind, words: &str) {
    let home = Home::with(ImageLimits {
        layers_max: 3,
        layer_entries_max: 50,
        layer_unpacked_bytes_max: 4 << 20,
        document_bytes_max: 64 << 10,
        ..ImageLimits::default()
    });
    let error = home.import(bytes).await.expect_err(name);
    assert_eq!(error.kind, kind, "{name}: {error}");
    assert!(error.message.contains(words), "{name}: {error}");
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (0, 0), "{name}");
}

#[tokio::test]
async fn what_is_no_image_is_refused_in_one_sentence() {
    let noise: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (name, bytes, words) in [
        ("empty", &b""[..], "an empty file was found, but"),
        ("text", b"hello\n", "plain text was found"),
        ("elf", b"\x7fELF\x02\x01\x01", "a program (ELF)"),
        ("zip", b"PK\x03\x04....", "a zip archive"),
        ("qcow2", b"QFI\xfb\0\0\0\x03", "a qcow2 disk image"),
        ("json", b"{\"a\": 1}", "a JSON document"),
        ("xz", b"\xfd7zXZ\x00\x00", "xz-compressed"),
        ("noise", &noise, "data of an unknown kind"),
        ("zeros", &[0; 10240], "an archive without any file"),
        ("gzip of text", &gzip(b"hello, this is not a tar"), "is damaged"),
        ("cut gzip", &gzip(&base())[..40], "is damaged"),
        ("cut zstd", &zstd(&base())[..40], "is damaged"),
    ] {
        refused(name, bytes, ErrorKind::Invalid, words).await;
    }
}

#[tokio::test]
async fn hostile_entries_are_refused_wherever_they_stand() {
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("dots", Tar::default().file("../x", "1").end(), "'../x' has '..'"),
        ("dots inside", Tar::default().file("a/../../x", "1").end(), "has '..'"),
        ("absolute", Tar::default().file("/abs", "1").end(), "'/abs' has an absolute name"),
        (
            "through",
            Tar::default().symlink("a", "/etc").file("a/x", "1").end(),
            "'a/x' goes through a symbolic",
        ),
        ("deep", Tar::default().symlink("a", ".").file("a/b/c/d", "1").end(), "goes through a symbolic link"),
        (
            "hard link",
            Tar::default().file("f", "1").hard_link("l", "../../etc/passwd").end(),
            "is a hard link out",
        ),
        (
            "hard link 2",
            Tar::default().file("f", "1").hard_link("l", "/etc/passwd").end(),
            "is a hard link out",
        ),
        (
            "hard link 3",
            Tar::default().file("f", "1").symlink("s", "/").hard_link("l", "s/x").end(),
            "hard link out",
        ),
        (
            "truncated",
            Tar::default().file("f", "1".repeat(5000)).cut()[..2048].to_vec(),
            "ends in the middle",
        ),
    ];
    for (name, tar, words) in &rows {
        refused(name, tar, ErrorKind::Invalid, words).await;
        refused(name, &gzip(tar), ErrorKind::Invalid, words).await;
        refused(name, &archive_of(tar.clone()), ErrorKind::Invalid, words).await;
    }
}

/// A file of 1 GiB that takes no room, as GNU tar packs it.
fn sparse() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("f")).unwrap().set_len(1 << 30).unwrap();
    let packed =
        Command::new("tar").args(["-S", "--format=gnu", "-cf", "-", "f"]).current_dir(dir.path()).output();
    packed.expect("the Debian package tar is installed").stdout
}

#[tokio::test]
async fn bombs_are_refused_before_they_go_off() {
    let zeros = vec![0; 8 << 20];
    let big = Tar::default().file("f", &zeros).end();
    refused("gzip bomb", &gzip(&big), ErrorKind::TooLarge, "once unpacked").await;
    refused("zstd bomb", &zstd(&big), ErrorKind::TooLarge, "once unpacked").await;
    let many = (0..60).fold(Tar::default(), |tar, n| tar.file(&format!("f{n}"), "")).end();
    refused("entries", &many, ErrorKind::TooLarge, "more than 50 entries").await;
    let long = Tar::default().entry(EntryType::GNULongName, "x", "", &zeros[..2 << 20]).file("f", "").end();
    refused("long name", &gzip(&long), ErrorKind::TooLarge, "headers are too long").await;
    let mut huge = Tar::default();
    huge.header(EntryType::Regular, "f", "", u64::MAX / 2);
    refused("huge claim", &huge.end(), ErrorKind::Invalid, "ends in the middle").await;
    refused("sparse bomb", &sparse(), ErrorKind::TooLarge, "once unpacked").await;
    let layers: Vec<_> = (0..4).map(|n| Tar::default().file(&format!("f{n}"), "1").end()).collect();
    let layers: Vec<_> = layers.into_iter().map(|tar| (OCI_LAYER, tar.clone(), tar)).collect();
    let mut blobs = Blobs::default();
    let manifest = blobs.image(host_arch(), &layers);
    refused("layers", &blobs.layout("", &[manifest]), ErrorKind::TooLarge, "4 layers; up to 3").await;
    let mut manifest = blobs.image(host_arch(), &layers[..1]);
    manifest["annotations"] = json!({ "note": "x".repeat(100_000) });
    refused("document", &blobs.layout("", &[manifest]), ErrorKind::TooLarge, "'index.json' is larger").await;
}

#[tokio::test]
async fn images_that_lie_about_themselves_are_refused() {
    let wrong = |media: &str| {
        let mut blobs = Blobs::default();
        let manifest = blobs.image(host_arch(), &[(media, base(), base())]);
        blobs.layout("", &[manifest])
    };
    let mut tampered = Blobs::default();
    let manifest = tampered.image(host_arch(), &[(OCI_LAYER, base(), base())]);
    tampered.0.insert(sha(&base()).to_string(), top());
    let tampered = tampered.layout("", &[manifest]);
    let mut forged = Blobs::default();
    let manifest = forged.image(host_arch(), &[(OCI_LAYER, base(), top())]);
    let forged = forged.layout("", &[manifest]);
    let mut missing = Blobs::default();
    let manifest = missing.image(host_arch(), &[(OCI_LAYER, base(), base())]);
    missing.0.remove(sha(&base()).as_str());
    let missing = missing.layout("", &[manifest]);
    let mut document = Blobs::default();
    let manifest = document.image(host_arch(), &[(OCI_LAYER, base(), base())]);
    document.0.insert(manifest["digest"].as_str().unwrap().to_owned(), b"{}".to_vec());
    let document = document.layout("", &[manifest]);
    let mut none = Blobs::default();
    let manifest = none.image(host_arch(), &[]);
    let none = none.layout("", &[manifest]);
    let mut strange = Blobs::default();
    let manifest = strange.image("mips", &[(OCI_LAYER, base(), base())]);
    let strange = strange.layout("", &[manifest]);
    for (name, bytes, words) in [
        ("tampered layer", tampered, "layer 1 does not have the content its digest names"),
        ("forged diff id", forged, "layer 1 of the image does not have the content that its config names"),
        ("missing layer", missing, "the image archive lacks"),
        ("tampered manifest", document, "does not have the content its digest names"),
        ("no layers", none, "no layers"),
        ("strange machine", strange, "the architecture 'mips'"),
        ("encrypted", wrong("application/vnd.oci.image.layer.v1.tar+gzip+encrypted"), "encrypted"),
        ("foreign", wrong("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"), "lie elsewhere"),
        ("unknown layer", wrong("application/x-cat-picture"), "only tar layers"),
    ] {
        refused(name, &bytes, ErrorKind::Invalid, words).await;
    }
}

#[tokio::test]
async fn a_body_over_its_limit_and_one_that_breaks_off_leave_nothing() {
    let home = Home::new();
    let error = home.store.import(id(), &base()[..], 100).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    let broken = tokio_util::io::StreamReader::new(futures::stream::iter([
        Ok(bytes::Bytes::from(base())),
        Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
    ]));
    let error = home.store.import(id(), broken, 1 << 20).await.unwrap_err();
    assert!(error.message.contains("the upload broke off"), "{error}");
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (0, 0));
}

/// Unmounts when the test ends, however it ends.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        assert!(done.is_ok_and(|status| status.success()), "umount {}", self.0.display());
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(dir.path()).status();
    assert!(status.unwrap().success(), "mounting a tmpfs needs root");
    let _mounted = Mounted(dir.path().to_owned());
    let store = ImageStore::open(dir.path()).unwrap();
    let small = Tar::default().file("f", "x".repeat(60_000)).end();
    let large = Tar::default().file("f", "x".repeat(600_000)).end();
    // The first is too large for the spool, the second for the copies of its layers.
    let two = [&b"a"[..], b"b"].map(|byte| Tar::default().file("f", byte.repeat(80_000)).end());
    let mut blobs = Blobs::default();
    let manifest = blobs.image(host_arch(), &two.map(|tar| (OCI_LAYER, tar.clone(), tar)));
    for body in [large, blobs.layout("", &[manifest])] {
        let error = store.import(id(), &body[..], 1 << 30).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::OutOfSpace, "{error}");
        assert_eq!(error.message, "the disk of the image store is full");
        for folder in ["tmp", "blobs/sha256"] {
            assert_eq!(std::fs::read_dir(dir.path().join(folder)).unwrap().count(), 0);
        }
    }
    store.import(id(), &small[..], 1 << 30).await.unwrap();
}

#[tokio::test]
async fn unused_blobs_go_and_used_and_young_ones_stay() {
    let home = Home::new();
    let first = home.import(&base()).await.unwrap().manifest.layers.remove(0);
    let second = home.import(&top()).await.unwrap().manifest.layers.remove(0);
    let used = HashSet::from([first.digest.clone()]);
    assert_eq!(home.store.blobs_retain(&used, Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(home.store.blobs_retain(&used, Duration::ZERO).unwrap(), second.size);
    assert!(home.store.blob_path(&first.digest).is_some());
    assert!(home.store.blob_path(&second.digest).is_none());
}

#[tokio::test]
async fn what_an_interrupted_import_left_is_cleared_on_opening() {
    let home = Home::new();
    let kept = home.import(&base()).await.unwrap().manifest.layers.remove(0);
    std::fs::write(home.dir.path().join("tmp/half"), "half").unwrap();
    let store = ImageStore::open(home.dir.path()).unwrap();
    assert_eq!(home.count("tmp"), 0);
    assert!(store.blob_path(&kept.digest).is_some());
}

#[test]
fn the_builtin_busybox_is_the_same_everywhere() {
    let (one, two) = (Home::new(), Home::new());
    let image =
        one.store.builtin_busybox(id()).expect("the Debian package busybox-static is installed").manifest;
    assert_eq!(image, two.store.builtin_busybox(id()).unwrap().manifest);
    assert_eq!((image.entrypoint.len(), &image.command[..]), (0, &["/bin/sh".to_owned()][..]));
    let tar = one.blob(&image.layers[0].digest);
    let mut seen = std::collections::BTreeMap::new();
    for entry in tar::Archive::new(&tar[..]).entries().unwrap() {
        let entry = entry.unwrap();
        seen.insert(entry.path().unwrap().display().to_string(), entry.header().mode().unwrap());
    }
    assert_eq!(seen.get("tmp/"), Some(&0o1777));
    for name in ["bin/busybox", "bin/sh", "etc/passwd", "etc/group", "root/"] {
        assert!(seen.contains_key(name), "{name}");
    }
    assert_eq!((one.count("blobs/sha256"), one.count("tmp")), (1, 0));
}

#[test]
fn a_busybox_that_cannot_run_alone_is_refused_with_the_package_to_install() {
    let home = Home::new();
    for (path, words) in [
        ("/nonexistent/busybox", "is not there"),
        ("/usr/bin/env", "is linked dynamically"),
        ("/etc/passwd", "is not a Linux program"),
    ] {
        let error = home.store.builtin_busybox_from(id(), path.as_ref()).unwrap_err();
        assert!(error.message.contains(words), "{path}: {error}");
        assert!(error.hint.unwrap().contains("busybox-static"));
    }
    assert_eq!((home.count("blobs/sha256"), home.count("tmp")), (0, 0));
}
