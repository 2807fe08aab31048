//! What the kernel says of a server.

use anyhow::{Context, Result};

/// Fixed by the kernel for what it shows to programs.
const TICKS_A_SECOND: f64 = 100.0;

fn status(pid: u32, field: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the server has ended")?;
    let line = text.lines().find(|line| line.starts_with(field)).context("no such field")?;
    let kilobytes: f64 = line.split_whitespace().nth(1).context("no value")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

/// The most memory since [`peak_reset`].
pub fn peak_mb(pid: u32) -> Result<f64> {
    status(pid, "VmHWM")
}

pub fn memory_words(pid: u32) -> Result<String> {
    let (all, own) = (status(pid, "VmRSS")?, status(pid, "RssAnon")?);
    Ok(format!("{all:.1} MB resident, {own:.1} MB of it its own"))
}

pub fn peak_reset(pid: u32) -> Result<()> {
    Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}

/// Seconds of CPU so far.
pub fn cpu(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the server has ended")?;
    let (_, rest) = text.rsplit_once(')').context("no name")?;
    let field = |at: usize| rest.split_whitespace().nth(at).and_then(|word| word.parse::<f64>().ok());
    let ticks = field(11).zip(field(12)).context("no times")?;
    Ok((ticks.0 + ticks.1) / TICKS_A_SECOND)
}
