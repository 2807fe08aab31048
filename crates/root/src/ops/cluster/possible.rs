//! Whether the machines of a plan can be instances of this cloud: told when a cluster is asked for, not by its tasks.

use std::collections::BTreeSet;

use model::{Error, Result, TenantId, shown};
use template::Catalogue;

use crate::cluster::definition::Definition;
use crate::cluster::live::BANYAN;
use crate::cluster::plan::Planned;
use crate::cluster::{makers, nobody};
use crate::state::Snapshot;

/// Looks for somebody in whose name they are made, and at the images and the sizes of all machines that a plan makes;
/// tells all that is wrong.
pub fn possible(
    snapshot: &Snapshot,
    tenant: &TenantId,
    provider: &str,
    definition: &Definition,
    planned: &Planned,
) -> Result<()> {
    let fresh: BTreeSet<(&str, &str)> = planned
        .plan
        .nodes
        .iter()
        .filter(|row| row.before.is_none())
        .map(|row| (row.hardwaretype.as_str(), row.imagetype.as_str()))
        .collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let catalogue = definition.catalogue()?;
    if catalogue.provider(provider).map_or(true, |one| one.providertype != BANYAN) {
        return Ok(());
    }
    if makers(snapshot, tenant).next().is_none() {
        return Err(nobody());
    }
    let images: BTreeSet<&str> = fresh.iter().map(|(_, image)| *image).collect();
    let sizes: BTreeSet<&str> = fresh.iter().map(|(hardware, _)| *hardware).collect();
    let images = images.into_iter().map(|name| image(snapshot, tenant, provider, &catalogue, name));
    let sizes = sizes.into_iter().map(|name| size(snapshot, provider, &catalogue, name));
    let mut wrong = images.chain(sizes).filter_map(Result::err);
    let Some(first) = wrong.next() else { return Ok(()) };
    Err(wrong.fold(first, |mut all, one| {
        all.more.extend(one.faults());
        all
    }))
}

fn image(
    snapshot: &Snapshot,
    tenant: &TenantId,
    provider: &str,
    catalogue: &Catalogue,
    name: &str,
) -> Result<()> {
    let known = catalogue.imagetypes.get(name).and_then(|kind| kind.image(provider));
    let Some(image) = known else { return Ok(()) };
    match snapshot.image_usable(tenant, &image) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(format!(
            "machines of the image type '{name}' are made from the image '{}', and there is none",
            shown(&image)
        ))
        .at("imagetype")
        .hint(
            "bring it with 'banyan image import' or 'image pull'; 'banyan image list' shows those there are",
        )),
    }
}

fn size(snapshot: &Snapshot, provider: &str, catalogue: &Catalogue, name: &str) -> Result<()> {
    let known = catalogue.hardwaretypes.get(name).and_then(|kind| kind.flavor(provider));
    let Some(flavor) = known else { return Ok(()) };
    let wrong = |why: String| Error::invalid(format!("the hardware type '{name}': {why}")).at("hardwaretype");
    let (cpu, memory) = model::flavor(&flavor).map_err(|error| wrong(error.message))?;
    // A zone tells only what all its nodes have together, so this refuses too little rather than too much.
    let zones: Vec<_> = snapshot.zones.values().filter_map(|zone| zone.facts.as_ref()).collect();
    let fits = |zone: &&model::exchange::Facts| cpu <= zone.capacity.cpu && memory <= zone.capacity.memory;
    if zones.is_empty() || zones.iter().any(fits) {
        return Ok(());
    }
    let most = zones
        .iter()
        .map(|zone| format!("{} has {} CPU and {}", zone.name, zone.capacity.cpu, zone.capacity.memory));
    let most = most.take(3).collect::<Vec<_>>().join(", ");
    Err(wrong(format!("a machine needs {cpu} CPU and {memory}, and fits into no zone ({most})"))
        .hint("choose a smaller hardware type, or add a larger node"))
}
