//! The thread that puts lines into files, so that no request's task waits on the disk.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::{Notify, mpsc, oneshot};

use super::spool::{Added, Record, Spool};
use crate::metrics::Metrics;

/// Lines that may wait for the thread; more are lost and counted.
const WAITING_MAX: usize = 2048;
/// The most lines of one write.
const TOGETHER: usize = 256;

/// What the thread shares with those who deliver. It has no part of the engine, whose data it would keep open.
pub struct Desk {
    pub spool: Spool,
    /// Lines wait for their time.
    pub begun: Notify,
    /// A file is full.
    pub full: Notify,
    metrics: Arc<Metrics>,
}

enum Ask {
    Keep(Vec<u8>, oneshot::Sender<()>),
    /// The file takes no more lines than those before this.
    End(oneshot::Sender<()>),
}

/// Asks the thread, which ends with the last of these.
#[derive(Clone)]
pub struct Clerk {
    asks: mpsc::Sender<Ask>,
    metrics: Arc<Metrics>,
}

impl Clerk {
    pub fn start(desk: Arc<Desk>) -> io::Result<Self> {
        let (asks, taken) = mpsc::channel(WAITING_MAX);
        let metrics = desk.metrics.clone();
        thread::Builder::new().name("access-log".into()).spawn(move || desk.work(taken))?;
        Ok(Self { asks, metrics })
    }

    /// Ends when the line is in a file, or lost. It is kept also if nobody waits for that.
    pub async fn keep(&self, record: &Record) {
        let (done, kept) = oneshot::channel();
        let line = record.encode();
        match self.asks.try_send(Ask::Keep(line, done)) {
            Ok(()) => drop(kept.await),
            Err(_) => self.metrics.log_lost(1),
        }
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
        Self { spool, begun: Notify::new(), full: Notify::new(), metrics }
    }

    fn work(&self, mut asks: mpsc::Receiver<Ask>) {
        let mut fails = false;
        let mut together = Vec::new();
        while asks.blocking_recv_many(&mut together, TOGETHER) > 0 {
            let (mut lines, mut count, mut waiting) = (Vec::new(), 0, Vec::new());
            for ask in together.drain(..) {
                match ask {
                    Ask::Keep(line, done) => {
                        lines.extend(line);
                        count += 1;
                        waiting.push(done);
                    }
                    Ask::End(done) => {
                        self.keep(&mut lines, &mut count, &mut fails);
                        self.spool.end();
                        waiting.push(done);
                    }
                }
            }
            self.keep(&mut lines, &mut count, &mut fails);
            for done in waiting {
                let _ = done.send(());
            }
        }
    }

    /// Writes lines; says once when that begins to fail.
    fn keep(&self, lines: &mut Vec<u8>, count: &mut u64, fails: &mut bool) {
        let (lines, count) = (std::mem::take(lines), std::mem::take(count));
        if count == 0 {
            return;
        }
        let failed = match self.spool.add(&lines) {
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
