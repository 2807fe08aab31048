#![allow(clippy::unwrap_used)]

mod live;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::catalogue::Kind;
use crate::entity::{self, ClusterTemplate};

/// Asks for services on machines of given types, without a time limit.
fn ask(
    template: &Value,
    services: &[&str],
    hardware: &[&str],
    images: &[&str],
    size: u32,
) -> Result<Layout, Unsolvable> {
    let template: ClusterTemplate = entity::read(template.clone()).unwrap();
    let strings = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let question = Question {
        template: &template,
        services: strings(services),
        hardware: strings(hardware),
        images: strings(images),
        size,
    };
    fresh(&question, &mut Budget::new(&mut || true)).unwrap().unwrap()
}

/// One hardware, one image, and the constraints alone. Groups are told as `2 a,b`.
fn check(constraints: Value, services: &str, size: u32, expect: &str) {
    let names: Vec<&str> = services.split(' ').collect();
    let template = json!({"name": "t", "constraints": constraints});
    let answer = match ask(&template, &names, &["h"], &["i"], size) {
        Ok(layout) => {
            let told = layout.0.iter().map(|group| format!("{} {}", group.count, group.services.join(",")));
            told.collect::<Vec<_>>().join("; ")
        }
        Err(unsolvable) => {
            let texts: Vec<_> = unsolvable.conflicts.iter().map(|conflict| conflict.text.clone()).collect();
            format!("none: {}", texts.join("; "))
        }
    };
    assert_eq!(answer, expect);
}

fn quantities(rows: &[(&str, u64, u64)]) -> Value {
    let row = |(name, min, max): &(&str, u64, u64)| {
        ((*name).to_owned(), json!({"quantities": {"min": min, "max": max}}))
    };
    json!({"services": rows.iter().map(row).collect::<serde_json::Map<_, _>>()})
}

#[test]
fn services_without_constraints_stand_everywhere() {
    check(json!({}), "base web", 3, "3 base,web");
    check(quantities(&[("db", 1, 1)]), "base db", 3, "1 base,db; 2 base");
}

#[test]
fn the_kind_with_more_services_is_preferred() {
    let mut constraints = quantities(&[("nn", 1, 1), ("dn", 1, 50)]);
    check(constraints.clone(), "base nn dn", 4, "1 base,dn,nn; 3 base,dn");
    constraints["layout"] = json!({"cantcoexist": [["nn", "dn"]]});
    check(constraints, "base nn dn", 4, "3 base,dn; 1 base,nn");
}

#[test]
fn a_layout_that_a_greedy_search_misses_is_found() {
    check(quantities(&[("a", 1, 3), ("b", 1, 2)]), "a b", 5, "3 a; 2 b");
}

#[test]
fn slack_goes_to_the_largest_kind() {
    // Twelve places for ten machines: three may be on one of them.
    check(quantities(&[("a", 0, 4), ("b", 0, 4), ("c", 0, 4)]), "a b c", 10, "1 a,b,c; 3 a; 3 b; 3 c");
}

#[test]
fn services_that_must_share_machines_count_as_one() {
    let constraints = json!({"layout": {"mustcoexist": [["a", "b"], ["b", "c"], ["d", "absent"]]},
        "services": {"a": {"quantities": {"max": 3}}, "c": {"quantities": {"min": 2}}}});
    check(constraints, "a b c d", 5, "3 a,b,c,d; 2 d");
}

