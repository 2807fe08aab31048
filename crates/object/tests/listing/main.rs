//! Versions and listings against a simple model in memory.
//!
//! Each case makes its moves in one change, in a bucket of its own, and then
//! reads everything back page by page.
#![allow(clippy::unwrap_used)]

mod model;
mod moves;
mod upload;

use std::sync::Arc;

use object::engine::EngineConfig;
use object::identity::Account;
use object::record::{Acl, Bucket, Version, Versioning};
use object::{Engine, Fault};
use tokio::runtime::Runtime;

/// An engine in a folder that goes with it.
pub struct Bed {
    pub runtime: Runtime,
    pub engine: Engine,
    _folder: tempfile::TempDir,
}

impl Bed {
    pub fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let engine = {
            let _inside = runtime.enter();
            Engine::open(EngineConfig::new(folder.path().to_owned())).unwrap()
        };
        Self { runtime, engine, _folder: folder }
    }

    /// A bucket that no other case uses.
    pub fn bucket(&self) -> Bucket {
        let change = self.engine.write(|tx| Ok::<_, Fault>(tx.next("bucket")?));
        let id = u32::try_from(self.runtime.block_on(change).unwrap()).unwrap();
        bucket(id)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.runtime.block_on(self.engine.close());
    }
}

/// Its owner is its own, so that usage is counted alone.
pub fn bucket(id: u32) -> Bucket {
    let name: Arc<str> = format!("account-{id}").into();
    let owner = Account { id: name.clone(), name };
    Bucket {
        id,
        name: format!("bucket-{id}"),
        acl: Acl::private(&owner),
        owner,
        created: 0,
        versioning: Versioning::Off,
        policy: None,
        location: None,
        settings: Default::default(),
        quota: None,
    }
}

/// A version without bytes that says how big it is.
pub fn version(owner: &Account, size: u64) -> Version {
    let mut version = Version::empty(owner.clone());
    version.head.size = size;
    version.head.etag = format!("{size:x}");
    version
}
