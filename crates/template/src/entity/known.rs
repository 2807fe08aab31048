//! The names of fields that definitions have, to find those that were misspelt.
//!
//! Definitions are read leniently: what nobody knows has no effect. Here it is found, with its path and the name
//! that was likely meant. What belongs to others (settings, fields of plugins) is not looked into.

use model::read::{nearest, unknown_field};
use serde_json::Value;

use crate::catalogue::Kind;

/// Most that is said of one definition.
const UNKNOWN_MAX: usize = 50;

/// A field that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The field, as a dotted path.
    pub path: String,
    /// A sentence.
    pub message: String,
}

/// What a part of a definition may hold.
enum Shape {
    /// Anything: it is not ours, or no object.
    Any,
    /// The same, under a name that is understood but not recommended.
    Alias,
    /// Fields of these names.
    Fields(&'static [(&'static str, Shape)]),
    /// Names that the author chose, each with one of these.
    Named(&'static Shape),
    /// A list of these.
    List(&'static Shape),
    /// How an action is carried out. What stands beside its fields is read as one of them.
    Action,
}

use Shape::{Action, Alias, Any, Fields, List, Named};

const LINKS: Shape = List(&Fields(&[("label", Any), ("url", Any)]));
const REFERENCE: Shape = Fields(&[("name", Any), ("version", Any)]);
const STAGE: Shape = Fields(&[("requires", Any), ("uses", Any)]);
const FIELD_SET: Shape = Fields(&[
    (
        "fields",
        Named(&Fields(&[
            ("label", Any),
            ("type", Any),
            ("tip", Any),
            ("override", Any),
            ("sensitive", Any),
            ("default", Any),
            ("options", Any),
            ("description", Any),
        ])),
    ),
    ("required", Any),
]);
const DEFAULTS: Shape = Fields(&[
    ("services", List(&Fields(&[("name", Any), ("config", Any)]))),
    ("provider", Any),
    ("hardwaretype", Any),
    ("imagetype", Any),
    ("dnsSuffix", Any),
    ("dnssuffix", Alias),
    ("config", Any),
]);
const COMPATIBILITY: Shape = Fields(&[("hardwaretypes", Any), ("imagetypes", Any), ("services", Any)]);
const CONSTRAINTS: Shape = Fields(&[
    ("size", Fields(&[("min", Any), ("max", Any)])),
    ("layout", Fields(&[("mustcoexist", Any), ("cantcoexist", Any)])),
    (
        "services",
        Named(&Fields(&[
            ("hardwaretypes", Any),
            ("imagetypes", Any),
            (
                "quantities",
                Fields(&[
                    ("min", Any),
                    ("max", Any),
                    ("stepSize", Any),
                    ("stepsize", Alias),
                    ("step", Alias),
                    ("ratio", Any),
                ]),
            ),
        ])),
    ),
]);
const ADMINISTRATION: Shape = Fields(&[
    ("leaseduration", Fields(&[("initial", Any), ("max", Any), ("step", Any)])),
    ("webhooks", Fields(&[("start", Any), ("success", Any), ("failure", Any), ("actions", Any)])),
]);

/// What Coopr lets every definition have for people and screens.
const COMMON: &[(&str, Shape)] =
    &[("name", Any), ("label", Any), ("description", Any), ("icon", Any), ("version", Any)];

/// The fields of a kind beside those that all have.
fn own(kind: Kind) -> &'static [(&'static str, Shape)] {
    match kind {
        Kind::Provider => &[("providertype", Any), ("provisioner", Any)],
        Kind::ProviderType | Kind::AutomatorType => &[
            ("parameters", Fields(&[("admin", FIELD_SET), ("user", FIELD_SET)])),
            ("resourceTypes", Named(&Fields(&[("format", Any), ("permissions", Any)]))),
            ("pool", Any),
            ("classname", Alias),
        ],
        // Coopr's definitions say for people what a flavor has.
        Kind::HardwareType => &[(
            "providermap",
            Named(&Fields(&[
                ("flavor", Any),
                ("cost", Any),
                ("vcpu", Alias),
                ("ram", Alias),
                ("disks", Alias),
            ])),
        )],
        Kind::ImageType => &[("providermap", Named(&Fields(&[("image", Any), ("sshuser", Any)])))],
        Kind::Service => &[
            (
                "dependencies",
                Fields(&[("provides", Any), ("conflicts", Any), ("install", STAGE), ("runtime", STAGE)]),
            ),
            ("dependson", Any),
            ("provisioner", Fields(&[("actions", Named(&Action))])),
            ("links", LINKS),
        ],
        Kind::ClusterTemplate => &[
            ("defaults", DEFAULTS),
            ("compatibility", COMPATIBILITY),
            ("constraints", CONSTRAINTS),
            ("administration", ADMINISTRATION),
            ("links", LINKS),
            ("extends", REFERENCE),
            ("includes", List(&REFERENCE)),
        ],
        // The last are not merged, but files of Coopr have them.
        Kind::PartialTemplate => &[
            ("immutable", Any),
            ("defaults", DEFAULTS),
            ("compatibility", COMPATIBILITY),
            ("constraints", CONSTRAINTS),
            ("administration", ADMINISTRATION),
            ("links", LINKS),
        ],
    }
}

