//! The whole tree in one process on simulated time, network and disks.
//!
//! Root, zones and nodes are the real state machines (`root::tree::Core`,
//! `zone::core::Core`, `tier::Child`); what carries their messages, keeps their
//! ledgers and runs their containers is simulated here, from one seed. Messages
//! are lost, delayed and repeated; processes are killed and come back with what
//! their disk had; hosts die with everything on them. Invariants are checked all
//! along, and when the faults stop everything must converge.

mod check;
mod fault;
mod node;
mod root;
mod run;
mod scale;
mod world;
mod zone;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Runs the tree on simulated time with seeded faults, or at scale")]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; a failing run prints its own.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Print what happens.
    #[arg(long)]
    trace: bool,
    /// Instead of faults: this many nodes, without any.
    #[arg(long)]
    scale: Option<usize>,
    /// With `--scale`: how many instances; ten for each node when not given.
    #[arg(long)]
    instances: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(nodes) = args.scale {
        return scale::run(nodes, args.instances.unwrap_or(nodes * 10));
    }
    let mut failed = 0;
    for seed in args.first..args.first + args.seeds {
        if let Err(violation) = run::seed(seed, args.trace) {
            failed += 1;
            report(&format!(
                "seed {seed}: {violation}\n  again with: banyan-sim --first {seed} --seeds 1 --trace"
            ));
        }
    }
    report(&format!("sim: {} passed, {failed} failed", args.seeds - failed));
    anyhow::ensure!(failed == 0, "{failed} of {} seeds failed", args.seeds);
    Ok(())
}

#[allow(clippy::print_stdout)]
fn report(line: &str) {
    println!("{line}");
}
