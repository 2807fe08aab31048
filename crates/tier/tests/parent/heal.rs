//! Instances whose child does not get on with them.

use model::{Phase, Run};

use crate::common::*;

#[test]
fn what_is_told_again_reaches_the_child_once_more() {
    let mut parent = parent();
    let mut node = Peer::join(&mut parent, "n1", 4);
    let wanted = assignment(1, Run::Running);
    parent.want(wanted.clone());
    assert!(!parent.tell_again(&wanted.id, START), "nobody holds it yet");
    decide(&mut parent, START);
    node.follow(&mut parent, Phase::Running, START);
    parent.told_take();
    let have = parent.desired(&node.id, None).expect("a set").at;
    assert!(parent.desired(&node.id, Some(have)).is_none(), "it has everything");
    assert!(parent.tell_again(&wanted.id, START));
    assert!(parent.told_take().contains(&node.id));
    let again = parent.desired(&node.id, Some(have)).expect("it is said again");
    assert_eq!((again.upserts.len(), again.upserts[0].id.clone()), (1, wanted.id.clone()));
    assert_eq!(parent.view(&wanted.id).expect("seen").phase, Phase::Running, "nothing else changed");
}

#[test]
fn what_is_taken_off_goes_elsewhere_and_a_removal_counts_as_done() {
    let mut parent = parent();
    let first = Peer::join(&mut parent, "n1", 4);
    let (moves, goes) = (assignment(1, Run::Running), assignment(2, Run::Running));
    parent.want(moves.clone());
    parent.want(goes.clone());
    decide(&mut parent, START);
    let old = parent.place_of(&moves.id).expect("placed").generation;
    let second = Peer::join(&mut parent, "n2", 4);
    assert!(parent.take_off(&moves.id, "it does not begin", START));
    decide(&mut parent, START);
    let place = parent.place_of(&moves.id).expect("placed again");
    assert_eq!(place.child, second.id);
    assert!(place.generation > old);

    parent.want(assignment(2, Run::Gone));
    assert!(!parent.gone(&goes.id), "its child has not said so");
    assert!(parent.take_off(&goes.id, "it is never gone", START));
    assert!(parent.gone(&goes.id));
    let left = parent.desired(&first.id, None).expect("a set");
    assert!(left.upserts.is_empty(), "the child drops both");
}
