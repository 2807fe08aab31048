//! Templates: what they name, what contradicts itself, and whether there is a layout at all.

use super::{At, Report};
use crate::catalogue::{Catalogue, Kind};
use crate::compose;
use crate::entity::{ClusterTemplate, RatioTo};
use crate::solve::{Answer, Request, SIZE_MAX, solve};

/// Looks at the clock that a trial layout may take; about a second.
const LOOKS_MAX: u32 = 16_000;
/// The same once a size is found that works: the others only bring warnings.
const LOOKS_MORE: u32 = 4_000;
/// Sizes without a layout that one warning names.
const GAPS_SHOWN: usize = 8;

pub fn check(catalogue: &Catalogue, report: &mut Report, go_on: &mut dyn FnMut() -> bool) {
    for partial in catalogue.partialtemplates.values() {
        let at = At { kind: Kind::PartialTemplate, name: &partial.name };
        for name in partial.defaults.services.iter().filter(|name| !catalogue.services.contains_key(*name)) {
            report.error(at, "defaults.services", format!("service '{name}' does not exist"));
        }
        macros(catalogue, report, at, "defaults.config", &partial.defaults.config.clone().into());
    }
    for stored in catalogue.clustertemplates.values() {
        let at = At { kind: Kind::ClusterTemplate, name: &stored.name };
        match compose::resolve(catalogue, stored) {
            Err(error) => {
                for fault in error.faults() {
                    report.error(at, fault.field.unwrap_or_default(), fault.message);
                }
            }
            Ok(template) => whole(catalogue, report, at, &template, go_on),
        }
    }
}

fn whole(
    catalogue: &Catalogue,
    report: &mut Report,
    at: At<'_>,
    template: &ClusterTemplate,
    go_on: &mut dyn FnMut() -> bool,
) {
    let before = report.findings.len();
    references(catalogue, report, at, template);
    defaults_fit(report, at, template);
    numbers(report, at, template);
    groups(report, at, template);
    macros(catalogue, report, at, "defaults.config", &template.defaults.config.clone().into());
    for (place, link) in template.links.iter().enumerate() {
        super::text(catalogue, report, at, &format!("links[{place}].url"), &link.url);
    }
    if let Some(lease) = template.administration.leaseduration {
        let ends = |ms: u64| if ms == 0 { u64::MAX } else { ms };
        if ends(lease.max.0) < ends(lease.initial.0) {
            report.error(
                at,
                "administration.leaseduration.max",
                "the longest lease is shorter than the first one",
            );
        }
    }
    // What names things that are not there cannot be laid out either; saying so twice helps nobody.
    let broken = report.findings[before..].iter().any(|finding| finding.level == super::Level::Error);
    if template.defaults.provider.is_some() && !template.defaults.services.is_empty() && !broken {
        trial(catalogue, report, at, template, go_on);
    }
}

/// Every name that a template uses must be somewhere. What it only allows to be used need not be there.
fn references(catalogue: &Catalogue, report: &mut Report, at: At<'_>, template: &ClusterTemplate) {
    let defaults = &template.defaults;
    let mut missing = |path: String, what: &str, name: &String, known: bool| {
        if !known {
            let is_allowed_only = path.starts_with("compatibility.");
            let level = if is_allowed_only { super::Level::Warning } else { super::Level::Error };
            report.add(level, at, path, format!("{what} '{name}' does not exist"));
        }
    };
    let service = |name: &String| catalogue.services.contains_key(name);
    let hardware = |name: &String| catalogue.hardwaretypes.contains_key(name);
    let image = |name: &String| catalogue.imagetypes.contains_key(name);
    for name in &defaults.services {
        missing("defaults.services".into(), "service", name, service(name));
    }
    if let Some(name) = &defaults.provider {
        missing("defaults.provider".into(), "provider", name, catalogue.providers.contains_key(name));
    }
    if let Some(name) = &defaults.hardwaretype {
        missing("defaults.hardwaretype".into(), "hardware type", name, hardware(name));
    }
    if let Some(name) = &defaults.imagetype {
        missing("defaults.imagetype".into(), "image type", name, image(name));
    }
    let compatible = &template.compatibility;
    for name in &compatible.services {
        missing("compatibility.services".into(), "service", name, service(name));
    }
    for name in &compatible.hardwaretypes {
        missing("compatibility.hardwaretypes".into(), "hardware type", name, hardware(name));
    }
    for name in &compatible.imagetypes {
        missing("compatibility.imagetypes".into(), "image type", name, image(name));
    }
    let constraints = &template.constraints;
    for (list, groups) in
        [("mustcoexist", &constraints.layout.mustcoexist), ("cantcoexist", &constraints.layout.cantcoexist)]
    {
        for (place, group) in groups.iter().enumerate() {
            for name in group {
                missing(format!("constraints.layout.{list}[{place}]"), "service", name, service(name));
            }
        }
    }
    for (name, rule) in &constraints.services {
        let path = format!("constraints.services.{name}");
        missing(path.clone(), "service", name, service(name));
        for other in &rule.hardwaretypes {
            missing(format!("{path}.hardwaretypes"), "hardware type", other, hardware(other));
        }
        for other in &rule.imagetypes {
            missing(format!("{path}.imagetypes"), "image type", other, image(other));
        }
        if let Some(RatioTo::Services(ratios)) = &rule.quantities.ratio {
            for other in ratios.keys() {
                missing(format!("{path}.quantities.ratio"), "service", other, service(other));
            }
        }
    }
}

