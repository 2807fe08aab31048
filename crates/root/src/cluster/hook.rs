//! Webhooks: a record in the transaction that it speaks of, called afterwards until somebody answers or it is
//! enough.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use imbl::OrdMap;
use model::{Result, TenantId, Timestamp};
use serde_json::{Value, json};
use store::Txn;

use super::record::{CallRecord, ClusterRecord, JobRecord, NodeRecord};
use crate::cloud::Cloud;
use crate::duty::Fence;
use crate::history::{Actor, Line, journal};
use crate::state::Row;
use crate::tables::{encode, kind};

/// How often it is tried.
const TRIES_MAX: u32 = 8;
const BACKOFF_FIRST_MS: i64 = 2_000;
const BACKOFF_MAX_MS: i64 = 300_000;
/// Calls at the same time, and those of one tenant among them: whose addresses are slow holds up only itself.
const AT_ONCE: usize = 64;
const AT_ONCE_TENANT: usize = 4;
/// Nodes that a call tells of.
const NODES_MAX: usize = 200;
const TICK: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Start,
    Success,
    Failure,
}

/// What a call speaks of.
pub struct About<'a> {
    pub cluster: &'a ClusterRecord,
    pub job: &'a JobRecord,
    pub nodes: Vec<&'a NodeRecord>,
}

fn told(node: &&NodeRecord) -> Value {
    json!({
        "num": node.num, "hostname": node.hostname, "services": node.services, "addresses": node.addresses,
    })
}

/// Adds a call to a transaction, where the cluster wants one.
pub fn call(txn: Txn, about: &About<'_>, when: When, now: Timestamp) -> Txn {
    let About { cluster, job, nodes } = about;
    let Some(hooks) = &cluster.webhooks else { return txn };
    let (url, word) = match when {
        When::Start => (&hooks.start, "start"),
        When::Success => (&hooks.success, "success"),
        When::Failure => (&hooks.failure, "failure"),
    };
    let is_meant = hooks.actions.is_empty() || hooks.actions.contains(&job.action);
    let Some(url) = url.as_ref().filter(|_| is_meant) else { return txn };
    let body = json!({
        "event": word,
        "cluster": {
            "id": cluster.id, "name": cluster.name, "template": cluster.template, "status": cluster.status,
            "size": cluster.shape.layout.size(), "services": cluster.shape.services, "message": cluster.message,
        },
        "job": {
            "id": job.id(), "action": job.action, "status": job.status, "message": job.message,
            "steps_total": job.total, "steps_completed": job.done,
        },
        "nodes_total": nodes.len(),
        "nodes": nodes.iter().take(NODES_MAX).map(told).collect::<Vec<_>>(),
    });
    let tenant = cluster.tenant.to_string();
    let record = CallRecord { tenant, url: url.clone(), body, tries: 0, at: now };
    let id = format!("{:032x}", rand::random::<u128>());
    txn.put(kind::CLUSTER_CALL, id, Some(cluster.tenant.as_str()), None, encode(&record))
}

/// Calls what is due, for ever.
pub async fn run(cloud: &Cloud, fence: &Fence) {
    let client = match object::hook::client(cloud.config.listen.ip()) {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "webhooks cannot be called"),
    };
    let mut changed = cloud.state.changed();
    let mut going: BTreeMap<String, String> = BTreeMap::new();
    let mut calls = FuturesUnordered::new();
    loop {
        changed.borrow_and_update();
        let snapshot = cloud.state.snapshot();
        for id in due(&snapshot.cluster_calls, &going, cloud.now()) {
            let row = snapshot.cluster_calls[&id].clone();
            going.insert(id.clone(), row.tenant.clone());
            let client = &client;
            calls.push(async move { (try_call(cloud, fence, client, &id, &row).await, id) });
        }
        tokio::select! {
            Some((kept, id)) = calls.next() => {
                if let Err(error) = kept {
                    tracing::warn!(%error, "what became of a webhook could not be kept");
                    tokio::time::sleep(TICK).await;
                }
                going.remove(&id);
            }
            _ = changed.changed() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}

/// What is called next, given which calls go on and for whom: those of tenants with the fewest calls first, and
/// what waits longest.
fn due(
    calls: &OrdMap<String, Row<CallRecord>>,
    going: &BTreeMap<String, String>,
    now: Timestamp,
) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tenant in going.values() {
        *counts.entry(tenant).or_default() += 1;
    }
    let is_due = |(id, row): &(&String, &Row<CallRecord>)| row.at <= now && !going.contains_key(*id);
    let mut waiting: Vec<(&String, &Row<CallRecord>)> = calls.iter().filter(is_due).collect();
    waiting.sort_by_key(|(_, row)| row.at);
    let mut turns: Vec<(usize, Timestamp, &String)> = Vec::new();
    for (id, row) in waiting {
        let count = counts.entry(&row.tenant).or_default();
        *count += 1;
        if *count <= AT_ONCE_TENANT {
            turns.push((*count, row.at, id));
        }
    }
    turns.sort();
    turns.truncate(AT_ONCE.saturating_sub(going.len()));
    turns.into_iter().map(|(_, _, id)| id.clone()).collect()
}

