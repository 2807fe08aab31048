//! Services: what they name, and circles among them.

use std::collections::{BTreeMap, BTreeSet};

use super::{At, Level, Report};
use crate::catalogue::{Catalogue, Kind};
use crate::entity::{Service, StageDependencies};
use crate::plan::circle;

pub fn check(catalogue: &Catalogue, report: &mut Report) {
    let mut providers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for service in catalogue.services.values() {
        for provided in &service.dependencies.provides {
            providers.entry(provided).or_default().push(&service.name);
        }
    }
    let exists = |name: &str| catalogue.services.contains_key(name) || providers.contains_key(name);
    for service in catalogue.services.values() {
        let at = At { kind: Kind::Service, name: &service.name };
        for (stage, own) in
            [("install", &service.dependencies.install), ("runtime", &service.dependencies.runtime)]
        {
            for name in own.requires.iter().filter(|name| !exists(name)) {
                let message = format!("it requires '{name}', which no service is or provides");
                report.error(at, format!("dependencies.{stage}.requires"), message);
            }
            for name in own.uses.iter().filter(|name| !exists(name)) {
                let message = format!("it uses '{name}', which no service is or provides");
                report.warning(at, format!("dependencies.{stage}.uses"), message);
            }
        }
        conflicts(catalogue, report, at, service);
        for (kind, action) in &service.provisioner.actions {
            let types = &catalogue.automatortypes;
            if !types.is_empty() && !types.contains_key(&action.automator) {
                let message = format!("automator type '{}' does not exist", action.automator);
                report.error(at, format!("provisioner.actions.{kind}.type"), message);
            }
            let plugin = types.get(&action.automator);
            if let Some(plugin) = plugin {
                let path = format!("provisioner.actions.{kind}.fields");
                super::fields(report, at, &path, plugin, &action.fields);
            }
            let fields = plugin.map(|plugin| &plugin.parameters.admin);
            let missing = fields.map(|fields| fields.missing(|name| action.fields.contains_key(name)));
            if let Some(sets) = missing.filter(|sets| !sets.is_empty()) {
                let message = format!("automator '{}' needs {}", action.automator, super::any_of(&sets));
                report.warning(at, format!("provisioner.actions.{kind}.fields"), message);
            }
        }
        for (place, link) in service.links.iter().enumerate() {
            super::text(catalogue, report, at, &format!("links[{place}].url"), &link.url);
        }
    }
    circles(catalogue, &providers, report);
}

fn conflicts(catalogue: &Catalogue, report: &mut Report, at: At<'_>, service: &Service) {
    for name in &service.dependencies.conflicts {
        let path = "dependencies.conflicts";
        if *name == service.name {
            report.error(at, path, "it conflicts with itself, so that no cluster can have it");
        } else if service.requires().contains(&name.as_str()) {
            report.error(at, path, format!("it requires '{name}' and conflicts with it"));
        } else if !catalogue.services.contains_key(name) {
            report.warning(at, path, format!("it conflicts with '{name}', which does not exist"));
        }
    }
}

/// One stage of a service's dependencies.
type Stage = fn(&Service) -> &StageDependencies;

/// Services that need each other. What only uses another is a warning, because it can do without.
fn circles(catalogue: &Catalogue, providers: &BTreeMap<&str, Vec<&str>>, report: &mut Report) {
    let stages: [(&str, Stage); 2] = [
        ("install", |service| &service.dependencies.install),
        ("runtime", |service| &service.dependencies.runtime),
    ];
    for (name, stage) in stages {
        let graph = |uses: bool| -> BTreeMap<&str, BTreeSet<&str>> {
            let of = |service| {
                let stage: &StageDependencies = stage(service);
                let used: &[String] = if uses { &stage.uses } else { &[] };
                stage.requires.iter().chain(used).filter_map(|name| one(catalogue, providers, name)).collect()
            };
            catalogue.services.values().map(|service| (service.name.as_str(), of(service))).collect()
        };
        let found = circle(&graph(false)).map(|circle| (Level::Error, circle));
        let found = found.or_else(|| circle(&graph(true)).map(|circle| (Level::Warning, circle)));
        if let Some((level, circle)) = found {
            let at = At { kind: Kind::Service, name: circle[0] };
            let message = format!("services need each other in a circle: {}", circle.join(" needs "));
            report.add(level, at, format!("dependencies.{name}"), message);
        }
    }
}

/// The one service that a name can mean; none when several provide it.
fn one<'a>(
    catalogue: &'a Catalogue,
    providers: &BTreeMap<&str, Vec<&'a str>>,
    name: &str,
) -> Option<&'a str> {
    let own = catalogue.services.get_key_value(name).map(|(name, _)| name.as_str());
    own.or_else(|| match providers.get(name).map(Vec::as_slice) {
        Some([only]) => Some(*only),
        _ => None,
    })
}
