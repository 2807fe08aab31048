//! What is placed where and why, one row each.
#![allow(clippy::unwrap_used)]

use model::{
    Arch, Area, AreaTerm, Bytes, ChildId, Cpu, Degrees, GpuAsk, GpuDevice, InstanceId, InstanceSpec,
    LatencyTerm, Leg, Name, Outcome, Preference, Resources,
};
use model::{RuntimeKind, Timestamp};
use placement::{Candidate, Fleet, Level, Policy, Want};

/// Reads `name cpu=4 mem=8 disk=100 arch=arm64 vm gpu=t4:2 gpu=a10:1@500 largest=2/4 disk-type=ssd,hdd cordoned down`;
/// memory and disk in GiB, what is not known is a label.
fn candidate(text: &str) -> (Candidate, bool) {
    let mut words = text.split_whitespace();
    let name: Name = words.next().unwrap().parse().unwrap();
    let capacity = Resources { cpu: Cpu(4000), memory: Bytes::gib(8), disk: Bytes::gib(100) };
    let mut candidate = Candidate::new(ChildId::from(format!("id-{name}").as_str()), name, capacity);
    candidate.archs = vec![Arch::Amd64];
    let mut alive = true;
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("cpu", cores) => candidate.capacity.cpu = cores.parse().unwrap(),
            ("mem", gib) => candidate.capacity.memory = Bytes::gib(gib.parse().unwrap()),
            ("disk", gib) => candidate.capacity.disk = Bytes::gib(gib.parse().unwrap()),
            ("arch", arch) => candidate.archs = vec![arch_of(arch)],
            ("vm", _) => candidate.runtimes.push(RuntimeKind::Vm),
            ("cordoned", _) => candidate.cordoned = true,
            ("down", _) => alive = false,
            ("at", text) => candidate.area = Some(area_of(text).0),
            ("leg", text) => {
                let (place, us) = text.split_once(':').unwrap();
                let (min, max) = us.split_once('-').unwrap_or((us, us));
                let leg = Leg { min_us: min.parse().unwrap(), max_us: max.parse().unwrap() };
                candidate.legs.insert(place.to_owned(), leg);
            }
            ("largest", pair) => {
                let (cpu, gib) = pair.split_once('/').unwrap();
                candidate.largest = Some(Resources {
                    cpu: cpu.parse().unwrap(),
                    memory: Bytes::gib(gib.parse().unwrap()),
                    disk: Bytes::gib(1000),
                });
            }
            ("gpu", gpu) => {
                let (model, count) = gpu.split_once(':').unwrap();
                let (count, free) = count.split_once('@').unwrap_or((count, "1000"));
                let device = GpuDevice { model: model.into(), free_milli: free.parse().unwrap() };
                candidate.gpus.extend(vec![device; count.parse().unwrap()]);
            }
            (label, values) => {
                let values = values.split(',').map(str::to_owned).collect();
                candidate.labels.insert(label.into(), values);
            }
        }
    }
    (candidate, alive)
}

/// `48.1/11.5` or `48.1/11.5+100`, with the radius in km; a wish with `?` behind it.
fn area_of(text: &str) -> (Area, bool) {
    let (text, required) = text.strip_suffix('?').map_or((text, true), |text| (text, false));
    let (centre, radius) = text.split_once('+').unwrap_or((text, "0"));
    let (latitude, longitude) = centre.split_once('/').unwrap();
    let degrees = |text: &str| Degrees::new(text.parse().unwrap());
    let area = Area {
        latitude: degrees(latitude),
        longitude: degrees(longitude),
        radius_km: radius.parse().unwrap(),
    };
    (area, required)
}

/// `place:5` or `@workload:5`, in milliseconds; a wish with `?` behind it.
fn latency_of(text: &str) -> LatencyTerm {
    let (text, required) = text.strip_suffix('?').map_or((text, true), |text| (text, false));
    let (name, max_ms) = text.split_once(':').unwrap();
    let workload = name.strip_prefix('@').map(str::to_owned);
    let place = workload.is_none().then(|| name.to_owned());
    LatencyTerm { place, workload, max_ms: max_ms.parse().unwrap(), required }
}

