//! Uploads in parts: begun, filled, completed or given up, each within one change.

use std::collections::BTreeMap;

use md5::{Digest, Md5};
use s3s::S3ErrorCode;

use crate::checksum::{self, Algorithm};
use crate::engine::{EngineError, Tx, Written};
use crate::fault::{Fault, Result};
use crate::headers::{self, Terms};
use crate::notify::{self, About};
use crate::record::key::{self, Space};
use crate::record::{Blob, Bucket, Checksum, Part, Upload, Version};
use crate::service::Records;
use crate::version::{self, Change};

/// The highest number of a part.
pub const NUMBER_MAX: u16 = 10_000;
/// The least bytes of a part that is not the last.
pub const PART_MIN: u64 = 5 << 20;
/// The most bytes of an object.
pub const OBJECT_MAX: u64 = 5 << 40;

/// The open upload, or `NoSuchUpload`.
pub fn find(records: &impl Records, bucket: u32, object: &str, id: &str) -> Result<Upload> {
    let bytes = records.record(&key::upload(bucket, object, id))?.ok_or_else(|| {
        Fault::new(
            S3ErrorCode::NoSuchUpload,
            "The specified multipart upload does not exist. The upload ID might be invalid, or the multipart upload might have been aborted or completed.",
        )
    })?;
    Ok(Upload::decode(&bytes).ok_or_else(|| EngineError::Index("an upload cannot be read".into()))?)
}

/// Opens an upload. Its id begins with the time, so that older ones come first.
pub fn begin(tx: &mut Tx<'_>, bucket: &Bucket, mut upload: Upload) -> Result<Upload> {
    version::check_key(&upload.key)?;
    upload.started = tx.now();
    upload.id = format!("{:016x}{:016x}", upload.started, rand::random::<u64>());
    tx.put(key::upload(bucket.id, &upload.key, &upload.id), upload.encode());
    Ok(upload)
}

/// Keeps a part; one of the same number gives way to it.
pub fn keep(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    upload: &Upload,
    mut part: Part,
    written: Written,
    quota: Option<u64>,
) -> Result<Part> {
    find(tx, bucket.id, &upload.key, &upload.id)?;
    let place = key::part(bucket.id, &upload.id, part.number);
    let mut change = Change { upload_bytes: signed(part.size), ..Change::default() };
    if let Some(bytes) = tx.get(&place)? {
        let old = decode(&bytes)?;
        change.upload_bytes -= signed(old.size);
        release(tx, &old)?;
    }
    version::charge(tx, bucket, change, quota)?;
    part.blob = Some(tx.store(written)?);
    part.modified = tx.now();
    tx.put(place, part.encode());
    Ok(part)
}

/// Parts of an upload with numbers above `after`, at most `limit` of them.
pub fn parts(
    records: &impl Records,
    bucket: u32,
    upload: &str,
    after: u16,
    limit: usize,
) -> Result<Vec<Part>> {
    let mut range = key::parts(bucket, upload);
    let Some(first) = after.checked_add(1) else { return Ok(Vec::new()) };
    range.start = key::part(bucket, upload, first);
    let mut found = Vec::new();
    let mut broken = false;
    records.each(range, |_, bytes| {
        match Part::decode(bytes) {
            _ if found.len() == limit => return false,
            Some(part) => found.push(part),
            None => broken = true,
        }
        !broken
    })?;
    if broken { Err(unreadable()) } else { Ok(found) }
}

/// A part as the client names it in the end.
#[derive(Debug, Clone)]
pub struct Named {
    pub number: i32,
    pub etag: String,
    pub checksum: Option<(Algorithm, String)>,
}

/// What the client says of the whole.
#[derive(Debug, Clone, Default)]
pub struct Whole {
    pub parts: Vec<Named>,
    pub size: Option<u64>,
    pub checksum: Option<(Algorithm, String)>,
    /// Whether it says that the checksum is of the full object.
    pub full: Option<bool>,
}

