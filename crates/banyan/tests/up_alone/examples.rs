//! The clusters of examples/clusters on real machines: made, used from outside, hurt, changed, deleted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::cluster::{machines, nodes};
use crate::support::terminal::Terminal;
use crate::support::{Cloud, text, until};

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Made once, from Debian's mirror.
fn image() -> PathBuf {
    let file = home().join("target/cluster-image.tar");
    if !file.exists() {
        let made = Command::new(home().join("scripts/cluster-image.sh")).arg(&file).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    file
}

/// The addresses of the machines that carry a service.
fn carriers(cloud: &Cloud, cluster: &str, service: &str) -> Vec<String> {
    let of = |node: &api::ClusterNode| node.services.iter().any(|name| name.as_str() == service);
    nodes(cloud, cluster)
        .iter()
        .filter(|node| of(node))
        .map(|node| node.addresses["access_v4"].clone())
        .collect()
}

fn page(address: &str) -> Option<String> {
    let mut socket = TcpStream::connect((address, 80)).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    socket.read_to_string(&mut said).ok()?;
    let (head, body) = said.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.trim().to_owned())
}

/// All pages that the load balancer shows in turn.
fn pages(balancer: &str) -> std::collections::BTreeSet<String> {
    (0..12).filter_map(|_| page(balancer)).collect()
}

fn query(address: &str, line: &str) -> Result<String, String> {
    let done = Command::new("psql")
        .args(["-h", address, "-U", "postgres", "-Atqc", line])
        .env("PGPASSWORD", "secret7")
        .env("PGCONNECT_TIMEOUT", "5")
        .output()
        .expect("psql is missing: apt-get install postgresql-client");
    if done.status.success() { Ok(text(&done.stdout).trim().to_owned()) } else { Err(text(&done.stderr)) }
}

/// Without a command a machine gives a terminal.
fn login(cloud: &Cloud, cluster: &str) {
    let mut terminal = Terminal::start(&mut cloud.command(&["cluster", "ssh", cluster]), 24, 80);
    terminal.expect("# ");
    terminal.write("tty; exit 4\n");
    terminal.expect("/dev/pts/");
    assert_eq!(terminal.end().code(), Some(4), "{}", terminal.seen());
}

fn web(cloud: &Cloud) {
    cloud.good(&["cluster", "create", "web", "--template", "web-tier", "--size", "3"]);
    let balancer = carriers(cloud, "web", "haproxy").remove(0);
    until("both are asked", || (pages(&balancer).len() == 2).then_some(()));
    login(cloud, "web");
    cloud.good(&["cluster", "expand", "web", "4"]);
    cloud.good(&["cluster", "configure", "web", "--set", "web.text=good day", "--no-restart"]);
    until("the new one is asked too", || {
        let seen = pages(&balancer);
        (seen.len() == 3 && seen.iter().all(|page| page.starts_with("good day"))).then_some(())
    });
    cloud.good(&["cluster", "ssh", "web", "nginx", "--", "kill $(cat /run/nginx/banyan.pid)"]);
    until("the dead one is passed over", || {
        let shown: Vec<_> = (0..12).map(|_| page(&balancer)).collect();
        shown.iter().all(Option::is_some).then_some(())
    });
    cloud.good(&["cluster", "upgrade", "web", "nginx"]);
    until("all are back", || (pages(&balancer).len() == 3).then_some(()));
    release(cloud, &balancer);
    cloud.good(&["cluster", "delete", "web"]);
}

/// A new release of a service goes onto the machines one by one, while the others answer; then back.
fn release(cloud: &Cloud, balancer: &str) {
    let is_on = |release: &str| {
        let seen = pages(balancer);
        seen.len() == 3 && seen.iter().all(|page| page.ends_with(&format!("release {release}")))
    };
    assert!(is_on("1"), "{:?}", pages(balancer));
    let next = tempfile::tempdir().unwrap();
    let service = std::fs::read_to_string(home().join("examples/clusters/services/nginx.json")).unwrap();
    std::fs::create_dir(next.path().join("services")).unwrap();
    let changed = service.replace("echo 1 >", "echo 2 >");
    assert_ne!(changed, service);
    std::fs::write(next.path().join("services/nginx.json"), changed).unwrap();
    cloud.good(&["catalogue", "apply", "-f", next.path().to_str().unwrap()]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut answers = Vec::new();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                answers.push(page(balancer));
                std::thread::sleep(Duration::from_millis(50));
            }
            answers
        });
        cloud.good(&["cluster", "upgrade", "web", "nginx", "--sync"]);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let answers = asked.join().unwrap();
        let count = |end: &str| answers.iter().flatten().filter(|page| page.ends_with(end)).count();
        assert!(count("release 1") > 0 && count("release 2") > 0, "{answers:?}");
        assert!(answers.iter().all(Option::is_some), "somebody was not answered: {answers:?}");
    });
    until("all have the new release", || is_on("2").then_some(()));
    cloud.good(&["cluster", "rollback", "web"]);
    until("all have the old release", || is_on("1").then_some(()));
}

/// A machine is deleted behind its cluster's back, which is noticed.
fn lose(cloud: &Cloud, cluster: &str, address: &str) -> u32 {
    let node = nodes(cloud, cluster).into_iter().find(|node| node.addresses["access_v4"] == address);
    let node = node.expect("a machine has this address");
    cloud.good(&["instance", "delete", &node.provider_id.unwrap()]);
    until("it is noticed", || {
        (cloud.json(&["cluster", "get", cluster])["status"] == "degraded").then_some(())
    });
    node.num
}