/// `zone:home`, `node:a` or a label as `disk:ssd`, with `*` and the weight behind it.
fn preference_of(text: &str) -> Preference {
    let (text, weight) = text.split_once('*').unwrap();
    let (key, value) = text.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    let mut wish =
        Preference { zone: None, node: None, label: None, value: None, weight: weight.parse().unwrap() };
    match key.as_str() {
        "zone" => wish.zone = Some(value),
        "node" => wish.node = Some(value),
        _ => (wish.label, wish.value) = (Some(key), Some(value)),
    }
    wish
}

fn arch_of(text: &str) -> Arch {
    if text == "arm64" { Arch::Arm64 } else { Arch::Amd64 }
}

/// Reads `cpu=1 mem=1 disk=10 arch=amd64 vm gpu=1@500:t4|a10 on=disk:ssd zone=home spread=g spread=g/rack spread=g/rack<1
/// is=app:db near=app:db away=app:db wish-near=app:db wish-away=app:db avoid=a`.
fn want(number: usize, text: &str) -> Want {
    let mut spec = InstanceSpec::new("image");
    (spec.cpu, spec.memory) = (Cpu(1000), Bytes::gib(1));
    let mut avoid = Vec::new();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let pair = || value.split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let constraints = &mut spec.constraints;
        match key {
            "cpu" => spec.cpu = value.parse().unwrap(),
            "mem" => spec.memory = Bytes::gib(value.parse().unwrap()),
            "disk" => spec.disk = Bytes::gib(value.parse().unwrap()),
            "arch" => constraints.arch = Some(arch_of(value)),
            "vm" => spec.runtime = RuntimeKind::Vm,
            "on" => drop(constraints.node_labels.insert(pair().0, pair().1)),
            "zone" => constraints.zone = Some(value.into()),
            "is" => drop(spec.labels.insert(pair().0, pair().1)),
            "node" => constraints.node = Some(value.into()),
            "area" => {
                let (area, required) = area_of(value);
                let Area { latitude, longitude, radius_km } = area;
                constraints.area = Some(AreaTerm { latitude, longitude, radius_km, required });
            }
            "within" => constraints.latency.push(latency_of(value)),
            "prefer" => constraints.prefer.push(preference_of(value)),
            "workload" => drop(spec.labels.insert("banyan/workload".into(), value.into())),
            "priority" => spec.priority = value.parse().unwrap(),
            "avoid" => {
                let (name, why) = value.split_once(':').unwrap_or((value, ""));
                avoid.push((ChildId::from(format!("id-{name}").as_str()), why.to_owned()));
            }
            "spread" => {
                let (rest, skew) = value.split_once('<').map_or((value, None), |(r, s)| (r, Some(s)));
                let (group, by) = rest.split_once('/').map_or((rest, None), |(g, b)| (g, Some(b)));
                constraints.spread = Some(model::Spread {
                    group: group.into(),
                    by: by.map(str::to_owned),
                    max_skew: skew.map(|skew| skew.parse().unwrap()),
                });
            }
            "gpu" => {
                let (amount, models) = value.split_once(':').unwrap_or((value, ""));
                let (count, milli) = amount.split_once('@').unwrap_or((amount, "1000"));
                let models = models.split('|').filter(|m| !m.is_empty()).map(str::to_owned).collect();
                spec.gpu =
                    Some(GpuAsk { count: count.parse().unwrap(), milli: milli.parse().unwrap(), models });
            }
            "near" | "away" | "wish-near" | "wish-away" => constraints.affinity.push(model::Affinity {
                label: pair().0,
                value: pair().1,
                anti: key.ends_with("away"),
                required: !key.starts_with("wish"),
            }),
            other => panic!("no such word: {other}"),
        }
    }
    let mut want = Want::from_spec(InstanceId::from_random(number as u128), &spec);
    want.avoid = avoid;
    want
}

