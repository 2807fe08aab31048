//! What the clients were told, and what an operation without an answer may have done.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Mutex;

/// The bucket and the key.
pub type Place = (&'static str, String);

/// One bucket keeps a single version of each key, the other all of them.
pub const PLAIN: &str = "crash-plain";
pub const KEPT: &str = "crash-kept";

/// Bytes that can be made again: a seed and a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    pub seed: u64,
    pub size: usize,
}

impl Piece {
    pub fn bytes(self) -> Vec<u8> {
        let mut state = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes = Vec::with_capacity(self.size + 8);
        while bytes.len() < self.size {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(self.size);
        bytes
    }
}

/// What an object is to its readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub size: usize,
    pub hash: u64,
    pub tag: Option<u64>,
}

pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub pieces: Vec<Piece>,
    pub tag: Option<u64>,
}

impl Content {
    pub fn bytes(&self) -> Vec<u8> {
        self.pieces.iter().map(|piece| piece.bytes()).collect::<Vec<_>>().concat()
    }

    pub fn seen(&self) -> Seen {
        static KNOWN: Cache<Vec<Piece>, u64> = Cache::new();
        let size = self.pieces.iter().map(|piece| piece.size).sum();
        Seen { size, hash: KNOWN.get(&self.pieces, || hash(&self.bytes())), tag: self.tag }
    }
}

/// Digests of large contents take long where nothing is optimised, so each is made once.
pub struct Cache<K, V>(Mutex<BTreeMap<K, V>>);

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    pub fn get(&self, key: &K, make: impl FnOnce() -> V) -> V {
        self.0.lock().unwrap().entry(key.clone()).or_insert_with(make).clone()
    }
}

/// A version or, without content, a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Not known if its answer did not come.
    pub id: Option<String>,
    pub content: Option<Content>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    pub place: Place,
    pub parts: BTreeMap<u16, Piece>,
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub enum Op {
    Put(Place, Content),
    /// The source is the newest version of another key.
    Copy(Place, Place),
    Tag(Place, u64),
    Delete(Place),
    DeleteVersion(Place, String),
    Begin(Place),
    Part(String, u16, Piece),
    Complete(String),
    Abort(String),
}

/// What one client's keys hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Oldest first. Keys without versions are not in it.
    pub versions: BTreeMap<Place, Vec<Version>>,
    pub uploads: BTreeMap<String, Upload>,
}

impl State {
    pub fn newest(&self, place: &Place) -> Option<&Content> {
        self.versions.get(place)?.last()?.content.as_ref()
    }

    /// What it is after `op`; `id` is the version or the upload that the answer names.
    pub fn apply(&mut self, op: &Op, id: Option<String>) {
        match op {
            Op::Put(place, content) => self.add(place, Some(content.clone()), id),
            Op::Copy(from, to) => {
                let content = self.newest(from).cloned();
                self.add(to, content, id);
            }
            Op::Delete(place) if place.0 == PLAIN => drop(self.versions.remove(place)),
            Op::Delete(place) => self.add(place, None, id),
            Op::Tag(place, tag) => {
                let newest = self.versions.get_mut(place).and_then(|versions| versions.last_mut());
                if let Some(content) = newest.and_then(|version| version.content.as_mut()) {
                    content.tag = Some(*tag);
                }
            }
            Op::DeleteVersion(place, gone) => {
                let versions = self.versions.entry(place.clone()).or_default();
                versions.retain(|version| version.id.as_ref() != Some(gone));
                if versions.is_empty() {
                    self.versions.remove(place);
                }
            }
            Op::Begin(place) => {
                let upload = Upload { place: place.clone(), parts: BTreeMap::new() };
                self.uploads.insert(id.unwrap_or_default(), upload);
            }
            Op::Part(upload, number, piece) => {
                let upload = self.uploads.get_mut(upload).expect("only open uploads get parts");
                upload.parts.insert(*number, *piece);
            }
            Op::Complete(upload) => {
                let upload = self.uploads.remove(upload).expect("only open uploads are completed");
                let pieces = upload.parts.into_values().collect();
                self.add(&upload.place, Some(Content { pieces, tag: None }), id);
            }
            Op::Abort(upload) => drop(self.uploads.remove(upload)),
        }
    }

    fn add(&mut self, place: &Place, content: Option<Content>, id: Option<String>) {
        let versions = self.versions.entry(place.clone()).or_default();
        let id = if place.0 == PLAIN { Some("null".to_owned()) } else { id };
        if place.0 == PLAIN {
            versions.clear();
        }
        versions.push(Version { id, content });
    }
}

/// Parts of an upload with their sizes and ETags.
pub type Parts = BTreeMap<u16, (usize, String)>;

/// What the store shows of one client's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Ids and contents, oldest first.
    pub versions: BTreeMap<Place, Vec<(String, Option<Seen>)>>,
    pub uploads: BTreeMap<String, (Place, Parts)>,
}

/// The state with the ids that were not known filled in, or how the store shows another one.
pub fn fits(mut state: State, observed: &Observed, etag: impl Fn(Piece) -> String) -> Result<State, String> {
    if let Some(begun) = state.uploads.remove("") {
        // The one upload whose id was never told.
        let id = observed.uploads.keys().find(|id| !state.uploads.contains_key(*id));
        state.uploads.insert(id.ok_or("no upload was begun")?.clone(), begun);
    }
    let uploads = state.uploads.iter().map(|(id, upload)| {
        let parts = upload.parts.iter().map(|(number, piece)| (*number, (piece.size, etag(*piece))));
        (id.clone(), (upload.place.clone(), parts.collect()))
    });
    same(&uploads.collect(), &observed.uploads)?;
    let places: Vec<&Place> = state.versions.keys().collect();
    same(&places, &observed.versions.keys().collect())?;
    for (versions, shown) in state.versions.values_mut().zip(observed.versions.values()) {
        for (version, (id, _)) in versions.iter_mut().zip(shown) {
            version.id.get_or_insert_with(|| id.clone());
        }
    }
    let seen = |version: &Version| {
        (version.id.clone().unwrap_or_default(), version.content.as_ref().map(Content::seen))
    };
    for (place, versions) in &state.versions {
        let versions: Vec<_> = versions.iter().map(seen).collect();
        same(&versions, &observed.versions[place]).map_err(|why| format!("{place:?}: {why}"))?;
    }
    Ok(state)
}

fn same<T: PartialEq + std::fmt::Debug>(wanted: &T, shown: &T) -> Result<(), String> {
    if wanted == shown { Ok(()) } else { Err(format!("{shown:?} instead of {wanted:?}")) }
}
