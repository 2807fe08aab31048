//! Uploads in parts.

use futures::TryStreamExt;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, StdError};

use super::copy::{Origin, origin};
use super::object::{new_version_id, owned, version_id};
use super::shape::customer;
use super::{Answer, Req, list, shape};
use crate::access::acl;
use crate::checksum::{self, Algorithm, Asked};
use crate::claim::Claim;
use crate::condition::{self, Reading, Writing};
use crate::engine::SealKey;
use crate::fault::{Fault, Result};
use crate::headers::Terms;
use crate::listing::{self, After, Entry, Query};
use crate::put::{self, Source, Taken};
use crate::record::{self, Bucket, Seal, Version};
use crate::seal::{self, CustomerKey, Wish};
use crate::service::{Caller, Records, Service};
use crate::time::{millis, timestamp};
use crate::upload::{self, NUMBER_MAX, Named, Whole};
use crate::{read, version};

pub async fn create_multipart_upload(
    service: &Service,
    mut req: Req<CreateMultipartUploadInput>,
) -> Answer<CreateMultipartUploadOutput> {
    let caller = Caller::of(&req)?.clone();
    let metadata = req.input.metadata.take();
    let terms = Terms::of(&req.headers, metadata)?;
    let checksum = wanted(&req.input)?;
    let bucket = service.engine.read().map_err(Fault::from)?.bucket(&req.input.bucket)?;
    let (owner, acl) = owned(service, &caller, &bucket, &req.headers).await?;
    let input = req.input;
    let wish = Wish {
        algorithm: input.server_side_encryption,
        kms_key: input.ssekms_key_id,
        customer: customer!(input)?,
    };
    let sealing = wish.sealing(&service.identity.root_key(), &bucket)?;
    let initiator = caller.principal.map_or_else(|| bucket.owner.clone(), |principal| principal.account);
    let new = record::Upload {
        id: String::new(),
        key: input.key,
        started: 0,
        initiator,
        owner,
        storage_class: terms.storage_class,
        headers: terms.headers,
        metadata: terms.metadata,
        tags: terms.tags,
        acl,
        seal: sealing.record,
        retention: terms.retention,
        hold: terms.hold,
        checksum,
    };
    let name = input.bucket.clone();
    let change = service.engine.write(move |tx| -> Result<record::Upload> {
        let bucket = tx.bucket(&name)?;
        if new.retention.is_some() || new.hold != record::Hold::Unset {
            crate::lock::of(&bucket)?;
        }
        upload::begin(tx, &bucket, new)
    });
    let upload = change.await?;
    let sealed = seal::shown(upload.seal.as_ref());
    let (checksum_algorithm, checksum_type) = promised(&upload);
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        checksum_algorithm,
        checksum_type,
        key: Some(upload.key),
        sse_customer_algorithm: sealed.customer_algorithm,
        sse_customer_key_md5: sealed.customer_md5,
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        upload_id: Some(upload.id),
        ..CreateMultipartUploadOutput::default()
    }))
}

/// The checksum that an upload asks for: its algorithm, and whether it is of the full object.
fn wanted(input: &CreateMultipartUploadInput) -> Result<Option<(String, bool)>> {
    let kind = input.checksum_type.as_ref().map(ChecksumType::as_str);
    let refuse = |message: String| Err(Fault::new(S3ErrorCode::InvalidRequest, message));
    let Some(name) = &input.checksum_algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => refuse(
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."
                    .into(),
            ),
        };
    };
    let algorithm = Algorithm::parse(name.as_str())?;
    let full = match (kind, algorithm) {
        (None, Algorithm::Crc64Nvme) => true,
        (None, _) => false,
        (Some(ChecksumType::FULL_OBJECT), Algorithm::Sha1 | Algorithm::Sha256)
        | (Some(ChecksumType::COMPOSITE), Algorithm::Crc64Nvme) => {
            let name = algorithm.name();
            return refuse(format!("The checksum type cannot be used with the {name} checksum algorithm."));
        }
        (Some(ChecksumType::FULL_OBJECT), _) => true,
        (Some(ChecksumType::COMPOSITE), _) => false,
        (Some(_), _) => return refuse("Value for x-amz-checksum-type header is invalid.".into()),
    };
    Ok(Some((algorithm.name().to_owned(), full)))
}

