//! The node's network as the engine uses it: crate `net`'s bridge.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures::future::BoxFuture;
use model::{InstanceId, Result};

use crate::network::{Attachment, Netns, Network};

/// Every instance gets a namespace and an address on one bridge.
#[derive(Clone)]
pub struct BridgeNetwork(net::Bridge);

impl BridgeNetwork {
    pub fn new(bridge: net::Bridge) -> Self {
        Self(bridge)
    }
}

impl Network for BridgeNetwork {
    fn attach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<Attachment>> {
        Box::pin(async move {
            let made = self.0.attach(id.as_str()).await?;
            Ok(Attachment {
                netns: Netns::Path(made.netns),
                address: Some(IpAddr::V4(made.address)),
                nameservers: Vec::new(),
            })
        })
    }

    fn detach<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.detach(id.as_str()).await })
    }

    fn attached(&self) -> Vec<InstanceId> {
        self.0.attachments().into_iter().filter_map(|(instance, _)| instance.parse().ok()).collect()
    }

    fn sweep(&self) -> BoxFuture<'_, Result<usize>> {
        Box::pin(self.0.sweep())
    }

    fn mend(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(self.0.mend())
    }

    fn retain<'a>(&'a self, ids: &'a BTreeSet<InstanceId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            self.0.retain(&ids).await
        })
    }
}
