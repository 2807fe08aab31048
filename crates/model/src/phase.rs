//! The life of an instance as one total function.
//!
//! ```text
//!            placed          picked up         started
//!  Pending ─────────▶ Placed ─────────▶ Creating ─────────▶ Running
//!     ▲                 │                  │  ▲               │
//!     │ lost            │ lost             │  │ restart       │ exited
//!     └─────────────────┴──────────────────┤  └────────────── Exited ◀┘
//!                                          ▼
//!   stop asked, from any live phase ▶ Stopping ─▶ Stopped ─▶ (start) Creating
//!   out of reach, and waited for    ▶ Lost ─▶ (heard again) as it is
//!   delete asked, from any phase    ▶ Deleting ─▶ Gone
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Asked for, not placed.
    #[default]
    Pending,
    /// A place is decided; nothing runs yet.
    Placed,
    /// The node prepares image, network and root file system.
    Creating,
    Running,
    /// The process ended; the restart policy decides what follows.
    Exited,
    /// It could not be made; see the message. Tried again with back-off.
    Failed,
    Stopping,
    Stopped,
    /// Its node or zone is out of reach, and its policy is to wait for it. It may well run.
    Lost,
    Deleting,
    Gone,
}

impl Phase {
    /// Nothing further happens by itself.
    pub const fn settled(self) -> bool {
        matches!(self, Self::Running | Self::Exited | Self::Failed | Self::Stopped | Self::Gone)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Placed => "placed",
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
            Self::Deleting => "deleting",
            Self::Gone => "gone",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseEvent {
    Placed,
    /// The place is lost (its lease lapsed, or it said no).
    Unplaced,
    /// The place is out of reach and is waited for.
    Lost,
    PickedUp,
    Started,
    Exited,
    Failed,
    StopAsked,
    Stopped,
    DeleteAsked,
    Gone,
}

/// A transition that makes no sense; nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {from} cannot take the event {event:?}")]
pub struct Illegal {
    pub from: Phase,
    pub event: PhaseEvent,
}

/// The next phase. Repeating an event that already took effect is legal and changes nothing.
pub fn next(from: Phase, event: PhaseEvent) -> Result<Phase, Illegal> {
    use {Phase as P, PhaseEvent as E};
    Ok(match (from, event) {
        (P::Gone, E::Gone | E::DeleteAsked) => P::Gone,
        (P::Gone, _) => return Err(Illegal { from, event }),
        (_, E::Gone) => P::Gone,
        (_, E::DeleteAsked) => P::Deleting,
        (P::Deleting, _) => P::Deleting,
        (_, E::Unplaced) => P::Pending,
        (P::Pending, E::Lost) => return Err(Illegal { from, event }),
        (P::Stopped, E::Lost) => P::Stopped,
        (_, E::Lost) => P::Lost,
        (P::Pending, E::Placed) => P::Placed,
        (P::Pending, E::StopAsked | E::Stopped) => P::Stopped,
        (P::Pending, _) => return Err(Illegal { from, event }),
        (_, E::Placed) => from,
        (P::Stopping, E::Stopped | E::Exited | E::Failed) => P::Stopped,
        (P::Stopping, E::PickedUp | E::Started) => P::Stopping,
        (P::Stopped, E::StopAsked | E::Stopped) => P::Stopped,
        (P::Stopped, E::PickedUp) => P::Creating,
        (_, E::StopAsked) => P::Stopping,
        (_, E::Stopped) => P::Stopped,
        (P::Running, E::PickedUp) => P::Running,
        (_, E::PickedUp) => P::Creating,
        (_, E::Started) => P::Running,
        (_, E::Exited) => P::Exited,
        (_, E::Failed) => P::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use PhaseEvent as E;

    fn walk(events: &[PhaseEvent]) -> Phase {
        events.iter().fold(Phase::Pending, |phase, event| next(phase, *event).expect("legal"))
    }

    #[test]
    fn the_usual_life() {
        assert_eq!(walk(&[E::Placed, E::PickedUp, E::Started]), Phase::Running);
        assert_eq!(
            walk(&[E::Placed, E::PickedUp, E::Started, E::Exited, E::PickedUp, E::Started]),
            Phase::Running
        );
        assert_eq!(walk(&[E::Placed, E::PickedUp, E::Started, E::StopAsked, E::Stopped]), Phase::Stopped);
        assert_eq!(walk(&[E::Placed, E::Unplaced]), Phase::Pending);
    }

    #[test]
    fn deleting_ends_only_in_gone() {
        for event in [
            E::Placed,
            E::PickedUp,
            E::Started,
            E::Exited,
            E::Failed,
            E::StopAsked,
            E::Stopped,
            E::DeleteAsked,
        ] {
            assert_eq!(next(Phase::Deleting, event), Ok(Phase::Deleting));
        }
        assert_eq!(next(Phase::Deleting, E::Gone), Ok(Phase::Gone));
        assert!(next(Phase::Gone, E::Started).is_err());
    }
}
