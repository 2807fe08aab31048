//! Where machines come from.
//!
//! A provider makes a machine ([`Verb::Create`], which may run again and then
//! finds what it made), waits until it can be used ([`Verb::Confirm`]) and deletes
//! it ([`Verb::Delete`], also when it is gone already).

mod banyan;
mod cloud_init;
mod confirm;
mod ec2;
mod hosts;
mod openstack;
mod sign;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

pub use banyan::Banyan;
pub use confirm::confirm;
use confirm::patience;
pub use ec2::Ec2;
pub use hosts::Hosts;
pub use openstack::OpenStack;

use crate::resource::Resources;
use crate::ssh::Pool;
#[cfg(doc)]
use crate::task::Verb;
use crate::task::{Fault, Report, Task};

/// What a provider works with.
pub struct Setting<'a> {
    pub task: &'a Task,
    pub pool: &'a Pool,
    pub resources: &'a Resources,
    /// Ends what is under way.
    pub stop: &'a CancellationToken,
}

pub trait Provider: Send + Sync {
    /// As provider types are called.
    fn name(&self) -> &str;

    /// Does one of the three verbs.
    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>>;

    /// Whether it heeds [`Setting::stop`], to say what was done until then. Others are left off wherever they are.
    fn is_stoppable(&self) -> bool {
        false
    }
}
