//! Making one side like the other: a folder like a prefix, or a prefix like a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use futures::{StreamExt, stream};
use object::client::{Client, DELETE_MAX, etag_of};

use super::remote::{Found, Place, Transfers, shown, walk};
use super::transfer;
use crate::failure::{Failure, Result};
use crate::output::note;

/// Files looked at; a larger tree is synced in pieces.
const FILES_MAX: usize = 1_000_000;

/// Files on their way at once.
const TRANSFERS: usize = 8;

/// Times that are not further apart do not say what is younger: clocks differ, and some know whole seconds alone.
const DOUBT_MS: i64 = 2000;

/// Size and time of a file or an object, and the ETag of an object.
#[derive(Debug, Clone)]
struct Facts {
    size: u64,
    modified_ms: i64,
    etag: Option<String>,
}

impl Facts {
    /// Whether a copy is still what it was made from. In doubt the bytes of the file are asked.
    fn is_copied_in(&self, copy: &Self, file: &Path) -> bool {
        let younger = copy.modified_ms > self.modified_ms.saturating_add(DOUBT_MS);
        let etag = self.etag.as_ref().or(copy.etag.as_ref());
        self.size == copy.size && (younger || etag.is_some_and(|etag| has_etag(file, etag)))
    }
}

/// Whether a file has the bytes of an object. The ETag of one that came in parts does not tell.
fn has_etag(file: &Path, etag: &str) -> bool {
    let found = || std::fs::File::open(file).and_then(etag_of);
    !etag.contains('-') && found().is_ok_and(|found| found.eq_ignore_ascii_case(etag))
}

pub struct Terms {
    /// Also delete what the source does not have.
    pub delete: bool,
    pub dry_run: bool,
}

#[derive(Debug, Default)]
pub struct Outcome {
    pub copied: u64,
    pub deleted: u64,
    pub same: u64,
    pub bytes: u64,
    /// Objects whose names no file can have.
    pub left_out: u64,
}

pub async fn up(s3: &Transfers, from: &Path, to: &Place, terms: &Terms) -> Result<Outcome> {
    let here = files(from)?;
    let there = objects(s3, to).await?;
    let mut outcome = Outcome::default();
    let mut jobs = Vec::new();
    for (name, facts) in &here {
        let place = Place { bucket: to.bucket.clone(), key: format!("{}{name}", folder(&to.key)) };
        if there.get(name).is_some_and(|old| facts.is_copied_in(old, &from.join(name))) {
            outcome.same += 1;
            continue;
        }
        note(format!("{}put {} to {place}", would(terms), shown(name)));
        jobs.push((from.join(name), place));
        outcome.copied += 1;
        outcome.bytes += facts.size;
    }
    let gone: Vec<(String, Option<String>)> = there
        .keys()
        .filter(|name| terms.delete && !here.contains_key(*name))
        .map(|name| (format!("{}{name}", folder(&to.key)), None))
        .collect();
    gone.iter().for_each(|(key, _)| note(format!("{}delete {}/{}", would(terms), to.bucket, shown(key))));
    outcome.deleted = gone.len() as u64;
    if terms.dry_run {
        return Ok(outcome);
    }
    let sent = Arc::new(AtomicU64::new(0));
    let work = all(jobs, |(path, place)| {
        let sent = &sent;
        async move {
            let headers = super::headers_of(&place.key, None);
            transfer::put_counted(s3, &path, &place, headers, sent).await.map(drop)
        }
    });
    transfer::shown(&to.to_string(), &AtomicU64::new(outcome.bytes), &sent, work).await?;
    for part in gone.chunks(DELETE_MAX) {
        s3.delete_many(&to.bucket, part).await?;
    }
    Ok(outcome)
}

/// Runs transfers, several at once. After a failure those that run are let end, and no other begins.
async fn all<T, F>(jobs: Vec<T>, run: impl Fn(T) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let failed = AtomicBool::new(false);
    let ended: Vec<Result<()>> = stream::iter(jobs)
        .map(|job| {
            let (run, failed) = (&run, &failed);
            async move {
                if failed.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let done = run(job).await;
                failed.fetch_or(done.is_err(), Ordering::Relaxed);
                done
            }
        })
        .buffer_unordered(TRANSFERS)
        .collect()
        .await;
    ended.into_iter().collect()
}

