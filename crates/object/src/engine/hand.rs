//! How the engine's own threads change records: as everyone does.

use std::sync::Arc;
use std::sync::mpsc as orders;

use tokio::sync::mpsc::WeakSender;

use super::api::EngineError;
use super::core::Core;
use super::tx::Tx;
use super::writer::{Job, Order, call};

/// Does not keep the engine open.
#[derive(Clone)]
pub(super) struct Hand {
    pub core: Arc<Core>,
    pub jobs: WeakSender<Job>,
    /// Of the keeper. The writer may wait for it, so its changes do not wait in the writer's queue.
    pub orders: Option<orders::Sender<Order>>,
}

impl Hand {
    /// Runs a change and waits until it is durable. Blocking.
    pub fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Tx<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (change, answer) = call(change);
        if self.orders.is_some() {
            self.order(Order::Change(change))?;
        } else {
            let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
            jobs.blocking_send(Job::Change(change)).map_err(|_| EngineError::Stopped)?;
        }
        answer.blocking_recv().map_err(|_| EngineError::Stopped)?
    }

    /// Tells the writer what the keeper asks of it.
    pub fn order(&self, order: Order) -> Result<(), EngineError> {
        let orders = self.orders.as_ref().ok_or(EngineError::Stopped)?;
        orders.send(order).map_err(|_| EngineError::Stopped)?;
        self.wake_writer()
    }

    /// Wakes the writer. A full queue means that it is awake.
    fn wake_writer(&self) -> Result<(), EngineError> {
        let jobs = self.jobs.upgrade().ok_or(EngineError::Stopped)?;
        let _ = jobs.try_send(Job::Wake);
        Ok(())
    }
}
