//! Secrets that a task needs, opened at the moment it is given out.

use std::collections::BTreeSet;

use model::{ClusterId, Error, Report, Result, Role, TenantId, Timestamp, TokenId};
use serde_json::{Map, Value, json};
use store::Txn;

use super::body::{Opened, SEALED, SECRET_RESULTS};
use super::live::{BANYAN, Live};
use super::record::ClusterRecord;
use crate::auth::{hash_hex, token_secret};
use crate::cloud::Cloud;
use crate::ops::catalogue::{secret_open, secret_value};
use crate::state::{Row, Snapshot};
use crate::tables::{TokenRecord, UserRecord, encode, kind};

/// How long a credential is good that a provisioner makes instances of this cloud with.
const TOKEN_LASTS_MS: i64 = 2 * 3_600_000;
/// A new one is made when less than this is left, which is more than a task may take.
const TOKEN_LEAST_MS: i64 = 3_600_000;

pub fn key_context(cluster: &ClusterId) -> String {
    format!("cluster {cluster} key")
}

pub fn field_context(cluster: &ClusterId, field: &str) -> String {
    format!("cluster {cluster} field {field}")
}

fn result_context(live: &Live, num: u32) -> String {
    format!("cluster {} node {num}", live.cluster.id)
}

/// A credential that was made for a cluster.
#[derive(Clone)]
pub struct Pass {
    pub id: TokenId,
    pub secret: String,
    pub until: Timestamp,
}

/// Whether the provider of a job is this cloud.
pub fn needs_pass(live: &Live) -> bool {
    let provider = live.catalogue.providers.get(&live.cluster.provider);
    provider.is_some_and(|provider| provider.providertype == BANYAN)
}

/// Those of a tenant in whose name machines of this cloud can be made.
pub fn makers<'a>(snapshot: &'a Snapshot, tenant: &TenantId) -> impl Iterator<Item = &'a Row<UserRecord>> {
    snapshot.users.values().filter(move |user| user.tenant == *tenant && user.role >= Role::Member)
}

pub fn nobody() -> Error {
    Error::conflict("the tenant has no user in whose name machines can be made")
        .hint("make one with the role member in that tenant: 'banyan user create'")
}

/// A short-lived token in the name of the cluster's owner, or of another member of its tenant.
pub async fn pass(cloud: &Cloud, cluster: &ClusterRecord, known: Option<Pass>) -> Result<Pass> {
    let now = cloud.now();
    let snapshot = cloud.state.snapshot();
    // Its user may be gone since, or may do less, and with it the token.
    let is_good = |pass: &Pass| {
        let user = snapshot.tokens.get(&pass.id).and_then(|token| snapshot.users.get(&token.user));
        pass.until.plus_ms(-TOKEN_LEAST_MS) > now && user.is_some_and(|user| user.role >= Role::Member)
    };
    if let Some(known) = known.filter(is_good) {
        return Ok(known);
    }
    let users = makers(&snapshot, &cluster.tenant);
    let user = users.min_by_key(|user| (user.id != cluster.owner, user.created_at)).ok_or_else(nobody)?;
    let secret = token_secret();
    let until = now.plus_ms(TOKEN_LASTS_MS);
    let record = TokenRecord {
        id: TokenId::from_random(rand::random()),
        user: user.id.clone(),
        tenant: cluster.tenant.clone(),
        name: cluster.name.clone(),
        role: Role::Member,
        hash: hash_hex(secret.as_bytes()),
        created_at: now,
        expires_at: Some(until),
    };
    let tenant = Some(cluster.tenant.as_str());
    let txn = Txn::new().insert(kind::TOKEN, &record.id, tenant, None, encode(&record));
    cloud.state.commit(txn).await?;
    Ok(Pass { id: record.id, secret, until })
}

/// What all tasks of a job need that are given out together.
pub struct Secrets {
    key: String,
    provider: Value,
}

