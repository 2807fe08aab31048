//! What a tier keeps on its own disk: a small key-value file whose commits are durable.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use model::{Error, ErrorKind, Result, Timestamp};
use redb::{Database, ReadableDatabase, TableDefinition};
use sal::Reserve;
use serde::Serialize;
use serde::de::DeserializeOwned;

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("ledger");
const EPOCH: &str = "epoch";
/// Nobody but its owner reads it.
const FILE_MODE: u32 = 0o600;

/// One change to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub key: String,
    /// Absent: the key goes.
    pub value: Option<Vec<u8>>,
}

impl Write {
    pub fn put(key: String, value: &impl Serialize) -> Self {
        let value = serde_json::to_vec(value).expect("ledger values are plain data");
        Self { key, value: Some(value) }
    }

    pub fn delete(key: String) -> Self {
        Self { key, value: None }
    }
}

#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    path: PathBuf,
    /// So that also on a full disk a deletion can be kept.
    reserve: Reserve,
    /// Absent while it could not be opened again.
    database: RwLock<Option<Database>>,
}

impl Ledger {
    pub fn open(path: &Path) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        if sal::reserve::way_make(folder) {
            tracing::warn!(path = %path.display(), "the disk is full: the room that was kept is used to start with");
        }
        let database = database_open(path)?;
        let reserve = Reserve::of(folder);
        // It holds what instances were given, such as their environment.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(FILE_MODE))?;
        Ok(Self(Arc::new(Inner { path: path.to_owned(), reserve, database: RwLock::new(Some(database)) })))
    }

    /// Starts a new life: a number larger than in every earlier one, also than in those that a file knows nothing of
    /// which was put back from a copy, as long as the clock is right.
    pub fn epoch_next(&self, now: Timestamp) -> Result<u64> {
        let last: u64 = self.get(EPOCH)?.unwrap_or(0);
        let next = now.epoch().max(last.saturating_add(1));
        self.commit(vec![Write::put(EPOCH.to_owned(), &next)])?;
        Ok(next)
    }

    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let found = self.with("read", key, |database| {
            let read = database.begin_read()?;
            let Some(table) = table_open(&read)? else { return Ok(None) };
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        })?;
        found.map(|value| decode(key, &value)).transpose()
    }

    /// Everything under a prefix, by key.
    pub fn list<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<(String, T)>> {
        let found = self.with("read", prefix, |database| {
            let read = database.begin_read()?;
            let Some(table) = table_open(&read)? else { return Ok(Vec::new()) };
            let mut found = Vec::new();
            for row in table.range(prefix..)? {
                let (key, value) = row?;
                let Some(rest) = key.value().strip_prefix(prefix) else { break };
                found.push((rest.to_owned(), value.value().to_vec()));
            }
            Ok(found)
        })?;
        found.into_iter().map(|(key, value)| decode(&key, &value).map(|value| (key, value))).collect()
    }

    /// All of the writes or none, durable when this returns. Blocks on the disk.
    pub fn commit(&self, writes: Vec<Write>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let write = |database: &Database| {
            let txn = database.begin_write()?;
            {
                let mut table = txn.open_table(TABLE)?;
                for write in &writes {
                    let key = write.key.as_str();
                    match &write.value {
                        Some(value) => table.insert(key, value.as_slice()).map(drop)?,
                        None => table.remove(key).map(drop)?,
                    }
                }
            }
            Ok(txn.commit()?)
        };
        let once = || self.with("write", "transaction", write);
        let done = match once() {
            Err(error) if error.kind == ErrorKind::OutOfSpace && self.0.reserve.free() => {
                let path = self.0.path.display();
                tracing::warn!(%path, "the disk is full: the room that was kept for the ledger is used now");
                once()
            }
            done => done,
        };
        if done.is_ok() {
            self.0.reserve.make();
        }
        done
    }

    /// Does the work, once more after opening the file again: the database refuses everything after a failed
    /// write, and a disk that was full for a moment must not stop a tier for good.
    fn with<T>(
        &self,
        verb: &str,
        what: &str,
        work: impl Fn(&Database) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let once = || match self.0.database.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(database) => work(database),
            None => Err(redb::Error::PreviousIo),
        };
        let done = match once() {
            Err(redb::Error::PreviousIo) => {
                self.reopen()?;
                once()
            }
            done => done,
        };
        done.map_err(|error| failed(verb, what, error))
    }

    fn reopen(&self) -> Result<()> {
        let mut database = self.0.database.write().unwrap_or_else(PoisonError::into_inner);
        // The file can be held once only.
        *database = None;
        *database = Some(database_open(&self.0.path)?);
        tracing::info!(path = %self.0.path.display(), "the ledger was opened again after a failed write");
        Ok(())
    }

    /// As [`Ledger::commit`], off the async threads.
    pub async fn commit_async(&self, writes: Vec<Write>) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let ledger = self.clone();
        let done = tokio::task::spawn_blocking(move || ledger.commit(writes)).await;
        done.map_err(|e| Error::internal("the ledger write was interrupted").because(e))?
    }
}

