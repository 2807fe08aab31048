//! What a request asks for, checked against the catalogue in Coopr's order.

use std::collections::BTreeSet;

use model::{Error, Result};

use super::{Conflict, Layout, Question, SIZE_MAX, Solved, Unsolvable};
use crate::catalogue::Catalogue;
use crate::compose;
use crate::entity::ClusterTemplate;

/// What a user asks for. What is absent comes from the template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    pub template: String,
    pub size: u32,
    pub provider: Option<String>,
    pub services: Vec<String>,
    pub hardwaretype: Option<String>,
    pub imagetype: Option<String>,
}

/// A request whose parts exist and go together.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// With everything it extends and includes.
    pub template: ClusterTemplate,
    pub provider: String,
    pub services: Vec<String>,
    pub hardware: Vec<String>,
    pub images: Vec<String>,
    pub size: u32,
}

impl Prepared {
    pub fn question(&self) -> Question<'_> {
        Question {
            template: &self.template,
            services: self.services.clone(),
            hardware: self.hardware.clone(),
            images: self.images.clone(),
            size: self.size,
        }
    }

    pub fn solved(&self, catalogue: &Catalogue, layout: Layout) -> Solved {
        let cost = layout.cost(catalogue, &self.provider);
        Solved {
            size: layout.size(),
            layout,
            template: self.template.name.clone(),
            provider: self.provider.clone(),
            cost,
            anew: false,
        }
    }
}

fn refuse(reason: String) -> Unsolvable {
    Unsolvable { reason, conflicts: Vec::new() }
}

/// Looks up what the request names. The outer error is a request that cannot be read: an unknown
/// template or provider, a size that no cluster has. The inner one is a request that no layout can meet.
pub fn prepare(catalogue: &Catalogue, request: &Request) -> Result<Result<Prepared, Unsolvable>> {
    if request.size == 0 || request.size > SIZE_MAX {
        let message = format!("a cluster has 1 to {SIZE_MAX} machines, not {}", request.size);
        return Err(Error::invalid(message).at("size"));
    }
    let stored = catalogue.template(&request.template).map_err(|error| error.at("template"))?;
    let template = compose::resolve(catalogue, stored)?;
    let provider = request.provider.clone().or_else(|| template.defaults.provider.clone());
    let Some(provider) = provider else {
        let message = format!("neither the request nor template {} names a provider", template.name);
        return Err(Error::invalid(message).at("provider").hint("choose one with --provider"));
    };
    catalogue.provider(&provider).map_err(|error| error.at("provider"))?;
    Ok(narrow(catalogue, request, template, provider))
}

fn narrow(
    catalogue: &Catalogue,
    request: &Request,
    template: ClusterTemplate,
    provider: String,
) -> Result<Prepared, Unsolvable> {
    size_fits(&template, request.size)?;
    let compatible = &template.compatibility;
    let wanted = |asked: &Option<String>, default: &Option<String>| asked.clone().or_else(|| default.clone());
    let hardware = wanted(&request.hardwaretype, &template.defaults.hardwaretype);
    let image = wanted(&request.imagetype, &template.defaults.imagetype);
    let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
    let hardware: Vec<String> = catalogue
        .hardwaretypes
        .values()
        .filter(|kind| is(&hardware, &kind.name) && compatible.allows_hardware(&kind.name))
        .filter(|kind| kind.flavor(&provider).is_some())
        .map(|kind| kind.name.clone())
        .collect();
    let images: Vec<String> = catalogue
        .imagetypes
        .values()
        .filter(|kind| is(&image, &kind.name) && compatible.allows_image(&kind.name))
        .filter(|kind| kind.image(&provider).is_some())
        .map(|kind| kind.name.clone())
        .collect();
    for (what, found) in [("hardware", &hardware), ("image", &images)] {
        if found.is_empty() {
            let name = &template.name;
            return Err(refuse(format!(
                "no {what} types are available to use with template {name} and provider {provider}"
            )));
        }
    }
    let asked = if request.services.is_empty() { &template.defaults.services } else { &request.services };
    let services: BTreeSet<String> = asked.iter().cloned().collect();
    let services: Vec<String> = services.into_iter().collect();
    services_fit(catalogue, &template, &services)?;
    Ok(Prepared { provider, services, hardware, images, size: request.size, template })
}

fn size_fits(template: &ClusterTemplate, size: u32) -> Result<(), Unsolvable> {
    let rule = &template.constraints.size;
    if rule.allows(size.into()) {
        return Ok(());
    }
    let min = rule.min.unwrap_or(1);
    let range = match rule.max {
        Some(max) if max < min => format!("at least {min} and at most {max} machines, which no number is"),
        Some(max) => format!("{min} to {max} machines"),
        None => format!("at least {min} machines"),
    };
    let text = format!("the cluster must have {range}");
    let conflict = Conflict { path: Some("constraints.size".into()), services: Vec::new(), text };
    let reason = format!("template {} is for {range}, not {size}", template.name);
    Err(Unsolvable { reason, conflicts: vec![conflict] })
}

/// Whether the services are allowed, exist, and have what they need.
fn services_fit(
    catalogue: &Catalogue,
    template: &ClusterTemplate,
    services: &[String],
) -> Result<(), Unsolvable> {
    if services.is_empty() {
        return Err(refuse(format!("template {} has no services, and none were asked for", template.name)));
    }
    let foreign: Vec<&str> = services
        .iter()
        .map(String::as_str)
        .filter(|name| !template.compatibility.allows_service(name))
        .collect();
    if !foreign.is_empty() {
        return Err(refuse(format!("{} are incompatible with the cluster", foreign.join(","))));
    }
    let unknown: Vec<&str> =
        services.iter().map(String::as_str).filter(|name| !catalogue.services.contains_key(*name)).collect();
    if !unknown.is_empty() {
        let each = unknown.iter().map(|name| format!("service {name} does not exist"));
        return Err(refuse(each.collect::<Vec<_>>().join("; ")));
    }
    let chosen = || services.iter().filter_map(|name| catalogue.services.get(name));
    let provided: BTreeSet<&str> = chosen()
        .flat_map(|service| service.dependencies.provides.iter())
        .chain(services)
        .map(String::as_str)
        .collect();
    let mut faults = Vec::new();
    for service in chosen() {
        for needed in service.requires().into_iter().filter(|needed| !provided.contains(needed)) {
            let path = Some(format!("services.{}.dependencies", service.name));
            let text = format!(
                "{} requires {needed}, which is not on the cluster or in the list of services to add.",
                service.name
            );
            faults.push(Conflict { path, services: vec![service.name.clone()], text });
        }
    }
    if faults.is_empty() {
        for service in chosen() {
            for other in service.dependencies.conflicts.iter().filter(|other| services.contains(other)) {
                let path = Some(format!("services.{}.dependencies.conflicts", service.name));
                let text = format!("{} conflicts with {other}.", service.name);
                faults.push(Conflict { path, services: vec![service.name.clone(), other.clone()], text });
            }
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    let reason = faults.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>().join(" ");
    Err(Unsolvable { reason, conflicts: faults })
}
