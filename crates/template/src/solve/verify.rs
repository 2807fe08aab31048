//! Whether a layout keeps to a template, told demand by demand. It shares nothing with the search.

use model::Result;

use super::{Conflict, Group, Layout, Prepared, Question, Request, Rule, Unsolvable, prepare};
use crate::catalogue::Catalogue;
use crate::entity::{Quantities, RatioTo};

/// The demands that the layout does not meet, without its size.
pub fn verify(question: &Question<'_>, layout: &Layout) -> Vec<Conflict> {
    let rules = Rule::all(question.template, &question.services);
    let broken = rules.iter().filter(|rule| !holds(rule, question, layout));
    broken.map(|rule| rule.told(question.template, &question.services)).collect()
}

/// What keeps a cluster that stands from going on with its template as the catalogue has it; nothing when it can.
pub fn keeps(catalogue: &Catalogue, request: &Request, layout: &Layout) -> Result<Option<Unsolvable>> {
    let prepared = match prepare(catalogue, request)? {
        Ok(prepared) => prepared,
        Err(unsolvable) => return Ok(Some(unsolvable)),
    };
    let mut conflicts = verify(&prepared.question(), layout);
    conflicts.extend(layout.0.iter().flat_map(|group| foreign(catalogue, &prepared, group)));
    conflicts.dedup();
    if conflicts.is_empty() {
        return Ok(None);
    }
    let told: Vec<&str> = conflicts.iter().map(|conflict| conflict.text.as_str()).collect();
    Ok(Some(Unsolvable { reason: told.join("; "), conflicts }))
}

/// What the template does not allow of a machine's hardware and image. Its defaults are for new machines only.
fn foreign(catalogue: &Catalogue, prepared: &Prepared, group: &Group) -> Vec<Conflict> {
    let (template, provider) = (&prepared.template, &prepared.provider);
    let (hardware, image) = (&group.hardwaretype, &group.imagetype);
    let flavor = catalogue.hardwaretypes.get(hardware).and_then(|kind| kind.flavor(provider));
    let picture = catalogue.imagetypes.get(image).and_then(|kind| kind.image(provider));
    let allowed = [
        ("hardware", hardware, template.compatibility.allows_hardware(hardware) && flavor.is_some()),
        ("image", image, template.compatibility.allows_image(image) && picture.is_some()),
    ];
    let told = |(what, name): (&str, &String)| Conflict {
        path: Some(format!("compatibility.{what}types")),
        services: group.services.clone(),
        text: format!("machines with {what} type {name} stand, which the template does not allow"),
    };
    allowed.into_iter().filter(|one| !one.2).map(|(what, name, _)| told((what, name))).collect()
}

/// Whether a machine meets the demands on single machines.
pub fn verify_machine(question: &Question<'_>, group: &Group) -> bool {
    keeps_to(question, group, &|_| true)
}

/// Whether a machine meets those of the demands on single machines that count.
pub fn keeps_to(question: &Question<'_>, group: &Group, counts: &dyn Fn(&Rule) -> bool) -> bool {
    let rules = Rule::all(question.template, &question.services);
    rules.iter().filter(|rule| counts(rule)).all(|rule| machine_holds(rule, question, group))
}

fn holds(rule: &Rule, question: &Question<'_>, layout: &Layout) -> bool {
    let counts = layout.counts();
    let count = |name: &String| u64::from(counts.get(name.as_str()).copied().unwrap_or(0));
    let quantities = |name: &String| -> Quantities {
        question
            .template
            .constraints
            .services
            .get(name)
            .map(|rule| rule.quantities.clone())
            .unwrap_or_default()
    };
    match rule {
        Rule::Min(name) => count(name) >= quantities(name).min.unwrap_or(0),
        Rule::Max(name) => quantities(name).max.is_none_or(|max| count(name) <= max),
        Rule::Step(name) => on_grid(count(name), &quantities(name)),
        Rule::Ratio(name) => {
            let own = quantities(name);
            let keeps = |of: u64, ratio: &crate::entity::Ratio| {
                let plain = (of * u64::from(ratio.part)).div_ceil(u64::from(ratio.whole));
                count(name) == clamped(plain, &own, u64::from(layout.size()))
            };
            match &own.ratio {
                Some(RatioTo::Machines(ratio)) => keeps(layout.size().into(), ratio),
                Some(RatioTo::Services(ratios)) => {
                    let on = |name: &&String| question.services.contains(name);
                    ratios.iter().filter(|(of, _)| on(of)).all(|(of, ratio)| keeps(count(of), ratio))
                }
                None => true,
            }
        }
        _ => layout.0.iter().all(|group| machine_holds(rule, question, group)),
    }
}

/// The next count on the grid, within the limits.
fn clamped(plain: u64, own: &Quantities, size: u64) -> u64 {
    let (min, step) = (own.min.unwrap_or(0), own.step.unwrap_or(1).max(1));
    let max = own.max.unwrap_or(size).min(size).max(min);
    let wanted = if plain <= min { min } else { min + (plain - min).div_ceil(step) * step };
    wanted.min(min + (max - min) / step * step)
}

fn on_grid(count: u64, own: &Quantities) -> bool {
    let (min, step) = (own.min.unwrap_or(0), own.step.unwrap_or(1).max(1));
    count >= min && (count - min).is_multiple_of(step)
}

fn machine_holds(rule: &Rule, question: &Question<'_>, group: &Group) -> bool {
    let layout = &question.template.constraints.layout;
    let has = |name: &String| group.services.contains(name);
    let service = |name: &String| question.template.constraints.services.get(name);
    match rule {
        Rule::Must(at) => {
            let on = |name: &&String| question.services.contains(name);
            let members: Vec<&String> = layout.mustcoexist[*at].iter().filter(on).collect();
            members.iter().all(|name| has(name)) || !members.iter().any(|name| has(name))
        }
        Rule::Cant(at) => !layout.cantcoexist[*at].iter().all(has),
        Rule::Hardware(name) => {
            !has(name) || service(name).is_none_or(|rule| rule.hardwaretypes.contains(&group.hardwaretype))
        }
        Rule::Image(name) => {
            !has(name) || service(name).is_none_or(|rule| rule.imagetypes.contains(&group.imagetype))
        }
        Rule::Carry => !group.services.is_empty(),
        Rule::Min(_) | Rule::Max(_) | Rule::Step(_) | Rule::Ratio(_) => true,
    }
}
