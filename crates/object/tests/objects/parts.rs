//! Uploads in parts and writes on conditions against a map.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use object::upload::PART_MIN;
use proptest::prelude::*;
use s3s::dto::*;
use s3s::{Body, S3, S3Error};

use crate::bed::{BUCKET, Bed, request};

const KEYS: u8 = 3;

/// What a write asks of the object that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    /// There is none.
    Absent,
    /// It is the one that is there.
    Same,
    /// It is the one that was written first.
    First,
}

#[derive(Debug, Clone)]
enum Step {
    Put {
        key: u8,
        fill: u8,
        condition: Condition,
    },
    Begin {
        key: u8,
    },
    /// `large` parts may be followed by others.
    Part {
        upload: usize,
        number: u16,
        large: bool,
        fill: u8,
    },
    /// Names the parts of these numbers that are there; `stale` gives the first one another ETag.
    Complete {
        upload: usize,
        numbers: Vec<u16>,
        condition: Condition,
        stale: bool,
    },
    Abort {
        upload: usize,
    },
    Delete {
        key: u8,
    },
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        3 => Just(Condition::None),
        2 => Just(Condition::Absent),
        2 => Just(Condition::Same),
        1 => Just(Condition::First),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let (upload, number) = (|| 0_usize..4, || 1_u16..4);
    let numbers = prop::collection::btree_set(number(), 1..4).prop_map(|set| set.into_iter().collect());
    prop_oneof![
        3 => (key(), any::<u8>(), condition()).prop_map(|(key, fill, condition)| Step::Put { key, fill, condition }),
        2 => key().prop_map(|key| Step::Begin { key }),
        6 => (upload(), number(), prop::bool::weighted(0.4), any::<u8>())
            .prop_map(|(upload, number, large, fill)| Step::Part { upload, number, large, fill }),
        4 => (upload(), numbers, condition(), prop::bool::weighted(0.1))
            .prop_map(|(upload, numbers, condition, stale)| Step::Complete { upload, numbers, condition, stale }),
        1 => upload().prop_map(|upload| Step::Abort { upload }),
        2 => key().prop_map(|key| Step::Delete { key }),
    ]
}

/// An object as it must come back.
#[derive(Debug, Clone)]
struct Kept {
    body: Bytes,
    etag: String,
    /// The upload that it came of, and the numbers of its parts.
    of: Option<(usize, Vec<u16>)>,
}

/// Parts by number.
type Parts = BTreeMap<u16, Bytes>;

struct Open {
    id: String,
    key: u8,
    parts: Parts,
}

#[derive(Default)]
struct Model {
    objects: HashMap<u8, Kept>,
    firsts: HashMap<u8, String>,
    /// Those that have ended stay: asking for them must be refused.
    uploads: Vec<(Open, bool)>,
}

fn name(key: u8) -> String {
    format!("key {key}")
}

fn md5(bytes: &[u8]) -> String {
    hex::encode(Md5::digest(bytes))
}

fn code<T>(answer: Result<T, S3Error>) -> String {
    answer.err().map_or_else(|| "ok".into(), |error| error.code().as_str().to_owned())
}

impl Model {
    fn put(&mut self, key: u8, kept: Kept) {
        self.firsts.entry(key).or_insert_with(|| kept.etag.clone());
        self.objects.insert(key, kept);
    }

    /// `If-Match`, `If-None-Match`, and what they lead to.
    fn ask(
        &self,
        key: u8,
        condition: Condition,
    ) -> (Option<ETagCondition>, Option<ETagCondition>, &'static str) {
        let there = self.objects.get(&key).map(|kept| kept.etag.as_str());
        let parse = |etag: &str| Some(format!("\"{etag}\"").parse().unwrap());
        let matching = |etag: &str| match there {
            None => "NoSuchKey",
            Some(there) if there == etag => "ok",
            Some(_) => "PreconditionFailed",
        };
        match condition {
            Condition::None => (None, None, "ok"),
            Condition::Absent => {
                let code = if there.is_some() { "PreconditionFailed" } else { "ok" };
                (None, Some(ETagCondition::Any), code)
            }
            Condition::Same => {
                let etag = there.unwrap_or("0123456789abcdef0123456789abcdef");
                (parse(etag), None, matching(etag))
            }
            Condition::First => {
                let etag = self.firsts.get(&key).map_or("0123456789abcdef0123456789abcdef", String::as_str);
                (parse(etag), None, matching(etag))
            }
        }
    }

