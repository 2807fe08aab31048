//! Workloads that wait for each other.

use std::collections::BTreeMap;

use crate::workload::LABEL;
use crate::{Name, WorkloadSpec};

/// Others by name without whose instances none of this workload can be placed.
fn needs(spec: &WorkloadSpec) -> impl Iterator<Item = &str> {
    let constraints = &spec.instance.constraints;
    let near =
        constraints.latency.iter().filter(|term| term.required).filter_map(|term| term.workload.as_deref());
    let beside =
        constraints.affinity.iter().filter(|term| term.required && !term.anti && term.label == LABEL);
    near.chain(beside.map(|term| term.value.as_str()))
}

/// The names of some that wait for each other in a circle, each for the next and the last for the first. Those that
/// are not given do not count: they may be there already.
pub fn circle<'a>(workloads: impl IntoIterator<Item = (&'a Name, &'a WorkloadSpec)>) -> Option<Vec<&'a str>> {
    let mut waiting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, spec) in workloads {
        let others = needs(spec).filter(|other| *other != name.as_str());
        waiting.insert(name.as_str(), others.collect());
    }
    loop {
        let ready = |(name, others): (&&'a str, &Vec<&str>)| {
            (!others.iter().any(|other| waiting.contains_key(other))).then_some(*name)
        };
        let ready: Vec<&str> = waiting.iter().filter_map(ready).collect();
        if ready.is_empty() {
            break;
        }
        waiting.retain(|name, _| !ready.contains(name));
    }
    // Each that is left waits for one that is left: whoever follows them comes to one for the second time.
    let mut way = vec![*waiting.keys().next()?];
    loop {
        let next = *waiting[way[way.len() - 1]].iter().find(|other| waiting.contains_key(*other))?;
        if let Some(start) = way.iter().position(|passed| *passed == next) {
            return Some(way.split_off(start));
        }
        way.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Affinity, InstanceSpec, LatencyTerm};

    fn workload(name: &str, near: &[&str], beside: &[&str]) -> (Name, WorkloadSpec) {
        let mut spec = WorkloadSpec::new(InstanceSpec::new("busybox"));
        let constraints = &mut spec.instance.constraints;
        constraints.latency = near
            .iter()
            .map(|other| LatencyTerm {
                place: None,
                workload: Some((*other).to_owned()),
                max_ms: 5,
                required: true,
            })
            .collect();
        constraints.affinity = beside
            .iter()
            .map(|other| Affinity {
                label: LABEL.to_owned(),
                value: (*other).to_owned(),
                anti: false,
                required: true,
            })
            .collect();
        (name.parse().expect("a name"), spec)
    }

    fn found(workloads: &[(Name, WorkloadSpec)]) -> Option<Vec<&str>> {
        circle(workloads.iter().map(|(name, spec)| (name, spec)))
    }

    #[test]
    fn who_waits_in_a_circle_is_named_and_who_waits_for_the_circle_is_not() {
        let line =
            [workload("a", &["b"], &["c"]), workload("b", &[], &["c", "b"]), workload("c", &["else"], &[])];
        assert_eq!(found(&line), None);
        let [first, second, _] = line;
        let all = [first, second, workload("c", &[], &["d"]), workload("d", &["b"], &[])];
        assert_eq!(found(&all), Some(vec!["b", "c", "d"]));
    }

    #[test]
    fn wishes_and_what_keeps_away_make_no_circle() {
        let [mut a, b] = [workload("a", &["b"], &[]), workload("b", &[], &["a"])];
        assert!(found(&[a.clone(), b.clone()]).is_some());
        a.1.instance.constraints.latency[0].required = false;
        assert_eq!(found(&[a, b.clone()]), None);
        let mut away = workload("a", &[], &["b"]);
        away.1.instance.constraints.affinity[0].anti = true;
        assert_eq!(found(&[away, b]), None);
    }
}
