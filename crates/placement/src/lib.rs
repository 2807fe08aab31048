//! Where instances go: filter, score, explain. Pure; no async, no I/O, no clock.
//!
//! Both levels of the tree use it. Root places instances on zones, which look
//! like one large node each; a zone places them on its nodes.
//!
//! ```text
//!  facts ──► Candidate ──► Fleet.upsert ─┐
//!  placed ─► Want ───────► Fleet.reserve ┼─► Slot (free amounts)  ─► Shape (score per slot, cached)
//!                                        └─► Tally (who is where) ─► spread, affinity
//!  new ────► Want ───────► Fleet.place ────► Choice | Nowhere        Fleet.explain ─► Explanation
//! ```
//!
//! Why it is fast: what a want needs of a candidate by itself (labels, room,
//! fit) is its *shape*. The score of every slot is kept per shape and brought up
//! to date only for slots that changed since the shape was last asked for. A
//! decision is then one pass over an array of integers, plus the few slots that
//! hold neighbours of the want. It costs the same in an empty and in a full fleet.
//!
//! Reading order: [`candidate`], [`want`], [`fleet`], `slot`, `held`, `shape`, `score`, `mix`, `near`, `choose`, `give_way`, `explain`.

pub mod candidate;
mod choose;
mod explain;
pub mod fleet;
mod give_way;
mod gpu;
mod held;
mod mix;
mod near;
pub mod reason;
mod score;
mod shape;
mod slot;
mod tally;
pub mod want;

pub use candidate::Candidate;
pub use choose::{Choice, Nowhere};
pub use fleet::{Fleet, Level, Policy};
pub use give_way::Way;
pub use reason::Reason;
pub use want::Want;

use model::InstanceId;

/// What became of many wants, in the order they were given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub placed: Vec<(InstanceId, Choice)>,
    pub nowhere: Vec<InstanceId>,
}

/// Places many wants, each seeing the ones before it.
///
/// What is placed is reserved in `fleet`; a caller that cannot commit the plan
/// releases it again. A caller that wants to look only clones the fleet first.
pub fn place(fleet: &mut Fleet, wants: &[Want]) -> Plan {
    let mut plan = Plan::default();
    for want in wants {
        match fleet.place(want) {
            Ok(choice) => {
                fleet.hold(want, &choice.child, &choice.gpus);
                plan.placed.push((want.id.clone(), choice));
            }
            Err(Nowhere { .. }) => plan.nowhere.push(want.id.clone()),
        }
    }
    plan
}
