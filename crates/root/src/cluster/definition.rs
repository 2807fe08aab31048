//! What a cluster is made from: a copy of the definitions it uses, so that later changes of the catalogue do not
//! change it.

use std::collections::BTreeMap;

use model::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use template::entity::{ClusterTemplate, Link, PluginType};
use template::{Catalogue, Kind, compose};

/// The definitions by folder, and the sealed secrets of the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub entities: BTreeMap<String, Vec<Value>>,
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
}

fn all<'a, T: Serialize + 'a>(items: impl Iterator<Item = &'a T>) -> Vec<Value> {
    items.filter_map(|item| serde_json::to_value(item).ok()).collect()
}

impl Definition {
    /// What a template needs, with what it extends and includes merged in, at one provider.
    pub fn of(catalogue: &Catalogue, template: &str, provider: &str) -> Result<(Self, ClusterTemplate)> {
        let stored = catalogue.template(template).map_err(|error| error.at("template"))?;
        let mut whole = compose::resolve(catalogue, stored)?;
        whole.extends = None;
        whole.includes = Vec::new();
        let account = catalogue.provider(provider).map_err(|error| error.at("provider"))?;
        let fits = &whole.compatibility;
        let services = catalogue.services.values().filter(|one| fits.allows_service(&one.name));
        let hardware = catalogue
            .hardwaretypes
            .values()
            .filter(|one| fits.allows_hardware(&one.name) && one.flavor(provider).is_some());
        let images = catalogue
            .imagetypes
            .values()
            .filter(|one| fits.allows_image(&one.name) && one.image(provider).is_some());
        let kinds: Vec<&PluginType> =
            catalogue.providertypes.get(&account.providertype).into_iter().collect();
        let parts = [
            (Kind::Provider, all([account].into_iter())),
            (Kind::ProviderType, all(kinds.into_iter())),
            (Kind::HardwareType, all(hardware)),
            (Kind::ImageType, all(images)),
            (Kind::Service, all(services)),
            (Kind::ClusterTemplate, all([&whole].into_iter())),
        ];
        let entities = parts.into_iter().map(|(kind, all)| (kind.folder().to_owned(), all)).collect();
        Ok((Self { entities, secrets: BTreeMap::new() }, whole))
    }

    pub fn catalogue(&self) -> Result<Catalogue> {
        let mut catalogue = Catalogue::default();
        for kind in Kind::ALL {
            for entity in self.entities.get(kind.folder()).into_iter().flatten() {
                catalogue.add(kind, entity.clone()).map_err(|error| {
                    Error::internal("a cluster's definitions cannot be read").because(error)
                })?;
            }
        }
        Ok(catalogue)
    }
}

/// The links of all services that have some.
pub fn service_links(catalogue: &Catalogue) -> BTreeMap<String, Vec<Link>> {
    let with = catalogue.services.values().filter(|service| !service.links.is_empty());
    with.map(|service| (service.name.clone(), service.links.clone())).collect()
}
