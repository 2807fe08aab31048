//! New versions of files. A plain one goes to disk as it comes; a secret one is held in memory until it is sealed,
//! and never lies on a disk in clear.

use model::{Bytes, Digest, Error, ErrorKind, Result, TenantId, shown};
use sha2::{Digest as _, Sha256};
use store::Txn;
use template::entity::ResourceType;
use tokio::io::{AsyncRead, AsyncReadExt};
use zeroize::Zeroizing;

use super::content::context;
use super::{Address, PART_MAX, change, journal, kind_parse, put, removed, rows, versions};
use crate::cloud::{Caller, Cloud};
use crate::image::FileTaken;
use crate::ops::catalogue;
use crate::resource::{Flags, Order, ResourceRecord, ResourceSecretRecord};
use crate::state::{Row, Snapshot};
use crate::tables::{encode, kind};

/// Bytes of one file. A provisioner sends no larger one to a machine.
pub const SIZE_MAX: u64 = 256 << 20;
/// Bytes of one secret file; it is kept in a record.
const SECRET_SIZE_MAX: u64 = 64 << 10;
/// Versions of one file that are kept; with one more the oldest inactive one goes.
const VERSIONS_KEPT: usize = 10;
/// Versions of all files of one tenant, so that provisioners can be told all of them at once.
const FILES_MAX: usize = 1_000;
/// Bytes of all versions of all files of one tenant.
const TENANT_BYTES_MAX: u64 = 4 << 30;

/// What becomes of a new version at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upload {
    pub stage: bool,
    /// Stages it too.
    pub sync: bool,
}

/// A file that has come in and has no record yet.
struct Taken {
    file: FileTaken,
    secret: Option<Zeroizing<Vec<u8>>>,
    /// Why no other root server has it, although there are others.
    alone: Option<String>,
}

/// Whether this may be a part of a path at provisioners.
fn part_check(field: &str, part: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if part.is_empty() || part.len() > PART_MAX || part.starts_with('.') || !part.bytes().all(is_plain) {
        return Err(Error::invalid(format!(
            "'{}' is no name for a file: it has up to {PART_MAX} letters, digits, '-', '_' and '.', and no '.' first",
            shown(part)
        ))
        .at(field));
    }
    Ok(())
}

/// What the plugin says of files of this type. It is an error if it says nothing.
pub(super) fn declared(snapshot: &Snapshot, address: &Address) -> Result<ResourceType> {
    let kind = kind_parse(&address.kind)?;
    let plugin = catalogue::plugin_type(snapshot, kind, &address.plugin)?.ok_or_else(|| {
        Error::not_found(format!("{kind} '{}'", shown(&address.plugin)))
            .at("plugin")
            .hint("operators describe plugins in the catalogue")
    })?;
    plugin.resource_types.get(&address.resource_type).cloned().ok_or_else(|| {
        let known: Vec<&str> = plugin.resource_types.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let wanted = shown(&address.resource_type);
        Error::invalid(format!("the {kind} '{}' has no files of the type '{wanted}'", plugin.name))
            .at("type")
            .hint(format!("it has: {known}"))
    })
}

pub async fn upload(
    cloud: &Cloud,
    caller: &Caller,
    address: &Address,
    options: Upload,
    body: impl AsyncRead + Send,
) -> Result<api::Resource> {
    let snapshot = cloud.state.snapshot();
    let declared_type = declared(&snapshot, address)?;
    let parts = [("plugin", &address.plugin), ("type", &address.resource_type), ("name", &address.name)];
    parts.into_iter().try_for_each(|(field, part)| part_check(field, part))?;
    // Refuses before anything is uploaded what would be refused after.
    room(&snapshot, &caller.tenant, address, 1)?;
    let taken = take(cloud, &declared_type, body).await?;
    change(cloud, caller, |snapshot| plan(cloud, caller, snapshot, address, options, &taken)).await?;
    super::get(cloud, caller, address)
}

async fn take(cloud: &Cloud, kind: &ResourceType, body: impl AsyncRead + Send) -> Result<Taken> {
    if kind.is_secret() {
        let bytes = secret_read(body).await?;
        let digest = Digest::from_sha256(&Sha256::digest(&bytes[..]));
        let file = FileTaken { digest, size: bytes.len() as u64 };
        return Ok(Taken { file, secret: Some(bytes), alone: None });
    }
    let file = cloud.images.file_take(body, SIZE_MAX, kind.is_archive()).await?;
    empty_check(file.size)?;
    let alone = cloud.replica.spread(vec![file.digest.clone()]).await.err().map(|error| error.message);
    Ok(Taken { file, secret: None, alone })
}

async fn secret_read(body: impl AsyncRead + Send) -> Result<Zeroizing<Vec<u8>>> {
    // All of the room at once: growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_SIZE_MAX as usize + 1));
    let body = body.take(SECRET_SIZE_MAX + 1);
    tokio::pin!(body);
    while body.read_buf(&mut *bytes).await.map_err(|error| {
        Error::invalid(format!("the upload broke off after {} bytes", bytes.len())).because(error)
    })? > 0
    {}
    if bytes.len() as u64 > SECRET_SIZE_MAX {
        let max = Bytes(SECRET_SIZE_MAX);
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("files of this type are secret and may have up to {max}"),
        ));
    }
    empty_check(bytes.len() as u64)?;
    Ok(bytes)
}

