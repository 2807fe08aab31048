//! A catalogue from a folder of files.

use std::path::{Path, PathBuf};

use serde_json::Value;
use template::{Catalogue, Kind};

use crate::failure::{Failure, Result};

/// Largest file of a definition, a layout or a list of nodes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The provider that every cloud has: its own instances.
const OWN: &str = "banyan";
/// Most files of a catalogue.
const FILES_MAX: usize = 100_000;

/// A file that could not be read into the catalogue.
pub struct Unread {
    pub kind: Kind,
    pub file: PathBuf,
    pub failure: Failure,
}

/// Reads a folder. What cannot be read is told beside the rest.
pub fn read(folder: &Path) -> Result<(Catalogue, Vec<Unread>)> {
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Err(
            Failure::new(message).hint("a catalogue has folders such as clustertemplates/ and services/")
        );
    }
    let mut catalogue = Catalogue::default();
    let mut unread = Vec::new();
    let mut seen = 0;
    for kind in Kind::ALL {
        for file in files(&folder.join(kind.folder()))? {
            seen += 1;
            if seen > FILES_MAX {
                return Err(Failure::new(format!("the catalogue has more than {FILES_MAX} files")));
            }
            if let Err(failure) = add(&mut catalogue, kind, &file) {
                let failure = failure.at(file.display().to_string());
                unread.push(Unread { kind, file, failure });
            }
        }
    }
    if seen == 0 {
        let folders: Vec<String> = Kind::ALL.iter().map(|kind| format!("{}/", kind.folder())).collect();
        let message = format!("{} holds no definitions", folder.display());
        return Err(Failure::new(message).hint(format!("they are JSON files in {}", folders.join(", "))));
    }
    // A server has it without being told.
    let is_meant = catalogue.hardwaretypes.values().any(|kind| kind.flavor(OWN).is_some())
        || catalogue.imagetypes.values().any(|kind| kind.image(OWN).is_some());
    if is_meant && !catalogue.providers.contains_key(OWN) {
        catalogue.add(Kind::Provider, serde_json::json!({"name": OWN, "providertype": OWN}))?;
        if !catalogue.providertypes.is_empty() && !catalogue.providertypes.contains_key(OWN) {
            catalogue.add(Kind::ProviderType, serde_json::json!({"name": OWN}))?;
        }
    }
    Ok((catalogue, unread))
}

/// Reads a folder of which every file must be good.
pub fn read_whole(folder: &Path) -> Result<Catalogue> {
    let (catalogue, unread) = read(folder)?;
    Failure::of_many(
        unread.into_iter().map(|unread| unread.failure).collect(),
        "definitions cannot be read",
    )?;
    Ok(catalogue)
}

fn add(catalogue: &mut Catalogue, kind: Kind, file: &Path) -> Result<()> {
    let items = match json(file)? {
        Value::Array(items) => items,
        one => vec![one],
    };
    for item in items {
        catalogue.add(kind, item)?;
    }
    Ok(())
}

/// The JSON files of a folder by name; none when there is no such folder.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::new(format!("{} cannot be read: {error}", folder.display()))),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|extension| extension == "json") && !hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file as JSON.
pub fn json(file: &Path) -> Result<Value> {
    let cannot = |error: std::io::Error| Failure::new(format!("{} cannot be read: {error}", file.display()));
    let size = std::fs::metadata(file).map_err(cannot)?.len();
    if size > FILE_BYTES_MAX {
        return Err(Failure::new(format!("{} is larger than {} MiB", file.display(), FILE_BYTES_MAX >> 20)));
    }
    let bytes = std::fs::read(file).map_err(cannot)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::new(format!("{} is no JSON: {error}", file.display())))
}