#[test]
fn what_clashes_is_told_and_nothing_else() {
    check(
        quantities(&[("a", 0, 1), ("b", 0, 2), ("c", 1, 9)]),
        "a b",
        4,
        "none: a may be on at most 1 machine; b may be on at most 2 machines; \
         every machine must carry a service, and none of the services may be on every machine",
    );
    let mut constraints = quantities(&[("a", 2, 9), ("b", 2, 9), ("c", 1, 9), ("d", 1, 1)]);
    constraints["layout"] = json!({"cantcoexist": [["a", "b"], ["c", "d"], ["b", "c"]]});
    check(
        constraints,
        "a b c d base",
        3,
        "none: a must be on at least 2 machines; b must be on at least 2 machines; a and b cannot be on one machine together",
    );
    check(
        quantities(&[("a", 3, 2)]),
        "a base",
        5,
        "none: a may be on at most 2 machines; a must be on at least 3 machines",
    );
    check(
        json!({"layout": {"cantcoexist": [["a"]]}}),
        "a",
        1,
        "none: a cannot be on any machine; every machine must carry a service, and none of the services may be on every machine",
    );
}

#[test]
fn hardware_is_chosen_by_name_and_by_what_services_allow() {
    let template = json!({"name": "t", "constraints": {"services": {
        "big": {"hardwaretypes": ["xl"], "quantities": {"min": 1, "max": 1}},
        "any": {"quantities": {"min": 1}},
        "new": {"imagetypes": ["u20"], "quantities": {"min": 1, "max": 1}}}}});
    let layout =
        ask(&template, &["big", "any", "new", "base"], &["large", "xl"], &["u18", "u20"], 3).unwrap();
    let told: Vec<_> =
        layout.0.iter().map(|g| (g.count, g.services.len(), &*g.hardwaretype, &*g.imagetype)).collect();
    assert_eq!(told, [(1, 4, "xl", "u20"), (2, 2, "large", "u18")]);
}

#[test]
fn machines_that_no_service_can_share_keep_services_apart() {
    let template = json!({"name": "t", "constraints": {"services": {
        "a": {"hardwaretypes": ["x", "y"], "quantities": {"min": 2}},
        "b": {"hardwaretypes": ["y", "z"], "quantities": {"min": 2}},
        "c": {"hardwaretypes": ["z", "x"], "quantities": {"min": 2}}}}});
    let layout = ask(&template, &["a", "b", "c"], &["x", "y", "z"], &["i"], 3).unwrap();
    let told: Vec<_> = layout.0.iter().map(|g| (g.count, g.services.join(","), &*g.hardwaretype)).collect();
    assert_eq!(told, [(1, "a,c".into(), "x"), (1, "a,b".into(), "y"), (1, "b,c".into(), "z")]);
    assert!(ask(&template, &["a", "b", "c"], &["x", "y", "z"], &["i"], 2).is_err());
}

#[test]
fn steps_and_ratios_hold() {
    let own = |name: &str, quantities: Value| json!({"services": {name: {"quantities": quantities}}});
    check(own("zk", json!({"min": 1, "max": 5, "stepSize": 2})), "base zk", 4, "3 base,zk; 1 base");
    check(own("zk", json!({"ratio": "1:10"})), "base zk", 21, "3 base,zk; 18 base");
    check(own("zk", json!({"min": 3, "ratio": [1, 10]})), "base zk", 21, "3 base,zk; 18 base");
    check(own("zk", json!({"ratio": {"base": "1:4"}})), "base zk", 5, "2 base,zk; 3 base");
    check(own("zk", json!({"ratio": {"absent": "1:4"}})), "base zk", 5, "5 base,zk");
    let pair = json!({"services": {"m": {"quantities": {"ratio": {"w": "1:10"}}}, "w": {"quantities": {"min": 1}}},
        "layout": {"cantcoexist": [["m", "w"]]}});
    check(pair.clone(), "m w", 11, "1 m; 10 w");
    check(pair.clone(), "base m w", 12, "1 base,m; 10 base,w; 1 base");
    check(pair.clone(), "m w", 110, "10 m; 100 w");
    check(
        pair,
        "m w",
        12,
        "none: m must be on 1 for every 10 with w machines; m and w cannot be on one machine together; \
        every machine must carry a service, and none of the services may be on every machine",
    );
}

