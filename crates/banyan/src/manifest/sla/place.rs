//! Constraints and connectivity of a microservice as constraints on its place.

use std::collections::BTreeSet;

use model::geo::Degrees;
use model::{AreaTerm, Constraints, Faults, LatencyTerm};
use serde_json::Value;

use super::Targets;
use super::read::Fields;

/// The names that will do: of zones, or of nodes. None: any.
#[derive(Default)]
struct Allowed(Option<(BTreeSet<String>, String)>);

impl Allowed {
    /// Only these, and only those that earlier constraints leave.
    fn narrow<'a>(&mut self, names: impl Iterator<Item = &'a str>, path: &str) {
        let names: BTreeSet<String> =
            names.map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect();
        if names.is_empty() {
            return;
        }
        let left = match &self.0 {
            Some((before, _)) => before.intersection(&names).cloned().collect(),
            None => names,
        };
        self.0 = Some((left, path.to_owned()));
    }

    /// The one that is left.
    fn one(self, what: &str, faults: &mut Faults) -> Option<String> {
        let (names, path) = self.0?;
        match names.len() {
            0 => faults.add(&path, format!("no {what} is allowed by all constraints together")),
            1 => return names.into_iter().next(),
            count => {
                faults.add(&path, format!("{count} {what}s would do; only one can be demanded here, or any"));
            }
        }
        None
    }
}

/// What a constraint allows and by when: a demand when it must hold for any share of requests.
/// An instance is placed where it holds from the start, so the time to get there does not matter.
fn demanded(fields: &mut Fields<'_>, faults: &mut Faults) -> bool {
    fields.number("convergence_time", faults);
    fields.number("rigidness", faults).is_none_or(|share| share > 0.0)
}

/// A number of milliseconds or kilometres, cut down: the stricter one.
fn threshold(fields: &mut Fields<'_>, faults: &mut Faults) -> Option<u32> {
    fields.needed("threshold", faults);
    let number = fields.number("threshold", faults)?;
    if number > f64::from(u32::MAX) {
        faults.add(&fields.at("threshold"), "is too large");
        return None;
    }
    Some(number as u32)
}

pub fn constraints(list: Vec<(String, &Value)>, place: &mut Constraints, faults: &mut Faults) {
    let (mut zones, mut nodes) = (Allowed::default(), Allowed::default());
    for (path, value) in list {
        let Some(mut fields) = Fields::of(value, path, faults) else { continue };
        fields.needed("type", faults);
        let Some(kind) = fields.text("type", faults) else { continue };
        match kind {
            "direct" => {
                demanded(&mut fields, faults);
                let cluster = fields.text("cluster", faults).unwrap_or_default();
                zones.narrow(cluster.split(';'), &fields.at("cluster"));
                let node = fields.text("node", faults).unwrap_or_default();
                nodes.narrow(node.split(';'), &fields.at("node"));
            }
            "clusters" => {
                demanded(&mut fields, faults);
                let allowed = fields.texts("allowed", faults);
                zones.narrow(allowed.iter().map(|(_, name)| *name), &fields.at("allowed"));
            }
            "geo" => geo(&mut fields, place, faults),
            "latency" => latency(&mut fields, place, faults),
            "addons" => {
                demanded(&mut fields, faults);
                fields.cannot(&["needs"], "a list", "nodes here have no addons; use node labels", faults);
            }
            other => {
                let sentence =
                    format!("'{other}' is not a constraint: direct, clusters, geo, latency or addons");
                faults.add(&fields.at("type"), sentence);
                continue;
            }
        }
        fields.rest(faults);
    }
    place.zone = zones.one("cluster", faults);
    place.node = nodes.one("node", faults);
}

/// `location` is "longitude;latitude", `threshold` kilometres.
fn geo(fields: &mut Fields<'_>, place: &mut Constraints, faults: &mut Faults) {
    let required = demanded(fields, faults);
    let radius = threshold(fields, faults);
    fields.needed("location", faults);
    let Some(location) = fields.text("location", faults) else { return };
    let degrees = |text: &str| text.trim().parse::<f64>().ok().filter(|d| d.abs() <= 360.0).map(Degrees::new);
    let read = location.split_once(';').and_then(|(lon, lat)| Some((degrees(lon)?, degrees(lat)?)));
    let Some((longitude, latitude)) = read else {
        faults.add(&fields.at("location"), "must be \"longitude;latitude\", such as \"11.576;48.137\"");
        return;
    };
    let Some(radius_km) = radius else { return };
    if required && radius_km == 0 {
        faults.add(&fields.at("threshold"), "must be 1 or more");
        return;
    }
    let term = AreaTerm { latitude, longitude, radius_km, required };
    if let Err(error) = term.area().validate() {
        faults.add(&fields.at("location"), error.message);
    } else if place.area.as_ref().is_some_and(|other| *other != term) {
        faults.add(&fields.path, "a second area: only one can be asked for");
    } else {
        place.area = Some(term);
    }
}

/// `area` is a place that nodes measure the way to, `threshold` milliseconds.
fn latency(fields: &mut Fields<'_>, place: &mut Constraints, faults: &mut Faults) {
    let required = demanded(fields, faults);
    let max_ms = threshold(fields, faults);
    fields.needed("area", faults);
    let area = fields.word("area", faults);
    if let (Some(max_ms), Some(area)) = (max_ms, area) {
        if max_ms == 0 {
            faults.add(&fields.at("threshold"), "must be 1 or more");
            return;
        }
        place.latency.push(LatencyTerm { place: Some(area.to_owned()), workload: None, max_ms, required });
    }
}

/// Ways to other microservices of the descriptor.
pub fn connectivity(
    list: Vec<(String, &Value)>,
    targets: &Targets,
    place: &mut Constraints,
    faults: &mut Faults,
) {
    for (path, value) in list {
        let Some(mut fields) = Fields::of(value, path, faults) else { continue };
        fields.needed("target_microservice_id", faults);
        let target = fields.word("target_microservice_id", faults).and_then(|name| {
            let found = targets.workload(name);
            if found.is_none() {
                let sentence = format!("'{name}' is not one microservice of this descriptor");
                faults.add(&fields.at("target_microservice_id"), sentence);
            }
            found
        });
        fields.needed("con_constraints", faults);
        for (path, value) in fields.list("con_constraints", faults) {
            let Some(mut inner) = Fields::of(value, path, faults) else { continue };
            for key in ["type", "threshold", "rigidness", "convergence_time"] {
                inner.needed(key, faults);
            }
            match inner.text("type", faults) {
                Some("latency") => {
                    let required = demanded(&mut inner, faults);
                    let max_ms = threshold(&mut inner, faults);
                    if max_ms == Some(0) {
                        faults.add(&inner.at("threshold"), "must be 1 or more");
                    } else if let (Some(max_ms), Some(target)) = (max_ms, &target) {
                        let workload = Some(target.to_string());
                        place.latency.push(LatencyTerm { place: None, workload, max_ms, required });
                    }
                }
                Some("bandwidth") => {
                    demanded(&mut inner, faults);
                    inner.cannot(&["threshold"], "a number", "bandwidth is not promised here", faults);
                }
                Some(other) => {
                    demanded(&mut inner, faults);
                    inner.number("threshold", faults);
                    faults.add(&inner.at("type"), format!("'{other}' must be latency or bandwidth"));
                }
                None => continue,
            }
            inner.rest(faults);
        }
        fields.rest(faults);
    }
}
