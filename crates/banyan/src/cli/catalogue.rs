//! `banyan catalogue list|get|apply|export|delete`: what clusters are made from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::{CatalogueChange, CatalogueWrite, Definition, Entities, ListQuery};
use clap::{Args, Subcommand};
use serde_json::Value;
use template::Kind;

use super::template::catalogue::{files, json};
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::age_now;
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};

const AFTER_HELP: &str = "\
A catalogue is a folder with clustertemplates/, services/, providers/ and so on, of one JSON file per definition.

Examples:
  banyan catalogue apply -f ./catalogue
  banyan catalogue apply -f ./catalogue/services/nginx.json
  banyan catalogue list --kind services
  banyan catalogue get clustertemplates web
  banyan catalogue export --to ./copy";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// All definitions.
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this kind, such as services.
        #[arg(long, value_name = "KIND", value_parser = kind)]
        kind: Option<Kind>,
    },
    /// One definition.
    #[command(visible_alias = "show")]
    Get {
        /// Kind, such as services or clustertemplates.
        #[arg(value_parser = kind)]
        kind: Kind,
        /// Name.
        name: String,
        /// An earlier number of it.
        #[arg(long, value_name = "N")]
        number: Option<u64>,
    },
    /// Write definitions from folders and files: all of them, or none.
    Apply {
        /// Folder in the layout of a catalogue, a file in one of its folders, or an export; may be repeated.
        #[arg(short, long = "from", value_name = "PATH", required = true)]
        from: Vec<PathBuf>,
        /// Delete what is not named.
        #[arg(long)]
        replace: bool,
        /// Only say what would change.
        #[arg(long)]
        dry_run: bool,
    },
    /// Everything, as one JSON document or as a folder. Secrets are not in it.
    Export {
        /// Folder to write.
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Delete a definition that no other needs.
    #[command(visible_alias = "rm")]
    Delete {
        /// Kind, such as services or clustertemplates.
        #[arg(value_parser = kind)]
        kind: Kind,
        /// Name.
        name: String,
    },
}

fn kind(text: &str) -> std::result::Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| {
        let folder = kind.folder();
        folder == text || folder.strip_suffix('s') == Some(text)
    });
    let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.folder()).collect();
    found.ok_or_else(|| format!("'{text}' is no kind: write {}", all.join(", ")))
}

const COLUMNS: [Column<Definition>; 5] = [
    Column::new("NAME", |d| format!("{}/{}", d.kind, d.name)),
    Column::new("NUMBER", |d| if d.number == 0 { "built in".to_owned() } else { d.number.to_string() }),
    Column::new("DESCRIPTION", |d| d.entity["description"].as_str().unwrap_or_default().to_owned()),
    Column::new("CHANGED", |d| d.changed_at.map(|at| format!("{} ago", age_now(at))).unwrap_or_default()),
    Column::new("BY", |d| d.changed_by.clone().unwrap_or_default()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::List { kind } => {
            let query = match kind {
                Some(kind) => ListQuery::new().with("kind", kind.folder()),
                None => ListQuery::new(),
            };
            let fetch = |query: ListQuery| async move { client.definition_list(&query).await };
            output::list(session.format, &all(query, None, fetch).await?, &COLUMNS)
        }
        Verb::Get { kind, name, number } => {
            let found = client.definition_get(kind.folder(), &name, number).await?;
            match session.format {
                Format::Table | Format::Wide => data(&pretty(&found.entity)?),
                format => output::item(format, &found, &name, |_, _| Vec::new()),
            }
        }
        Verb::Apply { from, replace, dry_run } => {
            let entities = gather(&from)?;
            let change = client.catalogue_write(&CatalogueWrite { entities, replace, dry_run }).await?;
            told(session, &change, dry_run)
        }
        Verb::Export { to } => {
            let all = client.catalogue_export().await?;
            match to {
                Some(folder) => write(&folder, &all),
                None => data(&pretty(&serde_json::to_value(&all).unwrap_or_default())?),
            }
        }
        Verb::Delete { kind, name } => {
            client.definition_delete(kind.folder(), &name, None).await?;
            note(format!("{}/{name}: deleted", kind.folder()));
            Ok(())
        }
    }
}

fn pretty(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::new(error.to_string()))
}

fn told(session: &Session, change: &CatalogueChange, dry_run: bool) -> Result<()> {
    change.warnings.iter().for_each(|warning| note(format!("warning: {warning}")));
    if !matches!(session.format, Format::Table | Format::Wide | Format::Name) {
        return output::item(session.format, change, "", |_, _| Vec::new());
    }
    let would = if dry_run { "would be " } else { "" };
    let lines = [("created", &change.created), ("changed", &change.changed), ("deleted", &change.deleted)];
    let text: String = lines
        .iter()
        .flat_map(|(word, names)| names.iter().map(move |name| format!("{name}: {would}{word}\n")))
        .collect();
    data(&text)?;
    note(format!("{} unchanged", change.unchanged));
    Ok(())
}

