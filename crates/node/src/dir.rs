//! The directory of one instance: the only place where each of its files is named.
//!
//! ```text
//! data/instances/<id>/
//!   record.json     what the engine decided and saw; written before it acts
//!   plan.json       what the shim is to do
//!   config.json     the OCI bundle, written by the shim
//!   l/ upper/ work/ rootfs/       the overlay; mounted only inside the shim's mount namespace
//!   etc/            hosts, hostname and resolv.conf
//!   log log.1       output
//!   lock            held by the living shim
//!   shim.pid ctl started.json exit.json runtime.log
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longer files of ours than this were not written by us.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceDir(PathBuf);

impl InstanceDir {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn record(&self) -> PathBuf {
        self.file("record.json")
    }

    pub fn plan(&self) -> PathBuf {
        self.file("plan.json")
    }

    pub fn config(&self) -> PathBuf {
        self.file("config.json")
    }

    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    pub fn log_rotated(&self) -> PathBuf {
        self.file("log.1")
    }

    pub fn lock(&self) -> PathBuf {
        self.file("lock")
    }

    pub fn shim_pid(&self) -> PathBuf {
        self.file("shim.pid")
    }

    pub fn control(&self) -> PathBuf {
        self.file("ctl")
    }

    pub fn started(&self) -> PathBuf {
        self.file("started.json")
    }

    pub fn exit(&self) -> PathBuf {
        self.file("exit.json")
    }

    pub fn runtime_log(&self) -> PathBuf {
        self.file("runtime.log")
    }

    pub fn rootfs(&self) -> PathBuf {
        self.file("rootfs")
    }

    /// Forgets the last run of the shim. Only while no shim lives.
    pub fn run_files_remove(&self) -> io::Result<()> {
        for path in
            [self.shim_pid(), self.control(), self.started(), self.exit(), self.runtime_log(), self.config()]
        {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Replaces a file in one step. With `durable` it is also on the disk when this returns.
pub fn file_replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(parent) if durable => File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

pub fn json_write(path: &Path, value: &impl Serialize, durable: bool) -> io::Result<()> {
    file_replace(path, &serde_json::to_vec(value)?, durable)
}

/// The value in a file, or nothing when there is no such file.
pub fn json_read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}
