//! Images at root: content-addressed layer blobs on disk, and the ways in.
//!
//! An image comes in as an uploaded archive ([`import`](ImageStore::import)), from a registry
//! ([`pull`](ImageStore::pull)) or from the host's own busybox ([`builtin_busybox`](ImageStore::builtin_busybox)).
//! Each way ends in the same place: the layers lie under `blobs/sha256/`, and the caller holds an
//! [`ImageManifest`] that it may record. Nothing is kept of an attempt that failed. Files of plugins lie among the
//! same blobs ([`file`]).
//!
//! Reading order: [`tarball`] (formats and bounds), [`blob`] (the disk), [`manifest`] (the documents),
//! [`archive`], [`import`], [`registry`], [`pull`], [`busybox`].
//!
//! This module knows no tenants, names or quotas.

mod archive;
mod blob;
mod busybox;
mod file;
mod found;
mod import;
mod manifest;
mod pull;
mod registry;
mod tarball;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use model::{Digest, Error, ErrorKind, ImageManifest, Result};

use blob::Blobs;
pub use file::FileTaken;
pub use pull::PullProgress;
pub use registry::reference_is_loopback;

/// What an image may cost us. Every number that an image's author chooses is held against one of these.
#[derive(Debug, Clone)]
pub struct ImageLimits {
    /// Of one JSON document: index, manifest, config, token.
    pub document_bytes_max: u64,
    pub layers_max: usize,
    /// Of all layers as they are stored.
    pub image_bytes_max: u64,
    /// Of one layer once it is unpacked.
    pub layer_unpacked_bytes_max: u64,
    /// Files, folders and links of one layer.
    pub layer_entries_max: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            document_bytes_max: 4 << 20,
            // overlayfs stacks up to 500, but the mount options must fit in one page.
            layers_max: 127,
            image_bytes_max: 32 << 30,
            layer_unpacked_bytes_max: 64 << 30,
            layer_entries_max: 1_000_000,
        }
    }
}

/// An image that lies in the store and is ready to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub manifest: ImageManifest,
    /// Of its layers as they are stored.
    pub size: u64,
}

/// The blobs of all images. Cheap to clone; one per data folder.
#[derive(Debug, Clone)]
pub struct ImageStore {
    blobs: Arc<Blobs>,
    limits: Arc<ImageLimits>,
}

impl ImageStore {
    /// Opens the store in `dir`, makes it when it is not there, and clears what an interrupted import left.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, ImageLimits::default())
    }

    pub fn open_with(dir: impl AsRef<Path>, limits: ImageLimits) -> Result<Self> {
        Ok(Self { blobs: Arc::new(Blobs::open(dir.as_ref())?), limits: Arc::new(limits) })
    }

    /// Where a blob lies, when it is here.
    pub fn blob_path(&self, digest: &Digest) -> Option<PathBuf> {
        self.blobs.get(digest)
    }

    /// An empty file for a blob that comes from elsewhere; it is gone when it is dropped.
    pub fn blob_temp(&self) -> Result<tempfile::NamedTempFile> {
        self.blobs.temp()
    }

    /// Gives its name to a blob whose digest the caller has checked and whose bytes are on the disk.
    pub async fn blob_keep(&self, digest: Digest, size: u64, file: tempfile::NamedTempFile) -> Result<()> {
        let staged = blob::Staged::new(digest, size, file.into_temp_path());
        self.blocking(move |store| store.blobs.commit(vec![staged])).await
    }

    /// Deletes blobs that are not in `used` and were last wanted more than `older_than` ago, and says how many
    /// bytes that freed. The age protects an image whose blobs lie here but whose record is not yet committed.
    pub fn blobs_retain(&self, used: &HashSet<Digest>, older_than: Duration) -> Result<u64> {
        self.blobs.retain(used, older_than)
    }

    /// Runs file work where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = self.clone();
        tokio::task::spawn_blocking(move || work(store))
            .await
            .map_err(|error| Error::internal("the image store's worker ended early").because(error))?
    }
}

/// Something in the image is larger than we accept.
fn too_large(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::TooLarge, message)
}

/// An error of our own disk; a full one is said in words.
fn disk(error: std::io::Error) -> Error {
    let error = Error::from(error);
    if error.kind != ErrorKind::OutOfSpace {
        return error;
    }
    Error { message: "the disk of the image store is full".into(), ..error }
        .hint("delete images that are no longer used, or give the store more room")
}
