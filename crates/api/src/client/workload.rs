//! Workloads and apps.

use model::Result;
use reqwest::Method;
use serde::Serialize;

use super::{Client, ListQuery, if_match, segment};
use crate::{
    App, AppCreate, AppUpdate, Check, CheckReport, Page, Workload, WorkloadCreate, WorkloadRevision,
    WorkloadRollback, WorkloadScale, WorkloadUpdate, WorkloadWhy,
};

fn workload(name: &str) -> String {
    format!("/v1/workloads/{}", segment(name))
}

fn app(name: &str) -> String {
    format!("/v1/apps/{}", segment(name))
}

impl Client {
    /// What would stand in the way of these orders; nothing is changed.
    pub async fn check(&self, body: &Check) -> Result<CheckReport> {
        self.post("/v1/check", body).await
    }

    pub async fn workload_create(&self, body: &WorkloadCreate) -> Result<Workload> {
        self.create("/v1/workloads", body, None).await
    }

    /// Filters `name`, `app` and `phase`.
    pub async fn workload_list(&self, query: &ListQuery) -> Result<Page<Workload>> {
        self.list("/v1/workloads", query).await
    }

    /// By name or id.
    pub async fn workload_get(&self, name: &str) -> Result<Workload> {
        self.get(&workload(name)).await
    }

    pub async fn workload_update(
        &self,
        name: &str,
        body: &WorkloadUpdate,
        version: Option<i64>,
    ) -> Result<Workload> {
        self.json(self.request(Method::PUT, &workload(name)).headers(if_match(version)).json(body)).await
    }

    /// Deletes it with its instances; it is there, deleting, until they are gone.
    pub async fn workload_delete(&self, name: &str, version: Option<i64>) -> Result<Workload> {
        self.json(self.request(Method::DELETE, &workload(name)).headers(if_match(version))).await
    }

    pub async fn workload_scale(&self, name: &str, replicas: u32) -> Result<Workload> {
        self.workload_verb(name, "scale", &WorkloadScale { replicas }).await
    }

    /// Replaces every instance under the update policy.
    pub async fn workload_restart(&self, name: &str) -> Result<Workload> {
        self.workload_verb(name, "restart", &()).await
    }

    pub async fn workload_pause(&self, name: &str) -> Result<Workload> {
        self.workload_verb(name, "pause", &()).await
    }

    pub async fn workload_resume(&self, name: &str) -> Result<Workload> {
        self.workload_verb(name, "resume", &()).await
    }

    /// Takes an earlier template again, as a new revision.
    pub async fn workload_rollback(&self, name: &str, revision: Option<u64>) -> Result<Workload> {
        self.workload_verb(name, "rollback", &WorkloadRollback { revision }).await
    }

    /// Lets a canary go on to all instances.
    pub async fn workload_promote(&self, name: &str) -> Result<Workload> {
        self.workload_verb(name, "promote", &()).await
    }

    /// Begins a run now: of a cron workload besides its schedule, of a one-shot one once more.
    pub async fn workload_run(&self, name: &str) -> Result<Workload> {
        self.workload_verb(name, "run", &()).await
    }

    async fn workload_verb<T: Serialize + Sync>(&self, name: &str, verb: &str, body: &T) -> Result<Workload> {
        self.post(&format!("{}/{verb}", workload(name)), body).await
    }

    /// The same orders, only if the workload is at this version.
    pub async fn workload_order(
        &self,
        name: &str,
        verb: &str,
        body: &(impl Serialize + Sync),
        version: Option<i64>,
    ) -> Result<Workload> {
        let path = format!("{}/{verb}", workload(name));
        self.json(self.request(Method::POST, &path).headers(if_match(version)).json(body)).await
    }

    /// Why it is as it is.
    pub async fn workload_why(&self, name: &str) -> Result<WorkloadWhy> {
        self.get(&format!("{}/why", workload(name))).await
    }

    /// Newest first.
    pub async fn workload_revisions(&self, name: &str) -> Result<Vec<WorkloadRevision>> {
        self.get(&format!("{}/revisions", workload(name))).await
    }

    pub async fn app_create(&self, body: &AppCreate) -> Result<App> {
        self.create("/v1/apps", body, None).await
    }

    pub async fn app_list(&self, query: &ListQuery) -> Result<Page<App>> {
        self.list("/v1/apps", query).await
    }

    pub async fn app_get(&self, name: &str) -> Result<App> {
        self.get(&app(name)).await
    }

    /// Makes the app's workloads what the body says, all at once; those it does not name are deleted.
    pub async fn app_update(&self, name: &str, body: &AppUpdate, version: Option<i64>) -> Result<App> {
        self.json(self.request(Method::PUT, &app(name)).headers(if_match(version)).json(body)).await
    }

    /// Deletes it with all its workloads.
    pub async fn app_delete(&self, name: &str, version: Option<i64>) -> Result<App> {
        self.json(self.request(Method::DELETE, &app(name)).headers(if_match(version))).await
    }
}
