//! What a host uses now. CPU is a rate, so it is measured between two calls.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use model::{Bytes, Result, Usage};
use serde::{Deserialize, Serialize};

use crate::facts::{Memory, cpu_cores, disk_space};
use crate::text;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostUsage {
    /// Runnable processes, averaged over one, five and fifteen minutes.
    pub load: [f64; 3],
    pub memory_used: Bytes,
    /// Share of all cores that was busy since the previous call, 0 to 100; since boot on the first one.
    pub cpu_percent: f64,
}

/// Keeps the CPU counters of the previous call.
#[derive(Debug)]
pub struct UsageMeter {
    proc: PathBuf,
    last: Mutex<CpuTicks>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct CpuTicks {
    busy: u64,
    total: u64,
}

impl Default for UsageMeter {
    fn default() -> Self {
        Self::with_root(Path::new("/"))
    }
}

impl UsageMeter {
    pub fn with_root(root: &Path) -> Self {
        Self { proc: root.join("proc"), last: Mutex::default() }
    }

    pub fn host_usage(&self) -> Result<HostUsage> {
        let memory = Memory::read(&self.proc)?;
        let now = cpu_ticks(&text(self.proc.join("stat")).unwrap_or_default());
        let before = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *last, now)
        };
        Ok(HostUsage {
            load: load(&text(self.proc.join("loadavg")).unwrap_or_default()),
            memory_used: Bytes(memory.total.0.saturating_sub(memory.available.0)),
            cpu_percent: cpu_percent(before, now),
        })
    }
}

impl UsageMeter {
    /// What the machine uses now, with the disk under `data`; CPU since the previous call.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A share of the cores is small and positive.
    pub fn machine_usage(&self, data: &Path) -> Result<Usage> {
        let host = self.host_usage()?;
        let (disk_total, disk_free) = disk_space(data)?;
        let own = |name: &str| text(self.proc.join("self/net").join(name)).unwrap_or_default();
        let (net_received_bytes, net_sent_bytes) = net_bytes(&own("dev"), &own("route"));
        Ok(Usage {
            cpu_milli: (host.cpu_percent * 10.0 * f64::from(cpu_cores())).round() as u64,
            memory_bytes: host.memory_used.0,
            disk_used_bytes: disk_total.0.saturating_sub(disk_free.0),
            disk_total_bytes: disk_total.0,
            net_received_bytes,
            net_sent_bytes,
            instances: 0,
        })
    }
}

/// What went over the interfaces that lead out; of a machine without a way out, over all but loopback.
/// Bridges and the pairs of instances are left out, so that nothing is counted twice.
fn net_bytes(dev: &str, route: &str) -> (u64, u64) {
    let outward: Vec<&str> = route
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, destination) = (words.next()?, words.next()?);
            (destination == "00000000").then_some(name)
        })
        .collect();
    let interface = |line: &str| -> Option<(u64, u64)> {
        let (name, numbers) = line.split_once(':')?;
        let name = name.trim();
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let counted = if outward.is_empty() { name != "lo" } else { outward.contains(&name) };
        counted.then_some((*numbers.first()?, *numbers.get(8)?))
    };
    dev.lines().filter_map(interface).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn load(loadavg: &str) -> [f64; 3] {
    let mut numbers = loadavg.split_whitespace().map(|number| number.parse().unwrap_or(0.0));
    [(); 3].map(|()| numbers.next().unwrap_or(0.0))
}

/// The first line of `/proc/stat`: user nice system idle iowait irq softirq steal, then guest
/// times that are already part of user and nice.
fn cpu_ticks(stat: &str) -> CpuTicks {
    let line = stat.lines().next().unwrap_or("");
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map(|t| t.parse().unwrap_or(0)).collect();
    let total = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    CpuTicks { busy: total - idle, total }
}

#[allow(clippy::cast_precision_loss)] // Ticks between two calls are far below 2^52.
fn cpu_percent(before: CpuTicks, now: CpuTicks) -> f64 {
    let total = now.total.saturating_sub(before.total);
    let busy = now.busy.saturating_sub(before.busy).min(total);
    if total == 0 { 0.0 } else { busy as f64 * 100.0 / total as f64 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn cpu_is_the_share_between_two_calls() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        std::fs::write(proc.join("meminfo"), "MemTotal: 100 kB\nMemAvailable: 25 kB\n").unwrap();
        std::fs::write(proc.join("loadavg"), "0.50 1.25 2.00 1/100 999\n").unwrap();
        std::fs::write(proc.join("stat"), "cpu 100 0 100 800 0 0 0 0 50 0\ncpu0 1 1 1 1\n").unwrap();
        let meter = UsageMeter::with_root(root.path());
        let first = meter.host_usage().unwrap();
        assert!((first.cpu_percent - 20.0).abs() < 1e-9);
        assert_eq!(first.memory_used, Bytes(75 << 10));
        assert_eq!(first.load, [0.5, 1.25, 2.0]);
        std::fs::write(proc.join("stat"), "cpu 175 0 100 825 0 0 0 0 50 0\n").unwrap();
        assert!((meter.host_usage().unwrap().cpu_percent - 75.0).abs() < 1e-9);
        assert!(meter.host_usage().unwrap().cpu_percent.abs() < 1e-9, "nothing passed");
    }

    #[test]
    fn traffic_is_counted_once_where_it_leaves_the_machine() {
        let dev = "Inter-| Receive\n face |bytes\n  lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n\
                   eth0: 70 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n banyan0: 3 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n";
        let route = "Iface Destination Gateway\nbanyan0 0000810A 00000000\neth0 00000000 0100000A\n";
        assert_eq!(net_bytes(dev, route), (70, 5));
        assert_eq!(net_bytes(dev, "Iface Destination\n"), (73, 9));
        assert_eq!(net_bytes("", ""), (0, 0));
    }

    #[test]
    fn this_machine_uses_memory_and_disk() {
        let usage = UsageMeter::default().machine_usage(Path::new("/tmp")).unwrap();
        assert!(usage.memory_bytes > 0 && usage.disk_used_bytes <= usage.disk_total_bytes);
        assert!(usage.cpu_milli <= u64::from(cpu_cores()) * 1000);
    }

    #[test]
    fn this_host_uses_memory() {
        let usage = UsageMeter::default().host_usage().unwrap();
        assert!(usage.memory_used.0 > 0 && (0.0..=100.0).contains(&usage.cpu_percent));
    }
}
