//! Root servers as operators see them.

use model::{Error, Result};
use store::Txn;

use crate::cloud::{Caller, Cloud};
use crate::history::{Line, journal};
use crate::tables::kind;

/// Forgets a root server that fell silent. One that lives is not forgotten: it would be back with its next beat.
pub async fn remove(cloud: &Cloud, caller: &Caller, name: &str) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let servers = cloud.duties.servers(cloud.now());
    if servers.iter().any(|server| server.name == name && !server.lost) {
        return Err(Error::conflict(format!("the root server '{name}' lives"))
            .hint("stop it; one that stops in good order is forgotten by itself"));
    }
    let lost: Vec<_> = snapshot.servers_lost.values().filter(|row| row.server.place == name).collect();
    if lost.is_empty() {
        return Err(Error::not_found(format!("root server '{name}'")));
    }
    let mut txn = Txn::new();
    for row in lost {
        let id = row.server.id.as_str();
        txn = txn.delete(kind::SERVER_LOST, id, Some(row.version));
        let message = "forgotten after it fell silent".to_owned();
        let line = Line { tenant: None, what: "server.remove", kind: "server", id, name, message };
        txn = journal(txn, cloud.now(), &caller.actor(), line);
    }
    cloud.state.commit(txn).await.map(drop)
}