/// `fleet` has one candidate a line; after `|` stand the wants it already holds, parted by `;`.
fn fleet(level: Level, policy: Policy, text: &str) -> Fleet {
    let mut fleet = Fleet::new(level, policy);
    let mut number = 1000;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (facts, held) = line.split_once('|').unwrap_or((line, ""));
        let (candidate, alive) = candidate(facts);
        let id = candidate.id.clone();
        fleet.upsert(candidate);
        fleet.set_alive(&id, alive);
        for text in held.split(';').filter(|text| !text.trim().is_empty()) {
            number += 1;
            fleet.reserve(&want(number, text), &id).unwrap();
        }
    }
    fleet
}

/// `expect` is the name of the winner, or after `!` every candidate's reason: `! a: is cordoned; b: …`.
fn check_at(level: Level, fleet_text: &str, want_text: &str, expect: &str) {
    for policy in [Policy::BestFit, Policy::Default] {
        let mut fleet = fleet(level, policy, fleet_text);
        let want = want(1, want_text);
        let chosen = fleet.place(&want);
        let explanation = fleet.explain(&want, "test", Timestamp(0));
        let chosen = chosen.ok().map(|choice| choice.child.as_str().trim_start_matches("id-").to_owned());
        assert_eq!(chosen, explanation.chosen, "place and explain agree on '{want_text}'");
        let shown = chosen.unwrap_or_else(|| {
            let reasons = explanation.verdicts.iter().map(|verdict| match &verdict.outcome {
                Outcome::Rejected { reason } => format!("{}: {reason}", verdict.candidate),
                other => panic!("{other:?} without a winner"),
            });
            format!("! {}", reasons.collect::<Vec<_>>().join("; "))
        });
        assert_eq!(shown, expect, "want '{want_text}' in\n{fleet_text}");
    }
}

fn check(fleet_text: &str, want_text: &str, expect: &str) {
    check_at(Level::Nodes, fleet_text, want_text, expect);
}

#[test]
fn room_is_what_capacity_leaves() {
    check("a", "cpu=4 mem=8 disk=100", "a");
    check("a", "cpu=4.001", "! a: needs 4.001 CPU, 4 free");
    check("a mem=2 | mem=1", "mem=4", "! a: needs 4 GiB memory, 1 GiB free");
    check("a disk=10 | disk=4", "disk=7", "! a: needs 7 GiB disk, 6 GiB free");
    check("a cpu=2\nb cpu=4", "cpu=3", "b");
    check("a largest=2/4", "cpu=3", "! a: needs 3 CPU, 2 free on its emptiest node");
    check("a largest=2/4", "cpu=2 mem=4", "a");
    check("", "", "! ");
}

#[test]
fn the_fullest_that_fits_wins() {
    check("a cpu=8\nb cpu=4\nc cpu=2", "", "c");
    check("a cpu=8\nb cpu=4\nc cpu=2", "cpu=3", "b");
    check("a | cpu=1\nb | cpu=2\nc", "", "b");
    check("a mem=8\nb mem=4", "", "b");
    check("b\na\nc", "", "a");
    check("a gpu=t4:1\nb", "", "b");
}

#[test]
fn the_kind_must_be_right() {
    check("a arch=arm64", "arch=amd64", "! a: arch arm64, needs amd64");
    check("a arch=arm64\nb", "arch=amd64", "b");
    check("a", "vm", "! a: does not run vm");
    check("a vm", "vm", "a");
    check(
        "a disk-type=hdd\nb",
        "on=disk-type:ssd",
        "! a: has no label disk-type=ssd; b: has no label disk-type=ssd",
    );
    check("a disk-type=hdd,ssd\nb", "on=disk-type:ssd", "a");
    check("a cordoned\nb down", "", "! a: is cordoned; b: does not answer");
    check("a\nb", "avoid=a", "b");
    check("a", "avoid=a", "! a: refused it before");
    check("a", "avoid=a:full", "! a: refused it: full");
}

#[test]
fn a_zone_is_chosen_by_name_or_id_among_zones_only() {
    check_at(Level::Zones, "home\naway", "zone=away", "away");
    check_at(Level::Zones, "home\naway", "zone=id-home", "home");
    check_at(Level::Zones, "home", "zone=away", "! home: is not zone away");
    check("home", "zone=away", "home");
}

