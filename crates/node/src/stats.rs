//! What an instance uses: its cgroups, and the counters of its network namespace.

use std::time::Duration;

use model::exchange::InstanceStats;
use model::{InstanceId, Result};
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
        let passed_us = u64::try_from((now.at - before.at).as_micros()).unwrap_or(u64::MAX).max(1);
        let (net_received_bytes, net_sent_bytes) = if view.own_network { network_bytes(pid) } else { (0, 0) };
        Ok(InstanceStats {
            at: self.shared.clock.now(),
            cpu_used_us: usage.cpu_used_us,
            cpu_milli: now.cpu_used_us.saturating_sub(before.cpu_used_us) * 1000 / passed_us,
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
