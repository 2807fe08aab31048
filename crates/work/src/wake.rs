//! A wake-up that is remembered until somebody waits for it.

use std::sync::Arc;

use tokio::sync::Notify;

/// Wakes one waiting loop. Many wake-ups before the wait count as one.
#[derive(Debug, Clone, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Returns at once when it was woken since the last wait.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}
