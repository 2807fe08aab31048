//! Reports on their way to root: those that wait together go in one request, and each has its own answer.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use link::limits::TASKS_DONE_MAX;
use link::{TaskClient, TaskDone};
use model::{Error, ErrorKind, Report, Result};
use tokio::sync::{Notify, oneshot};

/// Requests at once: while root keeps what one brought, another gathers.
pub(super) const SENDERS: usize = 2;
/// Bytes of outputs after which a request takes no more reports.
const REQUEST_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<Waiting>>,
    more: Notify,
}

struct Waiting {
    done: TaskDone,
    answer: oneshot::Sender<(TaskDone, Result<()>)>,
}

impl Outbox {
    /// Returns when root answered, with what was sent. It may be dropped; then it may be sent or not.
    pub(super) async fn send(&self, done: TaskDone) -> Option<(TaskDone, Result<()>)> {
        let (answer, answered) = oneshot::channel();
        self.waiting().push_back(Waiting { done, answer });
        self.more.notify_one();
        answered.await.ok()
    }

    /// Sends for ever.
    pub(super) async fn run(&self, client: &TaskClient) {
        loop {
            let batch = self.take();
            if batch.is_empty() {
                self.more.notified().await;
                continue;
            }
            // What is left is for another sender.
            self.more.notify_one();
            deliver(client, batch).await;
        }
    }

    /// What goes in one request. Nothing is sent for those who wait no longer.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < TASKS_DONE_MAX
            && bytes < REQUEST_BYTES
            && let Some(next) = waiting.pop_front()
        {
            if !next.answer.is_closed() {
                bytes += size(&next.done.report);
                batch.push(next);
            }
        }
        batch
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(report: &Report) -> usize {
    report.stdout.len() + report.stderr.len() + report.message.len()
}

async fn deliver(client: &TaskClient, batch: Vec<Waiting>) {
    let done: Vec<&TaskDone> = batch.iter().map(|waiting| &waiting.done).collect();
    match client.finish_all(&done).await {
        Ok(told) => {
            for (Waiting { done, answer }, told) in batch.into_iter().zip(told) {
                let _ = answer.send((done, told));
            }
        }
        // One of them is too much, or all together are.
        Err(error) if error.kind == ErrorKind::TooLarge && batch.len() > 1 => {
            for Waiting { done, answer } in batch {
                let told = client.finish(&done).await;
                let _ = answer.send((done, told));
            }
        }
        Err(error) => {
            for Waiting { done, answer } in batch {
                let _ = answer.send((done, Err(Error::new(error.kind, error.message.clone()))));
            }
        }
    }
}
