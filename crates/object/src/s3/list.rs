//! Listings of objects and versions.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Response};

use super::{Answer, Req, shape};
use crate::access::acl;
use crate::engine::View;
use crate::fault::{Fault, Result};
use crate::listing::{self, After, Entry, Listed, PAGE_MAX, Page, Query};
use crate::record::version::Head;
use crate::service::{Records, Service};
use crate::time::timestamp;

/// Some clients allow any order to save time; ours costs none.
const UNORDERED: &str = "allow-unordered=true";

pub async fn list_objects(service: &Service, req: Req<ListObjectsInput>) -> Answer<ListObjectsOutput> {
    if req.input.delimiter.is_some() && req.uri.query().is_some_and(|query| query.contains(UNORDERED)) {
        let message = "A listing without order cannot have a delimiter";
        return Err(Fault::new(S3ErrorCode::InvalidArgument, message).into());
    }
    let input = req.input;
    let text = Text::new(input.encoding_type.as_ref())?;
    let limit = limit(input.max_keys)?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let prefix = input.prefix.unwrap_or_default();
    let marker = input.marker.unwrap_or_default();
    let after = After::marker(&marker, &prefix, delimiter.as_deref());
    let query = Query { prefix, delimiter, after, limit };
    let (page, query) = page(service, &input.bucket, query, listing::objects).await?;
    let next = page.next().filter(|_| page.cut.is_some() || query.delimiter.is_some());
    let next_marker = next.map(|name| text.show(name));
    let is_truncated = Some(page.more);
    let (contents, common_prefixes) = text.split(page, |key, head| object(key, &head, true));
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(text.show_unread(&query.prefix)),
        marker: Some(text.show(&marker)),
        max_keys: Some(shown(limit)),
        is_truncated,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: query.delimiter.as_deref().map(|delimiter| text.show(delimiter)),
        next_marker,
        encoding_type: input.encoding_type,
        request_charged: None,
    }))
}

pub async fn list_objects_v2(service: &Service, req: Req<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
    let input = req.input;
    let text = Text::new(input.encoding_type.as_ref())?;
    let limit = limit(input.max_keys)?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let after = match (input.continuation_token.as_deref(), input.start_after.as_deref()) {
        (Some(token), _) if !token.is_empty() => resume(token)?,
        (_, Some(start)) if !start.is_empty() => After::Key(start.into()),
        _ => After::Nothing,
    };
    let query = Query { prefix: input.prefix.unwrap_or_default(), delimiter, after, limit };
    let (page, query) = page(service, &input.bucket, query, listing::objects).await?;
    let next_continuation_token = token(&page);
    let is_truncated = Some(page.more);
    let key_count = Some(shown(page.entries.len()));
    let owners = input.fetch_owner.unwrap_or_default();
    let (contents, common_prefixes) = text.split(page, |key, head| object(key, &head, owners));
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(text.show(&query.prefix)),
        max_keys: Some(shown(limit)),
        key_count,
        continuation_token: input.continuation_token,
        is_truncated,
        next_continuation_token,
        contents: Some(contents),
        common_prefixes: Some(common_prefixes),
        delimiter: query.delimiter.as_deref().map(|delimiter| text.show(delimiter)),
        encoding_type: input.encoding_type,
        start_after: input.start_after.as_deref().map(|start| text.show(start)),
        request_charged: None,
    }))
}

pub async fn list_object_versions(
    service: &Service,
    req: Req<ListObjectVersionsInput>,
) -> Answer<ListObjectVersionsOutput> {
    let input = req.input;
    let text = Text::new(input.encoding_type.as_ref())?;
    let limit = limit(input.max_keys)?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let prefix = input.prefix.unwrap_or_default();
    let marker = input.key_marker.unwrap_or_default();
    let within = input.version_id_marker.filter(|id| !id.is_empty());
    let after = match &within {
        Some(_) if marker.is_empty() => {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(Fault::new(S3ErrorCode::InvalidArgument, message).into());
        }
        Some(id) => After::Within(marker.clone(), id.clone()),
        None => After::marker(&marker, &prefix, delimiter.as_deref()),
    };
    let query = Query { prefix, delimiter, after, limit };
    let (page, query) = page(service, &input.bucket, query, listing::versions).await?;
    let next = page.entries.last().filter(|_| page.more);
    let next_key_marker = next.map(|entry| text.show(entry.name()));
    let next_version_id_marker = next.and_then(|entry| match entry {
        Entry::Item(_, listed) => Some(listed.head.version_id()),
        Entry::Prefix(_) => None,
    });
    let is_truncated = Some(page.more);
    let (all, common_prefixes) = text.split(page, |key, listed| (key, listed));
    let (markers, versions): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, listed)| listed.head.marker);
    Ok(S3Response::new(ListObjectVersionsOutput {
        common_prefixes: Some(common_prefixes),
        delete_markers: Some(markers.into_iter().map(|(key, listed)| marker_entry(key, &listed)).collect()),
        delimiter: query.delimiter.as_deref().map(|delimiter| text.show(delimiter)),
        encoding_type: input.encoding_type,
        is_truncated,
        key_marker: Some(text.show(&marker)),
        max_keys: Some(shown(limit)),
        name: Some(input.bucket),
        next_key_marker,
        next_version_id_marker,
        prefix: Some(text.show(&query.prefix)),
        request_charged: None,
        version_id_marker: Some(within.unwrap_or_default()),
        versions: Some(versions.into_iter().map(|(key, listed)| version_entry(key, &listed)).collect()),
    }))
}

