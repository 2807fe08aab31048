//! Provisioners whose tasks do nothing, or wait for a while: the real worker over the real link, with a provider and
//! an automator that say at once that all is well.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Client, EnrolRole, EnrolmentCreate};
use futures::FutureExt;
use futures::future::BoxFuture;
use link::{EnrollToken, Newcomer, TaskClient};
use model::Name;
use provision::automator::{Automator, Job};
use provision::carry::Carrier;
use provision::provider::{Provider, Setting};
use provision::ssh::Pool;
use provision::task::{Action, Fault, Report, Verb};
use provision::worker::{Config, Worker};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the provider and the automator are called.
pub const NOOP: &str = "noop";
/// A key that a machine might show; nobody connects to it.
const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDFbhKZbmsFZ5Iax6pXhWIWqVCsTw2G2M3bBOUn1yTTi";
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
struct Noop {
    takes: Duration,
}

impl Noop {
    async fn wait(self) {
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes).await;
        }
    }
}

impl Provider for Noop {
    fn name(&self) -> &str {
        NOOP
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            self.wait().await;
            let mut report = Report::default();
            match setting.task.task_name {
                Verb::Create => {
                    // Far from any network that is used.
                    let number: u32 =
                        setting.task.text("nodenum").and_then(|num| num.parse().ok()).unwrap_or(0);
                    let address = format!("100.64.{}.{}", number / 250 % 250, number % 250 + 1);
                    report.ipaddresses.insert("access_v4".to_owned(), address);
                    report.result.insert("providerid".to_owned(), setting.task.node_id.clone().into());
                }
                Verb::Confirm => {
                    report.result.insert("ssh_host_keys".to_owned(), json!({"ed25519": HOST_KEY}));
                }
                _ => {}
            }
            Ok(report)
        }
        .boxed()
    }
}

impl Automator for Noop {
    fn name(&self) -> &str {
        NOOP
    }

    fn bootstrap<'a>(&'a self, _: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.wait().map(|()| Ok(Report::default())).boxed()
    }

    fn act<'a>(&'a self, _: &'a Job<'a>, _: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        self.wait().map(|()| Ok(Report::default())).boxed()
    }
}

/// A provisioner that runs until it is dropped.
pub struct StandIn {
    pub worker: Worker,
    name: Name,
    ending: CancellationToken,
    running: JoinHandle<()>,
}

impl StandIn {
    /// Joins as provisioners of users do.
    pub async fn start(
        client: &Client,
        link_url: &str,
        name: &str,
        workers: u32,
        takes: Duration,
        data: &Path,
    ) -> Result<Self> {
        let name: Name = name.parse()?;
        let ask = EnrolmentCreate { role: EnrolRole::Provisioner, zone: None, hosts: Vec::new() };
        let token: EnrollToken = client.enrolment_create(&ask).await?.token.parse()?;
        let me = link::enroll(link_url, &token, Newcomer::provisioner(&name)).await?;
        let tasks = TaskClient::new(&me, link_url)?;
        let mut config = Config::new(data.join(name.as_str()), workers, DRAIN);
        let noop = Noop { takes };
        config.carrier = Arc::new(move |folder| {
            let mut carrier = Carrier::new(Pool::new(1), folder);
            carrier.provider_add(Arc::new(noop));
            carrier.automator_add(Arc::new(noop));
            carrier
        });
        let worker = Worker::new(tasks, config)?;
        let ending = CancellationToken::new();
        let (runs, token) = (worker.clone(), ending.clone());
        let running = tokio::spawn(async move { runs.run(token).await });
        Ok(Self { worker, name, ending, running })
    }

    pub async fn stop(self, client: &Client) -> Result<()> {
        self.ending.cancel();
        self.running.await?;
        Ok(client.provisioner_remove(self.name.as_str()).await?)
    }
}
