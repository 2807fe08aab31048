//! The private network of a node: one bridge, an address for every instance,
//! and a way out by address translation. The node engine calls it; the packets
//! themselves pass through the kernel only, never through this process.
//!
//! ```text
//!            host                                  instance i-…  (network namespace)
//!   uplink ── masquerade ── banyan0 (gateway .1) ─┬─ bv0002 ═ eth0 10.x.x.2/24
//!                                                 └─ bv0003 ═ eth0 10.x.x.3/24
//! ```
//!
//! What holds, and where:
//! - An address is leased to one instance at a time, on disk before anyone is told of it ([`lease`]).
//! - The name of the host's end of the pair and the MAC address follow from the address, so one
//!   static set in nftables says which port may speak as whom ([`filter`]).
//! - A namespace gets its name under `/run/netns` only when it is complete; one that was being
//!   made when the process died vanishes by itself ([`port`]).
//! - A [`Bridge`] is one network: traffic between two bridges is dropped. Networks of tenants
//!   are further bridges, each with its own name, subnet and table.
//!
//! Reading order: [`cidr`], [`config`], [`lease`], [`filter`], [`netlink`], [`netns`],
//! [`warm`], [`port`], [`host`], [`bridge`].

pub mod bridge;
pub mod cidr;
pub mod config;
pub mod filter;
pub mod host;
pub mod lease;
pub mod netlink;
pub mod netns;
pub mod port;
pub mod warm;

pub use bridge::{Attachment, Bridge, Counters};
pub use cidr::Ipv4Cidr;
pub use config::BridgeConfig;
pub use netns::netns_run;