/// What a template gives by default must be what it allows.
fn defaults_fit(report: &mut Report, at: At<'_>, template: &ClusterTemplate) {
    let (defaults, compatible) = (&template.defaults, &template.compatibility);
    let mut foreign = |path: &str, what: &str, name: &String, allowed: bool| {
        if !allowed {
            let message = format!("{what} '{name}' is the default but not among the compatible ones");
            report.error(at, path, message);
        }
    };
    for name in &defaults.services {
        foreign("defaults.services", "service", name, compatible.allows_service(name));
    }
    if let Some(name) = &defaults.hardwaretype {
        foreign("defaults.hardwaretype", "hardware type", name, compatible.allows_hardware(name));
    }
    if let Some(name) = &defaults.imagetype {
        foreign("defaults.imagetype", "image type", name, compatible.allows_image(name));
    }
}

fn numbers(report: &mut Report, at: At<'_>, template: &ClusterTemplate) {
    let size = &template.constraints.size;
    let min = size.min.unwrap_or(1);
    if min == 0 {
        report.error(at, "constraints.size.min", "a cluster has at least 1 machine");
    }
    if size.max.is_some_and(|max| max < min) {
        report.error(at, "constraints.size", "the largest size is smaller than the smallest");
    }
    if min > u64::from(SIZE_MAX) {
        report.error(at, "constraints.size.min", format!("a cluster has at most {SIZE_MAX} machines"));
    }
    for (name, rule) in &template.constraints.services {
        let path = format!("constraints.services.{name}.quantities");
        let own = &rule.quantities;
        let min = own.min.unwrap_or(0);
        if own.max.is_some_and(|max| max < min) {
            report.error(at, path.clone(), "the largest number is smaller than the smallest");
        }
        if own.step == Some(0) {
            report.error(at, format!("{path}.stepSize"), "a step must be 1 or more");
        }
        if size.max.is_some_and(|max| max < min) {
            report.error(at, format!("{path}.min"), "it needs more machines than the cluster may have");
        }
    }
}

/// Groups that can never be, and such as contradict each other.
fn groups(report: &mut Report, at: At<'_>, template: &ClusterTemplate) {
    let layout = &template.constraints.layout;
    for (list, groups) in [("mustcoexist", &layout.mustcoexist), ("cantcoexist", &layout.cantcoexist)] {
        for place in (0..groups.len()).filter(|place| groups[*place].is_empty()) {
            report.warning(at, format!("constraints.layout.{list}[{place}]"), "an empty group has no effect");
        }
    }
    for (place, cant) in layout.cantcoexist.iter().enumerate() {
        let path = format!("constraints.layout.cantcoexist[{place}]");
        if cant.len() == 1 {
            report.error(at, path, format!("'{}' alone in a group can be on no machine", cant[0]));
        } else if let Some(must) =
            layout.mustcoexist.iter().find(|must| !cant.is_empty() && cant.iter().all(|n| must.contains(n)))
        {
            let message = format!("{} cannot be together, but {} must", cant.join(", "), must.join(", "));
            report.error(at, path, message);
        }
    }
}

