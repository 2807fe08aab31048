#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::entity;

/// A service as `name: ACTIONS / needs to run / needs to be installed`.
fn services(rows: &[(&str, &str, &[&str], &[&str])]) -> BTreeMap<String, Service> {
    let read = |(name, actions, runtime, install): &(&str, &str, &[&str], &[&str])| {
        let kinds = [
            ('i', "install"),
            ('c', "configure"),
            ('n', "initialize"),
            ('s', "start"),
            ('p', "stop"),
            ('r', "remove"),
        ];
        let present = kinds.iter().filter(|(letter, _)| actions.contains(*letter));
        let actions: serde_json::Map<String, Value> =
            present.map(|(_, name)| ((*name).to_owned(), json!({"type": "shell"}))).collect();
        let value = json!({"name": name, "provisioner": {"actions": actions},
            "dependencies": {"runtime": {"requires": runtime}, "install": {"requires": install}}});
        ((*name).to_owned(), entity::read(value).unwrap())
    };
    rows.iter().map(read).collect()
}

fn cluster_nodes(rows: &[(&str, &[&str])]) -> Vec<PlanNode> {
    let node = |(at, (id, services)): (usize, &(&str, &[&str]))| PlanNode {
        id: (*id).to_owned(),
        nodenum: NODENUM_FIRST + u32::try_from(at).unwrap(),
        services: services.iter().map(|name| (*name).to_owned()).collect(),
        hardwaretype: "h".into(),
        imagetype: "i".into(),
        failed: false,
    };
    rows.iter().enumerate().map(node).collect()
}

fn told(graph: &Graph, nodes: &[PlanNode], at: usize) -> String {
    let task = graph.task(at);
    let service = if task.service.is_empty() { String::new() } else { format!(":{}", task.service) };
    format!("{}:{}{service}", nodes[task.node].id, task.name)
}

fn edges(graph: &Graph, nodes: &[PlanNode]) -> Vec<String> {
    let mut all: Vec<String> = (0..graph.len())
        .flat_map(|at| graph.all_needs(at).into_iter().map(move |before| (before, at)))
        .map(|(before, at)| format!("{} > {}", told(graph, nodes, before), told(graph, nodes, at)))
        .collect();
    all.sort();
    all
}

