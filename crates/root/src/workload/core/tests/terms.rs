//! The terms of change: what a rollback chooses, what a canary leaves alone, which clock a deadline runs by.

use super::*;

fn canary(world: &mut World, instances: Amount) {
    world.spec(|spec| spec.update.canary = Some(Canary { instances, hold_ms: None }));
}

/// Runs on until the canaries of the newest revision wait to be promoted.
fn canary_open(world: &mut World) {
    for _ in 0..600 {
        if world.step().state.status.phase == WorkloadPhase::Canary {
            return;
        }
        world.tree();
        world.now = world.now.plus_ms(200);
    }
    panic!("no canary: {:#?}", world.state);
}

fn roll_back(world: &mut World, to: Option<u64>) -> model::Result<u64> {
    let complete = world.state.as_ref().map(|state| state.complete.clone()).unwrap_or_default();
    let by = By { who: "test", at: world.now };
    world.version += 1;
    record::roll_back(&mut world.record, &complete, to, None, &by)
}

fn of_word(world: &World, word: &str) -> usize {
    let env = |seen: &&Seen| {
        let spec = match seen.revision == world.record.revision {
            true => Some(&world.record.spec.instance),
            false => world.record.earlier.iter().find(|t| t.revision == seen.revision).map(|t| &*t.instance),
        };
        !seen.going() && spec.and_then(|spec| spec.env.get("V")).is_some_and(|found| found == word)
    };
    world.instances.iter().filter(env).count()
}

#[test]
fn a_rollback_chooses_the_last_revision_that_was_once_complete() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 4 });
        world.spec(|spec| spec.update.rollback = false);
        let error = roll_back(&mut world, None).expect_err("nothing was ever complete");
        assert!(error.message.contains("ever complete"), "{error}");
        world.template("good1");
        world.settle();
        world.template("bad");
        for _ in 0..40 {
            world.step();
            world.tree();
        }
        canary(&mut world, Amount::Count(1));
        world.template("good2");
        canary_open(&mut world);
        world.template("good3");
        world.step();
        let to = roll_back(&mut world, None).expect("good1 was");
        assert_eq!((to, world.record.spec.instance.env["V"].as_str()), (2, "good1"), "seed {seed}");
        let error = roll_back(&mut world, Some(2)).expect_err("that is what it is");
        assert!(error.message.contains("nothing would change"), "{error}");
    }
}

#[test]
fn a_rollback_does_not_stop_at_a_canary() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 4 });
        world.template("good1");
        world.settle();
        world.template("good2");
        world.settle();
        canary(&mut world, Amount::Count(1));
        roll_back(&mut world, None).expect("good1 was complete");
        for _ in 0..300 {
            let phase = world.step().state.status.phase;
            assert_ne!(phase, WorkloadPhase::Canary, "seed {seed}");
            world.tree();
        }
        assert_eq!(of_word(&world, "good1"), 4, "seed {seed}");
    }
}

#[test]
fn a_scale_during_a_canary_adds_what_is_known_to_work() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, Mode::Service { replicas: 4 });
        world.template("good1");
        world.settle();
        canary(&mut world, Amount::Percent(25));
        world.template("good2");
        canary_open(&mut world);
        // Another canary, never promoted, is no revision to make more of.
        world.template("good3");
        canary_open(&mut world);
        world.spec(|spec| spec.mode = Mode::Service { replicas: 12 });
        for _ in 0..200 {
            world.step();
            world.tree();
        }
        let counts = ["good1", "good2", "good3"].map(|word| of_word(&world, word));
        assert_eq!((counts[2], counts.iter().sum::<usize>()), (1, 12), "seed {seed}: {counts:?}");
        assert!(counts[0] >= 8, "seed {seed}: {counts:?}");
    }
}

#[test]
fn what_cannot_start_is_given_up_at_once() {
    for (phase, failures, finished) in
        [(Phase::Failed, 3, false), (Phase::Creating, 5, false), (Phase::Exited, 0, true)]
    {
        let mut world = World::new(1, Mode::Service { replicas: 1 });
        world.template("good1");
        world.settle();
        world.template("good2");
        world.step();
        let new = world.instances.iter_mut().find(|seen| seen.revision == 3).expect("one is made");
        (new.phase, new.failures, new.finished) = (phase, failures, finished);
        new.message = Some("there is no such program".to_owned());
        let plan = world.step();
        let (to, why) = plan.roll_back.expect("it goes back at once");
        assert_eq!(to, 2);
        assert!(why.contains("there is no such program"), "{why}");
        assert_eq!(of_word(&world, "good1"), 1, "what works goes on");
    }
}

/// A workload with an update that does not get on, and half of its time gone.
fn half_way() -> World {
    let mut world = World::new(1, Mode::Service { replicas: 4 });
    world.spec(|spec| spec.update.deadline_ms = 20_000);
    world.template("good1");
    world.settle();
    world.template("good2");
    for _ in 0..3 {
        world.step();
        world.instances.retain(|seen| !seen.going());
    }
    world.now = world.now.plus_ms(12_000);
    assert!(world.step().state.rollout.expect("under way").failed.is_none());
    world
}

