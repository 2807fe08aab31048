//! Changes and views against a plain map.

use std::collections::BTreeMap;
use std::time::Duration;

use object::engine::{Engine, EngineConfig, EngineError};
use proptest::prelude::*;

use crate::bed::{config, open};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, u8),
    Delete(Vec<u8>),
    Scan(Vec<u8>, Vec<u8>, usize),
    /// Ends the change, kept or undone.
    End(bool),
    /// Lets a checkpoint happen, or opens the data again.
    Rest(bool),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'f'..b'i', 0..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        3 => key().prop_map(Step::Delete),
        4 => (key(), key(), 1..9_usize).prop_map(|(from, to, most)| Step::Scan(from, to, most)),
        3 => any::<bool>().prop_map(Step::End),
        1 => any::<bool>().prop_map(Step::Rest),
    ]
}

fn expected(map: &Map, from: &[u8], to: &[u8], most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    if from >= to {
        return Vec::new();
    }
    map.range(from.to_vec()..to.to_vec())
        .take(most)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Runs the steps of one change; whether all that it read was right.
async fn change(engine: &Engine, steps: Vec<Step>, keep: bool, map: Map) -> (bool, Map) {
    let after = map.clone();
    let run = engine.write(move |tx| {
        let mut map = map;
        let mut right = true;
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    tx.put(key.clone(), vec![value; 3]);
                    map.insert(key, vec![value; 3]);
                }
                Step::Delete(key) => {
                    tx.delete(key.clone());
                    map.remove(&key);
                    right &= tx.get(&key)?.is_none();
                }
                Step::Scan(from, to, most) => {
                    let mut seen = Vec::new();
                    tx.scan(from.clone()..to.clone(), |key, value| {
                        seen.push((key.to_vec(), value.to_vec()));
                        seen.len() < most
                    })?;
                    right &= seen == expected(&map, &from, &to, most);
                    right &= tx.get(&from)? == map.get(&from).cloned();
                }
                Step::End(_) | Step::Rest(_) => {}
            }
        }
        if keep && right { Ok(map) } else { Err(Undone(right)) }
    });
    match run.await {
        Ok(map) => (true, map),
        Err(Undone(right)) => (right, after),
    }
}

struct Undone(bool);

impl From<EngineError> for Undone {
    fn from(_: EngineError) -> Self {
        Self(false)
    }
}

fn view_is(engine: &Engine, map: &Map) -> bool {
    let mut seen = Map::new();
    let view = engine.read().unwrap();
    view.scan(b"f".to_vec()..b"j".to_vec(), |key, value| {
        seen.insert(key.to_vec(), value.to_vec());
        true
    })
    .unwrap();
    let whole = map
        .iter()
        .filter(|(key, _)| !key.is_empty())
        .all(|(key, value)| view.get(key).unwrap().as_ref() == Some(value) && seen.get(key) == Some(value));
    whole && seen.len() == map.keys().filter(|key| !key.is_empty()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn changes_and_views_agree_with_a_map(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let config = EngineConfig { checkpoint: Duration::from_millis(3), ..config(folder.path()) };
        runtime.block_on(async {
            let mut engine = open(config.clone());
            let (mut map, mut gathered) = (Map::new(), Vec::new());
            for step in steps.into_iter().chain([Step::End(true), Step::Rest(true)]) {
                match step {
                    Step::End(keep) => {
                        let (right, after) = change(&engine, std::mem::take(&mut gathered), keep, map).await;
                        prop_assert!(right);
                        map = after;
                        prop_assert!(view_is(&engine, &map));
                    }
                    Step::Rest(false) => tokio::time::sleep(Duration::from_millis(10)).await,
                    Step::Rest(true) => {
                        drop(engine);
                        engine = open(config.clone());
                        prop_assert!(view_is(&engine, &map));
                    }
                    step => gathered.push(step),
                }
            }
            Ok(())
        })?;
    }
}
