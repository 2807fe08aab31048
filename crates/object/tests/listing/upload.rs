//! Uploads in parts: what is kept, what is refused, what is counted.

use bytes::Bytes;
use md5::{Digest, Md5};
use object::checksum::{self, Algorithm};
use object::listing::{self, After, Entry, Query};
use object::record::{Bucket, Checksum, Hold, Part, Upload, Version};
use object::upload::{self, Named, PART_MIN, Whole};
use object::{Fault, version};
use s3s::S3Error;

use crate::Bed;

/// A store with one open upload.
struct World {
    bed: Bed,
    bucket: Bucket,
    upload: Upload,
}

impl World {
    fn new(checksum: Option<(&str, bool)>) -> Self {
        let bed = Bed::open();
        let bucket = bed.bucket();
        let new = Upload {
            id: String::new(),
            key: "key".into(),
            started: 0,
            initiator: bucket.owner.clone(),
            owner: bucket.owner.clone(),
            storage_class: None,
            headers: vec![("content-type".into(), "text/plain".into())],
            metadata: Vec::new(),
            tags: Vec::new(),
            acl: None,
            seal: None,
            retention: None,
            hold: Hold::Unset,
            checksum: checksum.map(|(name, full)| (name.to_owned(), full)),
        };
        let target = bucket.clone();
        let change = bed.engine.write(move |tx| upload::begin(tx, &target, new));
        let upload = bed.runtime.block_on(change).unwrap();
        Self { bed, bucket, upload }
    }

    /// Keeps a part of so many equal bytes and says how the client will name it.
    fn part(&self, number: u16, byte: u8, size: u64) -> Named {
        let bytes = Bytes::from(vec![byte; usize::try_from(size).unwrap()]);
        let algorithm = self.upload.checksum.as_ref().map_or("CRC64NVME", |(name, _)| name);
        let algorithm = Algorithm::parse(algorithm).unwrap();
        let value = checksum::of(algorithm, &bytes);
        let part = Part {
            number,
            blob: None,
            size,
            modified: 0,
            etag: hex::encode(Md5::digest(&bytes)),
            checksum: Some(Checksum { algorithm: algorithm.name().into(), value: value.clone(), full: true }),
        };
        let named =
            Named { number: number.into(), etag: part.etag.clone(), checksum: Some((algorithm, value)) };
        let (bucket, upload, engine) = (self.bucket.clone(), self.upload.clone(), self.bed.engine.clone());
        let kept = async move {
            let mut blob = engine.blob(Some(size), None);
            blob.write(bytes).await?;
            let written = blob.finish().await?;
            engine.write(move |tx| upload::keep(tx, &bucket, &upload, part, written, None)).await
        };
        let kept: Result<Part, Fault> = self.bed.runtime.block_on(kept);
        kept.unwrap();
        named
    }

    fn complete(&self, whole: Whole) -> Result<Version, String> {
        let (bucket, id) = (self.bucket.clone(), self.upload.id.clone());
        let change = self.bed.engine.write(move |tx| {
            let open = upload::find(tx, bucket.id, "key", &id)?;
            upload::complete(tx, &bucket, open, &whole, None)
        });
        self.bed.runtime.block_on(change).map_err(code)
    }

    fn usage(&self) -> (u64, u64, u64) {
        let usage = version::usage(&self.bed.engine.read().unwrap(), self.bucket.id).unwrap();
        (usage.objects, usage.bytes, usage.upload_bytes)
    }
}

fn code(fault: Fault) -> String {
    S3Error::from(fault).code().as_str().to_owned()
}

fn whole(parts: &[&Named]) -> Whole {
    Whole { parts: parts.iter().map(|part| (*part).clone()).collect(), ..Whole::default() }
}

