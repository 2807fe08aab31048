//! Objects as a whole: put, get, head.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{ETAG, HeaderValue, IF_RANGE, LAST_MODIFIED};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response};

use super::shape::customer;
use super::{Answer, Req};
use crate::access::ownership;
use crate::claim::Claim;
use crate::condition::{Reading, Verdict, Writing};
use crate::engine::{SealKey, Tx};
use crate::fault::{Fault, Result};
use crate::headers::{self, Terms};
use crate::identity::Account;
use crate::notify::About;
use crate::put::{self, Source};
use crate::read::{self, Slice};
use crate::record::version::Head;
use crate::record::{Acl, Blob, Bucket, Hold, Version, Versioning};
use crate::seal::{self, CustomerKey, Wish};
use crate::service::{Caller, Records, Service};
use crate::time::timestamp;
use crate::{checksum, lifecycle, notify, version};

pub async fn put_object(service: &Service, mut req: Req<PutObjectInput>) -> Answer<PutObjectOutput> {
    let caller = Caller::of(&req)?.clone();
    let input = &mut req.input;
    version::check_key(&input.key)?;
    if input.write_offset_bytes.is_some() {
        let message = "Appending to objects is not supported.";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
    }
    let bucket = service.engine.read().map_err(Fault::from)?.bucket(&input.bucket)?;
    let terms = Terms::of(&req.headers, input.metadata.take())?;
    let sealing = wish(input)?.sealing(&service.identity.root_key(), &bucket)?;
    let (owner, acl) = owned(service, &caller, &bucket, &req.headers).await?;
    let body = input.body.take().unwrap_or_else(|| s3s::Body::empty().into());
    let claim = Claim::of_object(service, &bucket, &input.key).await?;
    let source = Source::of(body, &req.headers, input.content_length, req.trailing_headers.take(), claim)?;
    let condition = Writing { if_match: input.if_match.take(), if_none_match: input.if_none_match.take() };

    let taken = put::take(&service.engine, source, sealing.key.as_ref()).await?;
    let mut new = terms.version(owner, acl, sealing.record);
    new.head.size = taken.size;
    new.head.etag = taken.etag();
    headers::set_checksum(&mut new, Some(taken.checksum));
    let shown = (seal::shown(new.seal.as_ref()), checksum::shown(new.checksum.as_ref()));

    let change = Change {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        condition,
        quota: service.identity.quota(&bucket.owner.id).await,
        event: if req.method == http::Method::POST { "ObjectCreated:Post" } else { "ObjectCreated:Put" },
    };
    let (written, claim) = (taken.written, taken.claim);
    let stored = service.engine.write(move |tx| {
        drop(claim);
        change.make(tx, new, |tx, new| {
            if let Some(written) = written {
                let id = tx.store(written)?;
                new.blobs = vec![Blob { id, size: new.head.size, part: 1, checksum: None }];
            }
            Ok(true)
        })
    });
    let made = stored.await?.ok_or(S3ErrorCode::InternalError)?;
    let (sealed, sums) = shown;
    Ok(S3Response::new(PutObjectOutput {
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        checksum_type: sums.checksum_type,
        e_tag: Some(ETag::Strong(made.head.etag)),
        expiration: made.expiration,
        sse_customer_algorithm: sealed.customer_algorithm,
        sse_customer_key_md5: sealed.customer_md5,
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        version_id: made.version_id,
        ..PutObjectOutput::default()
    }))
}

/// A new version in the making: where it goes, and on what conditions.
pub(super) struct Change {
    pub bucket: String,
    pub key: String,
    pub condition: Writing,
    /// The most bytes of the bucket's owner.
    pub quota: Option<u64>,
    pub event: &'static str,
}

/// What became of it.
pub(super) struct Made {
    pub head: Head,
    pub version_id: Option<String>,
    pub expiration: Option<String>,
}

