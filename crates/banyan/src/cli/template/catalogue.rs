//! A catalogue from a folder of files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use model::Fault;
use serde_json::Value;
use template::{Catalogue, Kind};

use crate::failure::{Failure, Result};

/// Largest file of a definition, a layout or a list of nodes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The provider that every cloud has: its own instances.
const OWN: &str = "banyan";
/// Most files of a catalogue.
const FILES_MAX: usize = 100_000;

/// A definition, or a whole file, that could not be read into the catalogue.
pub struct Unread {
    pub kind: Kind,
    pub source: Source,
    /// What the definition calls itself; of a file that cannot be read, what the file is called.
    pub name: String,
    /// All that is wrong with it.
    pub faults: Vec<Fault>,
}

/// Where a definition was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub file: PathBuf,
    /// Its place where the file holds several, such as `[3]`; else empty.
    pub inside: String,
}

impl Source {
    /// The file, and the field in it.
    pub fn at(&self, field: &str) -> String {
        let file = self.file.display();
        let inside = &self.inside;
        let dot = if inside.is_empty() || field.is_empty() || field.starts_with('[') { "" } else { "." };
        match format!("{inside}{dot}{field}") {
            empty if empty.is_empty() => file.to_string(),
            field => format!("{file}: {field}"),
        }
    }

    /// One thing that is wrong there.
    pub fn failure(&self, fault: &Fault) -> Failure {
        let place = self.at(fault.field.as_deref().unwrap_or_default());
        Failure { hint: fault.hint.clone(), ..Failure::new(&fault.message).at(place) }
    }
}

/// A folder as it was read.
#[derive(Default)]
pub struct Folder {
    pub catalogue: Catalogue,
    pub unread: Vec<Unread>,
    /// Where each definition stands, by kind and name.
    pub sources: BTreeMap<(Kind, String), Source>,
}

/// Reads a folder. What cannot be read is told beside the rest.
pub fn read(folder: &Path) -> Result<Folder> {
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Err(
            Failure::new(message).hint("a catalogue has folders such as clustertemplates/ and services/")
        );
    }
    let mut read = Folder::default();
    let mut seen = 0;
    for kind in Kind::ALL {
        for file in files(&folder.join(kind.folder()))? {
            seen += 1;
            if seen > FILES_MAX {
                return Err(Failure::new(format!("the catalogue has more than {FILES_MAX} files")));
            }
            read.add(kind, &file);
        }
    }
    if seen == 0 {
        let folders: Vec<String> = Kind::ALL.iter().map(|kind| format!("{}/", kind.folder())).collect();
        let message = format!("{} holds no definitions", folder.display());
        return Err(Failure::new(message).hint(format!("they are JSON files in {}", folders.join(", "))));
    }
    own_add(&mut read.catalogue)?;
    Ok(read)
}

/// Adds what a server has without being told.
fn own_add(catalogue: &mut Catalogue) -> Result<()> {
    let is_meant = catalogue.hardwaretypes.values().any(|kind| kind.flavor(OWN).is_some())
        || catalogue.imagetypes.values().any(|kind| kind.image(OWN).is_some());
    if is_meant && !catalogue.providers.contains_key(OWN) {
        catalogue.add(Kind::Provider, serde_json::json!({"name": OWN, "providertype": OWN}))?;
        if !catalogue.providertypes.is_empty() && !catalogue.providertypes.contains_key(OWN) {
            catalogue.add(Kind::ProviderType, serde_json::json!({"name": OWN}))?;
        }
    }
    Ok(())
}

/// Reads a folder of which every file must be good.
pub fn read_whole(folder: &Path) -> Result<Catalogue> {
    let Folder { catalogue, unread, .. } = read(folder)?;
    let failures =
        |one: &Unread| one.faults.iter().map(|fault| one.source.failure(fault)).collect::<Vec<_>>();
    Failure::of_many(unread.iter().flat_map(failures).collect(), "things are wrong with definitions")?;
    Ok(catalogue)
}

impl Folder {
    fn add(&mut self, kind: Kind, file: &Path) {
        let items = match items(file) {
            Ok(items) => items,
            Err(failure) => {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let source = Source { file: file.to_owned(), inside: String::new() };
                let faults = vec![Fault { field: None, message: failure.message, hint: None }];
                self.unread.push(Unread { kind, source, name, faults });
                return;
            }
        };
        for (source, item) in items {
            let called = item["name"].as_str().map(model::shown);
            match self.catalogue.add(kind, item) {
                Ok(name) => drop(self.sources.insert((kind, name), source)),
                Err(error) => {
                    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                    let name = called.unwrap_or_else(stem);
                    self.unread.push(Unread { kind, source, name, faults: error.faults() });
                }
            }
        }
    }
}

/// The definitions of a file, each with its place.
pub fn items(file: &Path) -> Result<Vec<(Source, Value)>> {
    let source = |inside| Source { file: file.to_owned(), inside };
    Ok(match json(file)? {
        Value::Array(items) => {
            items.into_iter().enumerate().map(|(place, item)| (source(format!("[{place}]")), item)).collect()
        }
        one => vec![(source(String::new()), one)],
    })
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
