//! The files of one tenant, as root wants them to lie here: `providertypes/NAME/KIND/FILE` and
//! `automatortypes/NAME/KIND/FILE`. Each appears whole and verified or not at all, and goes when it is no
//! longer named.
//!
//! ```text
//!   wanted ─▶ here        it lies here
//!         └─▶ coming      it is being fetched; a few at a time, and not for ever
//!               └─▶ absent   it could not be; tried again later, each time later
//! ```
//! A task waits for the files of its plugins, and for no others.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use link::{Staged, TaskClient};
use model::{Digest, Error};
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::AsyncWrite;
use tokio::sync::{OnceCell, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::resource::{Absent, is_name};
use crate::task::Fault;

/// Files of one tenant, and bytes of one of them.
const FILES_MAX: usize = 10_000;
const SIZE_MAX: u64 = 1 << 30;
/// Files of one tenant that are fetched at once.
const FETCHES_MAX: usize = 16;
/// A file of which nothing comes for so long is given up for now, and so is one that takes longer altogether.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const FETCH_MAX: Duration = Duration::from_secs(900);
/// After this a file that could not be fetched is tried again; twice as late each time.
const AGAIN_FIRST: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// Where files are until they are whole.
const DRAFTS: &str = ".drafts";

pub(super) struct Stage(Arc<Inner>);

struct Inner {
    tenant: String,
    folder: PathBuf,
    looked: OnceCell<()>,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    wanted: Arc<Vec<Staged>>,
    /// What lies here, as it was seen last.
    here: BTreeMap<String, Digest>,
    coming: BTreeMap<String, Coming>,
    waiting: VecDeque<Staged>,
    absent: BTreeMap<String, Missed>,
    /// Numbers fetches, so that one that was given up changes nothing any more.
    count: u64,
}

struct Coming {
    number: u64,
    digest: Digest,
    _fetch: AbortOnDropHandle<()>,
}

/// What could not be fetched.
struct Missed {
    digest: Digest,
    why: String,
    failures: u32,
    again_at: Instant,
}

impl Missed {
    fn new(file: &Staged, why: String, before: Option<&Self>) -> Self {
        let failures =
            before.filter(|before| before.digest == file.digest).map_or(0, |before| before.failures);
        let pause = AGAIN_FIRST * 2_u32.pow(failures.min(16));
        let again_at = Instant::now() + pause.min(AGAIN_MAX);
        Self { digest: file.digest.clone(), why, failures: failures + 1, again_at }
    }
}

impl State {
    /// Whether nothing is to be done for it now: it is here, on its way, or was missed a moment ago.
    fn is_settled(&self, file: &Staged) -> bool {
        let path = &file.path;
        self.here.get(path) == Some(&file.digest)
            || self.waiting.iter().any(|waiting| waiting == file)
            || self.coming.get(path).is_some_and(|coming| coming.digest == file.digest)
            || self
                .absent
                .get(path)
                .is_some_and(|missed| missed.digest == file.digest && Instant::now() < missed.again_at)
    }

    /// Whether something of this plugin is on its way. What was missed before is waited for by nobody while it is tried
    /// again.
    fn is_coming(&self, plugin: &str) -> bool {
        let is_its = |path: &str| {
            let is_own = path.strip_prefix(plugin).is_some_and(|rest| rest.starts_with('/'));
            is_own && !self.absent.contains_key(path)
        };
        self.coming.keys().any(|path| is_its(path)) || self.waiting.iter().any(|file| is_its(&file.path))
    }

    fn absent(&self) -> Absent {
        self.absent.iter().map(|(path, missed)| (path.clone(), missed.why.clone())).collect()
    }
}

impl Stage {
    pub(super) fn new(tenant: String, folder: PathBuf) -> Self {
        let (looked, state, changed) = Default::default();
        Self(Arc::new(Inner { tenant, folder, looked, state, changed }))
    }

    /// Lets the folder come to hold what is wanted and nothing else, and waits until that is so for these plugins, such
    /// as `automatortypes/shell`. A file that cannot be fetched fails nobody but the tasks that need it, so it is
    /// returned.
    pub(super) async fn bring(
        &self,
        client: &Arc<TaskClient>,
        wanted: &Arc<Vec<Staged>>,
        plugins: &[String],
    ) -> Result<Absent, Fault> {
        check(wanted)?;
        self.0.looked.get_or_try_init(|| self.look()).await?;
        let mut changed = self.0.changed.subscribe();
        self.0.want(client, wanted)?;
        loop {
            changed.borrow_and_update();
            {
                let state = self.0.state();
                if !plugins.iter().any(|plugin| state.is_coming(plugin)) {
                    return Ok(state.absent());
                }
            }
            // It is held by ourselves, so it does not end.
            let _ = changed.changed().await;
        }
    }

    async fn look(&self) -> Result<(), Fault> {
        let folder = self.0.folder.clone();
        let looked = tokio::task::spawn_blocking(move || look(&folder)).await;
        self.0.state().here = looked
            .map_err(|error| Fault::failed(format!("looking at staged files: {error}")))?
            .map_err(|error| Fault::failed(format!("looking at staged files: {error}")))?;
        Ok(())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away what is not wanted, and begins to fetch what is missing.
    fn want(self: &Arc<Self>, client: &Arc<TaskClient>, wanted: &Arc<Vec<Staged>>) -> Result<(), Fault> {
        let mut state = self.state();
        if !Arc::ptr_eq(&state.wanted, wanted) {
            state.wanted = wanted.clone();
            let named: BTreeMap<&str, &Digest> =
                wanted.iter().map(|file| (file.path.as_str(), &file.digest)).collect();
            state.waiting.retain(|file| named.get(file.path.as_str()) == Some(&&file.digest));
            state.coming.retain(|path, coming| named.get(path.as_str()) == Some(&&coming.digest));
            // Something was done about the files, so what was missed may be there now, and is waited for again.
            state.absent.clear();
            let recalled: Vec<String> =
                state.here.keys().filter(|path| !named.contains_key(path.as_str())).cloned().collect();
            for path in recalled {
                match std::fs::remove_file(self.folder.join(&path)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        // It is tried again by the next one.
                        state.wanted = Arc::default();
                        return Err(Fault::failed(format!("the file '{path}' cannot be removed: {error}")));
                    }
                    _ => drop(state.here.remove(&path)),
                }
            }
        }
        let missing: Vec<Staged> = wanted.iter().filter(|file| !state.is_settled(file)).cloned().collect();
        state.waiting.extend(missing);
        self.begin(&mut state, client);
        Ok(())
    }

    /// Fetches as many as may be fetched at once.
    fn begin(self: &Arc<Self>, state: &mut State, client: &Arc<TaskClient>) {
        while state.coming.len() < FETCHES_MAX
            && let Some(file) = state.waiting.pop_front()
        {
            state.count += 1;
            let (number, path, digest) = (state.count, file.path.clone(), file.digest.clone());
            let fetch = tokio::spawn(fetch(Arc::downgrade(self), client.clone(), file, number));
            let _fetch = AbortOnDropHandle::new(fetch);
            state.coming.insert(path, Coming { number, digest, _fetch });
        }
    }

    /// What came of a fetch, if it still counts. A whole file is put into its place.
    fn fetched(
        self: &Arc<Self>,
        client: &Arc<TaskClient>,
        file: &Staged,
        number: u64,
        came: Result<&Path, Error>,
    ) {
        let mut state = self.state();
        if state.coming.get(&file.path).is_none_or(|coming| coming.number != number) {
            return;
        }
        let at = self.folder.join(&file.path);
        let placed = came.and_then(|draft| {
            at.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            Ok(std::fs::rename(draft, &at)?)
        });
        match placed {
            Ok(()) => {
                state.here.insert(file.path.clone(), file.digest.clone());
                state.absent.remove(&file.path);
            }
            Err(error) => {
                tracing::warn!(tenant = %self.tenant, file = %file.path, %error, "a file cannot be fetched");
                let missed = Missed::new(file, error.to_string(), state.absent.get(&file.path));
                state.absent.insert(file.path.clone(), missed);
            }
        }
        // This fetch itself: it has nothing more to do, and must not end before it said so.
        let own = state.coming.remove(&file.path);
        self.begin(&mut state, client);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
        drop(own);
    }
}

/// Fetches one file beside all others.
async fn fetch(stage: Weak<Inner>, client: Arc<TaskClient>, file: Staged, number: u64) {
    let Some(folder) = stage.upgrade().map(|inner| inner.folder.clone()) else { return };
    let drafts = folder.join(DRAFTS);
    let draft = Draft(drafts.join(format!("{:016x}", rand::random::<u64>())));
    let tenant = stage.upgrade().map(|inner| inner.tenant.clone()).unwrap_or_default();
    let came = match tokio::fs::create_dir_all(&drafts).await {
        Ok(()) => fetch_to(&client, &tenant, &file, &draft.0).await,
        Err(error) => Err(error.into()),
    };
    if let Some(inner) = stage.upgrade() {
        inner.fetched(&client, &file, number, came.map(|()| draft.0.as_path()));
    }
}

/// A file that goes unless it was put into its place.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn fetch_to(client: &TaskClient, tenant: &str, file: &Staged, draft: &Path) -> Result<(), Error> {
    let mut options = tokio::fs::OpenOptions::new();
    let to = options.write(true).create_new(true).mode(0o700).open(draft).await?;
    let heard = Arc::new(AtomicU64::new(0));
    let mut to = Bounded { to, left: file.size, heard: heard.clone() };
    let fetching = async {
        client.resource(tenant, &file.digest, &mut to).await?;
        Ok::<(), Error>(to.to.sync_all().await?)
    };
    let silent = async {
        let mut before = u64::MAX;
        loop {
            let now = heard.load(Ordering::Relaxed);
            if now == before {
                return Error::unavailable(format!("nothing of it came for {} s", SILENCE_MAX.as_secs()));
            }
            before = now;
            sleep(SILENCE_MAX).await;
        }
    };
    let late = || Error::unavailable(format!("it took longer than {} s", FETCH_MAX.as_secs()));
    let both = async {
        tokio::select! {
            came = fetching => came,
            error = silent => Err(error),
        }
    };
    timeout(FETCH_MAX, both).await.unwrap_or_else(|_| Err(late()))
}

/// Takes no more bytes than were announced.
struct Bounded {
    to: File,
    left: u64,
    /// Bytes that came.
    heard: Arc<AtomicU64>,
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
            self.heard.fetch_add(*count as u64, Ordering::Relaxed);
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
