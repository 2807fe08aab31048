//! Files of plugins, as staged here: `FOLDER/KIND/NAME`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

use crate::task::Fault;

/// Bytes of one resource that are sent to a machine.
const SIZE_MAX: u64 = 256 << 20;

/// Whether this is one part of a path and leads nowhere else.
pub(crate) fn is_name(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('.')
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// A file in memory, for all tasks that send it at the same time.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Which file: one that is staged anew is another.
type Key = (u64, u64, u64, i64, i64);

/// What is in memory at the moment. A thousand machines that get an archive at once get the same bytes.
static HELD: Mutex<Option<HashMap<Key, Weak<Vec<u8>>>>> = Mutex::new(None);

fn held(file: &File) -> std::io::Result<Bytes> {
    let facts = file.metadata()?;
    let key = (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec());
    // Whoever wants the same file waits until it is read.
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let held = held.get_or_insert_default();
    if let Some(bytes) = held.get(&key).and_then(Weak::upgrade) {
        return Ok(Bytes::from_owner(Shared(bytes)));
    }
    let mut bytes = Vec::new();
    file.take(SIZE_MAX + 1).read_to_end(&mut bytes)?;
    let bytes = Arc::new(bytes);
    held.retain(|_, other| other.strong_count() > 0);
    held.insert(key, Arc::downgrade(&bytes));
    Ok(Bytes::from_owner(Shared(bytes)))
}

/// Files of a tenant that are staged but could not be fetched, by their paths, and why.
pub type Absent = BTreeMap<String, String>;

/// The resources of one tenant for one plugin.
#[derive(Debug, Clone)]
pub struct Resources {
    folder: PathBuf,
    /// By kind and name: those of this plugin that are to be here and are not.
    absent: Absent,
}

impl Resources {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, absent: Absent::new() }
    }

    /// Those of a plugin such as `automatortypes/shell`, in the folder of a tenant.
    pub(crate) fn of(staged: &Path, plugin: &str, absent: &Absent) -> Self {
        let own = absent.iter().filter_map(|(path, why)| {
            let path = path.strip_prefix(plugin)?.strip_prefix('/')?;
            Some((path.to_owned(), why.clone()))
        });
        Self { folder: staged.join(plugin), absent: own.collect() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder for one who may read all of it: everything must be there.
    pub fn whole(&self) -> Result<&Path, Fault> {
        self.present("")?;
        Ok(&self.folder)
    }

    /// Whether what begins like this is here as it should be. An older version may lie in its place.
    fn present(&self, prefix: &str) -> Result<(), Fault> {
        match self.absent.iter().find(|(path, _)| path.starts_with(prefix)) {
            None => Ok(()),
            Some((path, why)) => Err(Fault {
                is_passing: true,
                ..Fault::failed(format!("the file '{path}' cannot be fetched: {why}"))
            }),
        }
    }

    /// All that is staged of a kind, by name.
    pub fn names(&self, kind: &str) -> Result<Vec<String>, Fault> {
        self.present(&format!("{kind}/"))?;
        let entries = match std::fs::read_dir(self.folder.join(kind)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(Fault::failed(format!("the resources of {kind} cannot be read: {error}")));
            }
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
        names.sort();
        Ok(names)
    }

    pub fn file(&self, kind: &str, name: &str) -> Result<Bytes, Fault> {
        if !is_name(kind) || !is_name(name) {
            return Err(Fault::invalid(format!("'{}' is no name of a resource", model::shown(name))));
        }
        if let Some(why) = self.absent.get(&format!("{kind}/{name}")) {
            let message = format!("the file '{kind}/{name}' cannot be fetched: {why}");
            return Err(Fault { is_passing: true, ..Fault::failed(message) });
        }
        let missing =
            |why: String| Fault::invalid(format!("the resource '{name}' of {kind} cannot be read: {why}"));
        let file = File::open(self.folder.join(kind).join(name)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing("it is not staged; upload and stage it".to_owned()),
            _ => missing(error.to_string()),
        })?;
        let bytes = held(&file).map_err(|error| missing(error.to_string()))?;
        if bytes.len() as u64 > SIZE_MAX {
            return Err(missing(format!("it is larger than {} MiB", SIZE_MAX >> 20)));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_send_the_same_file_share_it_and_one_that_is_staged_anew_is_another() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("scripts")).unwrap();
        let at = folder.path().join("scripts/a.sh");
        std::fs::write(&at, "first").unwrap();
        let resources = Resources::new(folder.path().to_owned());
        let of = || resources.file("scripts", "a.sh").unwrap();
        let (one, two) = (of(), of());
        assert_eq!((one.as_ptr(), &one[..]), (two.as_ptr(), &b"first"[..]));
        std::fs::write(folder.path().join("new"), "other").unwrap();
        std::fs::rename(folder.path().join("new"), &at).unwrap();
        assert_eq!((&of()[..], &one[..]), (&b"other"[..], &b"first"[..]));
    }
}
