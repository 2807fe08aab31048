//! Clusters that stand, and what becomes of them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::{NAMES, any_template, brute_force, quantities};
use crate::catalogue::Kind;
use crate::entity::ClusterTemplate;

/// A catalogue with one template, of constraints alone.
fn site(constraints: Value, services: &str) -> Catalogue {
    let mut catalogue = Catalogue::default();
    let names: Vec<&str> = services.split(' ').collect();
    let mut add = |kind, value| catalogue.add(kind, value).unwrap();
    add(
        Kind::ClusterTemplate,
        json!({"name": "t", "defaults": {"services": names, "provider": "p"}, "constraints": constraints}),
    );
    add(Kind::Provider, json!({"name": "p", "providertype": "x"}));
    add(Kind::HardwareType, json!({"name": "h", "providermap": {"p": {"flavor": 1, "cost": "0.25"}}}));
    add(Kind::ImageType, json!({"name": "i", "providermap": {"p": {"image": "x"}}}));
    for name in &names {
        add(Kind::Service, json!({"name": name}));
    }
    catalogue
}

fn standing(from: &[(u32, &str)]) -> Layout {
    let group = |(count, services): &(u32, &str)| Group {
        count: *count,
        services: services.split(',').map(str::to_owned).collect(),
        hardwaretype: "h".into(),
        imagetype: "i".into(),
    };
    Layout(from.iter().map(group).collect()).normal()
}

/// What becomes of a cluster.
fn live(constraints: Value, services: &str, from: &[(u32, &str)], size: u32, expect: &str) {
    let catalogue = site(constraints, services);
    let request = Request { template: "t".into(), size, ..Request::default() };
    let answer = match adapt(&catalogue, &request, &standing(from), &mut || true).unwrap() {
        Answer::Solved(solved) => {
            assert_eq!(solved.cost, Some(f64::from(size) / 4.0));
            let told =
                solved.layout.0.iter().map(|group| format!("{} {}", group.count, group.services.join(",")));
            let anew = if solved.anew { " anew" } else { "" };
            told.collect::<Vec<_>>().join("; ") + anew
        }
        other => format!("{other:?}"),
    };
    assert_eq!(answer, expect);
}

#[test]
fn a_live_cluster_grows_and_shrinks_without_moving_anything() {
    let constraints = quantities(&[("db", 1, 2), ("web", 1, 50)]);
    let stands = [(1, "base,db"), (2, "base,web")];
    live(constraints.clone(), "base db web", &stands, 3, "1 base,db; 2 base,web");
    // A new cluster would have the database beside the web server.
    live(constraints.clone(), "base db web", &stands, 5, "1 base,db,web; 1 base,db; 3 base,web");
    live(constraints.clone(), "base db web", &stands, 2, "1 base,db; 1 base,web");
    let mut apart = constraints;
    apart["layout"] = json!({"cantcoexist": [["db", "web"]]});
    live(apart, "base db web", &stands, 5, "2 base,db; 3 base,web");
}

#[test]
fn services_are_added_to_and_taken_from_machines_that_stand() {
    let constraints = quantities(&[("nn", 1, 1), ("dn", 1, 50), ("hive", 1, 1), ("agent", 2, 2)]);
    let stands = [(1, "base,nn"), (3, "base,dn")];
    // The one with the smallest maximum is placed first, on the preferred kind.
    live(
        constraints.clone(),
        "base nn dn hive agent",
        &stands,
        4,
        "1 agent,base,dn,hive; 1 agent,base,dn; 1 base,dn; 1 base,nn",
    );
    live(constraints, "base nn dn extra", &stands, 4, "3 base,dn,extra; 1 base,extra,nn");
    live(json!({}), "base", &[(2, "base,old"), (1, "base")], 3, "3 base");
    // What carried nothing else gets what stands everywhere.
    live(json!({}), "base", &[(2, "old")], 2, "2 base");
}

#[test]
fn a_service_is_never_lost_when_another_finds_no_place() {
    let constraints = json!({"layout": {"cantcoexist": [["b", "x"], ["b", "y"]]},
        "services": {"a": {"quantities": {"max": 1}}, "b": {"quantities": {"min": 1}}}});
    let mut from = vec![(1, "x"), (1, "y")];
    live(constraints.clone(), "a b x y", &from, 2, "1 a,x,y; 1 b anew");
    from.push((1, "z"));
    live(constraints, "a b x y z", &from, 3, "1 a,x; 1 b,z; 1 y");
}

