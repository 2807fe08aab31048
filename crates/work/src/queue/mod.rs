//! Ordered one-off work: jobs are graphs of tasks, and whoever may work takes
//! what is ready.
//!
//! [`Graph`] is one job. [`Queue`] is all of them: lanes (one per tenant) in which
//! jobs take turns, and holders (those who work) whose claims lapse when they
//! fall silent. Both are plain values without I/O. Their owner keeps the
//! outcomes in its store before it answers, so a graph that is built again from
//! its shape and the outcomes goes on where it was; only who holds what is
//! forgotten, and holders say it again.

mod graph;
mod lane;

pub use graph::{Graph, Progress, Shape, ShapeError, Stage, Step, TASKS_MAX};
pub use lane::{Claim, Finish, Load, Outcome, Queue};
