//! Parsers of the store that take a text alone.

use object::access::policy::{For, Policy};
use object::identity::Account;
use object::record::{Part, Upload, Version};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use s3s::dto;
use s3s::xml::{Deserialize, Deserializer};

use crate::mutate::mutate;

const POLICY: &str = r#"{"Version":"2012-10-17","Id":"p","Statement":[{"Sid":"s","Effect":"Deny","NotPrincipal":{"AWS":["arn:aws:iam::1:user/u","*"],"CanonicalUser":"c"},"NotAction":["s3:Get*","s3:PutObject"],"NotResource":"arn:aws:s3:::b/${aws:username}/*","Condition":{"StringNotLikeIfExists":{"s3:prefix":["a*","?b"]},"NotIpAddress":{"aws:SourceIp":["10.0.0.0/8","::1/128"]},"NumericGreaterThanEquals":{"s3:max-keys":"10"},"DateLessThan":{"aws:CurrentTime":"2030-01-01T00:00:00Z"},"ForAnyValue:StringEquals":{"s3:ExistingObjectTag/a":"b"},"BinaryEquals":{"k":"YQ=="},"ArnLike":{"aws:SourceArn":"arn:*"}}},{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}]}"#;

/// Documents of the corpus that are XML.
fn documents() -> Vec<Vec<u8>> {
    let corpus = include_str!("corpus.http").split("\n%%\n");
    let bodies = corpus.filter_map(|text| text.split_once("\n\n")).map(|(_, body)| body);
    bodies.filter(|body| body.starts_with('<')).map(|body| body.as_bytes().to_vec()).collect()
}

fn read<T: for<'x> Deserialize<'x>>(bytes: &[u8]) {
    let mut reader = Deserializer::new(bytes);
    let _ = T::deserialize(&mut reader).and_then(|_| reader.expect_eof());
}

fn xml(bytes: &[u8]) {
    read::<dto::BucketLifecycleConfiguration>(bytes);
    read::<dto::CORSConfiguration>(bytes);
    read::<dto::AccessControlPolicy>(bytes);
    read::<dto::Delete>(bytes);
    read::<dto::CompletedMultipartUpload>(bytes);
    read::<dto::Tagging>(bytes);
    read::<dto::WebsiteConfiguration>(bytes);
    read::<dto::NotificationConfiguration>(bytes);
    read::<dto::ObjectLockConfiguration>(bytes);
    read::<dto::ServerSideEncryptionConfiguration>(bytes);
}

fn policy(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    for of in [For::Bucket("b"), For::Session] {
        if let Ok(policy) = Policy::parse(text, of) {
            policy.is_public();
        }
    }
}

/// Whatever stands in a record, reading it is an error and no more.
fn record(bytes: &[u8]) {
    let _ = (Version::decode(bytes), Upload::decode(bytes), Part::decode(bytes));
}

/// A parser, and what it is given.
pub type Input = (fn(&[u8]), Vec<u8>);

/// One spoiled input for each parser.
pub fn inputs(chance: &mut StdRng, pool: &[Vec<u8>]) -> [Input; 3] {
    let document = pool.choose(chance).cloned().unwrap_or_default();
    let kept = Version::empty(Account { id: "a".into(), name: "b".into() });
    [
        (policy, mutate(chance, POLICY.as_bytes(), pool)),
        (xml, mutate(chance, &document, pool)),
        (record, mutate(chance, &kept.encode(), pool)),
    ]
}

pub fn pool() -> Vec<Vec<u8>> {
    let mut pool = documents();
    pool.push(POLICY.as_bytes().to_vec());
    pool
}
