//! Health checks: a task per running instance that reports changes only.

use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use model::exchange::Health;
use model::{HealthCheck, HealthProbe, InstanceId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::engine::Shared;
use crate::exec::Running;

/// Changes that wait for the driver; it never lags far behind.
const CHANGES_MAX: usize = 4;
/// Enough of an HTTP answer to know its status.
const STATUS_BYTES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthChange {
    pub health: Health,
    pub reason: String,
}

/// The checks of one run of an instance; they end with it.
pub struct HealthWatch {
    changes: mpsc::Receiver<HealthChange>,
    task: JoinHandle<()>,
}

impl HealthWatch {
    pub fn start(shared: &Arc<Shared>, id: &InstanceId, check: HealthCheck, address: Option<IpAddr>) -> Self {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let prober = Prober { shared: shared.clone(), id: id.clone(), check, address };
        Self { changes, task: tokio::spawn(prober.run(sender)) }
    }

    /// The next change of health.
    pub async fn change(&mut self) -> HealthChange {
        match self.changes.recv().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }
}

impl Drop for HealthWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The first probe comes so soon after the start.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// What has not passed after this is told to have not, with what the check met; before, it is just starting.
const QUIET: Duration = Duration::from_secs(2);

struct Prober {
    shared: Arc<Shared>,
    id: InstanceId,
    check: HealthCheck,
    address: Option<IpAddr>,
}

impl Prober {
    async fn run(self, changes: mpsc::Sender<HealthChange>) {
        let interval = Duration::from_millis(self.check.interval_ms);
        // Until the first interval is over it is tried often, so that what is ready soon is seen soon;
        // failures count from then on, or from the end of the grace.
        let began = Instant::now();
        let grace_ends = began + interval.max(Duration::from_millis(self.check.grace_ms));
        let mut health = Health::Starting;
        let mut told: Option<String> = None;
        let mut failures = 0;
        let mut pause = FIRST_PAUSE.min(interval);
        loop {
            tokio::time::sleep(pause).await;
            pause = if health == Health::Starting { (pause * 2).min(interval) } else { interval };
            let result = self.probe().await;
            if let Err(reason) = &result
                && health == Health::Starting
                && began.elapsed() >= QUIET
                && told.as_ref() != Some(reason)
            {
                told = Some(reason.clone());
                if changes.send(HealthChange { health, reason: reason.clone() }).await.is_err() {
                    return;
                }
            }
            let next = match &result {
                Ok(()) => {
                    failures = 0;
                    Health::Healthy
                }
                Err(_) if Instant::now() < grace_ends => continue,
                Err(_) => {
                    failures += 1;
                    if failures < self.check.retries {
                        continue;
                    }
                    Health::Unhealthy
                }
            };
            if next != health {
                health = next;
                let reason = result.err().unwrap_or_default();
                if changes.send(HealthChange { health, reason }).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn probe(&self) -> Result<(), String> {
        let limit = Duration::from_millis(self.check.timeout_ms);
        let probe = async {
            match &self.check.probe {
                HealthProbe::Command(command) => self.command(command).await,
                HealthProbe::Tcp { port } => self.connect(*port).await.map(drop),
                HealthProbe::Http { port, path } => self.http(*port, path).await,
            }
        };
        match tokio::time::timeout(limit, probe).await {
            Ok(result) => result,
            Err(_) => Err(format!("the check did not answer within {} ms", limit.as_millis())),
        }
    }

    async fn command(&self, command: &[String]) -> Result<(), String> {
        let io = [Stdio::null(), Stdio::null(), Stdio::null()];
        let running =
            Running::spawn(&self.shared, &self.id, command, None, io).map_err(|error| error.to_string())?;
        match running.exit().await.map_err(|error| error.to_string())? {
            0 => Ok(()),
            code => Err(format!("the check command exited with code {code}")),
        }
    }

    async fn connect(&self, port: u16) -> Result<TcpStream, String> {
        let address = self.address.ok_or("the instance has no address")?;
        let target = SocketAddr::new(address, port);
        TcpStream::connect(target).await.map_err(|error| format!("{target} does not accept: {error}"))
    }

    async fn http(&self, port: u16, path: &str) -> Result<(), String> {
        let mut stream = self.connect(port).await?;
        let host = self.address.map(|address| SocketAddr::new(address, port).to_string()).unwrap_or_default();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: banyan\r\nConnection: close\r\n\r\n");
        let mut start = [0u8; STATUS_BYTES];
        let answer = async {
            stream.write_all(request.as_bytes()).await?;
            stream.read_exact(&mut start).await
        };
        answer.await.map_err(|error| format!("no HTTP answer: {error}"))?;
        match http_status(&start) {
            Some(200..=399) => Ok(()),
            Some(status) => Err(format!("HTTP status {status}")),
            None => Err("the answer is not HTTP".to_owned()),
        }
    }
}

fn http_status(start: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(start).ok()?;
    text.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_the_first_bytes() {
        assert_eq!(http_status(b"HTTP/1.1 204"), Some(204));
        assert_eq!(http_status(b"HTTP/1.0 500"), Some(500));
        assert_eq!(http_status(b"SSH-2.0-Open"), None);
    }
}
