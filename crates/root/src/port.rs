//! What root's API needs of the tree below it, as a trait: `tree` implements
//! it over the real links, tests with a stub.

use futures::future::BoxFuture;
use link::ByteStream;
use model::exchange::{Ask, Doorway, NodeReport};
use model::{Error, InstanceId, Result, Timestamp, ZoneId};

/// A one-time token with which a zone or node enrols, and where it goes with it.
#[derive(Debug, Clone)]
pub struct Enrolled {
    pub token: String,
    pub expires_at: Timestamp,
    pub doorway: Doorway,
}

/// What somebody may become with a token.
#[derive(Debug, Clone)]
pub enum Join {
    /// A zone, which may have `hosts` as names of its listeners whoever else has them.
    Zone {
        hosts: Vec<String>,
    },
    Node {
        zone: ZoneId,
    },
    Provisioner,
}

/// The tree of zones below root.
pub trait Tree: Send + Sync + 'static {
    /// Puts a question to a zone. Fails with `Unavailable` when the zone is not connected.
    fn ask(&self, zone: &ZoneId, ask: Ask) -> BoxFuture<'_, Result<ByteStream>>;

    /// Something was asked for: look at the state soon.
    fn wake(&self);

    /// Whether the zone's lease holds.
    fn zone_live(&self, zone: &ZoneId) -> bool;

    fn zone_last_seen(&self, zone: &ZoneId) -> Option<Timestamp> {
        let _ = zone;
        None
    }

    /// Whether the lease of a zone lapsed; one that was not heard yet since root started has one.
    fn zone_lapsed(&self, zone: &ZoneId) -> bool {
        !self.zone_live(zone)
    }

    /// The zone as the tree sees it; nothing until it said who it is.
    fn zone_report(&self, zone: &ZoneId) -> Option<NodeReport> {
        let _ = zone;
        None
    }

    /// A zone that is not heard for so long is lost, in milliseconds.
    fn lease_ms(&self) -> i64 {
        0
    }

    /// Certificates of this root, each with from when and until when it is good.
    fn certificates(&self) -> Vec<(String, (Timestamp, Timestamp))> {
        Vec::new()
    }

    /// Tells the zone of an instance once more what should be; false when none holds it.
    fn tell_again(&self, instance: &InstanceId) -> bool {
        let _ = instance;
        false
    }

    /// Takes an instance off its zone, to be placed again; false when none holds it.
    fn take_off(&self, instance: &InstanceId, why: &str) -> bool {
        let _ = (instance, why);
        false
    }

    /// Whether two processes spoke with the identity of a zone of late, in turns.
    fn zone_twins(&self, zone: &ZoneId) -> bool {
        let _ = zone;
        false
    }

    /// Makes a one-time token.
    fn enroll(&self, join: Join) -> BoxFuture<'_, Result<Enrolled>> {
        let _ = join;
        Box::pin(async { Err(Error::unavailable("this root does not enrol")) })
    }
}