impl Secrets {
    pub fn of(cloud: &Cloud, live: &Live, pass: Option<&Pass>) -> Result<Self> {
        let cluster = &live.cluster;
        let key = cloud.master.unseal(&key_context(&cluster.id), &cluster.private_key)?;
        let provider = provider(cloud, live, pass)?;
        Ok(Self { key: String::from_utf8_lossy(&key).into_owned(), provider })
    }

    /// Opens what a task on a node needs.
    pub fn opened(&self, cloud: &Cloud, live: &Live, num: u32) -> Result<Opened> {
        let results = opened_results(cloud, live, num)?;
        Ok(Opened { key: self.key.clone(), provider: self.provider.clone(), results })
    }
}

/// The provider with all its fields. Secrets that the catalogue has now go before those of the copy, because
/// credentials are changed where they leaked.
fn provider(cloud: &Cloud, live: &Live, pass: Option<&Pass>) -> Result<Value> {
    let (cluster, name) = (&live.cluster, &live.cluster.provider);
    let entity = live
        .catalogue
        .providers
        .get(name)
        .ok_or_else(|| Error::internal(format!("the cluster has no provider '{name}'")))?;
    let mut fields = entity.provisioner.clone();
    let snapshot = cloud.state.snapshot();
    let now = snapshot.definitions.get(&Some(cluster.tenant.clone()));
    let now = now.and_then(|all| all.get(&("providers".to_owned(), name.clone())));
    let secrets = now.map_or(&live.secrets, |row| &row.secrets);
    // Whoever carries the task out keeps these out of reports and logs.
    let mut sensitive: BTreeSet<&str> = BTreeSet::new();
    for (field, sealed) in secrets {
        let plain = secret_open(cloud, &cluster.tenant, name, field, sealed)?;
        fields.insert(field.clone(), secret_value(&plain));
        sensitive.insert(field);
    }
    fields.extend(cluster.provider_fields.iter().map(|(field, value)| (field.clone(), value.clone())));
    for (field, sealed) in &cluster.provider_secrets {
        let plain = cloud.master.unseal(&field_context(&cluster.id, field), sealed)?;
        fields.insert(field.clone(), secret_value(&plain));
        sensitive.insert(field);
    }
    if let Some(pass) = pass {
        let endpoint = cloud.duties.servers(cloud.now()).into_iter().find(|server| server.this);
        let endpoint = endpoint.and_then(|server| server.endpoint).unwrap_or_default();
        fields.insert("banyan-endpoint".to_owned(), endpoint.into());
        fields.insert("banyan-token".to_owned(), pass.secret.clone().into());
        sensitive.insert("banyan-token");
    }
    let description = entity.other.get("description").cloned().unwrap_or_default();
    Ok(json!({
        "name": name, "description": description, "providertype": entity.providertype, "provisioner": fields,
        "sensitive": sensitive,
    }))
}

/// Seals what lets us into a machine before a report is kept.
pub fn sealed(cloud: &Cloud, live: &Live, num: u32, mut report: Report) -> Result<Report> {
    // The name is ours: what a plugin says under it could never be opened.
    report.result.remove(SEALED);
    let named = |name: &&str| report.result.contains_key(*name);
    let secret: Vec<&str> = SECRET_RESULTS.into_iter().filter(named).collect();
    if secret.is_empty() {
        return Ok(report);
    }
    let mut plain = opened_results(cloud, live, num)?;
    for name in secret {
        if let Some(value) = report.result.remove(name) {
            plain.insert(name.to_owned(), value);
        }
    }
    let bytes = serde_json::to_vec(&plain).expect("a map of JSON is JSON");
    let sealed = cloud.master.seal(&result_context(live, num), &bytes);
    report.result.insert(SEALED.to_owned(), sealed.into());
    Ok(report)
}

fn opened_results(cloud: &Cloud, live: &Live, num: u32) -> Result<Map<String, Value>> {
    let kept = live.nodes.get(&num).and_then(|node| node.result.get(SEALED)).and_then(Value::as_str);
    let Some(kept) = kept else { return Ok(Map::new()) };
    let plain = cloud.master.unseal(&result_context(live, num), kept)?;
    serde_json::from_slice(&plain)
        .map_err(|error| Error::internal("a sealed result cannot be read").because(error))
}
