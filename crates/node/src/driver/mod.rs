//! The life of one instance on this node: one task that owns it from its assignment to its removal.
//!
//! ```text
//!            ┌───────────────────── wanted anew ─────────────────────┐
//!  assigned ─┴▶ start ──▶ watch ──exit──▶ policy ──pause──▶ start …  │
//!                 │fail      │stop │unhealthy   └─finished──▶ wait ──┤
//!                 └─pause─▶  ▼     └─ end, then as after an exit     │
//!                          stopped ──────────────────────────────────┤
//!                          gone ── removed, told until it is unassigned
//! ```
//!
//! Each turn of the loop looks at what is wanted and does one thing. Whatever is cut off in the
//! middle, by the end of the node or by a new wish, is found again by the next turn.

mod end;
mod start;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use model::exchange::{Assignment, Run};
use model::{InstanceId, Phase, PhaseEvent};
use tokio::time::Instant;

use crate::dir::{InstanceDir, json_write};
use crate::engine::{Shared, View};
use crate::health::HealthWatch;
use crate::network::Netns;
use crate::record::Record;
use crate::supervise::Shim;

/// The pause before a removal that failed is tried again.
const REMOVE_PAUSE: Duration = Duration::from_secs(2);

pub(crate) struct Driver {
    shared: Arc<Shared>,
    id: InstanceId,
    want: tokio::sync::watch::Receiver<Option<Assignment>>,
    dir: InstanceDir,
    record: Record,
    live: Option<Shim>,
    health: Option<HealthWatch>,
    /// No start before this.
    not_before: Option<Instant>,
}

impl Driver {
    pub fn new(
        shared: Arc<Shared>,
        record: Record,
        want: tokio::sync::watch::Receiver<Option<Assignment>>,
    ) -> Self {
        let id = record.assignment.id.clone();
        let dir = shared.dir(&id);
        Self { shared, id, want, dir, record, live: None, health: None, not_before: None }
    }

    pub async fn run(mut self) {
        self.adopt().await;
        loop {
            let want = self.want.borrow_and_update().clone();
            match want {
                Some(assignment) if assignment.run == Run::Gone => {
                    self.generation_take(&assignment);
                    self.record.assignment = assignment;
                    if self.remove().await {
                        self.wanted_anew(None).await;
                    }
                }
                Some(assignment) => {
                    self.assignment_take(assignment).await;
                    self.turn().await;
                }
                None => {
                    if self.remove().await && self.shared.forget(&self.id) {
                        return;
                    }
                }
            }
        }
    }

    /// One thing towards what is wanted, or a wait for something to happen.
    async fn turn(&mut self) {
        if self.record.assignment.run == Run::Stopped {
            self.stop().await;
            self.wanted_anew(None).await;
        } else if self.live.is_some() {
            self.watch().await;
        } else if self.record.finished {
            self.wanted_anew(None).await;
        } else if self.not_before.is_some_and(|at| at > Instant::now()) {
            self.wanted_anew(self.not_before).await;
        } else {
            self.start().await;
        }
    }

    /// Makes `assignment` the one at hand, and undoes what cannot stay as it is.
    async fn assignment_take(&mut self, assignment: Assignment) {
        if self.record.assignment == assignment && self.record.phase != Phase::Gone {
            return;
        }
        if self.record.phase == Phase::Gone {
            self.record = Record::new(assignment);
            self.not_before = None;
            return;
        }
        if self.record.replaced_by(&assignment) {
            while !self.remove().await {}
            self.record = Record::new(assignment);
            self.not_before = None;
            return;
        }
        self.generation_take(&assignment);
        let old = std::mem::replace(&mut self.record.assignment, assignment);
        let new = &self.record.assignment;
        let again =
            new.restart_count > old.restart_count || (old.run == Run::Stopped && new.run == Run::Running);
        if old.spec.health != new.spec.health {
            self.health = None;
        }
        self.record.asked |= again;
        if again || old.spec.restart != new.spec.restart {
            self.record.finished = false;
            self.record.failures = 0;
            self.not_before = None;
        }
        if again && self.record.assignment.run == Run::Running && self.live.is_some() {
            self.note("restarting", "restart asked for");
            self.end(self.shared.config.stop_grace).await;
            self.record.step(PhaseEvent::Exited);
        }
        self.save();
    }

    /// Events are counted per generation.
    fn generation_take(&mut self, assignment: &Assignment) {
        if assignment.generation > self.record.assignment.generation {
            self.record.events.clear();
            self.record.events_count = 0;
        }
    }

    /// Waits until something else is wanted, or until `deadline`.
    async fn wanted_anew(&mut self, deadline: Option<Instant>) {
        let changed = async {
            if self.want.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        match deadline {
            Some(at) => drop(tokio::time::timeout_at(at, changed).await),
            None => changed.await,
        }
    }

    fn note(&mut self, kind: &str, message: impl Into<String>) {
        let message = message.into();
        tracing::info!(instance = %self.id, kind, message);
        self.record.event(self.shared.clock.now(), kind, message);
    }

    /// Keeps the record and shows it to the world.
    fn save(&mut self) {
        if self.dir.path().exists()
            && let Err(error) = json_write(&self.dir.record(), &self.record, false)
        {
            tracing::error!(instance = %self.id, %error, "the record cannot be written");
        }
        let view = View {
            pid: self.live.as_ref().map(|shim| shim.started.pid),
            own_network: self.record.attachment.as_ref().is_some_and(|net| net.netns != Netns::Host),
            finished: self.record.finished || matches!(self.record.phase, Phase::Stopped | Phase::Gone),
            sample: None,
        };
        self.shared.publish(self.record.observed(&self.shared.config.node_name), view);
    }
}
