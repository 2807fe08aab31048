//! Compares what the store shows with what the clients were told.

use std::collections::BTreeMap;

use base64::Engine as _;
use futures::{StreamExt, stream};
use http::{Method, StatusCode};
use object::client::{Ask, Client};

use crate::client::{Actor, Lost, ask, places};
use crate::model::{Cache, KEPT, Observed, PLAIN, Piece, Place, Seen, fits, hash};

/// Questions under way at once.
const AT_ONCE: usize = 8;

/// As S3 shows it, without quotes.
pub fn etag(piece: Piece) -> String {
    static KNOWN: Cache<Piece, String> = Cache::new();
    KNOWN.get(&piece, || {
        let digest = object::checksum::md5_base64(&piece.bytes());
        hex::encode(base64::engine::general_purpose::STANDARD.decode(digest).unwrap())
    })
}

/// The text of the first element of this name.
pub fn field<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// The texts of all elements of these names, in order, with their names.
fn elements<'a>(xml: &'a str, names: &[&'static str]) -> Vec<(&'static str, &'a str)> {
    let mut found = Vec::new();
    for name in names {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        for (at, _) in xml.match_indices(&open) {
            let rest = &xml[at + open.len()..];
            found.push((at, *name, rest.split_once(&close).expect("elements end").0));
        }
    }
    found.sort_by_key(|(at, ..)| *at);
    found.into_iter().map(|(_, name, text)| (name, text)).collect()
}

async fn xml(client: &Client, request: Ask<'_>) -> String {
    match ask(client, request).await {
        Ok((_, body)) => String::from_utf8(body).unwrap(),
        Err(Lost) => panic!("the store does not answer"),
    }
}

/// Asks page after page; `next` are the elements whose texts begin the next page, and their parameters.
async fn pages(
    client: &Client,
    bucket: &'static str,
    what: (&str, &str),
    next: [(&str, &str); 2],
) -> Vec<String> {
    let mut pages = Vec::new();
    let mut after: Vec<(String, String)> = Vec::new();
    loop {
        let mut request = Ask::new(Method::GET, bucket, "").query(what.0, what.1);
        request.query.append(&mut after);
        let page = xml(client, request).await;
        let more = field(&page, "IsTruncated") == Some("true");
        for (element, parameter) in next {
            after.extend(field(&page, element).map(|text| (parameter.to_owned(), text.to_owned())));
        }
        pages.push(page);
        if !more {
            return pages;
        }
    }
}

fn place_of(bucket: &'static str, xml: &str) -> Place {
    (bucket, field(xml, "Key").expect("entries have keys").to_owned())
}

async fn content(client: &Client, place: &Place, id: &str) -> Seen {
    let request = Ask::new(Method::GET, place.0, &place.1).query("versionId", id);
    let Ok((headers, body)) = ask(client, request).await else { panic!("{place:?} {id} cannot be read") };
    let tag = match headers.get("x-amz-tagging-count") {
        None => None,
        Some(_) => {
            let request =
                Ask::new(Method::GET, place.0, &place.1).query("versionId", id).query("tagging", "");
            field(&xml(client, request).await, "Value").map(|tag| tag.parse().unwrap())
        }
    };
    Seen { size: body.len(), hash: hash(&body), tag }
}

