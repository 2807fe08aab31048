//! Who is there and who should hold what, with no I/O and no clock: time enters as our own beats, each of
//! which the store has taken before [`Core::look`] is called.

use std::collections::BTreeMap;

use imbl::OrdMap;

use crate::state::Row;
use crate::tables::{DutyRecord, ServerRecord};

/// A server whose record stood still through so many of our own beats is silent.
pub const BEATS_MISSED_MAX: u32 = 4;

/// What to do next; each is a transaction that fails when what it was decided on has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Takes a silent server out of the store.
    Forget { server: String, version: i64 },
    /// Takes a duty that nobody holds: it has no record, or one that names a server that is not there.
    Claim { duty: &'static str, gone: Option<Gone>, term: u64 },
}

/// The record of a duty whose holder is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub version: i64,
    pub holder: String,
}

#[derive(Debug, Default)]
pub struct Core {
    /// The version of each server's record, and how many of our beats it has stood still.
    seen: BTreeMap<String, (i64, u32)>,
}

type Servers = OrdMap<String, Row<ServerRecord>>;
type Duties = OrdMap<String, Row<DutyRecord>>;

impl Core {
    /// Counts one beat of ours and says which servers are silent.
    pub fn beaten(&mut self, me: &str, servers: &Servers) -> Vec<Act> {
        self.seen.retain(|id, _| servers.contains_key(id));
        let mut silent = Vec::new();
        for (id, row) in servers.iter().filter(|(id, _)| *id != me) {
            let missed = match self.seen.get(id) {
                Some((version, missed)) if *version == row.version => missed + 1,
                _ => 0,
            };
            self.seen.insert(id.clone(), (row.version, missed));
            if missed >= BEATS_MISSED_MAX {
                silent.push(Act::Forget { server: id.clone(), version: row.version });
            }
        }
        silent
    }
}

/// The duties whose holder is not there.
pub fn vacant(names: &[&'static str], servers: &Servers, duties: &Duties) -> Vec<Act> {
    let claim = |duty: &&'static str| match duties.get(*duty) {
        None => Some(Act::Claim { duty, gone: None, term: 1 }),
        Some(row) if servers.contains_key(&row.holder) => None,
        Some(row) => {
            let gone = Gone { version: row.version, holder: row.holder.clone() };
            Some(Act::Claim { duty, gone: Some(gone), term: row.term + 1 })
        }
    };
    names.iter().filter_map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Versioned;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    const NAMES: &[&str] = &["tree", "sweep"];

    /// The store as far as servers and duties matter: compare-and-set under one growing version.
    #[derive(Default)]
    struct Shared {
        version: i64,
        servers: Servers,
        duties: Duties,
    }

    impl Shared {
        fn next(&mut self) -> i64 {
            self.version += 1;
            self.version
        }

        fn beat(&mut self, id: &str) {
            let version = self.next();
            let value = ServerRecord { id: id.to_owned(), ..ServerRecord::default() }.into();
            self.servers.insert(id.to_owned(), Versioned { version, value });
        }

        fn act(&mut self, me: &str, act: &Act) {
            match act {
                Act::Forget { server, version } => {
                    if self.servers.get(server).is_some_and(|row| row.version == *version) {
                        self.servers.remove(server);
                    }
                }
                Act::Claim { duty, gone, term } => {
                    let now = self.duties.get(*duty).map(|row| row.version);
                    let back = gone.as_ref().is_some_and(|gone| self.servers.contains_key(&gone.holder));
                    if now == gone.as_ref().map(|gone| gone.version) && !back {
                        let value = DutyRecord { holder: me.to_owned(), term: *term }.into();
                        let version = self.next();
                        self.duties.insert((*duty).to_owned(), Versioned { version, value });
                    }
                }
            }
        }
    }

    struct Server {
        id: String,
        core: Core,
        alive: bool,
        /// Beats it still sleeps through.
        frozen: u32,
        /// What it decided and has not carried out when it froze.
        planned: Vec<Act>,
    }

    impl Server {
        fn step(&mut self, shared: &mut Shared, rng: &mut StdRng) {
            for act in std::mem::take(&mut self.planned) {
                shared.act(&self.id, &act);
            }
            shared.beat(&self.id);
            let mut acts = self.core.beaten(&self.id, &shared.servers);
            acts.extend(vacant(NAMES, &shared.servers, &shared.duties));
            if rng.random_bool(0.1) {
                // It stops between the decision and the deed; the deed is late.
                self.frozen = rng.random_range(1..12);
                self.planned = acts;
                return;
            }
            acts.iter().for_each(|act| shared.act(&self.id, act));
            for act in vacant(NAMES, &shared.servers, &shared.duties) {
                shared.act(&self.id, &act);
            }
        }
    }

    #[test]
    fn a_duty_is_never_taken_from_a_server_that_beats_and_always_from_one_that_does_not() {
        for seed in 0..300 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut shared = Shared::default();
            let mut servers: Vec<Server> = (0..3)
                .map(|n| Server {
                    id: format!("s{n}"),
                    core: Core::default(),
                    alive: true,
                    frozen: 0,
                    planned: Vec::new(),
                })
                .collect();
            let mut silent = BTreeMap::<String, u32>::new();
            for round in 0..200 {
                let outage = rng.random_bool(0.05);
                for server in &mut servers {
                    server.frozen = server.frozen.saturating_sub(1);
                    if outage {
                        continue;
                    }
                    if !server.alive || server.frozen > 0 {
                        *silent.entry(server.id.clone()).or_default() += 1;
                        continue;
                    }
                    silent.insert(server.id.clone(), 0);
                    let before = shared.duties.clone();
                    server.step(&mut shared, &mut rng);
                    for (name, old) in &before {
                        let new = &shared.duties[name];
                        if old.holder != new.holder {
                            assert!(new.term == old.term + 1 && new.version > old.version, "seed {seed}");
                            let missed = silent[&old.holder];
                            assert!(missed >= BEATS_MISSED_MAX, "seed {seed}, {round}: taken after {missed}");
                        }
                    }
                }
                if round == 100 {
                    let unlucky = rng.random_range(0..3);
                    servers[unlucky].alive = false;
                }
            }
            // The dead one is out, and what it held has a holder that is there.
            let quiet = |server: &mut Server| (server.frozen, server.planned) = (0, Vec::new());
            servers.iter_mut().for_each(quiet);
            for _ in 0..12 {
                for server in servers.iter_mut().filter(|server| server.alive) {
                    shared.beat(&server.id);
                    let mut acts = server.core.beaten(&server.id, &shared.servers);
                    acts.iter().for_each(|act| shared.act(&server.id, act));
                    acts = vacant(NAMES, &shared.servers, &shared.duties);
                    acts.iter().for_each(|act| shared.act(&server.id, act));
                }
            }
            assert_eq!(shared.servers.len(), 2, "seed {seed}");
            for name in NAMES {
                let holder = &shared.duties[*name].holder;
                assert!(servers.iter().any(|server| server.alive && server.id == *holder), "seed {seed}");
            }
        }
    }
}
