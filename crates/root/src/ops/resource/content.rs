//! The bytes of files: what provisioners are to have, and who gets it.

use bytes::Bytes;
use link::{BlobSource, Staged};
use model::{Digest, Error, ErrorKind, Result, TenantId};

use super::{Address, rows, upload, version};
use crate::cloud::{Caller, Cloud};
use crate::resource::{ResourceRecord, ResourceSecretRecord};
use crate::state::Snapshot;
use crate::tables::{decode, kind};

/// What a secret file is sealed for: it opens in its own place only.
pub(super) fn context(record: &ResourceRecord) -> String {
    format!("resource {}", record.id())
}

/// What the provisioners of a tenant are to have.
pub fn staged(snapshot: &Snapshot, tenant: &TenantId) -> Vec<Staged> {
    let live = rows(snapshot, tenant).into_iter().flat_map(|all| all.values()).filter(|row| row.flags.live);
    live.map(|row| Staged { path: row.path(), digest: row.digest.clone(), size: row.size }).collect()
}

/// A file that the provisioners of a tenant are to have.
pub async fn fetch(cloud: &Cloud, tenant: &TenantId, digest: &Digest) -> Result<BlobSource> {
    let snapshot = cloud.state.snapshot();
    let mut all = rows(&snapshot, tenant).into_iter().flat_map(|all| all.values());
    let found = all.find(|row| row.flags.live && row.digest == *digest);
    open(cloud, found.ok_or_else(|| Error::not_found(format!("file {digest}")))?).await
}

/// A version as it was uploaded, unless it is secret.
pub async fn download(cloud: &Cloud, caller: &Caller, address: &Address, number: u32) -> Result<BlobSource> {
    let snapshot = cloud.state.snapshot();
    let row = version(&snapshot, &caller.tenant, address, number)?;
    // The plugin may have called it secret only later.
    let is_secret = row.secret || upload::declared(&snapshot, address).is_ok_and(|kind| kind.is_secret());
    if is_secret {
        let path = address.path();
        return Err(Error::new(ErrorKind::Forbidden, format!("'{path}' is secret and is never shown again")));
    }
    open(cloud, row).await
}

async fn open(cloud: &Cloud, record: &ResourceRecord) -> Result<BlobSource> {
    if !record.secret {
        return BlobSource::from_file(&cloud.replica.blob(&record.digest).await?).await;
    }
    let kept = cloud.state.store().get(kind::RESOURCE_SECRET, &record.id()).await?;
    let kept =
        kept.ok_or_else(|| Error::internal(format!("the bytes of '{}' are missing", record.title())))?;
    let secret: ResourceSecretRecord = decode(&kept.body)?;
    let bytes = cloud.master.unseal(&context(record), &secret.sealed)?;
    Ok(BlobSource::from_bytes(Bytes::copy_from_slice(&bytes)))
}
