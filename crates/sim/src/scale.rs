//! Many nodes and instances, no faults: how time and memory grow.

use std::time::Instant;

use model::Run;

use crate::check::Wishes;
use crate::node::NODE_CPU_MILLI;
use crate::world::World;

const NODES_PER_ZONE: usize = 1_000;
const STEPS: usize = 10;
/// The unit of times in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn run(nodes: usize, instances: usize) -> anyhow::Result<()> {
    let zones = nodes.div_ceil(NODES_PER_ZONE).max(1);
    let mut world = World::new(1, zones, nodes.div_ceil(zones), tier::PAGE_BYTES_MAX);
    let mut like = world.record();
    let per_node = instances.div_ceil(nodes) as u64;
    // The fleet is four fifths full at the end.
    std::sync::Arc::make_mut(&mut like.spec).cpu = model::Cpu((NODE_CPU_MILLI * 4 / 5 / per_node).max(1));
    std::sync::Arc::make_mut(&mut like.spec).memory =
        model::Bytes((model::Bytes::gib(32).0 * 4 / 5 / per_node).max(1));
    std::sync::Arc::make_mut(&mut like.spec).constraints = Default::default();
    let mut wishes = Wishes::new();
    let settled = world.now.plus_ms(2_000);
    world.run_until(settled, &mut wishes, false).map_err(anyhow::Error::msg)?;
    crate::report(&format!("{zones} zones, {nodes} nodes; memory {} MiB", resident_mib()));
    crate::report("instances   wall s   user s   kernel s   per user second   simulated s   memory MiB");
    for step in 1..=STEPS {
        let (began, cpu) = (Instant::now(), cpu_s());
        let simulated = world.now;
        let count = instances / STEPS;
        for _ in 0..count {
            let mut record = world.record();
            // Instances of a workload share their spec and their image.
            (record.spec, record.image) = (like.spec.clone(), like.image.clone());
            wishes.insert(record.id.clone(), Run::Running);
            world.root.accept(record);
        }
        world.root_step();
        while world.root.running < step * count {
            let until = world.now.plus_ms(100);
            world.run_until(until, &mut wishes, false).map_err(anyhow::Error::msg)?;
            anyhow::ensure!(
                world.now.ms_since(simulated) < 600_000,
                "did not converge in ten simulated minutes"
            );
        }
        let wall = began.elapsed().as_secs_f64();
        let (user, kernel) = (cpu_s().0 - cpu.0, cpu_s().1 - cpu.1);
        crate::report(&format!(
            "{:>9}   {wall:>6.2}   {user:>6.2}   {kernel:>8.2}   {:>15.0}   {:>11.1}   {:>10}",
            step * count,
            count as f64 / user.max(0.01),
            world.now.ms_since(simulated) as f64 / 1000.0,
            resident_mib()
        ));
    }
    Ok(())
}

/// What this process used of a core so far, itself and the kernel for it; on a busy machine they say more than the
/// wall clock. The kernel's part is nearly all pages that are cleared when they are touched for the first time.
fn cpu_s() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let mut seconds =
        after_name.split_whitespace().skip(11).map(|n| n.parse::<f64>().unwrap_or(0.0) / TICKS_PER_SECOND);
    (seconds.next().unwrap_or(0.0), seconds.next().unwrap_or(0.0))
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096 / (1 << 20)
}
