//! Helpers of the tests.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object::engine::{BlobId, Engine, EngineConfig, EngineError, SealKey, Written};

pub fn config(data: &Path) -> EngineConfig {
    EngineConfig {
        checkpoint: Duration::from_millis(50),
        grace: Duration::ZERO,
        ..EngineConfig::new(data.to_owned())
    }
}

/// An engine that makes no checkpoint by itself.
pub fn still(data: &Path) -> EngineConfig {
    EngineConfig { checkpoint: Duration::from_secs(3600), ..config(data) }
}

pub fn open(config: EngineConfig) -> Engine {
    Engine::open(config).expect("the engine opens")
}

/// Bytes that differ by `seed`.
pub fn content(seed: u64, size: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes.into()
}

pub async fn prepare(
    engine: &Engine,
    bytes: &Bytes,
    piece: usize,
    seal: Option<&SealKey>,
) -> Result<Written, EngineError> {
    let mut writer = engine.blob(None, seal);
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        writer.write(rest.split_to(piece.min(rest.len()))).await?;
    }
    writer.finish().await
}

/// Stores bytes under a key.
pub async fn put(engine: &Engine, key: &str, bytes: &Bytes) -> Result<BlobId, EngineError> {
    let written = prepare(engine, bytes, 100_000, None).await?;
    let key = key.as_bytes().to_vec();
    engine
        .write(move |tx| {
            if let Some(old) = tx.get(&key)? {
                tx.release(id_of(&old))?;
            }
            let id = tx.store(written)?;
            tx.put(key, id.0.to_be_bytes().to_vec());
            Ok(id)
        })
        .await
}

pub async fn delete(engine: &Engine, key: &str) -> Result<(), EngineError> {
    let key = key.as_bytes().to_vec();
    engine
        .write(move |tx| {
            if let Some(old) = tx.get(&key)? {
                tx.release(id_of(&old))?;
            }
            tx.delete(key);
            Ok(())
        })
        .await
}

pub fn id_of(value: &[u8]) -> BlobId {
    BlobId(u64::from_be_bytes(value.try_into().expect("eight bytes")))
}

pub async fn fetch(
    engine: &Engine,
    id: BlobId,
    range: std::ops::Range<u64>,
    seal: Option<&SealKey>,
) -> Result<Vec<u8>, EngineError> {
    let parts: Vec<Bytes> = engine.fetch(id, range, seal).await?.try_collect().await?;
    Ok(parts.concat())
}

/// The bytes under a key.
pub async fn get(engine: &Engine, key: &str, size: u64) -> Result<Option<Vec<u8>>, EngineError> {
    let Some(value) = engine.read()?.get(key.as_bytes())? else { return Ok(None) };
    fetch(engine, id_of(&value), 0..size, None).await.map(Some)
}

/// How many blobs are files.
pub fn files(data: &Path) -> usize {
    let folders = std::fs::read_dir(data.join("blobs")).unwrap();
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}
