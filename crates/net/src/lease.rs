//! Which instance has which address: in memory for reading, on disk before anyone is told.
//!
//! The file is written whole, to a name beside it, flushed, and moved over the
//! old one. Callers that wait at the same time share one write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::cidr::Ipv4Cidr;

const FILE_VERSION: u32 = 1;
/// Number 0 is the network's own address and 1 the gateway's.
const NUMBER_FIRST: u32 = 2;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LeaseFile {
    version: u32,
    subnet: Ipv4Cidr,
    /// Where the search for a free number goes on, so that a number that was given back rests a while.
    cursor: u32,
    leases: BTreeMap<String, u32>,
}

#[derive(Debug)]
struct Memory {
    file: LeaseFile,
    holders: BTreeMap<u32, String>,
    /// Grows with every change.
    revision: u64,
}

#[derive(Debug)]
pub struct Leases {
    path: PathBuf,
    memory: Mutex<Memory>,
    /// The revision that is on disk; held while writing.
    written: tokio::sync::Mutex<u64>,
}

/// The subnet of a lease file, when there is one that holds leases.
pub fn subnet_on_disk(path: &Path) -> Result<Option<Ipv4Cidr>> {
    Ok(file_read(path)?.map(|file| file.subnet))
}

impl Leases {
    /// Opens the leases of `subnet`. A file of another subnet that still has leases is refused.
    pub fn open(path: &Path, subnet: Ipv4Cidr) -> Result<Self> {
        let empty =
            LeaseFile { version: FILE_VERSION, subnet, cursor: NUMBER_FIRST, leases: BTreeMap::new() };
        let file = match file_read(path)? {
            Some(file) if file.subnet == subnet => file,
            Some(file) if !file.leases.is_empty() => {
                return Err(Error::conflict(format!(
                    "{} holds {} leases of the subnet {}, not of {subnet}",
                    path.display(),
                    file.leases.len(),
                    file.subnet
                ))
                .hint("another network of this host has that subnet (see: ip route show table all): free it, or, when no instance of this \
                 node runs any more, remove the file"));
            }
            _ => empty,
        };
        let mut holders = BTreeMap::new();
        for (instance, number) in &file.leases {
            let usable = (NUMBER_FIRST..=number_last(subnet)).contains(number);
            if !usable || holders.insert(*number, instance.clone()).is_some() {
                return Err(file_error(path, &format!("the lease of {instance} cannot be true")));
            }
        }
        let memory = Mutex::new(Memory { file, holders, revision: 0 });
        Ok(Self { path: path.to_owned(), memory, written: tokio::sync::Mutex::new(0) })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of `instance`, leased now when it has none; the flag says so.
    pub fn lease(&self, instance: &str) -> Result<(u32, bool)> {
        let mut memory = self.memory();
        if let Some(number) = memory.file.leases.get(instance) {
            return Ok((*number, false));
        }
        let subnet = memory.file.subnet;
        let number = free_number(&memory).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfSpace,
                format!("the subnet {subnet} is full: all {} addresses are leased", memory.holders.len()),
            )
            .hint("delete instances that are no longer needed, or give the node a wider subnet")
        })?;
        memory.file.leases.insert(instance.to_owned(), number);
        memory.holders.insert(number, instance.to_owned());
        memory.file.cursor = number + 1;
        memory.revision += 1;
        Ok((number, true))
    }

    pub fn get(&self, instance: &str) -> Option<u32> {
        self.memory().file.leases.get(instance).copied()
    }

    pub fn holder(&self, number: u32) -> Option<String> {
        self.memory().holders.get(&number).cloned()
    }

    pub fn all(&self) -> Vec<(String, u32)> {
        self.memory().file.leases.iter().map(|(instance, number)| (instance.clone(), *number)).collect()
    }

    pub fn release(&self, instance: &str) {
        let mut memory = self.memory();
        if let Some(number) = memory.file.leases.remove(instance) {
            memory.holders.remove(&number);
            memory.revision += 1;
        }
    }

    /// Returns when all that was changed before the call is on disk.
    pub async fn persist(&self) -> Result<()> {
        let wanted = self.memory().revision;
        let mut written = self.written.lock().await;
        if *written >= wanted {
            return Ok(());
        }
        let (revision, bytes) = {
            let memory = self.memory();
            (memory.revision, serde_json::to_vec(&memory.file).expect("a lease file is plain data"))
        };
        let path = self.path.clone();
        let write = tokio::task::spawn_blocking(move || file_write(&path, &bytes));
        write.await.expect("writing the leases does not panic").map_err(|error| {
            let path = self.path.display();
            let mut wrapped = Error::from(error);
            wrapped.message = format!("the leases cannot be written to {path}: {}", wrapped.message);
            wrapped
        })?;
        *written = revision;
        Ok(())
    }

    /// Removes the file; the leases are over.
    pub async fn destroy(&self) -> Result<()> {
        let _writing = self.written.lock().await;
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The last number is the broadcast address.
fn number_last(subnet: Ipv4Cidr) -> u32 {
    u32::try_from(subnet.size() - 2).unwrap_or(u32::MAX)
}

/// The next free number from the cursor on, and once round.
fn free_number(memory: &Memory) -> Option<u32> {
    let last = number_last(memory.file.subnet);
    let cursor = memory.file.cursor.clamp(NUMBER_FIRST, last);
    (cursor..=last).chain(NUMBER_FIRST..cursor).find(|number| !memory.holders.contains_key(number))
}

fn file_read(path: &Path) -> Result<Option<LeaseFile>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error(path, &error.to_string())),
    };
    let file: LeaseFile =
        serde_json::from_slice(&bytes).map_err(|error| file_error(path, &error.to_string()))?;
    if file.version != FILE_VERSION {
        return Err(file_error(path, &format!("it is of version {}, expected {FILE_VERSION}", file.version)));
    }
    Ok(Some(file))
}

