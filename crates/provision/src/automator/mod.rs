//! How services are installed, configured, started and so on.
//!
//! An automator makes a machine ready for itself once ([`Automator::bootstrap`],
//! which may run again), and then does what a service asks of it for one verb.

mod ansible;
mod chef;
mod docker;
mod place;
mod puppet;
mod shell;

use futures::future::BoxFuture;

pub use ansible::Ansible;
pub use chef::Chef;
pub use docker::Docker;
pub use puppet::Puppet;
pub use shell::Shell;

use crate::machine::Machine;
use crate::resource::Resources;
use crate::task::{Action, Fault, Report, Task};

/// What an automator works with.
pub struct Job<'a> {
    pub machine: &'a Machine,
    pub task: &'a Task,
    /// Scripts, archives and so on of the tenant, as staged here.
    pub resources: &'a Resources,
}

pub trait Automator: Send + Sync {
    /// As services name it.
    fn name(&self) -> &str;

    /// Whether what it needs beside the provisioner is there. It is asked now and then.
    fn is_ready(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>>;

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>>;
}
