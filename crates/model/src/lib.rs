//! The nouns of Banyan: ids, names, quantities, specs, states with their
//! transitions, and what travels between a parent and a child.
//!
//! Everything here is plain data. This crate knows no I/O, no async, no HTTP
//! and no SQL; every other crate may use it and it uses none of them.
//!
//! Reading order: [`id`], [`name`], [`quantity`], [`resources`], [`instance`],
//! [`constraint`], [`exchange`] (the messages of the tree), [`error`].

pub mod constraint;
pub mod error;
pub mod exchange;
pub mod explain;
pub mod history;
pub mod id;
pub mod identity;
pub mod image;
pub mod instance;
pub mod name;
pub mod phase;
pub mod quantity;
pub mod resources;
pub mod time;

pub use constraint::{Affinity, Constraints, Spread};
pub use error::{Error, ErrorKind, Result};
pub use exchange::{Assignment, Desired, Facts, Observed, ObservedInstance, RevisionedSet, Run};
pub use explain::{Explanation, Outcome, Verdict};
pub use history::{Event, InstanceEvent};
pub use id::{
    AccessKeyId, ChildId, EventId, ImageId, InstanceId, NodeId, SessionId, TenantId, TokenId, UserId, ZoneId,
};
pub use identity::{Quota, Role};
pub use image::{Digest, ImageManifest, Platform};
pub use instance::{Generation, HealthCheck, HealthProbe, InstanceSpec, RestartPolicy};
pub use name::Name;
pub use phase::{Phase, PhaseEvent};
pub use quantity::{Bytes, Cpu};
pub use resources::{Arch, GpuAsk, GpuDevice, Resources, RuntimeKind};
pub use time::Timestamp;