fn promised(upload: &record::Upload) -> (Option<ChecksumAlgorithm>, Option<ChecksumType>) {
    let Some((name, full)) = &upload.checksum else { return (None, None) };
    (Some(ChecksumAlgorithm::from(name.clone())), Some(checksum::kind(*full)))
}

pub async fn upload_part(service: &Service, mut req: Req<UploadPartInput>) -> Answer<UploadPartOutput> {
    let input = &mut req.input;
    let customer = customer!(input)?;
    let target = Target::find(service, &input.bucket, &input.key, &input.upload_id, input.part_number)?;
    let key = target.open(service, customer.as_ref())?;
    let body = input.body.take().unwrap_or_else(|| s3s::Body::empty().into());
    let claim = target.claim(service).await?;
    let (length, trailers) = (input.content_length, req.trailing_headers.take());
    let mut source = Source::of(body, &req.headers, length, trailers, claim)?;
    source.checksum = target.checksum(Asked::from(&req.headers)?)?;
    let taken = put::take(&service.engine, source, key.as_ref()).await?;
    let (part, seal) = target.store(service, taken, key.as_ref()).await?;
    let sealed = seal::shown(seal.as_ref());
    let sums = checksum::shown(part.checksum.as_ref());
    Ok(S3Response::new(UploadPartOutput {
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        e_tag: Some(shape::etag(&part.etag)),
        sse_customer_algorithm: sealed.customer_algorithm,
        sse_customer_key_md5: sealed.customer_md5,
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        ..UploadPartOutput::default()
    }))
}

pub async fn upload_part_copy(
    service: &Service,
    req: Req<UploadPartCopyInput>,
) -> Answer<UploadPartCopyOutput> {
    let input = req.input;
    let customer = customer!(input)?;
    let target = Target::find(service, &input.bucket, &input.key, &input.upload_id, input.part_number)?;
    let key = target.open(service, customer.as_ref())?;
    let origin = origin!(service, input);
    let range = range(origin.version.head.size, input.copy_source_range.as_deref())?;
    let length = range.end - range.start;
    let stream = read::bytes(&service.engine, &origin.version, range, origin.key.as_ref()).await?;
    let source = Source {
        stream: stream.map_err(StdError::from),
        length: Some(length),
        md5: None,
        checksum: target.checksum(None)?,
        trailers: None,
        claim: target.claim(service).await?,
    };
    let taken = put::take(&service.engine, source, key.as_ref()).await?;
    let (part, seal) = target.store(service, taken, key.as_ref()).await?;
    let sealed = seal::shown(seal.as_ref());
    let sums = checksum::shown(part.checksum.as_ref());
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(CopyPartResult {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            e_tag: Some(shape::etag(&part.etag)),
            last_modified: Some(timestamp(part.modified)),
        }),
        copy_source_version_id: version_id(&origin.bucket, &origin.version.head),
        sse_customer_algorithm: sealed.customer_algorithm,
        sse_customer_key_md5: sealed.customer_md5,
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        ..UploadPartCopyOutput::default()
    }))
}

/// Where a part goes.
struct Target {
    bucket: Bucket,
    upload: record::Upload,
    number: u16,
}

impl Target {
    fn find(service: &Service, bucket: &str, key: &str, id: &str, number: i32) -> Result<Self> {
        let number = u16::try_from(number).ok().filter(|number| (1..=NUMBER_MAX).contains(number));
        let number = number.ok_or_else(|| {
            Fault::new(
                S3ErrorCode::InvalidArgument,
                "Part number must be an integer between 1 and 10000, inclusive",
            )
        })?;
        let view = service.engine.read()?;
        let bucket = view.bucket(bucket)?;
        let upload = upload::find(&view, bucket.id, key, id)?;
        Ok(Self { bucket, upload, number })
    }

    async fn claim(&self, service: &Service) -> Result<Claim> {
        Claim::of_part(service, &self.bucket, &self.upload.id, self.number).await
    }

    /// The key that seals the parts.
    fn open(&self, service: &Service, customer: Option<&CustomerKey>) -> Result<Option<SealKey>> {
        seal::open(&service.identity.root_key(), self.upload.seal.as_ref(), customer)
    }

    /// The checksum of a part is by the algorithm of its upload, if that has one.
    fn checksum(&self, asked: Option<Asked>) -> Result<Asked> {
        let Some((name, _)) = &self.upload.checksum else { return Ok(asked.unwrap_or(put::DEFAULT)) };
        let algorithm = Algorithm::parse(name)?;
        match asked {
            None => Ok(Asked { algorithm, ..put::DEFAULT }),
            Some(asked) if asked.algorithm == algorithm => Ok(asked),
            Some(asked) => Err(Fault::new(
                S3ErrorCode::InvalidRequest,
                format!(
                    "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                    algorithm.name().to_lowercase(),
                    asked.algorithm.name().to_lowercase(),
                ),
            )),
        }
    }

