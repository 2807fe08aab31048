//! The files of one tenant, as root wants them to lie here: `providertypes/NAME/KIND/FILE` and
//! `automatortypes/NAME/KIND/FILE`. Each appears whole and verified or not at all, and goes when it is no
//! longer named.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use link::{Staged, TaskClient};
use model::{Digest, Error};
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use crate::resource::{Absent, is_name};
use crate::task::Fault;

/// Files of one tenant, and bytes of one of them.
const FILES_MAX: usize = 10_000;
const SIZE_MAX: u64 = 1 << 30;
/// After this a file that could not be fetched is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// Where files are until they are whole.
const DRAFTS: &str = ".drafts";

pub(super) struct Stage {
    tenant: String,
    folder: PathBuf,
    /// What lies here, as it was seen last.
    here: BTreeMap<String, Digest>,
    /// What was wanted when it was looked at last; `None` until the folder was seen.
    done: Option<Arc<Vec<Staged>>>,
    /// What could not be fetched, and why.
    absent: Arc<Absent>,
    again_at: Option<Instant>,
}

impl Stage {
    pub(super) fn new(tenant: String, folder: PathBuf) -> Self {
        Self { tenant, folder, here: BTreeMap::new(), done: None, absent: Arc::default(), again_at: None }
    }

    /// Makes the folder hold what is wanted and nothing else. A file that cannot be fetched holds up nothing but the
    /// tasks that need it, so it is returned rather than a failure; it is tried again after a while.
    pub(super) async fn bring(
        &mut self,
        client: &TaskClient,
        wanted: &Arc<Vec<Staged>>,
    ) -> Result<Arc<Absent>, Fault> {
        let is_same = self.done.as_ref().is_some_and(|done| Arc::ptr_eq(done, wanted) || done == wanted);
        if is_same && self.again_at.is_none_or(|at| Instant::now() < at) {
            return Ok(self.absent.clone());
        }
        check(wanted)?;
        if self.done.is_none() {
            let folder = self.folder.clone();
            let looked = tokio::task::spawn_blocking(move || look(&folder)).await;
            self.here = looked
                .map_err(|error| Fault::failed(format!("looking at staged files: {error}")))?
                .map_err(|error| Fault::failed(format!("looking at staged files: {error}")))?;
        }
        let mut absent = Absent::new();
        for file in wanted.iter() {
            if self.here.get(&file.path) == Some(&file.digest) {
                continue;
            }
            match self.fetch(client, file).await {
                Ok(()) => drop(self.here.insert(file.path.clone(), file.digest.clone())),
                Err(error) => {
                    tracing::warn!(tenant = %self.tenant, file = %file.path, %error, "a file cannot be fetched");
                    absent.insert(file.path.clone(), error.to_string());
                }
            }
        }
        let named = |path: &str| wanted.iter().any(|file| file.path == path);
        let recalled: Vec<String> = self.here.keys().filter(|path| !named(path)).cloned().collect();
        for path in recalled {
            match std::fs::remove_file(self.folder.join(&path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Fault::failed(format!("the file '{path}' cannot be removed: {error}")));
                }
                _ => drop(self.here.remove(&path)),
            }
        }
        self.again_at = (!absent.is_empty()).then(|| Instant::now() + AGAIN);
        (self.done, self.absent) = (Some(wanted.clone()), Arc::new(absent));
        Ok(self.absent.clone())
    }

    async fn fetch(&self, client: &TaskClient, file: &Staged) -> Result<(), Error> {
        let drafts = self.folder.join(DRAFTS);
        tokio::fs::create_dir_all(&drafts).await?;
        let draft = drafts.join(format!("{:016x}", rand::random::<u64>()));
        let came = self.fetch_to(client, file, &draft).await;
        if came.is_err() {
            let _ = tokio::fs::remove_file(&draft).await;
        }
        came
    }

    async fn fetch_to(&self, client: &TaskClient, file: &Staged, draft: &Path) -> Result<(), Error> {
        let mut options = tokio::fs::OpenOptions::new();
        let to = options.write(true).create_new(true).mode(0o700).open(draft).await?;
        let mut to = Bounded { to, left: file.size };
        client.resource(&self.tenant, &file.digest, &mut to).await?;
        to.to.sync_all().await?;
        let at = self.folder.join(&file.path);
        if let Some(folder) = at.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        tokio::fs::rename(draft, &at).await?;
        Ok(())
    }
}

/// Takes no more bytes than were announced.
struct Bounded {
    to: File,
    left: u64,
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if bytes.len() as u64 > self.left {
            return Poll::Ready(Err(std::io::Error::other("it is larger than announced")));
        }
        let written = Pin::new(&mut self.to).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.left -= *count as u64;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.to).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(cx)
    }
}

/// Nothing of it leads out of the folder.
fn check(wanted: &[Staged]) -> Result<(), Fault> {
    if wanted.len() > FILES_MAX {
        return Err(Fault::invalid(format!("more than {FILES_MAX} files are staged")));
    }
    for file in wanted {
        let parts: Vec<&str> = file.path.split('/').collect();
        let is_right = parts.len() == 4
            && ["providertypes", "automatortypes"].contains(&parts[0])
            && parts.iter().all(|part| is_name(part));
        if !is_right {
            return Err(Fault::invalid(format!("'{}' is no place of a file", model::shown(&file.path))));
        }
        if file.size > SIZE_MAX {
            return Err(Fault::invalid(format!("'{}' is larger than {} MiB", file.path, SIZE_MAX >> 20)));
        }
    }
    Ok(())
}

/// What lies there from an earlier life. Drafts of that life are removed.
fn look(folder: &Path) -> std::io::Result<BTreeMap<String, Digest>> {
    let mut here = BTreeMap::new();
    let mut folders = vec![(String::new(), folder.to_owned())];
    match std::fs::remove_dir_all(folder.join(DRAFTS)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    while let Some((prefix, at)) = folders.pop() {
        let entries = match std::fs::read_dir(&at) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            match entry.file_type()?.is_dir() {
                true => folders.push((path, entry.path())),
                false => drop(here.insert(path, digest(&entry.path())?)),
            }
        }
    }
    Ok(here)
}

fn digest(path: &Path) -> std::io::Result<Digest> {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(Digest::from_sha256(&hash.finalize())),
            count => hash.update(&piece[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_staged_outside_its_folder() {
        let file = |path: &str, size| Staged {
            path: path.to_owned(),
            digest: Digest::from_sha256(&Sha256::digest(b"")),
            size,
        };
        assert!(check(&[file("automatortypes/shell/scripts/a.sh", 1)]).is_ok());
        for path in [
            "automatortypes/shell/scripts/../a",
            "/etc/shell/scripts/a",
            "automatortypes/shell/scripts",
            "automatortypes/../scripts/a",
            "automatortypes/shell/.drafts/a",
            "automatortypes/shell//a",
            "other/shell/scripts/a",
        ] {
            assert!(check(&[file(path, 1)]).is_err(), "{path}");
        }
        assert!(check(&[file("automatortypes/shell/scripts/a.sh", SIZE_MAX + 1)]).is_err());
    }
}
