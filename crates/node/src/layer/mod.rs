//! Layers of images on this node: fetched, checked, unpacked once, shared by all instances.
//!
//! `layers/<hex>/` is a whole layer, ready to be an overlayfs lower folder; `tmp/` holds what is on its way there.
//! A layer gets its name by a rename after everything of it is on disk, so one that has its name is whole.
//!
//! This module knows no instances; it hears of images and of the digests that are still wanted.

mod beneath;
mod entry;
mod reader;
mod unpack;

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use futures::stream::{self, StreamExt, TryStreamExt};
use model::image::Layer;
use model::{Digest, Error, ErrorKind, ImageId, ImageManifest, Result};
use tempfile::TempDir;

use crate::source::LayerSource;

/// Layers of one image that come at the same time.
const LAYERS_PARALLEL: usize = 3;

/// Brings a blob to this machine. Digest and size are checked by the caller.
pub trait BlobFetch: Send + Sync + 'static {
    /// Writes the blob to the new file `into`.
    fn fetch<'a>(&'a self, digest: &'a Digest, into: &'a Path) -> BoxFuture<'a, Result<()>>;
}

/// What a layer may cost this node, whatever its author wrote into it.
#[derive(Debug, Clone)]
pub struct LayerLimits {
    pub layers_max: usize,
    pub layer_unpacked_bytes_max: u64,
    pub layer_entries_max: u64,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self { layers_max: 127, layer_unpacked_bytes_max: 64 << 30, layer_entries_max: 1_000_000 }
    }
}

/// A failure that several waiters can have.
type Flight = Shared<BoxFuture<'static, std::result::Result<PathBuf, Arc<Error>>>>;
type WeakFlight = WeakShared<BoxFuture<'static, std::result::Result<PathBuf, Arc<Error>>>>;

/// The layers of this node. Cheap to clone; one per data folder.
#[derive(Clone)]
pub struct LayerStore {
    inner: Arc<Inner>,
}

struct Inner {
    layers: PathBuf,
    tmp: PathBuf,
    fetch: Arc<dyn BlobFetch>,
    limits: LayerLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Layers that are being made. Weak, so that work nobody waits for any more stops.
    flights: HashMap<Digest, WeakFlight>,
    /// Images that were asked for and not yet released.
    held: HashMap<ImageId, Vec<Digest>>,
}

impl LayerStore {
    /// Opens the layers in `dir`, makes it when it is not there, and clears what an interrupted unpack left.
    pub fn open(dir: impl AsRef<Path>, fetch: Arc<dyn BlobFetch>) -> Result<Self> {
        Self::open_with(dir, fetch, LayerLimits::default())
    }