/// The fields of a definition that nothing reads.
pub fn unknown(kind: Kind, value: &Value) -> Vec<Unknown> {
    let mut found = Vec::new();
    fields(&[COMMON, own(kind)], "", value, &mut found);
    found.truncate(UNKNOWN_MAX);
    found
}

/// What is said of a field of a plugin that looks like another one.
pub fn misspelt(field: &str, known: &[&str]) -> Option<String> {
    (!known.contains(&field) && nearest(field, known).is_some()).then(|| unknown_field(field, known))
}

fn fields(known: &[&'static [(&'static str, Shape)]], path: &str, value: &Value, found: &mut Vec<Unknown>) {
    let Value::Object(members) = value else { return };
    for (name, inner) in members.iter().filter(|(_, inner)| !inner.is_null()) {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.iter().copied().flatten().find(|(field, _)| field == name) {
            Some((_, shape)) => look(shape, &place, inner, found),
            None => {
                let all = known.iter().copied().flatten();
                let named = all.filter(|(_, shape)| !matches!(shape, Alias));
                let names: Vec<&str> = named.map(|(field, _)| *field).collect();
                let message = unknown_field(name, &names);
                found.push(Unknown { path: place, message });
            }
        }
    }
}

fn look(shape: &'static Shape, path: &str, value: &Value, found: &mut Vec<Unknown>) {
    match (shape, value) {
        (Fields(known), value) => fields(&[known], path, value, found),
        (Action, Value::Object(members)) => members.keys().for_each(|name| action(path, name, found)),
        (Named(inner), Value::Object(members)) => {
            members.iter().for_each(|(name, value)| look(inner, &format!("{path}.{name}"), value, found));
        }
        (List(inner), Value::Array(items)) => {
            let mut each = |(place, item)| look(inner, &format!("{path}[{place}]"), item, found);
            items.iter().enumerate().for_each(&mut each);
        }
        _ => {}
    }
}

