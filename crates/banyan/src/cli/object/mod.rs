//! `banyan object put|get|ls|rm|sync|presign`

pub mod remote;
mod sync;
mod transfer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use object::client::{Client, DELETE_MAX};
use serde::Serialize;

use super::parse;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::size;
use crate::output::{self, Format, note};
use crate::session::Session;
use remote::{Entry, Found, Place, Transfers, s3, shown, walk};

const AFTER_HELP: &str = "\
Examples:
  banyan object put cat.jpg photos/2026/           keeps the file's name
  tar c . | banyan object put - backups/home.tar
  banyan object ls photos/2026/
  banyan object get photos/2026/cat.jpg
  banyan object sync ./site s3://web --delete
  banyan object presign photos/2026/cat.jpg --expires 1h";

/// A link is good for a week at most.
const PRESIGN_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Send files. A target that ends in / keeps their names.
    Put {
        /// Files; `-` reads standard input.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// BUCKET/KEY, or BUCKET/FOLDER/.
        #[arg(value_parser = Place::parse)]
        to: Place,
        /// Content type of the object.
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
    },
    /// Fetch an object into a file.
    Get {
        /// BUCKET/KEY.
        #[arg(value_parser = Place::parse)]
        from: Place,
        /// File or folder [default: the last part of the key, here]; `-` writes to standard output.
        to: Option<PathBuf>,
        /// A version instead of the newest.
        #[arg(long, value_name = "ID")]
        version: Option<String>,
    },
    /// Names in a bucket, folder by folder; without one, the buckets.
    #[command(visible_alias = "list")]
    Ls {
        /// BUCKET or BUCKET/PREFIX.
        #[arg(value_parser = Place::parse)]
        at: Option<Place>,
        /// Everything below, without folders.
        #[arg(short, long, requires = "at")]
        recursive: bool,
    },
    /// Delete objects.
    #[command(visible_alias = "delete")]
    Rm {
        /// BUCKET/KEY, or with --recursive BUCKET/PREFIX.
        #[arg(required = true, value_parser = Place::parse)]
        what: Vec<Place>,
        /// Everything that begins so.
        #[arg(short, long)]
        recursive: bool,
        /// One version, for good.
        #[arg(long, value_name = "ID", conflicts_with = "recursive")]
        version: Option<String>,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make a prefix like a folder, or a folder like a prefix; the side of the store begins with s3://.
    Sync {
        /// A folder, or s3://BUCKET/PREFIX.
        from: String,
        /// The other of the two.
        to: String,
        /// Also delete what the source does not have.
        #[arg(long)]
        delete: bool,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// A link with which anyone may fetch an object for a while.
    Presign {
        /// BUCKET/KEY.
        #[arg(value_parser = Place::parse)]
        what: Place,
        /// How long it is good, such as 15m or 7d.
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse::duration)]
        expires: Duration,
        /// For sending the object instead of fetching it.
        #[arg(long)]
        put: bool,
        /// For an instance on the store's own machine, with the address under which it reaches the store.
        #[arg(long)]
        inside: bool,
    },
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    match args.verb {
        Verb::Put { files, to, content_type } => {
            let s3 = Transfers::new(s3(session).await?);
            let sent = s3.run(put(&s3, &files, to, content_type)).await?;
            told(session.format, &sent)
        }
        Verb::Get { from, to, version } => get(session, from.object()?, to, version.as_deref()).await,
        Verb::Ls { at: Some(at), recursive } => ls(session, &at, recursive).await,
        Verb::Ls { at: None, .. } => super::bucket::list(session, None).await,
        Verb::Rm { what, recursive, version, dry_run } => {
            let s3 = s3(session).await?;
            let mut gone = Vec::new();
            for place in what {
                gone.extend(rm(&s3, place, recursive, version.as_deref(), dry_run).await?);
            }
            told(session.format, &gone)
        }
        Verb::Sync { from, to, delete, dry_run } => {
            sync_run(session, &from, &to, &sync::Terms { delete, dry_run }).await
        }
        Verb::Presign { what, expires, put, inside } => {
            let what = what.object()?;
            if expires.is_zero() || expires > PRESIGN_MAX {
                return Err(Failure::new("a link is good for 1 second to 7 days"));
            }
            let method = if put { "PUT" } else { "GET" };
            let s3 = remote::s3_for_link(session, expires, inside).await?;
            let url = s3.presign(method, &what.bucket, &what.key, expires.as_secs())?.to_string();
            let link = Link { method, url, expires_s: expires.as_secs() };
            let name = format!("{}/{}", what.bucket, what.key);
            output::changed(session.format, &link, &name, &link.url)
        }
    }
}

