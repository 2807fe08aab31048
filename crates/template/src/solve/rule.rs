//! The single demands of a template that a layout must meet, each of which can be named and left out.

use serde::Serialize;

use crate::entity::{ClusterTemplate, RatioTo};

/// One demand. Groups are named by their place in the template.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rule {
    Must(usize),
    Cant(usize),
    Min(String),
    Max(String),
    Step(String),
    Ratio(String),
    Hardware(String),
    Image(String),
    /// Every machine carries a service.
    Carry,
}

/// A demand that clashes with others, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Where it stands in the template or in the catalogue, or the field of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub services: Vec<String>,
    pub text: String,
}

impl Rule {
    /// Every demand that a template makes on these services, the general ones first: what is
    /// left out first when looking for a small clash is what explains least.
    pub fn all(template: &ClusterTemplate, services: &[String]) -> Vec<Self> {
        let constraints = &template.constraints;
        let on = |name: &String| services.contains(name);
        let mut rules = vec![];
        for (name, rule) in constraints.services.iter().filter(|(name, _)| on(name)) {
            let quantities = &rule.quantities;
            let mut add = |wanted: bool, rule: fn(String) -> Self| {
                if wanted {
                    rules.push(rule(name.clone()));
                }
            };
            add(!rule.hardwaretypes.is_empty(), Self::Hardware);
            add(!rule.imagetypes.is_empty(), Self::Image);
            add(quantities.step.is_some_and(|step| step > 1), Self::Step);
            add(quantities.ratio.is_some(), Self::Ratio);
            add(quantities.max.is_some(), Self::Max);
            add(quantities.min.is_some_and(|min| min > 0), Self::Min);
        }
        let layout = &constraints.layout;
        let shared = |group: &Vec<String>| group.iter().filter(|name| on(name)).count() > 1;
        rules.extend(
            (0..layout.mustcoexist.len()).filter(|i| shared(&layout.mustcoexist[*i])).map(Self::Must),
        );
        let whole = |group: &Vec<String>| !group.is_empty() && group.iter().all(on);
        rules
            .extend((0..layout.cantcoexist.len()).filter(|i| whole(&layout.cantcoexist[*i])).map(Self::Cant));
        rules.push(Self::Carry);
        rules
    }

    /// The demand in words.
    pub fn told(&self, template: &ClusterTemplate, services: &[String]) -> Conflict {
        let constraints = &template.constraints;
        let rule = |name: &String| constraints.services.get(name).cloned().unwrap_or_default();
        let of = |name: &String, field: &str, text: String| Conflict {
            path: Some(format!("constraints.services.{name}.{field}")),
            services: vec![name.clone()],
            text,
        };
        let machines =
            |count: u64| if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") };
        match self {
            Self::Must(at) => {
                let group: Vec<String> = present(&constraints.layout.mustcoexist[*at], services);
                let text = format!("{} must share their machines", listed(&group));
                Conflict {
                    path: Some(format!("constraints.layout.mustcoexist[{at}]")),
                    services: group,
                    text,
                }
            }
            Self::Cant(at) => {
                let group: Vec<String> = present(&constraints.layout.cantcoexist[*at], services);
                let text = match group.len() {
                    1 => format!("{} cannot be on any machine", group[0]),
                    _ => format!("{} cannot be on one machine together", listed(&group)),
                };
                Conflict {
                    path: Some(format!("constraints.layout.cantcoexist[{at}]")),
                    services: group,
                    text,
                }
            }
            Self::Min(name) => {
                let min = rule(name).quantities.min.unwrap_or(0);
                of(name, "quantities.min", format!("{name} must be on at least {}", machines(min)))
            }
            Self::Max(name) => {
                let max = rule(name).quantities.max.unwrap_or(0);
                of(name, "quantities.max", format!("{name} may be on at most {}", machines(max)))
            }
            Self::Step(name) => {
                let quantities = rule(name).quantities;
                let (min, step) = (quantities.min.unwrap_or(0), quantities.step.unwrap_or(1));
                let text = format!("{name} must be on {min}, {}, {} … machines", min + step, min + 2 * step);
                of(name, "quantities.stepSize", text)
            }
            Self::Ratio(name) => of(name, "quantities.ratio", ratio_told(name, rule(name).quantities.ratio)),
            Self::Hardware(name) => {
                let text = format!("{name} must be on hardware {}", rule(name).hardwaretypes.join(" or "));
                of(name, "hardwaretypes", text)
            }
            Self::Image(name) => {
                let text = format!("{name} must be on image {}", rule(name).imagetypes.join(" or "));
                of(name, "imagetypes", text)
            }
            Self::Carry => Conflict {
                path: Some("constraints.services".into()),
                services: Vec::new(),
                text: "every machine must carry a service, and none of the services may be on every machine"
                    .into(),
            },
        }
    }
}

fn ratio_told(name: &str, ratio: Option<RatioTo>) -> String {
    match ratio {
        Some(RatioTo::Machines(ratio)) => {
            format!("{name} must be on {} for every {} of the cluster's machines", ratio.part, ratio.whole)
        }
        Some(RatioTo::Services(ratios)) => {
            let each = ratios
                .iter()
                .map(|(of, ratio)| format!("{} for every {} with {of}", ratio.part, ratio.whole));
            format!("{name} must be on {} machines", each.collect::<Vec<_>>().join(" and "))
        }
        None => format!("{name} has a ratio"),
    }
}

fn present(group: &[String], services: &[String]) -> Vec<String> {
    group.iter().filter(|name| services.contains(name)).cloned().collect()
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}
