//! Puts and deletes in all states of versioning, read back by listings of every shape.

use std::sync::LazyLock;

use object::engine::Tx;
use object::listing::{self, After, Entry, Listed, Page, Query};
use object::record::key::{Space, of_bucket};
use object::record::version::Head;
use object::record::{Bucket, Versioning};
use object::{Fault, version};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{self, Line, Model, Row};
use crate::{Bed, version};

static BED: LazyLock<Bed> = LazyLock::new(Bed::open);

#[derive(Debug, Clone)]
enum Move {
    Versioning(bool),
    Put(String, u64),
    Delete(String),
    /// One of the versions that ever were, or `null`.
    Remove(String, Option<usize>),
}

/// Few letters, so that keys share beginnings; some that sort oddly.
fn name(length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    let letter = prop::sample::select(vec!["a", "b", "/", "\u{1}", "é", "\u{10ffff}"]);
    vec(letter, length).prop_map(|letters| letters.concat())
}

/// Mostly one of a few keys, so that they come to have many versions.
fn key() -> impl Strategy<Value = String> {
    let usual = prop::sample::select(vec!["a", "a/b", "b"]).prop_map(str::to_owned);
    prop_oneof![4 => usual, 1 => name(1..4)]
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => any::<bool>().prop_map(Move::Versioning),
        6 => (key(), 0..100_u64).prop_map(|(key, size)| Move::Put(key, size)),
        2 => key().prop_map(Move::Delete),
        4 => (key(), prop::option::of(0..8_usize)).prop_map(|(key, index)| Move::Remove(key, index)),
    ]
}

fn query() -> impl Strategy<Value = (String, Option<String>, usize)> {
    let delimiter = prop::sample::select(vec!["/", "b", "/b", "é", "aa"]).prop_map(str::to_owned);
    (name(0..3), prop::option::of(delimiter), 1..6_usize)
}

/// Does the same to the store and to the model.
fn perform(tx: &mut Tx<'_>, bucket: &mut Bucket, model: &mut Model, moves: &[Move]) -> Result<(), Fault> {
    let mut made: Vec<(String, String)> = Vec::new();
    let owner = bucket.owner.clone();
    for step in moves {
        match step {
            Move::Versioning(on) => {
                bucket.versioning = if *on { Versioning::Enabled } else { Versioning::Suspended };
            }
            Move::Put(key, size) => {
                let head = version::insert(tx, bucket, key, version(&owner, *size), None)?;
                model.put(bucket.versioning, key, &head.version_id(), *size);
                made.push((key.clone(), head.version_id()));
            }
            Move::Delete(key) => {
                let done = version::delete(tx, bucket, key, None, &owner, false)?;
                match done.version_id {
                    Some(id) => {
                        assert!(done.marker);
                        model.mark(bucket.versioning, key, &id);
                        made.push((key.clone(), id));
                    }
                    None => assert_eq!(done.removed, model.remove(key, "null")),
                }
            }
            Move::Remove(key, index) => {
                let known: Vec<_> = made.iter().filter(|(made, _)| made == key).collect();
                let id = index.and_then(|index| known.get(index)).map_or("null", |(_, id)| id);
                let done = version::delete(tx, bucket, key, Some(id), &owner, false)?;
                assert_eq!(done.removed, model.remove(key, id));
            }
        }
    }
    Ok(())
}

fn run(moves: Vec<Move>) -> (Bucket, Model) {
    let mut bucket = BED.bucket();
    let change = BED.engine.write(move |tx| {
        let mut model = Model::default();
        perform(tx, &mut bucket, &mut model, &moves)?;
        Ok::<_, Fault>((bucket, model))
    });
    BED.runtime.block_on(change).unwrap()
}

/// Reads all pages; each begins where the one before ended, as a client would have it.
fn pages<T>(
    query: &mut Query,
    read: impl Fn(&Query) -> Page<T>,
    id: impl Fn(&T) -> Option<String>,
) -> Vec<Entry<T>> {
    let mut all = Vec::new();
    loop {
        let page = read(query);
        assert!(page.entries.len() <= query.limit);
        assert!(!page.more || page.entries.len() == query.limit || page.cut.is_some());
        if let Some(cut) = &page.cut {
            query.after = After::marker(cut, &query.prefix, query.delimiter.as_deref());
        } else if let Some(last) = page.entries.last() {
            let marker = After::marker(last.name(), &query.prefix, query.delimiter.as_deref());
            query.after = match last {
                Entry::Item(name, item) => id(item).map_or(marker, |id| After::Within(name.clone(), id)),
                Entry::Prefix(_) => marker,
            };
        }
        all.extend(page.entries);
        if !page.more {
            return all;
        }
    }
}

fn version_line(entry: Entry<Listed>) -> Line {
    match entry {
        Entry::Prefix(prefix) => Line::Prefix(prefix),
        Entry::Item(key, listed) => Line::Row(row(key, &listed.head, listed.latest)),
    }
}

fn object_line(entry: Entry<Head>) -> Line {
    match entry {
        Entry::Prefix(prefix) => Line::Prefix(prefix),
        Entry::Item(key, head) => Line::Row(row(key, &head, true)),
    }
}