#[test]
fn gpus_are_whole_or_shared_and_of_a_model() {
    check("a\nb gpu=t4:2", "gpu=2", "b");
    check("a gpu=t4:1", "gpu=2", "! a: needs 2 GPUs, 1 free");
    check("a gpu=t4:2 | gpu=1@500", "gpu=2", "! a: needs 2 GPUs, 1 free");
    check("a gpu=t4:1", "gpu=1:a10|h100", "! a: needs 1 a10 or h100 GPU, 0 free");
    check("a gpu=t4:1\nb gpu=a10:1", "gpu=1:a10", "b");
    check("a gpu=t4:1@400", "gpu=1@500", "! a: needs 0.500 GPU, 0 free");
    check("a gpu=t4:1\nb gpu=t4:1 | gpu=1@500", "gpu=1@500", "b");
    check("a gpu=t4:2 | gpu=1@600 ; gpu=1@600", "gpu=1@500", "! a: needs 0.500 GPU, 0 free");
}

#[test]
fn a_share_goes_to_the_fullest_device_with_room() {
    let mut fleet = fleet(Level::Nodes, Policy::BestFit, "a gpu=t4:3");
    let child = ChildId::from("id-a");
    assert_eq!(fleet.reserve(&want(1, "gpu=1@500"), &child), Ok(vec![0]));
    assert_eq!(fleet.reserve(&want(2, "gpu=1@600"), &child), Ok(vec![1]));
    assert_eq!(fleet.reserve(&want(3, "gpu=1@400"), &child), Ok(vec![1]));
    assert_eq!(fleet.reserve(&want(4, "gpu=1"), &child), Ok(vec![2]));
    assert_eq!(fleet.gpus_free(&child), [500, 0, 0]);
    assert!(fleet.reserve(&want(5, "gpu=1"), &child).is_err());
    assert!(fleet.release(&want(2, "").id));
    assert_eq!(fleet.gpus_free(&child), [500, 600, 0]);
}

#[test]
fn spread_prefers_the_emptiest_domain() {
    check("a cpu=2 | spread=g\nb cpu=8", "spread=g", "b");
    check("a cpu=3 | spread=g\nb cpu=8 | spread=g ; spread=g", "spread=g", "a");
    check("a cpu=2 | spread=other\nb cpu=8", "spread=g", "a");
    check("a rack=1 | spread=g/rack\nb rack=1\nc rack=2 cpu=8", "spread=g/rack", "c");
    check("a rack=1\nb cpu=1", "spread=g/rack", "a");
    check("b cpu=1", "spread=g/rack", "b");
    check(
        "a cpu=1 | spread=g\nb cpu=1 | spread=g",
        "cpu=0.5 spread=g",
        "! a: needs 0.5 CPU, 0 free; b: needs 0.5 CPU, 0 free",
    );
}

#[test]
fn skew_is_never_exceeded() {
    let two = "a rack=1 | spread=g/rack\nb rack=2 cpu=1 | cpu=1";
    let full = "its domain has 1 of the group, the emptiest 0; one more exceeds the skew of 1";
    check(two, "spread=g/rack<1", &format!("! a: {full}; b: needs 1 CPU, 0 free"));
    check(two, "spread=g/rack<2", "a");
    check(two, "spread=g/rack", "a");
    check("a\nb rack=1", "spread=g/rack<1", "b");
    check("a", "spread=g/rack<1", "! a: has no label rack to spread by");
    check("a | spread=g\nb cpu=1 | cpu=1", "spread=g<1", &format!("! a: {full}; b: needs 1 CPU, 0 free"));
    // A node of the wrong kind is no domain, nor is one that does not answer.
    check("a | spread=g\nb arch=arm64\nc down", "arch=amd64 spread=g<1", "a");
    check_at(Level::Zones, "a | spread=g\nb cpu=1 | cpu=1", "spread=g<1", "a");
    check_at(Level::Zones, "a cpu=2 | spread=g/zone\nb", "spread=g/zone<1", "b");
    check("a | spread=g/zone\nb cpu=1 | cpu=1", "spread=g/zone<1", "a");
}

