//! Looks into the data of a store that does not run: every byte belongs to somebody.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use object::engine::{BlobId, Engine, EngineConfig, View};
use object::record::key::{Space, under};
use object::record::{Part, Upload, Version};

use crate::support::{PATIENCE, until};

fn each(view: &View, space: Space, mut each: impl FnMut(&[u8], &[u8])) {
    view.scan(under(vec![space as u8]), |key, value| {
        each(key, value);
        true
    })
    .unwrap();
}

/// The blobs that versions and parts name.
fn named(view: &View) -> BTreeSet<BlobId> {
    let mut named = BTreeSet::new();
    for space in [Space::Current, Space::Past] {
        each(view, space, |key, value| {
            let version = Version::decode(value).unwrap_or_else(|| panic!("no version at {key:?}"));
            assert_eq!(version.blobs.iter().map(|blob| blob.size).sum::<u64>(), version.head.size);
            named.extend(version.blobs.iter().map(|blob| blob.id));
        });
    }
    let mut open = BTreeSet::new();
    each(view, Space::Upload, |_, value| {
        open.insert(Upload::decode(value).expect("an upload").id.into_bytes());
    });
    each(view, Space::Part, |key, value| {
        // Space, bucket, id of the upload, NUL, number.
        let upload = &key[5..key.len() - 3];
        assert!(open.contains(upload), "a part of no upload: {key:?}");
        named.extend(Part::decode(value).expect("a part").blob);
    });
    named
}

fn files(data: &Path) -> u64 {
    let folders = std::fs::read_dir(data.join("blobs")).unwrap();
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count() as u64).sum()
}

/// After a while of reclaiming, there are the blobs that records name and no others, and all are sound.
pub async fn audit(data: &Path) {
    let config = EngineConfig {
        grace: Duration::ZERO,
        checkpoint: Duration::from_millis(50),
        scrub_rate: 0,
        ..EngineConfig::new(data.to_owned())
    };
    let engine = Engine::open(config).unwrap();
    let named = named(&engine.read().unwrap());
    tokio::task::block_in_place(|| {
        let what = format!("only the {} blobs that are named are left within {PATIENCE:?}", named.len());
        until(&what, || {
            let stats = engine.stats().unwrap();
            let blobs = stats.packed.blobs + stats.files.blobs;
            assert!(blobs >= named.len() as u64, "{blobs} blobs, {} named", named.len());
            (blobs == named.len() as u64 && stats.files.blobs == files(data)).then_some(())
        });
    });
    let scrub = engine.scrub(None, |_| {}).await.unwrap();
    assert!(scrub.damaged.is_empty(), "{scrub:?}");
    assert_eq!(scrub.blobs, named.len() as u64);
    engine.close().await;
}
