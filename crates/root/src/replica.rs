//! Image layers on every root server: each fetches what it lacks from the others, and an import is answered
//! once another server has a copy too.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::{Digest, Error, Result};

use crate::image::ImageStore;
use crate::ops::image::digests_used;
use crate::peer::Peers;
use crate::state::State;

/// How often a server looks for layers that it lacks when nothing changed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(500);

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct Replica {
    images: ImageStore,
    peers: Peers,
    /// One fetch of a blob at a time.
    fetching: Arc<Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>>,
}

impl Replica {
    pub fn new(images: ImageStore, peers: Peers) -> Self {
        Self { images, peers, fetching: Arc::default() }
    }

    /// Where a blob lies; it is fetched from another server when it is not here.
    pub async fn blob(&self, digest: &Digest) -> Result<PathBuf> {
        if let Some(path) = self.images.blob_path(digest) {
            return Ok(path);
        }
        let mut why = Error::not_found(format!("blob {digest}"));
        for server in self.peers.duties().others() {
            match self.fetch(&server.link_url, digest).await {
                Ok(path) => return Ok(path),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Fetches a blob from one server, checks it and keeps it.
    async fn fetch(&self, url: &str, digest: &Digest) -> Result<PathBuf> {
        let turn = self.turn(digest);
        let _turn = turn.lock().await;
        if let Some(path) = self.images.blob_path(digest) {
            return Ok(path);
        }
        let client = self.peers.client(url)?;
        let temp = self.images.blob_temp()?;
        let mut file = tokio::fs::File::from_std(temp.reopen()?);
        let size = client.blob(digest, &mut file).await?;
        file.sync_all().await?;
        self.images.blob_keep(digest.clone(), size, temp).await?;
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner).remove(digest);
        self.images.blob_path(digest).ok_or_else(|| Error::not_found(format!("blob {digest}")))
    }

    fn turn(&self, digest: &Digest) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for those that only the map holds.
        fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
        fetching.entry(digest.clone()).or_default().clone()
    }

    /// Fetches all of these from one server; another asked for that.
    pub async fn take(&self, from: &str, digests: &[Digest]) -> Result<()> {
        for digest in digests {
            self.fetch(from, digest).await?;
        }
        Ok(())
    }

    /// Has at least one other server keep these blobs. `Ok` when there is no other; otherwise why none did.
    pub async fn spread(&self, digests: Vec<Digest>) -> Result<()> {
        let Some(from) = self.peers.duties().link_url() else { return Ok(()) };
        let mut why = None;
        for server in self.peers.duties().others() {
            match self.peers.take(&server, &from, digests.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, server = %server.link_url, "a copy of an image was not taken");
                    why = Some(error);
                }
            }
        }
        why.map_or(Ok(()), Err)
    }

    /// Fetches what images and instances need and this server lacks. Runs for ever.
    pub async fn run(&self, state: &State) {
        let mut changed = state.changed();
        loop {
            if !self.peers.duties().others().is_empty() {
                self.complete(state).await;
            }
            tokio::time::sleep(SETTLE).await;
            let _ = tokio::time::timeout(LOOK_EVERY, changed.changed()).await;
        }
    }

    async fn complete(&self, state: &State) {
        let used = digests_used(&state.snapshot());
        for digest in used.iter().filter(|digest| self.images.blob_path(digest).is_none()) {
            if let Err(error) = self.blob(digest).await {
                tracing::debug!(%error, %digest, "a layer could not be fetched from another server");
            }
        }
    }
}