impl Change {
    /// Runs on the writer. `bytes` gives the version its bytes, or says by `false` that it cannot.
    pub fn make(
        self,
        tx: &mut Tx<'_>,
        mut new: Version,
        bytes: impl FnOnce(&mut Tx<'_>, &mut Version) -> Result<bool>,
    ) -> Result<Option<Made>> {
        let bucket = tx.bucket(&self.bucket)?;
        let newest = version::newest(tx, bucket.id, &self.key)?;
        self.condition.check(newest.map(|newest| newest.head).as_ref())?;
        if !bytes(tx, &mut new)? {
            return Ok(None);
        }
        let rules = bucket.settings.lifecycle.as_ref();
        let kept = rules.map(|_| new.clone());
        let head = version::insert(tx, &bucket, &self.key, new, self.quota)?;
        notify::emit(tx, &bucket, self.event, &About::version(&self.key, &head))?;
        let kept = kept.map(|kept| Version { head: head.clone(), ..kept });
        let expiration = kept.and_then(|kept| lifecycle::expiration(rules, &self.key, &kept));
        Ok(Some(Made { version_id: new_version_id(&bucket, &head), head, expiration }))
    }
}

fn wish(input: &mut PutObjectInput) -> Result<Wish> {
    Ok(Wish {
        algorithm: input.server_side_encryption.take(),
        kms_key: input.ssekms_key_id.take(),
        customer: customer!(input)?,
    })
}

/// Who owns a new object, and who else may use it.
pub(super) async fn owned(
    service: &Service,
    caller: &Caller,
    bucket: &Bucket,
    headers: &HeaderMap,
) -> Result<(Account, Option<Acl>)> {
    let (owner, acl) = ownership::of_upload(service, caller, bucket, headers, None).await?;
    // The list that says nothing more than the owner does is not kept.
    let acl = Some(acl).filter(|acl| *acl != Acl::private(&owner));
    Ok((owner, acl))
}

/// Writes name the version they made where the bucket keeps every one.
pub(super) fn new_version_id(bucket: &Bucket, head: &Head) -> Option<String> {
    (bucket.versioning == Versioning::Enabled).then(|| head.version_id())
}

/// Reads name the version they found where the bucket has ever kept several.
pub(super) fn version_id(bucket: &Bucket, head: &Head) -> Option<String> {
    (bucket.versioning != Versioning::Off).then(|| head.version_id())
}

/// What a get or a head asks for, which the library gives different types.
macro_rules! asked {
    ($req:expr) => {{
        let input = &$req.input;
        Asked {
            bucket: &input.bucket,
            key: &input.key,
            version_id: input.version_id.as_deref(),
            condition: Reading {
                if_match: input.if_match.clone(),
                if_none_match: input.if_none_match.clone(),
                if_modified_since: input.if_modified_since.clone(),
                if_unmodified_since: input.if_unmodified_since.clone(),
            },
            range: input.range.as_ref(),
            part: input.part_number,
            customer: customer!(input)?,
            checksums: input.checksum_mode.is_some(),
            headers: &$req.headers,
        }
    }};
}

pub async fn get_object(service: &Service, req: Req<GetObjectInput>) -> Answer<GetObjectOutput> {
    let input = &req.input;
    let overrides = [
        input.response_cache_control.is_some(),
        input.response_content_disposition.is_some(),
        input.response_content_encoding.is_some(),
        input.response_content_language.is_some(),
        input.response_content_type.is_some(),
        input.response_expires.is_some(),
    ];
    if Caller::of(&req)?.principal.is_none() && overrides.contains(&true) {
        let message = "Request specific response headers cannot be used for anonymous GET requests.";
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
    }
    let asked = asked!(req);
    let found = asked.find(service)?;
    let range = found.slice.range.clone();
    let length = range.end - range.start;
    let mut output = found.output(asked.checksums);
    if length > 0 {
        let stream = read::bytes(&service.engine, &found.version, range, found.key.as_ref()).await?;
        output.body = Some(read::body(read::begun(stream).await?, length));
    }
    let mut response = S3Response::new(output);
    response.headers = raw_metadata(&found.version);
    Ok(response)
}

/// What a read asks for.
struct Asked<'a> {
    bucket: &'a str,
    key: &'a str,
    version_id: Option<&'a str>,
    condition: Reading,
    range: Option<&'a Range>,
    part: Option<i32>,
    customer: Option<CustomerKey>,
    checksums: bool,
    headers: &'a HeaderMap,
}

/// What a read found and may show.
struct Found {
    bucket: Bucket,
    version: Version,
    slice: Slice,
    key: Option<SealKey>,
    expiration: Option<String>,
}

