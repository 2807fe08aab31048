//! Delivery: the lines of a file become objects, each of them once.

use std::collections::HashMap;

use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use jiff::Timestamp;
use s3s::{S3ErrorCode, StdError};
use serde::{Deserialize, Serialize};

use super::spool::{self, Batch, Spool};
use super::target::Target;
use crate::claim::Claim;
use crate::engine::{EngineError, Tx};
use crate::fault::{Fault, Result};
use crate::headers::Terms;
use crate::put::{self, Source};
use crate::record::key::Space;
use crate::record::{Blob, Bucket};
use crate::seal::Wish;
use crate::service::{Records, Service};
use crate::version;

/// What is delivered: files in the order of their numbers, and the targets of a file as they first come in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub file: u64,
    /// Targets of this file that have their object.
    targets: u32,
}

/// Where it is kept.
fn place() -> Vec<u8> {
    [&[Space::Queue as u8], b"log".as_slice()].concat()
}

pub fn progress(service: &Service) -> Result<Progress> {
    let Some(bytes) = service.engine.read()?.record(&place())? else { return Ok(Progress::default()) };
    let read = postcard::from_bytes(&bytes);
    Ok(read.map_err(|_| EngineError::Index("the progress of access logs cannot be read".into()))?)
}

/// The lines of one target.
struct Parcel {
    to: Target,
    text: String,
    lines: u64,
}

/// Delivers a file and removes it. An error means that it is worth another try, which goes on where this one ended.
pub async fn file(service: &Service, spool: &Spool, file: &Batch) -> Result<()> {
    let done = progress(service)?;
    // A loss of power may bring back one that was delivered and removed.
    if file.number >= done.file {
        let skip = if file.number == done.file { done.targets } else { 0 };
        let bytes = tokio::fs::read(&file.path).await.map_err(EngineError::Io)?;
        let (parcels, mut lost) = parcels(&bytes);
        for (parcel, targets) in parcels.into_iter().zip(1..).skip(skip as usize) {
            let (bucket, lines) = (parcel.to.bucket.clone(), parcel.lines);
            match write(service, file, parcel, Progress { file: file.number, targets }).await {
                Ok(()) => {}
                Err(Fault::Engine(error)) if passes(&error) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(bucket, %error, lines, "access log lines are lost");
                    lost += lines;
                }
            }
        }
        service.metrics.log_lost(lost);
    }
    Ok(spool.remove(file).map_err(EngineError::Io)?)
}

/// Whether an error may be over at the next try.
fn passes(error: &EngineError) -> bool {
    matches!(error, EngineError::Io(_) | EngineError::Away(_) | EngineError::Behind | EngineError::Stopped)
}

/// What goes to each target, and how many lines cannot be read.
fn parcels(bytes: &[u8]) -> (Vec<Parcel>, u64) {
    let (records, torn) = spool::records(bytes);
    let mut parcels: Vec<Parcel> = Vec::new();
    let mut places: HashMap<Target, usize> = HashMap::new();
    for record in records {
        let lines = record.lines();
        let place = *places.entry(record.to).or_insert_with_key(|to| {
            parcels.push(Parcel { to: to.clone(), text: String::new(), lines: 0 });
            parcels.len() - 1
        });
        let parcel = &mut parcels[place];
        parcel.text.push_str(&record.text);
        parcel.lines += lines;
    }
    (parcels, torn)
}

/// Writes an object of the target bucket's owner, and how far the delivery is, in one change.
async fn write(service: &Service, file: &Batch, parcel: Parcel, now: Progress) -> Result<()> {
    let Parcel { to, text, .. } = parcel;
    let bucket = bucket(&service.engine.read()?, &to)?;
    let sealing = Wish::default().sealing(&service.identity.root_key(), &bucket)?;
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let body = stream::iter([Ok::<_, StdError>(Bytes::from(text))]);
    let claim = Claim::of(service, &bucket).await;
    let source = Source::of(body, &HeaderMap::new(), Some(length), None, claim)?;
    let taken = put::take(&service.engine, source, sealing.key.as_ref()).await?;
    let terms = Terms { headers: vec![("content-type".into(), "text/plain".into())], ..Terms::default() };
    let mut new = terms.version(bucket.owner, None, sealing.record);
    new.head.size = taken.size;
    new.head.etag = taken.etag();
    let quota = service.identity.quota(&new.head.owner.id).await;
    let object = to.object(file, Timestamp::now());
    let progress = postcard::to_stdvec(&now).map_err(|error| EngineError::Index(error.to_string()))?;
    let write = service.engine.write(move |tx: &mut Tx<'_>| -> Result<()> {
        drop(taken.claim);
        let bucket = self::bucket(tx, &to)?;
        if let Some(written) = taken.written {
            new.blobs = vec![Blob { id: tx.store(written)?, size: new.head.size, part: 1, checksum: None }];
        }
        version::insert(tx, &bucket, &object, new, quota)?;
        tx.put(place(), progress);
        Ok(())
    });
    write.await
}

/// The bucket that let the lines in, if it is still there.
fn bucket(records: &impl Records, to: &Target) -> Result<Bucket> {
    let bucket = records.bucket(&to.bucket)?;
    if bucket.id != to.id {
        return Err(Fault::new(S3ErrorCode::NoSuchBucket, "the bucket was deleted and made anew"));
    }
    Ok(bucket)
}
