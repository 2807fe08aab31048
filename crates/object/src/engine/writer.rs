//! The one writer: runs changes in order and makes them durable in groups.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc as orders;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::api::EngineError;
use super::blob::Tally;
use super::core::{Core, wall};
use super::index::{Base, Mark};
use super::journal::{AppendError, Journal};
use super::layers::{Changes, State};
use super::tx::{Group, Tx};

/// Changes that wait for the writer.
pub(super) const QUEUE_MAX: usize = 1024;
/// Changes in one group.
const GROUP_MAX: usize = 512;
/// Bytes in one group before it takes no more.
const GROUP_BYTES: usize = 8 << 20;
/// Changed records that wake the checkpoint before its time, and that make the writer wait for it.
pub(super) const CHANGED_SOON: usize = 20_000;
pub(super) const CHANGED_MAX: usize = 80_000;
/// How long the writer waits for a checkpoint before it refuses changes.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(30);

/// A change whose types are forgotten.
pub(super) trait Change: Send {
    /// Whether its writes are kept.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Tells the outcome, once it is durable or has failed.
    fn answer(self: Box<Self>, failure: Option<EngineError>);
}

pub(super) enum Job {
    Change(Box<dyn Change>),
    /// Ends the taking of changes; told when the index is durable.
    Close(oneshot::Sender<()>),
    /// There is an order to look at.
    Wake,
}

/// What the keeper asks of the writer, between groups.
pub(super) enum Order {
    /// Sets aside what changed; `None` if nothing did.
    Freeze(orders::Sender<Option<(Changes, Mark)>>),
    /// The index holds what was set aside.
    Thaw(Arc<Base>),
    /// The index was opened anew and holds what it held.
    Rebase(Arc<Base>),
    /// A change of the keeper's own.
    Change(Box<dyn Change>),
}

struct Call<T, E, F> {
    change: Option<F>,
    result: Option<Result<T, E>>,
    reply: oneshot::Sender<Result<T, E>>,
}

/// A change and where its answer comes.
pub(super) fn call<T, E, F>(change: F) -> (Box<dyn Change>, oneshot::Receiver<Result<T, E>>)
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<EngineError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Call { change: Some(change), result: None, reply }), answer)
}

impl<T, E, F> Change for Call<T, E, F>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<EngineError> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        let Some(change) = self.change.take() else { return false };
        let result = catch_unwind(AssertUnwindSafe(|| change(tx)))
            .unwrap_or_else(|_| Err(EngineError::Index("a change panicked and was undone".into()).into()));
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn answer(mut self: Box<Self>, failure: Option<EngineError>) {
        let result = match (failure, self.result.take()) {
            (Some(error), _) => Err(error.into()),
            (None, Some(result)) => result,
            (None, None) => Err(EngineError::Stopped.into()),
        };
        // The caller may have gone; the change stands.
        let _ = self.reply.send(result);
    }
}

pub(super) struct Writer {
    pub core: Arc<Core>,
    pub journal: Journal,
    pub jobs: mpsc::Receiver<Job>,
    pub orders: orders::Receiver<Order>,
    /// The latest time a change has seen.
    pub time: i64,
    /// What the last checkpoint set aside covers.
    pub covered: (u64, u64),
}

impl Writer {
    pub fn run(mut self) {
        while let Some(job) = self.jobs.blocking_recv() {
            match job {
                Job::Wake => {}
                Job::Close(done) => self.close(done),
                Job::Change(first) => match self.make_room() {
                    Ok(()) => self.group(first),
                    Err(failure) => first.answer(Some(failure)),
                },
            }
            // After the job: the group may have taken a wake-up from the queue.
            self.obey();
        }
    }

