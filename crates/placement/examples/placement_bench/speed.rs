//! Decisions per second over a fleet that fills up, with mixed constraints and spread.

use std::time::{Duration, Instant};

use model::{
    Affinity, Arch, Bytes, ChildId, Cpu, GpuAsk, GpuDevice, InstanceId, InstanceSpec, Resources, RuntimeKind,
    Spread,
};
use placement::{Candidate, Fleet, Level, Policy, Want};

use crate::Seeded;

const NODES_PER_RACK: u64 = 40;
const MODELS: [&str; 3] = ["t4", "a10", "h100"];

pub fn run() {
    println!("placing until the CPU asked for is all there is; a decision is place + reserve, one core");
    println!(
        "{:<10} {:>6} {:>10} {:>11} {:>8} {:>8} {:>8} {:>9} {:>12} {:>11} {:>9}",
        "policy",
        "nodes",
        "decisions",
        "per second",
        "p50 us",
        "p99 us",
        "max us",
        "nowhere",
        "first tenth",
        "last tenth",
        "explain"
    );
    for (name, policy) in [("best fit", Policy::BestFit), ("default", Policy::Default)] {
        for nodes in [100, 1_000, 10_000] {
            fill(name, policy, nodes);
        }
    }
}

fn fill(name: &str, policy: Policy, nodes: u64) {
    let mut random = Seeded(7);
    let mut fleet = Fleet::new(Level::Nodes, policy);
    let mut room = 0;
    for number in 0..nodes {
        let node = node(number, &mut random);
        room += node.capacity.cpu.0;
        fleet.upsert(node);
    }
    let mut wants = Vec::new();
    while room > 0 {
        let want = want(wants.len() as u64, nodes, &mut random);
        room = room.saturating_sub(want.resources.cpu.0);
        wants.push(want);
    }
    let mut times: Vec<Duration> = Vec::with_capacity(wants.len());
    let mut nowhere = 0;
    for want in &wants {
        let begun = Instant::now();
        match fleet.place(want) {
            Ok(choice) => fleet.hold(want, &choice.child, &choice.gpus),
            Err(_) => nowhere += 1,
        }
        times.push(begun.elapsed());
    }
    let explained = Instant::now();
    for want in wants.iter().take(100) {
        fleet.release(&want.id);
        std::hint::black_box(fleet.explain(want, "bench", model::Timestamp(0)));
    }
    report(name, nodes, &times, nowhere, explained.elapsed() / 100);
}

fn report(name: &str, nodes: u64, times: &[Duration], nowhere: usize, explain: Duration) {
    let rate = |times: &[Duration]| times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
    let tenth = times.len() / 10;
    let mut sorted = times.to_vec();
    sorted.sort();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name:<10} {nodes:>6} {:>10} {:>11.0} {:>8.1} {:>8.1} {:>8.0} {:>8.2}% {:>12.0} {:>11.0} {:>6.0} us",
        times.len(),
        rate(times),
        micros(sorted[sorted.len() / 2]),
        micros(sorted[sorted.len() * 99 / 100]),
        micros(sorted[sorted.len() - 1]),
        100.0 * nowhere as f64 / times.len() as f64,
        rate(&times[..tenth]),
        rate(&times[times.len() - tenth..]),
        micros(explain),
    );
}

fn node(number: u64, random: &mut Seeded) -> Candidate {
    let size = 1 << random.below(3);
    let capacity =
        Resources { cpu: Cpu(32_000 * size), memory: Bytes::gib(128 * size), disk: Bytes::gib(1000 * size) };
    let id = format!("n-{number:05}");
    let mut node = Candidate::new(ChildId::from(id.as_str()), id.parse().unwrap(), capacity);
    node.archs = vec![if random.below(5) == 0 { Arch::Arm64 } else { Arch::Amd64 }];
    node.runtimes = vec![RuntimeKind::Container];
    if random.below(2) == 0 {
        node.runtimes.push(RuntimeKind::Vm);
    }
    let disk = if random.below(3) == 0 { "hdd" } else { "ssd" };
    node.labels.insert("disk".into(), vec![disk.into()]);
    node.labels.insert("rack".into(), vec![format!("r{}", number / NODES_PER_RACK)]);
    if random.below(5) == 0 {
        let model = MODELS[random.below(3) as usize].to_owned();
        node.gpus = vec![GpuDevice { model, free_milli: 1000 }; 4 << random.below(2)];
    }
    node
}

fn want(number: u64, nodes: u64, random: &mut Seeded) -> Want {
    let mut spec = InstanceSpec::new("bench");
    let size = 1 << random.below(4);
    spec.cpu = Cpu(500 * size);
    spec.memory = Bytes::gib(size * (1 + random.below(3)));
    spec.disk = Bytes::gib(10 * random.below(2));
    // A thousand groups at most, of a size that grows with the fleet.
    let app = format!("app-{}", random.below((nodes / 10).clamp(5, 1000)));
    spec.labels.insert("app".into(), app.clone());
    let near = |anti, required| Affinity { label: "app".into(), value: app.clone(), anti, required };
    let constraints = &mut spec.constraints;
    match random.below(20) {
        0..=2 => constraints.spread = Some(Spread { group: app, by: Some("rack".into()), max_skew: None }),
        3..=4 => constraints.spread = Some(Spread { group: app, by: None, max_skew: None }),
        5 => constraints.spread = Some(Spread { group: app, by: Some("rack".into()), max_skew: Some(2) }),
        6..=8 => drop(constraints.node_labels.insert("disk".into(), "ssd".into())),
        9 => constraints.arch = Some(Arch::Arm64),
        10 => spec.runtime = RuntimeKind::Vm,
        11 => constraints.affinity.push(near(false, false)),
        12 => constraints.affinity.push(Affinity { value: "app-1".into(), ..near(true, true) }),
        13 => spec.gpu = Some(GpuAsk { count: 1, milli: 250 * (1 + random.below(4)) as u32, models: vec![] }),
        _ => {}
    }
    Want::from_spec(InstanceId::from_random(u128::from(number)), &spec)
}
