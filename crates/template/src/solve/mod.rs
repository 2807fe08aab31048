//! From a template and a size to a layout.
//!
//! The answer is the one that Coopr gives wherever Coopr answers: kinds of machines are ranked (more
//! services first, then hardware, image and services by name), and the layout with the most
//! machines of the first kind wins, then of the second, and so on. Unlike Coopr the search is complete: when
//! it says that there is no layout there is none, and it says which demands clash.
//!
//! ```text
//!  Request ─► request.rs: what may be used ─► Question ─► problem.rs: classes, palettes, counts
//!                                                             │
//!             clash.rs: a smallest set of demands ◄── no ── search.rs ◄─► cover.rs, lattice.rs
//!  Layout, Request ─► verify.rs: what of a template a layout does not keep to
//!  Layout, Request ─► live.rs: add, remove, expand, shrink with the least change ─► stay.rs: what stays, what comes
//! ```

mod budget;
mod clash;
mod cover;
mod lattice;
mod layout;
mod live;
mod problem;
mod request;
mod rule;
mod search;
mod stay;
mod verify;

use model::Result;
use serde::Serialize;

pub use layout::{Group, Layout};
pub use live::{adapt, known, size_that_keeps};
pub use problem::{CLASSES_MAX, Question};
pub use request::{Prepared, Request, prepare};
pub use rule::{Conflict, Rule};
pub use verify::{keeps, verify};

use crate::catalogue::Catalogue;
use budget::{Budget, Stopped};
use problem::Problem;
use search::Search;

/// Most machines of one cluster.
pub const SIZE_MAX: u32 = 10_000;

/// Why there is no layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsolvable {
    /// A sentence.
    pub reason: String,
    /// Demands that cannot all be met; without any one of them there would be a layout.
    pub conflicts: Vec<Conflict>,
}

/// A layout, and what it is made of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Solved {
    pub layout: Layout,
    pub template: String,
    pub provider: String,
    pub size: u32,
    /// Of an hour, where the hardware types say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// Whether nothing but a new layout would do, so that machines that stand may have to go.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub anew: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Solved(Solved),
    Unsolvable(Unsolvable),
    /// Time ran out before it was known whether there is a layout, or which one is preferred.
    Undecided(String),
}

impl Answer {
    fn out_of_time() -> Self {
        Self::Undecided("time ran out before the search was over".into())
    }
}

/// Solves a request. `go_on` is asked now and then whether there is still time.
pub fn solve(catalogue: &Catalogue, request: &Request, go_on: &mut dyn FnMut() -> bool) -> Result<Answer> {
    let prepared = match prepare(catalogue, request)? {
        Ok(prepared) => prepared,
        Err(unsolvable) => return Ok(Answer::Unsolvable(unsolvable)),
    };
    let mut budget = Budget::new(go_on);
    match fresh(&prepared.question(), &mut budget)? {
        Err(Stopped) => Ok(Answer::out_of_time()),
        Ok(Err(unsolvable)) => Ok(Answer::Unsolvable(unsolvable)),
        Ok(Ok(layout)) => Ok(Answer::Solved(prepared.solved(catalogue, layout))),
    }
}

/// The preferred layout of a new cluster.
pub(crate) fn fresh(
    question: &Question<'_>,
    budget: &mut Budget<'_>,
) -> Result<Result<Result<Layout, Unsolvable>, Stopped>> {
    let problem = Problem::new(question, &[])?;
    let used = vec![0; problem.classes.len()];
    let picks = match Search::new(&problem).solve(&used, question.size, budget) {
        Err(stopped) => return Ok(Err(stopped)),
        Ok(picks) => picks,
    };
    match picks {
        Some(picks) => Ok(Ok(Ok(to_layout(&problem, &picks)))),
        None => Ok(Ok(Err(clash::explain(question, budget)?))),
    }
}

fn to_layout(problem: &Problem, picks: &[search::Pick]) -> Layout {
    let group = |pick: &search::Pick| Group {
        count: pick.count,
        services: problem.services(pick.set),
        hardwaretype: problem.palettes[pick.palette].hardware.clone(),
        imagetype: problem.palettes[pick.palette].image.clone(),
    };
    Layout(picks.iter().map(group).collect())
}

#[cfg(test)]
mod tests;
