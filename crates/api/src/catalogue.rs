//! The catalogue that clusters are made from, as REST shows it. Its entities have Coopr's shape.

use std::collections::BTreeMap;

use model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What stands in the place of a secret that is kept. Written back, it leaves the secret as it is.
pub const SECRET_KEPT: &str = "(kept)";

/// One definition: a provider, service, template and so on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Definition {
    /// The folder it belongs in: `services`, `clustertemplates`, …
    pub kind: String,
    pub name: String,
    /// Counts from 1 with every change; 0 comes with the software.
    pub number: u64,
    /// For `If-Match`.
    pub version: i64,
    /// The entity itself. Secrets in it are shown as `(kept)`.
    pub entity: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
}

/// Entities by the folder they belong in, as Coopr exports them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub struct Entities(pub BTreeMap<String, Vec<Value>>);

/// Many definitions at once: all of them are taken, or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CatalogueWrite {
    pub entities: Entities,
    /// What is not named is deleted.
    #[serde(default)]
    pub replace: bool,
    /// Nothing is changed; the answer says what would be.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a write did, as `KIND/NAME`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CatalogueChange {
    pub created: Vec<String>,
    pub changed: Vec<String>,
    pub deleted: Vec<String>,
    pub unchanged: u64,
    /// What can be used, but hardly as it was meant. The field is that of the request where it stands there.
    pub warnings: Vec<model::Fault>,
}
