//! `banyan catalogue list|get|apply|export|delete`: what clusters are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use api::{CatalogueChange, CatalogueWrite, Definition, Entities, ListQuery};
use clap::{Args, Subcommand};
use serde_json::Value;
use template::{Catalogue, Kind};

use super::template::catalogue::{Source, files, items, json};
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
        /// Kind, such as services or clustertemplates, or KIND/NAME.
        #[arg(value_parser = named)]
        kind: Named,
        /// Name.
        name: Option<String>,
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
        /// Leave out definitions that are wrong, and those that need them; write the others, and end with exit code 1.
        #[arg(long, conflicts_with = "replace")]
        keep_going: bool,
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
        /// Kind, such as services or clustertemplates, or KIND/NAME.
        #[arg(value_parser = named)]
        kind: Named,
        /// Name.
        name: Option<String>,
    },
}

/// A kind, with the name behind it where a list is copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named(Kind, Option<String>);

fn named(text: &str) -> std::result::Result<Named, String> {
    match text.split_once('/') {
        Some((folder, name)) if !name.is_empty() => Ok(Named(kind(folder)?, Some(name.to_owned()))),
        _ => Ok(Named(kind(text.trim_end_matches('/'))?, None)),
    }
}

impl Named {
    /// The definition, with a name that may stand beside it.
    fn with(self, beside: Option<String>) -> Result<(Kind, String)> {
        let Self(kind, own) = self;
        match (own, beside) {
            (Some(name), None) | (None, Some(name)) => Ok((kind, name)),
            _ => Err(Failure::new("a definition is named once, as KIND NAME or as KIND/NAME")
                .hint(format!("such as: banyan catalogue get {} NAME", kind.folder()))),
        }
    }
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
            let (kind, name) = kind.with(name)?;
            let found = client.definition_get(kind.folder(), &name, number).await?;
            match session.format {
                Format::Table | Format::Wide => data(&pretty(&found.entity)?),
                format => output::item(format, &found, &name, |_, _| Vec::new()),
            }
        }
        Verb::Apply { from, keep_going: true, dry_run, .. } => keep_going(session, &from, dry_run).await,
        Verb::Apply { from, replace, dry_run, .. } => {
            let Gathered { entities, sources } = gather(&from)?;
            let written = client.catalogue_write(&CatalogueWrite { entities, replace, dry_run }).await;
            let mut change = written.map_err(|error| sources.told(error))?;
            change.warnings.iter_mut().for_each(|warning| sources.place(&mut warning.field));
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
            let (kind, name) = kind.with(name)?;
            client.definition_delete(kind.folder(), &name, None).await?;
            note(format!("{}/{name}: deleted", kind.folder()));
            Ok(())
        }
    }
}

/// Writes what is not refused. What is left out is told, and is a failure in the end.
async fn keep_going(session: &Session, from: &[PathBuf], dry_run: bool) -> Result<()> {
    let (mut all, mut failures) = read(from)?;
    failures.extend(all.leave_out_flaws());
    while !all.is_empty() {
        let write = CatalogueWrite { entities: all.entities.clone(), replace: false, dry_run };
        match session.client.catalogue_write(&write).await {
            Ok(mut change) => {
                change.warnings.iter_mut().for_each(|warning| all.sources.place(&mut warning.field));
                told(session, &change, dry_run)?;
                break;
            }
            Err(error) => {
                let refused = all.refused(&error);
                if refused.is_empty() {
                    // It is no matter of single definitions.
                    return Err(all.sources.told(error));
                }
                failures.extend(all.leave_out(&refused, &error.faults()));
            }
        }
    }
    Failure::of_many(failures, "things are wrong with definitions that were left out")
}

fn pretty(value: &Value) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|error| Failure::new(error.to_string()))
}

