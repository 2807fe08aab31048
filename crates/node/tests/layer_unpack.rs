//! Layers unpacked by the real kernel: what images need is kept, what tries to leave is refused.
#![allow(clippy::unwrap_used)]

mod layer_support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use layer_support::*;
use model::ErrorKind;
use model::image::LayerFormat;
use node::layer::LayerLimits;
use rustix::fs::lgetxattr;
use tar::EntryType;

#[tokio::test]
async fn owners_modes_times_links_and_capabilities_are_kept() {
    let home = Home::new();
    // The revision 2 capability `cap_net_bind_service=ep`.
    let mut capability = vec![1, 0, 0, 2];
    capability.extend([0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let tar = Tar::default()
        .entry_with(EntryType::Directory, "./", "", b"", |header| header.set_mode(0o711))
        .entry_with(EntryType::Directory, "home/", "", b"", |header| {
            header.set_uid(1000);
            header.set_mode(0o1777);
        })
        .entry_with(EntryType::Regular, "home/su", "", b"program", |header| {
            header.set_uid(1000);
            header.set_gid(1001);
            header.set_mode(0o4755);
        })
        .hard_link("home/su2", "home/su")
        .symlink("bin", "/usr/bin")
        .symlink("up", "../../../etc")
        .entry(EntryType::Fifo, "pipe", "", b"")
        .pax("SCHILY.xattr.security.capability", &capability)
        .file("server", "x")
        .pax("SCHILY.xattr.trusted.overlay.redirect", b"/etc")
        .file("deep/er/than/named", "y")
        .entry(EntryType::Char, "null", "", b"")
        .end();
    let root = home.unpack(&tar).await.unwrap();
    let meta = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
    assert_eq!(meta("").mode() & 0o7777, 0o711);
    assert_eq!((meta("home").uid(), meta("home").mode() & 0o7777), (1000, 0o1777));
    assert_eq!(meta("home").mtime(), 1_000_000);
    let su = meta("home/su");
    assert_eq!((su.uid(), su.gid(), su.mode() & 0o7777, su.mtime()), (1000, 1001, 0o4755, 1_000_000));
    assert_eq!((su.ino(), su.nlink()), (meta("home/su2").ino(), 2));
    assert_eq!(fs::read_link(root.join("bin")).unwrap(), Path::new("/usr/bin"));
    assert_eq!(fs::read_link(root.join("up")).unwrap(), Path::new("../../../etc"));
    assert!(meta("pipe").file_type().is_fifo());
    assert_eq!(meta("deep/er").mode() & 0o7777, 0o755);
    let mut value = [0; 64];
    let length = lgetxattr(root.join("server"), "security.capability", &mut value).unwrap();
    assert_eq!(value[..length], capability);
    assert!(lgetxattr(root.join("deep/er/than/named"), "trusted.overlay.redirect", &mut value).is_err());
    assert!(!root.join("null").exists(), "devices are the runtime's to make");
    assert_eq!((home.count("layers"), home.count("tmp")), (1, 0));
}

#[tokio::test]
async fn a_later_entry_replaces_an_earlier_one() {
    let home = Home::new();
    let tar = Tar::default()
        .file("f", "old")
        .file("f", "new")
        .symlink("l", "/etc/passwd")
        .file("l", "mine")
        .symlink("d", "/etc")
        .folder("d")
        .file("d/x", "inside")
        .folder("e")
        .symlink("e", "/etc")
        .end();
    let root = home.unpack(&tar).await.unwrap();
    assert_eq!(fs::read(root.join("f")).unwrap(), b"new");
    assert_eq!(fs::read(root.join("l")).unwrap(), b"mine");
    assert_eq!(fs::read(root.join("d/x")).unwrap(), b"inside");
    assert_eq!(listing(&root), ["d", "d/x", "e", "f", "l"]);
}

/// Packs a large and mostly empty file as GNU tar does.
fn sparse(bytes: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("f")).unwrap().set_len(bytes).unwrap();
    let packed =
        Command::new("tar").args(["-S", "--format=gnu", "-cf", "-", "f"]).current_dir(dir.path()).output();
    packed.expect("the Debian package tar is installed").stdout
}

type HostileRow = (&'static str, Vec<u8>, &'static str);

/// Layers that try to leave their folder, and what is said of each.
fn escapes(target: &str) -> Vec<HostileRow> {
    vec![
        ("dots", Tar::default().file("../x", "1").end(), "'../x' has '..' in its name"),
        ("dots inside", Tar::default().file("a/../../x", "1").end(), "has '..'"),
        ("absolute", Tar::default().file(&format!("{target}/x"), "1").end(), "has an absolute name"),
        (
            "through",
            Tar::default().symlink("a", target).file("a/x", "1").end(),
            "'a/x' goes through a symbolic link",
        ),
        (
            "through a made folder",
            Tar::default().symlink("a", target).file("a/b/x", "1").end(),
            "symbolic link",
        ),
        (
            "through relative",
            Tar::default().symlink("a", "../..").folder("a/x").end(),
            "goes through a symbolic link",
        ),
        ("link through link", Tar::default().symlink("a", target).symlink("a/l", "x").end(), "symbolic link"),
        (
            "whiteout through",
            Tar::default().symlink("a", target).file("a/.wh.secret", "").end(),
            "symbolic link",
        ),
        (
            "opaque through",
            Tar::default().symlink("a", target).file("a/.wh..wh..opq", "").end(),
            "symbolic link",
        ),
        (
            "fifo through",
            Tar::default().symlink("a", target).entry(EntryType::Fifo, "a/p", "", b"").end(),
            "symbolic",
        ),
        (
            "hard link up",
            Tar::default().hard_link("l", "../../secret").end(),
            "'l' is a hard link to something",
        ),
        (
            "hard link absolute",
            Tar::default().hard_link("l", &format!("{target}/secret")).end(),
            "is a hard link",
        ),
        (
            "hard link through",
            Tar::default().symlink("a", target).hard_link("l", "a/secret").end(),
            "is a hard link",
        ),
        ("hard link to folder", Tar::default().folder("d").hard_link("l", "d").end(), "is a hard link"),
        (
            "hard link to itself",
            Tar::default().file("f", "").hard_link("f", "f").end(),
            "hard link to itself",
        ),
        ("whiteout of ..", Tar::default().file("a/.wh...", "").end(), "a whiteout of a name that cannot be"),
        (
            "whiteout of nothing",
            Tar::default().file("a/.wh.", "").end(),
            "a whiteout of a name that cannot be",
        ),
    ]
}

/// Layers that cannot be: damaged, too large, or not to be told apart from an attack.
fn damaged(target: &str) -> Vec<HostileRow> {
    let zeros = vec![0; 3 << 20];
    let many = (0..60).fold(Tar::default(), |tar, n| tar.file(&format!("f{n}"), "")).end();
    vec![
        ("through a file", Tar::default().file("f", "").file("f/x", "1").end(), "is not a folder"),
        (
            "full folder",
            Tar::default().file("d/x", "").file("d", "1").end(),
            "replaces a folder that is not empty",
        ),
        ("root as a link", Tar::default().symlink("./", target).end(), "names the root"),
        ("long part", Tar::default().pax("path", "x".repeat(300).as_bytes()).file("x", "").end(), "too long"),
        ("zero byte", Tar::default().pax("path", b"a\0b").file("x", "").end(), "zero byte"),
        ("pax dots", Tar::default().pax("path", b"../../x").file("x", "").end(), "has '..'"),
        ("pax link", Tar::default().pax("linkpath", b"../x").hard_link("l", "f").end(), "is a hard link"),
        (
            "truncated",
            Tar::default().file("f", "1".repeat(5000)).cut()[..2048].to_vec(),
            "ends in the middle",
        ),
        ("not a tar", b"hello".repeat(300), "is damaged"),
        ("large", Tar::default().file("f", &zeros).end(), "larger than 2097152 bytes"),
        ("sparse", sparse(1 << 30), "larger than 2097152 bytes"),
        (
            "long header",
            Tar::default().entry(EntryType::GNULongName, "x", "", &zeros[..1 << 21]).end(),
            "larger than",
        ),
        ("entries", many, "more than 50 entries"),
    ]
}

#[tokio::test]
async fn hostile_layers_are_refused_and_leave_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().to_str().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let rows = escapes(target).into_iter().chain(damaged(target));
    for (name, tar, words) in rows {
        for (bytes, format) in [(tar.clone(), LayerFormat::Tar), (gzip(&tar), LayerFormat::TarGzip)] {
            let home = Home::with(LayerLimits {
                layer_entries_max: 50,
                layer_unpacked_bytes_max: 2 << 20,
                ..LayerLimits::default()
            });
            let layer = home.shelf.put(&bytes, format);
            let error = home.store.layers(&image(vec![layer])).await.expect_err(name);
            assert!(error.message.contains(words), "{name}: {error}");
            assert!(matches!(error.kind, ErrorKind::Invalid | ErrorKind::TooLarge), "{name}: {error:?}");
            assert_eq!((home.count("layers"), home.count("tmp")), (0, 0), "{name}");
        }
    }
    assert_eq!(listing(outside.path()), ["secret"], "nothing was made outside");
    let meta = fs::metadata(&secret).unwrap();
    assert_eq!((meta.nlink(), fs::read(&secret).unwrap()), (1, b"secret".to_vec()));
}

