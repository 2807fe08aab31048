//! The index: one redb table, written at checkpoints only.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use serde::{Deserialize, Serialize};

use super::api::EngineError;
use super::layers::Changes;

const RECORDS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
const FILE: &str = "index";
/// The layout of everything on disk.
pub(super) const FORMAT: u32 = 2;
/// Pages that redb keeps in memory.
const CACHE: usize = 12 << 20;

/// What a checkpoint covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The layout of the data on disk.
    pub format: u32,
    /// Written into every group; nobody outside knows it, so no content passes for a group.
    pub salt: u64,
    /// Where the journal goes on after what the index holds.
    pub segment: u64,
    pub offset: u64,
    /// The number of the next group.
    pub group: u64,
    /// The latest time a change has seen.
    pub time: i64,
    /// The next blob.
    pub next: u64,
    /// From here on there may be files that no record names.
    pub open: u64,
}

/// The index as of a checkpoint.
pub(super) struct Base(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl Base {
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.0.get(key).map_err(failed)?.map(|value| value.value().to_vec()))
    }

    pub fn range(&self, range: &Range<Vec<u8>>) -> Result<BaseRange, EngineError> {
        Ok(BaseRange(self.0.range::<&[u8]>(range.start.as_slice()..range.end.as_slice()).map_err(failed)?))
    }

    /// The last key of a range.
    pub fn last(&self, range: &Range<Vec<u8>>) -> Result<Option<Vec<u8>>, EngineError> {
        let mut entries =
            self.0.range::<&[u8]>(range.start.as_slice()..range.end.as_slice()).map_err(failed)?;
        Ok(entries.next_back().transpose().map_err(failed)?.map(|(key, _)| key.value().to_vec()))
    }
}

pub(super) struct BaseRange(redb::Range<'static, &'static [u8], &'static [u8]>);

type Guard = redb::AccessGuard<'static, &'static [u8]>;

impl Iterator for BaseRange {
    type Item = Result<(Guard, Guard), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map_err(failed))
    }
}

/// An open database. One that failed is kept, without writing, while someone still reads from it.
struct Handle {
    database: Database,
    retired: Arc<AtomicBool>,
    base: Weak<Base>,
}

pub(super) struct Index {
    path: PathBuf,
    handle: Option<Handle>,
    retired: Vec<Handle>,
}

impl Index {
    /// Opens or makes the index.
    pub fn open(folder: &Path) -> Result<(Self, Mark), EngineError> {
        let path = folder.join(FILE);
        let fresh = !path.exists();
        let handle = open(&path)?;
        if fresh {
            File::open(folder)?.sync_all()?;
        }
        let mut index = Self { path, handle: Some(handle), retired: Vec::new() };
        let mark = match index.mark()? {
            Some(mark) => mark,
            None => {
                let mark = Mark { format: FORMAT, salt: rand::random(), next: 1, open: 1, ..Mark::default() };
                index.apply(&Changes::new(), &mark)?;
                mark
            }
        };
        if mark.format != FORMAT {
            return Err(EngineError::Index(format!("format {} is not known to this version", mark.format)));
        }
        Ok((index, mark))
    }

    fn database(&self) -> Result<&Database, EngineError> {
        self.handle.as_ref().map(|handle| &handle.database).ok_or(EngineError::Stopped)
    }

    fn mark(&self) -> Result<Option<Mark>, EngineError> {
        let read = self.database()?.begin_read().map_err(failed)?;
        let table = match read.open_table(STATE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let Some(value) = table.get("mark").map_err(failed)? else { return Ok(None) };
        postcard::from_bytes(value.value()).map(Some).map_err(|error| EngineError::Index(error.to_string()))
    }

    /// Makes changes durable, together with the mark. A database that fails takes no more writes, so the file is
    /// opened anew; its pages are not written before the last reader of the old one is gone.
    pub fn apply(&mut self, changes: &Changes, mark: &Mark) -> Result<(), EngineError> {
        self.retired.retain(|handle| handle.base.strong_count() > 0);
        if !self.retired.is_empty() {
            return Err(EngineError::Index("a reader still uses the index from before its failure".into()));
        }
        if self.handle.is_none() {
            self.handle = Some(open(&self.path)?);
        }
        let result = self.write(changes, mark);
        if result.is_err()
            && let Some(handle) = self.handle.take()
        {
            handle.retired.store(true, Ordering::Release);
            self.retired.push(handle);
            self.handle = open(&self.path).ok();
        }
        result
    }

    fn write(&self, changes: &Changes, mark: &Mark) -> Result<(), EngineError> {
        let mut write = self.database()?.begin_write().map_err(failed)?;
        write.set_durability(Durability::Immediate).map_err(failed)?;
        // Opening after a crash then does not walk the whole index.
        write.set_quick_repair(true);
        {
            let mut records = write.open_table(RECORDS).map_err(failed)?;
            for (key, value) in changes {
                match value {
                    Some(value) => records.insert(key.as_ref(), value.as_ref()).map_err(failed)?,
                    None => records.remove(key.as_ref()).map_err(failed)?,
                };
            }
            let mark = postcard::to_stdvec(mark).expect("a mark encodes");
            let mut state = write.open_table(STATE).map_err(failed)?;
            state.insert("mark", mark.as_slice()).map_err(failed)?;
        }
        write.commit().map_err(failed)
    }

    /// The index as it is now.
    pub fn base(&mut self) -> Result<Arc<Base>, EngineError> {
        let read = self.database()?.begin_read().map_err(failed)?;
        let base = Arc::new(Base(read.open_table(RECORDS).map_err(failed)?));
        if let Some(handle) = &mut self.handle {
            handle.base = Arc::downgrade(&base);
        }
        Ok(base)
    }
}

fn open(path: &Path) -> Result<Handle, EngineError> {
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let retired = Arc::new(AtomicBool::new(false));
    let backend = IndexFile { file, retired: retired.clone() };
    let database = redb::Builder::new().set_cache_size(CACHE).create_with_backend(backend).map_err(failed)?;
    Ok(Handle { database, retired, base: Weak::new() })
}

fn failed(error: impl Into<redb::Error>) -> EngineError {
    match error.into() {
        redb::Error::Io(error) => EngineError::Io(error),
        error => EngineError::Index(error.to_string()),
    }
}

/// The file of the index. The engine as a whole is locked, so that this can be opened anew beside one that failed.
#[derive(Debug)]
struct IndexFile {
    file: File,
    retired: Arc<AtomicBool>,
}

impl IndexFile {
    fn writable(&self) -> io::Result<&File> {
        if self.retired.load(Ordering::Acquire) {
            return Err(io::Error::other("this handle of the index is retired"));
        }
        Ok(&self.file)
    }
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?.write_all_at(data, offset)
    }
}
