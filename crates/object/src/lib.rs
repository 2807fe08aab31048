//! Buckets: an S3 store on the identity of the cloud.
//!
//! ```text
//!   HTTP request
//!      │  http     listener, limits, virtual hosts, CORS, websites, access log
//!      ▼
//!   s3s            signatures, chunked bodies, XML  (behind `s3/` and `access/` alone)
//!      │  access   who is it, may it: ACLs, policies, public access block
//!      ▼
//!   s3             one small function per operation: DTO → terms → DTO
//!      │
//!      ▼
//!   version, upload, listing, lock, put, read, lifecycle, …
//!      │           what may be asked of buckets and objects, in our own words
//!      │
//!      ▼
//!   engine         one writer with group commit; journal, index, packs, files
//! ```
//!
//! A write runs as a closure on the engine's one writer: it reads what it
//! depends on, decides, and changes records; conditions therefore hold at the
//! moment of the change. Data is written before that and has no name until then.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod checksum;
pub mod claim;
pub mod client;
pub mod condition;
pub mod config;
pub mod engine;
mod escape;
pub mod fault;
pub mod form;
mod hash;
pub mod headers;
pub mod hook;
pub mod http;
pub mod identity;
pub mod inventory;
pub mod lifecycle;
pub mod listing;
pub mod lock;
mod log;
pub mod metrics;
mod notify;
mod owned;
pub mod put;
pub mod read;
pub mod record;
mod s3;
pub mod seal;
pub mod service;
mod setting;
mod share;
pub mod store;
mod tag;
mod time;
mod trace;
pub mod upload;
pub mod version;

pub use config::{Config, TlsFiles};
pub use engine::Engine;
pub use fault::{Fault, Result};
pub use store::Store;
