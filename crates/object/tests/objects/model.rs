//! Puts, copies, deletes and reads against a map.

use std::collections::HashMap;

use http::Method;
use proptest::prelude::*;
use s3s::S3;
use s3s::dto::*;

use crate::bed::{BUCKET, Bed, CUSTOMER, customer, request};

/// Sizes around what is packed and where chunks end.
const SIZES: [usize; 8] = [0, 1, 1000, 65_535, 65_536, 65_537, 131_072, 200_000];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Open,
    Store,
    Customer(u8),
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: u8, size: usize, fill: u8, lock: Lock },
    Copy { from: u8, to: u8, lock: Lock },
    Delete { key: u8 },
    Read { key: u8, range: Option<(usize, usize)> },
}

fn lock() -> impl Strategy<Value = Lock> {
    prop_oneof![Just(Lock::Open), Just(Lock::Store), (1_u8..3).prop_map(Lock::Customer)]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0_u8..4;
    let size = prop::sample::select(&SIZES[..]);
    let range = prop::option::of((0_usize..200_100, 0_usize..140_000));
    prop_oneof![
        3 => (key(), size, any::<u8>(), lock())
            .prop_map(|(key, size, fill, lock)| Step::Put { key, size, fill, lock }),
        2 => (key(), key(), lock()).prop_map(|(from, to, lock)| Step::Copy { from, to, lock }),
        1 => key().prop_map(|key| Step::Delete { key }),
        4 => (key(), range).prop_map(|(key, range)| Step::Read { key, range }),
    ]
}

fn bytes(size: usize, fill: u8) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 ^ fill).collect()
}

fn name(key: u8) -> String {
    format!("key {key}")
}

type Kept = HashMap<u8, (Vec<u8>, Lock)>;

async fn put(bed: &Bed, kept: &mut Kept, key: u8, body: Vec<u8>, lock: Lock) {
    let values;
    let headers: Vec<(&'static str, &str)> = match lock {
        Lock::Open => vec![],
        Lock::Store => vec![("x-amz-server-side-encryption", "AES256")],
        Lock::Customer(byte) => {
            values = customer(byte);
            CUSTOMER.into_iter().zip(values.iter().map(String::as_str)).collect()
        }
    };
    let answer = bed.put(&name(key), &body, &headers).await.unwrap();
    let sum = object::checksum::of(object::checksum::Algorithm::Crc64Nvme, &body);
    assert_eq!(answer.checksum_crc64nvme.as_deref(), Some(sum.as_str()));
    kept.insert(key, (body, lock));
}

async fn copy(bed: &Bed, kept: &mut Kept, from: u8, to: u8, lock: Lock) {
    let mut input = CopyObjectInput::builder();
    input.set_bucket(BUCKET.into());
    input.set_key(name(to));
    input.set_copy_source(CopySource::Bucket {
        bucket: BUCKET.into(),
        key: name(from).into(),
        version_id: None,
    });
    input.set_metadata_directive(Some(MetadataDirective::from_static(MetadataDirective::REPLACE)));
    if let Some((_, Lock::Customer(byte))) = kept.get(&from) {
        let [algorithm, key, md5] = customer(*byte);
        input.set_copy_source_sse_customer_algorithm(Some(algorithm));
        input.set_copy_source_sse_customer_key(Some(key));
        input.set_copy_source_sse_customer_key_md5(Some(md5));
    }
    match lock {
        Lock::Open => {}
        Lock::Store => {
            let algorithm = ServerSideEncryption::from_static(ServerSideEncryption::AES256);
            input.set_server_side_encryption(Some(algorithm));
        }
        Lock::Customer(byte) => {
            let [algorithm, key, md5] = customer(byte);
            input.set_sse_customer_algorithm(Some(algorithm));
            input.set_sse_customer_key(Some(key));
            input.set_sse_customer_key_md5(Some(md5));
        }
    }
    let answer = bed.service().copy_object(request(Method::PUT, input.build().unwrap(), &[])).await;
    match kept.get(&from).map(|(body, _)| body.clone()) {
        None => assert_eq!(answer.unwrap_err().code().as_str(), "NoSuchKey"),
        Some(body) => {
            answer.unwrap();
            kept.insert(to, (body, lock));
        }
    }
}

async fn read(bed: &Bed, kept: &Kept, key: u8, range: Option<(usize, usize)>) {
    let mut input = GetObjectInput { key: name(key), ..GetObjectInput::default() };
    input.range =
        range.map(|(first, length)| Range::Int { first: first as u64, last: Some((first + length) as u64) });
    if let Some((_, Lock::Customer(byte))) = kept.get(&key) {
        let [algorithm, key, md5] = customer(*byte);
        input.sse_customer_algorithm = Some(algorithm);
        input.sse_customer_key = Some(key);
        input.sse_customer_key_md5 = Some(md5);
    }
    let answer = bed.get(input).await;
    match (kept.get(&key), range) {
        (None, _) => assert_eq!(answer.unwrap_err().code().as_str(), "NoSuchKey"),
        (Some((body, _)), Some((first, _))) if first >= body.len() => {
            assert_eq!(answer.unwrap_err().code().as_str(), "InvalidRange");
        }
        (Some((body, _)), range) => {
            let (output, bytes) = answer.unwrap();
            let wanted = match range {
                None => &body[..],
                Some((first, length)) => &body[first..(first + length + 1).min(body.len())],
            };
            assert!(bytes == wanted, "{} bytes instead of {}", bytes.len(), wanted.len());
            assert_eq!(output.content_length, Some(wanted.len() as i64));
            let tag = output.e_tag.unwrap().into_value();
            assert_eq!(tag, hex::encode(<md5::Md5 as md5::Digest>::digest(body)));
        }
    }
}

async fn run(steps: Vec<Step>) {
    let bed = Bed::new().await;
    let mut kept = Kept::new();
    for step in steps {
        match step {
            Step::Put { key, size, fill, lock } => {
                put(&bed, &mut kept, key, bytes(size, fill), lock).await;
            }
            Step::Copy { from, to, lock } => copy(&bed, &mut kept, from, to, lock).await,
            Step::Delete { key } => {
                bed.delete(&name(key)).await;
                kept.remove(&key);
            }
            Step::Read { key, range } => read(&bed, &kept, key, range).await,
        }
    }
    for key in 0..4 {
        read(&bed, &kept, key, None).await;
    }
    check_usage(&bed, &kept);
    bed.stop().await;
}

/// What is counted is what is there, however often its bytes are shared.
fn check_usage(bed: &Bed, kept: &Kept) {
    use object::service::Records as _;
    let view = bed.service().engine.read().unwrap();
    let bucket = view.bucket(BUCKET).unwrap();
    let usage = object::version::usage(&view, bucket.id).unwrap();
    assert_eq!(usage.objects, kept.len() as u64);
    assert_eq!(usage.bytes, kept.values().map(|(body, _)| body.len() as u64).sum::<u64>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_put(steps in prop::collection::vec(step(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
