//! From an assignment to a running container.

use std::time::Duration;

use model::{PhaseEvent, Result, Timestamp};
use tokio::time::Instant;

use super::Driver;
use crate::bundle;
use crate::health::HealthWatch;
use crate::shim::Plan;
use crate::supervise::{Shim, sweep};

/// Layers that are not at hand after this are told to be on their way.
const PULL_QUIET: Duration = Duration::from_millis(50);

/// How the system says that the disk is full, whoever ran into it.
const NO_SPACE: &str = "os error 28";

impl Driver {
    /// Takes over what an earlier life of the node left running, or learns how it ended.
    pub(super) async fn adopt(&mut self) {
        if self.record.starts == 0 && !self.dir.path().exists() {
            return;
        }
        match Shim::adopt(&self.dir).await {
            Ok(Some(shim)) => {
                tracing::info!(instance = %self.id, pid = shim.started.pid, "adopted");
                self.running_set(shim);
            }
            Ok(None) => self.ended_unwatched(),
            Err(error) => {
                tracing::warn!(instance = %self.id, %error, "swept away");
                let _ =
                    sweep(&self.shared.config.shim, &self.shared.runtime, &self.dir, self.id.as_str()).await;
                self.ended_unwatched();
            }
        }
        self.save();
    }

    pub(super) async fn start(&mut self) {
        self.record.step(PhaseEvent::PickedUp);
        self.record.message = None;
        self.record.exit = None;
        let mut want = self.want.clone();
        let layers = tokio::select! {
            layers = self.layers() => layers,
            // Waiting for an image must not outlive the wish for it.
            Ok(()) = want.changed() => return,
        };
        let result = match layers {
            Ok(layers) => self.container_start(layers).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(shim) => {
                if !std::mem::replace(&mut self.record.asked, false) {
                    self.record.restarts += 1;
                }
                self.record.starts += 1;
                self.running_set(shim);
                let pid = self.live.as_ref().map_or(0, |shim| shim.started.pid);
                self.note("started", format!("process {pid} runs"));
            }
            Err(error) => self.failed(&error),
        }
        self.save();
    }

    fn failed(&mut self, error: &model::Error) {
        self.record.step(PhaseEvent::Failed);
        self.record.failures = self.record.failures.saturating_add(1);
        let pause = self.shared.config.backoff.pause(self.record.failures);
        self.not_before = Some(Instant::now() + pause);
        let message = match &error.hint {
            _ if error.message.contains(NO_SPACE) => {
                format!("the disk of the node is full; tried again when there is room ({error})")
            }
            Some(hint) => format!("{error} ({hint})"),
            None => error.to_string(),
        };
        self.note("failed", message.clone());
        self.record.message = Some(message);
    }

    pub(super) fn running_set(&mut self, shim: Shim) {
        self.record.step(PhaseEvent::PickedUp);
        self.record.step(PhaseEvent::Started);
        self.record.started_at = Some(Timestamp(shim.started.at_us));
        self.record.message = None;
        self.record.exit = None;
        self.record.finished = false;
        self.not_before = None;
        self.live = Some(shim);
        self.health_watch();
    }

    /// Begins the checks that the spec asks for.
    pub(super) fn health_watch(&mut self) {
        let check = self.record.assignment.spec.health.clone();
        let address = self.record.attachment.as_ref().and_then(|net| net.address);
        self.record.health = check.as_ref().map(|_| model::exchange::Health::Starting);
        self.health = check.map(|check| HealthWatch::start(&self.shared, &self.id, check, address));
    }

    async fn container_start(&mut self, layers: Vec<std::path::PathBuf>) -> Result<Shim> {
        let assignment = self.record.assignment.clone();
        let shared = self.shared.clone();
        let _permit = shared.starts.acquire().await.expect("the semaphore is never closed");
        let attachment = self.shared.network.attach(&self.id).await?;
        self.record.attachment = Some(attachment.clone());
        // A container the runtime still knows of is the rest of a start or a shim that was killed.
        sweep(&self.shared.config.shim, &self.shared.runtime, &self.dir, self.id.as_str()).await?;
        bundle::etc_write(&assignment, &self.dir, &attachment)?;
        let cgroups = &self.shared.cgroups;
        let plan = Plan {
            id: self.id.as_str().to_owned(),
            runtime: self.shared.runtime.clone(),
            layers,
            oom_files: cgroups.oom_files(self.id.as_str()),
            user: assignment
                .spec
                .user
                .clone()
                .or_else(|| assignment.image.user.clone().filter(|u| !u.is_empty())),
            log_bytes_max: self.shared.config.log_bytes_max,
            config: bundle::config(&assignment, &self.dir, cgroups, &attachment)?,
        };
        if self.record.starts == 0 {
            let count = plan.layers.len();
            let layers = if count == 1 { "layer" } else { "layers" };
            self.note("created", format!("root file system of {count} {layers} and network are ready"));
        }
        self.save();
        Shim::start(&self.shared.config.shim, &self.dir, &plan).await
    }

    /// Makes the directory with the record in it, before anything else is done, and waits for the layers.
    async fn layers(&mut self) -> Result<Vec<std::path::PathBuf>> {
        let runtime = self.record.assignment.spec.runtime;
        if runtime != model::RuntimeKind::Container {
            return Err(model::Error::invalid(format!("this node cannot run a {runtime}")));
        }
        std::fs::create_dir_all(self.dir.path())?;
        self.save();
        let source = self.shared.layers.clone();
        let image = self.record.assignment.image.clone();
        let mut layers = source.rootfs_layers(&image);
        tokio::select! {
            biased;
            found = &mut layers => return found,
            () = tokio::time::sleep(PULL_QUIET) => {}
        }
        self.note("pulling", format!("image {} is being fetched", image.id));
        self.save();
        layers.await
    }
}
