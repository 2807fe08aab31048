//! A store that runs: the engine, the listener, and what goes on in the background.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::{Error, Result};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::engine::{Engine, EngineConfig, EngineError};
use crate::http::{self, Door, Server};
use crate::identity::Identity;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::service::Service;
use crate::{lifecycle, notify, owned};

/// How long a store that stops waits for its access logs.
const LOG_WAIT: Duration = Duration::from_secs(10);

/// Runs until [`Store::stop`].
pub struct Store {
    service: Service,
    address: SocketAddr,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    door: Door,
    /// Of further listeners.
    doors: TaskTracker,
    log: Log,
}

impl Store {
    pub async fn start(config: Config, identity: Arc<dyn Identity>) -> Result<Self> {
        let settings =
            EngineConfig { gateway: config.gateway.clone(), ..EngineConfig::new(config.data.clone()) };
        let opening = tokio::task::spawn_blocking(move || Engine::open(settings));
        let opened = opening.await.map_err(|error| Error::internal(error.to_string()))?;
        let engine = opened.map_err(|error| {
            let data = config.data.display();
            match error {
                EngineError::Gateway(_) | EngineError::Away(_) => {
                    Error::unavailable(format!("the object store in {data} cannot be opened: {error}"))
                        .hint("see [object.gateway] in the file of root, and the store that it names")
                }
                _ => Error::internal(format!("the object store in {data} cannot be opened: {error}")),
            }
        })?;
        owned::prepare(&engine).await.map_err(|error| {
            Error::internal(format!("the buckets of the object store cannot be put in order: {error}"))
        })?;
        let service = Service {
            engine,
            identity,
            config: Arc::new(config),
            metrics: Arc::new(Metrics::new()),
            claims: Arc::default(),
        };
        let stop = CancellationToken::new();
        let log = Log::open(service.clone()).map_err(|error| {
            Error::internal(format!("the folder of access logs cannot be opened: {error}"))
        })?;
        let server = Server::bind(service.clone(), log.clone()).await?;
        let (address, door) = (server.address()?, server.door());
        let tasks = vec![
            tokio::spawn(server.run(stop.clone())),
            tokio::spawn(lifecycle::run(service.clone(), stop.clone())),
            tokio::spawn(notify::run(service.clone(), stop.clone())),
            tokio::spawn(log.clone().run(stop.clone())),
        ];
        Ok(Self { service, address, stop, tasks, door, doors: TaskTracker::new(), log })
    }

    /// Serves S3 on one more address, on the port that it has; nothing where it listens there already.
    pub async fn listen_also(&self, ip: IpAddr) -> Result<()> {
        if self.address.ip() == ip || self.address.ip().is_unspecified() {
            return Ok(());
        }
        let listener = http::listen(SocketAddr::new(ip, self.address.port())).await?;
        self.doors.spawn(self.door.clone().serve(listener, self.stop.clone()));
        Ok(())
    }

    /// Where S3 is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https` where it has a certificate.
    pub fn scheme(&self) -> &'static str {
        if self.service.config.tls.is_some() { "https" } else { "http" }
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Lets running requests end, then makes everything durable.
    pub async fn stop(self) {
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
        self.doors.close();
        self.doors.wait().await;
        // What does not get there in time waits in its file for the next start.
        if tokio::time::timeout(LOG_WAIT, self.log.deliver()).await.is_err() {
            tracing::warn!("access logs were not delivered in time");
        }
        self.service.engine.close().await;
    }
}
