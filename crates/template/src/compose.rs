//! A template with everything it extends and includes merged in.
//!
//! The order is: the parent's whole chain (its includes, then itself), the own includes, the
//! template itself; what comes later wins. Lists are united, `config` is merged by its top-level
//! keys, and a key that an immutable partial template set may not be set again. Links are not merged.
//! [`config_renew`] takes the configuration of a cluster from an older template to a newer one.

use std::collections::BTreeSet;

use model::{Error, Result};
use serde_json::{Map, Value};

use crate::catalogue::Catalogue;
use crate::entity::{ClusterTemplate, Compatibility, Constraints, Defaults, PartialTemplate, SizeRule};

/// Longest chain of templates that extend each other.
const PARENTS_MAX: usize = 64;

enum Part<'a> {
    Whole(&'a ClusterTemplate),
    Partial(&'a PartialTemplate),
}

/// The template with its parents and partial templates. One that has neither comes back as it is.
pub fn resolve(catalogue: &Catalogue, template: &ClusterTemplate) -> Result<ClusterTemplate> {
    if template.extends.is_none() && template.includes.is_empty() {
        return Ok(template.clone());
    }
    let (mut parts, mut wrong) = (Vec::new(), Vec::new());
    collect(catalogue, template, &mut Vec::new(), &mut parts, &mut wrong);
    let mut merged = ClusterTemplate {
        defaults: Defaults::default(),
        compatibility: Compatibility::default(),
        constraints: Constraints::default(),
        ..template.clone()
    };
    merged.administration = Default::default();
    let mut fixed = BTreeSet::new();
    for part in parts {
        match part {
            Part::Partial(partial) => {
                let set =
                    merge_defaults(&mut merged.defaults, &partial.defaults, &mut fixed, partial.immutable);
                wrong.extend(set.into_iter().map(|error| in_template(error, template)));
                merge_compatibility(&mut merged.compatibility, &partial.compatibility);
            }
            Part::Whole(whole) => {
                let set = merge_defaults(&mut merged.defaults, &whole.defaults, &mut fixed, false);
                wrong.extend(set.into_iter().map(|error| in_template(error, template)));
                merge_compatibility(&mut merged.compatibility, &whole.compatibility);
                merge_constraints(&mut merged.constraints, &whole.constraints);
                if whole.administration.leaseduration.is_some() || !whole.administration.other.is_empty() {
                    merged.administration = whole.administration.clone();
                }
            }
        }
    }
    // What is missing may be in what is not there.
    if wrong.is_empty() {
        wrong = complete(&merged);
    }
    let mut wrong = wrong.into_iter();
    match wrong.next() {
        None => Ok(merged),
        Some(first) => Err(wrong.fold(first, |mut all, one| {
            all.more.extend(one.faults());
            all
        })),
    }
}

fn in_template(mut error: Error, template: &ClusterTemplate) -> Error {
    error.message = format!("cluster template {}: {}", template.name, error.message);
    error
}

fn collect<'a>(
    catalogue: &'a Catalogue,
    template: &'a ClusterTemplate,
    path: &mut Vec<&'a str>,
    parts: &mut Vec<Part<'a>>,
    wrong: &mut Vec<Error>,
) {
    let is_circle = path.contains(&template.name.as_str());
    if !is_circle && path.len() >= PARENTS_MAX {
        let (first, name) = (path[0], &template.name);
        let why = format!(
            "template {first} stands on more than {PARENTS_MAX} templates that extend each other, {name} among them"
        );
        wrong.push(Error::invalid(why).at("extends"));
        return;
    }
    if is_circle {
        path.push(&template.name);
        let why = format!("templates extend each other in a circle: {}", path.join(" extends "));
        wrong.push(Error::invalid(why).at("extends"));
        return;
    }
    path.push(&template.name);
    if let Some(parent) = &template.extends {
        match catalogue.clustertemplates.get(&parent.name) {
            Some(found) => collect(catalogue, found, path, parts, wrong),
            None => {
                let (name, parent) = (&template.name, &parent.name);
                let why = format!("cluster template {name} extends '{parent}', which does not exist");
                wrong.push(Error::invalid(why).at("extends"));
            }
        }
    }
    for include in &template.includes {
        match catalogue.partialtemplates.get(&include.name) {
            Some(found) => parts.push(Part::Partial(found)),
            None => {
                let (name, partial) = (&template.name, &include.name);
                let why = format!("cluster template {name} includes '{partial}', which does not exist");
                wrong.push(Error::invalid(why).at("includes"));
            }
        }
    }
    parts.push(Part::Whole(template));
}