fn told(session: &Session, change: &CatalogueChange, dry_run: bool) -> Result<()> {
    change.warnings.iter().for_each(|warning| note(format!("warning: {}", api::read::line(warning))));
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

/// The folder and the place of the definition that a field of a write is in, and the field in it.
fn placed(field: &str) -> Option<(&str, usize, &str)> {
    let (folder, rest) = field.strip_prefix("entities.")?.split_once('[')?;
    let (place, rest) = rest.split_once(']')?;
    Some((folder, place.parse().ok()?, rest))
}

/// Where the definitions of a write were read, by folder and place in the write.
#[derive(Debug, Default)]
struct Sources(BTreeMap<String, Vec<Source>>);

impl Sources {
    /// Makes a field of the request one of a file.
    fn place(&self, field: &mut Option<String>) {
        let found = field.as_deref().and_then(|field| {
            let (folder, place, rest) = placed(field)?;
            let source = self.0.get(folder)?.get(place)?;
            Some(source.at(rest.trim_start_matches('.')))
        });
        if found.is_some() {
            *field = found;
        }
    }

    /// What the server refused, in the words of files.
    fn told(&self, mut error: model::Error) -> Failure {
        self.place(&mut error.field);
        error.more.iter_mut().for_each(|fault| self.place(&mut fault.field));
        error.into()
    }
}

/// A folder, and a place in the list of its definitions.
type Place = (String, usize);

/// Definitions, and where they were read.
#[derive(Debug, Default)]
struct Gathered {
    entities: Entities,
    sources: Sources,
}

/// All definitions that the paths hold, by the folder they belong in. What cannot be read is told of all files at once.
fn gather(paths: &[PathBuf]) -> Result<Gathered> {
    let (all, mut failures) = read(paths)?;
    failures.extend(all.flaws().into_iter().map(|(_, failure)| failure));
    Failure::of_many(failures, "things are wrong with definitions")?;
    Ok(all)
}

/// The definitions of files that can be read, and why the others cannot.
fn read(paths: &[PathBuf]) -> Result<(Gathered, Vec<Failure>)> {
    let mut all = Gathered::default();
    let mut failures = Vec::new();
    for path in paths {
        if path.is_dir() {
            folder(path, &mut all, &mut failures)?;
        } else if let Err(failure) = file(path, &mut all) {
            failures.push(failure);
        }
    }
    if failures.is_empty() && all.is_empty() {
        let folders: Vec<&str> = Kind::ALL.iter().map(|kind| kind.folder()).collect();
        return Err(Failure::new("there are no definitions")
            .hint(format!("they are JSON files in the folders {}", folders.join(", "))));
    }
    Ok((all, failures))
}

/// A whole catalogue, or one of its folders.
fn folder(path: &Path, all: &mut Gathered, failures: &mut Vec<Failure>) -> Result<()> {
    let kinds = kind_of(path).map_or_else(
        || Kind::ALL.map(|kind| (kind, path.join(kind.folder()))).into(),
        |kind| vec![(kind, path.to_owned())],
    );
    for (kind, folder) in kinds {
        failures.extend(files(&folder)?.iter().filter_map(|file| all.add(file, kind).err()));
    }
    Ok(())
}

/// A definition in one of the folders of a catalogue, or an export.
fn file(path: &Path, all: &mut Gathered) -> Result<()> {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Some(kind) = whole.parent().and_then(kind_of) {
        return all.add(path, kind);
    }
    let exported = match json(path)? {
        Value::Object(map) if map.keys().all(|key| Kind::ALL.iter().any(|kind| kind.folder() == key)) => map,
        _ => {
            return Err(Failure::new(format!("it cannot be seen of which kind {} is", path.display()))
                .hint("put it into a folder such as services/, or give an export"));
        }
    };
    for (folder, list) in exported {
        let Value::Array(items) = list else {
            return Err(Failure::new(format!("'{folder}' in {} is no list", path.display())));
        };
        for (place, item) in items.into_iter().enumerate() {
            let source = Source { file: path.to_owned(), inside: format!("{folder}[{place}]") };
            all.push(&folder, source, item);
        }
    }
    Ok(())
}

fn kind_of(folder: &Path) -> Option<Kind> {
    let name = folder.file_name()?.to_str()?;
    Kind::ALL.into_iter().find(|kind| kind.folder() == name)
}

impl Gathered {
    fn add(&mut self, file: &Path, kind: Kind) -> Result<()> {
        for (source, item) in items(file)? {
            self.push(kind.folder(), source, item);
        }
        Ok(())
    }

    fn push(&mut self, folder: &str, source: Source, item: Value) {
        self.entities.0.entry(folder.to_owned()).or_default().push(item);
        self.sources.0.entry(folder.to_owned()).or_default().push(source);
    }

    fn is_empty(&self) -> bool {
        self.entities.0.values().all(Vec::is_empty)
    }

    /// What is wrong with definitions each by itself, so that it is told together with files that are no JSON.
    fn flaws(&self) -> Vec<(Place, Failure)> {
        let mut flaws = Vec::new();
        for kind in Kind::ALL {
            let mut catalogue = Catalogue::default();
            let items = self.entities.0.get(kind.folder()).into_iter().flatten();
            let sources = self.sources.0.get(kind.folder()).into_iter().flatten();
            for (at, (item, source)) in items.zip(sources).enumerate() {
                let faults = catalogue.add(kind, item.clone()).err().map(|error| error.faults());
                let faults = faults.into_iter().flatten();
                flaws.extend(faults.map(|fault| ((kind.folder().to_owned(), at), source.failure(&fault))));
            }
        }
        flaws
    }

    /// Takes out what is wrong by itself, and says why.
    fn leave_out_flaws(&mut self) -> Vec<Failure> {
        let (places, failures): (BTreeSet<Place>, Vec<Failure>) = self.flaws().into_iter().unzip();
        self.take_out(&places);
        failures
    }

    /// The definitions that a write was refused for.
    fn refused(&self, error: &model::Error) -> BTreeSet<Place> {
        let place = |fault: model::Fault| {
            let (folder, at, _) = placed(fault.field.as_deref()?)?;
            self.sources.0.get(folder)?.get(at)?;
            Some((folder.to_owned(), at))
        };
        error.faults().into_iter().filter_map(place).collect()
    }

    /// Takes out definitions, and says what of the faults is about them.
    fn leave_out(&mut self, places: &BTreeSet<Place>, faults: &[model::Fault]) -> Vec<Failure> {
        let told = |fault: &model::Fault| {
            let (folder, at, rest) = placed(fault.field.as_deref()?)?;
            let source = self.sources.0.get(folder)?.get(at)?;
            let field = Some(rest.trim_start_matches('.').to_owned());
            Some(source.failure(&model::Fault { field, ..fault.clone() }))
        };
        let failures = faults.iter().filter_map(told).collect();
        self.take_out(places);
        failures
    }

    fn take_out(&mut self, places: &BTreeSet<Place>) {
        for (folder, at) in places.iter().rev() {
            if let Some(list) = self.entities.0.get_mut(folder) {
                list.remove(*at);
            }
            if let Some(list) = self.sources.0.get_mut(folder) {
                list.remove(*at);
            }
        }
    }
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
        std::fs::write(services.join("b.json"), r#"[{"name": "b"}, {"name": "c"}]"#).unwrap();
        std::fs::write(dir.path().join("README.json"), "{}").unwrap();
        let whole = gather(&[dir.path().to_owned()]).unwrap();
        assert_eq!(whole.entities.0["services"].len(), 3);
        assert_eq!(gather(std::slice::from_ref(&services)).unwrap().entities, whole.entities);
        assert_eq!(gather(&[services.join("a.json")]).unwrap().entities.0["services"].len(), 1);
        let export = dir.path().join("export.json");
        std::fs::write(&export, serde_json::to_string(&whole.entities).unwrap()).unwrap();
        assert_eq!(gather(&[export]).unwrap().entities, whole.entities);
        let copy = dir.path().join("copy");
        write(&copy, &whole.entities).unwrap();
        assert!(copy.join("services/c.json").exists());
        assert_eq!(file_name("../c/d"), "_c_d");
        assert_eq!(gather(&[copy]).unwrap().entities.0["services"].len(), 3);
        let other = dir.path().join("other.json");
        std::fs::write(&other, r#"{"name": "x"}"#).unwrap();
        assert!(gather(&[other]).unwrap_err().message.contains("of which kind"));
        assert!(gather(&[dir.path().join("none")]).is_err());
    }

    #[test]
    fn all_faults_are_told_and_those_of_the_server_by_file() {
        let dir = tempfile::tempdir().unwrap();
        let services = dir.path().join("services");
        std::fs::create_dir_all(&services).unwrap();
        std::fs::write(services.join("a.json"), "{").unwrap();
        std::fs::write(services.join("b.json"), r#"[{"name": "b", "links": 3, "version": []}, {}]"#).unwrap();
        let told = gather(&[dir.path().to_owned()]).unwrap_err();
        assert_eq!(told.message, "4 things are wrong with definitions");
        let all = told.details.join("\n");
        for said in ["a.json is no JSON", "b.json: [0].links", "b.json: [0].version", "b.json: [1].name"] {
            assert!(all.contains(said), "{said}: {all}");
        }
        std::fs::write(services.join("a.json"), r#"{"name": "a"}"#).unwrap();
        std::fs::write(services.join("b.json"), r#"[{"name": "b"}, {"name": "c"}]"#).unwrap();
        let sources = gather(&[dir.path().to_owned()]).unwrap().sources;
        let place = |field: &str| {
            let mut field = Some(field.to_owned());
            sources.place(&mut field);
            field.unwrap().replace(&dir.path().display().to_string(), "")
        };
        assert_eq!(place("entities.services[0].links[1].url"), "/services/a.json: links[1].url");
        assert_eq!(place("entities.services[2]"), "/services/b.json: [1]");
        assert_eq!(place("services/old.links"), "services/old.links", "what was not in the request");
        let mut refused = model::Error::invalid("x").at("entities.services[1].links");
        refused.more = model::Error::invalid("y").at("entities.services[0]").faults();
        let told = sources.told(refused);
        assert!(told.place.unwrap().ends_with("services/b.json: [0].links"));
        assert!(told.details[1].contains("services/a.json: y"), "{:?}", told.details);
    }

    #[test]
    fn what_is_wrong_is_left_out_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let services = dir.path().join("services");
        std::fs::create_dir_all(&services).unwrap();
        std::fs::write(services.join("a.json"), "{").unwrap();
        std::fs::write(
            services.join("b.json"),
            r#"[{"name": "b"}, {"name": "c", "links": 3}, {"name": "d"}]"#,
        )
        .unwrap();
        let (mut all, mut failures) = read(&[dir.path().to_owned()]).unwrap();
        failures.extend(all.leave_out_flaws());
        assert_eq!(failures.len(), 2);
        let names = |all: &Gathered| -> Vec<String> {
            all.entities.0["services"].iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&all), ["b", "d"]);
        let error = model::Error::invalid("it needs c").at("entities.services[1].dependencies");
        let refused = all.refused(&error);
        let told = all.leave_out(&refused, &error.faults());
        assert_eq!(names(&all), ["b"]);
        assert!(told[0].place.as_ref().unwrap().ends_with("/services/b.json: [2].dependencies"), "{told:?}");
        assert!(all.refused(&model::Error::invalid("no right")).is_empty());
    }

    #[test]
    fn kinds_are_named_by_their_folders() {
        assert_eq!(kind("services"), Ok(Kind::Service));
        assert_eq!(kind("clustertemplate"), Ok(Kind::ClusterTemplate));
        assert!(kind("things").unwrap_err().contains("providers"));
        let of = |text: &str, name: Option<&str>| named(text).unwrap().with(name.map(str::to_owned));
        let pool = (Kind::Provider, "pool".to_owned());
        assert_eq!(of("providers/pool", None).unwrap(), pool);
        assert_eq!(of("providers", Some("pool")).unwrap(), pool);
        assert!(of("providers", None).is_err() && of("providers/pool", Some("pool")).is_err());
        assert!(named("things/pool").unwrap_err().contains("providers"));
    }
}
