//! What the engine asks of the network: an address and a namespace before a container starts.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use futures::future::BoxFuture;
use model::{InstanceId, Result};
use serde::{Deserialize, Serialize};

/// The network namespace that a container joins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Netns {
    /// One that was made before, by path.
    Path(PathBuf),
    /// A new one with nothing but loopback in it.
    Private,
    /// The host's own.
    Host,
}

/// How one instance is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub netns: Netns,
    /// Where the instance can be reached from this machine.
    pub address: Option<IpAddr>,
    /// For `/etc/resolv.conf`; the host's own servers when empty.
    #[serde(default)]
    pub nameservers: Vec<IpAddr>,
}

pub trait Network: Send + Sync + 'static {
    /// Makes the attachment, or finds the one that is there already.
    fn attach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Attachment>>;

    /// Takes away all that `attach` made; not being there is fine.
    fn detach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<()>>;

    /// The instances that have an attachment.
    fn attached(&self) -> Vec<InstanceId> {
        Vec::new()
    }

    /// Takes away what bears our names and belongs to no attachment; says how much that was.
    fn sweep(&self) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async { Ok(0) })
    }

    /// Puts back what others took away of the network itself; says what that was.
    fn mend(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Takes away whatever belongs to none of `ids`.
    fn retain<'a>(&'a self, ids: &'a BTreeSet<InstanceId>) -> BoxFuture<'a, Result<()>>;
}

/// No network of its own: instances share the host's.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostNetwork;

impl Network for HostNetwork {
    fn attach<'a>(&'a self, _id: &'a InstanceId) -> BoxFuture<'a, Result<Attachment>> {
        Box::pin(async {
            Ok(Attachment {
                netns: Netns::Host,
                address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                nameservers: Vec::new(),
            })
        })
    }

    fn detach<'a>(&'a self, _id: &'a InstanceId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn retain<'a>(&'a self, _ids: &'a BTreeSet<InstanceId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
