//! Instances that ended: the room they give back, and what becomes of them when their node goes.

use api::ListQuery;
use bed::NodeSettings;
use model::{Cpu, Phase, PlaceMode, RestartPolicy};

use crate::{WAIT, calm, seen, sleeper, small};

#[test]
fn what_ended_gives_its_room_back_stays_through_a_drain_and_goes_with_its_node() {
    let mut bed = small(&["e1"]);
    let mut spec = sleeper();
    spec.command = ["sh", "-c", "echo said it"].map(str::to_owned).to_vec();
    (spec.restart, spec.disk) = (RestartPolicy::Never, model::Bytes::mib(1));
    bed.create("job", spec).unwrap();
    let ended = seen(&bed, "job", "it ended", |seen| seen.phase == Phase::Exited);
    let node = |name: &'static str| bed.ask(|client| async move { client.node_get(name).await });
    bed.until("its room is free", WAIT, || {
        let e1 = node("e1").ok()?;
        (e1.reserved.cpu == Cpu(0) && e1.reserved.memory.0 == 0 && e1.resting == 1).then_some(e1)
    })
    .unwrap();
    assert_eq!(node("e1").unwrap().reserved.disk, model::Bytes::mib(1), "its disk is not");
    bed.until("the zone shows it free", WAIT, || {
        let zone = bed.ask(|client| async move { client.zone_get("east").await }).ok()?;
        let facts = zone.details?.facts?;
        (facts.free?.cpu == facts.capacity.cpu).then_some(())
    })
    .unwrap();

    bed.node("east", "e2", &NodeSettings::default()).unwrap();
    bed.ask(|client| async move { client.node_mode("e1", PlaceMode::Draining, true).await }).unwrap();
    let runs = crate::run(&bed, "web", sleeper());
    assert_eq!(runs.node.unwrap().as_str(), "e2");
    let e1 = bed.ask(|client| async move { client.node_get("e1").await }).unwrap();
    assert_eq!((e1.instances, e1.resting, e1.left), (1, 1, None), "it is not in the way");
    assert_eq!(bed.instance("job").unwrap().generation, ended.generation, "nor was it moved");

    bed.ask(|client| async move { client.node_remove("e1", false).await }).unwrap();
    let lost = seen(&bed, "job", "it lost its node", |seen| seen.node.is_none());
    assert_eq!((lost.phase, lost.exit_code), (Phase::Exited, Some(0)), "it ended, and is not begun again");
    let query = ListQuery::new().with("subject", "instance/job");
    let events = bed.ask(|client| async move { client.event_list(&query).await }).unwrap().items;
    let told = events.iter().find(|event| event.what == "instance.unplaced").expect("it is told");
    assert!(told.message.contains("was removed"), "{}", told.message);
    assert!(bed.runs_on(lost.id.as_str()).is_empty());
    bed.delete("job").unwrap();
    bed.delete("web").unwrap();
    calm(&bed);
}
