//! The link between a node and its zone, or between a zone and root, is bad in every way there is.

use std::time::Duration;

use bed::Bed;

use crate::{calm, run, sleeper, small};

/// What users do while the link is bad: something begins, something ends.
fn change_under(bed: &Bed, round: &str, bad: impl FnOnce(&Bed)) {
    let (old, new) = (format!("old-{round}"), format!("new-{round}"));
    run(bed, &old, sleeper());
    bad(bed);
    bed.create(&new, sleeper()).unwrap();
    bed.delete(&old).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    bed.heal().unwrap();
    calm(bed);
    bed.delete(&new).unwrap();
}

#[test]
fn a_bad_link_converges() {
    let bed = small(&["e1", "e2"]);
    change_under(&bed, "cut", |bed| bed.cut("e1", "east").unwrap());
    change_under(&bed, "up", |bed| bed.cut_one_way("e1", "east").unwrap());
    change_under(&bed, "down", |bed| bed.cut_one_way("east", "e1").unwrap());
    change_under(&bed, "half", |bed| bed.half_open("e1", "east").unwrap());
    change_under(&bed, "loss", |bed| bed.loss("e1", "east", 20).unwrap());
    change_under(&bed, "flap", |bed| bed.flap("e1", "east", 4, Duration::from_millis(300)).unwrap());
    change_under(&bed, "slow", |bed| bed.delay("e1", "east", 300).unwrap());
    calm(&bed);
}

/// Users speak to root all the while; what they ask for reaches the zone when the link lets it.
#[test]
fn a_bad_link_between_zone_and_root_converges() {
    let bed = small(&["e1"]);
    change_under(&bed, "cut", |bed| bed.cut("east", "root").unwrap());
    change_under(&bed, "up", |bed| bed.cut_one_way("east", "root").unwrap());
    change_under(&bed, "down", |bed| bed.cut_one_way("root", "east").unwrap());
    change_under(&bed, "half", |bed| bed.half_open("east", "root").unwrap());
    change_under(&bed, "flap", |bed| bed.flap("east", "root", 4, Duration::from_millis(300)).unwrap());
    change_under(&bed, "slow", |bed| bed.delay("east", "root", 300).unwrap());
    calm(&bed);
}