impl Asked<'_> {
    fn find(&self, service: &Service) -> Result<Found, S3Error> {
        refuse_encryption(self.headers)?;
        let view = service.engine.read().map_err(Fault::from)?;
        let bucket = view.bucket(self.bucket)?;
        let version = version::find(&view, bucket.id, self.key, self.version_id)?;
        match self.condition.check(&version.head) {
            Verdict::Holds => {}
            Verdict::Failed => return Err(crate::condition::failed().into()),
            Verdict::NotModified => return Err(not_modified(&version.head)),
        }
        let key = seal::open(&service.identity.root_key(), version.seal.as_ref(), self.customer.as_ref());
        let holds = |asked| crate::condition::range_holds(asked, &version.head);
        let range = self.range.filter(|_| self.headers.get(IF_RANGE).is_none_or(holds));
        let slice = read::slice(&version, range, self.part);
        // A part that is not there is told before a key that is.
        let (slice, key) = (slice?, key?);
        let rules = bucket.settings.lifecycle.as_ref().filter(|_| self.version_id.is_none());
        let expiration = lifecycle::expiration(rules, self.key, &version);
        Ok(Found { bucket, version, slice, key, expiration })
    }
}

/// Reads take no word about encryption by the store: it is as it was written.
pub(super) fn refuse_encryption(headers: &HeaderMap) -> Result<()> {
    let names = ["x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"];
    if names.iter().any(|name| headers.contains_key(*name)) {
        return Err(Fault::new(
            S3ErrorCode::InvalidArgument,
            "x-amz-server-side-encryption header is not supported for this operation.",
        ));
    }
    Ok(())
}

fn not_modified(head: &Head) -> S3Error {
    let mut answer = HeaderMap::new();
    if let Ok(value) = HeaderValue::try_from(format!("\"{}\"", head.etag)) {
        answer.insert(ETAG, value);
    }
    let mut date = Vec::new();
    if timestamp(head.modified).format(TimestampFormat::HttpDate, &mut date).is_ok()
        && let Ok(value) = HeaderValue::from_bytes(&date)
    {
        answer.insert(LAST_MODIFIED, value);
    }
    let mut error = S3Error::with_message(S3ErrorCode::NotModified, "Not Modified");
    error.set_status_code(http::StatusCode::NOT_MODIFIED);
    error.set_headers(answer);
    error
}

impl Found {
    /// Everything but the bytes.
    fn output(&self, checksums: bool) -> GetObjectOutput {
        let version = &self.version;
        let range = &self.slice.range;
        let system = |name: &str| headers::system_of(&version.headers, name).map(str::to_owned);
        let sealed = seal::shown(version.seal.as_ref());
        let sums = if checksums { self.checksum() } else { Checksum::default() };
        let content_range = (self.slice.partial && !range.is_empty())
            .then(|| format!("bytes {}-{}/{}", range.start, range.end - 1, version.head.size));
        GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: system("cache-control"),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
            content_disposition: system("content-disposition"),
            content_encoding: system("content-encoding"),
            content_language: system("content-language"),
            content_length: Some(signed(range.end - range.start)),
            content_range,
            content_type: system("content-type").or_else(|| Some(headers::CONTENT_TYPE.to_owned())),
            e_tag: Some(ETag::Strong(version.head.etag.clone())),
            expiration: self.expiration.clone(),
            expires: system("expires")
                .and_then(|date| Timestamp::parse(TimestampFormat::HttpDate, &date).ok()),
            last_modified: Some(timestamp(version.head.modified)),
            metadata: ascii_metadata(version),
            object_lock_legal_hold_status: match version.hold {
                Hold::Unset => None,
                Hold::On => Some(ObjectLockLegalHoldStatus::from_static(ObjectLockLegalHoldStatus::ON)),
                Hold::Off => Some(ObjectLockLegalHoldStatus::from_static(ObjectLockLegalHoldStatus::OFF)),
            },
            object_lock_mode: version.retention.as_ref().map(|retention| {
                ObjectLockMode::from_static(if retention.compliance {
                    ObjectLockMode::COMPLIANCE
                } else {
                    ObjectLockMode::GOVERNANCE
                })
            }),
            object_lock_retain_until_date: version
                .retention
                .as_ref()
                .map(|retention| timestamp(retention.until)),
            parts_count: self.slice.part.map(|_| count(version.blobs.len())),
            sse_customer_algorithm: sealed.customer_algorithm,
            sse_customer_key_md5: sealed.customer_md5,
            ssekms_key_id: sealed.kms_key,
            server_side_encryption: sealed.algorithm,
            storage_class: version.head.storage_class.clone().map(StorageClass::from),
            tag_count: (!version.tags.is_empty()).then(|| count(version.tags.len())),
            version_id: version_id(&self.bucket, &version.head),
            website_redirect_location: system("x-amz-website-redirect-location"),
            ..GetObjectOutput::default()
        }
    }

    /// That of the bytes that go out: of all of them, or of one part.
    fn checksum(&self) -> Checksum {
        let whole = self.version.checksum.as_ref();
        match (self.slice.part, self.slice.partial) {
            (Some(part), _) => checksum::of_part(whole, self.version.blobs[part].checksum.as_deref()),
            (None, true) if self.slice.range != (0..self.version.head.size) => Checksum::default(),
            (None, _) => checksum::shown(whole),
        }
    }
}

