//! MD5 and a checksum of a body, beside the disk's work.
//!
//! Small bodies are hashed on the spot. Pieces of larger ones wait in a hall, where a worker takes those of several bodies
//! at once; see [`md5lanes`]. Nobody holds a thread while he waits for bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use md5lanes::{LANES, Lane, Md5};
use tokio::sync::oneshot;

use crate::checksum::{Algorithm, Hasher};
use crate::engine::EngineError;

/// Bodies up to this size are hashed on the spot; handing them over would cost more.
const INLINE_MAX: u64 = 128 * 1024;
/// Bytes of a body that are handed over at once.
const GATHER: usize = 256 * 1024;

pub enum Hashes {
    Inline(Box<Pair>),
    Beside { gathered: Vec<Bytes>, waiting: usize, pair: Place },
}

/// Where the sums of a body are.
pub enum Place {
    Here(Box<Pair>),
    Hall(oneshot::Receiver<Box<Pair>>),
}

pub struct Pair {
    md5: Md5,
    checksum: Hasher,
}

impl Hashes {
    /// `length` is that of the body, if it is known.
    pub fn start(algorithm: Algorithm, length: Option<u64>) -> Self {
        let pair = Box::new(Pair { md5: Md5::new(), checksum: Hasher::new(algorithm) });
        if length.is_some_and(|length| length <= INLINE_MAX) {
            return Self::Inline(pair);
        }
        Self::Beside { gathered: Vec::new(), waiting: 0, pair: Place::Here(pair) }
    }

    /// Waits while the hashes are behind.
    pub async fn update(&mut self, piece: Bytes) -> Result<(), EngineError> {
        match self {
            Self::Inline(pair) => pair.update(&piece),
            Self::Beside { gathered, waiting, pair } => {
                *waiting += piece.len();
                gathered.push(piece);
                if *waiting >= GATHER {
                    let pieces = std::mem::take(gathered);
                    *waiting = 0;
                    pair.hand_over(pieces).await?;
                }
            }
        }
        Ok(())
    }

    /// The MD5 sum, and the checksum in base64.
    pub async fn finish(self) -> Result<([u8; 16], String), EngineError> {
        let pair = match self {
            Self::Inline(pair) => pair,
            Self::Beside { gathered, mut pair, .. } => {
                if !gathered.is_empty() {
                    pair.hand_over(gathered).await?;
                }
                pair.fetch().await?
            }
        };
        Ok((pair.md5.finish(), pair.checksum.finish()))
    }
}

impl Place {
    async fn fetch(self) -> Result<Box<Pair>, EngineError> {
        match self {
            Self::Here(pair) => Ok(pair),
            Self::Hall(back) => back.await.map_err(|_| EngineError::Stopped),
        }
    }

    async fn hand_over(&mut self, pieces: Vec<Bytes>) -> Result<(), EngineError> {
        let (give, back) = oneshot::channel();
        let pair = std::mem::replace(self, Self::Hall(back)).fetch().await?;
        HALL.enter(Guest { pair, pieces, give })
    }
}

impl Pair {
    fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.checksum.update(bytes);
    }
}

static HALL: LazyLock<Hall> = LazyLock::new(|| Hall {
    inside: Mutex::default(),
    bell: Condvar::new(),
    // Half of the processors: fewer workers find fuller rows.
    workers_max: std::thread::available_parallelism().map_or(1, |all| usize::from(all).div_ceil(2)),
});

/// Where bytes wait to be hashed. It holds at most one batch of each body.
struct Hall {
    inside: Mutex<Inside>,
    bell: Condvar,
    workers_max: usize,
}

#[derive(Default)]
struct Inside {
    guests: VecDeque<Guest>,
    /// Threads that were started; they stay.
    workers: usize,
    idle: usize,
}

struct Guest {
    pair: Box<Pair>,
    pieces: Vec<Bytes>,
    give: oneshot::Sender<Box<Pair>>,
}

impl Guest {
    fn lane(&mut self) -> Lane<'_> {
        Lane::new(&mut self.pair.md5, &self.pieces)
    }
}

impl Hall {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One worker does as long as he keeps up, so that he finds several bodies at once; a further one is called when
    /// a whole row waits.
    fn enter(&'static self, guest: Guest) -> Result<(), EngineError> {
        let mut inside = self.inside();
        inside.guests.push_back(guest);
        if inside.workers > inside.idle && inside.guests.len() < LANES {
            return Ok(());
        }
        if inside.idle > 0 {
            self.bell.notify_one();
        } else if inside.workers < self.workers_max {
            let name = format!("hash-{}", inside.workers);
            let thread = std::thread::Builder::new().name(name).spawn(|| self.work());
            match thread {
                Ok(_) => inside.workers += 1,
                Err(error) if inside.workers == 0 => {
                    inside.guests.clear();
                    return Err(error.into());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut inside = self.inside();
        loop {
            let row = inside.guests.len().min(LANES);
            if row == 0 {
                inside.idle += 1;
                inside = self.bell.wait(inside).unwrap_or_else(PoisonError::into_inner);
                inside.idle -= 1;
                continue;
            }
            let row: Vec<Guest> = inside.guests.drain(..row).collect();
            drop(inside);
            hash(row);
            inside = self.inside();
        }
    }
}

fn hash(mut row: Vec<Guest>) {
    md5lanes::together(row.iter_mut().map(Guest::lane).collect());
    for Guest { mut pair, pieces, give } in row {
        pieces.iter().for_each(|piece| pair.checksum.update(piece));
        // Whoever is gone wants no sum.
        let _ = give.send(pair);
    }
}