#[test]
fn neighbours_are_sought_and_shunned() {
    check("a cpu=2\nb cpu=8 | is=app:db", "near=app:db", "b");
    check("a", "near=app:db", "! a: holds no instance with app=db");
    check("a", "is=app:db near=app:db", "a");
    check("a cpu=2\nb cpu=8 | is=app:db", "is=app:db near=app:db", "b");
    check("a | is=app:db", "away=app:db", "! a: keeps away from instances with app=db");
    check("a cpu=2 | is=app:db\nb cpu=8", "away=app:db", "b");
    check("a | away=app:db", "is=app:db", "! a: holds an instance that keeps away from app=db");
    check("a cpu=3 | is=app:db\nb cpu=8", "wish-away=app:db", "b");
    check("a cpu=3 | is=app:db", "wish-away=app:db", "a");
    check("a cpu=2\nb cpu=8 | is=app:db", "wish-near=app:db", "b");
    check("a cpu=2\nb cpu=1 | cpu=1 is=app:db", "wish-near=app:db", "a");
    check_at(Level::Zones, "a cpu=3 | is=app:db", "away=app:db", "a");
    check_at(Level::Zones, "a cpu=3 | away=app:db", "is=app:db", "a");
    check_at(Level::Zones, "a cpu=2\nb cpu=8 | is=app:db", "near=app:db", "b");
}

#[test]
fn labels_and_groups_of_another_tenant_do_not_count() {
    let (mine, theirs) = (model::TenantId::from_random(1), model::TenantId::from_random(2));
    let mut fleet = fleet(Level::Nodes, Policy::Default, "a");
    fleet.reserve(&want(1, "is=app:db away=app:web").of(&theirs), &ChildId::from("id-a")).unwrap();
    assert!(fleet.place(&want(2, "is=app:web away=app:db").of(&mine)).is_ok());
    assert!(fleet.place(&want(2, "away=app:db").of(&theirs)).is_err());
    assert!(fleet.place(&want(2, "is=app:web").of(&theirs)).is_err());
}

#[test]
fn what_is_held_counts_even_where_nobody_spoke_yet() {
    let mut fleet = Fleet::new(Level::Nodes, Policy::Default);
    let child = ChildId::from("id-a");
    fleet.hold(&want(1, "cpu=3 gpu=1"), &child, &[0]);
    assert!(fleet.place(&want(2, "")).is_err());
    assert_eq!(fleet.explain(&want(2, ""), "test", Timestamp(0)).verdicts[0].candidate, "id-a");
    fleet.upsert(candidate("a gpu=t4:2").0);
    assert_eq!(fleet.free(&child).cpu, Cpu(1000));
    assert_eq!(fleet.gpus_free(&child), [0, 1000]);
    assert!(fleet.place(&want(2, "cpu=2")).is_err());
    assert_eq!(fleet.remove(&child), [want(1, "").id]);
    assert!(fleet.is_empty() && fleet.held() == 0);
}

#[test]
fn facts_that_shrink_under_what_is_held_leave_nothing_free() {
    let mut fleet = fleet(Level::Nodes, Policy::Default, "a gpu=t4:2 | cpu=3 gpu=2");
    fleet.upsert(candidate("a cpu=2 gpu=t4:1").0);
    assert_eq!(fleet.free(&ChildId::from("id-a")).cpu, Cpu(0));
    assert!(fleet.place(&want(1, "cpu=0.1")).is_err());
    assert!(fleet.release(&InstanceId::from_random(1001)));
    assert_eq!(fleet.gpus_free(&ChildId::from("id-a")), [1000]);
    assert!(fleet.place(&want(1, "cpu=2 gpu=1")).is_ok());
}

#[test]
fn a_failed_move_leaves_the_instance_where_it_was() {
    let mut fleet = fleet(Level::Nodes, Policy::Default, "a\nb cpu=1");
    fleet.reserve(&want(1, "cpu=2"), &ChildId::from("id-a")).unwrap();
    assert!(fleet.reserve(&want(1, "cpu=2"), &ChildId::from("id-b")).is_err());
    assert_eq!(fleet.holder(&want(1, "").id).unwrap().0.name.as_str(), "a");
    assert_eq!(fleet.reserved(&ChildId::from("id-a")).cpu, Cpu(2000));
}