/// Makes the object out of its parts. Parts that are not named are dropped.
pub fn complete(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    upload: Upload,
    whole: &Whole,
    quota: Option<u64>,
) -> Result<Version> {
    let all = parts(tx, bucket.id, &upload.id, 0, usize::from(NUMBER_MAX))?;
    let mut rest: BTreeMap<u16, Part> = all.into_iter().map(|part| (part.number, part)).collect();
    let used = choose(&mut rest, &whole.parts)?;
    let size = used.iter().map(|part| part.size).sum::<u64>();
    if size > OBJECT_MAX {
        let message = "Your proposed upload exceeds the maximum allowed object size.";
        return Err(Fault::new(S3ErrorCode::EntityTooLarge, message));
    }
    if whole.size.is_some_and(|given| given != size) {
        let message = "The provided 'x-amz-mp-object-size' header value does not match what was computed.";
        return Err(Fault::new(S3ErrorCode::InvalidRequest, message));
    }
    let checksum = checksum(&upload, &used)?;
    check(whole, checksum.as_ref())?;
    let etag = joined(used.iter().map(|part| part.etag.as_str()))?;
    for part in rest.values() {
        release(tx, part)?;
    }
    forget(tx, bucket, &upload, used.iter().chain(rest.values()))?;
    let mut new = terms(&upload).version(upload.owner, upload.acl, upload.seal);
    new.head.size = size;
    new.head.etag = etag;
    new.multipart = true;
    new.upload = Some(upload.id);
    new.blobs = used.into_iter().filter_map(blob).collect();
    headers::set_checksum(&mut new, checksum);
    new.head = version::insert(tx, bucket, &upload.key, new.clone(), quota)?;
    let about = About::version(&upload.key, &new.head);
    notify::emit(tx, bucket, "ObjectCreated:CompleteMultipartUpload", &about)?;
    Ok(new)
}

/// Drops an upload and its parts.
pub fn abort(tx: &mut Tx<'_>, bucket: &Bucket, upload: &Upload) -> Result<()> {
    let parts = parts(tx, bucket.id, &upload.id, 0, usize::from(NUMBER_MAX))?;
    for part in &parts {
        release(tx, part)?;
    }
    forget(tx, bucket, upload, parts.iter())
}

/// Drops all uploads of a bucket that goes.
pub fn abort_all(tx: &mut Tx<'_>, bucket: &Bucket) -> Result<()> {
    let mut open = Vec::new();
    tx.scan(key::of_bucket(Space::Upload, bucket.id), |_, bytes| {
        open.extend(Upload::decode(bytes));
        true
    })?;
    open.iter().try_for_each(|upload| abort(tx, bucket, upload))
}

/// The parts that count. A part that was sent again may stand in the list once for each of its ETags, in a row; then the
/// last counts.
fn in_order(named: &[Named]) -> Result<Vec<&Named>> {
    let in_order = |pair: &[Named]| {
        let (part, next) = (&pair[0], &pair[1]);
        part.number < next.number || part.number == next.number && part.etag != next.etag
    };
    if !named.windows(2).all(in_order) {
        return Err(Fault::new(
            S3ErrorCode::InvalidPartOrder,
            "The list of parts was not in ascending order. The parts list must be specified in order by part number.",
        ));
    }
    let counts = |index: usize| named.get(index + 1).is_none_or(|next| next.number != named[index].number);
    Ok(named.iter().enumerate().filter(|(index, _)| counts(*index)).map(|(_, part)| part).collect())
}

/// Takes the named parts out of all.
fn choose(all: &mut BTreeMap<u16, Part>, named: &[Named]) -> Result<Vec<Part>> {
    let named = in_order(named)?;
    let mut used: Vec<Part> = Vec::with_capacity(named.len());
    for (index, named_part) in named.iter().enumerate() {
        let number = u16::try_from(named_part.number).unwrap_or_default();
        let part = all.remove(&number).filter(|part| fits(part, named_part)).ok_or_else(|| {
            Fault::new(
                S3ErrorCode::InvalidPart,
                "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified entity tag might not have matched the part's entity tag.",
            )
        })?;
        if part.size < PART_MIN && index + 1 < named.len() {
            return Err(Fault::new(
                S3ErrorCode::EntityTooSmall,
                "Your proposed upload is smaller than the minimum allowed object size.",
            ));
        }
        used.push(part);
    }
    Ok(used)
}

/// Whether a version came of this upload by these parts, so that its completion was only asked for again.
pub fn made(version: &Version, id: &str, whole: &Whole) -> Result<bool> {
    let named = in_order(&whole.parts)?;
    let numbers = named.iter().map(|part| part.number);
    let etag = joined(named.iter().map(|part| part.etag.as_str()));
    Ok(version.upload.as_deref() == Some(id)
        && version.blobs.iter().map(|blob| i32::from(blob.part)).eq(numbers)
        && etag.is_ok_and(|etag| etag == version.head.etag))
}

