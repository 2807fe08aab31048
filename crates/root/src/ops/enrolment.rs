//! Tokens that are out: what operators see of them, and how one is voided.

use api::{EnrolRole, EnrolmentToken};
use futures::future::join_all;
use link::{Kind, TokenRecord};
use model::exchange::{Admission, Ask};
use model::{Error, Result};
use store::Txn;

use super::node::answer;
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::Row;
use crate::tables::{ZoneRecord, kind};

/// Letters of the hash by which a token is called.
const ID_LEN: usize = 12;

struct Found {
    shown: EnrolmentToken,
    digest: String,
    zone: Option<Row<ZoneRecord>>,
}

/// Those of root, and of the zones that are heard and answer.
async fn all(cloud: &Cloud) -> Result<Vec<Found>> {
    let now = cloud.now();
    let mut found = Vec::new();
    for record in cloud.state.store().list(kind::ENROLMENT).await.map_err(Error::from)? {
        let Ok(token) = record.body.read::<TokenRecord>() else { continue };
        let role = if token.kind == Kind::Provisioner { EnrolRole::Provisioner } else { EnrolRole::Zone };
        if now < token.expires_at {
            let said =
                Admission { digest: token.digest, expires_at: token.expires_at, used_by: token.used_by };
            found.push(of(said, role, None));
        }
    }
    let snapshot = cloud.state.snapshot();
    let live: Vec<Row<ZoneRecord>> =
        snapshot.zones.values().filter(|zone| cloud.tree.zone_live(&zone.id)).cloned().collect();
    let told = join_all(live.iter().map(|zone| answer::<Vec<Admission>>(cloud, zone, Ask::Tokens))).await;
    for (zone, told) in live.into_iter().zip(told) {
        match told {
            Ok(told) => {
                found.extend(told.into_iter().map(|said| of(said, EnrolRole::Node, Some(zone.clone()))))
            }
            Err(error) => tracing::debug!(zone = %zone.name, %error, "the zone does not tell its tokens"),
        }
    }
    found.sort_by_key(|one| one.shown.expires_at);
    Ok(found)
}

fn of(said: Admission, role: EnrolRole, zone: Option<Row<ZoneRecord>>) -> Found {
    let shown = EnrolmentToken {
        id: said.digest.chars().take(ID_LEN).collect(),
        role,
        zone: zone.as_ref().map(|zone| zone.name.clone()),
        expires_at: said.expires_at,
        used_by: said.used_by,
    };
    Found { shown, digest: said.digest, zone }
}

pub async fn list(cloud: &Cloud) -> Result<Vec<EnrolmentToken>> {
    Ok(all(cloud).await?.into_iter().map(|one| one.shown).collect())
}

/// Nobody joins with it any more; who did stays.
pub async fn revoke(cloud: &Cloud, caller: &Caller, id: &str) -> Result<()> {
    let mut found: Vec<Found> =
        all(cloud).await?.into_iter().filter(|one| !id.is_empty() && one.digest.starts_with(id)).collect();
    let Some(one) = found.pop() else {
        return Err(Error::not_found(format!("token '{}'", model::shown(id))));
    };
    if !found.is_empty() {
        return Err(Error::conflict(format!("several tokens begin with '{id}'")).hint("give more of it"));
    }
    let mut txn = Txn::new();
    match &one.zone {
        Some(zone) => {
            answer::<serde_json::Value>(cloud, zone, Ask::Revoke { digest: one.digest.clone() }).await?;
        }
        None => txn = txn.delete(kind::ENROLMENT, &one.digest, None),
    }
    let line = Line {
        tenant: Some(&caller.principal.tenant),
        what: "enrolment.revoke",
        kind: "enrolment",
        id: &one.shown.id,
        name: &one.shown.id,
        message: "nobody joins with it any more".to_owned(),
    };
    cloud.state.commit(history::journal(txn, cloud.now(), &caller.actor(), line)).await.map(drop)
}
