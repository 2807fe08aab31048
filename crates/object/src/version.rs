//! The moves of versions within a change: newest, older, `null`, delete markers.
//!
//! `Current` holds the newest version of a key and `Past` the older ones,
//! newest first. At most one version of a key is `null`; where it is among the
//! older ones, `Null` says which. A key with older versions has a newest one.
//! The usage of the bucket and of its owner is counted in the same change.

use s3s::S3ErrorCode;

use crate::engine::{EngineError, Tx};
use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::lock;
use crate::record::version::{Head, version_seq};
use crate::record::{Bucket, Usage, Version, Versioning, key};
use crate::service::Records;

/// The id that clients give the version without one.
pub const NULL: &str = "null";
/// The longest name of an object, in bytes of UTF-8.
pub const KEY_MAX: usize = 1024;
pub const COUNTER: &str = "version";

/// What a delete did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Whether a delete marker was made, or one was removed.
    pub marker: bool,
    /// The version that was made or removed; `None` where the bucket keeps no versions.
    pub version_id: Option<String>,
    /// Whether a version was removed for good.
    pub removed: bool,
}

/// Refuses names that cannot be kept.
pub fn check_key(object: &str) -> Result<()> {
    if object.len() > KEY_MAX {
        return Err(Fault::new(S3ErrorCode::KeyTooLongError, "Your key is too long"));
    }
    if object.is_empty() || object.contains('\0') {
        return Err(Fault::new(
            S3ErrorCode::InvalidArgument,
            "A key has 1 to 1024 bytes of UTF-8 without NUL",
        ));
    }
    Ok(())
}

/// The newest version, also if it is a delete marker.
pub fn newest(records: &impl Records, bucket: u32, object: &str) -> Result<Option<Version>> {
    records.record(&key::current(bucket, object))?.map(|bytes| decode(&bytes)).transpose()
}

/// The newest version unless it is a delete marker: what conditions of writes look at.
pub fn current(records: &impl Records, bucket: u32, object: &str) -> Result<Option<Version>> {
    Ok(newest(records, bucket, object)?.filter(|version| !version.head.marker))
}

/// The version with this id, also if it is a delete marker; without an id the newest.
pub fn lookup(
    records: &impl Records,
    bucket: u32,
    object: &str,
    id: Option<&str>,
) -> Result<Option<Version>> {
    let name = id.map(named).transpose()?;
    let newest = newest(records, bucket, object)?;
    let Some(name) = name else { return Ok(newest) };
    let Some(newest) = newest else { return Ok(None) };
    if matches(&newest.head, name) {
        return Ok(Some(newest));
    }
    let Some(seq) = older(records, bucket, object, name)? else { return Ok(None) };
    let bytes = records.record(&key::past(bucket, object, seq))?;
    let version = bytes.map(|bytes| decode(&bytes)).transpose()?;
    Ok(version.filter(|version| matches(&version.head, name)))
}

/// The version that a reader asks for, or why there is none:
/// `NoSuchKey`, `NoSuchVersion`, or `MethodNotAllowed` for a delete marker named by its id.
pub fn find(records: &impl Records, bucket: u32, object: &str, id: Option<&str>) -> Result<Version> {
    match lookup(records, bucket, object, id)? {
        Some(version) if !version.head.marker => Ok(version),
        Some(marker) => Err(Fault::Absent {
            code: if id.is_some() { S3ErrorCode::MethodNotAllowed } else { S3ErrorCode::NoSuchKey },
            message: if id.is_some() {
                "The specified method is not allowed against this resource."
            } else {
                NO_KEY
            },
            marker: Some(marker.head.version_id()),
        }),
        None if id.is_some() => Err(Fault::Absent {
            code: S3ErrorCode::NoSuchVersion,
            message: "The specified version does not exist.",
            marker: None,
        }),
        None => Err(Fault::Absent { code: S3ErrorCode::NoSuchKey, message: NO_KEY, marker: None }),
    }
}

const NO_KEY: &str = "The specified key does not exist.";

/// Makes `version` the newest of its key. Sets number, `null`, time and the bucket's default
/// retention; what it replaces lets go of its bytes. `quota` is the most bytes that the bucket's
/// owner may keep.
pub fn insert(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    object: &str,
    mut version: Version,
    quota: Option<u64>,
) -> Result<Head> {
    check_key(object)?;
    let now = tx.now();
    version.head.seq = tx.next(COUNTER)?;
    version.head.null = bucket.versioning != Versioning::Enabled;
    version.head.modified = now;
    if !version.head.marker {
        lock::apply(bucket, &mut version, now)?;
    }
    let mut change = make_room(tx, bucket, object)?;
    change.objects += i64::from(!version.head.marker);
    change.versions += 1;
    change.bytes += signed(version.head.size);
    charge(tx, bucket, change, quota)?;
    tx.put(key::current(bucket.id, object), version.encode());
    Ok(version.head)
}

