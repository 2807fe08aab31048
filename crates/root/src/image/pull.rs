//! Pulls from a registry: documents first, then layers streamed into files, some at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::stream::{self, StreamExt, TryStreamExt};
use model::{Digest, Error, ImageId, Result};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt;

use super::blob::Staged;
use super::import::mismatch;
use super::manifest::{self, Config, Descriptor, Document};
use super::registry::Registry;
use super::{ImageStore, Imported, disk};

/// Layers that come at the same time.
const LAYERS_PARALLEL: usize = 3;
/// A pull that takes longer is given up, however steadily it drips.
const PULL_TIME_MAX: Duration = Duration::from_secs(2 * 3600);

/// How far a pull has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    pub bytes_done: u64,
    pub bytes_total: u64,
}

/// Counts bytes of all layers together and tells the caller.
struct Counter<'a> {
    done: AtomicU64,
    total: u64,
    tell: &'a (dyn Fn(PullProgress) + Send + Sync),
}

impl Counter<'_> {
    fn add(&self, bytes: u64) {
        let bytes_done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.tell)(PullProgress { bytes_done, bytes_total: self.total });
    }
}

impl ImageStore {
    /// Pulls `reference` without credentials. `progress` is called often and must not block.
    pub async fn pull(
        &self,
        id: ImageId,
        reference: &str,
        progress: &(dyn Fn(PullProgress) + Send + Sync),
    ) -> Result<Imported> {
        tokio::time::timeout(PULL_TIME_MAX, self.pull_unbounded(id, reference, progress))
            .await
            .map_err(|_| Error::unavailable(format!("'{reference}' did not arrive in time")))?
    }

    async fn pull_unbounded(
        &self,
        id: ImageId,
        reference: &str,
        progress: &(dyn Fn(PullProgress) + Send + Sync),
    ) -> Result<Imported> {
        let registry = Registry::new(reference, &self.limits)?;
        let mut document: Document = manifest::parse(&registry.manifest_named().await?, "the manifest")?;
        for _ in 0..manifest::INDEX_DEPTH_MAX {
            let Some(manifests) = &document.manifests else { break };
            let digest = manifest::choose(manifests, reference)?.digest()?;
            document = manifest::parse(&registry.manifest(&digest).await?, "the manifest")?;
        }
        let (config, layers) = manifest::admit(document, &self.limits)?;
        let config: Config = manifest::parse(&registry.blob_whole(&config.digest()?).await?, "the config")?;
        let total = layers.iter().map(|layer| layer.size).sum();
        let counter = Counter { done: AtomicU64::new(0), total, tell: progress };
        let fetches: Vec<_> =
            layers.iter().map(|layer| self.layer_fetch(&registry, layer, &counter)).collect();
        let staged: Vec<Staged> = stream::iter(fetches).buffered(LAYERS_PARALLEL).try_collect().await?;
        self.blocking(move |store| store.staged_commit(id, config, staged)).await
    }

    async fn layer_fetch(
        &self,
        registry: &Registry,
        layer: &Descriptor,
        counter: &Counter<'_>,
    ) -> Result<Staged> {
        let digest = layer.digest()?;
        if let Some(present) = self.blobs.stage_present(&digest, layer.size)? {
            counter.add(layer.size);
            return Ok(present);
        }
        let mut answer = registry.blob(&digest).await?;
        let (file, path) = self.blobs.temp()?.into_parts();
        let mut file = tokio::fs::File::from_std(file);
        let mut hasher = Sha256::new();
        let mut size = 0;
        while let Some(chunk) = answer.chunk().await.map_err(|error| registry.unreachable(error))? {
            size += chunk.len() as u64;
            if size > layer.size {
                return Err(mismatch("a layer that the registry sent", &digest));
            }
            hasher.update(&chunk);
            file.write_all(&chunk).await.map_err(disk)?;
            counter.add(chunk.len() as u64);
        }
        file.flush().await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        if size != layer.size || Digest::from_sha256(&hasher.finalize()) != digest {
            return Err(mismatch("a layer that the registry sent", &digest));
        }
        Ok(Staged::new(digest, size, path))
    }
}