fn row(key: String, head: &Head, latest: bool) -> Row {
    Row { key, id: head.version_id(), marker: head.marker, latest, size: head.size }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn pages_show_what_was_done(moves in vec(step(), 0..60), queries in vec(query(), 1..6)) {
        let (bucket, model) = run(moves);
        let view = BED.engine.read().unwrap();
        let rows = model.rows();
        let objects: Vec<Row> = rows.iter().filter(|row| row.latest && !row.marker).cloned().collect();
        for (prefix, delimiter, limit) in queries {
            let mut query = Query { prefix, delimiter, after: After::Nothing, limit };
            let expected = model::lines(&rows, &query.prefix, query.delimiter.as_deref());
            let found = pages(
                &mut query,
                |query| listing::versions(&view, bucket.id, query).unwrap(),
                |listed| Some(listed.head.version_id()),
            );
            prop_assert_eq!(found.into_iter().map(version_line).collect::<Vec<_>>(), expected);

            let expected = model::lines(&objects, &query.prefix, query.delimiter.as_deref());
            for skips in [0, 1, 5, listing::SKIPS_MAX] {
                query.after = After::Nothing;
                let read = |query: &Query| listing::objects_among(&view, bucket.id, query, skips).unwrap();
                let found = pages(&mut query, read, |_| None);
                prop_assert_eq!(found.into_iter().map(object_line).collect::<Vec<_>>(), expected.clone());
            }
        }
    }

    #[test]
    fn a_listing_may_begin_anywhere(
        moves in vec(step(), 0..40),
        (prefix, delimiter, _) in query(),
        start in name(0..4),
    ) {
        let (bucket, model) = run(moves);
        let view = BED.engine.read().unwrap();
        let rows: Vec<Row> = model.rows().into_iter().filter(|row| row.key > start).collect();
        let objects: Vec<Row> = rows.iter().filter(|row| row.latest && !row.marker).cloned().collect();
        let query = Query { prefix, delimiter, after: After::Key(start), limit: 1000 };
        let lines = |rows: &[Row]| model::lines(rows, &query.prefix, query.delimiter.as_deref());
        let found = listing::objects(&view, bucket.id, &query).unwrap();
        prop_assert_eq!(found.entries.into_iter().map(object_line).collect::<Vec<_>>(), lines(&objects));
        let found = listing::versions(&view, bucket.id, &query).unwrap();
        prop_assert_eq!(found.entries.into_iter().map(version_line).collect::<Vec<_>>(), lines(&rows));
    }

    #[test]
    fn versions_are_found_and_counted(moves in vec(step(), 0..60)) {
        let (bucket, model) = run(moves.clone());
        let view = BED.engine.read().unwrap();
        for row in model.rows() {
            let found = version::lookup(&view, bucket.id, &row.key, Some(&row.id)).unwrap().unwrap();
            prop_assert_eq!(self::row(row.key.clone(), &found.head, row.latest), row.clone());
            let found = version::find(&view, bucket.id, &row.key, Some(&row.id));
            prop_assert_eq!(found.is_err(), row.marker);
            if row.latest {
                let found = version::find(&view, bucket.id, &row.key, None);
                prop_assert_eq!(found.ok().map(|found| found.head.version_id()), (!row.marker).then_some(row.id));
            }
        }
        let usage = version::usage(&view, bucket.id).unwrap();
        prop_assert_eq!((usage.objects, usage.versions, usage.bytes), model.usage());
        prop_assert_eq!(version::account_usage(&view, &bucket.owner.id).unwrap(), usage);
        let mut nulls = 0;
        view.scan(of_bucket(Space::Null, bucket.id), |_, _| {
            nulls += 1;
            true
        })
        .unwrap();
        let older = model.rows().iter().filter(|row| row.id == "null" && !row.latest).count();
        prop_assert_eq!(nulls, older, "only older versions are noted as null");
    }
}

/// Something is written between two pages: the second goes on where the first ended.
#[test]
fn pages_go_on_when_versions_change_between_them() {
    let mut bucket = BED.bucket();
    bucket.versioning = Versioning::Enabled;
    let owner = bucket.owner.clone();
    let put = |bucket: &Bucket, key: &'static str| {
        let (bucket, new) = (bucket.clone(), version(&owner, 1));
        let change = BED.engine.write(move |tx| version::insert(tx, &bucket, key, new, None));
        BED.runtime.block_on(change).unwrap().version_id()
    };
    let remove = |bucket: &Bucket, key: &'static str, id: String| {
        let (bucket, owner) = (bucket.clone(), owner.clone());
        let change = BED.engine.write(move |tx| version::delete(tx, &bucket, key, Some(&id), &owner, false));
        assert!(BED.runtime.block_on(change).unwrap().removed);
    };
    let after = |bucket: &Bucket, id: &str| {
        let after = After::Within("k".into(), id.into());
        let query = Query { after, limit: 100, ..Query::default() };
        let page = listing::versions(&BED.engine.read().unwrap(), bucket.id, &query).unwrap();
        page.entries.into_iter().map(version_line).collect::<Vec<_>>()
    };
    let line = |key: &str, id: &str, latest| {
        Line::Row(Row { key: key.into(), id: id.into(), marker: false, latest, size: 1 })
    };
    let old = put(&bucket, "k");
    let middle = put(&bucket, "k");
    let new = put(&bucket, "k");
    let other = put(&bucket, "l");
    // A newer version does not come again, whatever place the others have now.
    put(&bucket, "k");
    assert_eq!(
        after(&bucket, &new),
        [line("k", &middle, false), line("k", &old, false), line("l", &other, true),]
    );
    // The version that the page ended on is gone, and the next one is the newest.
    let bucket = {
        let mut next = BED.bucket();
        next.versioning = Versioning::Enabled;
        next
    };
    let old = put(&bucket, "k");
    let new = put(&bucket, "k");
    remove(&bucket, "k", new.clone());
    assert_eq!(after(&bucket, &new), [line("k", &old, true)]);
}
