//! Who asks, and may they.
//!
//! ```text
//!   before    requests whose way of signing is beyond repair        (ahead of s3s)
//!   Auth      access key → secret, for the check of the signature   (S3Auth)
//!   Gate      principal, action, context → may it?                  (S3Access)
//!     Guard   the rules of one bucket, asked for one caller         (reads records)
//!       decide, policy, acl                                         (no I/O)
//! ```
//!
//! The order of the rules: what the user may do at all in the cloud; what
//! temporary credentials were narrowed to; what the bucket's policy denies; what
//! it allows; the owner's own rights; the lists of bucket and object.

pub mod acl;
mod action;
mod auth;
mod before;
mod context;
mod decide;
mod gate;
mod guard;
pub mod ownership;
pub mod policy;
mod request;
pub mod session;
mod sts;

pub use action::{Action, Target};
pub use auth::{Auth, secret};
pub use before::{before, settle};
pub use context::Context;
pub use decide::{ENFORCED, PREFERRED, WRITER, is_enforced};
pub use gate::{Gate, Peer};
pub use guard::{Guard, authorize, service_may};
pub use request::{pairs, path_decode, request_context};
pub use sts::Sts;
