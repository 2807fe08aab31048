//! What must hold whatever comes, against a naive reference.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use model::{
    Affinity, Arch, Bytes, ChildId, Cpu, GpuAsk, GpuDevice, InstanceId, InstanceSpec, Resources, RuntimeKind,
    Spread, Timestamp,
};
use placement::{Candidate, Fleet, Level, Policy, Want};
use proptest::prelude::*;

const LABELS: [&str; 2] = ["x", "y"];

#[derive(Debug, Clone)]
enum Step {
    Upsert(Candidate),
    Alive(usize, bool),
    Remove(usize),
    Place(Want),
    Release(usize),
}

fn child(number: usize) -> ChildId {
    ChildId::from(format!("n-{number}").as_str())
}

fn candidates() -> impl Strategy<Value = Candidate> {
    let gpus = prop::collection::vec((0..2usize, prop::sample::select(vec![1000u32, 1000, 600])), 0..4);
    let basics = (0..8usize, 1..9u64, 1..9u64, prop::option::of(0..2usize), prop::bool::weighted(0.1));
    (basics, gpus, prop::bool::ANY, prop::bool::ANY).prop_map(
        |((number, cpu, gib, rack, cordoned), gpus, arm, vm)| {
            let capacity = Resources { cpu: Cpu(cpu * 500), memory: Bytes::gib(gib), disk: Bytes::gib(10) };
            let mut node = Candidate::new(child(number), format!("n-{number}").parse().unwrap(), capacity);
            node.archs = vec![if arm { Arch::Arm64 } else { Arch::Amd64 }];
            node.runtimes.extend(vm.then_some(RuntimeKind::Vm));
            node.labels.extend(rack.map(|rack| ("rack".to_owned(), vec![LABELS[rack].to_owned()])));
            let device =
                |(model, free_milli): (usize, u32)| GpuDevice { model: LABELS[model].into(), free_milli };
            node.gpus = gpus.into_iter().map(device).collect();
            node.cordoned = cordoned;
            node
        },
    )
}

