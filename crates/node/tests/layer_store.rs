//! The store around the layers: one fetch for many, checks, deletion, a full disk.
#![allow(clippy::unwrap_used)]

mod layer_support;

use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use layer_support::*;
use model::ErrorKind;
use model::image::LayerFormat;
use node::layer::{LayerLimits, LayerStore};
use node::source::LayerSource;

fn tar(text: &str) -> Vec<u8> {
    Tar::default().file("f", text).end()
}

#[tokio::test]
async fn formats_are_unpacked_in_order_and_kept() {
    let home = Home::new();
    let layers = vec![
        home.shelf.put(&tar("plain"), LayerFormat::Tar),
        home.shelf.put(&gzip(&tar("gzip")), LayerFormat::TarGzip),
        home.shelf.put(&zstd::encode_all(&tar("zstd")[..], 1).unwrap(), LayerFormat::TarZstd),
    ];
    let image = image(layers);
    let paths = home.store.rootfs_layers(&image).await.unwrap();
    let found: Vec<_> = paths.iter().map(|path| std::fs::read_to_string(path.join("f")).unwrap()).collect();
    assert_eq!(found, ["plain", "gzip", "zstd"]);
    assert_eq!(home.store.rootfs_layers(&image).await.unwrap(), paths);
    assert_eq!(home.shelf.fetches.load(Ordering::SeqCst), 3);

    let again = LayerStore::open(home.dir.path(), home.shelf.clone()).unwrap();
    assert_eq!(again.rootfs_layers(&image).await.unwrap(), paths);
    assert_eq!(home.shelf.fetches.load(Ordering::SeqCst), 3, "layers outlive the process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_at_once_share_one_fetch() {
    let home = Home::new();
    let image = Arc::new(image(vec![home.shelf.put(&tar("shared"), LayerFormat::Tar)]));
    let closed = home.shelf.gate.write().await;
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (store, image) = (home.store.clone(), image.clone());
            tokio::spawn(async move { store.layers(&image).await })
        })
        .collect();
    // All but the first give up or wait; none of it may spoil the others.
    tasks[3].abort();
    while home.shelf.fetches.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    drop(closed);
    let mut ended = 0;
    for task in tasks {
        match task.await {
            Ok(result) => assert_eq!(result.unwrap().len(), 1),
            Err(gone) => ended += usize::from(gone.is_cancelled()),
        }
    }
    assert!(ended <= 1);
    assert_eq!(home.shelf.fetches.load(Ordering::SeqCst), 1);
    assert_eq!((home.count("layers"), home.count("tmp")), (1, 0));
}

#[tokio::test]
async fn work_that_nobody_waits_for_stops_and_can_begin_again() {
    let home = Home::new();
    let image = image(vec![home.shelf.put(&tar("x"), LayerFormat::Tar)]);
    let closed = home.shelf.gate.write().await;
    {
        let mut waiting = Box::pin(home.store.layers(&image));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(home.count("tmp"), 1);
    }
    assert_eq!(home.count("tmp"), 0, "the half-fetched blob went with its waiter");
    drop(closed);
    assert_eq!(home.store.layers(&image).await.unwrap().len(), 1);
    assert_eq!(home.shelf.fetches.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_failure_reaches_everyone_and_the_next_attempt_is_fresh() {
    let home = Home::new();
    let layer = home.shelf.put(&tar("x"), LayerFormat::Tar);
    let bytes = home.shelf.blobs.lock().unwrap().remove(&layer.digest).unwrap();
    let image = image(vec![layer]);
    let closed = home.shelf.gate.write().await;
    // The gate opens once both wait behind it.
    let open = async { drop(closed) };
    let (one, two, ()) = futures::join!(home.store.layers(&image), home.store.layers(&image), open);
    for result in [one, two] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::NotFound);
    }
    assert_eq!(home.shelf.fetches.load(Ordering::SeqCst), 1);
    home.shelf.put(&bytes, LayerFormat::Tar);
    assert_eq!(home.store.layers(&image).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_blob_that_is_not_the_one_named_is_refused() {
    let home = Home::new();
    let layer = home.shelf.put(&tar("good"), LayerFormat::Tar);
    for (other, words) in
        [(tar("evil"), "its content has the digest"), (tar("long")[..512].to_vec(), "512 bytes")]
    {
        home.shelf.blobs.lock().unwrap().insert(layer.digest.clone(), other);
        let error = home.store.layers(&image(vec![layer.clone()])).await.unwrap_err();
        assert!(error.message.contains(words), "{error}");
        assert_eq!((home.count("layers"), home.count("tmp")), (0, 0));
    }
    let home = Home::with(LayerLimits { layers_max: 1, ..LayerLimits::default() });
    let error = home.store.layers(&image(vec![layer.clone(), layer])).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
}

#[tokio::test]
async fn layers_go_when_neither_used_nor_held() {
    let home = Home::new();
    let [one, two, three] = ["1", "2", "3"].map(|text| home.shelf.put(&tar(text), LayerFormat::Tar));
    let (first, second) = (image(vec![one.clone(), two.clone()]), image(vec![two.clone(), three.clone()]));
    home.store.layers(&first).await.unwrap();
    home.store.layers(&second).await.unwrap();
    assert!(home.store.retain(&HashSet::new()).await.unwrap().is_empty(), "both images are held");
    home.store.release(&first);
    assert_eq!(home.store.retain(&HashSet::new()).await.unwrap(), [one.digest]);
    home.store.release(&second);
    let used = HashSet::from([three.digest.clone()]);
    assert_eq!(home.store.retain(&used).await.unwrap(), [two.digest]);
    assert_eq!((home.count("layers"), home.count("tmp")), (1, 0));
    home.store.layers(&first).await.unwrap();
    assert_eq!(home.count("layers"), 3);
}

#[tokio::test]
async fn leftovers_of_a_crash_are_cleared_on_opening() {
    let home = Home::new();
    std::fs::create_dir_all(home.dir.path().join("tmp/layer-x/root/etc")).unwrap();
    std::fs::write(home.dir.path().join("tmp/layer-x/blob"), "half").unwrap();
    LayerStore::open(home.dir.path(), home.shelf.clone()).unwrap();
    assert_eq!(home.count("tmp"), 0);
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
    let shelf = Arc::new(Shelf::default());
    let store = LayerStore::open(dir.path(), shelf.clone()).unwrap();
    // Small as a blob, too large once unpacked.
    let large = shelf.put(&gzip(&Tar::default().file("f", vec![7; 1 << 20]).end()), LayerFormat::TarGzip);
    let error = store.layers(&image(vec![large])).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutOfSpace, "{error}");
    assert!(error.message.contains("this node's disk is full"), "{error}");
    for folder in ["tmp", "layers"] {
        assert_eq!(std::fs::read_dir(dir.path().join(folder)).unwrap().count(), 0);
    }
    let small = shelf.put(&tar("x"), LayerFormat::Tar);
    store.layers(&image(vec![small])).await.unwrap();
}
