//! The link between a parent and its children: `sync(observed, have) -> desired`.
//!
//! The child opens every connection. It pushes what it observes, waits for what is
//! desired, answers calls on byte streams that it opens itself, and fetches blobs.
//!
//! ```text
//!            https/parent  <--- long poll, push, beat ---  https/child
//!  parent    https/parent  <--- WebSocket streams, blobs - both children     child
//!            mqtt/parent <- broker -> ------------------   mqtt/child
//! ```
//!
//! - Who is who: [`identity`], [`hosts`], [`ca`], [`tls`], [`enroll`].
//! - What both transports share: [`parent`] (what a parent must answer), [`uplink`] (what a
//!   child holds), [`calls`], [`stream`], `wire`, [`limits`].
//! - What a provisioner asks of root: [`dispatch`].
//! - The transports: [`https`] and [`mqtt`].
//!
//! This crate knows nothing of placing, tenants or runtimes. Every request is bound to the identity in
//! the caller's certificate: a child can never speak for another.

pub mod ca;
pub mod calls;
pub mod dispatch;
pub mod enroll;
pub mod hosts;
pub mod https;
pub mod identity;
pub mod limits;
pub mod mqtt;
mod page;
pub mod parent;
pub mod renew;
pub mod stream;
pub mod tls;
mod turns;
pub mod uplink;
mod vitals;
mod wallet;
mod wire;

pub use ca::{Ca, IssueAsk, Issued, Issuer};
pub use calls::Calls;
pub use dispatch::{Dispatcher, Given, Staged, TaskAnswer, TaskAsk, TaskDone};
pub use enroll::{
    Desk, EnrollToken, Joiner, MemoryBook, Newcomer, RemoteIssuer, TokenBook, TokenRecord, certify, enroll,
    enroll_kept,
};
pub use https::{HttpsParent, HttpsParentConfig, Parents, PeerClient, TaskClient, https_uplink};
pub use identity::{Children, Credentials, Identity, Kind};
pub use mqtt::{Broker, BrokerConfig, MqttParent, MqttParentConfig, broker_certificate, mqtt_uplink};
pub use parent::{BlobSource, ParentHandler, PeerHandler, listen_check};
pub use renew::Renewal;
pub use stream::{ByteStream, Frame, pipe};
pub use uplink::{Down, Rarely, Uplink};
pub use vitals::PulseSource;
pub use wallet::Wallet;
