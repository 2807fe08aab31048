//! Use decides how many there are.

use model::workload::Autoscale;

use super::*;

fn scaling() -> World {
    let mut world = World::new(1, Mode::Service { replicas: 4 });
    world.spec(|spec| {
        spec.autoscale = Some(Autoscale {
            min: 2,
            max: 10,
            cpu_percent: Some(50),
            memory_percent: None,
            up_after_ms: 20_000,
            down_after_ms: 60_000,
        });
    });
    world.settle();
    world
}

/// Samples of so much CPU and memory for so many seconds; says how many are wanted then.
fn samples_of(world: &mut World, (cpu_percent, memory_percent): (u32, u32), seconds: i64) -> u32 {
    for _ in 0..seconds / 10 {
        world.now = world.now.plus_ms(10_000);
        let measured = world.available();
        world.usage = Some(Usage { measured, cpu_percent, memory_percent, at: world.now });
        world.step();
        world.tree();
    }
    world.state.as_ref().and_then(|state| state.scale.as_ref()).map_or(0, |scale| scale.replicas)
}

fn samples(world: &mut World, cpu_percent: u32, seconds: i64) -> u32 {
    samples_of(world, (cpu_percent, 0), seconds)
}

#[test]
fn use_decides_the_number_after_a_while() {
    let mut world = scaling();
    assert_eq!(samples(&mut world, 54, 300), 4, "within the tolerance");
    assert_eq!(samples(&mut world, 100, 20), 4, "not at once");
    assert_eq!(samples(&mut world, 100, 10), 8);
    world.settle();
    assert_eq!(samples(&mut world, 50, 300), 8, "on target");
    assert_eq!(samples(&mut world, 10, 60), 8, "not at once");
    assert_eq!(samples(&mut world, 30, 10), 5, "as the most needed of that time asks for");
    world.settle();
    assert_eq!(samples(&mut world, 0, 120), 2, "never below the least");
    world.settle();
    assert_eq!(samples(&mut world, 1000, 60), 10, "never above the most");
}

#[test]
fn memory_alone_or_beside_the_cpu_decides_the_number() {
    let mut world = scaling();
    world.spec(|spec| {
        let policy = spec.autoscale.as_mut().expect("it scales");
        (policy.cpu_percent, policy.memory_percent) = (None, Some(80));
    });
    assert_eq!(samples_of(&mut world, (500, 80), 300), 4, "nothing was asked of the CPU");
    assert_eq!(samples_of(&mut world, (0, 120), 30), 6);
    world.settle();
    assert_eq!(samples_of(&mut world, (500, 40), 70), 3);
    let status = &world.state.as_ref().expect("it was looked at").status;
    assert_eq!((status.cpu_percent, status.memory_percent), (None, Some(40)));

    // Of both, the one that needs more.
    world.spec(|spec| spec.autoscale.as_mut().expect("it scales").cpu_percent = Some(50));
    world.settle();
    assert_eq!(samples_of(&mut world, (10, 160), 30), 6);
    world.settle();
    assert_eq!(samples_of(&mut world, (75, 10), 30), 9);
    world.settle();
    assert_eq!(samples_of(&mut world, (50, 10), 120), 9, "the CPU is on target");
}

#[test]
fn use_that_jumps_up_and_down_changes_nothing() {
    let mut world = scaling();
    for _ in 0..60 {
        samples(&mut world, 90, 10);
        assert_eq!(samples(&mut world, 15, 10), 4);
    }
}
