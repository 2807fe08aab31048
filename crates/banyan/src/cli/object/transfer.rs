//! Files to objects and back, with progress.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object::client::Client;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use super::remote::{self, Place, Transfers};
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;

/// Larger files go in parts.
const WHOLE_MAX: u64 = 64 << 20;
const PART_MIN: u64 = 16 << 20;
const PARTS_MAX: u64 = 10_000;
/// Parts on their way at once.
const PARALLEL: usize = 4;
const TRIES: u32 = 3;
const CHUNK: usize = 256 << 10;
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;
/// How much of a name that is too long is told.
const NAME_SHOWN: usize = 40;

fn at(path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", remote::shown(&path.display().to_string())))
}

/// Sends a file. `-` is not a file: see [`put_stdin`].
pub async fn put_file(
    s3: &Transfers,
    from: &Path,
    to: &Place,
    headers: Vec<(String, String)>,
) -> Result<u64> {
    let meta = tokio::fs::metadata(from).await.map_err(|error| at(from, error))?;
    if meta.is_dir() {
        return Err(Failure::new(format!("{} is a folder", from.display()))
            .hint(format!("banyan object sync {} s3://{to}", from.display())));
    }
    if !meta.is_file() {
        // A pipe or a device does not know its length.
        let file = tokio::fs::File::open(from).await.map_err(|error| at(from, error))?;
        return put_stream(s3, file, to, headers).await;
    }
    let length = meta.len();
    let sent = Arc::new(AtomicU64::new(0));
    let all = AtomicU64::new(length);
    shown(&to.to_string(), &all, &sent, put_counted(s3, from, to, headers, &sent)).await
}

/// Sends a file that knows its length, counting what was sent.
pub async fn put_counted(
    s3: &Transfers,
    from: &Path,
    to: &Place,
    headers: Vec<(String, String)>,
    sent: &Arc<AtomicU64>,
) -> Result<u64> {
    let length = tokio::fs::metadata(from).await.map_err(|error| at(from, error))?.len();
    if length <= WHOLE_MAX {
        whole(s3, from, to, length, headers, sent).await?;
    } else {
        parts(s3, from, to, length, headers, sent).await?;
    }
    Ok(length)
}

/// Runs `work` and shows meanwhile how far it is. `all` is 0 while nobody knows how much there is.
pub async fn shown<T>(
    what: &str,
    all: &AtomicU64,
    done: &AtomicU64,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut progress = Progress::new(what);
    tokio::pin!(work);
    let mut tick = tokio::time::interval(SHOW_EVERY);
    let answer = loop {
        tokio::select! {
            answer = &mut work => break answer,
            _ = tick.tick() => {
                let all = Some(all.load(Ordering::Relaxed)).filter(|all| *all > 0);
                progress.bytes(done.load(Ordering::Relaxed), all);
            }
        }
    };
    progress.clear();
    answer
}

async fn whole(
    s3: &Client,
    from: &Path,
    to: &Place,
    length: u64,
    headers: Vec<(String, String)>,
    sent: &Arc<AtomicU64>,
) -> Result<()> {
    let file = tokio::fs::File::open(from).await.map_err(|error| at(from, error))?;
    let sent = sent.clone();
    let stream = tokio_util::io::ReaderStream::with_capacity(file, CHUNK).inspect_ok(move |chunk| {
        sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
    });
    s3.put(&to.bucket, &to.key, length, headers, stream).await?;
    Ok(())
}

