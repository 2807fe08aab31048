//! Copies: by sharing the bytes where the seals allow it, else by writing them again.

use futures::TryStreamExt;
use http::HeaderMap;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::object::{Change, Made, owned, version_id};
use super::shape::customer;
use super::{Answer, Req};
use crate::checksum::{self, Algorithm, Asked, Hasher};
use crate::claim::Claim;
use crate::condition::{Reading, Writing};
use crate::engine::{SealKey, Tx, Written};
use crate::fault::{Fault, Result};
use crate::headers::{self, Terms};
use crate::put::{self, SIZE_MAX, Source};
use crate::record::version::Head;
use crate::record::{self, Blob, Bucket, Version};
use crate::seal::{self, CustomerKey, Sealing, Wish};
use crate::service::{Caller, Records, Service};
use crate::{read, time, version};

/// How often a copy starts over when its source changes under it.
const TRIES: usize = 8;

/// The source of a copy or of a part that is copied, which the library gives different types.
macro_rules! origin {
    ($service:expr, $input:expr) => {{
        let condition = Reading {
            if_match: $input.copy_source_if_match.clone(),
            if_none_match: $input.copy_source_if_none_match.clone(),
            if_modified_since: $input.copy_source_if_modified_since.clone(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.clone(),
        };
        let customer = CustomerKey::of(
            $input.copy_source_sse_customer_algorithm.as_deref(),
            $input.copy_source_sse_customer_key.as_deref(),
            $input.copy_source_sse_customer_key_md5.as_deref(),
        )?;
        Origin::find($service, &$input.copy_source, &condition, customer.as_ref())?
    }};
}
pub(super) use origin;

pub async fn copy_object(service: &Service, mut req: Req<CopyObjectInput>) -> Answer<CopyObjectOutput> {
    let caller = Caller::of(&req)?.clone();
    version::check_key(&req.input.key)?;
    let condition = writing(&req.headers)?;
    let metadata = req.input.metadata.take();
    let terms = Terms::of(&req.headers, metadata)?;
    for _ in 0..TRIES {
        let source = origin!(service, req.input);
        source.check_size()?;
        let bucket = service.engine.read().map_err(Fault::from)?.bucket(&req.input.bucket)?;
        let sealing = wish(&req.input)?.sealing(&service.identity.root_key(), &bucket)?;
        source.check_itself(&req.input, &req.headers)?;
        let (owner, acl) = owned(service, &caller, &bucket, &req.headers).await?;
        let terms = source.terms(&req.input, terms.clone());
        let mut new = terms.version(owner, acl, None);
        let bytes = source.bytes(service, &req, &bucket, &sealing, &mut new).await?;
        let answer = answer(&source, &new);
        let change = Change {
            bucket: req.input.bucket.clone(),
            key: req.input.key.clone(),
            condition: condition.clone(),
            quota: service.identity.quota(&bucket.owner.id).await,
            event: "ObjectCreated:Copy",
        };
        if let Some(made) = source.store(service, bytes, new, change).await? {
            return Ok(S3Response::new(CopyObjectOutput {
                copy_object_result: answer.copy_object_result.map(|result| CopyObjectResult {
                    last_modified: Some(time::timestamp(made.head.modified)),
                    ..result
                }),
                expiration: made.expiration,
                version_id: made.version_id,
                ..answer
            }));
        }
    }
    let message = "The source keeps changing while it is copied. Please try again.";
    Err(Fault::new(S3ErrorCode::OperationAborted, message).into())
}

fn answer(source: &Origin, new: &Version) -> CopyObjectOutput {
    let sealed = seal::shown(new.seal.as_ref());
    let sums = checksum::shown(new.checksum.as_ref());
    CopyObjectOutput {
        copy_object_result: Some(CopyObjectResult {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
            e_tag: Some(ETag::Strong(new.head.etag.clone())),
            last_modified: None,
        }),
        copy_source_version_id: version_id(&source.bucket, &source.version.head),
        sse_customer_algorithm: sealed.customer_algorithm,
        sse_customer_key_md5: sealed.customer_md5,
        ssekms_key_id: sealed.kms_key,
        server_side_encryption: sealed.algorithm,
        ..CopyObjectOutput::default()
    }
}

/// The conditions on what the copy replaces, which the library does not read.
fn writing(headers: &HeaderMap) -> Result<Writing> {
    let read = |name: &str| {
        let value = headers.get(name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
        value.transpose().map_err(|_| {
            Fault::new(S3ErrorCode::InvalidArgument, format!("The header {name} cannot be read"))
        })
    };
    Ok(Writing { if_match: read("if-match")?, if_none_match: read("if-none-match")? })
}

fn wish(input: &CopyObjectInput) -> Result<Wish> {
    Ok(Wish {
        algorithm: input.server_side_encryption.clone(),
        kms_key: input.ssekms_key_id.clone(),
        customer: customer!(input)?,
    })
}

/// What is copied.
pub(super) struct Origin {
    pub bucket: Bucket,
    object: String,
    /// Whether the request names the version.
    named: bool,
    pub version: Version,
    pub key: Option<SealKey>,
}

/// The bytes of a copy.
enum Bytes {
    Shared,
    Written(Option<Written>, Claim),
}

impl Origin {
    pub(super) fn find(
        service: &Service,
        source: &CopySource,
        condition: &Reading,
        customer: Option<&CustomerKey>,
    ) -> Result<Self> {
        let (bucket, object, id) = parse(source)?;
        let view = service.engine.read()?;
        let bucket = view.bucket(bucket)?;
        let version = source_version(&view, &bucket, object, id)?;
        condition.require(&version.head)?;
        let key = seal::open(&service.identity.root_key(), version.seal.as_ref(), customer)?;
        Ok(Self { bucket, object: object.to_owned(), named: id.is_some(), version, key })
    }

    fn check_size(&self) -> Result<()> {
        if self.version.head.size > SIZE_MAX {
            return Err(Fault::new(
                S3ErrorCode::InvalidRequest,
                "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120",
            ));
        }
        Ok(())
    }

    /// A copy onto itself must change something.
    fn check_itself(&self, input: &CopyObjectInput, headers: &HeaderMap) -> Result<()> {
        let itself = self.bucket.name == input.bucket && self.object == input.key && !self.named;
        let class = input.storage_class.as_ref().map(StorageClass::as_str);
        let standard = StorageClass::STANDARD;
        let changes = [
            is_replace(input.metadata_directive.as_ref().map(MetadataDirective::as_str)),
            is_replace(input.tagging_directive.as_ref().map(TaggingDirective::as_str)),
            class
                .is_some_and(|class| class != self.version.head.storage_class.as_deref().unwrap_or(standard)),
            headers.contains_key("x-amz-website-redirect-location"),
            headers.contains_key("x-amz-server-side-encryption"),
            input.sse_customer_algorithm.is_some(),
            input.checksum_algorithm.is_some(),
        ];
        if itself && !changes.contains(&true) {
            return Err(Fault::new(
                S3ErrorCode::InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes.",
            ));
        }
        Ok(())
    }

    /// By the directives: what the request says, or what the source has.
    fn terms(&self, input: &CopyObjectInput, given: Terms) -> Terms {
        let mut terms = given;
        if !is_replace(input.metadata_directive.as_ref().map(MetadataDirective::as_str)) {
            let redirect = "x-amz-website-redirect-location";
            let mut kept = self.version.headers.clone();
            kept.retain(|(name, _)| name != redirect);
            kept.extend(terms.headers.into_iter().filter(|(name, _)| name == redirect));
            terms.headers = kept;
            terms.metadata = self.version.metadata.clone();
        }
        if !is_replace(input.tagging_directive.as_ref().map(TaggingDirective::as_str)) {
            terms.tags = self.version.tags.clone();
        }
        terms
    }

    /// Gets the bytes ready, and says in `new` what they are.
    async fn bytes(
        &self,
        service: &Service,
        req: &Req<CopyObjectInput>,
        bucket: &Bucket,
        sealing: &Sealing,
        new: &mut Version,
    ) -> Result<Bytes> {
        let source = &self.version;
        let algorithm = req.input.checksum_algorithm.as_ref().map(ChecksumAlgorithm::as_str);
        let algorithm = algorithm.map(Algorithm::parse).transpose()?;
        let kept = source.checksum.as_ref();
        let root = service.identity.root_key();
        if let Some(shared) = seal::shared(&root, source.seal.as_ref(), self.key.as_ref(), sealing) {
            new.seal = shared.record;
            new.head.size = source.head.size;
            new.head.etag.clone_from(&source.head.etag);
            new.multipart = source.multipart;
            new.blobs.clone_from(&source.blobs);
            let sum = match algorithm {
                Some(algorithm) if kept.is_none_or(|kept| kept.algorithm != algorithm.name()) => {
                    forget_part_checksums(&mut new.blobs);
                    Some(self.hash(service, algorithm).await?)
                }
                _ => kept.cloned(),
            };
            headers::set_checksum(new, sum);
            return Ok(Bytes::Shared);
        }
        let whole = 0..source.head.size;
        let stream = read::bytes(&service.engine, source, whole, self.key.as_ref()).await?;
        let algorithm = algorithm
            .or_else(|| kept.and_then(|kept| Algorithm::parse(&kept.algorithm).ok()))
            .unwrap_or(put::DEFAULT.algorithm);
        let source = Source {
            stream: stream.map_err(s3s::StdError::from),
            length: Some(source.head.size),
            md5: None,
            checksum: Asked { algorithm, ..put::DEFAULT },
            trailers: None,
            claim: Claim::of_object(service, bucket, &req.input.key).await?,
        };
        let taken = put::take(&service.engine, source, sealing.key.as_ref()).await?;
        new.seal.clone_from(&sealing.record);
        new.head.size = taken.size;
        new.head.etag = taken.etag();
        headers::set_checksum(new, Some(taken.checksum));
        Ok(Bytes::Written(taken.written, taken.claim))
    }

    async fn hash(&self, service: &Service, algorithm: Algorithm) -> Result<record::Checksum> {
        let whole = 0..self.version.head.size;
        let mut stream = read::bytes(&service.engine, &self.version, whole, self.key.as_ref()).await?;
        let mut hasher = Hasher::new(algorithm);
        while let Some(bytes) = stream.try_next().await? {
            hasher.update(&bytes);
        }
        Ok(record::Checksum { algorithm: algorithm.name().to_owned(), value: hasher.finish(), full: true })
    }

    /// Makes the copy; `None` if the source is no longer what was read and its bytes were to be shared.
    async fn store(
        &self,
        service: &Service,
        bytes: Bytes,
        new: Version,
        change: Change,
    ) -> Result<Option<Made>> {
        let (bucket, object, head) = (self.bucket.id, self.object.clone(), self.version.head.clone());
        let stored = service.engine.write(move |tx| {
            change.make(tx, new, |tx, new| match bytes {
                Bytes::Shared => hold(tx, bucket, &object, &head, &new.blobs),
                Bytes::Written(written, claim) => {
                    drop(claim);
                    if let Some(written) = written {
                        let id = tx.store(written)?;
                        new.blobs = vec![Blob { id, size: new.head.size, part: 1, checksum: None }];
                    }
                    Ok(true)
                }
            })
        });
        stored.await
    }
}

/// Holds the source's blobs once more, if it is still the version that was read.
fn hold(tx: &mut Tx<'_>, bucket: u32, object: &str, head: &Head, blobs: &[Blob]) -> Result<bool> {
    let found = version::lookup(tx, bucket, object, Some(&head.version_id()))?;
    if found.is_none_or(|found| found.head.seq != head.seq) {
        return Ok(false);
    }
    for blob in blobs {
        tx.hold(blob.id)?;
    }
    Ok(true)
}

/// A checksum of the whole by another algorithm says nothing of the parts.
fn forget_part_checksums(blobs: &mut [Blob]) {
    for blob in blobs {
        blob.checksum = None;
    }
}

fn is_replace(directive: Option<&str>) -> bool {
    directive == Some(MetadataDirective::REPLACE)
}

/// Bucket, key and version of a copy's source.
fn parse(source: &CopySource) -> Result<(&str, &str, Option<&str>)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => Ok((bucket, key, version_id.as_deref())),
        _ => Err(Fault::new(S3ErrorCode::NotImplemented, "Only objects of buckets can be copied.")),
    }
}

/// The version to copy. A delete marker has nothing to give.
fn source_version(
    records: &impl Records,
    bucket: &Bucket,
    object: &str,
    id: Option<&str>,
) -> Result<Version> {
    version::find(records, bucket.id, object, id).map_err(|fault| match fault {
        Fault::Absent { code: S3ErrorCode::MethodNotAllowed, .. } => Fault::new(
            S3ErrorCode::InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by version id.",
        ),
        other => other,
    })
}