/// Everything in the bucket, read byte by byte.
async fn observe(client: &Client, bucket: &'static str, all: &mut Observed) {
    let next = [("NextKeyMarker", "key-marker"), ("NextVersionIdMarker", "version-id-marker")];
    let mut entries = Vec::new();
    for page in pages(client, bucket, ("versions", ""), next).await {
        for (kind, text) in elements(&page, &["Version", "DeleteMarker"]) {
            let id = field(text, "VersionId").unwrap().to_owned();
            let size = (kind == "Version").then(|| field(text, "Size").unwrap().parse::<usize>().unwrap());
            let latest = field(text, "IsLatest") == Some("true");
            entries.push((place_of(bucket, text), id, latest, size));
        }
    }
    // Markers come apart from versions; ids are in the order of their making.
    entries.sort_by(|a: &(Place, String, bool, Option<usize>), b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    for (at, entry) in entries.iter().enumerate() {
        let last = entries.get(at + 1).is_none_or(|next| next.0 != entry.0);
        assert_eq!(entry.2, last, "which version of {:?} is the newest", entry.0);
    }
    let mut read = stream::iter(entries)
        .map(|(place, id, _, size)| async move {
            let Some(size) = size else { return (place, id, None) };
            let seen = content(client, &place, &id).await;
            assert_eq!(seen.size, size, "{place:?} {id}: the listing says another size");
            (place, id, Some(seen))
        })
        .buffered(AT_ONCE);
    while let Some((place, id, seen)) = read.next().await {
        all.versions.entry(place).or_default().push((id, seen));
    }
    let next = [("NextKeyMarker", "key-marker"), ("NextUploadIdMarker", "upload-id-marker")];
    for page in pages(client, bucket, ("uploads", ""), next).await {
        for (_, text) in elements(&page, &["Upload"]) {
            let (place, id) = (place_of(bucket, text), field(text, "UploadId").unwrap().to_owned());
            let shown = xml(client, Ask::new(Method::GET, bucket, &place.1).query("uploadId", &id)).await;
            let part = |text: &str| {
                let etag = field(text, "ETag").unwrap().replace("&quot;", "").replace('"', "");
                let number = field(text, "PartNumber").unwrap().parse().unwrap();
                (number, (field(text, "Size").unwrap().parse().unwrap(), etag))
            };
            let parts = elements(&shown, &["Part"]).into_iter().map(|(_, text)| part(text)).collect();
            all.uploads.insert(id, (place, parts));
        }
    }
}

fn mine(all: &Observed, number: usize) -> Observed {
    let prefix = format!("c{number}/");
    let own = |place: &Place| place.1.starts_with(&prefix);
    Observed {
        versions: all
            .versions
            .iter()
            .filter(|(place, _)| own(place))
            .map(|(p, v)| (p.clone(), v.clone()))
            .collect(),
        uploads: all
            .uploads
            .iter()
            .filter(|(_, (place, _))| own(place))
            .map(|(i, u)| (i.clone(), u.clone()))
            .collect(),
    }
}

/// Everything that was acknowledged is there and nothing else; an operation without an answer is there wholly or not
/// at all. Answers how many of those are there.
pub async fn check(client: &Client, rest: &api::Client, actors: &mut [Actor]) -> usize {
    let mut all = Observed::default();
    for bucket in [PLAIN, KEPT] {
        observe(client, bucket, &mut all).await;
    }
    let mut done = 0;
    for actor in actors.iter_mut() {
        let shown = mine(&all, actor.number);
        let before = fits(actor.state.clone(), &shown, etag);
        let op = actor.pending.take();
        let after = op.as_ref().map(|op| {
            let mut after = actor.state.clone();
            after.apply(op, None);
            fits(after, &shown, etag)
        });
        done += usize::from(before.is_err());
        actor.state = match (before, after) {
            (Ok(state), _) | (_, Some(Ok(state))) => state,
            (Err(why), None) => panic!("what was acknowledged is not there: {why}"),
            (Err(why), Some(Err(also))) => {
                panic!("{op:?} is there in part: without it {why}; with it {also}")
            }
        };
        newest(client, actor).await;
    }
    for bucket in [PLAIN, KEPT] {
        listing(client, bucket, &all).await;
        usage(rest, bucket, &all).await;
    }
    done
}

/// A key without version id is its newest version, and what was deleted is not found.
async fn newest(client: &Client, actor: &Actor) {
    let state = &actor.state;
    let looks = stream::iter(places(actor.number)).map(|place| async move {
        let head = client.send(Ask::new(Method::HEAD, place.0, &place.1)).await.unwrap();
        let length = head.headers().get("content-length").map(|length| length.to_str().unwrap().to_owned());
        match state.newest(&place) {
            Some(content) => assert_eq!(length, Some(content.seen().size.to_string()), "{place:?}"),
            None => assert_eq!(head.status(), StatusCode::NOT_FOUND, "{place:?}"),
        }
    });
    looks.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// The plain listing shows the newest versions.
async fn listing(client: &Client, bucket: &'static str, all: &Observed) {
    let next = [("NextContinuationToken", "continuation-token"), ("", "")];
    let mut listed = BTreeMap::new();
    for page in pages(client, bucket, ("list-type", "2"), next).await {
        for (_, text) in elements(&page, &["Contents"]) {
            listed.insert(place_of(bucket, text), field(text, "Size").unwrap().parse().unwrap());
        }
    }
    let newest = all.versions.iter().filter(|((of, _), _)| *of == bucket);
    let newest = newest.filter_map(|(place, versions)| {
        let (_, seen) = versions.last()?;
        Some((place.clone(), seen.as_ref()?.size))
    });
    assert_eq!(listed, newest.collect::<BTreeMap<Place, usize>>(), "the listing of {bucket}");
}

/// What the cloud says of a bucket is what a recount finds.
async fn usage(rest: &api::Client, bucket: &str, all: &Observed) {
    let shown = rest.bucket_get(bucket).await.unwrap();
    let versions: Vec<_> =
        all.versions.iter().filter(|((of, _), _)| *of == bucket).map(|(_, of)| of).collect();
    let sizes =
        versions.iter().flat_map(|of| of.iter()).filter_map(|(_, seen)| Some(seen.as_ref()?.size as u64));
    let parts =
        all.uploads.values().filter(|((of, _), _)| *of == bucket).flat_map(|(_, parts)| parts.values());
    let counted = (
        versions.iter().filter(|of| of.last().is_some_and(|(_, seen)| seen.is_some())).count() as u64,
        versions.iter().map(|of| of.len() as u64).sum::<u64>(),
        sizes.sum::<u64>(),
        parts.map(|(size, _)| *size as u64).sum::<u64>(),
    );
    assert_eq!(
        (shown.objects, shown.versions, shown.bytes.0, shown.upload_bytes.0),
        counted,
        "usage of {bucket}"
    );
}
