//! The overlay root of a container, and paths that cannot lead out of it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::MountFlags;

use crate::dir::InstanceDir;

/// Mounts `layers` under the instance's own upper directory. The mount options have room for a
/// page only, so the layers go by short names relative to the instance's directory.
pub fn mount(dir: &InstanceDir, layers: &[PathBuf]) -> io::Result<()> {
    std::env::set_current_dir(dir.path())?;
    for name in ["upper", "work", "rootfs"] {
        directory_make(Path::new(name))?;
    }
    let _ = fs::remove_dir_all("l");
    directory_make(Path::new("l"))?;
    let mut lower = Vec::with_capacity(layers.len());
    for (at, layer) in layers.iter().enumerate().rev() {
        let name = format!("l/{at}");
        symlink(layer, &name)?;
        lower.push(name);
    }
    let options = format!("lowerdir={},upperdir=upper,workdir=work", lower.join(":"));
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    rustix::mount::mount("overlay", "rootfs", "overlay", MountFlags::empty(), options.as_c_str())?;
    Ok(())
}

/// The root of a container is seen by users other than root, whatever the umask of the node is.
fn directory_make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// A root file system whose links never lead out of it.
pub struct Root(OwnedFd);

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens a regular file for reading; nothing when there is none.
    pub fn file(&self, path: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.resolve(Path::new(path), flags) {
            Ok(fd) => {
                let file = File::from(fd);
                Ok(file.metadata()?.is_file().then_some(file))
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory and those above it where they are missing.
    pub fn directory(&self, path: &Path) -> io::Result<()> {
        let mut done = PathBuf::from("/");
        for part in path.components() {
            if part == Component::ParentDir {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has '..' in it"));
            }
            let Component::Normal(name) = part else { continue };
            let parent = self.resolve(&done, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
            match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            done.push(name);
        }
        self.outside_proc(&done)
    }

    /// A runtime may stand in `/proc` with descriptors open that lead to the host (CVE-2024-21626).
    fn outside_proc(&self, path: &Path) -> io::Result<()> {
        let name = |fd: &OwnedFd| fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let found = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        if name(&found)?.starts_with(name(&self.0)?.join("proc")) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it leads into /proc"));
        }
        Ok(())
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.0, path, flags, Mode::empty(), inside)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_work_directory_never_leads_out_of_the_image_nor_into_proc() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink("/proc/self/fd", dir.path().join("sly")).unwrap();
        symlink(outside.path(), dir.path().join("away")).unwrap();
        fs::create_dir_all(dir.path().join("proc/self/fd/7")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        root.directory(Path::new("/srv/app")).unwrap();
        assert!(dir.path().join("srv/app").is_dir());
        for path in ["/proc", "/proc/self/fd/7", "/sly/7", "/srv/../proc/self/fd/7"] {
            assert!(root.directory(Path::new(path)).is_err(), "{path}");
        }
        let _ = root.directory(Path::new("/away/made"));
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
