//! From the order of a cluster until it is active, for the clusters of examples/clusters on real machines of this
//! cloud, and how much of that is ours.
//!
//! The path is walked from the task that ended last to the one that ended last before it began, and so on. What lies
//! between them is root's; machines are made, confirmed and prepared by the cloud and the provisioner; tasks of services
//! run the commands of the example. Of each of those, what a task takes whose command is `true` is ours.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::{CatalogueWrite, Client, ClusterCreate, ClusterStatus, Entities, NodeAction};
use model::Timestamp;
use serde_json::{Value, json};

use crate::times::Times;

const EXAMPLES: [(&str, u32); 3] = [("web-tier", 3), ("postgres", 3), ("etcd", 3)];
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(10);

/// The image must be there. `folder` is that of the examples.
pub async fn run(client: &Client, folder: &Path, rounds: usize) -> Result<()> {
    client.catalogue_write(&catalogue(folder)?).await?;
    let idle = idle(client).await?;
    println!(
        "a task whose command is `true`, with sessions there: p50 {:.1} ms, p99 {:.1} ms",
        idle.at(0.5),
        idle.at(0.99)
    );
    println!(
        "{:<22} {:>8} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7}",
        "", "active", "path", "between", "machines", "services", "ours", "share"
    );
    for (template, size) in EXAMPLES {
        for _ in 0..rounds {
            let (took, actions) = made(client, template, size).await?;
            row(&format!("{template}, {size} machines"), took, &path(actions), idle.at(0.5) / 1e3);
        }
    }
    Ok(())
}

/// What lies in the folder, and a template whose service does nothing.
fn catalogue(folder: &Path) -> Result<CatalogueWrite> {
    let mut entities = Entities::default();
    for kind in std::fs::read_dir(folder)? {
        let kind = kind?;
        let all = entities.0.entry(kind.file_name().to_string_lossy().into_owned()).or_default();
        for file in std::fs::read_dir(kind.path())? {
            all.push(serde_json::from_slice(&std::fs::read(file?.path())?)?);
        }
    }
    let code = json!({"type": "shell", "fields": {"code": "#!/bin/sh\ntrue\n"}});
    let actions: Value = ["install", "configure", "initialize", "start"]
        .iter()
        .map(|verb| ((*verb).to_owned(), code.clone()))
        .collect();
    let own = json!({"name": "idle", "provisioner": {"actions": actions}});
    entities.0.entry("services".to_owned()).or_default().push(own);
    let mut template = entities.0["clustertemplates"][0].clone();
    template["name"] = json!("idle");
    template["defaults"]["services"] = json!(["idle"]);
    template["compatibility"]["services"] = json!(["idle"]);
    template["constraints"] = json!({});
    template["defaults"]["config"] = json!({});
    entities.0.entry("clustertemplates".to_owned()).or_default().push(template);
    Ok(CatalogueWrite { entities, replace: false, dry_run: false })
}

async fn idle(client: &Client) -> Result<Times> {
    let (_, actions) = made(client, "idle", 3).await?;
    let own = actions.iter().filter(|action| !action.service.is_empty());
    Ok(Times::new(
        own.map(|action| Duration::from_secs_f64(seconds(began(action), action.changed_at))).collect(),
    ))
}

/// Makes a cluster, looks at what was done, and deletes it.
async fn made(client: &Client, template: &str, size: u32) -> Result<(f64, Vec<NodeAction>)> {
    let order: ClusterCreate =
        serde_json::from_value(json!({"name": template, "template": template, "size": size}))?;
    let since = Instant::now();
    client.cluster_create(&order, None).await?;
    loop {
        let cluster = client.cluster_get(template).await?;
        if cluster.status == ClusterStatus::Active {
            break;
        }
        ensure!(cluster.status == ClusterStatus::Pending, "{template} is {:?}", cluster.message);
        ensure!(since.elapsed() < LIMIT, "{template} is not active after {LIMIT:?}");
        tokio::time::sleep(POLL).await;
    }
    let took = since.elapsed().as_secs_f64();
    let mut actions = Vec::new();
    for node in client.cluster_nodes(template).await? {
        actions.extend(client.cluster_node_log(template, node.num).await?);
    }
    client.cluster_delete(template, None).await?;
    while client.cluster_get(template).await.is_ok() {
        ensure!(since.elapsed() < 2 * LIMIT, "{template} is not deleted");
        tokio::time::sleep(POLL).await;
    }
    Ok((took, actions))
}

fn began(action: &NodeAction) -> Timestamp {
    action.began_at.unwrap_or(action.changed_at)
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    (to.0 - from.0) as f64 / 1e6
}

/// The tasks that the end waited for, the last one first.
fn path(mut actions: Vec<NodeAction>) -> Vec<NodeAction> {
    actions.sort_by_key(|action| action.changed_at);
    let mut path: Vec<NodeAction> = Vec::new();
    while let Some(action) = actions.pop() {
        if path.last().is_none_or(|after| action.changed_at <= began(after)) {
            path.push(action);
        }
    }
    path
}

fn row(what: &str, took: f64, path: &[NodeAction], idle: f64) {
    let of = |action: &NodeAction| seconds(began(action), action.changed_at);
    let (services, machines): (Vec<_>, Vec<_>) = path.iter().partition(|action| !action.service.is_empty());
    let sum = |all: &[&NodeAction]| all.iter().map(|action| of(action)).sum::<f64>();
    let (commands, making) = (sum(&services), sum(&machines));
    let between = (took - commands - making).max(0.0);
    let ours = between + making + (idle * services.len() as f64).min(commands);
    println!(
        "{what:<22} {took:>6.2} s {:>6} {between:>7.2} s {making:>7.2} s {commands:>7.2} s {ours:>7.2} s {:>5.0} %",
        path.len(),
        ours / took * 100.0
    );
}