/// What became of an object, for programs.
#[derive(Serialize)]
struct Done {
    bucket: String,
    key: String,
    /// The file on this side.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl Done {
    fn moved(at: &Place, file: &Path, bytes: u64) -> Self {
        let file = Some(file.display().to_string());
        Self { bucket: at.bucket.clone(), key: at.key.clone(), file, bytes: Some(bytes), version: None }
    }

    fn gone(bucket: &str, key: &str, version: Option<&str>) -> Self {
        let version = version.map(str::to_owned);
        Self { bucket: bucket.to_owned(), key: key.to_owned(), file: None, bytes: None, version }
    }
}

const DONE: [Column<Done>; 1] = [Column::new("NAME", |done| format!("{}/{}", done.bucket, done.key))];

/// Tells programs what was done; people have read it in notes.
fn told(format: Format, done: &[Done]) -> Result<()> {
    match format {
        Format::Table | Format::Wide => Ok(()),
        format => output::list(format, done, &DONE),
    }
}

/// A link as programs get it.
#[derive(Serialize)]
struct Link {
    method: &'static str,
    url: String,
    expires_s: u64,
}

async fn put(
    s3: &Transfers,
    files: &[PathBuf],
    to: Place,
    content_type: Option<String>,
) -> Result<Vec<Done>> {
    let folder = to.key.is_empty() || to.key.ends_with('/');
    if files.len() > 1 && !folder {
        return Err(Failure::new("several files need a folder as their target")
            .hint(format!("end it with a slash: {to}/")));
    }
    let mut done = Vec::new();
    for file in files {
        let mut place = to.clone();
        if folder {
            let name = file.file_name().and_then(|name| name.to_str()).filter(|_| file != Path::new("-"));
            let name = name.ok_or_else(|| Failure::new("standard input has no name; give the whole key"))?;
            place.key.push_str(name);
        }
        let headers = headers_of(&place.key, content_type.clone());
        let bytes = match file == Path::new("-") {
            true => transfer::put_stdin(s3, &place, headers).await?,
            false => transfer::put_file(s3, file, &place, headers).await?,
        };
        note(format!("{place}: {} sent", size(bytes)));
        done.push(Done::moved(&place, file, bytes));
    }
    Ok(done)
}

/// The headers of an object that is put under this name.
fn headers_of(key: &str, content_type: Option<String>) -> Vec<(String, String)> {
    let kind = content_type.or_else(|| guess(key).map(str::to_owned));
    kind.map(|kind| ("content-type".to_owned(), kind)).into_iter().collect()
}

/// What browsers need to know, by the end of the name.
fn guess(key: &str) -> Option<&'static str> {
    let end = key.rsplit_once('.')?.1.to_ascii_lowercase();
    Some(match end.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "txt" | "log" | "md" => "text/plain; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "pdf" => "application/pdf",
        "xml" => "application/xml",
        "wasm" => "application/wasm",
        "gz" | "tgz" => "application/gzip",
        "zip" => "application/zip",
        "tar" => "application/x-tar",
        _ => return None,
    })
}

async fn get(session: &Session, from: Place, to: Option<PathBuf>, version: Option<&str>) -> Result<()> {
    let s3 = Transfers::new(s3(session).await?);
    if to.as_deref() == Some(Path::new("-")) {
        return transfer::get_stdout(&s3, &from, version).await;
    }
    let name = from.key.rsplit('/').next().filter(|name| !["", ".", ".."].contains(name));
    let name = name.ok_or_else(|| Failure::new("the key has no name to use here; name the file"));
    let path = match to {
        Some(path) if path.is_dir() => path.join(name?),
        Some(path) => path,
        None => PathBuf::from(name?),
    };
    let bytes = s3.run(transfer::get_file(&s3, &from, version, &path)).await?;
    note(format!("{from}: {} in {}", size(bytes), shown(&path.display().to_string())));
    told(session.format, &[Done::moved(&from, &path, bytes)])
}

