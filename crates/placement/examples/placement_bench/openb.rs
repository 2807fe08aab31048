//! Packing quality on the openb trace: GPUs allocated when 130 % of them are asked for.

use std::path::Path;
use std::time::Instant;

use model::{Bytes, ChildId, Cpu, GpuAsk, GpuDevice, InstanceId, InstanceSpec, Resources};
use placement::{Candidate, Fleet, Level, Policy, Want};

use crate::Seeded;

const SEEDS: u64 = 10;
const OFFERED_PERCENT: u64 = 130;

pub fn run(trace: &Path) {
    let nodes = nodes(&trace.join("openb_node_list_gpu_node.csv"));
    let tasks = tasks(&trace.join("openb_pod_list_default.csv"));
    let gpus: usize = nodes.iter().map(|node| node.gpus.len()).sum();
    println!(
        "\nopenb: {} nodes, {gpus} GPUs, {} tasks; GPUs allocated at {OFFERED_PERCENT} % offered",
        nodes.len(),
        tasks.len()
    );
    println!("{:<10} {:>7} {:>7} {:>7} {:>12}", "policy", "mean %", "min %", "max %", "decisions/s");
    for (name, policy) in [("best fit", Policy::BestFit), ("default", Policy::Default)] {
        let begun = Instant::now();
        let runs: Vec<(f64, u64)> = (0..SEEDS).map(|seed| allocated(&nodes, &tasks, policy, seed)).collect();
        let rate =
            runs.iter().map(|(_, decisions)| *decisions as f64).sum::<f64>() / begun.elapsed().as_secs_f64();
        let shares: Vec<f64> = runs.iter().map(|(share, _)| *share).collect();
        let mean = shares.iter().sum::<f64>() / SEEDS as f64;
        let min = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let max = shares.iter().copied().fold(0.0, f64::max);
        println!("{name:<10} {mean:>7.2} {min:>7.2} {max:>7.2} {rate:>12.0}");
    }
}

/// Places tasks in a shuffled order, then tasks drawn at random, until enough is asked for.
fn allocated(nodes: &[Candidate], tasks: &[InstanceSpec], policy: Policy, seed: u64) -> (f64, u64) {
    let mut fleet = Fleet::new(Level::Nodes, policy);
    nodes.iter().for_each(|node| fleet.upsert(node.clone()));
    let total = nodes.iter().map(|node| 1000 * node.gpus.len() as u64).sum::<u64>();
    let mut random = Seeded(seed);
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    random.shuffle(&mut order);
    let (mut asked, mut given, mut decisions) = (0, 0, 0u64);
    let mut queue = order.into_iter();
    while asked * 100 < total * OFFERED_PERCENT {
        let task = queue.next().unwrap_or_else(|| random.below(tasks.len() as u64) as usize);
        let want = Want::from_spec(InstanceId::from_random(u128::from(decisions)), &tasks[task]);
        let milli = want.gpu.as_ref().map_or(0, |ask| u64::from(ask.count * ask.milli));
        asked += milli;
        decisions += 1;
        if let Ok(choice) = fleet.place(&want) {
            fleet.hold(&want, &choice.child, &choice.gpus);
            given += milli;
        }
    }
    (100.0 * given as f64 / total as f64, decisions)
}

fn rows(path: &Path) -> Vec<Vec<String>> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn nodes(path: &Path) -> Vec<Candidate> {
    let node = |row: Vec<String>| {
        let number = |at: usize| row[at].parse::<u64>().expect("a number in the node list");
        let capacity = Resources { cpu: Cpu(number(1)), memory: Bytes::mib(number(2)), disk: Bytes(0) };
        let name = row[0].parse().expect("a name in the node list");
        let mut node = Candidate::new(ChildId::from(row[0].as_str()), name, capacity);
        node.gpus = vec![GpuDevice { model: row[4].clone(), free_milli: 1000 }; number(3) as usize];
        node
    };
    rows(path).into_iter().map(node).collect()
}

fn tasks(path: &Path) -> Vec<InstanceSpec> {
    let task = |row: Vec<String>| {
        let number = |at: usize| row[at].parse::<u64>().expect("a number in the task list");
        let mut spec = InstanceSpec::new("openb");
        (spec.cpu, spec.memory) = (Cpu(number(1)), Bytes::mib(number(2)));
        spec.gpu = (number(3) > 0).then(|| GpuAsk {
            count: number(3) as u32,
            milli: number(4) as u32,
            models: row[5].split('|').filter(|model| !model.is_empty()).map(str::to_owned).collect(),
        });
        spec
    };
    rows(path).into_iter().map(task).collect()
}