/// A field of an action. `script` and `data` are Loom's.
fn action(path: &str, name: &str, found: &mut Vec<Unknown>) {
    const OWN: [&str; 2] = ["type", "fields"];
    if OWN.contains(&name) || ["script", "data"].contains(&name) {
        return;
    }
    let message = misspelt(name, &OWN).unwrap_or_else(|| {
        format!("'{}' stands beside 'fields' and is read as one of them", model::shown(name))
    });
    found.push(Unknown { path: format!("{path}.{name}"), message });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;

    fn said(kind: Kind, value: &Value) -> Vec<String> {
        unknown(kind, value).into_iter().map(|one| format!("{}: {}", one.path, one.message)).collect()
    }

    #[test]
    fn a_misspelt_field_is_told_with_its_path_and_the_likely_name() {
        let template = json!({"name": "t", "desription": "x", "links": [{"label": "l", "url": "u", "ulr": "v"}],
            "defaults": {"servics": ["a"], "config": {"anything": {"goes": 1}}},
            "constraints": {"sise": 1, "services": {"web": {"quantities": {"mni": 1}}}}});
        assert_eq!(
            said(Kind::ClusterTemplate, &template),
            [
                "constraints.services.web.quantities.mni: there is no field 'mni' here; did you mean 'min'?",
                "constraints.sise: there is no field 'sise' here; did you mean 'size'?",
                "defaults.servics: there is no field 'servics' here; did you mean 'services'?",
                "desription: there is no field 'desription' here; did you mean 'description'?",
                "links[0].ulr: there is no field 'ulr' here; did you mean 'url'?",
            ]
        );
        let service =
            json!({"name": "s", "dependencies": {"runtime": {"require": ["a"]}}, "zzz": 1, "none": null});
        assert_eq!(
            said(Kind::Service, &service),
            [
                "dependencies.runtime.require: there is no field 'require' here; did you mean 'requires'?",
                "zzz: there is no field 'zzz' here; there are name, label, description, icon, version, dependencies, dependson, provisioner and links",
            ]
        );
        let action = json!({"name": "s", "provisioner": {"actions": {
            "install": {"type": "shell", "feilds": {"code": "x"}},
            "start": {"type": "shell", "script": "a", "data": "b", "timeout": 3, "fields": {"any": 1}}}}});
        assert_eq!(
            said(Kind::Service, &action),
            [
                "provisioner.actions.install.feilds: there is no field 'feilds' here; did you mean 'fields'?",
                "provisioner.actions.start.timeout: 'timeout' stands beside 'fields' and is read as one of them",
            ]
        );
        let size =
            json!({"name": "h", "providermap": {"p": {"flavor": "f", "vcpu": 1, "ram": 2, "disks": [1]}}});
        assert_eq!(said(Kind::HardwareType, &size), Vec::<String>::new());
        assert_eq!(
            said(
                Kind::ImageType,
                &json!({"name": "i", "providermap": {"p": {"image": "x", "ssh_user": "u"}}})
            ),
            ["providermap.p.ssh_user: there is no field 'ssh_user' here; did you mean 'sshuser'?"]
        );
    }

    /// What the types write again they also read: no name may be missing above.
    #[test]
    fn every_field_of_the_types_is_known() {
        let stage = json!({"requires": ["a"], "uses": ["b"]});
        let field = json!({"label": "l", "type": "text", "override": true, "sensitive": true});
        let set = json!({"fields": {"f": field}, "required": [["f"]]});
        let plugin = json!({"name": "p", "parameters": {"admin": set, "user": set}, "pool": true, "version": 1,
            "resourceTypes": {"r": {"format": "file", "permissions": "0644"}}});
        let link = json!([{"label": "l", "url": "u"}]);
        let defaults = json!({"services": ["a"], "provider": "p", "hardwaretype": "h", "imagetype": "i",
            "dnsSuffix": "d", "config": {}});
        let compatibility = json!({"hardwaretypes": [], "imagetypes": [], "services": []});
        let rule = json!({"hardwaretypes": [], "imagetypes": [],
            "quantities": {"min": 1, "max": 2, "stepSize": 1, "ratio": "1:2"}});
        let full = [
            (Kind::Provider, json!({"name": "p", "providertype": "t", "provisioner": {}, "version": 1})),
            (Kind::ProviderType, plugin.clone()),
            (Kind::AutomatorType, plugin),
            (
                Kind::HardwareType,
                json!({"name": "h", "providermap": {"p": {"flavor": "f", "cost": 1}}, "version": 1}),
            ),
            (
                Kind::ImageType,
                json!({"name": "i", "providermap": {"p": {"image": "i", "sshuser": "u"}}, "version": 1}),
            ),
            (
                Kind::Service,
                json!({"name": "s", "links": link, "version": 1, "provisioner": {"actions": {}},
                "dependencies": {"provides": [], "conflicts": [], "install": stage, "runtime": stage}}),
            ),
            (
                Kind::ClusterTemplate,
                json!({"name": "t", "defaults": defaults, "compatibility": compatibility, "links": link,
                "constraints": {"size": {"min": 1, "max": 2}, "layout": {"mustcoexist": [], "cantcoexist": []},
                    "services": {"a": rule}},
                "administration": {"leaseduration": {"initial": 1, "max": 2, "step": 1}}, "version": 1,
                "extends": {"name": "x", "version": 1}, "includes": [{"name": "y", "version": 1}]}),
            ),
            (
                Kind::PartialTemplate,
                json!({"name": "t", "immutable": true, "defaults": defaults,
                "compatibility": compatibility, "version": 1}),
            ),
        ];
        for (kind, value) in full {
            let mut catalogue = Catalogue::default();
            catalogue.add(kind, value).unwrap();
            let written = serde_json::to_value(&catalogue).unwrap()[kind.folder()].clone();
            let again = written.as_object().unwrap().values().next().unwrap().clone();
            assert_eq!(said(kind, &again), Vec::<String>::new(), "{kind}: {again}");
        }
    }
}
