//! Names beneath a layer's folder, resolved by the kernel so that none can lead out of it.
//!
//! Parents are opened with `openat2` and `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`; what is made or removed is then
//! named by a single component relative to that descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags, fchmod, fsetxattr, mkdirat, openat,
    openat2, statat, unlinkat,
};
use rustix::io::Errno;

/// Deeper than any real file system, shallow enough to be removed again without many descriptors.
const DEPTH_MAX: usize = 256;
/// Of folders that no entry describes.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const XATTR_OPAQUE: &str = "trusted.overlay.opaque";

/// A clean relative name, as its parts. Empty for the layer's root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryName {
    parts: Vec<Vec<u8>>,
}

/// Why a name cannot be used.
#[derive(Debug)]
pub enum NameError {
    /// The image is at fault; the words follow the entry's name.
    Refused(&'static str),
    /// The system is.
    Failed(Errno),
}

impl From<Errno> for NameError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::LOOP => Self::Refused("goes through a symbolic link"),
            Errno::XDEV => Self::Refused("leads out of the layer"),
            Errno::NOTDIR => Self::Refused("goes through something that is not a folder"),
            Errno::NAMETOOLONG => Self::Refused("has a name that is too long"),
            other => Self::Failed(other),
        }
    }
}

impl EntryName {
    pub fn parse(raw: &[u8]) -> Result<Self, NameError> {
        if raw.starts_with(b"/") {
            return Err(NameError::Refused("has an absolute name"));
        }
        if raw.contains(&0) {
            return Err(NameError::Refused("has a zero byte in its name"));
        }
        let mut parts = Vec::new();
        for part in raw.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err(NameError::Refused("has '..' in its name")),
                part => parts.push(part.to_vec()),
            }
        }
        if parts.len() > DEPTH_MAX {
            return Err(NameError::Refused("lies too deep"));
        }
        Ok(Self { parts })
    }

    /// The folder's parts and the last one; nothing for the root.
    pub fn split(&self) -> Option<(&[Vec<u8>], &[u8])> {
        self.parts.split_last().map(|(last, parents)| (parents, last.as_slice()))
    }
}

/// A layer's folder. Nobody else writes in it while it is unpacked.
pub struct Beneath {
    root: OwnedFd,
    /// The parent of the entry before, because entries come folder by folder.
    last: Option<(Vec<Vec<u8>>, OwnedFd)>,
}

impl Beneath {
    pub fn open(path: &std::path::Path) -> Result<Self, Errno> {
        Ok(Self { root: openat(CWD, path, FOLDER, Mode::empty())?, last: None })
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Forgets the remembered parent; to be called when a name is taken away.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// The folder of these parts, which must be there.
    pub fn folder(&self, parts: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
        let path = if parts.is_empty() { b".".to_vec() } else { parts.join(&b'/') };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.root, path.as_slice(), FOLDER, Mode::empty(), resolve)
    }

    /// The folder of these parts, with those that no entry made made now.
    pub fn folder_made(&mut self, parts: &[Vec<u8>]) -> Result<BorrowedFd<'_>, NameError> {
        if self.last.as_ref().is_none_or(|(known, _)| known != parts) {
            let folder = match self.folder(parts) {
                Err(Errno::NOENT | Errno::NOTDIR) => self.folder_create(parts)?,
                other => other?,
            };
            self.last = Some((parts.to_vec(), folder));
        }
        let (_, folder) = self.last.as_ref().expect("was set above");
        Ok(folder.as_fd())
    }

    fn folder_create(&self, parts: &[Vec<u8>]) -> Result<OwnedFd, NameError> {
        let mut folder = self.folder(&[])?;
        for part in parts {
            folder = match openat(&folder, part.as_slice(), FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => folder_new(&folder, part, false)?,
                Err(Errno::NOTDIR | Errno::LOOP) => match stat(folder.as_fd(), part)? {
                    // The lower layers' folder was deleted, and this one takes its place.
                    Some(there) if is_whiteout(&there) => {
                        unlinkat(&folder, part.as_slice(), AtFlags::empty())?;
                        folder_new(&folder, part, true)?
                    }
                    Some(there) if is_kind(&there, FileType::Symlink) => return Err(Errno::LOOP.into()),
                    _ => return Err(Errno::NOTDIR.into()),
                },
                Err(error) => return Err(error.into()),
            };
        }
        Ok(folder)
    }
}

/// Makes a folder that no entry describes; `opaque` when it hides what lies beneath it.
fn folder_new(parent: &OwnedFd, name: &[u8], opaque: bool) -> Result<OwnedFd, Errno> {
    mkdirat(parent, name, FOLDER_MODE)?;
    let folder = openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    // Whatever the process's umask is.
    fchmod(&folder, FOLDER_MODE)?;
    if opaque {
        opaque_set(folder.as_fd())?;
    }
    Ok(folder)
}

/// What lies under a name of a folder, without following links.
pub fn stat(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn is_kind(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// What overlayfs takes for a deleted name.
pub fn is_whiteout(stat: &Stat) -> bool {
    is_kind(stat, FileType::CharacterDevice) && stat.st_rdev == 0
}

/// Opens a folder by its name in another and makes it hide what lies beneath it.
pub fn opaque_set_at(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    opaque_set(openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?.as_fd())
}

pub fn opaque_set(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    fsetxattr(folder, XATTR_OPAQUE, b"y", XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned_or_refused() {
        let clean = |raw: &str| EntryName::parse(raw.as_bytes()).ok().map(|name| name.parts.join(&b'/'));
        assert_eq!(clean("./a//b/").as_deref(), Some(b"a/b".as_slice()));
        assert_eq!(clean("./").as_deref(), Some(b"".as_slice()));
        assert_eq!(clean("a..b/..c").as_deref(), Some(b"a..b/..c".as_slice()));
        for bad in ["/a", "..", "a/../b", "a/..", "./../a", "a\0b", &"a/".repeat(DEPTH_MAX + 1)] {
            assert_eq!(clean(bad), None, "{bad:?}");
        }
    }
}
