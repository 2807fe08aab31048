//! From a layout that stands to another one, with the least change.
//!
//! Machines that stay keep their hardware, their image and the services they still have; they may get services that are
//! new to the cluster. As many stay as can ([`super::stay`]), and new ones stand beside them. Machines that stand
//! are given up beyond what the size asks for only where nothing else would do, and the answer says so.

use model::{Error, Result};

use super::budget::{Budget, Stopped};
use super::stay::Stay;
use super::{Answer, Group, Layout, Request, Solved, prepare};
use crate::catalogue::Catalogue;

/// Looks at the clock that are spent on keeping machines, where there is another answer.
const LOOKS_MAX: u32 = 2_000;
/// Sizes that are tried in each direction for one that keeps all machines.
const SIZES_TRIED: u32 = 16;

/// Solves a request for a cluster that stands. `go_on` is asked now and then whether there is still time.
pub fn adapt(
    catalogue: &Catalogue,
    request: &Request,
    from: &Layout,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Answer> {
    let prepared = match prepare(catalogue, request)? {
        Ok(prepared) => prepared,
        Err(unsolvable) => return Ok(Answer::Unsolvable(unsolvable)),
    };
    let mut budget = Budget::new(go_on);
    let question = prepared.question();
    let stands = stripped(from, &prepared.services);
    let spare = stands.size().saturating_sub(prepared.size);
    let stay = Stay::new(&question, &stands, false)?;
    match budget.part(LOOKS_MAX, |budget| stay.all_but(spare, budget)) {
        Err(Stopped) => return Ok(Answer::out_of_time()),
        Ok(Some(Some(layout))) => return Ok(Answer::Solved(prepared.solved(catalogue, layout))),
        Ok(_) => {}
    }
    let Ok(fresh) = super::fresh(&question, &mut budget)? else { return Ok(Answer::out_of_time()) };
    let is_usual = |group: &Group| {
        question.hardware.contains(&group.hardwaretype) && question.images.contains(&group.imagetype)
    };
    if let Err(unsolvable) = &fresh
        && stands.0.iter().all(is_usual)
    {
        // Whatever of them is kept, a new cluster could have it as well.
        return Ok(Answer::Unsolvable(unsolvable.clone()));
    }
    let stay = Stay::new(&question, &stands, true)?;
    let fewer = |budget: &mut Budget<'_>| {
        let mut tries = (spare + 1..stands.size()).map(|gone| stay.all_but(gone, budget));
        tries.find_map(Result::transpose).transpose()
    };
    let fewer = budget.part(LOOKS_MAX, fewer);
    let anew = |layout| Answer::Solved(Solved { anew: true, ..prepared.solved(catalogue, layout) });
    Ok(match (fewer, fresh) {
        (Ok(Some(Some(layout))), _) | (_, Ok(layout)) => anew(layout),
        (Ok(Some(None)), Err(unsolvable)) => Answer::Unsolvable(unsolvable),
        _ => Answer::out_of_time(),
    })
}

/// The size nearest to the request's for which all machines that stand can be kept, but those that a smaller one gives up.
pub fn size_that_keeps(
    catalogue: &Catalogue,
    request: &Request,
    from: &Layout,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<u32> {
    let near = (1..=SIZES_TRIED).flat_map(|by| [request.size.checked_add(by), request.size.checked_sub(by)]);
    near.flatten().find(|size| {
        let request = Request { size: *size, ..request.clone() };
        let Ok(Ok(prepared)) = prepare(catalogue, &request) else { return false };
        let stands = stripped(from, &prepared.services);
        let spare = stands.size().saturating_sub(*size);
        let question = prepared.question();
        let Ok(stay) = Stay::new(&question, &stands, false) else { return false };
        let found = Budget::new(&mut *go_on).part(LOOKS_MAX, |budget| stay.all_but(spare, budget));
        matches!(found, Ok(Some(Some(_))))
    })
}

/// What stands, without the services that are no longer wanted. Machines may be left without any.
fn stripped(from: &Layout, wanted: &[String]) -> Layout {
    let strip = |group: &Group| Group {
        services: group.services.iter().filter(|name| wanted.contains(name)).cloned().collect(),
        ..group.clone()
    };
    Layout(from.0.iter().map(strip).collect()).normal()
}

/// Refuses a layout that names what the catalogue does not have.
pub fn known(catalogue: &Catalogue, layout: &Layout) -> Result<()> {
    for group in &layout.0 {
        for service in &group.services {
            if !catalogue.services.contains_key(service) {
                return Err(Error::invalid(format!(
                    "the layout has service '{service}', which does not exist"
                )));
            }
        }
    }
    Ok(())
}
