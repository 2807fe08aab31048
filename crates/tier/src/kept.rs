//! How a child keeps the desired set in its ledger.

use model::exchange::Revision;
use model::{Assignment, Result};

use crate::child::Child;
use crate::inbox::{Changed, Inbox};
use crate::intern::Intern;
use crate::ledger::{Ledger, Write};

pub const DESIRED_AT: &str = "desired-at";
pub const ASSIGNMENT: &str = "assignment/";

/// What to write after a desired set changed something.
pub fn writes(child: &Child, changed: &Changed) -> Vec<Write> {
    let key = |id: &model::InstanceId| format!("{ASSIGNMENT}{id}");
    let mut writes: Vec<Write> = changed
        .upserted
        .iter()
        .filter_map(|id| child.assignment(id))
        .map(|assignment| Write::put(key(&assignment.id), assignment))
        .collect();
    writes.extend(changed.removed.iter().map(|id| Write::delete(key(id))));
    writes.push(Write::put(DESIRED_AT.to_owned(), &child.have_kept()));
    writes
}

/// The desired set as the last life of this child kept it.
pub fn read(ledger: &Ledger) -> Result<Inbox<Assignment>> {
    let at: Option<Option<Revision>> = ledger.get(DESIRED_AT)?;
    let assignments = ledger.list::<Assignment>(ASSIGNMENT)?;
    let mut intern = Intern::default();
    let shared = assignments.into_iter().map(|(_, mut assignment)| {
        intern.share(&mut assignment);
        assignment
    });
    Ok(Inbox::restore(at.flatten(), shared))
}
