//! The bed as a program: random faults for a while, and how long it takes until a lost host is replaced.

mod deploy;
mod failover;
mod soak;

use clap::{Parser, Subcommand};
use model::InstanceSpec;

#[derive(Parser)]
#[command(about = "Runs a real cloud on hosts of its own and lets it fail")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random faults and random actions of users; in the end everything must be as it was promised.
    Soak {
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// A run prints its own.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Time from the request for a workload until all of it runs.
    Deploy {
        #[arg(long, default_value_t = 10)]
        nodes: u32,
        #[arg(long, default_value_t = 5)]
        rounds: u32,
        /// Sizes of the workload.
        #[arg(long, value_delimiter = ',', default_value = "1,100")]
        replicas: Vec<u32>,
    },
    /// Time from the end of a host to its instances running elsewhere.
    Failover {
        #[arg(long, default_value_t = 5)]
        rounds: u32,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Soak { minutes, seed } => soak::run(minutes, seed.unwrap_or_else(rand::random)),
        Command::Deploy { nodes, rounds, replicas } => deploy::run(nodes, rounds, &replicas),
        Command::Failover { rounds } => failover::run(rounds),
    }
}

/// A container that runs until it is told to end.
fn sleeper() -> InstanceSpec {
    let mut spec = InstanceSpec::new("busybox");
    // As its first process it would not hear a signal by itself.
    let program = ["sh", "-c", "trap exit TERM; while :; do sleep 1 & wait $!; done"];
    spec.command = program.map(str::to_owned).to_vec();
    spec.memory = model::Bytes::mib(16);
    spec.cpu = model::Cpu(50);
    spec
}

#[allow(clippy::print_stdout)]
fn report(line: &str) {
    println!("{line}");
}