fn file_error(path: &Path, what: &str) -> Error {
    Error::internal(format!("the lease file {} cannot be used: {what}", path.display()))
        .hint("remove it when no instance runs on this node any more")
}

fn file_write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn subnet() -> Ipv4Cidr {
        "10.7.0.0/29".parse().unwrap()
    }

    #[tokio::test]
    async fn leases_survive_and_are_never_given_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net/leases.json");
        let leases = Leases::open(&path, subnet()).unwrap();
        assert_eq!(leases.lease("a").unwrap(), (2, true));
        assert_eq!(leases.lease("b").unwrap(), (3, true));
        assert_eq!(leases.lease("a").unwrap(), (2, false));
        leases.persist().await.unwrap();
        drop(leases);

        let leases = Leases::open(&path, subnet()).unwrap();
        assert_eq!(leases.get("b"), Some(3));
        leases.release("a");
        assert_eq!(leases.lease("c").unwrap().0, 4, "a number that was given back rests");
        for (instance, number) in [("d", 5), ("e", 6), ("f", 2)] {
            assert_eq!(leases.lease(instance).unwrap().0, number);
        }
        let full = leases.lease("g").unwrap_err();
        assert_eq!(full.kind, ErrorKind::OutOfSpace);
        assert!(full.message.contains("10.7.0.0/29"), "{full}");
        leases.release("b");
        assert_eq!(leases.lease("g").unwrap().0, 3);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_true_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leases.json");
        for bad in [
            "",
            "{}",
            r#"{"version":9,"subnet":"10.7.0.0/29","cursor":2,"leases":{}}"#,
            r#"{"version":1,"subnet":"10.7.0.0/29","cursor":2,"leases":{"a":2,"b":2}}"#,
            r#"{"version":1,"subnet":"10.7.0.0/29","cursor":2,"leases":{"a":7}}"#,
            r#"{"version":1,"subnet":"10.8.0.0/29","cursor":2,"leases":{"a":2}}"#,
        ] {
            std::fs::write(&path, bad).unwrap();
            assert!(Leases::open(&path, subnet()).is_err(), "{bad}");
        }
        std::fs::write(&path, r#"{"version":1,"subnet":"10.8.0.0/29","cursor":9,"leases":{}}"#).unwrap();
        assert!(Leases::open(&path, subnet()).is_ok(), "an empty file of another subnet is in nobody's way");
    }

    #[tokio::test]
    async fn a_failed_write_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let leases = Leases::open(&dir.path().join("file"), subnet());
        assert!(leases.is_err(), "an empty file is no lease file");
        let leases = Leases::open(&dir.path().join("leases"), subnet()).unwrap();
        leases.lease("a").unwrap();
        std::fs::create_dir(dir.path().join("leases.new")).unwrap();
        assert!(leases.persist().await.is_err());
        std::fs::remove_dir(dir.path().join("leases.new")).unwrap();
        leases.persist().await.unwrap();
        assert_eq!(subnet_on_disk(&dir.path().join("leases")).unwrap(), Some(subnet()));
    }
}