/// Removes the version with this id, or without an id the object: by a delete marker where the
/// bucket keeps versions. What is not there is deleted already. `bypass` passes over governance.
/// A refusal comes before any change, so that others in the same change can go on.
pub fn delete(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    object: &str,
    id: Option<&str>,
    owner: &Account,
    bypass: bool,
) -> Result<Deleted> {
    if let Some(id) = id {
        let Some(head) = remove(tx, bucket, object, named(id)?, bypass)? else {
            return Ok(Deleted { version_id: Some(id.into()), ..Deleted::default() });
        };
        let version_id = Some(head.version_id());
        return Ok(Deleted { marker: head.marker, version_id, removed: true });
    }
    if bucket.versioning == Versioning::Off {
        let removed = remove(tx, bucket, object, None, bypass)?.is_some();
        return Ok(Deleted { removed, ..Deleted::default() });
    }
    let head = insert(tx, bucket, object, marker(owner), None)?;
    Ok(Deleted { marker: true, version_id: Some(head.version_id()), removed: false })
}

/// Changes what is kept beside the bytes of a version (ACL, tags, retention) in its place.
pub fn edit<T>(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    object: &str,
    id: Option<&str>,
    change: impl FnOnce(&mut Version) -> Result<T>,
) -> Result<T> {
    let mut version = find(tx, bucket.id, object, id)?;
    let answer = change(&mut version)?;
    let newest = tx.get(&key::current(bucket.id, object))?;
    let newest = newest.map(|bytes| head(&bytes)).transpose()?;
    let place = match newest {
        Some(newest) if newest.seq == version.head.seq => key::current(bucket.id, object),
        _ => key::past(bucket.id, object, version.head.seq),
    };
    tx.put(place, version.encode());
    Ok(answer)
}

/// What a bucket holds.
pub fn usage(records: &impl Records, bucket: u32) -> Result<Usage> {
    count(records, &key::usage(bucket))
}

/// What the buckets of an account hold together.
pub fn account_usage(records: &impl Records, account: &str) -> Result<Usage> {
    count(records, &key::account_usage(account))
}

/// A difference in usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    pub objects: i64,
    pub versions: i64,
    pub bytes: i64,
    pub upload_bytes: i64,
}

/// Counts a change for the bucket and its owner; `QuotaExceeded` if it takes more than is allowed.
pub fn charge(tx: &mut Tx<'_>, bucket: &Bucket, change: Change, quota: Option<u64>) -> Result<()> {
    if change == Change::default() {
        return Ok(());
    }
    let limits = [(key::usage(bucket.id), bucket.quota), (key::account_usage(&bucket.owner.id), quota)];
    for (place, limit) in limits {
        let usage = count(tx, &place)?.plus(change);
        let grows = change.bytes + change.upload_bytes > 0;
        if grows && limit.is_some_and(|limit| usage.bytes + usage.upload_bytes > limit) {
            return Err(quota_exceeded());
        }
        tx.put(place, usage.encode());
    }
    Ok(())
}

pub fn quota_exceeded() -> Fault {
    let code = S3ErrorCode::Custom("QuotaExceeded".into());
    Fault::new(code, "The bucket or its owner may not keep that many bytes")
}

fn count(records: &impl Records, place: &[u8]) -> Result<Usage> {
    let Some(bytes) = records.record(place)? else { return Ok(Usage::default()) };
    Ok(Usage::decode(&bytes).ok_or_else(|| EngineError::Index("usage cannot be read".into()))?)
}

impl Usage {
    fn plus(self, change: Change) -> Self {
        Self {
            objects: self.objects.saturating_add_signed(change.objects),
            versions: self.versions.saturating_add_signed(change.versions),
            bytes: self.bytes.saturating_add_signed(change.bytes),
            upload_bytes: self.upload_bytes.saturating_add_signed(change.upload_bytes),
        }
    }
}