#[test]
fn a_pause_stops_the_time_of_an_update_and_does_not_give_it_new_time() {
    let mut world = half_way();
    world.spec(|spec| spec.paused = true);
    world.step();
    world.now = world.now.plus_ms(600_000);
    world.step();
    world.spec(|spec| spec.paused = false);
    assert!(world.step().state.rollout.expect("under way").failed.is_none(), "the pause does not count");
    world.now = world.now.plus_ms(9_000);
    let plan = world.step();
    assert!(plan.roll_back.is_some(), "21 of 20 seconds are over");
}

#[test]
fn a_scale_does_not_give_an_update_new_time() {
    let mut world = half_way();
    world.spec(|spec| spec.mode = Mode::Service { replicas: 2 });
    for _ in 0..3 {
        world.step();
        world.instances.retain(|seen| !seen.going());
    }
    world.now = world.now.plus_ms(9_000);
    assert!(world.step().roll_back.is_some(), "21 of 20 seconds are over");
}

#[test]
fn a_pause_says_what_it_holds_up() {
    let mut world = World::new(1, Mode::Service { replicas: 2 });
    world.settle();
    world.spec(|spec| spec.paused = true);
    assert_eq!(world.step().state.status.message, None, "nothing is held up");
    world.spec(|spec| spec.mode = Mode::Service { replicas: 5 });
    let message = world.step().state.status.message.expect("it says so");
    assert!(message.contains("5 instances are wanted and 2 are there"), "{message}");
}

#[test]
fn a_one_shot_keeps_its_last_runs_and_no_more() {
    let mut world = World::new(1, Mode::Once { run: RunPolicy::default() });
    for _ in 0..8 {
        for _ in 0..4 {
            world.step();
            world.instances.retain(|seen| !seen.going());
            for seen in world.instances.iter_mut().filter(|seen| !seen.counted) {
                (seen.phase, seen.exit_code) = (Phase::Exited, Some(0));
            }
        }
        world.record.runs_asked += 1;
        world.version += 1;
    }
    let state = world.state.expect("it was looked at");
    assert!(state.runs.iter().filter(|run| run.ended_at.is_some()).count() <= 3, "{:?}", state.runs);
    assert!(world.instances.len() <= 4, "{}", world.instances.len());
}

#[test]
fn where_none_may_be_missing_another_is_made_before_one_leaves_its_emptied_node() {
    for (seed, replicas) in [(1, 1), (2, 3), (3, 7)] {
        let mut world = World::new(seed, Mode::Service { replicas });
        world.spec(|spec| {
            (spec.update.max_unavailable, spec.update.max_surge) = (Amount::Count(0), Amount::Count(2));
        });
        world.settle();
        let old: Vec<InstanceId> = world.instances.iter().map(|seen| seen.id.clone()).collect();
        world.instances.iter_mut().for_each(|seen| seen.leaves = true);
        for _ in 0..50 {
            assert!(world.available() >= replicas);
            world.step();
            world.tree();
            world.now = world.now.plus_ms(200);
        }
        let left: Vec<_> = world.instances.iter().filter(|seen| old.contains(&seen.id)).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(world.here(), replicas);
    }
}

#[test]
fn where_some_may_be_missing_the_tree_moves_what_leaves() {
    let mut world = World::new(1, Mode::Service { replicas: 3 });
    world.spec(|spec| spec.update.max_unavailable = Amount::Count(1));
    world.settle();
    world.instances.iter_mut().for_each(|seen| seen.leaves = true);
    let plan = world.step();
    assert!(plan.creates.is_empty() && plan.deletes.is_empty());
}

fn node(number: u32, open: bool) -> Node {
    let pin = Pin { zone: name("z"), node: name(&format!("n{number}")) };
    Node { pin, alive: true, open }
}

#[test]
fn a_daemon_lets_as_many_go_at_once_as_it_may() {
    for may in [1, 3] {
        let mut world = World::new(1, Mode::Daemon);
        world.nodes = (0..6).map(|number| node(number, true)).collect();
        world.spec(|spec| spec.update.max_unavailable = Amount::Count(may));
        world.template("good1");
        world.settle();
        world.template("good2");
        assert_eq!(world.step().deletes.len(), may as usize);
    }
}

#[test]
fn a_daemon_without_a_node_says_so() {
    let mut world = World::new(1, Mode::Daemon);
    let message = world.step().state.status.message.expect("it says so");
    assert!(message.contains("no node matches"), "{message}");
    world.nodes = vec![node(1, false)];
    let message = world.step().state.status.message.expect("it says so");
    assert!(message.contains("none takes instances"), "{message}");
}
