//! How long it takes from the request until everything of a workload runs, on so many hosts.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::{Client, WorkloadCreate};
use bed::{Bed, NodeSettings};
use model::workload::WorkloadPhase;
use model::{Mode, Name, WorkloadSpec};

use crate::{report, sleeper};

const WAIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(10);

pub fn run(nodes: u32, rounds: u32, replicas: &[u32]) -> Result<()> {
    let mut bed = Bed::new()?;
    bed.root("root", None)?;
    bed.zone("east")?;
    for number in 0..nodes {
        bed.node("east", &format!("e{number}"), &NodeSettings::default())?;
    }
    let client = bed.client()?;
    // The image comes to every node before anything is measured.
    bed.wait_for(deploy(&client, "warm", Mode::Daemon))?;
    for count in replicas {
        let mut times = Vec::new();
        for round in 0..rounds {
            let mode = Mode::Service { replicas: *count };
            times.push(bed.wait_for(deploy(&client, &format!("n{count}-{round}"), mode))?);
        }
        times.sort();
        let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
        report(&format!(
            "{count:>4} on {nodes} hosts, {rounds} times: {} ms the fastest, {} ms the median, {} ms the slowest",
            ms(times.first()),
            ms(times.get(times.len() / 2)),
            ms(times.last())
        ));
    }
    Ok(())
}

/// From the request until root says that all are available; then deletes it.
async fn deploy(client: &Client, name: &str, mode: Mode) -> Result<Duration> {
    let spec = WorkloadSpec { mode, ..WorkloadSpec::new(sleeper()) };
    let begin = Instant::now();
    let body = WorkloadCreate { name: name.parse::<Name>()?, app: None, spec };
    client.workload_create(&body).await.context("the workload was refused")?;
    loop {
        let status = client.workload_get(name).await?.status;
        if status.phase == WorkloadPhase::Available {
            break;
        }
        ensure!(begin.elapsed() < WAIT, "{name} is {}: {:?}", status.phase, status.message);
        tokio::time::sleep(POLL).await;
    }
    let took = begin.elapsed();
    client.workload_delete(name, None).await?;
    while client.workload_get(name).await.is_ok() {
        ensure!(begin.elapsed() < WAIT, "{name} was not deleted");
        tokio::time::sleep(POLL).await;
    }
    Ok(took)
}
