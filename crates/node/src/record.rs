//! What is kept of an instance across lives of the node.
//!
//! It is replaced in one step but not forced to the disk: a machine that lost power has lost the
//! containers too, and a directory whose record cannot be read is cleared away.

use model::exchange::{Assignment, Health, ObservedInstance};
use model::phase::{self, PhaseEvent};
use model::{InstanceEvent, Name, Phase, Timestamp};
use serde::{Deserialize, Serialize};

use crate::network::Attachment;
use crate::shim::Exit;

/// Events kept per instance.
pub const EVENTS_MAX: usize = 16;
/// What is said of one event; part of it may come from an image or a runtime.
const MESSAGE_CHARS_MAX: usize = 1000;
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    pub assignment: Assignment,
    pub phase: Phase,
    pub message: Option<String>,
    pub attachment: Option<Attachment>,
    pub exit: Option<Exit>,
    pub started_at: Option<Timestamp>,
    /// Starts that nobody asked for: its process ended, and its policy starts it again.
    pub restarts: u64,
    /// Somebody asked for the next start.
    #[serde(default)]
    pub asked: bool,
    pub starts: u64,
    /// Ends and failed starts in a row, for the pause before the next start.
    pub failures: u32,
    /// Nothing more is to be started until something new is asked for.
    pub finished: bool,
    #[serde(skip)]
    pub health: Option<Health>,
    pub events: Vec<InstanceEvent>,
    pub events_count: u64,
}

impl Record {
    pub fn new(assignment: Assignment) -> Self {
        Self {
            version: VERSION,
            assignment,
            phase: Phase::Placed,
            message: None,
            attachment: None,
            exit: None,
            started_at: None,
            restarts: 0,
            asked: true,
            starts: 0,
            failures: 0,
            finished: false,
            health: None,
            events: Vec::new(),
            events_count: 0,
        }
    }

    /// One this program can read.
    pub const fn readable(&self) -> bool {
        self.version == VERSION
    }

    pub fn step(&mut self, event: PhaseEvent) {
        match phase::next(self.phase, event) {
            Ok(next) => self.phase = next,
            Err(illegal) => tracing::error!(instance = %self.assignment.id, %illegal, "ignored"),
        }
    }

    pub fn event(&mut self, at: Timestamp, kind: &str, message: impl Into<String>) {
        self.events_count += 1;
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
        }
        self.events.push(InstanceEvent { seq: self.events_count, at, kind: kind.to_owned(), message });
        if self.events.len() > EVENTS_MAX {
            self.events.remove(0);
        }
    }

    /// Whether going from what is here to `next` needs a new container.
    pub fn replaced_by(&self, next: &Assignment) -> bool {
        let (old, new) = (&self.assignment.spec, &next.spec);
        self.assignment.image != next.image
            || self.assignment.name != next.name
            || self.assignment.tenant != next.tenant
            || (old.runtime, &old.command, &old.env, &old.user, &old.workdir)
                != (new.runtime, &new.command, &new.env, &new.user, &new.workdir)
            || (old.cpu, old.memory, old.disk, old.pids, &old.gpu)
                != (new.cpu, new.memory, new.disk, new.pids, &new.gpu)
    }

    pub fn observed(&self, node: &Name) -> ObservedInstance {
        let running = matches!(self.phase, Phase::Running | Phase::Stopping);
        ObservedInstance {
            message: self.message.clone(),
            node: Some(node.clone()),
            address: self.attachment.as_ref().and_then(|net| net.address),
            exit_code: self.exit.as_ref().map(|exit| exit.code),
            started_at: self.started_at,
            health: self.health.filter(|_| running),
            restarts: self.restarts,
            failures: self.failures.into(),
            finished: self.finished,
            events: self.events.clone(),
            ..ObservedInstance::new(self.assignment.id.clone(), self.assignment.generation, self.phase)
        }
    }
}
