//! The output of an instance as a stream: the last lines, and what follows, across rotation.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use model::{InstanceId, Result};

use crate::dir::InstanceDir;
use crate::engine::{Engine, Shared};

const CHUNK: usize = 64 * 1024;
/// How often a follower looks for more.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

impl Engine {
    /// What the instance wrote, raw and in order: all that is kept, or the last lines of it. A follower
    /// goes on until nothing more can come.
    pub async fn logs(
        &self,
        id: &InstanceId,
        follow: bool,
        tail_lines: Option<u64>,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static + use<>> {
        self.shared.look(id)?;
        let mut reader = Reader { dir: self.shared.dir(id), files: Vec::new(), current: None };
        reader.open(tail_lines)?;
        let follower = follow.then(|| (self.shared.clone(), id.clone()));
        Ok(futures::stream::unfold((reader, follower), |(mut reader, follower)| async move {
            let item = next(&mut reader, follower.as_ref()).await;
            item.map(|item| (item, (reader, follower)))
        }))
    }
}

async fn next(
    reader: &mut Reader,
    follower: Option<&(Arc<Shared>, InstanceId)>,
) -> Option<io::Result<Bytes>> {
    loop {
        // Asked first: what is written before the end is seen after it.
        let last = match follower {
            None => true,
            Some((shared, id)) => {
                shared.look(id).is_err() || shared.look(id).is_ok_and(|(_, view)| view.finished)
            }
        };
        match reader.read() {
            Ok(Some(bytes)) => return Some(Ok(bytes)),
            Ok(None) if last => return None,
            Ok(None) => tokio::time::sleep(FOLLOW_PAUSE).await,
            Err(error) => return Some(Err(error)),
        }
    }
}

struct Reader {
    dir: InstanceDir,
    /// Still to be read, next one last.
    files: Vec<File>,
    current: Option<File>,
}

impl Reader {
    /// Opens what is kept, at the beginning or so many lines before the end.
    fn open(&mut self, tail_lines: Option<u64>) -> io::Result<()> {
        // The newer one first: if it is rotated in between, both names lead to the same file.
        let newer = open_if_there(&self.dir.log())?;
        let older = open_if_there(&self.dir.log_rotated())?;
        let older = older.filter(|file| newer.as_ref().is_none_or(|newer| !same(file, newer)));
        let mut lines = tail_lines.unwrap_or(u64::MAX);
        for mut file in [newer, older].into_iter().flatten() {
            let (offset, found) = tail_offset(&file, lines)?;
            file.seek(SeekFrom::Start(offset))?;
            self.files.push(file);
            lines -= found.min(lines);
            if lines == 0 {
                break;
            }
        }
        self.current = self.files.pop();
        Ok(())
    }

    /// The next bytes, or nothing when there are none yet.
    fn read(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if self.current.is_none() && !self.advance()? {
                return Ok(None);
            }
            if let Some(bytes) = self.chunk()? {
                return Ok(Some(bytes));
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let Some(file) = &mut self.current else { return Ok(None) };
        let mut buffer = vec![0; CHUNK];
        let count = file.read(&mut buffer)?;
        buffer.truncate(count);
        Ok((count > 0).then(|| buffer.into()))
    }

    /// Goes on to the file that follows, when there is one.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(next) = self.files.pop() {
            self.current = Some(next);
            return Ok(true);
        }
        let Some(newer) = open_if_there(&self.dir.log())? else { return Ok(false) };
        let Some(current) = &mut self.current else {
            self.current = Some(newer);
            return Ok(true);
        };
        if same(current, &newer) {
            return Ok(false);
        }
        let older = open_if_there(&self.dir.log_rotated())?;
        // Rotated more than once since the last look: the file in between comes first.
        let missed = older.filter(|older| !same(older, current) && !same(older, &newer));
        self.files = [Some(newer), missed].into_iter().flatten().collect();
        // The shim may have written between the last read and the rotation; one more read finds it.
        let position = current.stream_position()?;
        if current.metadata()?.len() > position {
            return Ok(true);
        }
        self.current = self.files.pop();
        Ok(true)
    }
}

fn open_if_there(path: &std::path::Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn same(one: &File, other: &File) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// Where the last `lines` lines begin, and how many lines lie after that place.
fn tail_offset(file: &File, lines: u64) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    if lines == u64::MAX {
        return Ok((0, 0));
    }
    if lines == 0 {
        return Ok((length, 0));
    }
    let (mut end, mut found) = (length, 0);
    let mut buffer = vec![0; CHUNK];
    while end > 0 {
        let start = end.saturating_sub(CHUNK as u64);
        let part = &mut buffer[..usize::try_from(end - start).expect("a chunk fits")];
        file.read_exact_at(part, start)?;
        for at in (0..part.len()).rev() {
            // The newline that ends the file ends its last line and begins none.
            if part[at] == b'\n' && start + at as u64 + 1 != length {
                found += 1;
                if found == lines {
                    return Ok((start + at as u64 + 1, found));
                }
            }
        }
        end = start;
    }
    Ok((0, if length > 0 { found + 1 } else { 0 }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reader(dir: &std::path::Path, tail: Option<u64>) -> Reader {
        let mut reader = Reader { dir: InstanceDir::new(dir), files: Vec::new(), current: None };
        reader.open(tail).unwrap();
        reader
    }

    fn all(reader: &mut Reader) -> String {
        let mut text = String::new();
        while let Some(bytes) = reader.read().unwrap() {
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        text
    }

    #[test]
    fn the_tail_reaches_into_the_rotated_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log.1"), "a\nb\nc\n").unwrap();
        std::fs::write(dir.path().join("log"), "d\ne").unwrap();
        for (tail, text) in [
            (None, "a\nb\nc\nd\ne"),
            (Some(0), ""),
            (Some(1), "e"),
            (Some(2), "d\ne"),
            (Some(4), "b\nc\nd\ne"),
        ] {
            assert_eq!(all(&mut reader(dir.path(), tail)), text, "{tail:?}");
        }
        assert_eq!(all(&mut reader(dir.path(), Some(99))), "a\nb\nc\nd\ne");
    }

    #[test]
    fn following_survives_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let (log, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut reader = reader(dir.path(), None);
        assert_eq!(all(&mut reader), "");
        std::fs::write(&log, "one ").unwrap();
        assert_eq!(all(&mut reader), "one ");
        std::fs::write(&log, "one two ").unwrap();
        std::fs::rename(&log, &rotated).unwrap();
        std::fs::write(&log, "three ").unwrap();
        assert_eq!(all(&mut reader), "two three ");
        std::fs::rename(&log, &rotated).unwrap();
        std::fs::write(&log, "four ").unwrap();
        std::fs::rename(&log, &rotated).unwrap();
        std::fs::write(&log, "five").unwrap();
        assert_eq!(all(&mut reader), "four five");
    }
}