fn merge_defaults(
    into: &mut Defaults,
    from: &Defaults,
    fixed: &mut BTreeSet<String>,
    immutable: bool,
) -> Vec<Error> {
    let mut wrong = Vec::new();
    unite(&mut into.services, &from.services);
    for (to, from) in [
        (&mut into.provider, &from.provider),
        (&mut into.hardwaretype, &from.hardwaretype),
        (&mut into.imagetype, &from.imagetype),
        (&mut into.dns_suffix, &from.dns_suffix),
    ] {
        if from.is_some() {
            to.clone_from(from);
        }
    }
    for (key, value) in &from.config {
        if fixed.contains(key) {
            let message = format!("'{key}' cannot be set again: an immutable partial template has set it");
            wrong.push(Error::invalid(message).at(&format!("defaults.config.{key}")));
            continue;
        }
        into.config.insert(key.clone(), value.clone());
        if immutable {
            fixed.insert(key.clone());
        }
    }
    wrong
}

fn merge_compatibility(into: &mut Compatibility, from: &Compatibility) {
    unite(&mut into.services, &from.services);
    unite(&mut into.hardwaretypes, &from.hardwaretypes);
    unite(&mut into.imagetypes, &from.imagetypes);
}

fn merge_constraints(into: &mut Constraints, from: &Constraints) {
    into.services.extend(from.services.iter().map(|(name, rule)| (name.clone(), rule.clone())));
    unite(&mut into.layout.mustcoexist, &from.layout.mustcoexist);
    unite(&mut into.layout.cantcoexist, &from.layout.cantcoexist);
    if from.size != SizeRule::default() {
        into.size = from.size;
    }
}

/// The configuration of a cluster whose template has other defaults now. What the cluster has as the old template had
/// it becomes what the new one has, value by value; what differs was set by a user, who wins.
pub fn config_renew(
    own: &Map<String, Value>,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> Map<String, Value> {
    let keys: BTreeSet<&String> = own.keys().chain(new.keys()).collect();
    let renewed = |key: &String| Some((key.clone(), value_renew(own.get(key), old.get(key), new.get(key))?));
    keys.into_iter().filter_map(renewed).collect()
}

fn value_renew(own: Option<&Value>, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    match (own, old, new) {
        _ if own == old => new.cloned(),
        (Some(Value::Object(own)), old, Some(Value::Object(new))) => {
            let none = Map::new();
            let old = old.and_then(Value::as_object).unwrap_or(&none);
            Some(Value::Object(config_renew(own, old, new)))
        }
        _ => own.cloned(),
    }
}

fn unite<T: Clone + PartialEq>(into: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !into.contains(item) {
            into.push(item.clone());
        }
    }
}

/// What the whole must say for a cluster to be made of it.
fn complete(template: &ClusterTemplate) -> Vec<Error> {
    let name = &template.name;
    let mut wrong = Vec::new();
    if template.defaults.services.is_empty() {
        let message =
            format!("cluster template {name} has no services, nor has anything it extends or includes");
        wrong.push(Error::invalid(message).at("defaults.services"));
    }
    if template.defaults.provider.is_none() {
        let message =
            format!("cluster template {name} has no provider, nor has anything it extends or includes");
        wrong.push(Error::invalid(message).at("defaults.provider"));
    }
    if let Some(suffix) = template.defaults.dns_suffix.as_ref().filter(|suffix| !dns_suffix_is_good(suffix)) {
        let message = format!("'{}' is no DNS suffix such as example.com", model::shown(suffix));
        wrong.push(Error::invalid(message).at("defaults.dnsSuffix"));
    }
    wrong
}