    async fn store(
        self,
        service: &Service,
        taken: Taken,
        key: Option<&SealKey>,
    ) -> Result<(record::Part, Option<Seal>)> {
        let part = record::Part {
            number: self.number,
            blob: None,
            size: taken.size,
            modified: 0,
            etag: taken.etag(),
            checksum: Some(taken.checksum),
        };
        // Every part has a blob, so that a part without bytes keeps its number.
        let written = match taken.written {
            Some(written) => written,
            None => service.engine.blob(Some(0), key).finish().await?,
        };
        let quota = service.identity.quota(&self.bucket.owner.id).await;
        let (name, upload, claim) = (self.bucket.name, self.upload, taken.claim);
        let change = service.engine.write(move |tx| -> Result<_> {
            drop(claim);
            let bucket = tx.bucket(&name)?;
            let part = upload::keep(tx, &bucket, &upload, part, written, quota)?;
            Ok((part, upload.seal))
        });
        change.await
    }
}

/// The bytes of a source that are asked for: all, or `bytes=first-last` within them.
fn range(size: u64, asked: Option<&str>) -> Result<std::ops::Range<u64>> {
    let Some(asked) = asked else { return Ok(0..size) };
    let ends = asked.strip_prefix("bytes=").and_then(|ends| ends.split_once('-'));
    let ends = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let (first, last): (u64, u64) = ends.ok_or_else(|| {
        Fault::new(
            S3ErrorCode::InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy",
        )
    })?;
    if first > last || last >= size {
        return Err(Fault::new(
            S3ErrorCode::InvalidRange,
            format!("Range specified is not valid for source object of size: {size}"),
        ));
    }
    Ok(first..last + 1)
}

