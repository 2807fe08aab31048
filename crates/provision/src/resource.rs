//! Files of plugins, as staged here: `FOLDER/KIND/NAME`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::task::Fault;

/// Bytes of one resource that are sent to a machine.
const SIZE_MAX: u64 = 256 << 20;

/// The resources of one tenant for one plugin.
#[derive(Debug, Clone)]
pub struct Resources {
    folder: PathBuf,
}

impl Resources {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn file(&self, kind: &str, name: &str) -> Result<Bytes, Fault> {
        let is_name = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !is_name(kind) || !is_name(name) {
            return Err(Fault::invalid(format!("'{}' is no name of a resource", model::shown(name))));
        }
        let missing =
            |why: String| Fault::invalid(format!("the resource '{name}' of {kind} cannot be read: {why}"));
        let file = File::open(self.folder.join(kind).join(name)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => missing("it is not staged; upload and stage it".to_owned()),
            _ => missing(error.to_string()),
        })?;
        let mut bytes = Vec::new();
        file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(|error| missing(error.to_string()))?;
        if bytes.len() as u64 > SIZE_MAX {
            return Err(missing(format!("it is larger than {} MiB", SIZE_MAX >> 20)));
        }
        Ok(bytes.into())
    }
}
