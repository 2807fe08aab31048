//! Stopping a container, and removing everything of an instance.

use std::path::Path;
use std::time::Duration;

use model::{Phase, PhaseEvent, Result};
use rustix::process::Signal;

use super::{Driver, REMOVE_PAUSE};
use crate::config::{DELETE_GRACE, DROP_GRACE};
use crate::shim::Exit;
use crate::supervise::sweep;

/// How long a killed container may take to be gone before its supervisor is killed too.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

impl Driver {
    /// Stops the container and keeps its root file system.
    pub(super) async fn stop(&mut self) {
        if self.live.is_some() {
            self.record.step(PhaseEvent::StopAsked);
            self.save();
            self.end(self.shared.config.stop_grace).await;
        }
        if self.record.phase != Phase::Stopped {
            self.record.step(PhaseEvent::StopAsked);
            self.record.step(PhaseEvent::Stopped);
            let note = stopped_note(self.record.finished, self.record.exit.as_ref());
            self.note("stopped", note);
            self.record.message = None;
            self.record.finished = false;
            self.record.failures = 0;
            self.not_before = None;
        }
        self.save();
    }

    /// Ends the container: SIGTERM, SIGKILL after `grace`, and force when its supervisor is lost.
    pub(super) async fn end(&mut self, grace: Duration) {
        self.health = None;
        let Some(shim) = &self.live else { return };
        let mut ended = false;
        if shim.term_is_heard() && shim.signal(Signal::TERM).is_ok() {
            ended = tokio::time::timeout(grace, shim.ended()).await.is_ok();
        }
        if !ended {
            let _ = shim.signal(Signal::KILL);
            ended = tokio::time::timeout(KILL_TIMEOUT, shim.ended()).await.is_ok();
        }
        if !ended {
            shim.kill();
        }
        self.record.exit = self.shim_finish().await;
    }

    /// Takes the last word of a shim that has ended. When it had none, the container may still be
    /// there and is cleared away.
    pub(super) async fn shim_finish(&mut self) -> Option<Exit> {
        self.health = None;
        let shim = self.live.take()?;
        let exit = shim.finish().await;
        if exit.is_none()
            && let Err(error) = self.force().await
        {
            tracing::error!(instance = %self.id, %error, "the rest of a container cannot be cleared away");
        }
        exit
    }

    async fn force(&mut self) -> Result<()> {
        let (cgroups, id) = (self.shared.cgroups.clone(), self.id.clone());
        let cleared = tokio::task::spawn_blocking(move || cgroups.clear(id.as_str())).await;
        sweep(&self.shared.config.shim, &self.shared.runtime, &self.dir, self.id.as_str()).await?;
        cleared.map_err(|error| model::Error::internal(error.to_string()))??;
        Ok(())
    }

    /// Removes container, cgroups, network and files. False when something resisted; it is told and
    /// a pause is made before the next try.
    pub(super) async fn remove(&mut self) -> bool {
        if self.record.phase == Phase::Gone {
            return true;
        }
        self.record.step(PhaseEvent::DeleteAsked);
        self.save();
        let grace = if self.want.borrow().is_some() { DELETE_GRACE } else { DROP_GRACE };
        self.end(grace.min(self.shared.config.stop_grace)).await;
        match self.everything_remove().await {
            Ok(()) => {
                self.record.step(PhaseEvent::Gone);
                self.record.message = None;
                self.record.attachment = None;
                self.note("gone", "everything of it is removed");
                self.save();
                true
            }
            Err(error) => {
                tracing::warn!(instance = %self.id, %error, "cannot be removed yet");
                self.record.message = Some(format!("cannot be removed yet: {error}"));
                self.save();
                self.wanted_anew(Some(tokio::time::Instant::now() + REMOVE_PAUSE)).await;
                false
            }
        }
    }

    async fn everything_remove(&mut self) -> Result<()> {
        self.force().await?;
        self.shared.network.detach(&self.id).await?;
        let path = self.dir.path().to_owned();
        let removed = tokio::task::spawn_blocking(move || {
            mounts_remove(&path)?;
            std::fs::remove_dir_all(path)
        })
        .await;
        match removed.map_err(|error| model::Error::internal(error.to_string()))? {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        if !self.shared.image_used_beside(&self.id, &self.record.assignment.image) {
            self.shared.layers.release(&self.record.assignment.image);
        }
        Ok(())
    }
}

/// What is said of one that is stopped; one that had ended by itself was not stopped by anybody.
fn stopped_note(ended: bool, exit: Option<&Exit>) -> String {
    match exit {
        Some(exit) if ended => format!("not started again; it had exited with code {}", exit.code),
        Some(exit) => format!("stopped as asked with exit code {}", exit.code),
        None => "stopped as asked".to_owned(),
    }
}

/// Takes off what somebody mounted in an instance's directory: nothing under it could be removed otherwise.
fn mounts_remove(dir: &Path) -> std::io::Result<()> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    let mut inside: Vec<&Path> = points.filter(|point| point.starts_with(dir)).collect();
    inside.reverse();
    for point in inside {
        tracing::warn!(point = %point.display(), "a mount is left in the directory of an instance: taken off");
        rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_by_itself_was_not_stopped() {
        let exit = Exit { code: 3, oom: false, at_us: 0, ran_ms: None };
        assert_eq!(stopped_note(true, Some(&exit)), "not started again; it had exited with code 3");
        assert_eq!(stopped_note(false, Some(&exit)), "stopped as asked with exit code 3");
        assert_eq!(stopped_note(false, None), "stopped as asked");
    }
}
