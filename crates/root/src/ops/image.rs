//! Images by name. Their contents are in [`crate::image`]; what an instance
//! needs of one is copied into the instance, so that deleting an image hurts nobody.

use std::collections::HashSet;

use api::{Image, ImagePull, Page};
use model::{Digest, Error, ErrorKind, ImageId, Name, Result, shown};
use store::Txn;
use tokio::io::AsyncRead;

use super::page::{Query, cut, glob};
use super::{version_check, view};
use crate::bootstrap::MAIN;
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Actor, Line};
use crate::image::{Imported, reference_is_loopback};
use crate::state::{Row, Snapshot, Versioned};
use crate::tables::{ImageRecord, encode, kind};

pub const FILTERS: &[&str] = &["name", "public"];
pub const BUSYBOX: &str = "busybox";

/// Reads an archive from `body` and records it.
pub async fn import(
    cloud: &Cloud,
    caller: &Caller,
    name: Name,
    public: bool,
    body: impl AsyncRead + Send,
) -> Result<Image> {
    name_free(cloud, caller, &name, public)?;
    let id = ImageId::from_random(rand::random());
    let imported = cloud.images.import(id, body, cloud.config.image_upload_max_bytes).await?;
    record(cloud, caller, name, public, "import".to_owned(), imported).await
}

pub async fn pull(cloud: &Cloud, caller: &Caller, name: Name, body: ImagePull) -> Result<Image> {
    name_free(cloud, caller, &name, body.public)?;
    // What listens on root's own machine is not for tenants to try out.
    if reference_is_loopback(&body.reference) && !caller.principal.is_operator() {
        return Err(Error::new(
            ErrorKind::Forbidden,
            "only operators pull from a registry on root's machine",
        )
        .at("reference"));
    }
    let id = ImageId::from_random(rand::random());
    let imported =
        cloud.images.pull(id, &body.reference, &|_| {}).await.map_err(|error| match error.field {
            None if error.kind == ErrorKind::Invalid => error.at("reference"),
            _ => error,
        })?;
    record(cloud, caller, name, body.public, body.reference, imported).await
}

/// Refuses before anything is uploaded what would be refused after.
fn name_free(cloud: &Cloud, caller: &Caller, name: &Name, public: bool) -> Result<()> {
    if public && !caller.principal.is_operator() {
        return Err(Error::new(ErrorKind::Forbidden, "only operators make images public").at("public"));
    }
    let taken = cloud.state.snapshot().image_names.contains_key(&(caller.tenant.clone(), name.clone()));
    if taken {
        return Err(Error::conflict(format!("there is already an image named '{name}'"))
            .at("name")
            .hint("choose another name or delete the old one"));
    }
    Ok(())
}

async fn record(
    cloud: &Cloud,
    caller: &Caller,
    name: Name,
    public: bool,
    source: String,
    imported: Imported,
) -> Result<Image> {
    let snapshot = cloud.state.snapshot();
    let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
    let record = ImageRecord {
        id: imported.manifest.id.clone(),
        tenant: caller.tenant.clone(),
        name,
        manifest: imported.manifest,
        public,
        source,
        created_at: cloud.now(),
    };
    let message = match spread(cloud, &record).await {
        Some(why) => format!("{}; on this root server only: {why}", record.source),
        None => record.source.clone(),
    };
    let txn = insert(&record, cloud, &caller.actor(), message).check(
        kind::TENANT,
        &tenant.id,
        Some(tenant.version),
    );
    let version = cloud.state.commit(txn).await?.versions[0];
    Ok(view::image(&snapshot, &Versioned { version, value: record.into() }))
}

/// Has another root server keep the layers too; says why none does although there are others.
async fn spread(cloud: &Cloud, record: &ImageRecord) -> Option<String> {
    let layers = record.manifest.layers.iter().map(|layer| layer.digest.clone()).collect();
    cloud.replica.spread(layers).await.err().map(|error| error.message)
}

fn insert(record: &ImageRecord, cloud: &Cloud, actor: &Actor, message: String) -> Txn {
    let tenant = Some(record.tenant.as_str());
    let txn = Txn::new().insert(kind::IMAGE, &record.id, tenant, Some(record.name.as_str()), encode(record));
    journal(txn, cloud, actor, record, "create", message)
}

