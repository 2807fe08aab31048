//! Random jobs, holders that die, answers that get lost and queues that are built anew: every task is done once,
//! after what it needs, and the jobs end.

use std::collections::{BTreeMap, BTreeSet};

use model::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use work::queue::{Claim, Finish, Graph, Outcome, Queue, Shape, Stage, Step};

const LEASE_MS: i64 = 3_000;
const LIMIT_MS: i64 = 20_000;
const LANES: [&str; 2] = ["acme", "bolt"];

struct World {
    rng: StdRng,
    now: i64,
    life: u64,
    shapes: BTreeMap<String, (String, Shape)>,
    /// What the owner keeps: the tasks that are done.
    kept: BTreeSet<(String, u32)>,
    /// What each holder believes to have.
    holders: BTreeMap<String, Vec<Claim>>,
    queue: Queue,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut shapes = BTreeMap::new();
        for job in 0..rng.random_range(1..5) {
            let count: u32 = rng.random_range(1..40);
            let tasks = (0..count)
                .map(|task| {
                    let needs = (0..task).filter(|_| rng.random_bool(0.1)).collect();
                    Step { needs, is_gate: rng.random_bool(0.1) }
                })
                .collect();
            let lane = LANES[job % 2].to_owned();
            shapes.insert(format!("job-{job}"), (lane, Shape { tasks }));
        }
        let holders = (0..3).map(|number| (format!("holder-{number}"), Vec::new())).collect();
        let queue = Queue::new(1, LEASE_MS);
        let mut world = Self { rng, now: 0, life: 1, shapes, kept: BTreeSet::new(), holders, queue };
        world.open(false);
        world
    }

    fn at(&self) -> Timestamp {
        Timestamp(self.now * 1_000)
    }

    /// Builds the queue from what is kept.
    fn open(&mut self, is_resumed: bool) {
        self.queue = Queue::new(self.life, LEASE_MS);
        for (job, (lane, shape)) in &self.shapes {
            let mut graph = Graph::new(shape).expect("made without cycles");
            for (_, task) in self.kept.iter().filter(|(of, _)| of == job) {
                graph.restore(*task, Stage::Done, 1);
            }
            let resumed = is_resumed.then(|| Timestamp(self.now * 1_000));
            self.queue.add(job, lane, graph, LIMIT_MS, resumed);
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0..400);
        let at = self.at();
        let name = format!("holder-{}", self.rng.random_range(0..3));
        match self.rng.random_range(0..100) {
            // The owner dies, and with it who holds what.
            0 => {
                self.life += 1;
                self.open(true);
            }
            // A holder dies.
            1 => drop(self.holders.insert(name, Vec::new())),
            2..5 => {
                for claim in self.queue.lapse(at).1 {
                    self.queue.finish(&claim, Outcome::Again(100), at);
                }
            }
            5..50 => {
                let holds = self.holders.get_mut(&name).expect("it is there");
                let stop = self.queue.beat(&name, holds, at);
                holds.retain(|claim| !stop.contains(claim));
                let taken = self.queue.take(LANES[self.rng.random_range(0..2)], &name, 3, at);
                // Now and then the answer does not arrive.
                if self.rng.random_bool(0.9) {
                    holds.extend(taken);
                }
            }
            _ => self.finish(&name),
        }
    }

    fn finish(&mut self, name: &str) {
        let at = self.at();
        let holds = self.holders.get_mut(name).expect("it is there");
        if holds.is_empty() {
            return;
        }
        let place = self.rng.random_range(0..holds.len());
        let claim = holds[place].clone();
        let is_sound = self.rng.random_bool(0.9);
        let outcome = if is_sound { Outcome::Done } else { Outcome::Again(500) };
        let finish = self.queue.finish(&claim, outcome, at);
        if finish == Finish::Taken && is_sound {
            let tasks = &self.shapes[&claim.job].1.tasks;
            let missing = |need: &&u32| {
                !tasks[**need as usize].is_gate && !self.kept.contains(&(claim.job.clone(), **need))
            };
            let early = tasks[claim.task as usize].needs.iter().find(missing);
            assert_eq!(early, None, "{claim:?} was given out before what it needs");
            assert!(self.kept.insert((claim.job.clone(), claim.task)), "{claim:?} was done twice");
        }
        // A holder that gets no answer says it again.
        if self.rng.random_bool(0.8) {
            holds.swap_remove(place);
        }
    }

    fn is_over(&self) -> bool {
        self.shapes.keys().all(|job| self.queue.progress(job).is_some_and(|progress| progress.is_over()))
    }
}

#[test]
fn everything_is_done_once_whatever_dies() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        let steps = (0..200_000).take_while(|_| {
            world.step();
            !world.is_over()
        });
        let steps = steps.count();
        assert!(steps < 200_000, "seed {seed} does not end: {:?}", world.queue);
        let work = |shape: &Shape| shape.tasks.iter().filter(|step| !step.is_gate).count();
        let all: usize = world.shapes.values().map(|(_, shape)| work(shape)).sum();
        assert_eq!(world.kept.len(), all, "seed {seed}");
    }
}
