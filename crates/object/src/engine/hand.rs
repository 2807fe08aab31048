//! How the engine's own threads change records: as everyone does.

use std::sync::Arc;

use tokio::sync::mpsc::WeakSender;

use super::api::EngineError;
use super::core::Core;
use super::tx::Tx;
use super::writer::{Job, call};

/// Does not keep the engine open.
#[derive(Clone)]
pub(super) struct Hand {
    pub core: Arc<Core>,
    pub jobs: WeakSender<Job>,
}

impl Hand {
    /// Runs a change and waits until it is durable. Blocking.
    pub fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Tx<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (job, answer) = call(change);
        let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
        jobs.blocking_send(job).map_err(|_| EngineError::Stopped)?;
        drop(jobs);
        answer.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    /// Wakes the writer. A full queue means that it is awake.
    pub fn wake_writer(&self) -> Result<(), EngineError> {
        let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
        let _ = jobs.try_send(Job::Wake);
        Ok(())
    }
}
