//! Where machines come from, and what they are called there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Other, lenient};

/// An account at a cloud or a pool of machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provider {
    pub name: String,
    pub providertype: String,
    /// The administrator's values for the fields of the provider type.
    #[serde(default)]
    pub provisioner: Other,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

/// A size of machine, and what each provider calls it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HardwareType {
    pub name: String,
    /// By the provider's name. An entry without `flavor` cannot be used.
    #[serde(default)]
    pub providermap: BTreeMap<String, Other>,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

/// An operating system, and what each provider calls it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageType {
    pub name: String,
    /// By the provider's name. An entry without `image` cannot be used.
    #[serde(default)]
    pub providermap: BTreeMap<String, Other>,
    #[serde(default, deserialize_with = "lenient::count", skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

impl HardwareType {
    /// What the provider calls it.
    pub fn flavor(&self, provider: &str) -> Option<String> {
        text(self.providermap.get(provider)?.get("flavor")?)
    }

    /// What one machine costs in an hour, where the definition says.
    pub fn cost(&self, provider: &str) -> Option<f64> {
        let cost = text(self.providermap.get(provider)?.get("cost")?)?;
        cost.trim().parse().ok().filter(|cost: &f64| cost.is_finite() && *cost >= 0.0)
    }
}

impl ImageType {
    /// What the provider calls it.
    pub fn image(&self, provider: &str) -> Option<String> {
        text(self.providermap.get(provider)?.get("image")?)
    }

    /// Who logs in to a machine of it.
    pub fn ssh_user(&self, provider: &str) -> String {
        let named = self.providermap.get(provider).and_then(|entry| entry.get("sshuser")).and_then(text);
        named.unwrap_or_else(|| "root".to_owned())
    }
}

/// A value that may be a number in the file and is a word to the provider.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