/// Any number of roles that exclude each other, each needed once.
fn roles(count: usize) -> (Value, Vec<String>) {
    let names: Vec<String> = (0..count).map(|at| format!("role{at:02}")).collect();
    let pairs: Vec<[&String; 2]> = names
        .iter()
        .enumerate()
        .flat_map(|(at, one)| names[at + 1..].iter().map(move |other| [one, other]))
        .collect();
    let services: serde_json::Map<_, _> =
        names.iter().map(|name| (name.clone(), json!({"quantities": {"min": 1}}))).collect();
    (json!({"name": "t", "constraints": {"layout": {"cantcoexist": pairs}, "services": services}}), names)
}

#[test]
fn forty_roles_on_ten_thousand_machines() {
    let (template, names) = roles(40);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let layout = ask(&template, &names, &["h"], &["i"], 10_000).unwrap();
    assert_eq!(layout.0.len(), 40);
    assert_eq!((layout.0[0].count, layout.0[39].count), (9_961, 1));
    let clash = ask(&template, &names, &["h"], &["i"], 39).unwrap_err();
    assert_eq!(clash.conflicts.len(), 40 + 40 * 39 / 2);
}

#[test]
fn forty_services_without_any_rule_but_numbers() {
    let rows: Vec<(String, u64, u64)> = (0..40).map(|at| (format!("s{at:02}"), 1, 3)).collect();
    let rows: Vec<(&str, u64, u64)> =
        rows.iter().map(|(name, min, max)| (name.as_str(), *min, *max)).collect();
    let template = json!({"name": "t", "constraints": quantities(&rows)});
    let names: Vec<&str> = rows.iter().map(|row| row.0).collect();
    let layout = ask(&template, &names, &["h"], &["i"], 100).unwrap();
    assert_eq!((layout.0[0].count, layout.0[0].services.len(), layout.0.len()), (1, 21, 41));
    assert!(ask(&template, &names, &["h"], &["i"], 10_000).is_err());
}

#[test]
fn pairs_and_triples_that_exclude_each_other() {
    for (groups, each) in [(20, 2), (13, 3), (8, 5)] {
        let name = |group: usize, at: usize| format!("g{group:02}-{at}");
        let mut pairs = Vec::new();
        let mut services = serde_json::Map::new();
        for group in 0..groups {
            for at in 0..each {
                services.insert(name(group, at), json!({"quantities": {"min": 1}}));
                pairs.extend((at + 1..each).map(|other| [name(group, at), name(group, other)]));
            }
        }
        let names: Vec<String> = services.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let template =
            json!({"name": "t", "constraints": {"layout": {"cantcoexist": pairs}, "services": services}});
        let layout = ask(&template, &names, &["h"], &["i"], 10_000).unwrap();
        let counts: Vec<u32> = layout.0.iter().map(|group| group.count).collect();
        assert_eq!(layout.0.len(), each);
        assert_eq!(counts[0], 10_001 - u32::try_from(each).unwrap());
        assert!(ask(&template, &names, &["h"], &["i"], u32::try_from(each).unwrap() - 1).is_err());
    }
}

#[test]
fn an_odd_ring_needs_more_than_its_pairs_say() {
    let names = ["a", "b", "c", "d", "e"];
    let pairs: Vec<[&str; 2]> = (0..5).map(|at| [names[at], names[(at + 1) % 5]]).collect();
    let template = |min: u64| {
        let services: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!({"quantities": {"min": min}}))).collect();
        json!({"name": "t", "constraints": {"layout": {"cantcoexist": pairs}, "services": services}})
    };
    assert!(ask(&template(1_000), &names, &["h"], &["i"], 2_499).is_err());
    let layout = ask(&template(1_000), &names, &["h"], &["i"], 2_500).unwrap();
    assert_eq!(layout.size(), 2_500);
    assert!(ask(&template(3), &names, &["h"], &["i"], 7).is_err());
    assert!(ask(&template(3), &names, &["h"], &["i"], 8).is_ok());
}