#[test]
fn parts_become_an_object() {
    let world = World::new(None);
    world.part(1, b'x', 10);
    let first = world.part(1, b'a', PART_MIN);
    let third = world.part(3, b'b', 7);
    world.part(9, b'c', 100);
    assert_eq!(world.usage(), (0, 0, PART_MIN + 107), "a part that is sent again counts once");
    let stale = Named { etag: third.etag.clone(), ..first.clone() };
    let whole_of = Whole { size: Some(PART_MIN + 7), ..whole(&[&stale, &first, &third]) };
    let version = world.complete(whole_of).unwrap();
    assert_eq!(world.usage(), (1, PART_MIN + 7, 0), "parts that are not named are gone");
    let mut md5 = Md5::new();
    for part in [&first, &third] {
        md5.update(hex::decode(&part.etag).unwrap());
    }
    assert_eq!(version.head.etag, format!("{}-2", hex::encode(md5.finalize())));
    assert_eq!(
        version.blobs.iter().map(|blob| (blob.part, blob.size)).collect::<Vec<_>>(),
        [(1, PART_MIN), (3, 7)]
    );
    let mut all = vec![b'a'; usize::try_from(PART_MIN).unwrap()];
    all.extend([b'b'; 7]);
    let checksum = version.checksum.clone().unwrap();
    assert!(checksum.full);
    assert_eq!(checksum.value, checksum::of(Algorithm::Crc64Nvme, &all));
    assert_eq!(world.complete(whole(&[&first, &third])), Err("NoSuchUpload".into()));
    let view = world.bed.engine.read().unwrap();
    let kept = version::find(&view, world.bucket.id, "key", None).unwrap();
    assert_eq!((&kept.upload, &kept.headers), (&Some(world.upload.id.clone()), &world.upload.headers));
    let made = |id: &str, parts: &[&Named]| upload::made(&kept, id, &whole(parts)).map_err(code);
    let id = world.upload.id.as_str();
    assert_eq!(made(id, &[&first, &third]), Ok(true));
    assert_eq!(made(id, &[&stale, &first, &third]), Ok(true), "the same list");
    let renumbered = Named { number: 2, ..third.clone() };
    for other in [&[&first][..], &[&first, &stale], &[&first, &renumbered]] {
        assert_eq!(made(id, other), Ok(false), "{other:?}");
    }
    assert_eq!(made("another", &[&first, &third]), Ok(false));
    assert_eq!(made(id, &[&first, &first, &third]), Err("InvalidPartOrder".into()));
    assert_eq!(upload::parts(&view, world.bucket.id, &world.upload.id, 0, 10).unwrap(), []);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let world = World::new(Some(("SHA256", false)));
    let first = world.part(1, b'a', PART_MIN);
    let second = world.part(2, b'b', PART_MIN - 1);
    let third = world.part(3, b'c', 1);
    let refused = |whole: Whole, code: &str| assert_eq!(world.complete(whole), Err(code.to_owned()));
    let named = |number, etag: &str| Named { number, etag: etag.into(), checksum: None };
    refused(whole(&[&second, &first]), "InvalidPartOrder");
    refused(whole(&[&first, &second, &first]), "InvalidPartOrder");
    refused(whole(&[&first, &first]), "InvalidPartOrder");
    refused(whole(&[&first, &named(1, &second.etag)]), "InvalidPart");
    refused(whole(&[&first, &second, &third]), "EntityTooSmall");
    refused(whole(&[&named(4, &first.etag)]), "InvalidPart");
    refused(whole(&[&named(100_000, &first.etag)]), "InvalidPart");
    refused(whole(&[&named(1, &second.etag)]), "InvalidPart");
    let other = Named { checksum: second.checksum.clone(), ..first.clone() };
    refused(whole(&[&other]), "InvalidPart");
    refused(Whole { size: Some(1), ..whole(&[&first]) }, "InvalidRequest");
    refused(Whole { full: Some(true), ..whole(&[&first]) }, "InvalidRequest");
    let bad = Some((Algorithm::Sha256, "bad".into()));
    refused(Whole { checksum: bad, ..whole(&[&first, &second]) }, "BadDigest");
    assert_eq!(world.usage(), (0, 0, 2 * PART_MIN));
    let value = checksum::composite(
        Algorithm::Sha256,
        [first.checksum.as_ref().unwrap().1.as_str(), second.checksum.as_ref().unwrap().1.as_str()],
    );
    let checksum = Some((Algorithm::Sha256, value.clone().unwrap()));
    let version = world.complete(Whole { checksum, full: Some(false), ..whole(&[&first, &second]) }).unwrap();
    assert_eq!(version.checksum.map(|checksum| checksum.value), value);
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    let world = World::new(None);
    world.part(1, b'a', 1000);
    let (bucket, upload) = (world.bucket.clone(), world.upload.clone());
    let abort = world.bed.engine.write(move |tx| upload::abort(tx, &bucket, &upload));
    world.bed.runtime.block_on(abort).unwrap();
    assert_eq!(world.usage(), (0, 0, 0));
    let view = world.bed.engine.read().unwrap();
    let found = upload::find(&view, world.bucket.id, "key", &world.upload.id);
    assert_eq!(found.map_err(code), Err("NoSuchUpload".into()));
}

#[test]
fn open_uploads_are_listed_oldest_first() {
    let world = World::new(None);
    let mut expected = vec![world.upload.id.clone()];
    for key in ["key", "a/1", "a/2"] {
        let (bucket, new) = (world.bucket.clone(), Upload { key: key.into(), ..world.upload.clone() });
        // Ids begin with the time.
        std::thread::sleep(std::time::Duration::from_millis(2));
        let open = world.bed.engine.write(move |tx| upload::begin(tx, &bucket, new));
        let id = world.bed.runtime.block_on(open).unwrap().id;
        if key == "key" {
            expected.push(id);
        }
    }
    let view = world.bed.engine.read().unwrap();
    let mut query = Query { delimiter: Some("/".into()), limit: 2, ..Query::default() };
    let page = listing::uploads(&view, world.bucket.id, &query).unwrap();
    assert!(page.more);
    assert_eq!(page.entries[0], Entry::Prefix("a/".into()));
    let Entry::Item(key, first) = &page.entries[1] else { panic!("not an upload") };
    assert_eq!((key.as_str(), &first.id), ("key", &expected[0]));
    query.after = After::Within(key.clone(), first.id.clone());
    let page = listing::uploads(&view, world.bucket.id, &query).unwrap();
    assert!(!page.more);
    assert!(
        matches!(&page.entries[..], [Entry::Item(key, upload)] if key == "key" && upload.id == expected[1])
    );
}
