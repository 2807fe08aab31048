//! Puts many names into a bucket of a store that does not run, as its own operations would have left them.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow};
use object::engine::{Engine, EngineConfig};
use object::fault::Fault;
use object::record::Version;
use object::service::Records;
use object::version;

use crate::wire::BUCKET;

/// Names in one change.
const BATCH: usize = 1000;
const EMPTY: &str = "d41d8cd98f00b204e9800998ecf8427e";

pub async fn fill(count: usize, data: &Path) -> Result<()> {
    let since = Instant::now();
    let engine = Engine::open(EngineConfig::new(data.to_owned()))?;
    for first in (0..count).step_by(BATCH) {
        let numbers = first..(first + BATCH).min(count);
        let put = engine.write(move |tx| -> Result<(), Fault> {
            let bucket = tx.bucket(BUCKET)?;
            for number in numbers {
                let mut new = Version::empty(bucket.owner.clone());
                new.head.etag = EMPTY.into();
                let key = format!("folder{:04}/object{number:010}", number / BATCH);
                version::insert(tx, &bucket, &key, new, None)?;
            }
            Ok(())
        });
        put.await.map_err(|error| anyhow!("{error}"))?;
    }
    engine.close().await;
    println!("{count} names written in {:.1} s", since.elapsed().as_secs_f64());
    Ok(())
}
