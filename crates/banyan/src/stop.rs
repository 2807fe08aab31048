//! When a role is told to end.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set once the process was told to end.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Whether this process is on its way out, so that its own parts lose each other.
pub fn ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Ctrl-C or a polite kill.
pub struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    pub fn new() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        ENDING.store(true, Ordering::Relaxed);
    }
}
