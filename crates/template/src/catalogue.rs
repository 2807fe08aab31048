//! A set of entities by kind and name.

use std::collections::BTreeMap;
use std::fmt;

use model::{Error, Result};
use serde::Serialize;
use serde_json::Value;

use crate::entity::{
    self, ClusterTemplate, HardwareType, ImageType, PartialTemplate, PluginType, Provider, Service, Unknown,
};

/// What an entity is. The names are those of Coopr's folders and of its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Provider,
    ProviderType,
    AutomatorType,
    HardwareType,
    ImageType,
    Service,
    ClusterTemplate,
    PartialTemplate,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Provider,
        Self::ProviderType,
        Self::AutomatorType,
        Self::HardwareType,
        Self::ImageType,
        Self::Service,
        Self::ClusterTemplate,
        Self::PartialTemplate,
    ];

    /// The folder that holds its files, and its key in an export.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Provider => "providers",
            Self::ProviderType => "providertypes",
            Self::AutomatorType => "automatortypes",
            Self::HardwareType => "hardwaretypes",
            Self::ImageType => "imagetypes",
            Self::Service => "services",
            Self::ClusterTemplate => "clustertemplates",
            Self::PartialTemplate => "partialtemplates",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::ProviderType => "provider type",
            Self::AutomatorType => "automator type",
            Self::HardwareType => "hardware type",
            Self::ImageType => "image type",
            Self::Service => "service",
            Self::ClusterTemplate => "cluster template",
            Self::PartialTemplate => "partial template",
        })
    }
}

/// Everything an administrator defined.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Catalogue {
    pub providers: BTreeMap<String, Provider>,
    pub providertypes: BTreeMap<String, PluginType>,
    pub automatortypes: BTreeMap<String, PluginType>,
    pub hardwaretypes: BTreeMap<String, HardwareType>,
    pub imagetypes: BTreeMap<String, ImageType>,
    pub services: BTreeMap<String, Service>,
    pub clustertemplates: BTreeMap<String, ClusterTemplate>,
    pub partialtemplates: BTreeMap<String, PartialTemplate>,
    /// Fields that nothing reads, by kind and name.
    #[serde(skip)]
    pub unknown: BTreeMap<(Kind, String), Vec<Unknown>>,
}

/// Adds what was read to its map. Each entity has its own name once.
macro_rules! insert {
    ($map:expr, $kind:expr, $value:expr) => {{
        let item = entity::read($value)?;
        insert_new(&mut $map, $kind, item, |item| &item.name)
    }};
}

impl Catalogue {
    /// Reads one entity into the catalogue and returns its name. A second of the same name is refused.
    /// What is wrong with it is told at once; fields that nothing reads are noted for `check`.
    pub fn add(&mut self, kind: Kind, value: Value) -> Result<String> {
        let unknown = entity::unknown(kind, &value);
        let name = self.insert(kind, value)?;
        if !unknown.is_empty() {
            self.unknown.insert((kind, name.clone()), unknown);
        }
        Ok(name)
    }

    fn insert(&mut self, kind: Kind, value: Value) -> Result<String> {
        match kind {
            Kind::Provider => insert!(self.providers, kind, value),
            Kind::ProviderType => insert!(self.providertypes, kind, value),
            Kind::AutomatorType => insert!(self.automatortypes, kind, value),
            Kind::HardwareType => insert!(self.hardwaretypes, kind, value),
            Kind::ImageType => insert!(self.imagetypes, kind, value),
            Kind::Service => insert!(self.services, kind, value),
            Kind::ClusterTemplate => insert!(self.clustertemplates, kind, value),
            Kind::PartialTemplate => insert!(self.partialtemplates, kind, value),
        }
    }

    /// How many entities there are.
    pub fn len(&self) -> usize {
        let plugins = self.providertypes.len() + self.automatortypes.len();
        let machines = self.providers.len() + self.hardwaretypes.len() + self.imagetypes.len();
        plugins + machines + self.services.len() + self.clustertemplates.len() + self.partialtemplates.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A template as it is stored.
    pub fn template(&self, name: &str) -> Result<&ClusterTemplate> {
        self.clustertemplates
            .get(name)
            .ok_or_else(|| missing(Kind::ClusterTemplate, name, self.clustertemplates.keys()))
    }

    pub fn provider(&self, name: &str) -> Result<&Provider> {
        self.providers.get(name).ok_or_else(|| missing(Kind::Provider, name, self.providers.keys()))
    }

    /// Whether machines of a provider outlive their clusters.
    pub fn is_pool(&self, provider: &str) -> bool {
        let kind = self.providers.get(provider).and_then(|it| self.providertypes.get(&it.providertype));
        kind.is_some_and(|kind| kind.pool)
    }
}

fn insert_new<T>(
    map: &mut BTreeMap<String, T>,
    kind: Kind,
    item: T,
    name: impl Fn(&T) -> &String,
) -> Result<String> {
    let name = name(&item).clone();
    if !entity::name_is_good(&name) {
        let shown = model::shown(&name);
        let message =
            format!("'{shown}' is no name of a {kind}; a name has letters, digits, '_', '.' and '-'");
        return Err(Error::invalid(message).at("name"));
    }
    if map.contains_key(&name) {
        return Err(Error::conflict(format!("there are two definitions of {kind} {name}")).at("name"));
    }
    map.insert(name.clone(), item);
    Ok(name)
}

/// Most names that are listed in a hint.
const NAMES_SHOWN: usize = 20;

fn missing<'a>(kind: Kind, name: &str, known: impl Iterator<Item = &'a String>) -> Error {
    let known: Vec<&str> = known.map(String::as_str).take(NAMES_SHOWN).collect();
    let error = Error::not_found(format!("{kind} '{}'", model::shown(name)));
    match known.is_empty() {
        true => error.hint(format!("the catalogue has none; they belong in the folder {}/", kind.folder())),
        false => error.hint(format!("there are: {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_taken_once_and_must_be_good() {
        let mut catalogue = Catalogue::default();
        assert_eq!(catalogue.add(Kind::Service, json!({"name": "web"})).unwrap(), "web");
        assert!(
            catalogue
                .add(Kind::Service, json!({"name": "web"}))
                .unwrap_err()
                .message
                .contains("two definitions")
        );
        assert!(catalogue.add(Kind::Service, json!({"name": "a b"})).is_err());
        assert!(
            catalogue.add(Kind::Provider, json!({"name": "p"})).unwrap_err().message.contains("providertype")
        );
        assert_eq!(catalogue.len(), 1);
    }

    #[test]
    fn an_unknown_name_is_told_with_those_there_are() {
        let mut catalogue = Catalogue::default();
        catalogue.add(Kind::ClusterTemplate, json!({"name": "lamp"})).unwrap();
        let error = catalogue.template("lamb").unwrap_err();
        assert_eq!(error.message, "there is no cluster template 'lamb'");
        assert_eq!(error.hint.as_deref(), Some("there are: lamp"));
        assert!(catalogue.provider("x").unwrap_err().hint.unwrap().contains("providers/"));
    }
}
