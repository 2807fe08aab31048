//! Sessions that are kept for the next one who needs them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::SshError;
use super::session::{Auth, Session, Target};

/// A session that nobody used for so long is closed.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Cheap to clone. Many may use the session of one machine at once.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    /// Sessions and attempts at once.
    places: Arc<Semaphore>,
    kept: Mutex<HashMap<Door, Arc<Slot>>>,
}

/// One way into one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Door {
    address: String,
    user: String,
    with: String,
}

/// One connection at a time is made through a door; those who come meanwhile wait for it.
#[derive(Default)]
struct Slot {
    session: tokio::sync::Mutex<Option<Arc<Held>>>,
    used: Mutex<Option<Instant>>,
}

struct Held {
    session: Session,
    _place: OwnedSemaphorePermit,
}

/// A session for as long as it is needed.
pub struct Lent(Arc<Held>);

impl Deref for Lent {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.0.session
    }
}

impl Pool {
    /// At most `most` sessions at once; who wants one more waits.
    pub fn new(most: usize) -> Self {
        let places = Arc::new(Semaphore::new(most));
        Self { inner: Arc::new(Inner { places, kept: Mutex::default() }) }
    }

    /// A session to the machine: one that is there, or a new one. A machine that was replaced by another under
    /// the same address is noticed by its key.
    pub async fn session(&self, target: &Target) -> Result<Lent, SshError> {
        let slot = self.slot(target);
        let mut session = slot.session.lock().await;
        slot.touch();
        if let Some(held) = session.as_ref() {
            if !held.session.is_closed() && target.is_right(held.session.host_key()) {
                return Ok(Lent(held.clone()));
            }
            *session = None;
        }
        let place = self.place().await?;
        let made = Arc::new(Held { session: Session::connect(target).await?, _place: place });
        *session = Some(made.clone());
        slot.touch();
        Ok(Lent(made))
    }

    /// Waits for a place; sessions that nobody uses make room.
    async fn place(&self) -> Result<OwnedSemaphorePermit, SshError> {
        if let Ok(place) = self.inner.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        self.tidy(Duration::ZERO);
        let waiting = self.inner.places.clone().acquire_owned();
        waiting.await.map_err(|_| SshError::Key("the pool of sessions is closed".to_owned()))
    }

    fn slot(&self, target: &Target) -> Arc<Slot> {
        let with = match &target.auth {
            Auth::Key(key) => key.fingerprint(),
            // Who comes with another password must show that it is right.
            Auth::Password(password) => format!("password {}", digest(password)),
        };
        let door = Door { address: target.address(), user: target.user.clone(), with };
        self.kept().entry(door).or_default().clone()
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Door, Arc<Slot>>> {
        self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes sessions that nobody uses; to be called now and then.
    pub fn tidy_idle(&self) {
        self.tidy(IDLE_MAX);
    }

    fn tidy(&self, idle: Duration) {
        self.kept().retain(|_, slot| {
            // Somebody holds it, or is about to.
            let Ok(mut session) = slot.session.try_lock() else { return true };
            let is_lent = session.as_ref().is_some_and(|held| Arc::strong_count(held) > 1);
            if is_lent || Arc::strong_count(slot) > 1 || !slot.is_idle(idle) {
                return true;
            }
            *session = None;
            false
        });
    }

    pub fn count(&self) -> usize {
        self.kept().len()
    }
}

impl Slot {
    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_idle(&self, idle: Duration) -> bool {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.is_none_or(|used| used.elapsed() >= idle)
    }
}

fn digest(text: &str) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // The same within a process, and of no use outside.
    static STATE: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
    STATE.hash_one(text)
}
