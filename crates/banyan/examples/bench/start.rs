//! From the request to a running container, one at a time. Ours, the floor and the peers take turns,
//! so that whatever else the machine does falls on all of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::{Client, InstanceCreate, ListQuery, WatchKind};
use model::Phase;

use crate::floor::{Floor, RUNTIME};
use crate::spec;
use crate::times::{Times, head_over};

const START_LIMIT: Duration = Duration::from_secs(30);
/// Peers are slow and steady: they are run once for so many runs of ours.
const PEER_EVERY: usize = 4;
const PEERS: [&str; 2] = ["podman", "docker"];
const WARM: &str = "bench-warm";

pub async fn run(client: &Client, runs: usize, data: &Path) -> Result<()> {
    // The first one brings the image to the node, and lends its bundle to the floor.
    create(client, WARM).await?;
    let warm = client.instance_get(WARM).await?;
    let mut floor = Floor::open(&data.join("node/engine/instances").join(warm.id.as_str()))?;
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    let mut peers = PEERS.map(|name| (name, Vec::new(), None));
    floor.once(RUNTIME)?;
    for run in 0..runs {
        let name = format!("bench-{run}");
        ours.push(create(client, &name).await?);
        delete(client, &name).await?;
        least.push(floor.once(RUNTIME)?);
        for (name, times, problem) in
            peers.iter_mut().filter(|peer| run % PEER_EVERY == 0 && peer.2.is_none())
        {
            match floor.once(name) {
                Ok(time) => times.push(time),
                Err(error) => *problem = Some(error),
            }
        }
    }
    drop(floor);
    delete(client, WARM).await?;
    let (ours, least) = (Times::new(ours), Times::new(least));
    head_over("start of one container, image present");
    least.row("the OCI runtime's own run of the same bundle (floor)");
    ours.row_over("banyan: POST /v1/instances to observed running", &least);
    for (name, times, problem) in peers {
        match problem {
            Some(problem) => println!("{name}: {problem}"),
            None => Times::new(times).row_over(&format!("{name} run --detach"), &least),
        }
    }
    Ok(())
}

/// From the request to the change feed saying that it runs.
async fn create(client: &Client, name: &str) -> Result<Duration> {
    let seq = client.instance_list(&ListQuery::new().limit(1)).await?.seq;
    let mut watch = client.watch(WatchKind::Instance, Some(seq)).await?;
    let since = Instant::now();
    client.instance_create(&InstanceCreate { name: name.parse()?, spec: spec() }).await?;
    let running = async {
        while let Some(event) = watch.next().await? {
            let Some(object) = event.object.filter(|_| event.name == name) else { continue };
            let instance: api::Instance = serde_json::from_value(object)?;
            match instance.phase {
                Phase::Running => return Ok(since.elapsed()),
                Phase::Failed | Phase::Exited => {
                    bail!("{name} is {}: {:?}", instance.phase, instance.message)
                }
                _ => {}
            }
        }
        bail!("the watch ended")
    };
    tokio::time::timeout(START_LIMIT, running).await.context("it did not start in time")?
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    client.instance_delete(name, None).await?;
    let since = Instant::now();
    while client.instance_get(name).await.is_ok() {
        ensure!(since.elapsed() < START_LIMIT, "{name} was not deleted in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
