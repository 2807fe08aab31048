//! The definitions that Coopr and Loom published, and the values that their own tests expect.
//!
//! They are not part of this repository. Name their folder and run:
//! `BANYAN_COOPR_DEFINITIONS=DIR cargo test -p template --test published -- --ignored`
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use template::entity::{self, ClusterTemplate, Lease, LeaseTime, PartialTemplate, PluginType, Service};
use template::plan::{self, Cluster, Graph, Order, PlanNode};
use template::solve::{self, Answer, Request};
use template::{Catalogue, Kind, check, compose};

fn folder() -> PathBuf {
    PathBuf::from(
        std::env::var_os("BANYAN_COOPR_DEFINITIONS")
            .expect("BANYAN_COOPR_DEFINITIONS names the folder of the definitions"),
    )
}

fn json_at(path: &str) -> Value {
    let path = folder().join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn catalogue(base: &str) -> Catalogue {
    let mut catalogue = Catalogue::default();
    for kind in Kind::ALL {
        let folder = folder().join(base).join(kind.folder());
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            catalogue.add(kind, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    catalogue
}

#[test]
#[ignore = "needs the published definitions"]
fn every_definition_loads_and_only_what_dangles_is_found() {
    let whole = catalogue(".");
    assert_eq!((whole.clustertemplates.len(), whole.services.len()), (15, 53));
    let errors: BTreeSet<String> = check::check(&whole)
        .into_iter()
        .filter(|finding| finding.level == check::Level::Error)
        .map(|finding| format!("{} {}", finding.name, finding.message))
        .collect();
    let expect = [
        "coopr-standalone-docker service 'coopr-standalone' does not exist",
        "docker-base image type 'centos6' is the default but not among the compatible ones",
    ];
    assert_eq!(errors, expect.map(str::to_owned).into());
    let loom = catalogue("loom");
    assert_eq!(loom.clustertemplates.len(), 5);
    assert_eq!(check::check(&loom), []);
}

#[test]
#[ignore = "needs the published definitions"]
fn every_template_is_laid_out_at_several_sizes() {
    for base in [".", "loom"] {
        let whole = catalogue(base);
        for template in whole.clustertemplates.values() {
            for size in [1, 2, 3, 5, 10, 50, 100, 1_000, 10_000] {
                let request = Request { template: template.name.clone(), size, ..Request::default() };
                let answer = solve::solve(&whole, &request, &mut || true).unwrap();
                let allowed = template.constraints.size.allows(size.into());
                match answer {
                    Answer::Solved(solved) => {
                        assert!(allowed);
                        assert_eq!(solved.layout.size(), size);
                        let prepared = solve::prepare(&whole, &request).unwrap().unwrap();
                        assert_eq!(solve::verify(&prepared.question(), &solved.layout), []);
                        let nodes = plan::nodes(&solved.layout);
                        let cluster = Cluster::new(&whole.services, &nodes).unwrap();
                        let graph = plan::order(&cluster, Order::ClusterCreate, None, None).unwrap();
                        assert!(graph.levels().is_ok());
                    }
                    Answer::Unsolvable(unsolvable) => {
                        // Two of the templates contradict the catalogue they came with.
                        let known = match template.name.as_str() {
                            "coopr-standalone-docker" => "there is no service 'coopr-standalone'; there are",
                            "docker-base" => {
                                "no image types are available to use with template docker-base and provider google"
                            }
                            _ => "none is known",
                        };
                        let reason = unsolvable.reason;
                        assert!(!allowed || reason.starts_with(known), "{} {size}: {reason}", template.name);
                    }
                    Answer::Undecided(reason) => panic!("{} {size}: {reason}", template.name),
                }
            }
        }
    }
}

#[test]
#[ignore = "needs the published definitions"]
fn the_plan_of_hadoop_is_the_known_one() {
    let whole = catalogue(".");
    let request = Request { template: "hadoop-distributed".into(), size: 3, ..Request::default() };
    let Answer::Solved(solved) = solve::solve(&whole, &request, &mut || true).unwrap() else {
        panic!("no layout")
    };
    let nodes = plan::nodes(&solved.layout);
    let cluster = Cluster::new(&whole.services, &nodes).unwrap();
    let graph = plan::order(&cluster, Order::ClusterCreate, None, None).unwrap();
    let sizes: Vec<usize> = graph.levels().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3, 3, 3, 10, 10, 5, 1, 2, 2, 2, 4]);
    assert_eq!(graph.len(), 48);
}

fn services(rows: &Map<String, Value>) -> BTreeMap<String, Service> {
    let read = |(name, row): (&String, &Value)| {
        let actions: Map<String, Value> = row["actions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|action| (action.as_str().unwrap().to_lowercase(), json!({"type": "shell"})))
            .collect();
        let dependencies =
            json!({"provides": row["provides"], "install": row["install"], "runtime": row["runtime"]});
        let value = json!({"name": name, "dependencies": dependencies, "provisioner": {"actions": actions}});
        (name.clone(), entity::read(value).unwrap())
    };
    rows.iter().map(read).collect()
}

fn strings(value: &Value) -> Option<Vec<String>> {
    Some(value.as_array()?.iter().map(|item| item.as_str().unwrap().to_owned()).collect())
}

fn plan_nodes(rows: &Map<String, Value>) -> Vec<PlanNode> {
    let node = |(at, (id, services)): (usize, (&String, &Value))| PlanNode {
        id: id.clone(),
        nodenum: u32::try_from(at).unwrap(),
        services: strings(services).unwrap(),
        hardwaretype: String::new(),
        imagetype: String::new(),
        failed: false,
    };
    rows.iter().enumerate().map(node).collect()
}

fn planned(case: &Value) -> (Vec<PlanNode>, Graph) {
    let known = services(case["services"].as_object().unwrap());
    let nodes = plan_nodes(case["nodes"].as_object().unwrap());
    let order = match case["clusterAction"].as_str().unwrap() {
        "CLUSTER_CREATE" => Order::ClusterCreate,
        "CLUSTER_DELETE" => Order::ClusterDelete,
        "ADD_SERVICES" => Order::AddServices,
        "CLUSTER_CONFIGURE" => Order::ClusterConfigure,
        "CLUSTER_CONFIGURE_WITH_RESTART" => Order::ClusterConfigureWithRestart,
        "START_SERVICES" => Order::StartServices,
        "STOP_SERVICES" => Order::StopServices,
        "RESTART_SERVICES" => Order::RestartServices,
        other => panic!("unknown action {other}"),
    };
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let (services, ids) = (strings(&case["plannedServices"]), strings(&case["plannedNodes"]));
    let graph = plan::order(&cluster, order, services.as_deref(), ids.as_deref()).unwrap();
    (nodes, graph)
}

fn told(graph: &Graph, nodes: &[PlanNode], at: usize, with_node: bool) -> String {
    let task = graph.task(at);
    let node = if with_node { format!("{}:", nodes[task.node].id) } else { String::new() };
    let service = if task.service.is_empty() { String::new() } else { format!(":{}", task.service) };
    format!("{node}{}{service}", task.name)
}

#[test]
#[ignore = "needs the published definitions"]
fn every_planner_case_holds() {
    let cases = json_at("planner_cases.json");
    let dags = cases["dag"].as_array().unwrap();
    assert!(dags.len() > 10);
    for case in dags {
        let (nodes, graph) = planned(case);
        let mut edges: Vec<String> = Vec::new();
        for at in 0..graph.len() {
            let line = |before: usize| {
                format!("{} -> {}", told(&graph, &nodes, before, true), told(&graph, &nodes, at, true))
            };
            edges.extend(graph.all_needs(at).into_iter().map(line));
        }
        edges.sort();
        let mut expect = strings(&case["expectedEdges"]).unwrap_or_default();
        expect.sort();
        assert_eq!(edges, expect, "{}", case["name"]);
        if let Some(stages) = case["expectedStages"].as_array() {
            let told = |stage: &Vec<usize>| {
                stage.iter().map(|at| told(&graph, &nodes, *at, true)).collect::<Vec<_>>()
            };
            let found: Vec<Vec<String>> = graph.stages(&nodes).unwrap().iter().map(told).collect();
            assert_eq!(json!(found), json!(stages), "{}", case["name"]);
        }
    }
    for case in cases["stages"].as_array().unwrap() {
        let (nodes, graph) = planned(case);
        let told = |level: &Vec<usize>| {
            let mut names: Vec<String> = level.iter().map(|at| told(&graph, &nodes, *at, false)).collect();
            names.sort();
            names
        };
        let found: Vec<Vec<String>> = graph.levels().unwrap().iter().map(told).collect();
        assert_eq!(json!(found), case["expectedStagesAsMultisets"]);
    }
    resolver_cases(&cases["dependencyResolver"]);
}

/// Services of the resolver's cases on one node: which action waits for which.
fn resolved(
    names: &BTreeSet<String>,
    actions: impl Fn(&str) -> Vec<String>,
    row: impl Fn(&str) -> Value,
) -> BTreeMap<String, Vec<String>> {
    let mut rows = Map::new();
    for name in names {
        let mut value = json!({"provides": [], "install": {}, "runtime": {}});
        value.as_object_mut().unwrap().extend(row(name).as_object().unwrap().clone());
        value["actions"] = json!(actions(name));
        rows.insert(name.clone(), value);
    }
    let known = services(&rows);
    let nodes = plan_nodes(json!({"n": names}).as_object().unwrap());
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let graph = plan::order(&cluster, Order::ClusterCreate, None, None).unwrap();
    let line = |at: usize| told(&graph, &nodes, at, false).replace(':', " ");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for at in 0..graph.len() {
        let service = &graph.task(at).service;
        let others = graph.all_needs(at).into_iter().filter(|other| {
            let other = &graph.task(*other).service;
            !other.is_empty() && other != service
        });
        let mut others: Vec<String> = others.map(line).collect();
        others.sort();
        if !others.is_empty() {
            found.insert(line(at), others);
        }
    }
    found
}

fn names(of: &[&Value]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for value in of {
        match value {
            Value::Object(rows) => {
                all.extend(rows.keys().cloned());
                all.extend(rows.values().flat_map(|row| strings(row).unwrap_or_default()));
            }
            other => all.extend(strings(other).unwrap_or_default()),
        }
    }
    all.retain(|name| name.chars().next().is_some_and(char::is_lowercase));
    all
}

fn resolver_cases(cases: &Value) {
    let expect = |case: &Value| -> BTreeMap<String, Vec<String>> {
        case["expected"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, list)| (name.clone(), strings(list).unwrap()))
            .collect()
    };
    let start = |_: &str| vec!["START".to_owned()];
    for name in ["minimize", "minimizeWithProvides"] {
        let case = &cases[name];
        let all: BTreeSet<String> = case["runtimeRequires"].as_object().unwrap().keys().cloned().collect();
        let row = |name: &str| {
            let provides = strings(&case["provides"][name]).unwrap_or_default();
            json!({"provides": provides, "runtime": {"requires": case["runtimeRequires"][name]}})
        };
        let started = |(name, list): (String, Vec<String>)| {
            (format!("START {name}"), list.iter().map(|name| format!("START {name}")).collect())
        };
        let expect: BTreeMap<String, Vec<String>> = expect(case).into_iter().map(started).collect();
        assert_eq!(resolved(&all, start, row), expect, "{name}");
    }
    let case = &cases["runtimeActions"];
    let all = names(&[
        &case["runtimeRequires"],
        &json!(case["actions"].as_object().unwrap().keys().collect::<Vec<_>>()),
    ]);
    let actions = |name: &str| strings(&case["actions"][name]).unwrap();
    let row = |name: &str| json!({"runtime": {"requires": strings(&case["runtimeRequires"][name]).unwrap_or_default()}});
    assert_eq!(resolved(&all, actions, row), expect(case));
    let case = &cases["installActions"];
    let all = names(&[&case["installRequires"]]);
    let on = strings(&case["installActionOn"]).unwrap();
    let install = |name: &str| if on.iter().any(|n| n == name) { vec!["INSTALL".to_owned()] } else { vec![] };
    let row = |name: &str| json!({"install": {"requires": strings(&case["installRequires"][name]).unwrap_or_default()}});
    assert_eq!(resolved(&all, install, row), expect(case));
    let case = &cases["usesAbsentService"];
    let all: BTreeSet<String> = strings(&case["onCluster"]).unwrap().into_iter().collect();
    let row =
        |name: &str| json!({"install": {"uses": strings(&case["installUses"][name]).unwrap_or_default()}});
    assert_eq!(resolved(&all, |_| vec!["INSTALL".to_owned()], row), expect(case));
}

#[test]
#[ignore = "needs the published definitions"]
fn leases_are_read_and_granted_as_published() {
    let cases = json_at("lifecycle_cases.json");
    for (text, ms) in cases["leaseParse"]["ok"].as_object().unwrap() {
        assert_eq!(LeaseTime::parse(text).unwrap().0, ms.as_u64().unwrap(), "{text}");
    }
    for text in strings(&cases["leaseParse"]["fail"]).unwrap() {
        assert!(LeaseTime::parse(&text).is_err(), "{text}");
    }
    for case in cases["leaseParse"]["json"].as_array().unwrap() {
        let lease: Lease = serde_json::from_value(case[0].clone()).unwrap();
        assert_eq!(json!([lease.initial.0, lease.max.0, lease.step.0]), case[1]);
    }
    for case in cases["initialLease"]["cases"].as_array().unwrap() {
        let lease = Lease { initial: LeaseTime(case[0].as_u64().unwrap()), ..Lease::default() };
        let granted = match case[1].as_i64().unwrap() {
            -1 => lease.granted(None).ok(),
            asked => u64::try_from(asked).ok().and_then(|asked| lease.granted(Some(asked)).ok()),
        };
        assert_eq!(granted, case[2].as_u64(), "{case}");
    }
}

#[test]
#[ignore = "needs the published definitions"]
fn provider_fields_are_grouped_and_missed_as_published() {
    let cases = &json_at("lifecycle_cases.json")["providerFields"];
    let group = &cases["group"];
    let fields = |of: &Value| -> Value {
        let row = |(name, field): (&String, &Value)| {
            let mut field = field.clone();
            field["label"] = json!(name);
            field["type"] = json!("text");
            (name.clone(), field)
        };
        Value::Object(of.as_object().unwrap().iter().map(row).collect())
    };
    let kind: PluginType = entity::read(json!({"name": "t", "parameters": {
        "admin": {"fields": fields(&group["admin"])}, "user": {"fields": fields(&group["user"])}}}))
    .unwrap();
    let (plain, sensitive) = kind.fields_grouped(group["input"].as_object().unwrap());
    assert_eq!((json!(plain), json!(sensitive)), (group["nonsensitive"].clone(), group["sensitive"].clone()));
    let missing = &cases["missing"];
    let kind: PluginType =
        entity::read(json!({"name": "t", "parameters": {"admin": {"required": missing["required"]}}}))
            .unwrap();
    for case in missing["cases"].as_array().unwrap() {
        let given = strings(&case[0]).unwrap();
        let found = kind.parameters.admin.missing(|name| given.iter().any(|given| given == name));
        assert_eq!(json!(found), case[1], "{case}");
    }
}

#[test]
#[ignore = "needs the published definitions"]
fn partial_templates_are_merged_as_published() {
    let mut all = Catalogue::default();
    for entry in std::fs::read_dir(folder().join("partials")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            assert_eq!(stem, "cdap-bad-json-format");
            continue;
        };
        if value.get("immutable").is_some() {
            let partial: PartialTemplate = entity::read(value).unwrap();
            all.partialtemplates.insert(partial.name.clone(), partial);
        } else {
            let template: ClusterTemplate = entity::read(value).unwrap();
            // Several of the files bear another one's name.
            let persisted = stem == template.name;
            all.clustertemplates.insert(if persisted { template.name.clone() } else { stem }, template);
        }
    }
    let cases = &json_at("lifecycle_cases.json")["partialTemplates"];
    let name = cases["resolve"].as_str().unwrap();
    let merged = compose::resolve(&all, &all.clustertemplates[name]).unwrap();
    let expect = &cases["expected"];
    let found: BTreeSet<String> = merged.defaults.services.iter().cloned().collect();
    assert_eq!(found, strings(&expect["services"]).unwrap().into_iter().collect());
    assert_eq!(json!(merged.defaults.config.len()), expect["configKeys"]);
    assert_eq!(json!(merged.defaults.provider), expect["provider"]);
    assert_eq!(json!(merged.defaults.hardwaretype), expect["hardwaretype"]);
    assert_eq!(json!(merged.defaults.imagetype), expect["imagetype"]);
    assert_eq!(json!(merged.defaults.dns_suffix), expect["dnsSuffix"]);
    assert_eq!(json!(merged.constraints.layout.mustcoexist.len()), expect["mustcoexist"]);
    assert_eq!(json!(merged.constraints.layout.cantcoexist.len()), expect["cantcoexist"]);
    let lease = merged.administration.leaseduration.unwrap();
    assert_eq!(
        (json!(lease.initial.0), json!(lease.step.0)),
        (expect["leaseInitialMs"].clone(), expect["leaseStepMs"].clone())
    );
    assert_eq!(merged.defaults.config["ldap"]["endpoint"], expect["ldap.endpoint"]);
    for (name, why) in cases["errors"].as_object().unwrap() {
        let Some(template) = all.clustertemplates.get(name) else { continue };
        match (compose::resolve(&all, template), why.as_str().unwrap()) {
            (Err(error), "immutability") => assert!(error.message.contains("immutable"), "{name}: {error}"),
            (Ok(template), "validation") => {
                // Alone they merge with nothing; what is missing shows when a cluster is asked for.
                assert!(
                    template.defaults.services.is_empty() || template.defaults.provider.is_none(),
                    "{name}"
                );
            }
            (Err(_), "validation") => {}
            (result, why) => panic!("{name}: {why} but {result:?}"),
        }
    }
}