#[test]
fn a_long_explanation_lists_some_and_counts_the_rest() {
    let text: String =
        (0..200).map(|n| format!("n{n:03} {}\n", if n < 80 { "cpu=2" } else { "cpu=1" })).collect();
    let mut fleet = fleet(Level::Nodes, Policy::Default, &text);
    let explanation = fleet.explain(&want(1, "cpu=2"), "test", Timestamp(0));
    assert_eq!(explanation.verdicts.len(), model::explain::VERDICTS_MAX);
    assert_eq!(explanation.chosen.as_deref(), Some("n000"));
    let listed = |wanted: fn(&Outcome) -> bool| {
        explanation.verdicts.iter().filter(|verdict| wanted(&verdict.outcome)).count() as u64
    };
    let rejected = listed(|outcome| matches!(outcome, Outcome::Rejected { .. }));
    assert!(rejected > 0);
    let others: Vec<(&str, u64)> = explanation.others.iter().map(|o| (o.reason.as_str(), o.count)).collect();
    let lower = 80 - (64 - rejected);
    assert_eq!(others, [("has less than 2 CPU free", 120 - rejected), ("would do, scored lower", lower)]);
    let full = fleet.nowhere_message(&want(1, "cpu=3"));
    assert_eq!(full, "no place among 200: 200 has less than 3 CPU free");
}

#[test]
fn many_at_once_see_each_other() {
    let mut fleet = fleet(Level::Nodes, Policy::Default, "a cpu=2\nb cpu=2");
    let wants: Vec<Want> = (0..5).map(|n| want(n, "spread=g")).collect();
    let plan = placement::place(&mut fleet, &wants);
    let names: Vec<&str> = plan.placed.iter().map(|(_, choice)| choice.child.as_str()).collect();
    assert_eq!(names, ["id-a", "id-b", "id-a", "id-b"]);
    assert_eq!(plan.nowhere, [wants[4].id.clone()]);
}

#[test]
fn a_pinned_instance_goes_to_its_node_or_nowhere() {
    check("a cpu=2\nb cpu=8", "node=b", "b");
    check("a\nb cordoned", "node=b", "! a: is not node b; b: is cordoned");
    check("a\nb", "node=c", "! a: is not node c; b: is not node c");
    check(
        "a\nb | is=app:web",
        "node=b is=app:web away=app:web",
        "! a: is not node b; b: keeps away from instances with app=web",
    );
    // Root does not know the nodes of a zone.
    check_at(Level::Zones, "home", "node=b", "home");
}

#[test]
fn an_area_is_a_circle_that_the_candidate_must_touch() {
    let munich_and_berlin = "a at=48.137/11.575\nb at=52.52/13.405\nc";
    check(munich_and_berlin, "area=52.5/13.4+50", "b");
    check(munich_and_berlin, "area=48.1/11.5+50", "a");
    check(
        munich_and_berlin,
        "area=40.4/-3.7+100",
        "! a: is 1485 km from the centre, at most 100 km are asked for; b: is 1870 km from the centre, at most 100 km \
         are asked for; c: has not said where on the earth it is",
    );
    check("a cpu=2 at=48.137/11.575\nb cpu=8 at=52.52/13.405", "area=52.5/13.4+50?", "b");
    check("a cpu=2 at=48.137/11.575\nb cpu=8", "area=40.4/-3.7+100?", "a");
    // A zone is somewhere in its own circle.
    check_at(Level::Zones, "home at=50/12+400", "area=52.5/13.4+50", "home");
}