fn empty_check(size: u64) -> Result<()> {
    match size {
        0 => Err(Error::invalid("the file is empty")),
        _ => Ok(()),
    }
}

/// The version that goes when one more comes.
fn surplus<'a>(snapshot: &'a Snapshot, tenant: &TenantId, path: &str) -> Option<&'a Row<ResourceRecord>> {
    let all: Vec<&Row<ResourceRecord>> = versions(snapshot, tenant, path).collect();
    let is_full = all.len() >= VERSIONS_KEPT;
    all.into_iter().find(|row| is_full && row.flags == Flags::default())
}

/// Refuses what the tenant has no room for.
fn room(snapshot: &Snapshot, tenant: &TenantId, address: &Address, size: u64) -> Result<()> {
    let goes = surplus(snapshot, tenant, &address.path());
    let (mut count, mut bytes) = (0, 0);
    for row in rows(snapshot, tenant).into_iter().flat_map(|all| all.values()) {
        count += 1;
        bytes += row.size;
    }
    if let Some(goes) = goes {
        count -= 1;
        bytes -= goes.size;
    }
    let hint = "delete versions that are no longer needed";
    if count >= FILES_MAX {
        return Err(Error::conflict(format!("the tenant has {count} versions of files, and no more may be"))
            .hint(hint));
    }
    if bytes + size > TENANT_BYTES_MAX {
        let max = Bytes(TENANT_BYTES_MAX);
        return Err(Error::conflict(format!("the files of the tenant would have more than {max}")).hint(hint));
    }
    Ok(())
}

fn plan(
    cloud: &Cloud,
    caller: &Caller,
    snapshot: &Snapshot,
    address: &Address,
    options: Upload,
    taken: &Taken,
) -> Result<(Txn, ())> {
    let declared_type = declared(snapshot, address)?;
    if declared_type.is_secret() != taken.secret.is_some() {
        return Err(
            Error::conflict("whether files of this type are secret has just changed").hint("upload it again")
        );
    }
    room(snapshot, &caller.tenant, address, taken.file.size)?;
    let path = address.path();
    let before: Vec<&Row<ResourceRecord>> = versions(snapshot, &caller.tenant, &path).collect();
    let record = ResourceRecord {
        tenant: caller.tenant.clone(),
        kind: address.kind.clone(),
        plugin: address.plugin.clone(),
        resource_type: address.resource_type.clone(),
        name: address.name.clone(),
        number: before.last().map_or(1, |row| row.number + 1),
        format: declared_type.format,
        secret: taken.secret.is_some(),
        digest: taken.file.digest.clone(),
        size: taken.file.size,
        flags: Flags::default(),
        created_at: cloud.now(),
        created_by: caller.principal.user_name.to_string(),
    };
    let goes = surplus(snapshot, &caller.tenant, &path);
    let orders: &[Order] = match (options.stage, options.sync) {
        (_, true) => &[Order::Stage(record.number), Order::Sync],
        (true, false) => &[Order::Stage(record.number)],
        (false, false) => &[],
    };
    let txn = goes.into_iter().fold(Txn::new(), removed);
    let txn = new_put(txn, cloud, &record, orders, taken);
    let stays = before.into_iter().filter(|row| goes.is_none_or(|goes| goes.number != row.number));
    let mut txn = put(txn, stays, orders);
    if options.sync {
        let others = rows(snapshot, &caller.tenant).into_iter().flat_map(|all| all.values());
        txn = put(txn, others.filter(|row| row.path() != path), &[Order::Sync]);
    }
    let message = told(&record, orders, taken, goes.map(|row| row.number));
    Ok((journal(txn, cloud, caller, "resource.upload", &path, message), ()))
}

/// Writes the new version, and its bytes where they are secret.
fn new_put(txn: Txn, cloud: &Cloud, record: &ResourceRecord, orders: &[Order], taken: &Taken) -> Txn {
    let flags = record.flags.after_all(orders, record.number);
    let tenant = Some(record.tenant.as_str());
    let new = ResourceRecord { flags, ..record.clone() };
    let txn = txn.insert(kind::RESOURCE, record.id(), tenant, None, encode(&new));
    let Some(bytes) = &taken.secret else { return txn };
    let sealed = cloud.master.seal(&context(record), bytes);
    txn.insert(kind::RESOURCE_SECRET, record.id(), tenant, None, encode(&ResourceSecretRecord { sealed }))
}

/// The line of the history.
fn told(record: &ResourceRecord, orders: &[Order], taken: &Taken, gone: Option<u32>) -> String {
    let mut text = format!("version {}, {}", record.number, Bytes(record.size));
    match record.flags.after_all(orders, record.number).status() {
        api::ResourceStatus::Inactive => {}
        status => text.push_str(&format!(", {status}")),
    }
    if let Some(gone) = gone {
        text.push_str(&format!("; version {gone} deleted, because {VERSIONS_KEPT} are kept"));
    }
    if let Some(why) = &taken.alone {
        text.push_str(&format!("; on this root server only: {why}"));
    }
    text
}
