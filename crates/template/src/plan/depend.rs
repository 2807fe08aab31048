//! What must come first among the services of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, Result};

use crate::entity::{ActionKind, Service, StageDependencies};

type Names<'a> = BTreeSet<&'a str>;
type Map<'a> = BTreeMap<&'a str, Names<'a>>;

/// The dependencies of services on a cluster, without those that follow from others.
pub struct Depend<'a> {
    services: BTreeMap<&'a str, &'a Service>,
    install: Map<'a>,
    install_reversed: Map<'a>,
    runtime: Map<'a>,
    runtime_reversed: Map<'a>,
}

/// Which dependencies order an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Install,
    /// What is installed on top goes first.
    InstallReversed,
    Runtime,
    /// What depends goes first.
    RuntimeReversed,
}

impl<'a> Depend<'a> {
    pub fn new(services: &BTreeMap<&'a str, &'a Service>) -> Result<Self> {
        let providers = providers(services);
        let given = |stage: fn(&'a Service) -> &'a StageDependencies| -> Map<'a> {
            let of = |service: &&'a Service| {
                let stage = stage(service);
                stage.requires.iter().chain(&stage.uses).flat_map(|name| replaced(name, &providers)).collect()
            };
            services.iter().map(|(name, service)| (*name, of(service))).collect()
        };
        let install = given(|service| &service.dependencies.install);
        let runtime = given(|service| &service.dependencies.runtime);
        for (map, when) in [(&install, "to be installed"), (&runtime, "to run")] {
            if let Some(circle) = circle(map) {
                let told = circle.join(" needs ");
                return Err(Error::invalid(format!("services need each other {when}: {told}")).at("services"));
            }
        }
        let (install, runtime) = (minimal(&install), minimal(&runtime));
        Ok(Self {
            services: services.clone(),
            install_reversed: reversed(&install),
            runtime_reversed: reversed(&runtime),
            install,
            runtime,
        })
    }

    fn map(&self, by: By) -> &Map<'a> {
        match by {
            By::Install => &self.install,
            By::InstallReversed => &self.install_reversed,
            By::Runtime => &self.runtime,
            By::RuntimeReversed => &self.runtime_reversed,
        }
    }

    /// The services whose `action` must be done before `service` may go on. One that lacks the action is
    /// seen through to what it depends on itself; one that another on the list implies is left out.
    pub fn first(&self, service: &str, action: ActionKind, by: By) -> Names<'a> {
        let map = self.map(by);
        let mut found = Names::new();
        let mut seen = Names::new();
        let mut open: Vec<&str> = map.get(service).into_iter().flatten().copied().collect();
        while let Some(name) = open.pop() {
            if !seen.insert(name) {
                continue;
            }
            match self.services.get(name) {
                Some(other) if other.has(action) => {
                    found.insert(name);
                }
                Some(_) => open.extend(map.get(name).into_iter().flatten()),
                None => {}
            }
        }
        let implied = |name: &&str| found.iter().any(|other| other != name && reaches(map, other, name));
        let implied: Names<'a> = found.iter().copied().filter(implied).collect();
        found.difference(&implied).copied().collect()
    }

    /// The services with everything that they need to run, or with everything that needs them.
    pub fn closure(&self, services: &Names<'a>, by: By) -> Names<'a> {
        let mut all = services.clone();
        let mut open: Vec<&str> = services.iter().copied().collect();
        while let Some(name) = open.pop() {
            for next in self.map(by).get(name).into_iter().flatten() {
                if let Some((next, _)) = self.services.get_key_value(next)
                    && all.insert(next)
                {
                    open.push(next);
                }
            }
        }
        all
    }
}

/// Who stands in for a name that others provide.
fn providers<'a>(services: &BTreeMap<&'a str, &'a Service>) -> Map<'a> {
    let mut map = Map::new();
    for (name, service) in services {
        for provided in service.dependencies.provides.iter().filter(|provided| provided != name) {
            map.entry(provided.as_str()).or_default().insert(*name);
        }
    }
    map
}

fn replaced<'a>(name: &'a str, providers: &Map<'a>) -> Names<'a> {
    providers.get(name).cloned().unwrap_or_else(|| Names::from([name]))
}

/// Drops what follows from something else.
fn minimal<'a>(given: &Map<'a>) -> Map<'a> {
    let indirect = |names: &Names<'a>| {
        let mut all = Names::new();
        let mut open: Vec<&str> = names.iter().copied().collect();
        while let Some(name) = open.pop() {
            for next in given.get(name).into_iter().flatten() {
                if all.insert(next) {
                    open.push(next);
                }
            }
        }
        all
    };
    given.iter().map(|(name, names)| (*name, names.difference(&indirect(names)).copied().collect())).collect()
}

fn reversed<'a>(map: &Map<'a>) -> Map<'a> {
    let mut reversed = Map::new();
    for (name, names) in map {
        for other in names {
            reversed.entry(*other).or_default().insert(*name);
        }
    }
    reversed
}

fn reaches(map: &Map<'_>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = map.get(from).into_iter().flatten().copied().collect();
    while let Some(name) = open.pop() {
        if name == to {
            return true;
        }
        if seen.insert(name) {
            open.extend(map.get(name).into_iter().flatten());
        }
    }
    false
}

/// Services that depend on each other in a circle, the first of them again at the end.
pub fn circle<'a>(map: &Map<'a>) -> Option<Vec<&'a str>> {
    let mut done = BTreeSet::new();
    for start in map.keys() {
        let mut path: Vec<(&str, Vec<&str>)> = vec![(start, map[start].iter().copied().collect())];
        while let Some((name, open)) = path.last_mut() {
            let Some(next) = open.pop() else {
                done.insert(*name);
                path.pop();
                continue;
            };
            if let Some(at) = path.iter().position(|(name, _)| *name == next) {
                return Some(path[at..].iter().map(|(name, _)| *name).chain([next]).collect());
            }
            if !done.contains(next)
                && let Some(names) = map.get(next)
            {
                path.push((next, names.iter().copied().collect()));
            }
        }
    }
    None
}