/// All definitions that the paths hold, by the folder they belong in.
fn gather(paths: &[PathBuf]) -> Result<Entities> {
    let mut all = BTreeMap::new();
    for path in paths {
        if path.is_dir() {
            folder(path, &mut all)?;
        } else {
            file(path, &mut all)?;
        }
    }
    match all.values().any(|list: &Vec<Value>| !list.is_empty()) {
        true => Ok(Entities(all)),
        false => {
            let folders: Vec<&str> = Kind::ALL.iter().map(|kind| kind.folder()).collect();
            Err(Failure::new("there are no definitions")
                .hint(format!("they are JSON files in the folders {}", folders.join(", "))))
        }
    }
}

/// A whole catalogue, or one of its folders.
fn folder(path: &Path, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    if let Some(kind) = kind_of(path) {
        return files(path)?.iter().try_for_each(|file| add(file, kind, all));
    }
    for kind in Kind::ALL {
        for file in files(&path.join(kind.folder()))? {
            add(&file, kind, all)?;
        }
    }
    Ok(())
}

/// A definition in one of the folders of a catalogue, or an export.
fn file(path: &Path, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(kind) = whole.parent().and_then(kind_of) {
        return add(path, kind, all);
    }
    let exported = match json(path)? {
        Value::Object(map) if map.keys().all(|key| Kind::ALL.iter().any(|kind| kind.folder() == key)) => map,
        _ => {
            return Err(Failure::new(format!("it cannot be seen of which kind {} is", path.display()))
                .hint("put it into a folder such as services/, or give an export"));
        }
    };
    for (folder, list) in exported {
        match list {
            Value::Array(items) => all.entry(folder).or_default().extend(items),
            _ => return Err(Failure::new(format!("'{folder}' in {} is no list", path.display()))),
        }
    }
    Ok(())
}

fn kind_of(folder: &Path) -> Option<Kind> {
    let name = folder.file_name()?.to_str()?;
    Kind::ALL.into_iter().find(|kind| kind.folder() == name)
}

fn add(file: &Path, kind: Kind, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    let list = all.entry(kind.folder().to_owned()).or_default();
    match json(file)? {
        Value::Array(items) => list.extend(items),
        one => list.push(one),
    }
    Ok(())
}

/// One file per definition, in the layout of a catalogue.
fn write(to: &Path, all: &Entities) -> Result<()> {
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::new(format!("{} cannot be written: {error}", path.display()))
    };
    let mut count = 0;
    for (folder, items) in &all.0 {
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.folder() == folder) else { continue };
        let folder = to.join(kind.folder());
        std::fs::create_dir_all(&folder).map_err(|error| cannot(&folder, error))?;
        for item in items {
            let name = item["name"].as_str().unwrap_or_default();
            let path = folder.join(format!("{}.json", file_name(name)));
            std::fs::write(&path, pretty(item)?).map_err(|error| cannot(&path, error))?;
            count += 1;
        }
    }
    note(format!("{count} definitions are in {}", to.display()));
    Ok(())
}

/// A name of a definition as a name of a file.
fn file_name(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let text: String = name.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    text.trim_start_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn folders_files_and_exports_are_read_and_written_alike() {
        let dir = tempfile::tempdir().unwrap();
        let services = dir.path().join("services");
        std::fs::create_dir_all(&services).unwrap();
        std::fs::write(services.join("a.json"), r#"{"name": "a"}"#).unwrap();
        std::fs::write(services.join("b.json"), r#"[{"name": "b"}, {"name": "c/d"}]"#).unwrap();
        std::fs::write(dir.path().join("README.json"), "{}").unwrap();
        let whole = gather(&[dir.path().to_owned()]).unwrap();
        assert_eq!(whole.0["services"].len(), 3);
        assert_eq!(gather(std::slice::from_ref(&services)).unwrap(), whole);
        assert_eq!(gather(&[services.join("a.json")]).unwrap().0["services"].len(), 1);
        let export = dir.path().join("export.json");
        std::fs::write(&export, serde_json::to_string(&whole).unwrap()).unwrap();
        assert_eq!(gather(&[export]).unwrap(), whole);
        let copy = dir.path().join("copy");
        write(&copy, &whole).unwrap();
        assert!(copy.join("services/c_d.json").exists());
        assert_eq!(gather(&[copy]).unwrap().0["services"].len(), 3);
        let other = dir.path().join("other.json");
        std::fs::write(&other, r#"{"name": "x"}"#).unwrap();
        assert!(gather(&[other]).unwrap_err().message.contains("of which kind"));
        assert!(gather(&[dir.path().join("none")]).is_err());
    }

    #[test]
    fn kinds_are_named_by_their_folders() {
        assert_eq!(kind("services"), Ok(Kind::Service));
        assert_eq!(kind("clustertemplate"), Ok(Kind::ClusterTemplate));
        assert!(kind("things").unwrap_err().contains("providers"));
    }
}
