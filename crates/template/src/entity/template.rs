//! The blueprint of a cluster, and parts of blueprints that several share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Lease, Other, Quantities, lenient};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterTemplate {
    pub name: String,
    #[serde(default)]
    pub defaults: Defaults,
    #[serde(default)]
    pub compatibility: Compatibility,
    #[serde(default)]
    pub constraints: Constraints,
    #[serde(default)]
    pub administration: Administration,
    #[serde(default)]
    pub links: Vec<Link>,
    /// The template that this one adds to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<Reference>,
    /// Partial templates that are merged in before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub includes: Vec<Reference>,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

/// Defaults and compatibility that templates include. Its other parts are not merged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartialTemplate {
    pub name: String,
    /// Whether what it sets in `config` may not be set again.
    #[serde(default, deserialize_with = "lenient::truth")]
    pub immutable: bool,
    #[serde(default)]
    pub defaults: Defaults,
    #[serde(default)]
    pub compatibility: Compatibility,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenReference")]
pub struct Reference {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// Another template by name, or with its number.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "another template is named by its name, or an object with 'name' and 'version'"
)]
enum WrittenReference {
    Name(String),
    Whole {
        name: String,
        #[serde(default, deserialize_with = "lenient::count")]
        version: Option<u64>,
    },
}

impl From<WrittenReference> for Reference {
    fn from(written: WrittenReference) -> Self {
        match written {
            WrittenReference::Name(name) => Self { name, version: None },
            WrittenReference::Whole { name, version } => Self { name, version },
        }
    }
}

/// What a cluster gets when its request does not say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenDefaults")]
pub struct Defaults {
    /// Each once, in the order of the file.
    pub services: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    #[serde(rename = "dnsSuffix", skip_serializing_if = "Option::is_none")]
    pub dns_suffix: Option<String>,
    pub config: Other,
}

#[derive(Deserialize)]
struct WrittenDefaults {
    #[serde(default)]
    services: Vec<WrittenService>,
    provider: Option<String>,
    hardwaretype: Option<String>,
    imagetype: Option<String>,
    #[serde(rename = "dnsSuffix", alias = "dnssuffix")]
    dns_suffix: Option<String>,
    #[serde(default)]
    config: Other,
}

/// A service by name, or with the configuration that goes under its name.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a service is a name, or an object with 'name' and 'config'")]
enum WrittenService {
    Name(String),
    Configured {
        name: String,
        #[serde(default)]
        config: Option<Value>,
    },
}

impl From<WrittenDefaults> for Defaults {
    fn from(written: WrittenDefaults) -> Self {
        let mut services: Vec<String> = Vec::new();
        let mut config = written.config;
        for service in written.services {
            let name = match service {
                WrittenService::Name(name) => name,
                WrittenService::Configured { name, config: own } => {
                    config.extend(own.map(|own| (name.clone(), own)));
                    name
                }
            };
            if !services.contains(&name) {
                services.push(name);
            }
        }
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Self {
            services,
            provider: given(written.provider),
            hardwaretype: given(written.hardwaretype),
            imagetype: given(written.imagetype),
            dns_suffix: given(written.dns_suffix),
            config,
        }
    }
}

/// What may be used. An empty list allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compatibility {
    pub hardwaretypes: Vec<String>,
    pub imagetypes: Vec<String>,
    pub services: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Constraints {
    pub size: SizeRule,
    pub layout: LayoutRules,
    pub services: BTreeMap<String, ServiceRule>,
}

/// How many machines the cluster may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeRule {
    #[serde(deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

/// Which services share machines. Of a group in `mustcoexist` a machine carries all that the
/// cluster has, or none; it never carries the whole of a group in `cantcoexist`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayoutRules {
    pub mustcoexist: Vec<Vec<String>>,
    pub cantcoexist: Vec<Vec<String>>,
}

/// Where a service may stand, and on how many machines. An empty list allows everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceRule {
    pub hardwaretypes: Vec<String>,
    pub imagetypes: Vec<String>,
    pub quantities: Quantities,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Administration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaseduration: Option<Lease>,
    #[serde(flatten)]
    pub other: Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub label: String,
    /// May hold macros.
    pub url: String,
}

impl Compatibility {
    pub fn allows_service(&self, name: &str) -> bool {
        allows(&self.services, name)
    }

    pub fn allows_hardware(&self, name: &str) -> bool {
        allows(&self.hardwaretypes, name)
    }

    pub fn allows_image(&self, name: &str) -> bool {
        allows(&self.imagetypes, name)
    }
}

fn allows(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|allowed| allowed == name)
}

impl SizeRule {
    pub fn allows(&self, size: u64) -> bool {
        size >= self.min.unwrap_or(1) && self.max.is_none_or(|max| size <= max)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_may_bring_its_configuration() {
        let template: ClusterTemplate = super::super::read(json!({"name": "t", "defaults": {
            "services": ["a", {"name": "b", "config": {"x": 1}}, "a"], "provider": " ", "config": {"k": "v"}}}))
        .unwrap();
        assert_eq!(template.defaults.services, ["a", "b"]);
        assert_eq!(template.defaults.config["b"], json!({"x": 1}));
        assert_eq!(template.defaults.provider, None);
    }

    #[test]
    fn another_template_is_named_alone_or_with_its_number() {
        let template: ClusterTemplate = super::super::read(json!({"name": "t", "extends": "base",
            "includes": ["users", {"name": "logs", "version": "2"}]}))
        .unwrap();
        let named = |name: &str, version| Reference { name: name.into(), version };
        assert_eq!(template.extends, Some(named("base", None)));
        assert_eq!(template.includes, [named("users", None), named("logs", Some(2))]);
        assert!(super::super::read::<ClusterTemplate>(json!({"name": "t", "extends": 3})).is_err());
    }

    #[test]
    fn a_wrong_type_is_told() {
        for bad in [
            json!({"name": "t", "defaults": {"services": "a"}}),
            json!({"name": "t", "constraints": {"size": {"min": "many"}}}),
            json!({"name": 3}),
            json!(["t"]),
        ] {
            assert!(super::super::read::<ClusterTemplate>(bad.clone()).is_err(), "{bad}");
        }
    }
}
