//! Certificates that zones ask for, and what the history tells of them.

use std::sync::Arc;

use futures::future::BoxFuture;
use link::{Identity, IssueAsk, Issued, Issuer, Kind};
use model::{Result, ZoneId};
use store::Txn;

use super::TreeService;
use crate::history::{self, Actor, Line, journal};

/// Signs as the CA does, for zones that ask for themselves and their nodes; a node that is signed for the first time is
/// told of in the history.
pub struct Signer {
    issuer: Arc<dyn Issuer>,
    tree: TreeService,
}

impl Signer {
    pub fn new(issuer: Arc<dyn Issuer>, tree: TreeService) -> Self {
        Self { issuer, tree }
    }
}

impl Issuer for Signer {
    fn issue(&self, ask: IssueAsk) -> BoxFuture<'_, Result<Issued>> {
        Box::pin(async move {
            let identity = ask.identity.clone();
            let issued = self.issuer.issue(ask).await?;
            if identity.kind == Kind::Node {
                let tree = self.tree.clone();
                // The node need not wait for it.
                tokio::spawn(async move { tree.node_tell(&identity).await });
            }
            Ok(issued)
        })
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.issuer.fingerprint()
    }
}

impl TreeService {
    /// A line for a node that the history does not know yet; a certificate that is renewed leaves none. Which name it has,
    /// only its zone knows.
    async fn node_tell(&self, node: &Identity) {
        let known =
            history::list(&self.0.state, None, Some(history::subject("node", &node.id)), None, 1).await;
        if !known.is_ok_and(|(lines, _)| lines.is_empty()) {
            return;
        }
        let zone = node.parent.as_deref().and_then(|id| id.parse::<ZoneId>().ok());
        let zone = zone.and_then(|id| self.0.state.snapshot().zone_name(&id));
        let zone = zone.map(|name| format!(" of zone {name}")).unwrap_or_default();
        let tenant = self.0.state.snapshot().operators();
        let line = Line {
            tenant: tenant.as_ref(),
            what: "node.certificate",
            kind: "node",
            id: &node.id,
            name: &node.id,
            message: format!("got a certificate as a node{zone}"),
        };
        if let Err(error) = self.0.state.commit(journal(Txn::new(), self.now(), &Actor::root(), line)).await {
            tracing::debug!(%error, "a node that joined is not in the history");
        }
    }
}
