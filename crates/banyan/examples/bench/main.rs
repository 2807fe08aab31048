//! Measures a running cloud beside its floor and its peers; `scripts/bench.sh` starts the cloud and calls this.
//!
//! ```text
//! bench start RUNS DATA   POST to observed running, beside the OCI runtime, podman and docker
//! bench burst COUNT       creates in a burst that find no zone: requests per second and p99
//! bench fill COUNT        creates in a burst that are placed and started, until all run
//! bench fleet INSTANCES ZONE_URL BROKER ROOT_PID ZONE_PID LEVEL...   the control plane with stand-ins for nodes
//! bench rate INSTANCES ROUNDS NODES ZONE_URL BROKER ROOT_PID ZONE_PID   only how fast it places, several times over
//! bench tasks LINK_URL ROOT_PID STORE_PID|- CASE...   tasks of clusters through the queue that do nothing
//! bench ssh VENV COUNT...   one command on so many hosts, beside ansible and pyinfra of the folder VENV
//! bench clusters FOLDER ROUNDS   from create to active for the clusters of examples/clusters, and how much of it is ours
//! bench list COUNT        pages and filters over so many instances; starts a root of its own
//! bench list-fill COUNT FOLDER, bench floor BUNDLE    parts of the above, in processes of their own
//! ```
//! The cloud is named by `BANYAN_ENDPOINT` and `BANYAN_TOKEN`.
#![allow(clippy::print_stdout)]

mod burst;
mod clusters;
mod fleet;
mod floor;
mod lab;
mod list;
mod noop;
mod peer;
mod ssh;
mod start;
mod tasks;
mod times;

use std::path::Path;

use anyhow::{Context, Result, bail};
use api::Client;
use model::{Bytes, Cpu, InstanceSpec, RestartPolicy};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["floor", bundle] = words[..] {
        return floor::serve(Path::new(bundle));
    }
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match words[..] {
            ["start", runs, data] => start::run(&client()?, count(runs)?, Path::new(data)).await,
            ["burst", number] => burst::burst(&client()?, count(number)?).await,
            ["fill", number] => burst::fill(&client()?, count(number)?).await,
            ["fleet", number, zone_url, broker, root_pid, zone_pid, ref levels @ ..] => {
                let tree = tree(zone_url, broker, root_pid, zone_pid)?;
                let levels = levels.iter().map(|level| count(level)).collect::<Result<Vec<_>>>()?;
                fleet::run(&client()?, &tree, &levels, count(number)? as u32).await
            }
            ["rate", number, rounds, nodes, zone_url, broker, root_pid, zone_pid] => {
                let tree = tree(zone_url, broker, root_pid, zone_pid)?;
                fleet::rates(&client()?, &tree, count(nodes)?, count(number)? as u32, count(rounds)?).await
            }
            ["tasks", link_url, root_pid, store_pid, ref cases @ ..] => {
                let store_pid = (store_pid != "-").then(|| count(store_pid)).transpose()?;
                let place = tasks::Place {
                    link_url: link_url.to_owned(),
                    root_pid: count(root_pid)? as u32,
                    store_pid: store_pid.map(|pid| pid as u32),
                };
                tasks::run(&client()?, &place, cases).await
            }
            ["ssh", venv, ref counts @ ..] => {
                let counts = counts.iter().map(|number| count(number)).collect::<Result<Vec<_>>>()?;
                ssh::run(&counts, Path::new(venv)).await
            }
            ["clusters", folder, rounds] => {
                clusters::run(&client()?, Path::new(folder), count(rounds)?).await
            }
            ["list", number] => list::run(count(number)?).await,
            ["list-fill", number, folder] => list::prepare(count(number)?, Path::new(folder)).await,
            _ => bail!("usage: bench start RUNS DATA | burst COUNT | fill COUNT | tasks … | list COUNT"),
        }
    })
}

fn tree(zone_url: &str, broker: &str, root_pid: &str, zone_pid: &str) -> Result<fleet::Tree> {
    Ok(fleet::Tree {
        zone_url: zone_url.to_owned(),
        broker: broker.to_owned(),
        root_pid: count(root_pid)? as u32,
        zone_pid: count(zone_pid)? as u32,
    })
}

fn count(text: &str) -> Result<usize> {
    text.parse::<usize>().ok().filter(|count| *count > 0).with_context(|| format!("'{text}' is not a count"))
}

fn client() -> Result<Client> {
    let endpoint = std::env::var("BANYAN_ENDPOINT").context("BANYAN_ENDPOINT is not set")?;
    Ok(Client::new(&endpoint, std::env::var("BANYAN_TOKEN").ok())?)
}

/// The small instance that everything here is measured with.
fn spec() -> InstanceSpec {
    let mut spec = InstanceSpec::new("busybox");
    spec.command = vec!["sleep".into(), "100000".into()];
    // Enough of a core that the kernel does not hold back the start itself.
    (spec.cpu, spec.memory, spec.restart) = (Cpu(1000), Bytes::mib(8), RestartPolicy::Never);
    spec
}
