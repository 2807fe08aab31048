//! The nouns of Banyan: ids, names, quantities, specs, states with their
//! transitions, and what travels between a parent and a child.
//!
//! Everything here is plain data. This crate knows no I/O, no async, no HTTP
//! and no SQL; every other crate may use it and it uses none of them.
//!
//! Reading order: [`id`], [`name`], [`quantity`], [`resources`], [`instance`],
//! [`constraint`], [`workload`], [`exchange`] (the messages of the tree), [`error`].

mod circle;
pub mod constraint;
pub mod cron;
pub mod error;
pub mod exchange;
pub mod explain;
mod flavor;
pub mod geo;
pub mod health;
pub mod history;
pub mod id;
pub mod identity;
pub mod image;
pub mod instance;
pub mod name;
pub mod phase;
pub mod quantity;
pub mod read;
pub mod report;
pub mod resources;
mod text;
pub mod time;
pub mod workload;

pub use circle::circle;
pub use constraint::{Affinity, AreaTerm, Constraints, LatencyTerm, Preference, Spread};
pub use error::{Error, ErrorKind, Fault, Faults, Result, counted, shown};
pub use exchange::{
    Assignment, Desired, Facts, Group, Moving, Observed, ObservedInstance, PlaceMode, RevisionedSet, Run,
};
pub use explain::{Explanation, Outcome, Verdict};
pub use flavor::flavor;
pub use geo::{Area, Degrees, Leg};
pub use health::{Check, Light, Pulse, Sample, Usage};
pub use history::{Event, InstanceEvent};
pub use id::{
    AccessKeyId, AppId, ChildId, ClusterId, EventId, ImageId, InstanceId, NodeId, ProvisionerId, SessionId,
    TenantId, TokenId, UserId, WorkloadId, ZoneId,
};
pub use identity::{Quota, Role};
pub use image::{Digest, ImageManifest, Platform};
pub use instance::{Generation, HealthCheck, HealthProbe, InstanceSpec, LossPolicy, RestartPolicy};
pub use name::Name;
pub use phase::{Phase, PhaseEvent};
pub use quantity::{Bytes, Cpu};
pub use report::Report;
pub use resources::{Arch, GpuAsk, GpuDevice, Resources, RuntimeKind};
pub use time::Timestamp;
pub use workload::{Amount, Mode, UpdatePolicy, WorkloadPhase, WorkloadSpec};