pub async fn complete_multipart_upload(
    service: &Service,
    mut req: Req<CompleteMultipartUploadInput>,
) -> Answer<CompleteMultipartUploadOutput> {
    let whole = whole(&mut req.input)?;
    let location = location(&req);
    let input = req.input;
    let condition = Writing { if_match: input.if_match, if_none_match: input.if_none_match };
    let customer = customer!(input)?;
    let root = service.identity.root_key();
    let owner = service.engine.read().map_err(Fault::from)?.bucket(&input.bucket)?.owner;
    let quota = service.identity.quota(&owner.id).await;
    let (name, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
    let change = service.engine.write(move |tx| -> Result<(Version, Option<String>)> {
        let bucket = tx.bucket(&name)?;
        let newest = version::newest(tx, bucket.id, &key)?;
        let version = match upload::find(tx, bucket.id, &key, &id) {
            Ok(upload) => {
                condition.check(newest.map(|newest| newest.head).as_ref())?;
                prove(tx, &bucket, &root, &upload, customer.as_ref())?;
                upload::complete(tx, &bucket, upload, &whole, quota)?
            }
            // A repeated completion gets the same answer.
            Err(fault) => match newest {
                Some(newest) if upload::made(&newest, &id, &whole)? => newest,
                _ => return Err(fault),
            },
        };
        let version_id = new_version_id(&bucket, &version.head);
        Ok((version, version_id))
    });
    let (version, version_id) = change.await?;
    let sealed = seal::shown(version.seal.as_ref());
    let sums = checksum::shown(version.checksum.as_ref());
    let mut response = S3Response::new(CompleteMultipartUploadOutput {
        bucket: Some(input.bucket),
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        checksum_type: sums.checksum_type,
        e_tag: Some(shape::etag(&version.head.etag)),
        key: Some(input.key),
        location: Some(location),
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        version_id,
        ..CompleteMultipartUploadOutput::default()
    });
    // The library has no place for these.
    let more = [
        ("x-amz-server-side-encryption-customer-algorithm", sealed.customer_algorithm),
        ("x-amz-server-side-encryption-customer-key-md5", sealed.customer_md5),
    ];
    for (name, value) in more {
        if let Some(value) = value.and_then(|value| http::HeaderValue::try_from(value).ok()) {
            response.headers.insert(name, value);
        }
    }
    Ok(response)
}

/// A customer's key is asked for once more where the client gave checksums, and must fit where it is given.
fn prove(
    records: &impl Records,
    bucket: &Bucket,
    root: &[u8; 32],
    upload: &record::Upload,
    customer: Option<&CustomerKey>,
) -> Result<()> {
    if !matches!(upload.seal, Some(record::Seal::Customer { .. })) {
        return Ok(());
    }
    let asked = || -> Result<bool> {
        // A part without a checksum of the client's has one of ours.
        let ours = put::DEFAULT.algorithm.name();
        let parts = upload::parts(records, bucket.id, &upload.id, 0, usize::from(NUMBER_MAX))?;
        Ok(parts.iter().filter_map(|part| part.checksum.as_ref()).any(|sum| sum.algorithm != ours))
    };
    if customer.is_some() || upload.checksum.is_some() || asked()? {
        seal::open(root, upload.seal.as_ref(), customer)?;
    }
    Ok(())
}

/// What a client says of the whole.
fn whole(input: &mut CompleteMultipartUploadInput) -> Result<Whole> {
    let malformed = || {
        let message =
            "The XML you provided was not well-formed or did not validate against our published schema";
        Fault::new(S3ErrorCode::MalformedXML, message)
    };
    let given = input.multipart_upload.take().and_then(|upload| upload.parts).unwrap_or_default();
    if given.is_empty() || given.len() > usize::from(NUMBER_MAX) {
        return Err(malformed());
    }
    let named = |part: CompletedPart| {
        let checksum = [
            (Algorithm::Crc32, part.checksum_crc32),
            (Algorithm::Crc32c, part.checksum_crc32c),
            (Algorithm::Crc64Nvme, part.checksum_crc64nvme),
            (Algorithm::Sha1, part.checksum_sha1),
            (Algorithm::Sha256, part.checksum_sha256),
        ];
        Some(Named {
            number: part.part_number?,
            etag: part.e_tag?.value().to_owned(),
            checksum: first(checksum),
        })
    };
    let checksum = [
        (Algorithm::Crc32, input.checksum_crc32.take()),
        (Algorithm::Crc32c, input.checksum_crc32c.take()),
        (Algorithm::Crc64Nvme, input.checksum_crc64nvme.take()),
        (Algorithm::Sha1, input.checksum_sha1.take()),
        (Algorithm::Sha256, input.checksum_sha256.take()),
    ];
    let size = input.mpu_object_size.map(u64::try_from).transpose();
    Ok(Whole {
        parts: given.into_iter().map(named).collect::<Option<_>>().ok_or_else(malformed)?,
        size: size.map_err(|_| Fault::from(S3ErrorCode::InvalidArgument))?,
        checksum: first(checksum),
        full: input.checksum_type.as_ref().map(|kind| kind.as_str() == ChecksumType::FULL_OBJECT),
    })
}

fn first(given: [(Algorithm, Option<String>); 5]) -> Option<(Algorithm, String)> {
    given.into_iter().find_map(|(algorithm, value)| value.map(|value| (algorithm, value)))
}

/// The address of the new object.
fn location(req: &S3Request<CompleteMultipartUploadInput>) -> String {
    let host = req.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let scheme = if Caller::of(req).is_ok_and(|caller| caller.tls.is_some()) { "https" } else { "http" };
    match host {
        Some(host) => format!("{scheme}://{host}{}", req.uri.path()),
        None => req.uri.path().to_owned(),
    }
}

pub async fn abort_multipart_upload(
    service: &Service,
    req: Req<AbortMultipartUploadInput>,
) -> Answer<AbortMultipartUploadOutput> {
    let input = req.input;
    let change = service.engine.write(move |tx| -> Result<()> {
        let bucket = tx.bucket(&input.bucket)?;
        let upload = upload::find(tx, bucket.id, &input.key, &input.upload_id)?;
        let seconds = |time: i64| time.div_euclid(1000);
        let same = |time: &Timestamp| seconds(millis(time)) == seconds(upload.started);
        if !input.if_match_initiated_time.as_ref().is_none_or(same) {
            return Err(condition::failed());
        }
        upload::abort(tx, &bucket, &upload)
    });
    change.await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub async fn list_multipart_uploads(
    service: &Service,
    req: Req<ListMultipartUploadsInput>,
) -> Answer<ListMultipartUploadsOutput> {
    let input = req.input;
    let text = list::Text::new(input.encoding_type.as_ref())?;
    let limit = list::limit(input.max_uploads)?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let prefix = input.prefix.unwrap_or_default();
    let marker = input.key_marker.unwrap_or_default();
    let within = input.upload_id_marker.filter(|id| !id.is_empty() && !marker.is_empty());
    let after = match &within {
        Some(id) => After::Within(marker.clone(), id.clone()),
        None => After::marker(&marker, &prefix, delimiter.as_deref()),
    };
    let query = Query { prefix, delimiter, after, limit };
    let (page, query) = list::page(service, &input.bucket, query, listing::uploads).await?;
    let next = page.entries.last().filter(|_| page.more);
    let next_key_marker = next.map(|entry| text.show(entry.name()));
    let next_upload_id_marker = next.and_then(|entry| match entry {
        Entry::Item(_, upload) => Some(upload.id.clone()),
        Entry::Prefix(_) => None,
    });
    let is_truncated = Some(page.more);
    let (uploads, common_prefixes) = text.split(page, entry);
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: Some(common_prefixes),
        delimiter: query.delimiter.as_deref().map(|delimiter| text.show(delimiter)),
        encoding_type: input.encoding_type,
        is_truncated,
        key_marker: Some(text.show(&marker)),
        max_uploads: Some(list::shown(limit)),
        next_key_marker,
        next_upload_id_marker,
        prefix: Some(text.show(&query.prefix)),
        request_charged: None,
        upload_id_marker: Some(within.unwrap_or_default()),
        uploads: Some(uploads),
    }))
}

