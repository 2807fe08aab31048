//! Layers made in code, and a source of blobs that can be watched and held.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use model::image::{Layer, LayerFormat};
use model::{Arch, Digest, Error, ImageId, ImageManifest, Platform, Result};
use node::layer::{BlobFetch, LayerLimits, LayerStore};
use sha2::Digest as _;
use tar::{EntryType, Header};

/// A tar whose names are written as they are, however evil.
#[derive(Default, Clone)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn entry(self, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        self.entry_with(kind, name, link, data, |_| {})
    }

    pub fn entry_with(
        mut self,
        kind: EntryType,
        name: &str,
        link: &str,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000);
        header.set_size(data.len() as u64);
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// An extended header for the entry that follows.
    pub fn pax(self, key: &str, value: &[u8]) -> Self {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|length| length - rest == length.to_string().len()).unwrap();
        let mut data = format!("{length} {key}=").into_bytes();
        data.extend_from_slice(value);
        data.push(b'\n');
        self.entry(EntryType::XHeader, "pax", "", &data)
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

    pub fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"")
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    pub fn cut(self) -> Vec<u8> {
        self.0
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Blobs in memory, with a count of fetches and a gate that can be closed.
#[derive(Default)]
pub struct Shelf {
    pub blobs: Mutex<HashMap<Digest, Vec<u8>>>,
    pub fetches: AtomicUsize,
    pub gate: tokio::sync::RwLock<()>,
}

impl Shelf {
    pub fn put(&self, bytes: &[u8], format: LayerFormat) -> Layer {
        let digest = Digest::from_sha256(&sha2::Sha256::digest(bytes));
        self.blobs.lock().unwrap().insert(digest.clone(), bytes.to_vec());
        Layer { digest, size: bytes.len() as u64, format }
    }
}

impl BlobFetch for Shelf {
    fn fetch<'a>(&'a self, digest: &'a Digest, into: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            let _open = self.gate.read().await;
            let bytes = self.blobs.lock().unwrap().get(digest).cloned();
            let bytes = bytes.ok_or_else(|| Error::not_found(format!("blob {digest}")))?;
            Ok(std::fs::write(into, bytes)?)
        })
    }
}

pub struct Home {
    pub dir: tempfile::TempDir,
    pub shelf: Arc<Shelf>,
    pub store: LayerStore,
}

impl Home {
    pub fn new() -> Self {
        Self::with(LayerLimits::default())
    }

    pub fn with(limits: LayerLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Arc::new(Shelf::default());
        let store = LayerStore::open_with(dir.path(), shelf.clone(), limits).unwrap();
        Self { dir, shelf, store }
    }

    /// Unpacks one plain layer.
    pub async fn unpack(&self, tar: &[u8]) -> Result<PathBuf> {
        let layer = self.shelf.put(tar, LayerFormat::Tar);
        Ok(self.store.layers(&image(vec![layer])).await?.remove(0))
    }

    pub fn count(&self, folder: &str) -> usize {
        std::fs::read_dir(self.dir.path().join(folder)).unwrap().count()
    }
}

pub fn image(layers: Vec<Layer>) -> ImageManifest {
    let number = layers.iter().fold(layers.len() as u128, |sum, layer| {
        sum.wrapping_mul(31).wrapping_add(u128::from_str_radix(&layer.digest.hex()[..16], 16).unwrap())
    });
    ImageManifest {
        id: ImageId::from_random(number),
        platform: Platform { arch: Arch::HOST },
        layers,
        entrypoint: vec![],
        command: vec![],
        env: Default::default(),
        user: None,
        workdir: None,
    }
}

/// Everything beneath a folder, as lines.
pub fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.path().strip_prefix(root).unwrap().to_owned();
            lines.push(String::from_utf8_lossy(name.as_os_str().as_bytes()).into_owned());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    lines.sort();
    lines
}