#[test]
fn a_place_must_be_near_enough() {
    let two = "a leg=city:4000\nb leg=city:12000";
    check(two, "within=city:5", "a");
    check(two, "within=city:20", "a");
    check(
        two,
        "within=city:1",
        "! a: is 4 ms from city, at most 1 ms are asked for; b: is 12 ms from city, at most 1 ms are asked for",
    );
    check(two, "within=moon:5", "! a: has not measured the way to moon; b: has not measured the way to moon");
    check("a cpu=2 leg=city:9000\nb cpu=8 leg=city:2000", "within=city:5?", "b");
    check("a cpu=2\nb cpu=8", "within=city:5?", "a");
    check_at(Level::Zones, "home leg=city:2000-90000", "within=city:5", "home");
}

#[test]
fn a_workload_must_be_near_enough() {
    let nodes = "a leg=zone:2000 | workload=db\nb leg=zone:1000\nc leg=zone:9000";
    check(nodes, "within=@db:1 cpu=3", "a");
    check(nodes, "within=@db:3 cpu=4", "b");
    check(
        nodes,
        "within=@db:2 cpu=4",
        "! a: needs 4 CPU, 3 free; b: is 3 ms from db, at most 2 ms are asked for; c: is 11 ms from db, at most 2 ms \
         are asked for",
    );
    check("a\nb", "within=@db:2", "a");
    check("a cpu=2 leg=x:1\nb cpu=8 leg=y:1 | workload=db", "within=@db:2?", "b");
    let zones = "home leg=root:1000-4000 | workload=db\naway leg=root:1000-5000\nfar leg=root:1000-50000";
    check_at(Level::Zones, zones, "within=@db:1", "home");
    check_at(Level::Zones, zones, "within=@db:9 avoid=home", "away");
    check_at(Level::Zones, "home", "within=@db:1", "! home: workload db has no instance yet to be near to");
    check_at(Level::Zones, "home", "within=@db:1 workload=db", "home");
}

#[test]
fn preferences_are_added_by_weight() {
    check("a cpu=2\nb cpu=8 kind=ssd", "prefer=kind:ssd*50", "b");
    check("a cpu=8 kind=ssd\nb cpu=8 rack=r1", "prefer=kind:ssd*10 prefer=rack:r1*20", "b");
    check("a kind=ssd rack=r1\nb rack=r2", "prefer=kind:ssd*30 prefer=rack:r1*30 prefer=rack:r2*50", "a");
    check("a\nb", "prefer=node:b*1", "b");
    check("a", "prefer=node:z*100 prefer=kind:ssd*100", "a");
    check_at(Level::Zones, "home\nother", "prefer=zone:other*100", "other");
    // Among zones nothing is called as a node is: whoever asks for one says in which zones it is.
    check_at(Level::Zones, "home\nother", "prefer=node:other*100", "home");
    check_at(Level::Zones, "home\nother", "prefer=node:n2*100 prefer=zone:other*100", "other");
    check("n1\nn2", "prefer=node:n2*100 prefer=zone:other*100", "n2");
    check("a cpu=1\nb", "prefer=node:a*100 cpu=2", "b");
}

#[test]
fn fewest_and_lowest_give_way() {
    let way = |fleet_text: &str, want_text: &str| {
        let mut fleet = fleet(Level::Nodes, Policy::Default, fleet_text);
        let way = fleet.give_way(&want(1, want_text), |_| Some(false))?;
        Some((way.child.as_str().trim_start_matches("id-").to_owned(), way.others.len()))
    };
    let two = "a | cpu=1 priority=1; cpu=1 priority=1; cpu=2 priority=5\nb | cpu=4 priority=2";
    assert_eq!(way(two, "cpu=2 priority=9"), Some(("b".into(), 1)), "one instead of two");
    assert_eq!(way(two, "cpu=1 priority=9"), Some(("a".into(), 1)), "the lowest of single ones");
    assert_eq!(way(two, "cpu=2 priority=2"), Some(("a".into(), 2)), "equals stay");
    assert_eq!(way(two, "cpu=2 priority=1"), None);
    assert_eq!(way(two, "cpu=5 priority=9"), None, "it would not help");
    assert_eq!(way(two, "cpu=4 priority=9 node=a"), Some(("a".into(), 3)));
    assert_eq!(way("a gpu=t4:1 | gpu=1 priority=0", "gpu=1 priority=1"), Some(("a".into(), 1)));
}
