//! What every loop of the plane is made of: time that comes in through the
//! door, a wake-up that is never lost, the reconcile driver, and the queue of
//! tasks for work that has an order and an end.
//!
//! A reconciler is an idempotent function. The driver runs it when it is woken
//! and on a slow tick; a retry is its next run, never a loop inside it.

mod clock;
mod drive;
pub mod queue;
mod wake;

pub use clock::{Clock, ManualClock, SharedClock, SystemClock};
pub use drive::{BACKOFF_MAX, drive};
pub use wake::Wake;