#[tokio::test]
async fn a_small_sparse_file_is_unpacked_whole() {
    let home = Home::new();
    let root = home.unpack(&sparse(100_000)).await.unwrap();
    assert_eq!(fs::read(root.join("f")).unwrap(), vec![0; 100_000]);
}

/// An overlay of some layers, unmounted when the test ends, however it ends.
struct Overlay(tempfile::TempDir);

impl Overlay {
    /// `layers` are the lowest first.
    fn mount(layers: &[PathBuf]) -> Self {
        let merged = tempfile::tempdir().unwrap();
        let lower: Vec<_> = layers.iter().rev().map(|path| path.to_str().unwrap()).collect();
        let options = format!("lowerdir={}", lower.join(":"));
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "-o", &options, "overlay"])
            .arg(merged.path())
            .output();
        let mounted = mounted.expect("the Debian package mount is installed");
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        Self(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.0.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "umount {}", self.0.path().display());
    }
}

#[tokio::test]
async fn whiteouts_hide_what_lies_beneath_in_a_real_overlay() {
    let home = Home::new();
    let base = Tar::default()
        .file("keep", "1")
        .file("gone", "1")
        .file("folder-gone/x", "1")
        .file("opaque/old", "1")
        .file("replaced/old", "1")
        .file("replaced-late/old", "1")
        .file("file", "old")
        .end();
    let top = Tar::default()
        .file(".wh.gone", "")
        .file(".wh.folder-gone", "")
        .file(".wh.never-there", "")
        .folder("opaque/")
        .file("opaque/new", "2")
        .file("opaque/.wh..wh..opq", "")
        .file(".wh.replaced", "")
        .file("replaced/new", "2")
        .file("replaced-late/new", "2")
        .file(".wh.replaced-late", "")
        .file("file", "new")
        .file(".wh.file", "")
        .file(".wh..wh.plnk", "")
        .end();
    // `replaced` comes with a folder entry of its own, after its whiteout.
    let folder = Tar::default().file(".wh.keep2", "").folder("keep2/").file("keep2/new", "3").end();
    let middle = Tar::default().file("keep2/old", "1").end();
    let layers = [base, middle, top, folder].map(|tar| home.shelf.put(&tar, LayerFormat::Tar)).to_vec();
    let paths = home.store.layers(&image(layers)).await.unwrap();
    let overlay = Overlay::mount(&paths);
    let found = listing(overlay.0.path());
    let expected = [
        "file",
        "keep",
        "keep2",
        "keep2/new",
        "opaque",
        "opaque/new",
        "replaced",
        "replaced-late",
        "replaced-late/new",
        "replaced/new",
    ];
    assert_eq!(found, expected);
    assert_eq!(fs::read(overlay.0.path().join("file")).unwrap(), b"new");
}

#[tokio::test]
async fn the_same_layer_twice_still_mounts() {
    let home = Home::new();
    let once = home.shelf.put(&Tar::default().file("a", "1").file("b", "1").end(), LayerFormat::Tar);
    let other = home.shelf.put(&Tar::default().file(".wh.a", "").file("b", "2").end(), LayerFormat::Tar);
    let paths = home.store.layers(&image(vec![once.clone(), other, once])).await.unwrap();
    assert_eq!(paths.len(), 2);
    let overlay = Overlay::mount(&paths);
    assert_eq!(listing(overlay.0.path()), ["a", "b"]);
    assert_eq!(fs::read(overlay.0.path().join("b")).unwrap(), b"1");
}