/// Metadata that any header may carry.
fn ascii_metadata(version: &Version) -> Option<Metadata> {
    let plain = version.metadata.iter().filter(|(_, value)| value.is_ascii()).cloned();
    Some(plain.collect::<Metadata>()).filter(|metadata| !metadata.is_empty())
}

/// Metadata beyond ASCII goes out in Latin-1 where it can, as headers are read, else as mail has it (RFC 2047).
fn raw_metadata(version: &Version) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in version.metadata.iter().filter(|(_, value)| !value.is_ascii()) {
        let latin: Option<Vec<u8>> = value.chars().map(|char| u8::try_from(char).ok()).collect();
        let bytes = latin.unwrap_or_else(|| format!("=?UTF-8?B?{}?=", STANDARD.encode(value)).into_bytes());
        let name = http::HeaderName::try_from(format!("x-amz-meta-{name}"));
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&bytes)) {
            map.insert(name, value);
        }
    }
    map
}

pub(super) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub async fn head_object(service: &Service, req: Req<HeadObjectInput>) -> Answer<HeadObjectOutput> {
    let asked = asked!(req);
    let found = asked.find(service)?;
    let shown = found.output(asked.checksums);
    let mut more = raw_metadata(&found.version);
    if let Some(tags) = shown.tag_count {
        more.insert("x-amz-tagging-count", HeaderValue::from(tags));
    }
    let mut response = S3Response::new(HeadObjectOutput {
        accept_ranges: shown.accept_ranges,
        cache_control: req.input.response_cache_control.or(shown.cache_control),
        checksum_crc32: shown.checksum_crc32,
        checksum_crc32c: shown.checksum_crc32c,
        checksum_crc64nvme: shown.checksum_crc64nvme,
        checksum_sha1: shown.checksum_sha1,
        checksum_sha256: shown.checksum_sha256,
        checksum_type: shown.checksum_type,
        content_disposition: req.input.response_content_disposition.or(shown.content_disposition),
        content_encoding: req.input.response_content_encoding.or(shown.content_encoding),
        content_language: req.input.response_content_language.or(shown.content_language),
        content_length: shown.content_length,
        content_range: shown.content_range,
        content_type: req.input.response_content_type.or(shown.content_type),
        e_tag: shown.e_tag,
        expiration: shown.expiration,
        expires: req.input.response_expires.or(shown.expires),
        last_modified: shown.last_modified,
        metadata: shown.metadata,
        object_lock_legal_hold_status: shown.object_lock_legal_hold_status,
        object_lock_mode: shown.object_lock_mode,
        object_lock_retain_until_date: shown.object_lock_retain_until_date,
        parts_count: shown.parts_count,
        sse_customer_algorithm: shown.sse_customer_algorithm,
        sse_customer_key_md5: shown.sse_customer_key_md5,
        ssekms_key_id: shown.ssekms_key_id,
        server_side_encryption: shown.server_side_encryption,
        storage_class: shown.storage_class,
        version_id: shown.version_id,
        website_redirect_location: shown.website_redirect_location,
        ..HeadObjectOutput::default()
    });
    response.headers = more;
    Ok(response)
}
