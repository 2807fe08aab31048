//! A client: chooses operations by chance and sends them until nobody answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, Method};
use object::client::{Ask, Client};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;

use crate::model::{Content, KEPT, Op, PLAIN, Piece, Place, State};

/// Keys of one client in each bucket.
const KEYS: u32 = 8;
/// Uploads that one client leaves open.
const UPLOADS_MAX: usize = 2;
/// The least that S3 takes as a part that is not the last.
const PART: usize = 5 << 20;

/// The answer did not come, or not wholly.
pub struct Lost;

/// One client's keys, what it was told of them, and its last operation if that was not answered.
#[derive(Debug, Clone)]
pub struct Actor {
    pub number: usize,
    pub state: State,
    pub pending: Option<Op>,
}

/// All keys that a client uses.
pub fn places(number: usize) -> impl Iterator<Item = Place> {
    let names = (0..KEYS).map(move |key| format!("c{number}/k{key}"));
    names.flat_map(|name| [(PLAIN, name.clone()), (KEPT, name)])
}

impl Actor {
    pub fn new(number: usize) -> Self {
        Self { number, state: State::default(), pending: None }
    }

    fn choose(&self, chance: &mut StdRng) -> Op {
        let place = places(self.number).choose(chance).expect("there are keys");
        let put = |chance: &mut StdRng, most: usize| {
            let piece = Piece { seed: chance.random(), size: chance.random_range(0..most) };
            let tag = chance.random_bool(0.2).then(|| chance.random());
            Op::Put(place.clone(), Content { pieces: vec![piece], tag })
        };
        let written = places(self.number).filter(|place| self.state.newest(place).is_some()).choose(chance);
        let versions = self.state.versions.iter().filter(|((bucket, _), _)| *bucket == KEPT);
        let versions =
            versions.flat_map(|(place, versions)| versions.iter().map(move |version| (place, version)));
        let version =
            versions.filter_map(|(place, version)| Some((place, version.id.clone()?))).choose(chance);
        match (chance.random_range(0..100), written, version) {
            (0..12, Some(from), _) if from != place => Op::Copy(from, place),
            (12..20, Some(place), _) => Op::Tag(place, chance.random()),
            (20..28, _, Some((place, id))) => Op::DeleteVersion(place.clone(), id),
            (28..44, ..) => Op::Delete(place),
            (44..50, ..) => self.upload(chance).unwrap_or(Op::Begin(place)),
            (50..55, ..) => put(chance, 900_000),
            (55..72, ..) => put(chance, 70_000),
            _ => put(chance, 6_000),
        }
    }

    /// What comes next for one of the open uploads.
    fn upload(&self, chance: &mut StdRng) -> Option<Op> {
        if self.state.uploads.len() < UPLOADS_MAX && chance.random_bool(0.4) {
            return None;
        }
        let (id, upload) = self.state.uploads.iter().choose(chance)?;
        let piece = |chance: &mut StdRng, size| Piece { seed: chance.random(), size };
        Some(match (upload.parts.len(), chance.random_range(0..10)) {
            (_, 0) => Op::Abort(id.clone()),
            (0, _) => Op::Part(id.clone(), 1, piece(chance, PART)),
            (1, 1..6) => {
                let size = chance.random_range(1..200_000);
                Op::Part(id.clone(), 2, piece(chance, size))
            }
            _ => Op::Complete(id.clone()),
        })
    }

    /// Goes on until an answer does not come.
    pub async fn run(&mut self, client: &Client, mut chance: StdRng, answered: &AtomicUsize) {
        loop {
            let op = self.choose(&mut chance);
            match perform(client, &self.state, &op).await {
                Ok(id) => self.state.apply(&op, id),
                Err(Lost) => {
                    self.pending = Some(op);
                    return;
                }
            }
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The headers and the body of a good answer. A refusal ends the test: all that is asked is right.
pub async fn ask(client: &Client, ask: Ask<'_>) -> Result<(HeaderMap, Vec<u8>), Lost> {
    let what = format!("{} /{}/{} {:?}", ask.method, ask.bucket, ask.key, ask.query);
    let answer = client.send(ask).await.map_err(|_| Lost)?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.bytes().await.map_err(|_| Lost)?.to_vec();
    let said = || String::from_utf8_lossy(&body).into_owned();
    assert!(status.is_success(), "{what}: {status} {}", said());
    assert!(!body.starts_with(b"<?xml") || !said().contains("<Error>"), "{what}: {}", said());
    Ok((headers, body))
}

fn tagging(tag: u64) -> String {
    format!("<Tagging><TagSet><Tag><Key>t</Key><Value>{tag}</Value></Tag></TagSet></Tagging>")
}

/// Answers the id of the version or of the upload that was made.
async fn perform(client: &Client, state: &State, op: &Op) -> Result<Option<String>, Lost> {
    let new = |method, place: &'static str, key| Ask::new(method, place, key);
    let request = match op {
        Op::Put((bucket, key), content) => {
            let put = new(Method::PUT, bucket, key).body(content.bytes());
            match content.tag {
                Some(tag) => put.header("x-amz-tagging", format!("t={tag}")),
                None => put,
            }
        }
        Op::Copy((from, name), (bucket, key)) => {
            new(Method::PUT, bucket, key).header("x-amz-copy-source", format!("/{from}/{name}"))
        }
        Op::Tag((bucket, key), tag) => new(Method::PUT, bucket, key).query("tagging", "").body(tagging(*tag)),
        Op::Delete((bucket, key)) => new(Method::DELETE, bucket, key),
        Op::DeleteVersion((bucket, key), id) => new(Method::DELETE, bucket, key).query("versionId", id),
        Op::Begin((bucket, key)) => new(Method::POST, bucket, key).query("uploads", ""),
        Op::Part(id, number, piece) => {
            let (bucket, key) = &state.uploads[id].place;
            let part = new(Method::PUT, bucket, key).query("uploadId", id).body(piece.bytes());
            part.query("partNumber", number.to_string())
        }
        Op::Complete(id) => {
            let upload = &state.uploads[id];
            let part = |(number, piece): (&u16, &Piece)| {
                format!(
                    "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>",
                    crate::check::etag(*piece)
                )
            };
            let parts: String = upload.parts.iter().map(part).collect();
            let text = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
            new(Method::POST, upload.place.0, &upload.place.1).query("uploadId", id).body(text)
        }
        Op::Abort(id) => {
            let (bucket, key) = &state.uploads[id].place;
            new(Method::DELETE, bucket, key).query("uploadId", id)
        }
    };
    let (headers, body) = ask(client, request).await?;
    if let Op::Begin(_) = op {
        return Ok(crate::check::field(&String::from_utf8_lossy(&body), "UploadId").map(str::to_owned));
    }
    Ok(headers.get("x-amz-version-id").map(|id| id.to_str().expect("ids are plain").to_owned()))
}
