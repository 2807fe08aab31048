//! The invariants: what was promised, what the API says, and what is.

use std::collections::BTreeMap;

use api::Instance;
use model::{Phase, RestartPolicy, Run};

use crate::reality::{Held, Reality, twins};

/// What the API acknowledged about one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Whether it must be there; unknown when the answer to the last create or delete was lost.
    pub exists: Option<bool>,
    /// How it must be kept; unknown when the answer to the last change was lost.
    pub run: Option<Run>,
}

/// By name.
pub type Promises = BTreeMap<String, Promise>;

/// Everything that is not as it must be once all is calm; nothing when all is well.
pub fn findings(promises: &Promises, instances: &[Instance], reality: &Reality) -> Vec<String> {
    let mut found = twins(reality);
    let known: BTreeMap<&str, &Instance> =
        instances.iter().map(|instance| (instance.name.as_str(), instance)).collect();
    for (name, promise) in promises {
        found.extend(kept(name, *promise, known.get(name.as_str()).copied()));
    }
    for instance in instances {
        found.extend(true_to_life(instance, reality));
    }
    for (host, held) in reality {
        for (id, held) in held {
            found.extend(orphan(host, id, held, instances));
        }
    }
    found
}

/// Whether a promise is kept.
fn kept(name: &str, promise: Promise, instance: Option<&Instance>) -> Option<String> {
    match (promise.exists, instance) {
        (Some(true), None) => Some(format!("{name} was acknowledged and is lost")),
        (Some(false), Some(seen)) => Some(format!("{name} was deleted and is there, {}", seen.phase)),
        (_, Some(seen)) if promise.run.is_some_and(|run| run != seen.run) => {
            Some(format!("{name} should be kept {:?} and is kept {:?}", promise.run, seen.run))
        }
        _ => None,
    }
}

/// Whether what the API says of an instance is so.
fn true_to_life(instance: &Instance, reality: &Reality) -> Vec<String> {
    let (name, id) = (&instance.name, instance.id.as_str());
    let holders: Vec<(&str, &Held)> = reality
        .iter()
        .filter_map(|(host, held)| held.get(id).filter(|held| held.runs()).map(|held| (host.as_str(), held)))
        .collect();
    let hosts: Vec<&str> = holders.iter().map(|(host, _)| *host).collect();
    let mut found = Vec::new();
    match instance.run {
        Run::Running if instance.spec.restart == RestartPolicy::Always => {
            if instance.phase != Phase::Running {
                let why = instance.message.as_deref().unwrap_or("no reason given");
                found.push(format!("{name} ({id}) is {} instead of running: {why}", instance.phase));
            }
            let node = instance.node.as_ref().map(|node| node.as_str());
            match holders.as_slice() {
                [(host, held)] => {
                    if node != Some(*host) {
                        found.push(format!("{name} ({id}) runs on {host}, and the API says {node:?}"));
                    }
                    // Root knows its own decisions; the minor number is the zone's.
                    if held.generation.map(|own| own.major) != Some(instance.generation.major) {
                        let own = held.generation.map(|own| own.to_string());
                        found.push(format!(
                            "{name} ({id}) runs under {own:?}, and the API says {}",
                            instance.generation
                        ));
                    }
                }
                [] => found.push(format!("{name} ({id}) runs nowhere; the API says {node:?}")),
                _ => found.push(format!("{name} ({id}) runs on {}", hosts.join(" and "))),
            }
        }
        Run::Running => {}
        Run::Stopped => {
            if instance.phase != Phase::Stopped {
                found.push(format!("{name} ({id}) is {} instead of stopped", instance.phase));
            }
            if !hosts.is_empty() {
                found.push(format!("{name} ({id}) is stopped and runs on {}", hosts.join(" and ")));
            }
        }
        Run::Gone => found.push(format!("{name} ({id}) is still being deleted, {}", instance.phase)),
    }
    found
}

/// What a host holds of an instance that is not its own.
fn orphan(host: &str, id: &str, held: &Held, instances: &[Instance]) -> Option<String> {
    let owner = instances.iter().find(|instance| instance.id.as_str() == id);
    let why = match owner {
        None => "which nobody knows".to_owned(),
        Some(instance) if instance.node.as_ref().is_none_or(|node| node.as_str() != host) => {
            format!("which is {} on {:?}", instance.name, instance.node.as_ref().map(|node| node.as_str()))
        }
        Some(_) => return None,
    };
    Some(format!("{host} holds {} of {id}, {why}", held.parts()))
}
