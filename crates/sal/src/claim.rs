//! Names of this host that belong to one process at a time, and to what that process leaves running.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// Files that vanish while they are taken; it is tried again so often.
const TRIES_MAX: usize = 16;

/// A name that is ours until this is dropped.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

/// Who has a name already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A process that runs, with the folder it runs on.
    Process { pid: String, folder: PathBuf },
    /// Nobody runs, but what was started from this folder still uses the name.
    Left { folder: PathBuf },
}

impl Claim {
    /// Takes the name `key` for what lives in `folder`. `used` says whether something on this host still uses it, for
    /// when it was last taken for another folder that is still there.
    pub fn take(
        dir: &Path,
        key: &str,
        folder: &Path,
        used: impl Fn() -> bool,
    ) -> io::Result<Result<Self, Holder>> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(key.replace('/', "%"));
        for _ in 0..TRIES_MAX {
            let mut file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            let (pid, before) = text.split_once('\n').unwrap_or((&text, ""));
            let before = PathBuf::from(before.trim_end());
            if !locked {
                return Ok(Err(Holder::Process { pid: pid.to_owned(), folder: before }));
            }
            // Somebody may have deleted it between our look and our lock.
            if std::fs::metadata(&path).map(|found| found.ino()).ok() != Some(file.metadata()?.ino()) {
                continue;
            }
            let others = before != folder && before.is_dir();
            if others && used() {
                return Ok(Err(Holder::Left { folder: before }));
            }
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}\n{}\n", std::process::id(), folder.display())?;
            return Ok(Ok(Self { file, path }));
        }
        Err(io::Error::other(format!("{} comes and goes", path.display())))
    }

    /// Gives the name back for good: nothing uses it any more.
    pub fn end(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)?;
        drop(self.file);
        Ok(())
    }
}

/// The number of a namespace of this process (`net`, `cgroup`), for names that each namespace has for itself.
pub fn namespace_id(kind: &str) -> u64 {
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |found| found.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_has_one_holder_and_what_it_left_running_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (locks, one, two) = (dir.path().join("run"), dir.path().join("one"), dir.path().join("two"));
        std::fs::create_dir_all(&one).unwrap();
        let take = |folder: &Path, used: bool| Claim::take(&locks, "bridge-b", folder, || used).unwrap();
        let held = take(&one, true).unwrap();
        let pid = std::process::id().to_string();
        assert_eq!(take(&two, false).unwrap_err(), Holder::Process { pid, folder: one.clone() });
        drop(held);
        assert_eq!(take(&two, true).unwrap_err(), Holder::Left { folder: one.clone() });
        drop(take(&one, true).expect("it finds its own again"));
        drop(take(&two, false).expect("nothing uses it any more"));
        drop(take(&one, true).expect("the other folder is not there"));
        take(&one, true).unwrap().end().unwrap();
        take(&two, true).expect("it was given back").end().unwrap();
        assert_eq!(std::fs::read_dir(&locks).unwrap().count(), 0);
    }

    #[test]
    fn a_namespace_has_a_number() {
        assert_ne!(namespace_id("net"), 0);
    }
}