async fn parts(
    s3: &Transfers,
    from: &Path,
    to: &Place,
    length: u64,
    headers: Vec<(String, String)>,
    sent: &AtomicU64,
) -> Result<()> {
    let size = PART_MIN.max(length.div_ceil(PARTS_MAX).next_multiple_of(1 << 20));
    let upload = s3.upload_begin(to, headers).await?;
    let count = length.div_ceil(size);
    let send = |index: u64| {
        let upload = &upload;
        async move {
            let body = read(from, index * size, size.min(length - index * size)).await?;
            let number = u32::try_from(index + 1).map_err(|_| Failure::new("too many parts"))?;
            let mut tries = 0;
            loop {
                tries += 1;
                match s3.upload_part(&to.bucket, &to.key, upload, number, body.clone()).await {
                    Ok(etag) => {
                        sent.fetch_add(body.len() as u64, Ordering::Relaxed);
                        return Ok::<_, Failure>(etag);
                    }
                    Err(error) if tries == TRIES => return Err(error.into()),
                    Err(_) => tokio::time::sleep(Duration::from_secs(u64::from(tries))).await,
                }
            }
        }
    };
    let etags: Result<Vec<String>> = stream::iter(0..count).map(send).buffered(PARALLEL).try_collect().await;
    s3.upload_end(to, &upload, etags).await
}

async fn read(from: &Path, offset: u64, length: u64) -> Result<Bytes> {
    let mut file = tokio::fs::File::open(from).await.map_err(|error| at(from, error))?;
    file.seek(std::io::SeekFrom::Start(offset)).await.map_err(|error| at(from, error))?;
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| Failure::new("a part is too large"))?];
    file.read_exact(&mut bytes).await.map_err(|error| at(from, error))?;
    Ok(bytes.into())
}

/// Sends standard input, in parts unless it is short.
pub async fn put_stdin(s3: &Transfers, to: &Place, headers: Vec<(String, String)>) -> Result<u64> {
    put_stream(s3, tokio::io::stdin(), to, headers).await
}

async fn put_stream(
    s3: &Transfers,
    input: impl tokio::io::AsyncRead + Unpin,
    to: &Place,
    headers: Vec<(String, String)>,
) -> Result<u64> {
    let sent = AtomicU64::new(0);
    let work = stream_counted(s3, input, to, headers, &sent);
    shown(&to.to_string(), &AtomicU64::new(0), &sent, work).await
}

async fn stream_counted(
    s3: &Transfers,
    mut input: impl tokio::io::AsyncRead + Unpin,
    to: &Place,
    headers: Vec<(String, String)>,
    sent: &AtomicU64,
) -> Result<u64> {
    let first = part_of(&mut input).await?;
    if (first.len() as u64) < PART_MIN {
        let length = first.len() as u64;
        s3.put(&to.bucket, &to.key, length, headers, stream::iter([Ok(first)])).await?;
        return Ok(length);
    }
    let upload = s3.upload_begin(to, headers).await?;
    let mut total = 0;
    let etags: Result<Vec<String>> = async {
        let (mut etags, mut part) = (Vec::new(), first);
        while !part.is_empty() {
            total += part.len() as u64;
            let number = u32::try_from(etags.len() + 1).unwrap_or(u32::MAX);
            let last = (part.len() as u64) < PART_MIN;
            etags.push(s3.upload_part(&to.bucket, &to.key, &upload, number, part).await?);
            sent.store(total, Ordering::Relaxed);
            part = if last { Bytes::new() } else { part_of(&mut input).await? };
        }
        Ok(etags)
    }
    .await;
    s3.upload_end(to, &upload, etags).await?;
    Ok(total)
}

/// The next part of an input, shorter only at its end.
async fn part_of(input: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<Bytes> {
    let mut part = Vec::new();
    let read = input.take(PART_MIN).read_to_end(&mut part).await;
    read.map_err(|error| Failure::new(error.to_string()))?;
    Ok(part.into())
}

/// Fetches into a file that appears only when it is whole.
pub async fn get_file(s3: &Client, from: &Place, version: Option<&str>, to: &Path) -> Result<u64> {
    let (done, all) = (AtomicU64::new(0), AtomicU64::new(0));
    let told = |length| all.store(length, Ordering::Relaxed);
    shown(&from.to_string(), &all, &done, get_counted(s3, from, version, to, &done, told)).await
}

/// The same, counting what was fetched. `told` hears how much there is.
pub async fn get_counted(
    s3: &Client,
    from: &Place,
    version: Option<&str>,
    to: &Path,
    done: &AtomicU64,
    told: impl Fn(u64),
) -> Result<u64> {
    if let Some(folder) = to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        tokio::fs::create_dir_all(folder).await.map_err(|error| at(folder, error))?;
    }
    check_name(to)?;
    let draft = Draft::beside(to);
    let length = fetch(s3, from, version, &draft.0, done, told).await?;
    tokio::fs::rename(&draft.0, to).await.map_err(|error| at(to, error))?;
    Ok(length)
}

