//! How long the solver takes, at several sizes and on templates that are hard. `make bench` prints it.
//! `BANYAN_COOPR_DEFINITIONS` may name the folder of the definitions that Coopr published; then
//! `hadoop-distributed` is among them.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use template::solve::solve;
use template::{Answer, Catalogue, Kind, Request};

/// Longest that one question may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A cluster of data nodes and masters, as most templates are.
fn data_cluster() -> Value {
    let workers = ["datanode", "nodemanager", "regionserver"];
    let masters = ["namenode", "resourcemanager", "master", "zookeeper", "database", "metastore", "history"];
    let mut services: Map<String, Value> = masters
        .iter()
        .map(|name| ((*name).to_owned(), json!({"quantities": {"min": 1, "max": 1}})))
        .collect();
    services.insert("datanode".into(), json!({"quantities": {"min": 2}}));
    json!({"layout": {"mustcoexist": [workers, masters], "cantcoexist": [["namenode", "datanode"], ["master", "regionserver"]]},
        "services": services})
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("s{at:02}")).collect()
}

fn quantities(names: &[String], own: &Value) -> Map<String, Value> {
    names.iter().map(|name| (name.clone(), json!({ "quantities": own }))).collect()
}

/// Every pair for which `apart` says so cannot share a machine.
fn graph(count: usize, own: &Value, apart: impl Fn(usize, usize) -> bool) -> Value {
    let names = names(count);
    let mut pairs = Vec::new();
    for one in 0..count {
        pairs.extend(
            (one + 1..count).filter(|other| apart(one, *other)).map(|other| [&names[one], &names[other]]),
        );
    }
    json!({"layout": {"cantcoexist": pairs}, "services": quantities(&names, own)})
}

/// Pairs at random, the same on every run.
fn random(count: usize, percent: u64, seed: u64, own: &Value) -> Value {
    let dice = |one: usize, other: usize| {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ ((one * 64 + other) as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % 100 < percent
    };
    graph(count, own, dice)
}

fn cases() -> Vec<(String, Value, Vec<u32>)> {
    let all = vec![10, 100, 1_000, 10_000];
    let one = json!({"min": 1});
    let mut cases = vec![
        ("data nodes and masters".to_owned(), data_cluster(), all.clone()),
        (
            "40 roles that exclude each other".to_owned(),
            graph(40, &one, |_, _| true),
            vec![39, 40, 100, 10_000],
        ),
        (
            "40 services, numbers only".to_owned(),
            json!({"services": quantities(&names(40), &json!({"min": 1, "max": 300}))}),
            all.clone(),
        ),
        ("20 pairs".to_owned(), graph(40, &one, |one, other| one / 2 == other / 2), all.clone()),
        ("8 groups of 5".to_owned(), graph(40, &one, |one, other| one / 5 == other / 5), vec![4, 5, 10_000]),
        (
            "ring of 39, 100 each".to_owned(),
            graph(39, &json!({"min": 100}), |a, b| b - a == 1 || b - a == 38),
            vec![10, 100, 205, 206, 1_000, 10_000],
        ),
        (
            "40 with a ratio and steps".to_owned(),
            {
                let mut constraints =
                    graph(40, &json!({"min": 1, "stepSize": 3}), |one, other| one / 4 == other / 4);
                constraints["services"]["s00"]["quantities"] = json!({"ratio": {"s01": "1:10"}});
                constraints
            },
            all,
        ),
    ];
    for percent in [10, 30, 50, 70, 90] {
        for seed in 1..=3 {
            let name = format!("40 at random, {percent}% of pairs apart, {seed}");
            cases.push((
                name,
                random(40, percent, seed, &json!({"min": 1, "max": 4_000})),
                vec![5, 8, 10, 12, 16, 24, 100, 1_000, 10_000],
            ));
        }
    }
    cases
}

fn main() {
    println!("| template | machines | answer | kinds | time |\n|---|---|---|---|---|");
    if let Some(folder) = std::env::var_os("BANYAN_COOPR_DEFINITIONS") {
        let catalogue = published(Path::new(&folder));
        for size in [10, 100, 1_000, 10_000] {
            ask("hadoop-distributed, as published", &catalogue, "hadoop-distributed", size);
        }
    }
    for (name, constraints, sizes) in cases() {
        for size in sizes {
            ask(&name, &catalogue(&constraints), "t", size);
        }
    }
}

fn ask(name: &str, catalogue: &Catalogue, template: &str, size: u32) {
    let request = Request { template: template.into(), size, ..Request::default() };
    let begin = Instant::now();
    let answer = solve(catalogue, &request, &mut || begin.elapsed() < LIMIT).expect("the catalogue is whole");
    let time = begin.elapsed();
    let (told, kinds) = match answer {
        Answer::Solved(solved) => ("layout", solved.layout.0.len()),
        Answer::Unsolvable(unsolvable) => ("none, with a clash of", unsolvable.conflicts.len()),
        Answer::Undecided(_) => ("undecided", 0),
    };
    println!("| {name} | {size} | {told} | {kinds} | {:.1} ms |", time.as_secs_f64() * 1e3);
}

/// The definitions of a folder, by the folders of their kinds.
fn published(folder: &Path) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for kind in Kind::ALL {
        let Ok(entries) = std::fs::read_dir(folder.join(kind.folder())) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let text = std::fs::read_to_string(&path).expect("a definition can be read");
            let value = serde_json::from_str(&text).expect("a definition is JSON");
            catalogue.add(kind, value).expect("a definition is sound");
        }
    }
    catalogue
}

fn catalogue(constraints: &Value) -> Catalogue {
    let mut names: Vec<String> =
        constraints["services"].as_object().expect("made above").keys().cloned().collect();
    for group in constraints["layout"]["mustcoexist"].as_array().into_iter().flatten() {
        names.extend(
            group.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)),
        );
    }
    names.sort();
    names.dedup();
    let mut catalogue = Catalogue::default();
    let mut add = |kind, value| catalogue.add(kind, value).expect("made above");
    for name in &names {
        add(Kind::Service, json!({ "name": name }));
    }
    add(Kind::Provider, json!({"name": "p", "providertype": "x"}));
    add(Kind::HardwareType, json!({"name": "h", "providermap": {"p": {"flavor": "1"}}}));
    add(Kind::ImageType, json!({"name": "i", "providermap": {"p": {"image": "1"}}}));
    let defaults = json!({"services": names, "provider": "p"});
    add(Kind::ClusterTemplate, json!({"name": "t", "defaults": defaults, "constraints": constraints}));
    catalogue
}