#[test]
fn what_must_share_machines_is_added_together() {
    let constraints = json!({"layout": {"mustcoexist": [["a", "b"], ["x", "c"]]}, "services": {"a": {"quantities": {"max": 1}}}});
    live(constraints, "a b c x y", &[(2, "x"), (1, "y")], 3, "1 a,b,c,x; 1 c,x; 1 y");
}

#[test]
fn a_service_that_can_share_with_none_gets_machines_of_its_own() {
    let constraints = json!({"layout": {"cantcoexist": [["web", "db"]]}, "services": {
        "db": {"quantities": {"min": 1, "max": 2}}, "web": {"quantities": {"min": 1}}}});
    let stands = [(3, "base,web")];
    live(constraints.clone(), "base web db", &stands, 4, "1 base,db; 3 base,web");
    live(constraints.clone(), "base web db", &stands, 6, "2 base,db; 4 base,web");
    // Without another machine one of those that stand gives way, and not all of them.
    live(constraints, "base web db", &stands, 3, "1 base,db; 2 base,web anew");
}

#[test]
fn machines_left_idle_go_with_a_smaller_size() {
    let constraints = quantities(&[("db", 1, 2), ("web", 1, 50), ("old", 0, 9)]);
    let stands = [(2, "web"), (1, "db"), (2, "old"), (1, "old,web")];
    live(constraints.clone(), "web db", &stands, 4, "1 db; 3 web");
    // What is idle takes what comes.
    live(constraints.clone(), "web db new", &stands, 6, "1 db,new; 3 new,web; 2 new");
    live(constraints, "web db", &stands, 6, "1 db,web; 1 db; 4 web anew");
}

#[test]
fn the_next_size_that_keeps_all_is_known() {
    let constraints = json!({"layout": {"cantcoexist": [["a", "b"]]}, "services": {
        "a": {"quantities": {"min": 1}}, "b": {"quantities": {"min": 2, "max": 2}}}});
    let sizes = |services: &str, from: &[(u32, &str)]| {
        let (catalogue, from) = (site(constraints.clone(), services), standing(from));
        let request = Request { template: "t".into(), size: from.size(), ..Request::default() };
        size_that_keeps(&catalogue, &request, &from, &mut || true)
    };
    assert_eq!(sizes("a b", &[(3, "a")]), Some(5));
    assert_eq!(sizes("a", &[(2, "a"), (1, "old")]), Some(2));
    assert_eq!(sizes("a b", &[(1, "a,b")]), None);
}

