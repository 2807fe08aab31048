//! Providers, plugin types, hardware and images.

use std::collections::BTreeMap;

use super::{At, Report};
use crate::catalogue::{Catalogue, Kind};
use crate::entity::{Other, PluginType};

pub fn check(catalogue: &Catalogue, report: &mut Report) {
    for provider in catalogue.providers.values() {
        let at = At { kind: Kind::Provider, name: &provider.name };
        // Types are registered by plugins; a folder without any leaves them to the server.
        let known = catalogue.providertypes.is_empty()
            || catalogue.providertypes.contains_key(&provider.providertype);
        if !known {
            report.error(
                at,
                "providertype",
                format!("provider type '{}' does not exist", provider.providertype),
            );
        }
        let plugin = catalogue.providertypes.get(&provider.providertype);
        if let Some(plugin) = plugin {
            super::fields(report, at, "provisioner", plugin, &provider.provisioner);
        }
        let fields = plugin.map(|plugin| &plugin.parameters.admin);
        let missing = fields.map(|fields| fields.missing(|name| provider.provisioner.contains_key(name)));
        if let Some(sets) = missing.filter(|sets| !sets.is_empty()) {
            let message = format!(
                "provider type '{}' needs {}; without it no cluster can be made here unless its user gives it",
                provider.providertype,
                super::any_of(&sets)
            );
            report.warning(at, "provisioner", message);
        }
    }
    for hardware in catalogue.hardwaretypes.values() {
        let at = At { kind: Kind::HardwareType, name: &hardware.name };
        provided(catalogue, report, at, &hardware.providermap, "flavor");
    }
    for image in catalogue.imagetypes.values() {
        let at = At { kind: Kind::ImageType, name: &image.name };
        provided(catalogue, report, at, &image.providermap, "image");
    }
    for (kind, types) in
        [(Kind::ProviderType, &catalogue.providertypes), (Kind::AutomatorType, &catalogue.automatortypes)]
    {
        for plugin in types.values() {
            plugin_check(report, At { kind, name: &plugin.name }, plugin);
        }
    }
}

fn provided(
    catalogue: &Catalogue,
    report: &mut Report,
    at: At<'_>,
    map: &BTreeMap<String, Other>,
    field: &str,
) {
    for (provider, entry) in map {
        if !catalogue.providers.contains_key(provider) {
            report.warning(
                at,
                format!("providermap.{provider}"),
                format!("provider '{provider}' does not exist"),
            );
        }
        if !entry.get(field).is_some_and(|value| value.is_string() || value.is_number()) {
            let message = format!("it cannot be used at provider '{provider}', because there is no {field}");
            report.warning(at, format!("providermap.{provider}.{field}"), message);
        }
    }
}

fn plugin_check(report: &mut Report, at: At<'_>, plugin: &PluginType) {
    for (who, set) in [("admin", &plugin.parameters.admin), ("user", &plugin.parameters.user)] {
        for field in set.required.iter().flatten().filter(|field| !set.fields.contains_key(*field)) {
            let message = format!("field '{field}' is required but not described");
            report.error(at, format!("parameters.{who}.required"), message);
        }
    }
    for (name, resource) in &plugin.resource_types {
        let path = format!("resourceTypes.{name}");
        if !matches!(resource.format.as_str(), "file" | "archive") {
            report.error(at, path.clone(), format!("a format is file or archive, not '{}'", resource.format));
        }
        if let Some(mode) = &resource.permissions {
            let octal =
                (3..=4).contains(&mode.len()) && mode.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
            if !octal || resource.format != "file" {
                report.error(
                    at,
                    path,
                    format!("permissions are 3 or 4 octal digits of a file, not '{mode}'"),
                );
            }
        }
    }
}
