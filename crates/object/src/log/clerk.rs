//! The thread that puts lines into files, so that no request's task waits on the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::sync::{Notify, mpsc, oneshot};

use super::spool::{Added, Record, Spool};
use crate::metrics::Metrics;

/// Records that may wait for the thread; more are lost and counted.
const WAITING_MAX: usize = 2048;
/// Bytes that may.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// The most records of one write.
const TOGETHER: usize = 256;

/// What the thread shares with those who deliver. It has no part of the engine, whose data it would keep open.
pub struct Desk {
    pub spool: Spool,
    /// Lines wait for their time.
    pub begun: Notify,
    /// A file is full.
    pub full: Notify,
    metrics: Arc<Metrics>,
    /// Bytes that wait for the thread.
    waiting: AtomicUsize,
}

enum Ask {
    Keep {
        record: Vec<u8>,
        lines: u64,
        done: oneshot::Sender<()>,
    },
    /// The file takes no more lines than those before this.
    End(oneshot::Sender<()>),
}

/// Asks the thread, which ends with the last of these.
#[derive(Clone)]
pub struct Clerk {
    asks: mpsc::Sender<Ask>,
    desk: Arc<Desk>,
}

impl Clerk {
    pub fn start(desk: Arc<Desk>) -> io::Result<Self> {
        let (asks, taken) = mpsc::channel(WAITING_MAX);
        let at = desk.clone();
        thread::Builder::new().name("access-log".into()).spawn(move || at.work(taken))?;
        Ok(Self { asks, desk })
    }

    /// Ends when the record is in a file, or lost. It is kept also if nobody waits for that.
    pub async fn keep(&self, record: &Record) {
        let (done, kept) = oneshot::channel();
        let (record, lines) = (record.encode(), record.lines());
        let length = record.len();
        let waiting = &self.desk.waiting;
        let fits = waiting.fetch_add(length, Ordering::Relaxed) + length <= WAITING_BYTES_MAX;
        if fits && self.asks.try_send(Ask::Keep { record, lines, done }).is_ok() {
            return drop(kept.await);
        }
        waiting.fetch_sub(length, Ordering::Relaxed);
        self.desk.metrics.log_lost(lines);
    }

    /// Ends the file that takes lines, after those that were given before.
    pub async fn end(&self) {
        let (done, ended) = oneshot::channel();
        if self.asks.send(Ask::End(done)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

impl Desk {
    pub fn new(spool: Spool, metrics: Arc<Metrics>) -> Self {
        metrics.log_waiting(spool.bytes());
        Self { spool, begun: Notify::new(), full: Notify::new(), metrics, waiting: AtomicUsize::new(0) }
    }

    fn work(&self, mut asks: mpsc::Receiver<Ask>) {
        let mut fails = false;
        let mut together = Vec::new();
        while asks.blocking_recv_many(&mut together, TOGETHER) > 0 {
            let (mut bytes, mut count, mut waiting) = (Vec::new(), 0, Vec::new());
            for ask in together.drain(..) {
                match ask {
                    Ask::Keep { record, lines, done } => {
                        self.waiting.fetch_sub(record.len(), Ordering::Relaxed);
                        bytes.extend(record);
                        count += lines;
                        waiting.push(done);
                    }
                    Ask::End(done) => {
                        self.keep(&mut bytes, &mut count, &mut fails);
                        self.spool.end();
                        waiting.push(done);
                    }
                }
            }
            self.keep(&mut bytes, &mut count, &mut fails);
            for done in waiting {
                let _ = done.send(());
            }
        }
    }

    /// Writes records with so many lines; says once when that begins to fail.
    fn keep(&self, bytes: &mut Vec<u8>, count: &mut u64, fails: &mut bool) {
        let (bytes, count) = (std::mem::take(bytes), std::mem::take(count));
        if count == 0 {
            return;
        }
        let failed = match self.spool.add(&bytes) {
            Ok(Added::First) => {
                self.begun.notify_one();
                None
            }
            Ok(Added::Full) => {
                self.begun.notify_one();
                self.full.notify_one();
                None
            }
            Ok(Added::More) => None,
            Ok(Added::Refused) => Some("too many lines wait for their delivery".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        self.metrics.log_waiting(self.spool.bytes());
        if let Some(error) = &failed {
            self.metrics.log_lost(count);
            if !*fails {
                tracing::warn!(error, "lines of access logs are lost, until this is over");
            }
        }
        *fails = failed.is_some();
    }
}