fn wants() -> impl Strategy<Value = Want> {
    let gpu =
        (1..3u32, prop::sample::select(vec![1000u32, 1000, 300, 500, 700]), prop::option::of(0..2usize));
    let affinity = (0..2usize, prop::bool::ANY, prop::bool::ANY);
    let spread = (0..2usize, prop::bool::ANY, prop::option::of(1..3u32));
    (
        (
            0..40u128,
            1..4u64,
            1..3u64,
            prop::bool::weighted(0.2),
            prop::option::weighted(0.2, prop::bool::ANY),
        ),
        prop::option::weighted(0.5, gpu),
        prop::option::of(0..2usize),
        prop::option::weighted(0.3, affinity),
        prop::option::weighted(0.4, spread),
        prop::option::weighted(0.2, 0..2usize),
        prop::option::weighted(0.1, 0..8usize),
    )
        .prop_map(|((id, cpu, gib, vm, arm), gpu, carries, affinity, spread, rack, avoid)| {
            let mut spec = InstanceSpec::new("image");
            (spec.cpu, spec.memory) = (Cpu(cpu * 250), Bytes::gib(gib));
            spec.runtime = if vm { RuntimeKind::Vm } else { RuntimeKind::Container };
            spec.gpu = gpu.map(|(count, milli, model)| GpuAsk {
                count: if milli < 1000 { 1 } else { count },
                milli,
                models: model.map(|model| LABELS[model].to_owned()).into_iter().collect(),
            });
            spec.labels.extend(carries.map(|value| ("app".to_owned(), LABELS[value].to_owned())));
            spec.constraints.arch = arm.map(|arm| if arm { Arch::Arm64 } else { Arch::Amd64 });
            spec.constraints
                .node_labels
                .extend(rack.map(|rack| ("rack".to_owned(), LABELS[rack].to_owned())));
            spec.constraints.affinity.extend(affinity.map(|(value, anti, required)| Affinity {
                label: "app".into(),
                value: LABELS[value].into(),
                anti,
                required,
            }));
            spec.constraints.spread = spread.map(|(group, rack, max_skew)| Spread {
                group: LABELS[group].into(),
                by: rack.then(|| "rack".to_owned()),
                max_skew,
            });
            let mut want = Want::from_spec(InstanceId::from_random(id), &spec);
            want.avoid = avoid.map(|at| (child(at), String::new())).into_iter().collect();
            want
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => candidates().prop_map(Step::Upsert),
        1 => (0..8usize, prop::bool::ANY).prop_map(|(number, alive)| Step::Alive(number, alive)),
        1 => (0..8usize).prop_map(Step::Remove),
        10 => wants().prop_map(Step::Place),
        3 => (0..40usize).prop_map(Step::Release),
    ];
    prop::collection::vec(step, 1..120)
}

/// The same state as plain lists.
#[derive(Debug, Clone, Default)]
struct Naive {
    nodes: BTreeMap<ChildId, (Candidate, bool)>,
    held: BTreeMap<InstanceId, (Want, ChildId, Vec<usize>)>,
}

impl Naive {
    fn on<'a>(&'a self, id: &'a ChildId) -> impl Iterator<Item = &'a (Want, ChildId, Vec<usize>)> {
        self.held.values().filter(move |(_, at, _)| at == id)
    }

    fn gpus(&self, id: &ChildId) -> Vec<i64> {
        let mut free: Vec<i64> = self.nodes[id].0.gpus.iter().map(|gpu| i64::from(gpu.free_milli)).collect();
        for (want, _, devices) in self.on(id) {
            for device in devices.iter().filter(|device| **device < self.nodes[id].0.gpus.len()) {
                free[*device] -= i64::from(want.gpu.as_ref().unwrap().milli);
            }
        }
        free
    }

    fn suits(&self, id: &ChildId, want: &Want) -> bool {
        let (node, alive) = &self.nodes[id];
        let labels = &want.constraints.node_labels;
        *alive
            && !node.cordoned
            && node.runtimes.contains(&want.runtime)
            && want.constraints.arch.is_none_or(|arch| node.archs.contains(&arch))
            && labels.iter().all(|(key, value)| node.labels.get(key).is_some_and(|held| held.contains(value)))
    }

    fn has_room(&self, id: &ChildId, want: &Want) -> bool {
        let used = self.on(id).fold(want.resources, |sum, (held, ..)| sum.plus(held.resources));
        let node = &self.nodes[id].0;
        let devices = want.gpu.as_ref().map_or(0, |ask| ask.count);
        let usable = |(gpu, free): &(&GpuDevice, i64)| {
            let ask = want.gpu.as_ref().unwrap();
            *free >= i64::from(ask.milli) && (ask.models.is_empty() || ask.models.contains(&gpu.model))
        };
        used.fits_in(&node.capacity)
            && (devices == 0
                || node.gpus.iter().zip(self.gpus(id)).filter(usable).count() >= devices as usize)
    }

    fn neighbours(&self, id: &ChildId, want: &Want) -> bool {
        let carries = |want: &Want, term: &Affinity| want.labels.get(&term.label) == Some(&term.value);
        let demands = |want: &Want| -> Vec<Affinity> {
            want.constraints.affinity.iter().filter(|term| term.required).cloned().collect()
        };
        let held = |term: &Affinity| self.on(id).any(|(held, ..)| carries(held, term));
        let first = |term: &Affinity| {
            carries(want, term) && !self.held.values().any(|(held, ..)| carries(held, term))
        };
        demands(want).iter().all(|term| if term.anti { !held(term) } else { held(term) || first(term) })
            && !self
                .on(id)
                .any(|(held, ..)| demands(held).iter().any(|term| term.anti && carries(want, term)))
    }

    fn domain(&self, id: &ChildId, spread: &Spread) -> Option<String> {
        match &spread.by {
            None => Some(id.to_string()),
            Some(key) => self.nodes[id].0.labels.get(key).map(|values| values.join(",")),
        }
    }

    /// How many of the group each domain with a suitable node holds.
    fn domains(&self, want: &Want, spread: &Spread) -> BTreeMap<String, u32> {
        let mut counts: BTreeMap<String, u32> = self
            .nodes
            .keys()
            .filter(|id| self.suits(id, want))
            .filter_map(|id| Some((self.domain(id, spread)?, 0)))
            .collect();
        for (held, at, _) in self.held.values() {
            let group = held.constraints.spread.as_ref().map(|held| &held.group);
            if group == Some(&spread.group)
                && let Some(count) = self.domain(at, spread).and_then(|domain| counts.get_mut(&domain))
            {
                *count += 1;
            }
        }
        counts
    }

    fn within_skew(&self, id: &ChildId, want: &Want) -> bool {
        let Some(spread) = &want.constraints.spread else { return true };
        let Some(max) = spread.max_skew else { return true };
        let counts = self.domains(want, spread);
        let least = counts.values().min().copied().unwrap_or(0);
        self.domain(id, spread).is_some_and(|domain| counts[&domain] + 1 - least <= max)
    }

    fn feasible(&self, want: &Want) -> Vec<ChildId> {
        let able = self.nodes.keys().filter(|id| {
            self.suits(id, want)
                && self.has_room(id, want)
                && !want.avoid.iter().any(|(avoided, _)| avoided == *id)
                && self.neighbours(id, want)
                && self.within_skew(id, want)
        });
        able.cloned().collect()
    }

    fn rebuilt(&self, policy: Policy) -> Fleet {
        let mut fleet = Fleet::new(Level::Nodes, policy);
        for (node, alive) in self.nodes.values().rev() {
            fleet.upsert(node.clone());
            fleet.set_alive(&node.id, *alive);
        }
        for (want, at, gpus) in self.held.values().rev() {
            fleet.hold(want, at, gpus);
        }
        fleet
    }
}

/// Takes one step in both, and checks that they agree.
fn step(fleet: &mut Fleet, naive: &mut Naive, step: Step, policy: Policy) -> Result<(), TestCaseError> {
    match step {
        Step::Upsert(node) => {
            let alive = naive.nodes.get(&node.id).is_none_or(|(_, alive)| *alive);
            naive.nodes.insert(node.id.clone(), (node.clone(), alive));
            fleet.upsert(node);
        }
        Step::Alive(number, alive) => {
            fleet.set_alive(&child(number), alive);
            naive.nodes.entry(child(number)).and_modify(|node| node.1 = alive);
        }
        Step::Remove(number) => {
            let lost = fleet.remove(&child(number));
            naive.nodes.remove(&child(number));
            prop_assert!(lost.iter().all(|id| naive.held.remove(id).is_some()));
            prop_assert!(naive.on(&child(number)).next().is_none());
        }
        Step::Release(number) => {
            let id = InstanceId::from_random(number as u128);
            prop_assert_eq!(fleet.release(&id), naive.held.remove(&id).is_some());
        }
        Step::Place(want) => {
            if fleet.release(&want.id) {
                naive.held.remove(&want.id);
            }
            place(fleet, naive, &want, policy)?;
        }
    }
    Ok(())
}

fn place(fleet: &mut Fleet, naive: &mut Naive, want: &Want, policy: Policy) -> Result<(), TestCaseError> {
    let feasible = naive.feasible(want);
    let mut again = fleet.clone();
    let mut rebuilt = naive.rebuilt(policy);
    if policy == Policy::Default {
        // When the mix was learnt depends on the past, so both learn now.
        fleet.relearn();
        again.relearn();
        rebuilt.relearn();
    }
    let choice = fleet.place(want);
    prop_assert_eq!(&choice, &again.place(want), "the same question has the same answer");
    prop_assert_eq!(&choice, &rebuilt.place(want), "an index kept up to date equals a new one");
    let at = Timestamp(0);
    let explanation = fleet.explain(want, "test", at);
    prop_assert_eq!(&explanation, &rebuilt.explain(want, "test", at));
    let Ok(choice) = choice else {
        prop_assert!(feasible.is_empty(), "nowhere, but {:?} would do", feasible);
        prop_assert_eq!(explanation.chosen, None);
        return Ok(());
    };
    prop_assert!(feasible.contains(&choice.child), "{} will not do, {:?} would", choice.child, feasible);
    prop_assert_eq!(explanation.chosen.as_deref(), Some(choice.child.as_str()));
    let able = explanation.verdicts.iter().filter(|v| !matches!(v.outcome, model::Outcome::Rejected { .. }));
    prop_assert_eq!(able.count(), feasible.len(), "every candidate that would do has a score");

    let (free, gpus) = (fleet.free(&choice.child), fleet.gpus_free(&choice.child));
    let devices = fleet.reserve(want, &choice.child).unwrap();
    prop_assert_eq!(&devices, &choice.gpus);
    fleet.release(&want.id);
    prop_assert_eq!((fleet.free(&choice.child), fleet.gpus_free(&choice.child)), (free, gpus));
    fleet.hold(want, &choice.child, &devices);
    naive.held.insert(want.id.clone(), (want.clone(), choice.child.clone(), devices));
    let left: Vec<u32> = naive.gpus(&choice.child).iter().map(|free| (*free).max(0) as u32).collect();
    prop_assert_eq!(left, fleet.gpus_free(&choice.child));
    if let Some(spread @ Spread { max_skew: Some(_), .. }) = &want.constraints.spread {
        let counts = naive.domains(want, spread);
        let least = counts.values().min().unwrap();
        let mine = counts[&naive.domain(&choice.child, spread).unwrap()];
        prop_assert!(mine - least <= spread.max_skew.unwrap());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_index_equals_the_reference(steps in steps(), fit in prop::bool::ANY) {
        let policy = if fit { Policy::BestFit } else { Policy::Default };
        let mut fleet = Fleet::new(Level::Nodes, policy);
        let mut naive = Naive::default();
        for next in steps {
            step(&mut fleet, &mut naive, next, policy)?;
        }
    }

    #[test]
    fn a_steady_fleet_is_never_over_committed(nodes in prop::collection::vec(candidates(), 1..8),
                                              wants in prop::collection::vec(wants(), 1..80)) {
        let mut fleet = Fleet::new(Level::Nodes, Policy::Default);
        nodes.iter().for_each(|node| fleet.upsert(node.clone()));
        let before: Vec<_> = fleet.candidates().map(|node| (node.clone(), fleet.gpus_free(&node.id))).collect();
        let wants: Vec<Want> = wants.into_iter().enumerate()
            .map(|(number, want)| Want { id: InstanceId::from_random(number as u128), ..want }).collect();
        let plan = placement::place(&mut fleet, &wants);
        prop_assert_eq!(plan.placed.len() + plan.nowhere.len(), wants.len());
        for (node, _) in &before {
            let on = plan.placed.iter().filter(|(_, choice)| choice.child == node.id);
            let mut gpus: Vec<i64> = node.gpus.iter().map(|gpu| i64::from(gpu.free_milli)).collect();
            let mut used = Resources::ZERO;
            for (id, choice) in on {
                let want = wants.iter().find(|want| want.id == *id).unwrap();
                used = used.plus(want.resources);
                choice.gpus.iter().for_each(|at| gpus[*at] -= i64::from(want.gpu.as_ref().unwrap().milli));
            }
            prop_assert!(used.fits_in(&node.capacity));
            prop_assert_eq!(used, fleet.reserved(&node.id));
            prop_assert!(gpus.iter().all(|free| *free >= 0));
        }
        plan.placed.iter().for_each(|(id, _)| assert!(fleet.release(id)));
        for (node, gpus) in before {
            prop_assert_eq!(fleet.reserved(&node.id), Resources::ZERO);
            prop_assert_eq!(fleet.gpus_free(&node.id), gpus);
        }
    }
}