fn database_open(path: &Path) -> Result<Database> {
    Database::create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => {
            Error::conflict(format!("{} is in use by another process", path.display()))
                .hint("stop the other one, or choose another data folder")
        }
        other => {
            let error = failed("open", path.display(), other);
            match error.kind {
                ErrorKind::OutOfSpace => error,
                _ => error.hint("when it is damaged, move it away: the parent tells everything again"),
            }
        }
    })
}

/// Nothing before the first commit.
fn table_open(
    read: &redb::ReadTransaction,
) -> Result<Option<redb::ReadOnlyTable<&'static str, &'static [u8]>>, redb::Error> {
    match read.open_table(TABLE) {
        Ok(table) => Ok(Some(table)),
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn decode<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| Error::internal(format!("the ledger entry {key} cannot be read")).because(e))
}

fn failed(verb: &str, what: impl std::fmt::Display, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let kind = match &error {
        redb::Error::Io(io) if io.kind() == std::io::ErrorKind::StorageFull => ErrorKind::OutOfSpace,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("the ledger cannot {verb} {what}: {error}")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system so small that it can be filled; gone with the value.
    struct Small(tempfile::TempDir);

    impl Small {
        fn new(mib: u32) -> Self {
            let dir = tempfile::tempdir().expect("temp dir");
            let mut mount = std::process::Command::new("mount");
            let mount = mount.args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"]).arg(dir.path());
            assert!(mount.status().expect("mount, of the package mount").success(), "run the tests as root");
            Self(dir)
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        }
    }

    #[test]
    fn a_disk_that_was_full_for_a_while_does_not_stop_it_for_good() {
        let small = Small::new(4);
        let path = small.0.path().join("ledger");
        let ledger = Ledger::open(&path).expect("opens");
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, FILE_MODE);
        ledger.commit(vec![Write::put("kept".into(), &1u64)]).expect("commits");
        let filler = small.0.path().join("filler");
        // Ends with the error that the disk is full.
        let _ = std::fs::write(&filler, vec![0; 4 << 20]);
        let large = "x".repeat(3 << 20);
        for _ in 0..3 {
            assert!(ledger.commit(vec![Write::put("large".into(), &large)]).is_err());
        }
        std::fs::remove_file(filler).expect("is removed");
        ledger.commit(vec![Write::put("after".into(), &2u64)]).expect("commits again");
        assert_eq!(ledger.get::<u64>("kept").expect("reads"), Some(1));
        assert_eq!(ledger.get::<u64>("after").expect("reads"), Some(2));
        assert_eq!(ledger.get::<String>("large").expect("reads"), None);
        drop(ledger);
        let ledger = Ledger::open(&path).expect("reopens");
        assert_eq!(ledger.get::<u64>("after").expect("reads"), Some(2));
    }

    #[test]
    fn a_full_disk_still_takes_what_makes_room() {
        let small = Small::new(40);
        let path = small.0.path().join("ledger");
        let ledger = Ledger::open(&path).expect("opens");
        let large = "x".repeat(1 << 20);
        ledger.commit(vec![Write::put("large".into(), &large)]).expect("commits");
        let _ = std::fs::write(small.0.path().join("filler"), vec![0; 40 << 20]);
        // More than the file has room for inside.
        ledger
            .commit(vec![Write::put("more".into(), &large), Write::delete("large".into())])
            .expect("commits");
        assert!(!small.0.path().join("reserve").exists());
        drop(ledger);
        let ledger = Ledger::open(&path).expect("reopens");
        assert_eq!(ledger.get::<String>("more").expect("reads"), Some(large));
        assert!(!small.0.path().join("reserve").exists(), "there is no room for another reserve");
    }

    #[test]
    fn a_damaged_file_is_said_and_not_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("ledger");
        let junk = vec![7; 8192];
        std::fs::write(&path, &junk).expect("writes");
        let error = Ledger::open(&path).err().expect("is refused");
        assert!(error.message.contains("ledger") && error.hint.is_some(), "{error}");
        assert_eq!(std::fs::read(&path).expect("reads"), junk);
    }

    #[test]
    fn what_is_committed_is_there_after_reopening_and_epochs_grow() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("ledger");
        let ledger = Ledger::open(&path).expect("opens");
        assert_eq!(ledger.list::<u64>("a/").expect("lists"), vec![]);
        let now = Timestamp(1_800_000_000_000_000);
        let first = ledger.epoch_next(now).expect("epoch");
        assert_eq!(first, now.epoch());
        ledger
            .commit(vec![
                Write::put("a/1".into(), &1u64),
                Write::put("a/2".into(), &2u64),
                Write::put("b/1".into(), &3u64),
            ])
            .expect("commits");
        ledger.commit(vec![Write::delete("a/1".into())]).expect("commits");
        assert!(Ledger::open(&path).is_err(), "a second holder is refused");
        drop(ledger);
        let ledger = Ledger::open(&path).expect("reopens");
        assert_eq!(ledger.list::<u64>("a/").expect("lists"), vec![("2".to_owned(), 2)]);
        assert_eq!(ledger.epoch_next(now).expect("epoch"), first + 1);
        assert_eq!(
            ledger.epoch_next(now.plus_ms(-60_000)).expect("epoch"),
            first + 2,
            "the clock was set back"
        );
        assert_eq!(ledger.epoch_next(now.plus_ms(60_000)).expect("epoch"), first + 60_000);
    }
}
