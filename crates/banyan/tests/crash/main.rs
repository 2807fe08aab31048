//! Kills root with its store in the middle of mixed operations of several clients, again and again; after each start
//! everything that was acknowledged is there, and nothing else.
//!
//! `make crash MINUTES=10 SEED=s` goes on for longer.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod audit;
mod check;
mod client;
mod model;
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use client::Actor;
use model::{KEPT, PLAIN};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use server::Server;

const CLIENTS: usize = 8;
/// Answers that a round waits for, at most, before the kill.
const ANSWERS_MAX: usize = 800;
/// Rounds of the short form.
const ROUNDS: usize = 5;

struct Bed {
    server: Server,
    actors: Vec<Actor>,
    chance: StdRng,
}

impl Bed {
    async fn new(seed: u64) -> Self {
        // The one line by which a run can be had again.
        eprintln!("crash: seed {seed}");
        let server = tokio::task::block_in_place(Server::start);
        let s3 = server.s3();
        s3.bucket_create(PLAIN, false).await.unwrap();
        s3.bucket_create(KEPT, false).await.unwrap();
        s3.versioning_set(KEPT, true).await.unwrap();
        let actors = (0..CLIENTS).map(Actor::new).collect();
        Self { server, actors, chance: StdRng::seed_from_u64(seed) }
    }

    /// Runs the clients, kills the server under them, starts it and looks.
    async fn round(&mut self) -> (usize, usize) {
        let answered = AtomicUsize::new(0);
        let wanted = self.chance.random_range(50..ANSWERS_MAX);
        let pause = Duration::from_micros(self.chance.random_range(0..20_000));
        let seeds: Vec<u64> = self.actors.iter().map(|_| self.chance.random()).collect();
        let s3 = self.server.s3();
        let run = self.actors.iter_mut().zip(seeds).map(|(actor, seed)| {
            let (s3, answered) = (&s3, &answered);
            async move { actor.run(s3, StdRng::seed_from_u64(seed), answered).await }
        });
        let (server, seen) = (&mut self.server, &answered);
        let kill = async move {
            while seen.load(Ordering::Relaxed) < wanted {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(pause).await;
            server.kill();
        };
        futures::join!(futures::future::join_all(run), kill);
        let audited = self.chance.random_bool(0.3);
        if audited {
            audit::audit(&self.server.data()).await;
        }
        let stumbles = if self.chance.random_bool(0.4) { self.chance.random_range(1..3) } else { 0 };
        for _ in 0..stumbles {
            let after = Duration::from_millis(self.chance.random_range(20..600));
            tokio::task::block_in_place(|| self.server.stumble(after));
        }
        tokio::task::block_in_place(|| self.server.again());
        let unanswered = self.actors.iter().filter(|actor| actor.pending.is_some()).count();
        let (s3, rest) = (self.server.s3(), self.server.rest());
        let done = check::check(&s3, &rest, &mut self.actors).await;
        let count = answered.into_inner();
        eprintln!("crash: {count} answered, {unanswered} not, {done} of those done, {stumbles} stumbles");
        (count, unanswered)
    }

    async fn end(mut self) {
        tokio::task::block_in_place(|| self.server.kill());
        audit::audit(&self.server.data()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills() {
    let mut bed = Bed::new(rand::random()).await;
    let (mut answered, mut unanswered) = (0, 0);
    for _ in 0..ROUNDS {
        let (some, others) = bed.round().await;
        answered += some;
        unanswered += others;
    }
    bed.end().await;
    assert!(answered > 100 && unanswered > 0, "{answered} answered, {unanswered} not: nothing was tested");
}

fn given<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: make crash"]
async fn what_was_acknowledged_survives_kills_for_long() {
    let until = Instant::now() + Duration::from_secs(60 * given("CRASH_MINUTES").unwrap_or(10));
    let mut bed = Bed::new(given("CRASH_SEED").unwrap_or_else(rand::random)).await;
    let mut answered = 0;
    while Instant::now() < until {
        answered += bed.round().await.0;
    }
    bed.end().await;
    eprintln!("crash: {answered} operations answered, all of them kept");
}
