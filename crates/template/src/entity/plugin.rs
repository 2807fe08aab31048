//! What a kind of provider or automator needs to know, and which files it uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Other, lenient};

/// A provider type or an automator type: both have one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginType {
    pub name: String,
    #[serde(default)]
    pub parameters: Parameters,
    #[serde(default, rename = "resourceTypes")]
    pub resource_types: BTreeMap<String, ResourceType>,
    /// Of a provider type: its machines are only lent and outlive the cluster, so services are removed before they go.
    #[serde(default, deserialize_with = "lenient::truth", skip_serializing_if = "std::ops::Not::not")]
    pub pool: bool,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    #[serde(default)]
    pub admin: FieldSet,
    #[serde(default)]
    pub user: FieldSet,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FieldSet {
    #[serde(default)]
    pub fields: BTreeMap<String, FieldSchema>,
    /// Alternatives: one whole set of these must be present.
    #[serde(default)]
    pub required: Vec<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldSchema {
    pub label: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether a user's request may set it.
    #[serde(default, rename = "override", deserialize_with = "lenient::truth")]
    pub overridable: bool,
    #[serde(default, deserialize_with = "lenient::truth")]
    pub sensitive: bool,
    #[serde(flatten)]
    pub other: Other,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceType {
    pub format: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
}

impl ResourceType {
    pub fn is_archive(&self) -> bool {
        self.format == "archive"
    }

    /// Whether its files are for their owner alone, as keys are.
    pub fn is_secret(&self) -> bool {
        let mode = self.permissions.as_deref().and_then(|text| u32::from_str_radix(text, 8).ok());
        mode.is_some_and(|mode| mode & 0o077 == 0)
    }
}

impl PluginType {
    /// Whether a field must not be shown.
    pub fn is_secret(&self, field: &str) -> bool {
        let sides = [&self.parameters.admin, &self.parameters.user];
        let mut schemas = sides.into_iter().filter_map(|side| side.fields.get(field));
        schemas.any(|schema| schema.sensitive || schema.kind == "password")
    }

    /// The fields that a request with `given` may set and does, parted into plain and sensitive ones.
    /// What is no field of a user's, nor an administrator's that may be overridden, is left out.
    pub fn fields_grouped(&self, given: &Other) -> (Other, Other) {
        let schema = |name: &str| {
            let admin = self.parameters.admin.fields.get(name).filter(|field| field.overridable);
            self.parameters.user.fields.get(name).or(admin)
        };
        let known = given.iter().filter_map(|(name, value)| Some((name, value, schema(name)?)));
        let (sensitive, plain): (Vec<_>, Vec<_>) = known.partition(|(_, _, schema)| schema.sensitive);
        let map = |rows: Vec<(&String, &serde_json::Value, &FieldSchema)>| {
            rows.into_iter().map(|(name, value, _)| (name.clone(), value.clone())).collect()
        };
        (map(plain), map(sensitive))
    }
}

impl FieldSet {
    /// What is missing from each alternative; empty when one of them is whole.
    pub fn missing<'a>(&'a self, has: impl Fn(&str) -> bool) -> Vec<Vec<&'a str>> {
        let lacks = |set: &'a Vec<String>| -> Vec<&'a str> {
            set.iter().map(String::as_str).filter(|name| !has(name)).collect()
        };
        let missing: Vec<_> = self.required.iter().map(lacks).collect();
        if missing.iter().any(Vec::is_empty) { Vec::new() } else { missing }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_request_may_set_is_parted_by_sensitivity() {
        let field = |overridable, sensitive| json!({"label": "l", "type": "text", "override": overridable, "sensitive": sensitive});
        let kind: PluginType = super::super::read(json!({"name": "cloud", "parameters": {
            "admin": {"fields": {"region": field(true, false), "account": field(false, false), "url": field(true, true)}},
            "user": {"fields": {"key": field(false, true), "keyname": field(false, false)}}}}))
        .unwrap();
        let given =
            json!({"key": "k", "url": "u", "keyname": "n", "region": "r", "account": "a", "other": "o"});
        let (plain, sensitive) = kind.fields_grouped(given.as_object().unwrap());
        assert_eq!(plain.keys().collect::<Vec<_>>(), ["keyname", "region"]);
        assert_eq!(sensitive.keys().collect::<Vec<_>>(), ["key", "url"]);
    }

    #[test]
    fn one_whole_alternative_is_enough() {
        let set = FieldSet {
            required: vec![vec!["a".into()], vec!["b".into(), "c".into()]],
            ..FieldSet::default()
        };
        assert!(set.missing(|name| name == "a").is_empty());
        assert!(set.missing(|name| name != "a").is_empty());
        assert_eq!(set.missing(|name| name == "b"), [vec!["a"], vec!["c"]]);
    }
}
