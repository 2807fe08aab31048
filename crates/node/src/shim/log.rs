//! The output of a container in two files of bounded size.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use crate::dir::InstanceDir;

const CHUNK: usize = 32 * 1024;

pub struct LogFile {
    dir: InstanceDir,
    file: File,
    written: u64,
    /// Half of what may be kept in all.
    limit: u64,
    starved: bool,
    buffer: Vec<u8>,
}

impl LogFile {
    /// Goes on where an earlier run ended.
    pub fn open(dir: &InstanceDir, bytes_max: u64) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(dir.log())?;
        let written = file.metadata()?.len();
        let limit = (bytes_max / 2).max(1);
        Ok(Self { dir: dir.clone(), file, written, limit, starved: false, buffer: vec![0; CHUNK] })
    }

    /// Moves what the pipe holds; false at its end. A full disk loses output and never stops the container.
    pub fn take(&mut self, from: BorrowedFd<'_>) -> io::Result<bool> {
        self.starved = false;
        match rustix::io::read(from, self.buffer.as_mut_slice()) {
            Ok(0) => Ok(false),
            Ok(count) => {
                let chunk = std::mem::take(&mut self.buffer);
                let _ = self.write(&chunk[..count]);
                self.buffer = chunk;
                Ok(true)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                self.starved = true;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The last read found nothing.
    pub const fn starved(&self) -> bool {
        self.starved
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written > 0 && self.written + bytes.len() as u64 > self.limit {
            fs::rename(self.dir.log(), self.dir.log_rotated())?;
            self.file = File::options().create(true).append(true).open(self.dir.log())?;
            self.written = 0;
        }
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
