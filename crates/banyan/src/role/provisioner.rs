//! A provisioner: asks root for tasks of clusters and carries them out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use link::{EnrollToken, Newcomer, Parents, RemoteIssuer, TaskClient, Wallet};
use model::{Name, Result};
use provision::carry::Carrier;
use provision::plugin::Plugin;
use provision::ssh::Pool;
use provision::worker::{Config, SESSIONS_MAX, Worker};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::listen::renewal;
use super::zone::credentials;

/// Tasks at once, unless said otherwise.
pub const WORKERS_DEFAULT: u32 = 64;
/// The longest time for one task of a program; root may give it less.
const PLUGIN_MAX: Duration = Duration::from_secs(1800);

pub struct ProvisionerOptions {
    pub name: Name,
    pub data: PathBuf,
    /// One address of root, or those of several root servers.
    pub root: Parents,
    /// Tasks at once, all tenants together.
    pub workers: u32,
    /// How long it may take to finish what is being done when it is told to end.
    pub drain: Duration,
    /// Programs that are providers and automators, by the name of their type.
    pub providers: BTreeMap<String, PathBuf>,
    pub automators: BTreeMap<String, PathBuf>,
}

/// A provisioner that runs until it is stopped.
pub struct ProvisionerRole {
    ending: CancellationToken,
    running: JoinHandle<()>,
    renewing: JoinHandle<()>,
}

impl ProvisionerRole {
    /// `token` is used the first time; later the certificate from then is.
    pub async fn start(options: ProvisionerOptions, token: Option<EnrollToken>) -> Result<Self> {
        sal::folder_private(&options.data)?;
        let newcomer = Newcomer::provisioner(&options.name);
        let me = Wallet::from(credentials(&options.data, &options.root, token, newcomer).await?);
        let client = TaskClient::new(&me, &options.root)?;
        let issuer = Arc::new(RemoteIssuer::new(&me, &options.root)?);
        let identity = options.data.join("identity");
        let worker = Worker::new(client, config(options))?;
        let ending = CancellationToken::new();
        let token = ending.clone();
        let running = tokio::spawn(async move { worker.run(token).await });
        let renewing = tokio::spawn(renewal(&me, &issuer, Vec::new(), identity).run());
        Ok(Self { ending, running, renewing })
    }

    /// Takes nothing more, finishes what it can in time, and gives the rest back.
    pub async fn stop(mut self) {
        self.ending.cancel();
        let _ = (&mut self.running).await;
    }
}

impl Drop for ProvisionerRole {
    fn drop(&mut self) {
        self.running.abort();
        self.renewing.abort();
    }
}

fn config(options: ProvisionerOptions) -> Config {
    let ProvisionerOptions { data, workers, drain, providers, automators, .. } = options;
    let carrier = move |folder: PathBuf| {
        let mut carrier = Carrier::new(Pool::new(SESSIONS_MAX), folder);
        for (name, program) in &providers {
            carrier.provider_add(Arc::new(Plugin::new(name, program.clone(), PLUGIN_MAX)));
        }
        for (name, program) in &automators {
            carrier.automator_add(Arc::new(Plugin::new(name, program.clone(), PLUGIN_MAX)));
        }
        carrier
    };
    Config { data, workers, drain, carrier: Arc::new(carrier) }
}
