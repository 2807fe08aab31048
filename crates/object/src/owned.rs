//! Which buckets an account owns: an index beside the buckets, so that the many of others slow nobody down.

use crate::engine::{Engine, Tx};
use crate::fault::Result;
use crate::record::Bucket;
use crate::record::key::{self, Space};
use crate::service::Records;

/// Says that the index is there.
const MARK: &str = "owned";

/// Makes the index for a store of an earlier build.
pub async fn prepare(engine: &Engine) -> Result<()> {
    if engine.read()?.record(&key::counter(MARK))?.is_some() {
        return Ok(());
    }
    let make = |tx: &mut Tx<'_>| -> Result<()> {
        let mut buckets: Vec<Bucket> = Vec::new();
        tx.scan(key::under(vec![Space::Bucket as u8]), |_, value| {
            buckets.extend(serde_json::from_slice::<Bucket>(value));
            true
        })?;
        buckets.iter().for_each(|bucket| add(tx, bucket));
        tx.put(key::counter(MARK), 1_u64.to_be_bytes().to_vec());
        Ok(())
    };
    engine.write(make).await
}

pub fn add(tx: &mut Tx<'_>, bucket: &Bucket) {
    tx.put(key::owned(&bucket.owner.id, &bucket.name), Vec::new());
}

pub fn remove(tx: &mut Tx<'_>, bucket: &Bucket) {
    tx.delete(key::owned(&bucket.owner.id, &bucket.name));
}

/// Names of an account's buckets in order that begin with `prefix` and come behind `after`, while `wanted` answers `true`.
pub fn each(
    records: &impl Records,
    account: &str,
    prefix: &str,
    after: &str,
    mut wanted: impl FnMut(&str) -> bool,
) -> Result<()> {
    let mut range = key::under(key::owned(account, prefix));
    if after >= prefix {
        range.start = key::owned(account, after);
        range.start.push(0);
    }
    if range.start >= range.end {
        return Ok(());
    }
    let at = key::owned(account, "").len();
    records.each(range, |name, _| std::str::from_utf8(&name[at..]).is_ok_and(&mut wanted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::engine::EngineConfig;
    use crate::identity::Account;
    use crate::record::{Acl, Versioning};
    use crate::service::put_bucket;

    fn bucket(id: u32, owner: &str, name: &str) -> Bucket {
        let owner = Account { id: owner.into(), name: owner.into() };
        Bucket {
            id,
            name: name.into(),
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

    #[tokio::test]
    async fn buckets_of_an_earlier_build_are_found() {
        let data = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineConfig::new(data.path().to_owned())).unwrap();
        let fills = |tx: &mut Tx<'_>| -> Result<()> {
            for (id, owner, name) in [
                (1, "a", "alpha"),
                (2, "ab", "beta"),
                (3, "a", "beta-1"),
                (4, "a", "beta-2"),
                (5, "a", "gamma"),
                (6, "b", "alpha-2"),
            ] {
                put_bucket(tx, &bucket(id, owner, name));
            }
            Ok(())
        };
        engine.write(fills).await.unwrap();
        prepare(&engine).await.unwrap();
        let removes = |tx: &mut Tx<'_>| -> Result<()> {
            remove(tx, &bucket(5, "a", "gamma"));
            Ok(())
        };
        engine.write(removes).await.unwrap();
        // The next start finds it made.
        prepare(&engine).await.unwrap();
        let view = engine.read().unwrap();
        let found = |account: &str, prefix: &str, after: &str, most: usize| {
            let mut names = Vec::new();
            each(&view, account, prefix, after, |name| {
                names.push(name.to_owned());
                names.len() < most
            })
            .unwrap();
            names.join(" ")
        };
        assert_eq!(found("a", "", "", 9), "alpha beta-1 beta-2");
        assert_eq!(found("a", "", "", 2), "alpha beta-1");
        assert_eq!(found("a", "beta", "", 9), "beta-1 beta-2");
        assert_eq!(found("a", "beta", "beta-1", 9), "beta-2");
        assert_eq!(found("a", "beta", "alpha", 9), "beta-1 beta-2");
        assert_eq!(found("a", "beta", "gamma", 9), "");
        assert_eq!(found("a", "", "zeta", 9), "");
        assert_eq!(found("ab", "", "", 9), "beta");
        assert_eq!(found("c", "", "", 9), "");
    }
}
