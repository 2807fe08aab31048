//! Unpacks one layer into a folder, entry by entry.
//!
//! Whiteouts become what overlayfs understands: a deleted name is a character device 0/0, a folder that hides what
//! lies beneath it carries `trusted.overlay.opaque`. An entry that tries to leave the folder refuses the whole
//! layer; skipping it would hide that the image is hostile.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::rc::Rc;

use model::image::LayerFormat;
use model::{Error, ErrorKind, Result};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr,
    futimens, linkat, mkdirat, mknodat, openat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::beneath::{Beneath, EntryName, NameError, is_kind, is_whiteout, opaque_set, opaque_set_at, stat};
use super::entry::{self, Make, Meta};
use super::reader::{Budget, CHUNK_BYTES, Metered};
use super::{LayerLimits, disk};

/// How much of a name is repeated in a refusal.
const NAME_SHOWN_MAX: usize = 200;
const WHITEOUT_PREFIX: &[u8] = b".wh.";
/// Beside other names with this prefix, which are aufs's own notes and mean nothing to us.
const WHITEOUT_OPAQUE: &[u8] = b".wh..wh..opq";
const WHITEOUT_NOTES: &[u8] = b".wh..wh.";
const XATTR_CAPABILITY: &str = "security.capability";

/// What can end an entry early.
enum Stop {
    Name(NameError),
    Read(io::Error),
}

impl From<NameError> for Stop {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Self {
        Self::Name(error.into())
    }
}

impl From<&'static str> for Stop {
    fn from(why: &'static str) -> Self {
        Self::Name(NameError::Refused(why))
    }
}

struct Unpacker {
    beneath: Beneath,
    budget: Rc<Budget>,
    /// Folders get their times last, because every file made in them changes them.
    folders: Vec<(EntryName, Meta)>,
    chunk: Vec<u8>,
}

/// Unpacks the layer in `file` into the empty folder `root`, and returns when it is on disk.
pub fn unpack(file: File, format: LayerFormat, root: &Path, what: &str, limits: &LayerLimits) -> Result<()> {
    let budget = Budget::new(limits.layer_unpacked_bytes_max);
    let reader = Metered::new(file, format, budget.clone()).map_err(|error| budget.explain(error, what))?;
    let beneath = Beneath::open(root).map_err(disk)?;
    let mut unpacker =
        Unpacker { beneath, budget: budget.clone(), folders: Vec::new(), chunk: vec![0; CHUNK_BYTES] };
    let mut archive = tar::Archive::new(reader);
    unpacker.entries(&mut archive, what, limits)?;
    // What follows the end mark is padding, but a packed stream must still be whole.
    budget.headers_end();
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|error| budget.explain(error, what))?;
    unpacker.folders_finish().map_err(|stop| explain(stop, b"", &budget, what))?;
    syncfs(unpacker.beneath.root()).map_err(disk)
}

fn explain(stop: Stop, name: &[u8], budget: &Budget, what: &str) -> Error {
    let name = &name[..name.len().min(NAME_SHOWN_MAX)];
    match stop {
        Stop::Name(NameError::Refused(why)) => {
            let shown = String::from_utf8_lossy(name);
            Error::invalid(format!("{what} is refused: its entry '{}' {why}", shown.escape_debug()))
        }
        Stop::Name(NameError::Failed(error)) => {
            let shown = String::from_utf8_lossy(name).escape_debug().to_string();
            let error = disk(error);
            Error { message: format!("{what} cannot be unpacked at '{shown}': {}", error.message), ..error }
        }
        Stop::Read(error) => budget.explain(error, what),
    }
}

