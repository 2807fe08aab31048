//! Time, as something that is handed in.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use model::Timestamp;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// As [`Clock::now`] was when the process started, and from then on by a clock that nobody sets: for leases
    /// and limits, which must not lapse because somebody corrected the time.
    fn steady(&self) -> Timestamp {
        self.now()
    }
}

pub type SharedClock = Arc<dyn Clock>;

/// The host's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(jiff::Timestamp::now().as_microsecond() + ahead_us())
    }

    fn steady(&self) -> Timestamp {
        static START: LazyLock<(Timestamp, Instant)> = LazyLock::new(|| (SystemClock.now(), Instant::now()));
        let (wall, instant) = &*START;
        Timestamp(wall.0.saturating_add(i64::try_from(instant.elapsed().as_micros()).unwrap_or(i64::MAX)))
    }
}

/// How far the clock is wrong on purpose: the microseconds in the file that `BANYAN_CLOCK_AHEAD` names, read each
/// time. For tests of clocks that jump, so not in a release build.
#[cfg(debug_assertions)]
fn ahead_us() -> i64 {
    static FILE: std::sync::LazyLock<Option<std::ffi::OsString>> =
        std::sync::LazyLock::new(|| std::env::var_os("BANYAN_CLOCK_AHEAD"));
    let text = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(not(debug_assertions))]
const fn ahead_us() -> i64 {
    0
}

/// A clock that stands until it is moved; for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms * 1000, Ordering::SeqCst);
    }

    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