    /// Waits for a checkpoint when too much has changed since the last. What the keeper wants to change meanwhile is
    /// changed: it comes to the checkpoint after that.
    fn make_room(&mut self) -> Result<(), EngineError> {
        let changed = self.core.state().active.len();
        if changed >= CHANGED_SOON {
            self.core.signal.wake();
        }
        let until = Instant::now() + CHECKPOINT_WAIT;
        while self.core.is_behind() {
            self.core.signal.wake();
            match self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(order) => self.order(order),
                Err(_) if self.core.index_fails.load(Ordering::Relaxed) => {
                    let failure = io::Error::new(io::ErrorKind::StorageFull, "the index cannot be written");
                    return Err(failure.into());
                }
                Err(_) => return Err(EngineError::Behind),
            }
        }
        Ok(())
    }

    fn obey(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.order(order);
        }
    }

    fn order(&mut self, order: Order) {
        let state = self.core.state();
        match order {
            Order::Freeze(reply) => {
                let position = (self.journal.segment, self.journal.offset);
                if state.active.is_empty() && position == self.covered {
                    drop(reply.send(None));
                    return;
                }
                let mark = self.mark();
                // A keeper that fails to write keeps what it was given, so there is never more than one layer set aside.
                debug_assert!(state.frozen.is_empty());
                let frozen = state.active.clone();
                self.covered = position;
                self.publish(State {
                    active: Changes::new(),
                    frozen: frozen.clone(),
                    base: state.base.clone(),
                });
                drop(reply.send(Some((frozen, mark))));
            }
            Order::Thaw(base) => {
                self.publish(State { active: state.active.clone(), frozen: Changes::new(), base });
            }
            Order::Rebase(base) => {
                self.publish(State { active: state.active.clone(), frozen: state.frozen.clone(), base });
            }
            Order::Change(change) => self.group(change),
        }
    }

    fn mark(&self) -> Mark {
        let (next, open) = self.core.files.mark();
        Mark {
            format: super::index::FORMAT,
            salt: self.core.salt,
            segment: self.journal.segment,
            offset: self.journal.offset,
            group: self.journal.group,
            time: self.time,
            next,
            open,
        }
    }

    fn publish(&self, state: State) {
        *self.core.state.write().expect("no panic under this lock") = Arc::new(state);
    }

    /// Runs the changes that wait, makes them durable together, and answers. A change of the keeper's takes no others
    /// with it while these have to wait.
    fn group(&mut self, first: Box<dyn Change>) {
        let alone = self.core.is_behind();
        if let Err(failure) = self.begin() {
            first.answer(Some(failure));
            return;
        }
        let before = self.core.state();
        let core = self.core.clone();
        let mut group = Group {
            core: &core,
            journal: &mut self.journal,
            state: State {
                active: before.active.clone(),
                frozen: before.frozen.clone(),
                base: before.base.clone(),
            },
            changes: Vec::new(),
            tally: Tally::default(),
            files: Vec::new(),
            now: 0,
        };
        let mut done = Vec::new();
        let mut close = None;
        let mut next = Some(first);
        while let Some(mut change) = next.take() {
            self.time = self.time.max(wall());
            group.now = self.time;
            group.run(|tx| change.run(tx));
            done.push(change);
            while next.is_none() && !alone && done.len() < GROUP_MAX && group.size() < GROUP_BYTES {
                match self.jobs.try_recv() {
                    Ok(Job::Change(change)) => next = Some(change),
                    Ok(Job::Wake) => {}
                    Ok(Job::Close(done)) => {
                        close = Some(done);
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
        let accounted = group.account();
        let Group { state, changes, files, .. } = group;
        let failure = accounted.err().or_else(|| self.make_durable(&changes, done.len()));
        if failure.is_none() {
            self.publish(state);
        }
        finish(&core, files, failure.as_ref());
        for change in done {
            change.answer(failure.as_ref().map(copy));
        }
        if let Some(done) = close {
            self.close(done);
        }
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.core.stopped.store(true, Ordering::Release);
        self.core.signal.close(done);
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        if self.core.stopped.load(Ordering::Acquire) {
            return Err(EngineError::Stopped);
        }
        self.core.room.look();
        self.journal.begin()
    }

    fn make_durable(&mut self, changes: &[u8], size: usize) -> Option<EngineError> {
        if changes.is_empty() {
            return None;
        }
        let start = Instant::now();
        let failure = match self.journal.append(changes, self.time) {
            Ok(()) => None,
            Err(AppendError::Undone(error)) => Some(error.into()),
            Err(AppendError::Unknown(error)) => {
                // What fdatasync could not write may or may not be there; only opening anew tells.
                tracing::error!(%error, "the journal cannot be made durable: the store takes no changes until this process is started again");
                self.core.stopped.store(true, Ordering::Release);
                Some(error.into())
            }
        };
        self.core.counters.group(size, start.elapsed());
        self.core.counters.offset.store(self.journal.offset, Ordering::Relaxed);
        failure
    }
}

/// Settles the large blobs that a group named.
fn finish(core: &Core, files: Vec<super::put::Guard>, failure: Option<&EngineError>) {
    if failure.is_none() || core.stopped.load(Ordering::Acquire) {
        for file in files {
            file.keep(failure.is_none());
        }
    }
}

fn copy(error: &EngineError) -> EngineError {
    match error {
        EngineError::Io(error) => EngineError::Io(match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        }),
        EngineError::Stopped => EngineError::Stopped,
        EngineError::Behind => EngineError::Behind,
        error => EngineError::Index(error.to_string()),
    }
}
