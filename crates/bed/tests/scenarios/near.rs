//! Where instances go by the ways that nodes measured.

use api::WorkloadCreate;
use bed::{Bed, NodeSettings};
use model::{Explanation, LatencyTerm, Outcome, Phase, Preference, WorkloadSpec};

use crate::{WAIT, calm, run, seen, sleeper, small};

const PORT: u16 = 7000;

fn term(place: Option<&str>, workload: Option<&str>, max_ms: u32) -> LatencyTerm {
    let named = |name: Option<&str>| name.map(str::to_owned);
    LatencyTerm { place: named(place), workload: named(workload), max_ms, required: true }
}

/// Waits until root knows of a way from a node that is so long.
fn way(bed: &Bed, node: &str, to: &str, holds: impl Fn(u32) -> bool) {
    bed.until(&format!("the way from {node} to {to}"), WAIT, || {
        let seen = bed.ask(|client| async move { client.node_get(node).await }).ok()?;
        seen.facts.legs.get(to).filter(|leg| holds(leg.max_us)).map(|_| ())
    })
    .unwrap();
}

/// Why the zone left a node out.
fn refusal(bed: &Bed, instance: &str, node: &str) -> String {
    let why = bed.ask(|client| async move { client.instance_why(instance).await }).unwrap();
    let of = |explanation: &Explanation| {
        explanation.verdicts.iter().find_map(|verdict| match &verdict.outcome {
            Outcome::Rejected { reason } if verdict.candidate == node => Some(reason.clone()),
            _ => None,
        })
    };
    why.zone.as_ref().and_then(of).unwrap_or_else(|| panic!("{node} is not refused: {why:#?}"))
}

/// A place that both nodes measure. The first packet of every connection to it is lost on the way from the far one,
/// so that way takes as long as it takes to send it again.
fn by_the_sea() -> Bed {
    let mut bed = small(&[]);
    let sea = bed.bare("sea").unwrap();
    sea.run(&format!("busybox httpd -p {PORT} -h /tmp")).unwrap();
    let more = format!("[places]\nsea = \"{}:{PORT}\"\n", sea.address());
    let settings = NodeSettings { more, ..NodeSettings::default() };
    let near = bed.node("east", "near", &settings).unwrap().address();
    let rules = format!(
        "table inet far {{ set sent {{ type inet_service; flags dynamic, timeout; timeout 20s; }}; \
         chain in {{ type filter hook input priority 0; ip saddr != {near} tcp dport {PORT} \
         tcp flags & (syn | ack) == syn tcp sport != @sent add @sent {{ tcp sport }} drop; }}; }}"
    );
    sea.run(&format!("echo '{rules}' | nft -f -")).unwrap();
    bed.node("east", "far", &settings).unwrap();
    bed
}

#[test]
fn a_node_near_a_place_is_chosen_and_a_far_one_is_refused_with_what_was_measured() {
    let bed = by_the_sea();
    way(&bed, "near", "sea", |us| us < 200_000);
    way(&bed, "far", "sea", |us| us > 500_000);
    let mut spec = sleeper();
    spec.constraints.latency = vec![term(Some("sea"), None, 400)];
    for name in ["one", "two"] {
        assert_eq!(run(&bed, name, spec.clone()).node.unwrap().as_str(), "near");
    }
    let reason = refusal(&bed, "one", "far");
    assert!(reason.contains("from sea, at most 400 ms are asked for"), "{reason}");

    // Where only the far one may hold it, nothing does, and it is said why.
    spec.constraints.node = Some("far".to_owned());
    bed.create("three", spec).unwrap();
    let waits = seen(&bed, "three", "it waits", |seen| {
        seen.phase == Phase::Pending && seen.message.as_deref().is_some_and(|message| message.contains("sea"))
    });
    assert!(waits.node.is_none());
    bed.delete("three").unwrap();
    calm(&bed);
}

#[test]
fn a_node_near_a_workload_is_chosen_and_one_behind_a_slow_link_is_refused() {
    let bed = small(&["near", "far"]);
    bed.delay("far", "east", 60).unwrap();
    // What it measured before counts no more in its next life.
    let far = bed.host("far").unwrap();
    far.kill9().unwrap();
    far.restart().unwrap();
    far.up_wait().unwrap();
    way(&bed, "near", "zone", |us| us < 40_000);
    way(&bed, "far", "zone", |us| us > 100_000);
    let mut spec = WorkloadSpec::new(sleeper());
    spec.instance.constraints.node = Some("near".to_owned());
    let ask = WorkloadCreate { name: "web".parse().unwrap(), app: None, spec };
    bed.ask(|client| async move { client.workload_create(&ask).await }).unwrap();
    bed.until("the workload is there", WAIT, || {
        let found = bed.ask(|client| async move { client.workload_get("web").await }).ok()?;
        (found.status.available == 1).then_some(())
    })
    .unwrap();
    let mut spec = sleeper();
    spec.constraints.latency = vec![term(None, Some("web"), 80)];
    assert_eq!(run(&bed, "close", spec).node.unwrap().as_str(), "near");
    let reason = refusal(&bed, "close", "far");
    assert!(reason.contains("from web, at most 80 ms are asked for"), "{reason}");
    bed.ask(|client| async move { client.workload_delete("web", None).await }).unwrap();
    bed.until("the workload is gone", WAIT, || {
        bed.ask(|client| async move { client.workload_get("web").await }).is_err().then_some(())
    })
    .unwrap();
    calm(&bed);
}

#[test]
fn a_preferred_node_draws_a_workload_into_its_zone() {
    let mut bed = small(&["e1"]);
    bed.zone("west").unwrap();
    bed.node("west", "w1", &NodeSettings::default()).unwrap();
    for node in ["w1", "e1"] {
        let mut spec = WorkloadSpec::new(sleeper());
        let node_wished = Some(node.to_owned());
        spec.instance.constraints.prefer =
            vec![Preference { zone: None, node: node_wished, label: None, value: None, weight: 100 }];
        let name = format!("on-{node}");
        let ask = WorkloadCreate { name: name.parse().unwrap(), app: None, spec };
        bed.ask(|client| async move { client.workload_create(&ask).await }).unwrap();
        let found = bed.until(&format!("{name} runs"), WAIT, || {
            let mut all = bed.instances().ok()?.into_iter();
            all.find(|one| one.name.as_str().starts_with(&name) && one.phase == Phase::Running)?.node
        });
        assert_eq!(found.unwrap().as_str(), node);
    }
    for name in ["on-w1", "on-e1"] {
        bed.ask(|client| async move { client.workload_delete(name, None).await }).unwrap();
    }
    bed.until("both are gone", WAIT, || bed.instances().ok()?.is_empty().then_some(())).unwrap();
    calm(&bed);
}