/// Whether host names may end with it.
pub fn dns_suffix_is_good(suffix: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    suffix.len() <= 253 && suffix.strip_prefix('.').unwrap_or(suffix).split('.').all(label)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::catalogue::Kind;

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::default();
        let mut add = |kind, value: Value| catalogue.add(kind, value).unwrap();
        add(
            Kind::PartialTemplate,
            json!({"name": "watched", "immutable": "true", "defaults": {"services": ["agent"], "config": {"watch": {"to": "a"}}},
                   "compatibility": {"services": ["agent"]}, "constraints": {"size": {"min": 9}}}),
        );
        add(
            Kind::PartialTemplate,
            json!({"name": "directory", "defaults": {"config": {"ldap": "wrong"}, "imagetype": "new"}}),
        );
        add(
            Kind::ClusterTemplate,
            json!({"name": "plain", "includes": [{"name": "watched"}], "defaults": {"services": ["web"], "provider": "p", "imagetype": "old"},
                   "compatibility": {"services": ["web"]}, "links": [{"label": "l", "url": "u"}],
                   "constraints": {"size": {"min": 2}, "layout": {"mustcoexist": [["a", "b"]]}, "services": {"web": {"quantities": {"min": 1}}}},
                   "administration": {"leaseduration": {"initial": "1d"}}}),
        );
        add(
            Kind::ClusterTemplate,
            json!({"name": "rich", "extends": {"name": "plain"}, "includes": [{"name": "directory"}],
                   "defaults": {"services": ["db"], "config": {"ldap": "right"}},
                   "constraints": {"layout": {"mustcoexist": [["a", "b"], ["c", "d"]]}, "services": {"web": {"quantities": {"max": 3}}}}}),
        );
        catalogue
    }

    #[test]
    fn parents_come_first_and_the_last_word_wins() {
        let catalogue = catalogue();
        let whole = resolve(&catalogue, catalogue.template("rich").unwrap()).unwrap();
        assert_eq!(whole.defaults.services, ["agent", "web", "db"]);
        assert_eq!(whole.defaults.provider.as_deref(), Some("p"));
        assert_eq!(whole.defaults.imagetype.as_deref(), Some("new"));
        assert_eq!(whole.defaults.config["ldap"], json!("right"));
        assert_eq!(whole.compatibility.services, ["agent", "web"]);
        assert_eq!(whole.constraints.size.min, Some(2));
        assert_eq!(whole.constraints.layout.mustcoexist.len(), 2);
        let web = &whole.constraints.services["web"].quantities;
        assert_eq!((web.min, web.max), (None, Some(3)));
        assert_eq!(whole.administration.leaseduration.unwrap().initial.0, 86_400_000);
        assert!(whole.links.is_empty());
    }

    #[test]
    fn what_users_set_outlives_the_defaults_of_a_template() {
        let renew = |own: Value, old: Value, new: Value| {
            let map = |value: Value| value.as_object().unwrap().clone();
            Value::Object(config_renew(&map(own), &map(old), &map(new)))
        };
        let old = json!({"web": {"port": 80, "tls": false, "gone": 1}, "db": {"ram": "1g"}, "list": [1]});
        let new = json!({"web": {"port": 80, "tls": true, "more": 2}, "db": {"ram": "2g"}, "list": [1, 2], "log": {"to": "x"}});
        assert_eq!(renew(old.clone(), old.clone(), new.clone()), new, "nobody set anything");
        let own = json!({"web": {"port": 8080, "tls": false, "gone": 1}, "list": [9], "mine": {"a": 1}});
        assert_eq!(
            renew(own, old.clone(), new.clone()),
            json!({"web": {"port": 8080, "tls": true, "more": 2}, "list": [9], "mine": {"a": 1}, "log": {"to": "x"}}),
            "what was taken out stays out"
        );
        let other = json!({"web": "off"});
        assert_eq!(renew(other.clone(), old.clone(), json!({"web": {"port": 1}})), other);
        assert_eq!(renew(json!({"log": 1}), json!({}), new.clone())["log"], json!(1));
    }

    #[test]
    fn what_cannot_be_put_together_is_refused() {
        let base = catalogue();
        let check = |value: Value, expect: &str| {
            let mut catalogue = base.clone();
            let name = catalogue.add(Kind::ClusterTemplate, value).unwrap();
            let error = resolve(&catalogue, catalogue.template(&name).unwrap()).unwrap_err();
            assert!(error.message.contains(expect), "{}", error.message);
        };
        check(
            json!({"name": "t", "extends": {"name": "plain"}, "defaults": {"config": {"watch": 1}}}),
            "immutable",
        );
        check(json!({"name": "t", "extends": {"name": "none"}}), "'none', which does not exist");
        check(json!({"name": "t", "includes": [{"name": "none"}]}), "'none', which does not exist");
        check(json!({"name": "t", "extends": {"name": "t"}}), "circle: t extends t");
        let mut long = base.clone();
        for at in 0..PARENTS_MAX + 1 {
            let child = json!({"name": format!("t{at}"), "extends": {"name": format!("t{}", at + 1)}});
            long.add(Kind::ClusterTemplate, child).unwrap();
        }
        let error = resolve(&long, long.template("t0").unwrap()).unwrap_err();
        assert!(error.message.contains("more than 64 templates"), "{}", error.message);
        check(json!({"name": "t", "includes": [{"name": "directory"}]}), "no services");
        check(json!({"name": "t", "includes": [{"name": "watched"}]}), "no provider");
        check(
            json!({"name": "t", "extends": {"name": "plain"}, "defaults": {"dnsSuffix": "a..b"}}),
            "no DNS suffix",
        );
    }
}
