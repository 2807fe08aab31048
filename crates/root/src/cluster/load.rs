//! A job as the store has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{ClusterId, Error, Result};

use super::definition::Definition;
use super::live::Live;
use super::pages;
use super::record::{Plan, TaskRecord, definition_part};
use crate::cloud::Cloud;
use crate::state::Snapshot;
use crate::tables::{decode, kind};

/// The definitions that a shape of a cluster is made from.
pub async fn definition(cloud: &Cloud, cluster: &ClusterId, number: u32) -> Result<Definition> {
    pages::read(cloud.state.store(), &definition_part(cluster, number)).await
}

pub async fn plan(cloud: &Cloud, job: &super::record::JobRecord) -> Result<Plan> {
    let mut whole = Plan::default();
    for part in 0..job.pages.len() {
        let more: Plan = pages::read(cloud.state.store(), &job.part(part)).await?;
        whole.nodes.extend(more.nodes);
        whole.tasks.extend(more.tasks);
    }
    Ok(whole)
}

/// What became of the tasks of one job, without the output of those that are over.
pub async fn tasks(cloud: &Cloud, cluster: &ClusterId, job: u64) -> Result<BTreeMap<u32, TaskRecord>> {
    let mut tasks = BTreeMap::new();
    let own = |row: store::Record| {
        let mut task: TaskRecord = decode(&row.body)?;
        if task.job == job {
            task.forget();
            tasks.insert(task.task, task);
        }
        Ok::<(), Error>(())
    };
    cloud.state.store().each_under(kind::CLUSTER_TASK, &format!("{cluster}/"), own).await?;
    Ok(tasks)
}

pub async fn live(cloud: &Cloud, snapshot: &Snapshot, cluster: &ClusterId, number: u64) -> Result<Live> {
    let missing = || Error::internal(format!("job {number} of the cluster {cluster} is not there"));
    let row = snapshot.clusters.get(cluster).ok_or_else(missing)?;
    let job = snapshot.cluster_job(cluster, number).ok_or_else(missing)?.value.as_ref().clone();
    let definition = definition(cloud, cluster, job.target.definition).await?;
    let plan = plan(cloud, &job).await?;
    let tasks = tasks(cloud, cluster, number).await?;
    let nodes = snapshot.cluster_nodes.get(cluster).into_iter().flatten();
    Ok(Live {
        cluster: row.value.clone(),
        catalogue: Arc::new(definition.catalogue()?),
        secrets: definition.secrets,
        rows: plan.nodes.into_iter().map(|row| (row.num, row)).collect(),
        plan: plan.tasks,
        nodes: nodes.map(|(num, row)| (*num, row.value.as_ref().clone())).collect(),
        tasks,
        job,
        dirty: Default::default(),
        counted: Default::default(),
        plugins: Default::default(),
        shown: None,
    })
}
