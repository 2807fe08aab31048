//! How long an instance is away when its host dies, with and without a last word.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bed::{Bed, NodeSettings};
use model::Phase;

use crate::{report, sleeper};

const WAIT: Duration = Duration::from_secs(120);

pub fn run(rounds: u32) -> Result<()> {
    let mut bed = Bed::new()?;
    bed.root("root", None)?;
    bed.zone("east")?;
    bed.node("east", "e1", &NodeSettings::default())?;
    bed.node("east", "e2", &NodeSettings::default())?;
    bed.create("web", sleeper())?;
    bed.settle(WAIT)?;
    for (what, silent) in [("connections reset", false), ("cable cut", true)] {
        let mut times = Vec::new();
        for _ in 0..rounds {
            times.push(round(&bed, silent)?);
        }
        times.sort();
        let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        report(&format!(
            "{what:<18} {} times: {} ms the fastest, {} ms the median, {} ms the slowest",
            times.len(),
            ms(times.first()),
            ms(times.get(times.len() / 2)),
            ms(times.last())
        ));
    }
    Ok(())
}

fn round(bed: &Bed, silent: bool) -> Result<Duration> {
    let before = bed.instance("web")?;
    let (id, node) = (before.id.as_str(), before.node.clone().context("it has no node")?);
    let host = bed.host(node.as_str())?;
    let begin = Instant::now();
    if silent {
        host.power_cut()?
    } else {
        host.power_off()?
    }
    bed.until("it runs elsewhere", WAIT, || (!bed.runs_on(id).is_empty()).then_some(()))?;
    let took = begin.elapsed();
    bed.until("root sees it", WAIT, || {
        let seen = bed.instance("web").ok()?;
        (seen.phase == Phase::Running && seen.node != before.node).then_some(())
    })?;
    host.restart()?;
    host.up_wait()?;
    bed.until("the host is back", WAIT, || {
        let name = node.as_str();
        bed.ask(|client| async move { client.node_get(name).await }).ok().filter(|node| node.alive).map(drop)
    })?;
    bed.settle(WAIT)?;
    Ok(took)
}
