//! What an instance uses: its cgroups, and the counters of its network namespace.

use std::time::Duration;

use model::exchange::{InstanceStats, InstanceUsage};
use model::{Error, InstanceId, Result};
use tokio::time::Instant;

use crate::engine::Engine;

/// The moment over which CPU use is taken.
const MOMENT: Duration = Duration::from_millis(100);
/// An older look back says little about now.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(30);

/// CPU time used up to a point in time.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    at: Instant,
    cpu_used_us: u64,
}

impl Engine {
    /// What a running instance uses now. CPU is taken over the time since the last question.
    pub async fn stats(&self, id: &InstanceId) -> Result<InstanceStats> {
        let (pid, view) = self.shared.running(id)?;
        let sample =
            || Sample { at: Instant::now(), cpu_used_us: self.shared.cgroups.usage(id.as_str()).cpu_used_us };
        let before = match view.sample {
            Some(old) if (MOMENT..SAMPLE_AGE_MAX).contains(&old.at.elapsed()) => old,
            _ => {
                let first = sample();
                tokio::time::sleep(MOMENT).await;
                first
            }
        };
        let now = sample();
        self.shared.sample_put(id, now);
        let usage = self.shared.cgroups.usage(id.as_str());
        let (net_received_bytes, net_sent_bytes) = if view.own_network { network_bytes(pid) } else { (0, 0) };
        Ok(InstanceStats {
            at: self.shared.clock.now(),
            cpu_used_us: usage.cpu_used_us,
            cpu_milli: now.cpu_milli_since(&before),
            memory_bytes: usage.memory_bytes,
            memory_limit_bytes: usage.memory_limit_bytes,
            pids: usage.pids,
            net_received_bytes,
            net_sent_bytes,
            disk_read_bytes: usage.disk_read_bytes,
            disk_written_bytes: usage.disk_written_bytes,
        })
    }
}

impl Engine {
    /// What those of `ids` that run use now, in short. CPU is taken over the time since the last question;
    /// where there was none, all of them are looked at twice.
    pub async fn usage(&self, ids: Vec<InstanceId>) -> Result<Vec<InstanceUsage>> {
        let running = |id: InstanceId| self.shared.running(&id).ok().map(|(_, view)| (id, view.sample));
        let mut looked: Vec<(InstanceId, Option<Sample>)> = ids.into_iter().filter_map(running).collect();
        let fresh = |old: &Sample| (MOMENT..SAMPLE_AGE_MAX).contains(&old.at.elapsed());
        looked.iter_mut().for_each(|(_, sample)| *sample = sample.filter(fresh));
        let missing: Vec<InstanceId> =
            looked.iter().filter(|(_, sample)| sample.is_none()).map(|(id, _)| id.clone()).collect();
        if !missing.is_empty() {
            let first = self.look_at(missing).await?;
            tokio::time::sleep(MOMENT).await;
            let mut first = first.into_iter();
            for (_, sample) in looked.iter_mut().filter(|(_, sample)| sample.is_none()) {
                *sample = first.next().map(|(_, sample, _)| sample);
            }
        }
        let now = self.look_at(looked.iter().map(|(id, _)| id.clone()).collect()).await?;
        let usages = now.into_iter().zip(looked).map(|((id, now, memory_bytes), (_, before))| {
            self.shared.sample_put(&id, now);
            InstanceUsage {
                id,
                cpu_milli: before.map_or(0, |before| now.cpu_milli_since(&before)),
                memory_bytes,
            }
        });
        Ok(usages.collect())
    }

    /// Reads the cgroups of many, off the async threads.
    async fn look_at(&self, ids: Vec<InstanceId>) -> Result<Vec<(InstanceId, Sample, u64)>> {
        let cgroups = self.shared.cgroups.clone();
        let look = move |id: InstanceId| {
            let usage = cgroups.usage(id.as_str());
            (id, Sample { at: Instant::now(), cpu_used_us: usage.cpu_used_us }, usage.memory_bytes)
        };
        let read = tokio::task::spawn_blocking(move || ids.into_iter().map(look).collect());
        read.await.map_err(|error| Error::internal("reading the cgroups broke off").because(error))
    }
}

impl Sample {
    /// CPU used since an earlier look, in thousandths of a core.
    fn cpu_milli_since(&self, before: &Self) -> u64 {
        let passed_us = u64::try_from((self.at - before.at).as_micros()).unwrap_or(u64::MAX).max(1);
        self.cpu_used_us.saturating_sub(before.cpu_used_us).saturating_mul(1000) / passed_us
    }
}

/// As the namespace of the instance itself counts them, so nothing must be known of the host's side.
fn network_bytes(pid: i32) -> (u64, u64) {
    parse_net_dev(&std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default())
}

fn parse_net_dev(text: &str) -> (u64, u64) {
    let interface = |line: &str| -> Option<(u64, u64)> {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        (name.trim() != "lo").then_some((*numbers.first()?, *numbers.get(8)?))
    };
    text.lines().filter_map(interface).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_counted() {
        let text = "Inter-| Receive\n face |bytes\n  lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\neth0: 70 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(parse_net_dev(text), (70, 5));
    }
}