fn entry(key: String, upload: record::Upload) -> MultipartUpload {
    let (checksum_algorithm, checksum_type) = promised(&upload);
    MultipartUpload {
        checksum_algorithm,
        checksum_type,
        initiated: Some(timestamp(upload.started)),
        initiator: Some(initiator(&upload)),
        key: Some(key),
        owner: Some(acl::owner(&upload.owner)),
        storage_class: Some(class(&upload)),
        upload_id: Some(upload.id),
    }
}

pub async fn list_parts(service: &Service, req: Req<ListPartsInput>) -> Answer<ListPartsOutput> {
    let input = req.input;
    let limit = list::limit(input.max_parts)?;
    let marker = input.part_number_marker.unwrap_or_default();
    let after = u16::try_from(marker).map_err(|_| {
        Fault::new(
            S3ErrorCode::InvalidArgument,
            "Argument part-number-marker must be an integer between 0 and 65535",
        )
    })?;
    let (engine, name, key, id) =
        (service.engine.clone(), input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let found = list::blocking(move || {
        let view = engine.read()?;
        let bucket = view.bucket(&name)?;
        let upload = upload::find(&view, bucket.id, &key, &id)?;
        let parts = upload::parts(&view, bucket.id, &id, after, limit + 1)?;
        Ok((upload, parts))
    });
    let (upload, mut parts) = found.await?;
    let more = limit > 0 && parts.len() > limit;
    parts.truncate(limit);
    let next = parts.last().filter(|_| more).map(|part| i32::from(part.number));
    let (checksum_algorithm, checksum_type) = promised(&upload);
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        checksum_algorithm,
        checksum_type,
        initiator: Some(initiator(&upload)),
        is_truncated: Some(more),
        key: Some(input.key),
        max_parts: Some(list::shown(limit)),
        next_part_number_marker: next,
        owner: Some(acl::owner(&upload.owner)),
        part_number_marker: Some(marker),
        storage_class: Some(class(&upload)),
        parts: Some(parts.into_iter().map(|part| shown(&part, upload.checksum.is_some())).collect()),
        upload_id: Some(input.upload_id),
        ..ListPartsOutput::default()
    }))
}

/// Checksums are shown where the upload asked for them.
fn shown(part: &record::Part, with_checksum: bool) -> Part {
    let sums = checksum::shown(part.checksum.as_ref().filter(|_| with_checksum));
    Part {
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        e_tag: Some(shape::etag(&part.etag)),
        last_modified: Some(timestamp(part.modified)),
        part_number: Some(i32::from(part.number)),
        size: Some(shape::size(part.size)),
    }
}

fn initiator(upload: &record::Upload) -> Initiator {
    let shown = acl::owner(&upload.initiator);
    Initiator { display_name: shown.display_name, id: shown.id }
}

fn class(upload: &record::Upload) -> StorageClass {
    let class = upload.storage_class.clone();
    class.map_or_else(|| StorageClass::from_static(StorageClass::STANDARD), StorageClass::from)
}