    pub fn open_with(dir: impl AsRef<Path>, fetch: Arc<dyn BlobFetch>, limits: LayerLimits) -> Result<Self> {
        let (layers, tmp) = (dir.as_ref().join("layers"), dir.as_ref().join("tmp"));
        // Closed to others, because layers hold set-user-id programs that are nobody's business on this host.
        DirBuilder::new().recursive(true).mode(0o700).create(&layers).map_err(disk)?;
        match fs::remove_dir_all(&tmp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk(error)),
            _ => DirBuilder::new().recursive(true).mode(0o700).create(&tmp).map_err(disk)?,
        }
        let state = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { layers, tmp, fetch, limits, state }) })
    }

    /// The unpacked layers of an image, lowest first.
    pub async fn layers(&self, image: &ImageManifest) -> Result<Vec<PathBuf>> {
        let max = self.inner.limits.layers_max;
        if image.layers.len() > max {
            let count = image.layers.len();
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("image {} has {count} layers; up to {max} are accepted", image.id),
            ));
        }
        let wanted = layers_distinct(&image.layers);
        let digests = wanted.iter().map(|layer| layer.digest.clone()).collect();
        self.inner.state().held.insert(image.id.clone(), digests);
        let flights: Vec<_> = wanted.into_iter().map(|layer| self.layer(layer.clone())).collect();
        stream::iter(flights).buffered(LAYERS_PARALLEL).try_collect().await
    }

    /// Deletes layers that are neither in `used`, nor of an image that is held, nor on their way.
    pub async fn retain(&self, used: &HashSet<Digest>) -> Result<Vec<Digest>> {
        let (inner, used) = (self.inner.clone(), used.clone());
        blocking(move || inner.retain(&used)).await
    }

    /// One layer: at once when it is here, or together with all who ask for it meanwhile.
    async fn layer(&self, layer: Layer) -> Result<PathBuf> {
        let flight = match self.inner.flight(layer) {
            Ok(here) => return Ok(here),
            Err(flight) => flight,
        };
        flight.await.map_err(|error| shared_error(&error))
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.layers.join(digest.hex())
    }

    /// The layer's folder, or the work that makes it.
    fn flight(self: &Arc<Self>, layer: Layer) -> std::result::Result<PathBuf, Flight> {
        let mut state = self.state();
        if let Some(flight) = state.flights.get(&layer.digest).and_then(WeakFlight::upgrade) {
            return Err(flight);
        }
        let path = self.path(&layer.digest);
        if path.is_dir() {
            return Ok(path);
        }
        let (inner, digest) = (self.clone(), layer.digest.clone());
        let work: BoxFuture<'static, _> = Box::pin(async move { inner.make(layer).await.map_err(Arc::new) });
        let flight = work.shared();
        state.flights.retain(|_, flight| flight.upgrade().is_some());
        state.flights.insert(digest, flight.downgrade().expect("a new flight has not ended"));
        Err(flight)
    }

    async fn make(self: Arc<Self>, layer: Layer) -> Result<PathBuf> {
        let result = self.clone().fetch_and_unpack(layer.clone()).await;
        self.state().flights.remove(&layer.digest);
        result
    }

    async fn fetch_and_unpack(self: Arc<Self>, layer: Layer) -> Result<PathBuf> {
        let staging = tempfile::Builder::new().prefix("layer-").tempdir_in(&self.tmp).map_err(disk)?;
        let blob = staging.path().join("blob");
        self.fetch.fetch(&layer.digest, &blob).await?;
        blocking(move || self.unpack(&layer, staging)).await
    }

    /// Checks the blob, unpacks it beside itself and gives the result its name.
    fn unpack(&self, layer: &Layer, staging: TempDir) -> Result<PathBuf> {
        let what = format!("layer {}", layer.digest);
        let (blob, root) = (staging.path().join("blob"), staging.path().join("root"));
        reader::blob_check(&blob, layer)?;
        fs::create_dir(&root).map_err(disk)?;
        fs::set_permissions(&root, Permissions::from_mode(0o755)).map_err(disk)?;
        let file = File::open(&blob).map_err(disk)?;
        unpack::unpack(file, layer.format, &root, &what, &self.limits)?;
        let path = self.path(&layer.digest);
        match fs::rename(&root, &path) {
            // Somebody gave up waiting and somebody else began again, and both finished.
            Err(_) if path.is_dir() => return Ok(path),
            renamed => renamed.map_err(disk)?,
        }
        File::open(&self.layers).and_then(|dir| dir.sync_all()).map_err(disk)?;
        tracing::info!(digest = %layer.digest, "layer unpacked");
        Ok(path)
    }

    fn retain(&self, used: &HashSet<Digest>) -> Result<Vec<Digest>> {
        let trash = tempfile::Builder::new().prefix("trash-").tempdir_in(&self.tmp).map_err(disk)?;
        let mut gone = Vec::new();
        for entry in fs::read_dir(&self.layers).map_err(disk)? {
            let name = entry.map_err(disk)?.file_name();
            let digest = name.to_str().and_then(|hex| format!("sha256:{hex}").parse::<Digest>().ok());
            let Some(digest) = digest.filter(|digest| !used.contains(digest)) else { continue };
            // The lock keeps a request from finding the layer while its name is taken away.
            let state = self.state();
            let held = state.held.values().any(|digests| digests.contains(&digest));
            let flying = state.flights.get(&digest).is_some_and(|flight| flight.upgrade().is_some());
            if !held && !flying {
                fs::rename(self.path(&digest), trash.path().join(digest.hex())).map_err(disk)?;
                gone.push(digest);
            }
        }
        trash.close().map_err(disk)?;
        Ok(gone)
    }
}

impl LayerSource for LayerStore {
    fn rootfs_layers<'a>(&'a self, image: &'a ImageManifest) -> BoxFuture<'a, Result<Vec<PathBuf>>> {
        Box::pin(self.layers(image))
    }

    fn release(&self, image: &ImageManifest) {
        self.inner.state().held.remove(&image.id);
    }
}

/// Drops a layer that comes again further up: overlayfs refuses the same folder twice, and the upper one hides
/// or repeats all that the lower one brings.
fn layers_distinct(layers: &[Layer]) -> Vec<&Layer> {
    let mut seen = HashSet::new();
    let mut kept: Vec<&Layer> = layers.iter().rev().filter(|layer| seen.insert(&layer.digest)).collect();
    kept.reverse();
    kept
}

/// An error of our own disk; a full one is said in words.
fn disk(error: impl Into<io::Error>) -> Error {
    let error = Error::from(error.into());
    if error.kind != ErrorKind::OutOfSpace {
        return error;
    }
    Error { message: "this node's disk is full".into(), ..error }
}

/// Each waiter gets an error of its own with the same words.
fn shared_error(error: &Arc<Error>) -> Error {
    Error {
        kind: error.kind,
        message: error.message.clone(),
        field: error.field.clone(),
        hint: error.hint.clone(),
        more: error.more.clone(),
        source: Some(Box::new(error.clone())),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::internal("the layer store's worker ended early").because(error))?
}