/// Macros must be well formed wherever they stand.
fn macros(catalogue: &Catalogue, report: &mut Report, at: At<'_>, path: &str, value: &serde_json::Value) {
    match value {
        serde_json::Value::String(text) => super::text(catalogue, report, at, path, text),
        serde_json::Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(place, item)| macros(catalogue, report, at, &format!("{path}[{place}]"), item));
        }
        serde_json::Value::Object(members) => {
            members
                .iter()
                .for_each(|(name, item)| macros(catalogue, report, at, &format!("{path}.{name}"), item));
        }
        _ => {}
    }
}

/// What was found out about sizes, the smallest first.
#[derive(Default)]
struct Sizes {
    solved: Vec<u32>,
    /// And why.
    unsolved: Vec<(u32, String)>,
}

/// Lays the template out at its smallest sizes, at larger ones with growing steps, and at its largest.
fn trial(
    catalogue: &Catalogue,
    report: &mut Report,
    at: At<'_>,
    template: &ClusterTemplate,
    go_on: &mut dyn FnMut() -> bool,
) {
    let small = |size: u64| u32::try_from(size).unwrap_or(SIZE_MAX).min(SIZE_MAX);
    let min = small(template.constraints.size.min.unwrap_or(1)).max(1);
    let max = small(template.constraints.size.max.unwrap_or(u64::MAX));
    let is_limited = template.constraints.size.max.is_some();
    let mut tried: Vec<u32> = (min..=max.min(min.saturating_add(16))).collect();
    tried.extend((0..14).map(|power| 1u32 << power).filter(|size| *size > min + 16 && *size < max));
    tried.extend((max > min + 16).then_some(max));
    let (mut looks, mut most) = (0, LOOKS_MAX);
    let mut sizes = Sizes::default();
    for size in tried {
        // Without a limit large sizes are only of interest while no other works.
        if !sizes.solved.is_empty() && !is_limited && size > min + 16 {
            break;
        }
        let mut look = || {
            looks += 1;
            looks < most && go_on()
        };
        if !look() {
            break;
        }
        let request = Request { template: template.name.clone(), size, ..Request::default() };
        match solve(catalogue, &request, &mut look) {
            Ok(Answer::Solved(_)) => {
                if sizes.solved.is_empty() {
                    most = (looks + LOOKS_MORE).min(LOOKS_MAX);
                }
                sizes.solved.push(size);
            }
            Ok(Answer::Unsolvable(unsolvable)) => sizes.unsolved.push((size, unsolvable.reason)),
            Ok(Answer::Undecided(_)) | Err(_) => break,
        }
        if size == max {
            sizes.told_of_max(report, at, is_limited);
        }
    }
    sizes.told(report, at, min);
}

impl Sizes {
    fn told(&self, report: &mut Report, at: At<'_>, min: u32) {
        let (Some(first), Some(last)) = (self.solved.first(), self.solved.last()) else {
            // A search that had no time says nothing.
            return;
        };
        if let Some((_, why)) = self.unsolved.iter().find(|(size, _)| size < first) {
            let message =
                format!("its smallest size is {min}, but the smallest that works is {first}: {why}");
            report.warning(at, "constraints.size.min", message);
        }
        let gaps: Vec<&(u32, String)> =
            self.unsolved.iter().filter(|(size, _)| size > first && size < last).collect();
        if let Some((_, why)) = gaps.first() {
            let shown: Vec<String> = gaps.iter().take(GAPS_SHOWN).map(|(size, _)| size.to_string()).collect();
            let more = if gaps.len() > GAPS_SHOWN { ", …" } else { "" };
            let message =
                format!("between sizes that work some have no layout ({}{more}): {why}", shown.join(", "));
            report.warning(at, "constraints.size", message);
        }
    }

    /// All sizes were tried that are tried.
    fn told_of_max(&self, report: &mut Report, at: At<'_>, is_limited: bool) {
        match (self.solved.last(), self.unsolved.last()) {
            (None, _) => {
                if let Some((_, why)) = self.unsolved.first() {
                    report.error(at, "constraints", format!("no size has a layout: {why}"));
                }
            }
            (Some(last), Some((max, why))) if max > last && is_limited => {
                let message = format!(
                    "its largest size is {max}, but the largest of those tried that works is {last}: {why}"
                );
                report.warning(at, "constraints.size.max", message);
            }
            _ => {}
        }
    }
}
