//! Joining: what a zone may be called, and what becomes of one that cannot listen.

use std::net::TcpListener;

use crate::support::{self, Cloud, until};
use crate::{Operator, Role, free_port, root_start};

fn config(cloud: &Cloud, name: &str, link: u16, token: &str, ports: (u16, u16), names: &str) -> String {
    format!(
        "name = \"{name}\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{}\"\nmqtt_listen = \"127.0.0.1:{}\"\nnames = [{names}]\n",
        cloud.data().join(name).display(),
        token.trim(),
        ports.0,
        ports.1,
    )
}

/// What a zone says that does not come up.
fn refused(cloud: &Cloud, config: &str) -> String {
    let file = cloud.home.join("refused.toml");
    std::fs::write(&file, config).unwrap();
    let output = cloud.command(&["zone", "--config"]).arg(&file).output().unwrap();
    assert!(!output.status.success());
    support::text(&output.stderr)
}

fn connected(operator: &Operator<'_>, zone: &str) {
    until("the zone is there", || operator.good(&["zone", "get", zone]).contains("connected").then_some(()));
}

#[test]
fn a_zone_has_its_own_names_and_nobody_elses() {
    let cloud = Cloud::new();
    let (_root, operator, link) = root_start(&cloud, "\"root.test\", \"10.9.9.9\"");
    let ports = || (free_port(), free_port());
    let token = operator.good(&["enroll", "zone"]);
    for root_is in ["\"root.test\"", "\"ROOT.test.\"", "\"::ffff:10.9.9.9\""] {
        let said = refused(&cloud, &config(&cloud, "east", link, &token, ports(), root_is));
        assert!(said.contains("belongs to root"), "{said}");
    }
    // The token is still good.
    let at = ports();
    let mut east = Role::start(&cloud, "zone", &config(&cloud, "east", link, &token, at, "\"east.test\""));
    connected(&operator, "east");

    let token = operator.good(&["enroll", "zone"]);
    let said = refused(&cloud, &config(&cloud, "west", link, &token, ports(), "\"east.test\""));
    assert!(said.contains("belongs to the zone 'east'") && said.contains("--host east.test"), "{said}");

    // Nor later, when it asks for a new certificate; unless the operator says so.
    east.kill();
    let more =
        config(&cloud, "east", link, "", at, "\"east.test\", \"root.test\"").replace("token = \"\"\n", "");
    let said = refused(&cloud, &more);
    assert!(said.contains("did not join with the name 'root.test'"), "{said}");
    operator.good(&["zone", "host", "east", "root.test"]);
    let _east = Role::start(&cloud, "zone", &more);

    let token = operator.good(&["enroll", "zone", "--host", "east.test"]);
    let _west = Role::start(&cloud, "zone", &config(&cloud, "west", link, &token, ports(), "\"east.test\""));
    connected(&operator, "west");
}

#[test]
fn a_zone_that_cannot_listen_does_not_join() {
    let cloud = Cloud::new();
    let (_root, operator, link) = root_start(&cloud, "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, free) = (taken.local_addr().unwrap().port(), free_port());
    let token = operator.good(&["enroll", "zone"]);
    for ports in [(port, free), (free, port)] {
        let said = refused(&cloud, &config(&cloud, "east", link, &token, ports, ""));
        assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{said}");
    }
    assert_eq!(operator.good(&["zone", "list", "-o", "name"]), "");
    drop(taken);
    let _zone = Role::start(&cloud, "zone", &config(&cloud, "east", link, &token, (port, free), ""));
    connected(&operator, "east");
    let certificates = || {
        let health = operator.output(&["health", "--all"]);
        let of_zone = |line: &&str| line.contains("zone east") && line.contains("certificate");
        health.lines().filter(of_zone).count()
    };
    until("the zone tells of its certificate", || (certificates() > 0).then_some(()));
    assert_eq!(certificates(), 1);
}

#[test]
fn a_token_is_listed_and_can_be_revoked() {
    let cloud = Cloud::new();
    let (_root, operator, link) = root_start(&cloud, "");
    let listed = || -> Vec<serde_json::Value> {
        serde_json::from_str(&operator.good(&["enroll", "list", "-o", "json"])).unwrap()
    };
    let ports = || (free_port(), free_port());
    let token = operator.good(&["enroll", "zone"]);
    let id = listed()[0]["id"].as_str().unwrap().to_owned();
    operator.good(&["enroll", "revoke", &id]);
    assert!(listed().is_empty());
    let said = refused(&cloud, &config(&cloud, "east", link, &token, ports(), ""));
    assert!(said.contains("the token is not valid"), "{said}");
    let history = operator.good(&["event", "list"]);
    assert!(history.contains("enrolment.refused") && history.contains("calls itself 'east'"), "{history}");

    let token = operator.good(&["enroll", "zone"]);
    let _east = Role::start(&cloud, "zone", &config(&cloud, "east", link, &token, ports(), ""));
    connected(&operator, "east");
    assert!(listed()[0]["used_by"].as_str().unwrap().starts_with("z-"), "{:?}", listed());
    // People are shown names.
    let shown = operator.good(&["enroll", "list"]);
    assert!(shown.contains("east") && !shown.contains("z-"), "{shown}");
    assert!(operator.good(&["event", "list"]).contains("zone.enrol"));
    operator.good(&["enroll", "node", "--zone", "east"]);
    let of_node = listed().into_iter().find(|one| one["role"] == "node").expect("the zone tells of it");
    assert_eq!(of_node["zone"], "east");
    operator.good(&["enroll", "revoke", of_node["id"].as_str().unwrap()]);
    assert!(listed().iter().all(|one| one["role"] == "zone"));
}