    /// What becomes of a completion with these parts: the object, or the code of the error.
    fn whole(parts: &Parts, numbers: &[u16], stale: bool) -> Result<Kept, &'static str> {
        let (mut body, mut sums) = (Vec::new(), Md5::new());
        for (index, number) in numbers.iter().enumerate() {
            let part = parts.get(number).filter(|_| !(stale && index == 0)).ok_or("InvalidPart")?;
            if (part.len() as u64) < PART_MIN && index + 1 < numbers.len() {
                return Err("EntityTooSmall");
            }
            body.extend_from_slice(part);
            sums.update(Md5::digest(part));
        }
        let etag = format!("{}-{}", hex::encode(sums.finalize()), numbers.len());
        Ok(Kept { body: body.into(), etag, of: None })
    }
}

async fn put(bed: &Bed, model: &mut Model, key: u8, fill: u8, condition: Condition) {
    let body = Bytes::from(vec![fill; 100 + usize::from(fill)]);
    let (if_match, if_none_match, expected) = model.ask(key, condition);
    let input = PutObjectInput {
        bucket: BUCKET.into(),
        key: name(key),
        body: Some(Body::from(body.clone()).into()),
        if_match,
        if_none_match,
        ..PutObjectInput::default()
    };
    let told = code(bed.service().put_object(request(Method::PUT, input, &[])).await);
    assert_eq!(told, expected, "{condition:?} of {key}");
    if told == "ok" {
        let etag = md5(&body);
        model.put(key, Kept { body, etag, of: None });
    }
}

async fn begin(bed: &Bed, model: &mut Model, key: u8) {
    let mut input = CreateMultipartUploadInput::builder();
    input.set_bucket(BUCKET.into());
    input.set_key(name(key));
    let begun =
        bed.service().create_multipart_upload(request(Method::POST, input.build().unwrap(), &[])).await;
    let id = begun.unwrap().output.upload_id.unwrap();
    model.uploads.push((Open { id, key, parts: Parts::new() }, true));
}

async fn part(bed: &Bed, model: &mut Model, upload: usize, number: u16, large: bool, fill: u8) {
    let Some((open, alive)) = model.uploads.get_mut(upload) else { return };
    let size = if large { usize::try_from(PART_MIN).unwrap() } else { 1 + usize::from(fill) };
    let body = Bytes::from(vec![fill; size]);
    let mut input = UploadPartInput::builder();
    input.set_bucket(BUCKET.into());
    input.set_key(name(open.key));
    input.set_upload_id(open.id.clone());
    input.set_part_number(number.into());
    input.set_body(Some(Body::from(body.clone()).into()));
    let told = bed.service().upload_part(request(Method::PUT, input.build().unwrap(), &[])).await;
    if *alive {
        assert_eq!(told.unwrap().output.e_tag.unwrap().value(), md5(&body));
        open.parts.insert(number, body);
    } else {
        assert_eq!(code(told), "NoSuchUpload");
    }
}

