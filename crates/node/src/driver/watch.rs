//! While a container runs: its end, its health, and what the restart policy makes of them.

use std::time::Duration;

use model::exchange::Health;
use model::{PhaseEvent, RestartPolicy, Timestamp};
use tokio::time::Instant;

use super::Driver;
use crate::health::HealthChange;
use crate::shim::Exit;

enum Happened {
    Wanted,
    Ended,
    Health(HealthChange),
}

impl Driver {
    pub(super) async fn watch(&mut self) {
        if self.health.is_none() && self.record.assignment.spec.health.is_some() {
            self.health_watch();
            self.save();
        }
        let Some(shim) = &self.live else { return };
        let health = async {
            match &mut self.health {
                Some(watch) => watch.change().await,
                None => std::future::pending().await,
            }
        };
        let happened = tokio::select! {
            Ok(()) = self.want.changed() => Happened::Wanted,
            () = shim.ended() => Happened::Ended,
            change = health => Happened::Health(change),
        };
        match happened {
            Happened::Wanted => {}
            Happened::Ended => {
                let exit = self.shim_finish().await;
                self.exited(exit);
                self.save();
            }
            Happened::Health(change) => self.health_changed(change).await,
        }
    }

    async fn health_changed(&mut self, change: HealthChange) {
        self.record.health = Some(change.health);
        if change.health == Health::Starting {
            self.record.message = Some(format!("has not passed its health check: {}", change.reason));
        } else if change.health == Health::Unhealthy {
            self.note("unhealthy", change.reason.clone());
            self.record.message = Some(format!("unhealthy: {}", change.reason));
            if self.record.assignment.spec.restart != RestartPolicy::Never {
                self.save();
                self.end(self.shared.config.stop_grace).await;
                self.record.step(PhaseEvent::Exited);
                self.pause_then_again(&format!("unhealthy: {}", change.reason));
            }
        } else {
            self.record.message = None;
        }
        self.save();
    }

    /// The end of a container that nobody was there to see.
    pub(super) fn ended_unwatched(&mut self) {
        use model::Phase;
        match self.record.phase {
            Phase::Running | Phase::Creating => {
                let exit = crate::dir::json_read(&self.dir.exit()).ok().flatten();
                if self.record.phase == Phase::Running || exit.is_some() {
                    self.exited(exit);
                }
            }
            Phase::Stopping => self.record.step(PhaseEvent::Stopped),
            _ => {}
        }
    }

    fn exited(&mut self, exit: Option<Exit>) {
        self.record.step(PhaseEvent::Exited);
        let policy = self.record.assignment.spec.restart;
        let message = match &exit {
            None => "ended without an exit code: its supervisor or the machine went down".to_owned(),
            Some(exit) if exit.oom => format!(
                "exited with code {}: out of memory, the limit is {}",
                exit.code, self.record.assignment.spec.memory
            ),
            Some(exit) => format!("exited with code {}", exit.code),
        };
        self.note("exited", message.clone());
        let again = match policy {
            RestartPolicy::Never => false,
            RestartPolicy::OnFailure => exit.as_ref().is_none_or(|exit| exit.code != 0),
            RestartPolicy::Always => true,
        };
        let ran_ms = self.ran_ms(exit.as_ref());
        self.record.exit = exit;
        self.record.message = Some(message.clone());
        if again {
            self.failures_reset_if_lasting(ran_ms);
            self.pause_then_again(&message);
        } else {
            self.record.finished = true;
        }
    }

    /// By its supervisor's word, which no correction of the clock touches; else by the clock.
    fn ran_ms(&self, exit: Option<&Exit>) -> u64 {
        if let Some(ran_ms) = exit.and_then(|exit| exit.ran_ms) {
            return ran_ms;
        }
        let ended_at = exit.map_or_else(|| self.shared.clock.now(), |exit| Timestamp(exit.at_us));
        let ran_ms = self.record.started_at.map_or(0, |started| ended_at.ms_since(started));
        u64::try_from(ran_ms).unwrap_or(0)
    }

    fn failures_reset_if_lasting(&mut self, ran_ms: u64) {
        if Duration::from_millis(ran_ms) >= self.shared.config.backoff.reset_after {
            self.record.failures = 0;
        }
    }

    fn pause_then_again(&mut self, why: &str) {
        self.record.failures = self.record.failures.saturating_add(1);
        let pause = self.shared.config.backoff.pause(self.record.failures);
        self.not_before = Some(Instant::now() + pause);
        let message = format!("{why}; starts again after {} ms", pause.as_millis());
        self.note("restarting", message.clone());
        self.record.message = Some(message);
    }
}