#[test]
fn time_runs_out_clearly() {
    let mut catalogue = Catalogue::default();
    let (mut template, names) = roles(20);
    template["defaults"] = json!({"services": names, "provider": "p"});
    catalogue.add(Kind::ClusterTemplate, template).unwrap();
    catalogue.add(Kind::Provider, json!({"name": "p", "providertype": "x"})).unwrap();
    catalogue.add(Kind::HardwareType, json!({"name": "h", "providermap": {"p": {"flavor": 1}}})).unwrap();
    catalogue.add(Kind::ImageType, json!({"name": "i", "providermap": {"p": {"image": "x"}}})).unwrap();
    for name in names {
        catalogue.add(Kind::Service, json!({"name": name})).unwrap();
    }
    let request = Request { template: "t".into(), size: 100, ..Request::default() };
    let answer = solve(&catalogue, &request, &mut || false).unwrap();
    assert!(matches!(answer, Answer::Undecided(_)), "{answer:?}");
    let mut looks = 0;
    let answer = solve(&catalogue, &request, &mut || {
        looks += 1;
        true
    });
    assert!(matches!(answer.unwrap(), Answer::Solved(_)));
    assert!(looks > 0);
}

/// The answer by trying everything, as Coopr's rules are written down.
fn brute_force(question: &Question<'_>) -> Option<Layout> {
    let constraints = &question.template.constraints;
    let layout = &constraints.layout;
    let grouped =
        |name: &String| layout.mustcoexist.iter().chain(&layout.cantcoexist).any(|g| g.contains(name));
    let bound: Vec<&String> =
        question.services.iter().filter(|n| constraints.services.contains_key(*n) || grouped(n)).collect();
    let free: Vec<String> = question.services.iter().filter(|n| !bound.contains(n)).cloned().collect();
    let mut kinds: Vec<Group> = Vec::new();
    for subset in 0u32..1 << bound.len() {
        let mut services = free.clone();
        services.extend((0..bound.len()).filter(|at| subset >> at & 1 == 1).map(|at| bound[at].clone()));
        services.sort();
        let machines = question.hardware.iter().flat_map(|h| question.images.iter().map(move |i| (h, i)));
        let mut kind = machines.map(|(hardwaretype, imagetype)| Group {
            count: 0,
            services: services.clone(),
            hardwaretype: hardwaretype.clone(),
            imagetype: imagetype.clone(),
        });
        kinds.extend(kind.find(|kind| super::verify::verify_machine(question, kind)));
    }
    kinds.sort_by(Group::preferred);
    fn walk(question: &Question<'_>, kinds: &mut Vec<Group>, at: usize, left: u32) -> Option<Layout> {
        if at == kinds.len() {
            let layout = Layout(kinds.iter().filter(|kind| kind.count > 0).cloned().collect());
            return (left == 0 && verify(question, &layout).is_empty()).then_some(layout);
        }
        let choices = if at + 1 == kinds.len() { left..=left } else { 0..=left };
        for count in choices.rev() {
            kinds[at].count = count;
            if let Some(found) = walk(question, kinds, at + 1, left - count) {
                return Some(found);
            }
        }
        kinds[at].count = 0;
        None
    }
    walk(question, &mut kinds, 0, question.size)
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn group() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(&NAMES[..], 1..=3)
        .prop_map(|names| names.iter().map(|n| (*n).to_owned()).collect())
}

