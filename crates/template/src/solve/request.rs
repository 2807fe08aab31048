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

/// Names that a sentence lists.
const NAMES_SHOWN: usize = 20;

/// What is refused for one reason.
fn refuse(path: impl Into<String>, services: &[&str], reason: String) -> Unsolvable {
    let services = services.iter().map(|name| (*name).to_owned()).collect();
    let conflict = Conflict { path: Some(path.into()), services, text: reason.clone() };
    Unsolvable { reason, conflicts: vec![conflict] }
}

/// That something does not exist, and what there is.
fn absent<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a String>) -> String {
    let name = model::shown(name);
    let known: Vec<&str> = known.map(String::as_str).collect();
    match known.len() {
        0 => format!("there is no {what} '{name}', and no other"),
        1 => format!("there is no {what} '{name}'; there is {}", known[0]),
        count => {
            let more = if count > NAMES_SHOWN { ", …" } else { "" };
            let shown = known[..count.min(NAMES_SHOWN)].join(", ");
            format!("there is no {what} '{name}'; there are {shown}{more}")
        }
    }
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
    let (one_hardware, one_image) = (hardware.clone(), image.clone());
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
    if hardware.is_empty() {
        let one = one_hardware.as_ref().map(|name| Only {
            name,
            is_asked: request.hardwaretype.is_some(),
            is_there: catalogue.hardwaretypes.contains_key(name),
            is_compatible: compatible.allows_hardware(name),
        });
        let known = catalogue.hardwaretypes.keys();
        return Err(unavailable(("hardware", "flavor"), &template.name, &provider, one, known));
    }
    if images.is_empty() {
        let one = one_image.as_ref().map(|name| Only {
            name,
            is_asked: request.imagetype.is_some(),
            is_there: catalogue.imagetypes.contains_key(name),
            is_compatible: compatible.allows_image(name),
        });
        let known = catalogue.imagetypes.keys();
        return Err(unavailable(("image", "image"), &template.name, &provider, one, known));
    }
    let asked = if request.services.is_empty() { &template.defaults.services } else { &request.services };
    let services: BTreeSet<String> = asked.iter().cloned().collect();
    let services: Vec<String> = services.into_iter().collect();
    services_fit(catalogue, &template, &services)?;
    Ok(Prepared { provider, services, hardware, images, size: request.size, template })
}

/// The only hardware or image type that is looked at.
struct Only<'a> {
    name: &'a str,
    /// By the request; else it is the template's.
    is_asked: bool,
    is_there: bool,
    is_compatible: bool,
}

/// Why no hardware or no image can be had. A `kind` is what it is, and the field that a provider must have for it.
fn unavailable<'a>(
    kind: (&str, &str),
    template: &str,
    provider: &str,
    one: Option<Only<'_>>,
    known: impl Iterator<Item = &'a String>,
) -> Unsolvable {
    let (what, field) = kind;
    let none =
        format!("no {what} types are available to use with template {template} and provider {provider}");
    let Some(one) = one else {
        return refuse(format!("compatibility.{what}types"), &[], none);
    };
    let asked = if one.is_asked { format!("{what}type") } else { format!("defaults.{what}type") };
    let name = one.name;
    if !one.is_there {
        return refuse(asked, &[], absent(&format!("{what} type"), name, known));
    }
    let (path, why) = match one.is_compatible {
        false => (asked, format!("the template does not allow {what} type {name}")),
        true => (
            format!("{what}types.{name}.providermap.{provider}"),
            format!("{what} type {name} has no {field} there"),
        ),
    };
    refuse(path, &[], format!("{none}: {why}"))
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
    Err(refuse("constraints.size", &[], format!("template {} is for {range}, not {size}", template.name)))
}

/// Whether the services are allowed, exist, and have what they need.
fn services_fit(
    catalogue: &Catalogue,
    template: &ClusterTemplate,
    services: &[String],
) -> Result<(), Unsolvable> {
    if services.is_empty() {
        let reason = format!("template {} has no services, and none were asked for", template.name);
        return Err(refuse("defaults.services", &[], reason));
    }
    let unknown: Vec<&str> =
        services.iter().map(String::as_str).filter(|name| !catalogue.services.contains_key(*name)).collect();
    if let [first, more @ ..] = unknown.as_slice() {
        let others = more.iter().map(|name| format!("; nor is there '{}'", model::shown(name)));
        let reason = absent("service", first, catalogue.services.keys()) + &others.collect::<String>();
        return Err(refuse("services", &unknown, reason));
    }
    let foreign: Vec<&str> = services
        .iter()
        .map(String::as_str)
        .filter(|name| !template.compatibility.allows_service(name))
        .collect();
    if !foreign.is_empty() {
        let are = if foreign.len() == 1 { "is" } else { "are" };
        let reason = format!("{} {are} incompatible with the cluster", foreign.join(","));
        return Err(refuse("compatibility.services", &foreign, reason));
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