/// Moves the newest version of a key out of the way of another, removing the `null` one if the
/// other will be `null`.
fn make_room(tx: &mut Tx<'_>, bucket: &Bucket, object: &str) -> Result<Change> {
    let mut change = Change::default();
    let Some(bytes) = tx.get(&key::current(bucket.id, object))? else { return Ok(change) };
    let newest = head(&bytes)?;
    let replaces = bucket.versioning != Versioning::Enabled;
    if replaces && newest.null {
        release(tx, &decode(&bytes)?, false, &mut change)?;
    } else {
        if replaces && let Some(seq) = older(tx, bucket.id, object, None)? {
            let place = key::past(bucket.id, object, seq);
            if let Some(bytes) = tx.get(&place)? {
                release(tx, &decode(&bytes)?, false, &mut change)?;
            }
            tx.delete(place);
            tx.delete(key::null(bucket.id, object));
        }
        if newest.null {
            tx.put(key::null(bucket.id, object), newest.seq.to_be_bytes().to_vec());
        }
        tx.put(key::past(bucket.id, object, newest.seq), bytes);
    }
    change.objects -= i64::from(!newest.marker);
    Ok(change)
}

/// Removes a version; `None` if it is not there. The next one moves up if it was the newest.
fn remove(tx: &mut Tx<'_>, bucket: &Bucket, object: &str, name: Name, bypass: bool) -> Result<Option<Head>> {
    let place = key::current(bucket.id, object);
    let Some(bytes) = tx.get(&place)? else { return Ok(None) };
    let newest = decode(&bytes)?;
    let mut change = Change::default();
    if matches(&newest.head, name) {
        release(tx, &newest, bypass, &mut change)?;
        change.objects -= i64::from(!newest.head.marker);
        tx.delete(place);
        promote(tx, bucket, object, &mut change)?;
        charge(tx, bucket, change, None)?;
        return Ok(Some(newest.head));
    }
    let Some(seq) = older(tx, bucket.id, object, name)? else { return Ok(None) };
    let place = key::past(bucket.id, object, seq);
    let Some(bytes) = tx.get(&place)? else { return Ok(None) };
    let version = decode(&bytes)?;
    if !matches(&version.head, name) {
        return Ok(None);
    }
    release(tx, &version, bypass, &mut change)?;
    tx.delete(place);
    if version.head.null {
        tx.delete(key::null(bucket.id, object));
    }
    charge(tx, bucket, change, None)?;
    Ok(Some(version.head))
}

/// Moves the newest of the older versions up to be the newest.
fn promote(tx: &mut Tx<'_>, bucket: &Bucket, object: &str, change: &mut Change) -> Result<()> {
    if bucket.versioning == Versioning::Off {
        return Ok(());
    }
    let mut next = None;
    tx.scan(key::pasts(bucket.id, object), |place, bytes| {
        next = Some((place.to_vec(), bytes.to_vec()));
        false
    })?;
    let Some((place, bytes)) = next else { return Ok(()) };
    let next = head(&bytes)?;
    change.objects += i64::from(!next.marker);
    if next.null {
        tx.delete(key::null(bucket.id, object));
    }
    tx.delete(place);
    tx.put(key::current(bucket.id, object), bytes);
    Ok(())
}

/// Lets go of a version's bytes and counts it out, unless a lock holds it.
fn release(tx: &mut Tx<'_>, version: &Version, bypass: bool, change: &mut Change) -> Result<()> {
    lock::check_removal(version, tx.now(), bypass)?;
    for blob in &version.blobs {
        tx.release(blob.id)?;
    }
    change.versions -= 1;
    change.bytes -= signed(version.head.size);
    Ok(())
}

/// What an id stands for: the number of a version, or `None` for the `null` one.
type Name = Option<u64>;

fn named(id: &str) -> Result<Name> {
    if id == NULL {
        return Ok(None);
    }
    let bad = || Fault::new(S3ErrorCode::InvalidArgument, "Invalid version id specified");
    version_seq(id).map(Some).ok_or_else(bad)
}

fn matches(head: &Head, name: Name) -> bool {
    match name {
        None => head.null,
        Some(seq) => !head.null && head.seq == seq,
    }
}

/// The number of an older version; that of the `null` one is looked up.
fn older(records: &impl Records, bucket: u32, object: &str, name: Name) -> Result<Option<u64>> {
    if name.is_some() {
        return Ok(name);
    }
    let Some(bytes) = records.record(&key::null(bucket, object))? else { return Ok(None) };
    let seq = bytes.try_into().map_err(|_| EngineError::Index("a null version cannot be read".into()))?;
    Ok(Some(u64::from_be_bytes(seq)))
}

fn marker(owner: &Account) -> Version {
    let mut version = Version::empty(owner.clone());
    version.head.marker = true;
    version
}

fn decode(bytes: &[u8]) -> Result<Version> {
    Ok(Version::decode(bytes).ok_or_else(|| EngineError::Index("a version cannot be read".into()))?)
}

fn head(bytes: &[u8]) -> Result<Head> {
    Ok(Head::decode(bytes).ok_or_else(|| EngineError::Index("a version cannot be read".into()))?)
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