fn journal(txn: Txn, cloud: &Cloud, actor: &Actor, row: &ImageRecord, verb: &str, message: String) -> Txn {
    let line = Line {
        tenant: Some(&row.tenant),
        what: &format!("image.{verb}"),
        kind: kind::IMAGE,
        id: row.id.as_str(),
        name: row.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), actor, line)
}

/// The host's busybox as a public image, so that a first instance needs no network. Done once.
pub async fn builtin_ensure(cloud: &Cloud) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let main = snapshot.tenant_by_name(MAIN).ok_or_else(|| Error::not_found("tenant 'main'"))?;
    let name: Name = BUSYBOX.parse().expect("a legal name");
    if snapshot.image_names.contains_key(&(main.id.clone(), name.clone())) {
        return Ok(());
    }
    let images = cloud.images.clone();
    let id = ImageId::from_random(rand::random());
    let imported = tokio::task::spawn_blocking(move || images.builtin_busybox(id))
        .await
        .map_err(|error| Error::internal("the image worker ended early").because(error))??;
    let record = ImageRecord {
        id: imported.manifest.id.clone(),
        tenant: main.id.clone(),
        name,
        manifest: imported.manifest,
        public: true,
        source: "built-in".to_owned(),
        created_at: cloud.now(),
    };
    match cloud.state.commit(insert(&record, cloud, &Actor::root(), record.source.clone())).await {
        // Another server was quicker.
        Err(error) if error.kind == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}

fn visible(caller: &Caller, row: &ImageRecord) -> bool {
    caller.all_tenants || row.public || row.tenant == caller.tenant
}

pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Image>> {
    let snapshot = cloud.state.snapshot();
    let public = match query.get("public") {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Error::invalid("public must be true or false").at("public")),
    };
    let after = query.after.as_deref().unwrap_or("");
    let mut items: Vec<Image> = snapshot
        .images
        .values()
        .filter(|row: &&Row<ImageRecord>| row.id.as_str() > after && visible(caller, row))
        .filter(|row| query.get("name").is_none_or(|pattern| glob(pattern, row.name.as_str())))
        .filter(|row| public.is_none_or(|public| row.public == public))
        .take(query.limit + 1)
        .map(|row| view::image(&snapshot, row))
        .collect();
    let next = cut(&mut items, query.limit, |image| image.id.to_string());
    Ok(Page { items, next, seq: snapshot.seq })
}

fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<ImageRecord>> {
    snapshot
        .image_usable(&caller.tenant, name)
        .ok_or_else(|| Error::not_found(format!("image '{}'", shown(name))))
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<Image> {
    let snapshot = cloud.state.snapshot();
    Ok(view::image(&snapshot, find(&snapshot, caller, name)?))
}

pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    if row.tenant != caller.tenant && !caller.principal.is_operator() {
        return Err(Error::new(ErrorKind::Forbidden, format!("the image '{name}' belongs to the operators")));
    }
    version_check(seen, row.version, "image")?;
    let txn = Txn::new().delete(kind::IMAGE, &row.id, Some(row.version));
    let txn = journal(txn, cloud, &caller.actor(), row, "delete", String::new());
    cloud.state.commit(txn).await.map(drop)
}

/// The layers that a recorded image or an instance still needs, and the files of plugins.
pub fn digests_used(snapshot: &Snapshot) -> HashSet<Digest> {
    let of_images = snapshot.images.values().flat_map(|row| &row.manifest.layers);
    let of_instances = snapshot.instances.values().flat_map(|row| &row.image.layers);
    // A workload makes instances of its templates at any time, also of earlier ones.
    let of_workloads = snapshot.workloads.values().flat_map(|row| {
        let earlier = row.earlier.iter().flat_map(|template| &template.image.layers);
        row.image.layers.iter().chain(earlier)
    });
    let layers = of_images.chain(of_instances).chain(of_workloads).map(|layer| &layer.digest);
    let files = snapshot.resources.values().flat_map(|all| all.values()).filter(|row| !row.secret);
    layers.chain(files.map(|row| &row.digest)).cloned().collect()
}