async fn complete(
    bed: &Bed,
    model: &mut Model,
    upload: usize,
    numbers: &[u16],
    condition: Condition,
    stale: bool,
) {
    let Some((open, alive)) = model.uploads.get(upload) else { return };
    let numbers: Vec<u16> =
        numbers.iter().copied().filter(|number| open.parts.contains_key(number)).collect();
    if numbers.is_empty() {
        return;
    }
    let key = open.key;
    let (if_match, if_none_match, allowed) = model.ask(key, condition);
    let whole = Model::whole(&open.parts, &numbers, stale);
    let of = Some((upload, numbers.clone()));
    let expected = match (&whole, *alive) {
        // Asked for again it is what it was, as long as nothing else has the name.
        (Ok(_), false) if model.objects.get(&key).is_some_and(|kept| kept.of == of) => "ok",
        (_, false) => "NoSuchUpload",
        (_, true) if allowed != "ok" => allowed,
        (Err(code), true) => code,
        (Ok(_), true) => "ok",
    };
    let named = numbers.iter().enumerate().map(|(index, number)| {
        let etag = if stale && index == 0 { md5(b"another") } else { md5(&open.parts[number]) };
        CompletedPart {
            part_number: Some(i32::from(*number)),
            e_tag: Some(ETag::Strong(etag)),
            ..CompletedPart::default()
        }
    });
    let mut input = CompleteMultipartUploadInput::builder();
    input.set_bucket(BUCKET.into());
    input.set_key(name(key));
    input.set_upload_id(open.id.clone());
    input.set_multipart_upload(Some(CompletedMultipartUpload { parts: Some(named.collect()) }));
    input.set_if_match(if_match);
    input.set_if_none_match(if_none_match);
    let input = input.build().unwrap();
    let told = bed.service().complete_multipart_upload(request(Method::POST, input, &[])).await;
    assert_eq!(code(told), expected, "{numbers:?} {condition:?}");
    if let (Ok(whole), true, "ok") = (whole, *alive, expected) {
        model.put(key, Kept { of, ..whole });
        model.uploads[upload].1 = false;
    }
}

async fn abort(bed: &Bed, model: &mut Model, upload: usize) {
    let Some((open, alive)) = model.uploads.get_mut(upload) else { return };
    let mut input = AbortMultipartUploadInput::builder();
    input.set_bucket(BUCKET.into());
    input.set_key(name(open.key));
    input.set_upload_id(open.id.clone());
    let told =
        bed.service().abort_multipart_upload(request(Method::DELETE, input.build().unwrap(), &[])).await;
    assert_eq!(code(told), if *alive { "ok" } else { "NoSuchUpload" });
    *alive = false;
}

/// Objects, and what is counted of them and of open uploads.
async fn check(bed: &Bed, model: &Model) {
    use object::service::Records as _;
    for key in 0..KEYS {
        let input = GetObjectInput { key: name(key), ..GetObjectInput::default() };
        let found = bed.get(input).await;
        match model.objects.get(&key) {
            None => assert_eq!(code(found), "NoSuchKey"),
            Some(kept) => {
                let (output, bytes) = found.unwrap();
                assert!(bytes == kept.body, "{} bytes instead of {}", bytes.len(), kept.body.len());
                assert_eq!(output.e_tag.unwrap().into_value(), kept.etag);
            }
        }
    }
    let view = bed.service().engine.read().unwrap();
    let bucket = view.bucket(BUCKET).unwrap();
    let usage = object::version::usage(&view, bucket.id).unwrap();
    let lying = model.uploads.iter().filter(|(_, alive)| *alive).flat_map(|(open, _)| open.parts.values());
    assert_eq!(usage.objects, model.objects.len() as u64);
    assert_eq!(usage.bytes, model.objects.values().map(|kept| kept.body.len() as u64).sum::<u64>());
    assert_eq!(usage.upload_bytes, lying.map(|part| part.len() as u64).sum::<u64>());
}

async fn run(steps: Vec<Step>) {
    let bed = Bed::new().await;
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Put { key, fill, condition } => put(&bed, &mut model, key, fill, condition).await,
            Step::Begin { key } => begin(&bed, &mut model, key).await,
            Step::Part { upload, number, large, fill } => {
                part(&bed, &mut model, upload, number, large, fill).await;
            }
            Step::Complete { upload, numbers, condition, stale } => {
                complete(&bed, &mut model, upload, &numbers, condition, stale).await;
            }
            Step::Abort { upload } => abort(&bed, &mut model, upload).await,
            Step::Delete { key } => {
                bed.delete(&name(key)).await;
                model.objects.remove(&key);
            }
        }
    }
    check(&bed, &model).await;
    bed.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn parts_and_conditions_do_what_the_model_says(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
