//! A zone is lost and found again.

use bed::NodeSettings;
use model::Phase;

use crate::{WAIT, calm, run, seen, sleeper, small};

#[test]
fn a_lost_zone_gives_its_instances_to_another_and_drops_them_when_it_is_back() {
    let mut bed = small(&["e1"]);
    let before = run(&bed, "web", sleeper());
    let id = before.id.as_str();
    bed.zone("west").unwrap();
    bed.node("west", "w1", &NodeSettings::default()).unwrap();

    bed.cut("east", "root").unwrap();
    bed.until("it runs in the other zone as well", WAIT, || {
        bed.runs_on(id).contains(&"w1".to_owned()).then_some(())
    })
    .unwrap();
    assert!(bed.runs_on(id).contains(&"e1".to_owned()), "the zone that is cut off keeps its promise");
    let after = seen(&bed, "web", "root sees it there", |seen| {
        seen.phase == Phase::Running && seen.node.as_ref().is_some_and(|node| node.as_str() == "w1")
    });
    assert!(after.generation.major > before.generation.major);

    bed.heal().unwrap();
    bed.until("the zone drops what is no longer its own", WAIT, || (bed.runs_on(id) == ["w1"]).then_some(()))
        .unwrap();
    calm(&bed);
}