impl Unpacker {
    fn entries(
        &mut self,
        archive: &mut tar::Archive<Metered>,
        what: &str,
        limits: &LayerLimits,
    ) -> Result<()> {
        let budget = self.budget.clone();
        let bad = |error: io::Error| budget.explain(error, what);
        let mut entries = archive.entries().map_err(bad)?;
        for count in 1.. {
            budget.headers_begin();
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(bad)?;
            budget.headers_end();
            if count > limits.layer_entries_max {
                let max = limits.layer_entries_max;
                return Err(Error::new(ErrorKind::TooLarge, format!("{what} holds more than {max} entries")));
            }
            self.entry(&mut entry).map_err(|stop| explain(stop, &entry.path_bytes(), &budget, what))?;
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), Stop> {
        let (make, meta) = entry::read(entry)?;
        if make == Make::Nothing {
            return self.content_skip(entry);
        }
        let name = EntryName::parse(&entry.path_bytes())?;
        let Some((parents, last)) = name.split() else {
            if make != Make::Folder {
                return Err("names the root of the layer, which is a folder".into());
            }
            self.folders.push((name, meta));
            return Ok(());
        };
        if last.starts_with(WHITEOUT_PREFIX) {
            self.whiteout(parents, last)?;
            return self.content_skip(entry);
        }
        match make {
            Make::Folder => self.folder(&name, parents, last, meta)?,
            Make::File => return self.file(entry, parents, last, &meta),
            Make::Symlink(target) => self.symlink(&target, parents, last, &meta)?,
            Make::HardLink(target) => self.hard_link(&target, parents, last)?,
            Make::Fifo => self.fifo(parents, last, &meta)?,
            Make::Device => tracing::debug!(?name, "device node skipped"),
            Make::Nothing => {}
        }
        self.content_skip(entry)
    }

    /// Reads an entry to its end, so that what lies between two entries is headers alone.
    fn content_skip<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> Result<(), Stop> {
        loop {
            match entry.read(&mut self.chunk).map_err(Stop::Read)? {
                0 => return Ok(()),
                read => self.budget.unpacked_take(read as u64).map_err(Stop::Read)?,
            }
        }
    }

    fn folder(&mut self, name: &EntryName, parents: &[Vec<u8>], last: &[u8], meta: Meta) -> Result<(), Stop> {
        let parent = self.beneath.folder_made(parents)?;
        let there = stat(parent, last)?;
        let whiteout = there.as_ref().is_some_and(is_whiteout);
        match there {
            Some(there) if is_kind(&there, FileType::Directory) => {}
            there => {
                if there.is_some() {
                    unlinkat(parent, last, AtFlags::empty())?;
                }
                mkdirat(parent, last, Mode::from_raw_mode(0o700))?;
                if whiteout {
                    opaque_set_at(parent, last)?;
                }
            }
        }
        // The mode matters to nobody before the end, and a folder closed too early would stop a plain user's node.
        self.folders.push((name.clone(), meta));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        parents: &[Vec<u8>],
        last: &[u8],
        meta: &Meta,
    ) -> Result<(), Stop> {
        let size = entry.size();
        let parent = self.room_made(parents, last)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(parent, last, flags, Mode::from_raw_mode(0o600))?);
        let mut written = 0;
        loop {
            let read = entry.read(&mut self.chunk).map_err(Stop::Read)?;
            if read == 0 {
                break;
            }
            self.budget.unpacked_take(read as u64).map_err(Stop::Read)?;
            file.write_all(&self.chunk[..read]).map_err(Stop::Read)?;
            written += read as u64;
        }
        if written < size {
            return Err(Stop::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        // A change of owner clears set-user-id bits and capabilities, so it comes first.
        fchown(&file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
        fchmod(&file, Mode::from_raw_mode(meta.mode))?;
        if let Some(capability) = &meta.capability {
            fsetxattr(&file, XATTR_CAPABILITY, capability, XattrFlags::empty())?;
        }
        Ok(futimens(&file, &meta.times())?)
    }

    /// The target stays as it is written, absolute or not: it is resolved inside the container.
    fn symlink(&mut self, target: &[u8], parents: &[Vec<u8>], last: &[u8], meta: &Meta) -> Result<(), Stop> {
        if target.is_empty() || target.contains(&0) {
            return Err("is a symbolic link to nothing".into());
        }
        let parent = self.room_made(parents, last)?;
        symlinkat(target, parent, last)?;
        Ok(owner_and_times(parent, last, meta)?)
    }

    fn hard_link(&mut self, target: &[u8], parents: &[Vec<u8>], last: &[u8]) -> Result<(), Stop> {
        const OUT: &str = "is a hard link to something that is not in the layer";
        let target = EntryName::parse(target).map_err(|_| OUT)?;
        let (target_parents, target_last) = target.split().ok_or(OUT)?;
        let from = match self.beneath.folder(target_parents) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => {
                return Err(OUT.into());
            }
            Err(error) => return Err(error.into()),
        };
        match stat(from.as_fd(), target_last)? {
            Some(there) if !is_kind(&there, FileType::Directory) => {}
            _ => return Err(OUT.into()),
        }
        if (target_parents, target_last) == (parents, last) {
            return Err("is a hard link to itself".into());
        }
        let parent = self.room_made(parents, last)?;
        Ok(linkat(&from, target_last, parent, last, AtFlags::empty())?)
    }

    fn fifo(&mut self, parents: &[Vec<u8>], last: &[u8], meta: &Meta) -> Result<(), Stop> {
        let parent = self.room_made(parents, last)?;
        mknodat(parent, last, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
        owner_and_times(parent, last, meta)?;
        // Just made by us in a folder nobody else writes in, so it is no link.
        Ok(chmodat(parent, last, Mode::from_raw_mode(meta.mode), AtFlags::empty())?)
    }

    /// A whiteout speaks of lower layers alone: what this layer itself has under the name stays.
    fn whiteout(&mut self, parents: &[Vec<u8>], last: &[u8]) -> Result<(), Stop> {
        if last == WHITEOUT_OPAQUE {
            return Ok(opaque_set(self.beneath.folder_made(parents)?)?);
        }
        if last.starts_with(WHITEOUT_NOTES) {
            return Ok(());
        }
        let hidden = &last[WHITEOUT_PREFIX.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err("is a whiteout of a name that cannot be".into());
        }
        let parent = self.beneath.folder_made(parents)?;
        match stat(parent, hidden)? {
            Some(there) if is_kind(&there, FileType::Directory) => opaque_set_at(parent, hidden)?,
            Some(_) => {}
            None => mknodat(parent, hidden, FileType::CharacterDevice, Mode::empty(), 0)?,
        }
        Ok(())
    }

    /// The parent of a name that nothing has any more: a later entry replaces an earlier one.
    fn room_made(&mut self, parents: &[Vec<u8>], last: &[u8]) -> Result<BorrowedFd<'_>, Stop> {
        let parent = self.beneath.folder_made(parents)?;
        if let Some(there) = stat(parent, last)? {
            let flags =
                if is_kind(&there, FileType::Directory) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            unlinkat(parent, last, flags).map_err(|error| match error {
                Errno::NOTEMPTY | Errno::EXIST => Stop::from("replaces a folder that is not empty"),
                other => other.into(),
            })?;
            self.beneath.forget();
        }
        Ok(self.beneath.folder_made(parents)?)
    }

    /// Gives folders their owner, mode and time, the deepest first.
    fn folders_finish(&mut self) -> Result<(), Stop> {
        self.beneath.forget();
        let mut done = std::collections::HashSet::new();
        for (name, meta) in std::mem::take(&mut self.folders).into_iter().rev() {
            let parts: Vec<Vec<u8>> = name.split().map_or_else(Vec::new, |(parents, last)| {
                parents.iter().cloned().chain([last.to_vec()]).collect()
            });
            // The last entry of a name counts. A folder that was replaced later has no use for its times.
            if !done.insert(parts.clone()) {
                continue;
            }
            let folder = match self.beneath.folder(&parts) {
                Ok(folder) => folder,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error.into()),
            };
            fchown(&folder, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))?;
            fchmod(&folder, Mode::from_raw_mode(meta.mode))?;
            futimens(&folder, &meta.times())?;
        }
        Ok(())
    }
}

fn owner_and_times(parent: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> Result<(), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    chownat(parent, name, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)), flags)?;
    utimensat(parent, name, &meta.times(), flags)
}
