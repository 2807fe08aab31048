//! GetObjectAttributes: what is known of an object without its bytes.

use s3s::S3Response;
use s3s::dto::*;

use super::object::{count, refuse_encryption, signed, version_id};
use super::shape::customer;
use super::{Answer, Req};
use crate::fault::Fault;
use crate::http::amend::PlainETag;
use crate::record::Version;
use crate::seal;
use crate::service::{Records, Service};
use crate::{checksum, time, version};

/// The most parts in one answer.
const PARTS_MAX: usize = 1000;

pub async fn get_object_attributes(
    service: &Service,
    req: Req<GetObjectAttributesInput>,
) -> Answer<GetObjectAttributesOutput> {
    let input = &req.input;
    refuse_encryption(&req.headers)?;
    let customer = customer!(input)?;
    let view = service.engine.read().map_err(Fault::from)?;
    let bucket = view.bucket(&input.bucket)?;
    let found = version::find(&view, bucket.id, &input.key, input.version_id.as_deref())?;
    seal::open(&service.identity.root_key(), found.seal.as_ref(), customer.as_ref())?;

    // The library does not split a list that stands in one header.
    let wanted: Vec<&str> =
        input.object_attributes.iter().flat_map(|list| list.as_str().split(',').map(str::trim)).collect();
    let wants = |name: &str| wanted.contains(&name);
    let class = found.head.storage_class.as_deref().unwrap_or(StorageClass::STANDARD);
    let mut response = S3Response::new(GetObjectAttributesOutput {
        checksum: (wants(ObjectAttributes::CHECKSUM) && found.checksum.is_some())
            .then(|| checksum::shown(found.checksum.as_ref())),
        e_tag: wants(ObjectAttributes::ETAG).then(|| ETag::Strong(found.head.etag.clone())),
        last_modified: Some(time::timestamp(found.head.modified)),
        object_parts: (wants(ObjectAttributes::OBJECT_PARTS) && found.multipart)
            .then(|| parts(&found, input.part_number_marker, input.max_parts)),
        object_size: wants(ObjectAttributes::OBJECT_SIZE).then(|| signed(found.head.size)),
        storage_class: wants(ObjectAttributes::STORAGE_CLASS).then(|| StorageClass::from(class.to_owned())),
        version_id: version_id(&bucket, &found.head),
        ..GetObjectAttributesOutput::default()
    });
    response.extensions.insert(PlainETag);
    Ok(response)
}

fn parts(version: &Version, marker: Option<i32>, max: Option<i32>) -> GetObjectAttributesParts {
    let after = marker.unwrap_or_default();
    let max = max.and_then(|max| usize::try_from(max).ok()).unwrap_or(PARTS_MAX).min(PARTS_MAX);
    let mut rest = version.blobs.iter().filter(|blob| i32::from(blob.part) > after);
    let parts: Vec<ObjectPart> = rest
        .by_ref()
        .take(max)
        .map(|blob| {
            let sums = checksum::of_part(version.checksum.as_ref(), blob.checksum.as_deref());
            ObjectPart {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                part_number: Some(i32::from(blob.part)),
                size: Some(signed(blob.size)),
            }
        })
        .collect();
    let last = parts.last().and_then(|part| part.part_number);
    GetObjectAttributesParts {
        is_truncated: Some(rest.next().is_some()),
        max_parts: Some(count(max)),
        next_part_number_marker: last.or(Some(after)),
        part_number_marker: Some(after),
        parts: Some(parts),
        total_parts_count: Some(count(version.blobs.len())),
    }
}