fn check(graph: &Graph, nodes: &[PlanNode], expect: &str) {
    let mut expect: Vec<String> =
        expect.lines().map(|line| line.trim().to_owned()).filter(|l| !l.is_empty()).collect();
    expect.sort();
    assert_eq!(edges(graph, nodes), expect);
    assert_eq!(graph.edge_count(), expect.len());
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_service_without_the_action_is_seen_through() {
    // `mid` neither starts nor initializes, so `top` waits for what `mid` needs.
    let known = services(&[
        ("low", "cs", &[], &[]),
        ("mid", "ic", &["low"], &[]),
        ("top", "ns", &["low", "mid"], &[]),
    ]);
    let nodes = cluster_nodes(&[("a", &["low"]), ("b", &["mid", "top"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let graph = order(&cluster, Order::ClusterCreate, None, None).unwrap();
    check(
        &graph,
        &nodes,
        "a:CREATE > a:CONFIRM
         a:CONFIRM > a:BOOTSTRAP
         a:BOOTSTRAP > a:CONFIGURE:low
         a:CONFIGURE:low > a:START:low
         b:CREATE > b:CONFIRM
         b:CONFIRM > b:BOOTSTRAP
         b:BOOTSTRAP > b:INSTALL:mid
         b:INSTALL:mid > b:CONFIGURE:mid
         b:BOOTSTRAP > b:INITIALIZE:top
         b:INITIALIZE:top > b:START:top
         a:START:low > b:INITIALIZE:top
         a:START:low > b:START:top",
    );
}

#[test]
fn what_is_stopped_takes_with_it_what_needs_it() {
    let known = services(&[
        ("low", "sp", &[], &[]),
        ("mid", "sp", &["low"], &[]),
        ("top", "sp", &["mid", "low"], &[]),
    ]);
    let nodes = cluster_nodes(&[("a", &["low"]), ("b", &["low", "mid", "top"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let plan = |what, name: &str| order(&cluster, what, Some(&strings(&[name])), None).unwrap();
    check(&plan(Order::StopServices, "mid"), &nodes, "b:STOP:top > b:STOP:mid");
    check(
        &plan(Order::StartServices, "mid"),
        &nodes,
        "a:START:low > b:START:mid\n b:START:low > b:START:mid",
    );
    // What `mid` needs is started too, because nobody knows whether it runs.
    check(
        &plan(Order::RestartServices, "mid"),
        &nodes,
        "a:START:low > b:START:mid
         b:START:low > b:START:mid
         b:START:mid > b:START:top
         b:STOP:mid > b:START:mid
         b:STOP:top > b:START:top
         b:STOP:top > b:STOP:mid",
    );
    assert!(order(&cluster, Order::StopServices, Some(&strings(&["none"])), None).is_err());
}

#[test]
fn what_is_provided_is_waited_for_at_every_provider() {
    let mut known = services(&[("db1", "s", &[], &[]), ("db2", "s", &[], &[]), ("web", "s", &["db"], &[])]);
    for name in ["db1", "db2"] {
        known.get_mut(name).unwrap().dependencies.provides.push("db".into());
    }
    let nodes = cluster_nodes(&[("a", &["db1", "web"]), ("b", &["db2"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let graph = order(&cluster, Order::StartServices, None, None).unwrap();
    check(&graph, &nodes, "a:START:db1 > a:START:web\n b:START:db2 > a:START:web");
}

#[test]
fn install_orders_installing_and_runtime_starting() {
    let known = services(&[("low", "is", &[], &[]), ("top", "is", &[], &["low"])]);
    let nodes = cluster_nodes(&[("a", &["low", "top"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let graph = order(&cluster, Order::AddServices, None, None).unwrap();
    check(
        &graph,
        &nodes,
        "a:BOOTSTRAP > a:INSTALL:low
         a:INSTALL:low > a:START:low
         a:BOOTSTRAP > a:INSTALL:top
         a:INSTALL:low > a:INSTALL:top
         a:INSTALL:top > a:START:top",
    );
    let graph = order(&cluster, Order::AddServices, Some(&strings(&["top"])), None).unwrap();
    check(&graph, &nodes, "a:BOOTSTRAP > a:INSTALL:top\n a:INSTALL:top > a:START:top");
}

#[test]
fn configuring_has_an_order_only_with_a_restart() {
    let known = services(&[("low", "csp", &[], &[]), ("top", "csp", &["low"], &[])]);
    let nodes = cluster_nodes(&[("a", &["low", "top"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let plan = |what| order(&cluster, what, None, None).unwrap();
    check(
        &plan(Order::ClusterConfigure),
        &nodes,
        "a:BOOTSTRAP > a:CONFIGURE:low\n a:BOOTSTRAP > a:CONFIGURE:top",
    );
    check(
        &plan(Order::ClusterConfigureWithRestart),
        &nodes,
        "a:BOOTSTRAP > a:STOP:low
         a:BOOTSTRAP > a:STOP:top
         a:STOP:top > a:STOP:low
         a:STOP:low > a:CONFIGURE:low
         a:STOP:top > a:CONFIGURE:top
         a:CONFIGURE:low > a:START:low
         a:CONFIGURE:top > a:START:top
         a:START:low > a:START:top",
    );
    let delete = plan(Order::ClusterDelete);
    assert_eq!((delete.len(), delete.levels().unwrap().len()), (1, 1));
}

#[test]
fn services_that_need_each_other_are_refused() {
    let known = services(&[("a", "s", &["b"], &[]), ("b", "s", &["c"], &[]), ("c", "s", &["b"], &[])]);
    let nodes = cluster_nodes(&[("n", &["a", "b", "c"])]);
    let error = Cluster::new(&known, &nodes).err().unwrap();
    assert_eq!(error.message, "services need each other to run: b needs c needs b");
    let nodes = cluster_nodes(&[("n", &["a", "b"])]);
    assert!(Cluster::new(&known, &nodes).is_ok());
}

fn layout(rows: &[(u32, &[&str])]) -> Layout {
    let group = |(count, services): &(u32, &[&str])| crate::solve::Group {
        count: *count,
        services: strings(services),
        hardwaretype: "h".into(),
        imagetype: "i".into(),
    };
    Layout(rows.iter().map(group).collect())
}

/// The tasks of a change, and its edges between nodes.
fn changed(
    known: &BTreeMap<String, Service>,
    old: &Layout,
    new: &Layout,
) -> (&'static str, Vec<String>, Vec<String>) {
    let assignment = assign(&nodes(old), new);
    let (nodes, graph) = change(known, &assignment).unwrap();
    let mut tasks: Vec<String> = (0..graph.len()).map(|at| told(&graph, &nodes, at)).collect();
    tasks.sort();
    graph.stages(&nodes).unwrap();
    (assignment.action(), tasks, edges(&graph, &nodes))
}

#[test]
fn what_failed_goes_first_when_a_cluster_shrinks() {
    let mut old = nodes(&layout(&[(3, &["top"])]));
    old[1].failed = true;
    let assignment = assign(&old, &layout(&[(1, &["top"])]));
    assert_eq!(assignment.gone.iter().map(|node| node.nodenum).collect::<Vec<_>>(), [1001, 1002]);
    let assignment = assign(&old, &layout(&[(2, &["top"])]));
    assert_eq!(assignment.gone.iter().map(|node| node.nodenum).collect::<Vec<_>>(), [1001]);
}

#[test]
fn a_change_touches_only_what_differs() {
    let known = services(&[
        ("low", "ispr", &[], &[]),
        ("top", "ispr", &["low"], &[]),
        ("new", "ispr", &["low"], &[]),
    ]);
    let old = layout(&[(1, &["low"]), (2, &["top"])]);
    assert_eq!(changed(&known, &old, &old), ("NONE", vec![], vec![]));

    let (action, tasks, edges) = changed(&known, &old, &layout(&[(1, &["low"]), (3, &["top"])]));
    assert_eq!(action, "CLUSTER_EXPAND");
    assert_eq!(
        tasks,
        [
            "1000:START:low",
            "1003:BOOTSTRAP",
            "1003:CONFIRM",
            "1003:CREATE",
            "1003:INSTALL:top",
            "1003:START:top"
        ]
    );
    assert!(edges.contains(&"1000:START:low > 1003:START:top".to_owned()));

    let (action, tasks, edges) = changed(&known, &old, &layout(&[(1, &["low"]), (1, &["top"])]));
    assert_eq!(
        (action, tasks),
        ("CLUSTER_SHRINK", strings(&["1002:DELETE", "1002:REMOVE:top", "1002:STOP:top"]))
    );
    assert_eq!(edges, ["1002:REMOVE:top > 1002:DELETE", "1002:STOP:top > 1002:REMOVE:top"]);

    let (action, tasks, edges) =
        changed(&known, &old, &layout(&[(1, &["low"]), (1, &["top"]), (1, &["new"])]));
    assert_eq!(action, "CLUSTER_CHANGE");
    let expect = [
        "1000:START:low",
        "1002:BOOTSTRAP",
        "1002:INSTALL:new",
        "1002:REMOVE:top",
        "1002:START:new",
        "1002:STOP:top",
    ];
    assert_eq!(tasks, expect);
    assert!(edges.contains(&"1002:REMOVE:top > 1002:BOOTSTRAP".to_owned()));

    let (action, ..) = changed(&known, &old, &Layout::default());
    assert_eq!(action, "CLUSTER_DELETE");
}

#[test]
fn to_make_all_of_it_is_to_create_it() {
    let known = services(&[("low", "icsp", &[], &[]), ("top", "icnsp", &["low"], &["low"])]);
    let wanted = layout(&[(2, &["low", "top"]), (1, &["low"])]);
    let assignment = assign(&[], &wanted);
    assert_eq!(assignment.action(), "CLUSTER_CREATE");
    let (nodes, graph) = change(&known, &assignment).unwrap();
    assert_eq!(nodes, super::nodes(&wanted));
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let created = order(&cluster, Order::ClusterCreate, None, None).unwrap();
    assert_eq!(edges(&graph, &nodes), edges(&created, &nodes));
    let sizes: Vec<usize> = graph.levels().unwrap().iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 3, 3, 3, 5, 5, 2, 2]);
    for stage in graph.stages(&nodes).unwrap() {
        let mut seen: Vec<usize> = stage.iter().map(|task| graph.task(*task).node).collect();
        seen.dedup();
        assert_eq!(seen.len(), stage.len());
    }
}

#[test]
fn an_upgrade_goes_round_a_few_machines_at_a_time() {
    let known = services(&[("low", "isp", &[], &[]), ("top", "isp", &["low"], &[])]);
    let nodes = cluster_nodes(&[("a", &["low", "top"]), ("b", &["low"]), ("c", &["top"])]);
    let cluster = Cluster::new(&known, &nodes).unwrap();
    let graph = upgrade(&cluster, Some(&strings(&["low"])), 1).unwrap();
    check(
        &graph,
        &nodes,
        "a:BOOTSTRAP > a:STOP:low
         a:STOP:low > a:INSTALL:low
         a:INSTALL:low > a:START:low
         a:START:low > b:BOOTSTRAP
         b:BOOTSTRAP > b:STOP:low
         b:STOP:low > b:INSTALL:low
         b:INSTALL:low > b:START:low",
    );
    let both = upgrade(&cluster, None, 2).unwrap();
    assert!(edges(&both, &nodes).contains(&"a:STOP:top > a:STOP:low".to_owned()));
    assert!(edges(&both, &nodes).contains(&"b:START:low > c:BOOTSTRAP".to_owned()));
    assert!(both.levels().is_ok());
    assert!(upgrade(&cluster, None, 0).is_err());
}

#[test]
fn ten_thousand_machines_have_a_small_graph() {
    let known = services(&[
        ("base", "ic", &[], &[]),
        ("low", "is", &[], &["base"]),
        ("top", "ins", &["low"], &["base"]),
    ]);
    let all = nodes(&layout(&[(10_000, &["base", "low", "top"])]));
    let cluster = Cluster::new(&known, &all).unwrap();
    let graph = order(&cluster, Order::ClusterCreate, None, None).unwrap();
    assert_eq!(graph.len(), 10_000 * 10);
    assert!(graph.edge_count() > 300_000_000);
    assert_eq!(graph.levels().unwrap().len(), 8);
}