#[test]
fn a_large_cluster_gets_a_service_of_its_own_machines() {
    let names: Vec<String> = (0..30).map(|at| format!("s{at:02}")).collect();
    let pairs: Vec<[&str; 2]> = names.iter().map(|name| [name.as_str(), "alone"]).collect();
    let constraints = json!({"layout": {"cantcoexist": pairs}, "services": {"alone": {"quantities": {"min": 3, "max": 3}}}});
    let services = names.join(" ");
    let catalogue = site(constraints, &format!("{services} alone"));
    let from = standing(&[(9_000, &names.join(",")), (900, "s00")]);
    let ask = |size| {
        let request = Request { template: "t".into(), size, ..Request::default() };
        match adapt(&catalogue, &request, &from, &mut || true).unwrap() {
            Answer::Solved(solved) => (solved.anew, solved.layout.counts()["alone"]),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(9_903), (false, 3));
    assert_eq!(ask(9_900), (true, 3));
}

/// How many machines of `from` a layout has at most as they were, but for what is new to the cluster.
fn kept(from: &[Group], old: &[&String], layout: &Layout) -> usize {
    let Some((first, rest)) = from.split_first() else { return 0 };
    let mut best = kept(rest, old, layout);
    for (at, group) in layout.0.iter().enumerate().filter(|(_, group)| group.count > 0) {
        let same = |name: &&String| old.contains(name);
        let is_kept = group.hardwaretype == first.hardwaretype
            && group.imagetype == first.imagetype
            && group.services.iter().filter(same).eq(first.services.iter());
        if is_kept {
            let mut left = layout.clone();
            left.0[at].count -= 1;
            best = best.max(1 + kept(rest, old, &left));
        }
    }
    best
}

/// Whether a service is on every machine.
fn is_free(template: &ClusterTemplate, name: &String) -> bool {
    let layout = &template.constraints.layout;
    let mut groups = layout.mustcoexist.iter().chain(&layout.cantcoexist);
    !template.constraints.services.contains_key(name) && !groups.any(|group| group.contains(name))
}

/// The most machines that can stay, by trying everything; none when nothing can be found that way.
fn most_kept(question: &Question<'_>, from: &[Group], old: &[&String]) -> Option<usize> {
    let free = |name: &String| is_free(question.template, name);
    let new: Vec<&String> = question.services.iter().filter(|name| !old.contains(name)).collect();
    let subsets = |names: &[&String]| -> Vec<Vec<String>> {
        let chosen = |set: u32| (0..names.len()).filter(move |at| set >> at & 1 == 1);
        let whole = |set: u32| {
            let all: Vec<String> = chosen(set).map(|at| names[at].clone()).collect();
            names.iter().all(|name| !free(name) || all.contains(name)).then_some(all)
        };
        (0u32..1 << names.len()).filter_map(whole).collect()
    };
    let all: Vec<&String> = question.services.iter().collect();
    let machine = |services: Vec<String>, hardware: &String, image: &String| Group {
        count: 1,
        services,
        hardwaretype: hardware.clone(),
        imagetype: image.clone(),
    };
    let mut fresh: Vec<Group> = Vec::new();
    for services in subsets(&all) {
        let places = question.hardware.iter().flat_map(|h| question.images.iter().map(move |i| (h, i)));
        let mut kinds = places.map(|(hardware, image)| machine(services.clone(), hardware, image));
        fresh.extend(kinds.find(|kind| verify::verify_machine(question, kind)));
    }
    let grown = |group: &Group| -> Vec<Group> {
        let with = |more: Vec<String>| {
            let mut services: Vec<String> = group.services.iter().cloned().chain(more).collect();
            services.sort();
            machine(services, &group.hardwaretype, &group.imagetype)
        };
        let mut all: Vec<Group> = subsets(&new).into_iter().map(with).collect();
        all.retain(|group| verify::verify_machine(question, group));
        all
    };
    let size = question.size as usize;
    // Where more are given up than have to be, no service that stands may be lost by that.
    let good = |machines: &[Group], count: usize| {
        let layout = Layout(machines.to_vec());
        let counts = layout.counts();
        let is_there = |name: &String| counts.contains_key(name.as_str());
        let kept = count == from.len().min(size) || old.iter().all(|name| is_there(name));
        kept && new.iter().all(|name| is_there(name)) && verify(question, &layout).is_empty()
    };
    fn any(choices: &[&[Group]], chosen: &mut Vec<Group>, good: &dyn Fn(&[Group]) -> bool) -> bool {
        let Some((first, rest)) = choices.split_first() else { return good(chosen) };
        first.iter().enumerate().any(|(at, group)| {
            // New machines are alike, so that their order does not matter.
            let rest: Vec<&[Group]> = rest
                .iter()
                .map(|other| if std::ptr::eq(*other, *first) { &first[at..] } else { *other })
                .collect();
            chosen.push(group.clone());
            let found = any(&rest, chosen, good);
            chosen.pop();
            found
        })
    }
    let options: Vec<Vec<Group>> = from.iter().map(grown).collect();
    let sets = |count: usize| (0u32..1 << from.len()).filter(move |set| set.count_ones() as usize == count);
    (0..=from.len().min(size)).rev().find(|count| {
        sets(*count).any(|set| {
            let mut choices: Vec<&[Group]> =
                (0..from.len()).filter(|at| set >> at & 1 == 1).map(|at| &options[at][..]).collect();
            choices.extend(std::iter::repeat_n(&fresh[..], size - count));
            any(&choices, &mut Vec::new(), &|machines| good(machines, *count))
        })
    })
}

/// A template with its catalogue, what stands, which services it has and is to have, and the size that is asked for.
fn compare(
    template: ClusterTemplate,
    from: Vec<(Vec<usize>, usize)>,
    wanted: &[usize],
    size: u32,
) -> Result<(), TestCaseError> {
    let mut template = template;
    template.defaults.provider = Some("p".into());
    template.defaults.services = wanted.iter().map(|at| NAMES[*at].to_owned()).collect();
    let mut catalogue = Catalogue::default();
    catalogue.add(Kind::Provider, json!({"name": "p", "providertype": "x"})).unwrap();
    for name in ["x", "y"] {
        let map = json!({"p": {"flavor": "f"}});
        catalogue.add(Kind::HardwareType, json!({"name": name, "providermap": map})).unwrap();
    }
    catalogue.add(Kind::ImageType, json!({"name": "i", "providermap": {"p": {"image": "x"}}})).unwrap();
    for name in NAMES {
        catalogue.add(Kind::Service, json!({"name": name})).unwrap();
    }
    let group = |(services, hardware): (Vec<usize>, usize)| Group {
        count: 1,
        services: services.into_iter().map(|at| NAMES[at].to_owned()).collect(),
        hardwaretype: ["x", "y"][hardware].into(),
        imagetype: "i".into(),
    };
    let mut from: Vec<Group> = from.into_iter().map(group).collect();
    let everywhere: Vec<String> =
        NAMES.map(str::to_owned).into_iter().filter(|name| is_free(&template, name)).collect();
    let there = |name: &&String| from.iter().any(|group| group.services.contains(name));
    let everywhere: Vec<String> = everywhere.iter().filter(there).cloned().collect();
    for group in &mut from {
        group.services.extend(everywhere.iter().cloned());
        group.services.sort();
        group.services.dedup();
    }
    catalogue.clustertemplates.insert(template.name.clone(), template);
    let request = Request { template: "t".into(), size, ..Request::default() };
    let Ok(prepared) = prepare(&catalogue, &request).unwrap() else { return Ok(()) };
    let question = prepared.question();
    let (whole, mut ticks) = (Layout(from.clone()).normal(), 0);
    let answer = adapt(&catalogue, &request, &whole, &mut || {
        ticks += 1;
        ticks < 100_000
    });
    let mut stripped = from.clone();
    stripped.iter_mut().for_each(|group| group.services.retain(|name| question.services.contains(name)));
    let counts = whole.counts();
    let old: Vec<&String> =
        question.services.iter().filter(|name| counts.contains_key(name.as_str())).collect();
    let best = most_kept(&question, &stripped, &old);
    match answer.unwrap() {
        Answer::Solved(solved) => {
            prop_assert!(verify(&question, &solved.layout).is_empty(), "{:?}", solved.layout);
            prop_assert_eq!(solved.layout.size(), size);
            let stays = kept(&stripped, &old, &solved.layout);
            prop_assert!(stays >= best.unwrap_or(0), "{} of {:?} stay: {:?}", stays, best, solved.layout);
            prop_assert_eq!(solved.anew, best != Some(from.len().min(size as usize)), "{:?}", best);
        }
        Answer::Unsolvable(unsolvable) => {
            prop_assert_eq!(best, None);
            let found = brute_force(&question);
            prop_assert!(found.is_none(), "{:?} but {:?}", unsolvable, found);
        }
        Answer::Undecided(why) => prop_assert!(false, "{}", why),
    }
    Ok(())
}

fn machines() -> impl Strategy<Value = Vec<(Vec<usize>, usize)>> {
    let services = proptest::sample::subsequence(&[0usize, 1, 2, 3][..], 1..=3);
    proptest::collection::vec((services, 0usize..2), 1..=4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn as_many_machines_stay_as_can(
        template in any_template(false), from in machines(),
        wanted in proptest::sample::subsequence(&[0usize, 1, 2, 3][..], 1..=4), size in 1u32..=5,
    ) {
        compare(template, from, &wanted, size)?;
    }

    #[test]
    fn so_it_is_with_steps_and_ratios(
        template in any_template(true), from in machines(),
        wanted in proptest::sample::subsequence(&[0usize, 1, 2, 3][..], 1..=4), size in 1u32..=5,
    ) {
        compare(template, from, &wanted, size)?;
    }
}