fn fits(part: &Part, named: &Named) -> bool {
    let same = |(algorithm, value): &(Algorithm, String)| {
        let kept = part.checksum.as_ref();
        kept.is_some_and(|kept| kept.algorithm == algorithm.name() && kept.value == *value)
    };
    part.etag == named.etag && named.checksum.as_ref().is_none_or(same)
}

/// The MD5 of the parts' MD5s, and how many they are.
fn joined<'p>(etags: impl Iterator<Item = &'p str>) -> Result<String> {
    let (mut md5, mut count) = (Md5::new(), 0);
    for etag in etags {
        md5.update(hex::decode(etag).map_err(|_| unreadable())?);
        count += 1;
    }
    Ok(format!("{}-{count}", hex::encode(md5.finalize())))
}

/// The checksum of the whole as the upload asked for it. Where it did not ask, one of the full
/// object if the parts' can be combined.
fn checksum(upload: &Upload, parts: &[Part]) -> Result<Option<Checksum>> {
    let first = parts.first().and_then(|part| part.checksum.as_ref());
    let (name, full) = match (&upload.checksum, first) {
        (Some((name, full)), _) => (name.as_str(), *full),
        (None, Some(first)) => (first.algorithm.as_str(), true),
        (None, None) => return Ok(None),
    };
    let algorithm = Algorithm::parse(name)?;
    let values = parts.iter().map(|part| {
        let checksum = part.checksum.as_ref().filter(|checksum| checksum.algorithm == name);
        checksum.map(|checksum| (checksum.value.as_str(), part.size))
    });
    let Some(values) = values.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let value = if full {
        checksum::combined(algorithm, values)
    } else {
        checksum::composite(algorithm, values.into_iter().map(|(value, _)| value))
    };
    Ok(value.map(|value| Checksum { algorithm: name.to_owned(), value, full }))
}

/// Compares what the client says of the whole.
fn check(whole: &Whole, checksum: Option<&Checksum>) -> Result<()> {
    if let (Some(full), Some(checksum)) = (whole.full, checksum)
        && full != checksum.full
    {
        let message = "The upload was begun with another type of checksum than x-amz-checksum-type says.";
        return Err(Fault::new(S3ErrorCode::InvalidRequest, message));
    }
    let Some((algorithm, value)) = &whole.checksum else { return Ok(()) };
    let same = |checksum: &Checksum| {
        let plain = checksum.value.split_once('-').map_or(checksum.value.as_str(), |(plain, _)| plain);
        checksum.algorithm == algorithm.name() && (checksum.value == *value || plain == value)
    };
    if checksum.is_some_and(same) {
        return Ok(());
    }
    Err(Fault::new(
        S3ErrorCode::BadDigest,
        format!("The {} you specified did not match the calculated checksum.", algorithm.name()),
    ))
}

fn terms(upload: &Upload) -> Terms {
    Terms {
        headers: upload.headers.clone(),
        metadata: upload.metadata.clone(),
        tags: upload.tags.clone(),
        storage_class: upload.storage_class.clone(),
        retention: upload.retention.clone(),
        hold: upload.hold,
    }
}

fn blob(part: Part) -> Option<Blob> {
    let checksum = part.checksum.map(|checksum| checksum.value);
    Some(Blob { id: part.blob?, size: part.size, part: part.number, checksum })
}

/// Deletes the records of an upload and counts its parts out.
fn forget<'p>(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    upload: &Upload,
    parts: impl Iterator<Item = &'p Part>,
) -> Result<()> {
    let mut change = Change::default();
    for part in parts {
        change.upload_bytes -= signed(part.size);
        tx.delete(key::part(bucket.id, &upload.id, part.number));
    }
    tx.delete(key::upload(bucket.id, &upload.key, &upload.id));
    version::charge(tx, bucket, change, None)
}

fn release(tx: &mut Tx<'_>, part: &Part) -> Result<()> {
    Ok(part.blob.map_or(Ok(()), |blob| tx.release(blob))?)
}

fn decode(bytes: &[u8]) -> Result<Part> {
    Part::decode(bytes).ok_or_else(unreadable)
}

fn unreadable() -> Fault {
    EngineError::Index("a part cannot be read".into()).into()
}

fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