/// A file that is being fetched. It goes with the command, however that ends, unless it got its name.
struct Draft(PathBuf);

impl Draft {
    fn beside(to: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mark = format!(".part-{}", std::process::id());
        let mut name = to.file_name().unwrap_or_default().to_owned();
        if name.len() + mark.len() > NAME_MAX {
            name = format!(".{}", COUNT.fetch_add(1, Ordering::Relaxed)).into();
        }
        name.push(mark);
        Self(to.with_file_name(name))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Keys may be longer than names of files.
fn check_name(to: &Path) -> Result<()> {
    let name = to.file_name().unwrap_or_default();
    if name.len() <= NAME_MAX {
        return Ok(());
    }
    let start: String = name.to_string_lossy().chars().take(NAME_SHOWN).collect();
    let start = remote::shown(&start);
    Err(Failure::new(format!("'{start}…' is longer than the name of a file may be ({NAME_MAX} bytes)"))
        .hint("give the file a name of its own: banyan object get BUCKET/KEY FILE"))
}

async fn fetch(
    s3: &Client,
    from: &Place,
    version: Option<&str>,
    draft: &Path,
    done: &AtomicU64,
    told: impl Fn(u64),
) -> Result<u64> {
    let mut file = tokio::fs::File::create(draft).await.map_err(|error| at(draft, error))?;
    let response = s3.get(&from.bucket, &from.key, None, version).await?;
    let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let total = response.content_length();
    total.into_iter().for_each(told);
    let mut response = Some(response);
    let mut tries = 0;
    let mut have = 0;
    loop {
        let next = match response.take() {
            Some(first) => first,
            None => {
                // The rest of another object that has its name by now would not fit.
                let rest = (have > 0).then(|| (have, etag.as_deref().unwrap_or("*")));
                s3.get(&from.bucket, &from.key, rest, version).await?
            }
        };
        let mut stream = next.bytes_stream();
        let broke = loop {
            match stream.next().await {
                Some(Ok(chunk)) => {
                    file.write_all(&chunk).await.map_err(|error| at(draft, error))?;
                    have += chunk.len() as u64;
                    done.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        if total.is_none_or(|total| have >= total) && broke.is_none() {
            file.flush().await.map_err(|error| at(draft, error))?;
            return Ok(have);
        }
        tries += 1;
        if tries == TRIES {
            return Err(Failure::new(format!("{from}: the transfer broke off after {have} bytes")));
        }
        tokio::time::sleep(Duration::from_secs(u64::from(tries))).await;
    }
}

/// Writes an object to standard output.
pub async fn get_stdout(s3: &Client, from: &Place, version: Option<&str>) -> Result<()> {
    let response = s3.get(&from.bucket, &from.key, None, version).await?;
    let mut stream = response.bytes_stream();
    let mut out = tokio::io::stdout();
    while let Some(chunk) = stream.next().await {
        let chunk =
            chunk.map_err(|error| Failure::new(format!("{from}: the transfer broke off: {error}")))?;
        if let Err(error) = out.write_all(&chunk).await {
            return written(Err(error));
        }
    }
    written(out.flush().await)
}

/// A reader that went away, as `head` does, is no error.
fn written(done: std::io::Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_has_a_name_that_fits_and_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        for length in [1, 240, NAME_MAX] {
            let to = folder.path().join("n".repeat(length));
            check_name(&to).expect("a file may have it");
            let draft = Draft::beside(&to);
            assert_ne!(draft.0, to);
            std::fs::write(&draft.0, "half").expect("it is written");
            drop(draft);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
        let failure = check_name(&folder.path().join("n".repeat(NAME_MAX + 1))).expect_err("too long");
        assert!(failure.hint.is_some());
    }
}
