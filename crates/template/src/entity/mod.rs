//! What administrators define, in the JSON shape of Coopr and of its elder Loom.
//!
//! Files load as they are: numbers and truth values may be strings, `null` is absent,
//! and a field we do not know is kept in `other` and written again. [`unknown`] tells which those are.

mod known;
mod lease;
mod lenient;
mod plugin;
mod provider;
mod quantity;
mod service;
mod template;

pub use known::{Unknown, misspelt, unknown};
pub use lease::{Lease, LeaseTime};
pub use plugin::{FieldSchema, FieldSet, Parameters, PluginType, ResourceType};
pub use provider::{HardwareType, ImageType, Provider};
pub use quantity::{Quantities, Ratio, RatioTo};
pub use service::{Action, ActionKind, Dependencies, Service, StageDependencies};
pub use template::{
    Administration, ClusterTemplate, Compatibility, Constraints, Defaults, LayoutRules, Link,
    PartialTemplate, Reference, ServiceRule, SizeRule,
};

use model::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Fields that are kept although nothing here reads them.
pub type Other = Map<String, Value>;

/// Longest name of an entity.
pub const NAME_BYTES_MAX: usize = 255;

/// Reads one entity; an error names all that is wrong with it, each with its field.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T> {
    if !value.is_object() {
        return Err(Error::invalid("a definition must be a JSON object"));
    }
    model::read::from_value(&lenient::without_nulls(value), |_| Ok(()))
}

/// Whether a name is one that entities may have.
pub fn name_is_good(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(fits)
}