pub async fn down(s3: &Client, from: &Place, to: &Path, terms: &Terms) -> Result<Outcome> {
    let there = objects(s3, from).await?;
    let here = if to.exists() { files(to)? } else { BTreeMap::new() };
    let mut outcome = Outcome::default();
    let mut jobs = Vec::new();
    for (name, facts) in &there {
        let Some(path) = inside(to, name) else {
            note(format!("the object '{}' cannot be a file here", name.escape_debug()));
            outcome.left_out += 1;
            continue;
        };
        if here.get(name).is_some_and(|old| facts.is_copied_in(old, &path)) {
            outcome.same += 1;
            continue;
        }
        note(format!("{}get {}", would(terms), shown(name)));
        let place = Place { bucket: from.bucket.clone(), key: format!("{}{name}", folder(&from.key)) };
        jobs.push((path, place));
        outcome.copied += 1;
        outcome.bytes += facts.size;
    }
    if !terms.dry_run {
        let done = AtomicU64::new(0);
        let work = all(jobs, |(path, place)| {
            let done = &done;
            async move { transfer::get_counted(s3, &place, None, &path, done, |_| ()).await.map(drop) }
        });
        transfer::shown(&from.to_string(), &AtomicU64::new(outcome.bytes), &done, work).await?;
    }
    for name in here.keys().filter(|name| terms.delete && !there.contains_key(*name)) {
        note(format!("{}delete {}", would(terms), shown(&to.join(name).display().to_string())));
        if !terms.dry_run {
            std::fs::remove_file(to.join(name))
                .map_err(|error| Failure::new(format!("{}: {error}", shown(name))))?;
        }
        outcome.deleted += 1;
    }
    Ok(outcome)
}

fn would(terms: &Terms) -> &'static str {
    if terms.dry_run { "would " } else { "" }
}

/// The prefix as a folder.
fn folder(key: &str) -> String {
    if key.is_empty() || key.ends_with('/') { key.to_owned() } else { format!("{key}/") }
}

/// A name from the store must not lead out of the folder it is written to.
fn inside(to: &Path, name: &str) -> Option<PathBuf> {
    let safe = Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    (safe && !name.ends_with('/') && !name.contains("//")).then(|| to.join(name))
}

async fn objects(s3: &Client, at: &Place) -> Result<BTreeMap<String, Facts>> {
    let prefix = folder(&at.key);
    let mut found = BTreeMap::new();
    walk(s3, &at.bucket, &prefix, None, |item| {
        if let Found::Object(entry) = item {
            let name = entry.key.strip_prefix(&prefix).unwrap_or(&entry.key).to_owned();
            let time = entry.modified.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            // A name that ends in a slash stands for a folder and has nothing in it.
            if !(name.is_empty() || name.ends_with('/') && entry.size == 0) {
                let modified_ms = time.map_or(0, |time| time.as_millisecond());
                found.insert(name, Facts { size: entry.size, modified_ms, etag: entry.etag });
            }
        }
        if found.len() > FILES_MAX {
            Err(Failure::new(format!("more than {FILES_MAX} objects; sync a part of them")))
        } else {
            Ok(())
        }
    })
    .await?;
    Ok(found)
}

fn files(root: &Path) -> Result<BTreeMap<String, Facts>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let fail = |error: std::io::Error| Failure::new(format!("{}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let linked = std::fs::symlink_metadata(&path).is_ok_and(|own| own.is_symlink());
            let meta = match std::fs::metadata(&path) {
                Err(error) if linked && error.kind() == std::io::ErrorKind::NotFound => {
                    note(format!("{}: a link to nothing is left out", shown(&path.display().to_string())));
                    continue;
                }
                meta => meta.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?,
            };
            if linked && meta.is_dir() {
                note(format!("{}: a link to a folder is left out", shown(&path.display().to_string())));
            } else if meta.is_dir() {
                open.push(path);
            } else if meta.is_file() {
                let name = path.strip_prefix(root).unwrap_or(&path).to_str().map(str::to_owned);
                let name =
                    name.ok_or_else(|| Failure::new(format!("{}: the name is not UTF-8", path.display())))?;
                let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let modified_ms =
                    modified.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
                found.insert(name, Facts { size: meta.len(), modified_ms, etag: None });
            }
        }
        if found.len() > FILES_MAX {
            return Err(Failure::new(format!("more than {FILES_MAX} files; sync a part of them")));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        let root = Path::new("/x");
        assert_eq!(inside(root, "a/b").expect("fine"), Path::new("/x/a/b"));
        for name in ["../a", "a/../../b", "/etc/passwd", "a//b", "a/", "."] {
            assert!(inside(root, name).is_none(), "{name}");
        }
    }

    #[test]
    fn bytes_tell_where_times_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("f");
        std::fs::write(&file, "AAAA").expect("it is written");
        let a = etag_of(&b"AAAA"[..]).expect("it is read");
        let b = etag_of(&b"BBBB"[..]).expect("it is read");
        let parts = format!("{a}-2");
        let facts =
            |modified_ms: i64, etag: Option<&String>| Facts { size: 4, modified_ms, etag: etag.cloned() };
        for (source, copy, etag, same) in [
            (10_000, 12_001, &b, true),
            (10_000, 12_000, &b, false),
            (10_000, 12_000, &a, true),
            (10_900, 10_000, &b, false),
            (90_000, 10_000, &a, true),
            (90_000, 10_000, &b, false),
            (10_000, 10_500, &parts, false),
            (10_000, 12_001, &parts, true),
        ] {
            let up = facts(source, None).is_copied_in(&facts(copy, Some(etag)), &file);
            let down = facts(source, Some(etag)).is_copied_in(&facts(copy, None), &file);
            assert_eq!((up, down), (same, same), "{source} {copy} {etag}");
        }
        let longer = Facts { size: 5, ..facts(90_000, Some(&a)) };
        assert!(!facts(0, None).is_copied_in(&longer, &file));
    }
}