fn postgres(cloud: &Cloud) {
    let set = "postgres.password=secret7";
    cloud.good(&["cluster", "create", "pg", "--template", "postgres", "--size", "3", "--set", set]);
    let proxy = carriers(cloud, "pg", "postgres-proxy").remove(0);
    let written = |line: &str| until("a write goes through the proxy", || query(&proxy, line).ok());
    written("create table t (x int); insert into t values (7)");
    cloud.good(&["cluster", "expand", "pg", "4"]);
    cloud.good(&["cluster", "configure", "pg", "--no-restart"]);
    let servers = carriers(cloud, "pg", "postgres");
    assert_eq!(servers.len(), 3);
    let follows = |server: &str, sum: &str| {
        until("it follows", || {
            let said = query(server, "select sum(x), pg_is_in_recovery() from t");
            (said.as_deref() == Ok(&format!("{sum}|t"))).then_some(())
        });
    };
    servers[1..].iter().for_each(|server| follows(server, "7"));
    cloud.good(&["cluster", "upgrade", "pg", "postgres"]);
    written("insert into t values (1)");
    // The program dies, and goes on where it was.
    let is_first = |node: &&api::ClusterNode| node.addresses["access_v4"] == servers[0];
    let first = nodes(cloud, "pg").iter().find(is_first).unwrap().num.to_string();
    cloud.good(&["cluster", "ssh", "pg", &first, "--", "pkill -9 -u postgres"]);
    cloud.good(&["cluster", "start", "pg", "postgres"]);
    written("insert into t values (2)");
    failover(cloud, &proxy, &servers);
    follows(&carriers(cloud, "pg", "postgres")[2], "23");
    cloud.good(&["cluster", "delete", "pg"]);
}

/// The machine that is written to is lost; one command makes another server the primary, and a machine in its place.
fn failover(cloud: &Cloud, proxy: &str, servers: &[String]) {
    until("the last write is kept by the second", || {
        (query(&servers[1], "select sum(x) from t").as_deref() == Ok("10")).then_some(())
    });
    let lost = lose(cloud, "pg", &servers[0]);
    let shown = cloud.good(&["cluster", "get", "pg"]);
    assert!(shown.contains("missing") && shown.contains("its instance is gone"), "{shown}");
    assert!(query(proxy, "insert into t values (100)").is_err(), "nobody can be written to");
    cloud.good(&["cluster", "repair", "pg"]);
    until("a write goes through the proxy", || query(proxy, "insert into t values (13)").ok());
    assert_eq!(query(proxy, "select sum(x) from t").as_deref(), Ok("23"));
    let now = carriers(cloud, "pg", "postgres");
    assert_eq!((now.len(), &now[..2]), (3, &servers[1..]));
    assert!(nodes(cloud, "pg").iter().all(|node| node.num != lost));
    let primaries = now.iter().filter(|at| query(at, "select pg_is_in_recovery()").as_deref() == Ok("f"));
    assert_eq!(primaries.count(), 1);
    assert_eq!(cloud.json(&["cluster", "get", "pg"])["status"], "active");
}

fn etcd(cloud: &Cloud) {
    let ask = |node: &str, line: &str| {
        cloud.good(&["cluster", "ssh", "kv", node, "--", &format!("ETCDCTL_API=3 etcdctl {line}")])
    };
    cloud.good(&["cluster", "create", "kv", "--template", "etcd", "--size", "3"]);
    ask("1000", "put name banyan");
    assert_eq!(ask("1002", "get --print-value-only name").trim(), "banyan");
    cloud.good(&["cluster", "ssh", "kv", "1001", "--", "kill -9 $(cat /run/etcd.pid)"]);
    // Another leader may have to be chosen first.
    until("a write goes through", || {
        let put = ["cluster", "ssh", "kv", "1000", "--", "ETCDCTL_API=3 etcdctl put name fig"];
        cloud.run(&put).status.success().then_some(())
    });
    assert_eq!(ask("1002", "get --print-value-only name").trim(), "fig");
    cloud.good(&["cluster", "start", "kv"]);
    cloud.good(&["cluster", "expand", "kv", "4"]);
    until("the new member is one", || (ask("1003", "member list").lines().count() == 4).then_some(()));
    cloud.good(&["cluster", "upgrade", "kv", "etcd", "--batch", "1"]);
    until("it is read everywhere", || {
        (ask("1003", "get --print-value-only name").trim() == "fig").then_some(())
    });
    // A machine is lost: its member goes, and another one comes.
    let all = carriers(cloud, "kv", "etcd");
    lose(cloud, "kv", &all[1]);
    cloud.good(&["cluster", "repair", "kv"]);
    until("the new one is a member instead", || {
        let members = ask("1000", "member list");
        (members.lines().count() == 4 && !members.contains(&format!("http://{}:2380", all[1]))).then_some(())
    });
    cloud.good(&["cluster", "shrink", "kv", "3"]);
    until("the one that left is no member", || {
        (ask("1000", "member list").lines().count() == 3).then_some(())
    });
    assert_eq!(ask("1002", "get --print-value-only name").trim(), "fig");
    cloud.good(&["cluster", "delete", "kv"]);
}

#[test]
fn the_example_clusters_work() {
    let image = image();
    let cloud = Cloud::start(&[]);
    cloud.good(&["image", "import", "debian12-cluster", image.to_str().unwrap()]);
    let folder = home().join("examples/clusters");
    cloud.good(&["template", "check", folder.to_str().unwrap()]);
    cloud.good(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);
    web(&cloud);
    postgres(&cloud);
    etcd(&cloud);
    for cluster in ["web", "pg", "kv"] {
        assert_eq!(machines(&cloud, cluster), Vec::<String>::new());
    }
}