/// Reads a page away from the threads that serve connections.
pub async fn page<T: Send + 'static>(
    service: &Service,
    bucket: &str,
    query: Query,
    read: fn(&View, u32, &Query) -> Result<Page<T>>,
) -> Result<(Page<T>, Query)> {
    let (engine, bucket) = (service.engine.clone(), bucket.to_owned());
    let read = move || {
        let view = engine.read()?;
        let bucket = view.bucket(&bucket)?;
        read(&view, bucket.id, &query).map(|page| (page, query))
    };
    blocking(read).await
}

/// Runs what reads long on a thread of its own.
pub async fn blocking<T: Send + 'static>(read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let task = tokio::task::spawn_blocking(read);
    task.await.map_err(|_| Fault::Engine(crate::engine::EngineError::Stopped))?
}

/// How many entries are asked for.
pub fn limit(asked: Option<i32>) -> Result<usize> {
    match asked.map(usize::try_from) {
        None => Ok(PAGE_MAX),
        Some(Ok(asked)) => Ok(asked.min(PAGE_MAX)),
        Some(Err(_)) => {
            Err(Fault::new(S3ErrorCode::InvalidArgument, "A listing cannot have fewer than 0 entries"))
        }
    }
}

pub fn shown(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// How names are written: as they are, or for XML that cannot hold every character.
#[derive(Clone, Copy)]
pub struct Text {
    url: bool,
}

impl Text {
    pub fn new(encoding: Option<&EncodingType>) -> Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self { url: false }),
            Some(EncodingType::URL) => Ok(Self { url: true }),
            Some(_) => {
                let message = "Invalid Encoding Method specified in Request";
                Err(Fault::new(S3ErrorCode::InvalidArgument, message))
            }
        }
    }

    /// A name that the usual clients forget to decode: as it is, if XML can hold it.
    fn show_unread(self, name: &str) -> String {
        let fits = |char: char| !char.is_control() || matches!(char, '\t' | '\n' | '\r');
        if name.chars().all(fits) { name.to_owned() } else { self.show(name) }
    }

    pub fn show(self, name: &str) -> String {
        if !self.url {
            return name.to_owned();
        }
        let mut shown = String::with_capacity(name.len());
        for byte in name.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                    shown.push(char::from(byte));
                }
                _ => shown.push_str(&format!("%{byte:02X}")),
            }
        }
        shown
    }

    /// The items of a page, and its common prefixes.
    pub fn split<T, U>(self, page: Page<T>, item: impl Fn(String, T) -> U) -> (Vec<U>, Vec<CommonPrefix>) {
        let (mut items, mut prefixes) = (Vec::with_capacity(page.entries.len()), Vec::new());
        for entry in page.entries {
            match entry {
                Entry::Item(name, value) => {
                    let name = if self.url { self.show(&name) } else { name };
                    items.push(item(name, value));
                }
                Entry::Prefix(name) => prefixes.push(CommonPrefix { prefix: Some(self.show(&name)) }),
            }
        }
        (items, prefixes)
    }
}

/// Where the next page begins, opaque to clients.
fn token<T>(page: &Page<T>) -> Option<String> {
    let by_prefix = page.cut.is_none() && matches!(page.entries.last(), Some(Entry::Prefix(_)));
    let kind = if by_prefix { "p" } else { "k" };
    page.next().map(|name| URL_SAFE_NO_PAD.encode(format!("{kind}{name}")))
}

fn resume(token: &str) -> Result<After> {
    let bad = || Fault::new(S3ErrorCode::InvalidArgument, "The continuation token provided is incorrect");
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?).map_err(|_| bad())?;
    match text.split_at_checked(1).ok_or_else(bad)? {
        ("k", name) => Ok(After::Key(name.into())),
        ("p", name) if !name.is_empty() => Ok(After::Prefix(name.into())),
        _ => Err(bad()),
    }
}

fn object(key: String, head: &Head, with_owner: bool) -> Object {
    let (checksum_algorithm, checksum_type) = checksum(head);
    Object {
        checksum_algorithm,
        checksum_type,
        e_tag: Some(shape::etag(&head.etag)),
        key: Some(key),
        last_modified: Some(timestamp(head.modified)),
        owner: with_owner.then(|| acl::owner(&head.owner)),
        restore_status: None,
        size: Some(shape::size(head.size)),
        storage_class: Some(ObjectStorageClass::from(class(head))),
    }
}

fn version_entry(key: String, listed: &Listed) -> ObjectVersion {
    let head = &listed.head;
    let (checksum_algorithm, checksum_type) = checksum(head);
    ObjectVersion {
        checksum_algorithm,
        checksum_type,
        e_tag: Some(shape::etag(&head.etag)),
        is_latest: Some(listed.latest),
        key: Some(key),
        last_modified: Some(timestamp(head.modified)),
        owner: Some(acl::owner(&head.owner)),
        restore_status: None,
        size: Some(shape::size(head.size)),
        storage_class: Some(ObjectVersionStorageClass::from(class(head))),
        version_id: Some(head.version_id()),
    }
}

fn marker_entry(key: String, listed: &Listed) -> DeleteMarkerEntry {
    DeleteMarkerEntry {
        is_latest: Some(listed.latest),
        key: Some(key),
        last_modified: Some(timestamp(listed.head.modified)),
        owner: Some(acl::owner(&listed.head.owner)),
        version_id: Some(listed.head.version_id()),
    }
}

fn class(head: &Head) -> String {
    head.storage_class.clone().unwrap_or_else(|| ObjectStorageClass::STANDARD.to_owned())
}

fn checksum(head: &Head) -> (Option<ChecksumAlgorithmList>, Option<ChecksumType>) {
    let Some((algorithm, full)) = &head.checksum else { return (None, None) };
    let kind = if *full { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE };
    (Some(vec![ChecksumAlgorithm::from(algorithm.clone())]), Some(ChecksumType::from_static(kind)))
}
