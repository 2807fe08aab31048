//! One tar entry, read out of the tar crate into what we act upon.

use std::io::Read;

use rustix::fs::{Timespec, Timestamps};

/// The only extended attribute that images need; the others are the host's business.
const PAX_CAPABILITY: &str = "SCHILY.xattr.security.capability";
/// A kind of sparse file that the tar crate would unpack wrongly.
const PAX_SPARSE: &str = "GNU.sparse.";
/// Capabilities take 24 bytes at most.
const CAPABILITY_BYTES_MAX: usize = 64;

/// What an entry asks to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Make {
    Folder,
    File,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    Fifo,
    /// A device: the runtime makes the few that a container needs.
    Device,
    /// Nothing in the file system: headers that speak of the archive.
    Nothing,
}

/// Owner, mode, time and capability of an entry.
#[derive(Debug, Clone)]
pub struct Meta {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    mtime: i64,
    pub capability: Option<Vec<u8>>,
}

impl Meta {
    pub fn times(&self) -> Timestamps {
        let time = Timespec { tv_sec: self.mtime, tv_nsec: 0 };
        Timestamps { last_access: time, last_modification: time }
    }
}

/// Reads an entry's header; the words of an error follow the entry's name.
pub fn read<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<(Make, Meta), &'static str> {
    let (capability, pax_mtime) = pax_read(entry)?;
    let header = entry.header();
    let id = |value: std::io::Result<u64>| value.ok().and_then(|id| u32::try_from(id).ok());
    let meta = Meta {
        uid: id(header.uid()).ok_or("has an owner that is not a number of 32 bits")?,
        gid: id(header.gid()).ok_or("has a group that is not a number of 32 bits")?,
        mode: header.mode().map_err(|_| "has a mode that is not a number")? & 0o7777,
        mtime: pax_mtime
            .or_else(|| header.mtime().ok().and_then(|time| i64::try_from(time).ok()))
            .unwrap_or(0),
        capability,
    };
    let kind = header.entry_type();
    let link = || entry.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default();
    let make = match kind {
        tar::EntryType::Directory => Make::Folder,
        // Archives from before there was a type for folders end their names with a slash.
        tar::EntryType::Regular if entry.path_bytes().ends_with(b"/") => Make::Folder,
        tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => Make::File,
        tar::EntryType::Symlink => Make::Symlink(link()),
        tar::EntryType::Link => Make::HardLink(link()),
        tar::EntryType::Fifo => Make::Fifo,
        tar::EntryType::Char | tar::EntryType::Block => Make::Device,
        tar::EntryType::XGlobalHeader => Make::Nothing,
        _ => return Err("is of a kind that tar layers do not have"),
    };
    Ok((make, meta))
}

/// The capability and the time out of the extended header.
fn pax_read<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<(Option<Vec<u8>>, Option<i64>), &'static str> {
    const BROKEN: &str = "has a broken extended header";
    let (mut capability, mut mtime) = (None, None);
    if let Some(extensions) = entry.pax_extensions().map_err(|_| BROKEN)? {
        for extension in extensions {
            let extension = extension.map_err(|_| BROKEN)?;
            match extension.key().map_err(|_| BROKEN)? {
                PAX_CAPABILITY if extension.value_bytes().len() > CAPABILITY_BYTES_MAX => return Err(BROKEN),
                PAX_CAPABILITY => capability = Some(extension.value_bytes().to_vec()),
                "mtime" => mtime = extension.value().ok().and_then(seconds),
                key if key.starts_with(PAX_SPARSE) => {
                    return Err("is a sparse file of a kind that is not supported");
                }
                _ => {}
            }
        }
    }
    Ok((capability, mtime))
}

/// The whole seconds of `1700000000.123`.
fn seconds(text: &str) -> Option<i64> {
    text.split('.').next()?.parse().ok()
}
