//! Clusters, and those who carry out their tasks.

use model::Result;
use reqwest::Method;
use serde::Serialize;

use super::{Client, ListQuery, if_match, segment};
use crate::{
    Cluster, ClusterConfigure, ClusterCreate, ClusterJob, ClusterKey, ClusterLease, ClusterNode,
    ClusterPreview, ClusterRepair, ClusterResize, ClusterServiceOrder, ClusterServices, ClusterSolve,
    ClusterUpgrade, JobSummary, NodeAction, Page, Provisioner,
};

fn cluster(name: &str) -> String {
    format!("/v1/clusters/{}", segment(name))
}

impl Client {
    /// `key` makes it safe to repeat.
    pub async fn cluster_create(&self, body: &ClusterCreate, key: Option<&str>) -> Result<Cluster> {
        self.create("/v1/clusters", body, key).await
    }

    /// Filters `name`, `status` and `template`.
    pub async fn cluster_list(&self, query: &ListQuery) -> Result<Page<Cluster>> {
        self.list("/v1/clusters", query).await
    }

    /// By name or id.
    pub async fn cluster_get(&self, name: &str) -> Result<Cluster> {
        self.get(&cluster(name)).await
    }

    /// Deletes its machines; it is there until they are gone.
    pub async fn cluster_delete(&self, name: &str, version: Option<i64>) -> Result<Cluster> {
        self.json(self.request(Method::DELETE, &cluster(name)).headers(if_match(version))).await
    }

    /// The same; machines that cannot be deleted are given up.
    pub async fn cluster_delete_forced(&self, name: &str) -> Result<Cluster> {
        self.json(self.request(Method::DELETE, &format!("{}?force=true", cluster(name)))).await
    }

    pub async fn cluster_solve(&self, body: &ClusterSolve) -> Result<ClusterPreview> {
        self.post("/v1/clusters/solve", body).await
    }

    pub async fn cluster_expand(&self, name: &str, body: &ClusterResize) -> Result<Cluster> {
        self.cluster_order(name, "expand", body, None).await
    }

    pub async fn cluster_shrink(&self, name: &str, body: &ClusterResize) -> Result<Cluster> {
        self.cluster_order(name, "shrink", body, None).await
    }

    pub async fn cluster_services(&self, name: &str, body: &ClusterServices) -> Result<Cluster> {
        self.cluster_order(name, "services", body, None).await
    }

    pub async fn cluster_configure(&self, name: &str, body: &ClusterConfigure) -> Result<Cluster> {
        self.cluster_order(name, "configure", body, None).await
    }

    /// Starts services and what they need.
    pub async fn cluster_start(&self, name: &str, body: &ClusterServiceOrder) -> Result<Cluster> {
        self.cluster_order(name, "start", body, None).await
    }

    /// Stops services and what needs them.
    pub async fn cluster_stop(&self, name: &str, body: &ClusterServiceOrder) -> Result<Cluster> {
        self.cluster_order(name, "stop", body, None).await
    }

    pub async fn cluster_restart(&self, name: &str, body: &ClusterServiceOrder) -> Result<Cluster> {
        self.cluster_order(name, "restart", body, None).await
    }

    pub async fn cluster_upgrade(&self, name: &str, body: &ClusterUpgrade) -> Result<Cluster> {
        self.cluster_order(name, "upgrade", body, None).await
    }

    /// Back to the layout, services and configuration before the last change.
    pub async fn cluster_rollback(&self, name: &str) -> Result<Cluster> {
        self.cluster_order(name, "rollback", &(), None).await
    }

    /// Makes machines anew that are gone, and those that are named.
    pub async fn cluster_repair(&self, name: &str, body: &ClusterRepair) -> Result<Cluster> {
        self.cluster_order(name, "repair", body, None).await
    }

    /// Asks the provider for each machine.
    pub async fn cluster_check(&self, name: &str) -> Result<Cluster> {
        self.cluster_order(name, "check", &(), None).await
    }

    pub async fn cluster_lease(&self, name: &str, body: &ClusterLease) -> Result<Cluster> {
        self.cluster_order(name, "lease", body, None).await
    }

    /// Ends the job under way; what it made by half is taken back.
    pub async fn cluster_abort(&self, name: &str) -> Result<Cluster> {
        self.cluster_order(name, "abort", &(), None).await
    }

    pub async fn cluster_pause(&self, name: &str) -> Result<Cluster> {
        self.cluster_order(name, "pause", &(), None).await
    }

    pub async fn cluster_resume(&self, name: &str) -> Result<Cluster> {
        self.cluster_order(name, "resume", &(), None).await
    }

    /// Any of these orders, only if the cluster is at this version.
    pub async fn cluster_order(
        &self,
        name: &str,
        verb: &str,
        body: &(impl Serialize + Sync),
        version: Option<i64>,
    ) -> Result<Cluster> {
        let path = format!("{}/{verb}", cluster(name));
        self.json(self.request(Method::POST, &path).headers(if_match(version)).json(body)).await
    }

    pub async fn cluster_nodes(&self, name: &str) -> Result<Vec<ClusterNode>> {
        self.get(&format!("{}/nodes", cluster(name))).await
    }

    /// What was done to a node, oldest first.
    pub async fn cluster_node_log(&self, name: &str, node: u32) -> Result<Vec<NodeAction>> {
        self.get(&format!("{}/nodes/{node}/log", cluster(name))).await
    }

    /// Newest first.
    pub async fn cluster_jobs(&self, name: &str) -> Result<Vec<JobSummary>> {
        self.get(&format!("{}/jobs", cluster(name))).await
    }

    pub async fn cluster_job(&self, name: &str, job: &str) -> Result<ClusterJob> {
        self.get(&format!("{}/jobs/{}", cluster(name), segment(job))).await
    }

    /// The key that its machines let in; asking for it is written into the history.
    pub async fn cluster_key(&self, name: &str) -> Result<ClusterKey> {
        self.get(&format!("{}/key", cluster(name))).await
    }

    pub async fn provisioner_list(&self) -> Result<Vec<Provisioner>> {
        self.get("/v1/provisioners").await
    }

    /// Removes it for good; what it does is given to others.
    pub async fn provisioner_remove(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/provisioners/{}", segment(name)), None).await
    }
}