fn numbers(extras: bool) -> impl Strategy<Value = Value> {
    let max = proptest::option::of(0u64..5);
    let step = proptest::option::of(1u64..4);
    let ratio = proptest::option::of((1u32..3, 1u32..4, proptest::sample::select(&["", "a", "b", "c"][..])));
    (0u64..3, max, step, ratio).prop_map(move |(min, max, step, ratio)| {
        let mut own = json!({"min": min});
        if let Some(max) = max {
            own["max"] = json!(max);
        }
        if let (true, Some(step)) = (extras, step) {
            own["stepSize"] = json!(step);
        }
        if let (true, Some((part, whole, of))) = (extras, ratio) {
            let ratio = json!(format!("{part}:{whole}"));
            own["ratio"] = if of.is_empty() { ratio } else { json!({of: ratio}) };
        }
        own
    })
}

fn types(names: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(names, 0..=names.len())
}

fn any_template(extras: bool) -> impl Strategy<Value = ClusterTemplate> {
    let rule = (numbers(extras), types(&["x", "y", "z"]), types(&["i", "j"]), 0u8..4);
    let rules = proptest::collection::btree_map(proptest::sample::select(&NAMES[..]), rule, 0..5);
    let must = proptest::collection::vec(group(), 0..2);
    let cant = proptest::collection::vec(group().prop_filter("alone", |g| g.len() > 1), 0..4);
    (rules, must, cant).prop_map(|(rules, must, cant)| {
        let services: serde_json::Map<_, _> = rules
            .into_iter()
            .map(|(name, (quantities, hardware, images, picky))| {
                let (hardware, images) = if picky == 0 { (hardware, images) } else { (vec![], vec![]) };
                (
                    name.to_owned(),
                    json!({"quantities": quantities, "hardwaretypes": hardware, "imagetypes": images}),
                )
            })
            .collect();
        let layout = json!({"mustcoexist": must, "cantcoexist": cant});
        entity::read(json!({"name": "t", "constraints": {"layout": layout, "services": services}})).unwrap()
    })
}

fn compare(
    template: &ClusterTemplate,
    services: usize,
    size: u32,
    machines: usize,
) -> Result<(), TestCaseError> {
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let question = Question {
        template,
        services: strings(&NAMES[..services]),
        hardware: strings(&["x", "y", "z"][..machines]),
        images: strings(&["i", "j"][..machines.min(2)]),
        size,
    };
    let mut steps = 0;
    let answer = fresh(
        &question,
        &mut Budget::new(&mut || {
            steps += 1;
            steps < 100_000
        }),
    );
    let answer = answer.unwrap().expect("small questions are answered");
    let expect = brute_force(&question);
    match (answer, expect) {
        (Ok(layout), Some(expect)) => prop_assert_eq!(layout, expect),
        (Err(unsolvable), None) => smallest(&question, &unsolvable)?,
        (answer, expect) => prop_assert!(false, "{:?} but {:?}", answer, expect),
    }
    Ok(())
}

/// The clash is real, and no smaller one is in it.
fn smallest(question: &Question<'_>, unsolvable: &Unsolvable) -> Result<(), TestCaseError> {
    let rules = Rule::all(question.template, &question.services);
    let told = |rule: &Rule| unsolvable.conflicts.contains(&rule.told(question.template, &question.services));
    let (blamed, others): (Vec<Rule>, Vec<Rule>) = rules.into_iter().partition(told);
    let solves = |dropped: &[Rule]| {
        let problem = Problem::new(question, dropped).unwrap();
        let used = vec![0; problem.classes.len()];
        Search::new(&problem).possible(&used, question.size, &mut Budget::new(&mut || true)).unwrap()
    };
    prop_assert!(!solves(&others));
    for rule in blamed {
        let mut dropped = others.clone();
        dropped.push(rule);
        prop_assert!(solves(&dropped));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_answer_is_that_of_trying_everything(
        template in any_template(false), services in 1usize..=4, size in 1u32..=5, machines in 1usize..=3,
    ) {
        compare(&template, services, size, machines)?;
    }

    #[test]
    fn so_it_is_with_steps_and_ratios(
        template in any_template(true), services in 1usize..=4, size in 1u32..=5, machines in 1usize..=2,
    ) {
        compare(&template, services, size, machines)?;
    }
}