const COLUMNS: [Column<Entry>; 4] = [
    Column::new("NAME", |entry| entry.key.clone()),
    Column::new("SIZE", |entry| {
        if entry.key.ends_with('/') && entry.etag.is_none() { "-".into() } else { size(entry.size) }
    }),
    Column::new("MODIFIED", |entry| entry.modified.clone().unwrap_or_else(|| "-".into())),
    Column::wide("ETAG", |entry| entry.etag.clone().unwrap_or_else(|| "-".into())),
];

async fn ls(session: &Session, at: &Place, recursive: bool) -> Result<()> {
    let s3 = s3(session).await?;
    let mut found = Vec::new();
    walk(&s3, &at.bucket, &at.key, (!recursive).then_some("/"), |item| {
        found.push(match item {
            Found::Object(entry) => entry,
            Found::Folder(key) => Entry { key, size: 0, modified: None, etag: None },
        });
        Ok(())
    })
    .await?;
    found.sort_by(|a, b| a.key.cmp(&b.key));
    output::list(session.format, &found, &COLUMNS)
}

async fn rm(
    s3: &Client,
    place: Place,
    recursive: bool,
    version: Option<&str>,
    dry_run: bool,
) -> Result<Vec<Done>> {
    let keys = match recursive {
        false => vec![place.clone().object()?.key],
        true => {
            let mut keys = Vec::new();
            walk(s3, &place.bucket, &place.key, None, |item| {
                if let Found::Object(entry) = item {
                    keys.push(entry.key);
                }
                Ok(())
            })
            .await?;
            keys
        }
    };
    if keys.is_empty() {
        note(format!("{place}: nothing to delete"));
    }
    let bucket = &place.bucket;
    let gone = keys.iter().map(|key| Done::gone(bucket, key, version)).collect();
    if dry_run {
        keys.iter()
            .for_each(|key| note(format!("{bucket}/{}: would be deleted (nothing was changed)", shown(key))));
        return Ok(gone);
    }
    if let ([key], false) = (&keys[..], recursive) {
        if version.is_none() && s3.head(bucket, key).await?.is_none() {
            return Err(Failure::new(format!("there is no object '{place}'")));
        }
        s3.delete(bucket, key, version).await?;
        note(format!("{place}: deleted"));
        return Ok(gone);
    }
    let keys: Vec<(String, Option<String>)> = keys.into_iter().map(|key| (key, None)).collect();
    for part in keys.chunks(DELETE_MAX) {
        s3.delete_many(bucket, part).await?;
        part.iter().for_each(|(key, _)| note(format!("{bucket}/{}: deleted", shown(key))));
    }
    Ok(gone)
}

async fn sync_run(session: &Session, from: &str, to: &str, terms: &sync::Terms) -> Result<()> {
    let place = |text: &str| Place::parse(text).map_err(Failure::new);
    let s3 = Transfers::new(s3(session).await?);
    let outcome = match (from.starts_with("s3://"), to.starts_with("s3://")) {
        (false, true) => s3.run(sync::up(&s3, Path::new(from), &place(to)?, terms)).await?,
        (true, false) => s3.run(sync::down(&s3, &place(from)?, Path::new(to), terms)).await?,
        _ => {
            return Err(Failure::new("one side must be a folder and the other a bucket")
                .hint("such as: banyan object sync ./site s3://web/site"));
        }
    };
    let did = if terms.dry_run { "would be " } else { "" };
    note(format!(
        "{} {did}copied ({}), {} {did}deleted, {} the same",
        outcome.copied,
        size(outcome.bytes),
        outcome.deleted,
        outcome.same
    ));
    match outcome.left_out {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of the objects cannot be files here and were left out"))
            .hint("fetch them alone with 'banyan object get' under other names")),
    }
}
