//! Image layers on their way from root to nodes, kept so that each crosses the link once.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use link::Uplink;
use model::{Digest, Result};

/// A blob may be on its way to a node before the zone hears of its instance.
const KEPT_UNUSED: Duration = Duration::from_secs(3600);

pub struct Blobs {
    dir: PathBuf,
    uplink: Arc<dyn Uplink>,
    /// One fetch per blob at a time.
    busy: Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>,
}

impl Blobs {
    pub fn open(dir: PathBuf, uplink: Arc<dyn Uplink>) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        Ok(Self { dir, uplink, busy: Mutex::default() })
    }

    /// The file of a blob, fetched from root if it is not here yet.
    pub async fn get(&self, digest: &Digest) -> Result<PathBuf> {
        let path = self.dir.join(digest.hex());
        let lock = {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.entry(digest.clone()).or_default().clone()
        };
        let _alone = lock.lock().await;
        if !tokio::fs::try_exists(&path).await? {
            self.fetch(digest, &path).await?;
        }
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(digest);
        Ok(path)
    }

    /// Removes blobs that no image of this zone uses and that nobody asked for in a while.
    pub async fn sweep(&self, used: &HashSet<Digest>) -> Result<()> {
        let mut files = tokio::fs::read_dir(&self.dir).await?;
        while let Some(file) = files.next_entry().await? {
            let age = file.metadata().await?.modified()?.elapsed().unwrap_or_default();
            let name = file.file_name();
            let wanted = used.iter().any(|digest| name.to_str() == Some(digest.hex()));
            if !wanted && age > KEPT_UNUSED {
                tokio::fs::remove_file(file.path()).await?;
            }
        }
        Ok(())
    }

    async fn fetch(&self, digest: &Digest, path: &Path) -> Result<()> {
        let draft = path.with_extension("draft");
        let mut file = tokio::fs::File::create(&draft).await?;
        if let Err(error) = self.uplink.blob(digest, &mut file).await {
            let _ = tokio::fs::remove_file(&draft).await;
            return Err(error);
        }
        file.sync_all().await?;
        tokio::fs::rename(&draft, path).await?;
        Ok(())
    }
}