/// Posts a body once. An address that has become the machine's own since it was set is not called either.
async fn post(
    client: &reqwest::Client,
    listen: IpAddr,
    url: &str,
    body: &Value,
) -> std::result::Result<(), String> {
    let url: reqwest::Url = url.parse().map_err(|_| "it is no address".to_owned())?;
    if !object::hook::allows(&url, listen) {
        return Err("it is an address that webhooks may not have".into());
    }
    match client.post(url).json(body).send().await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(format!("status {}", answer.status().as_u16())),
        Err(error) => Err(error.without_url().to_string()),
    }
}

async fn try_call(
    cloud: &Cloud,
    fence: &Fence,
    client: &reqwest::Client,
    id: &str,
    row: &Row<CallRecord>,
) -> Result<()> {
    let Err(why) = post(client, cloud.config.listen.ip(), &row.url, &row.body).await else {
        let txn = Txn::new().delete(kind::CLUSTER_CALL, id, Some(row.version));
        return cloud.state.commit(fence.guard(txn)).await.map(drop);
    };
    let tries = row.tries + 1;
    let txn = if tries >= TRIES_MAX {
        tracing::warn!(%why, tries, "a webhook is given up");
        given_up(Txn::new().delete(kind::CLUSTER_CALL, id, Some(row.version)), row, &why, cloud.now())
    } else {
        let wait = (BACKOFF_FIRST_MS << row.tries.min(10)).min(BACKOFF_MAX_MS);
        let next = CallRecord { tries, at: cloud.now().plus_ms(wait), ..row.value.as_ref().clone() };
        Txn::new().update(kind::CLUSTER_CALL, id, row.version, encode(&next))
    };
    cloud.state.commit(fence.guard(txn)).await.map(drop)
}

/// A line of the tenant's history about a call that is given up. Its address may have a secret in it.
fn given_up(txn: Txn, row: &CallRecord, why: &str, now: Timestamp) -> Txn {
    let Ok(tenant) = row.tenant.parse::<TenantId>() else { return txn };
    let text = |field: &str| row.body["cluster"][field].as_str().unwrap_or_default();
    let message = format!("a webhook was not taken after {TRIES_MAX} tries: {why}");
    let (id, name) = (text("id"), text("name"));
    let line =
        Line { tenant: Some(&tenant), what: "cluster.webhook", kind: kind::CLUSTER, id, name, message };
    journal(txn, now, &Actor::root(), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tenant: &str, at: i64) -> Row<CallRecord> {
        let record = CallRecord {
            tenant: tenant.to_owned(),
            url: "http://h/".into(),
            body: json!({}),
            tries: 0,
            at: Timestamp(at),
        };
        Row { version: 1, value: std::sync::Arc::new(record) }
    }

    #[test]
    fn a_tenant_whose_addresses_are_slow_holds_up_only_itself() {
        let mut calls: OrdMap<String, Row<CallRecord>> =
            (0..1_000).map(|at| (format!("slow{at:04}"), row("acme", at))).collect();
        calls.insert("other".into(), row("bolt", 2_000));
        calls.insert("early".into(), row("bolt", 9_000));
        let first = due(&calls, &BTreeMap::new(), Timestamp(5_000));
        assert_eq!(first, ["slow0000", "other", "slow0001", "slow0002", "slow0003"]);
        let going: BTreeMap<String, String> =
            first[..1].iter().chain(&first[2..]).map(|id| (id.clone(), "acme".to_owned())).collect();
        assert_eq!(due(&calls, &going, Timestamp(5_000)), ["other"]);
    }

    #[tokio::test]
    async fn the_machines_own_addresses_are_not_called() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let server = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("a call");
            let count = stream.read(&mut [0; 4096]).expect("a request");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("an answer");
            count
        });
        // Set while root listened on loopback only; it serves others now.
        let far = object::hook::STRANGER;
        let client = object::hook::client(far).expect("a client");
        let refused = post(&client, far, &url, &json!({})).await;
        assert_eq!(refused, Err("it is an address that webhooks may not have".to_owned()));
        assert!(!server.is_finished(), "it was called");
        let here = "127.0.0.1".parse().expect("an address");
        let client = object::hook::client(here).expect("a client");
        assert_eq!(post(&client, here, &url, &json!({})).await, Ok(()));
        assert!(server.join().expect("it ends") > 0);
    }

    #[test]
    fn no_more_are_called_at_once_than_may_be() {
        let calls: OrdMap<String, Row<CallRecord>> =
            (0..100).map(|at| (format!("call{at:03}"), row(&format!("t{at}"), at))).collect();
        assert_eq!(due(&calls, &BTreeMap::new(), Timestamp(5_000)).len(), AT_ONCE);
    }
}
