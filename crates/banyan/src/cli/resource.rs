//! `banyan resource upload|list|get|download|stage|recall|sync|delete`: files that plugins use.

use std::path::{Path, PathBuf};

use api::{Client, ListQuery, Resource, ResourceStatus, ResourceSync, ResourceUpload, ResourceVersion};
use clap::{Args, Subcommand};
use futures::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWriteExt};

use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::table::Column;
use crate::output::text::{age_now, pair, size};
use crate::output::upload::Sent;
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};

const AFTER_HELP: &str = "\
A file is named by its path, such as automatortypes/shell/scripts/hello.sh, or by its name alone if there is one of
that name. @N says which version. A version is active, and machines get it, once it was staged and synced.

Examples:
  banyan resource upload ./hello.sh --automator shell --type scripts --sync
  banyan resource upload ./site.tar.gz --automator shell --type archives
  banyan resource stage site.tar.gz && banyan resource sync
  banyan resource stage hello.sh@1 --sync               back to version 1
  banyan resource recall hello.sh --sync
  banyan resource delete hello.sh@1";
/// Files that are named when a name means several.
const MEANT_SHOWN: usize = 5;

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Upload a new version of a file.
    Upload {
        /// File; `-` reads standard input.
        file: PathBuf,
        /// Automator that uses it, such as shell or ansible.
        #[arg(long, value_name = "NAME", required_unless_present = "provider", conflicts_with = "provider")]
        automator: Option<String>,
        /// Provider type that uses it.
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// One of the plugin's types of files, such as scripts or archives.
        #[arg(long = "type", value_name = "TYPE")]
        resource_type: String,
        /// Name to use it by; the file's own if not given.
        #[arg(long)]
        name: Option<String>,
        /// Have it active after the next sync.
        #[arg(long)]
        stage: bool,
        /// Stage it, and sync at once.
        #[arg(long)]
        sync: bool,
    },
    /// All files.
    #[command(visible_alias = "ls")]
    List(Narrow),
    /// One file with its versions.
    #[command(visible_alias = "show")]
    Get {
        /// Path or name.
        file: String,
    },
    /// Fetch a version: the active one, or else the newest, unless @N says which.
    Download {
        /// Path or name, with @N for a version.
        file: String,
        /// File to write; `-` is standard output. Its own name if not given.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Have a version active after the next sync: the newest, unless @N says which.
    Stage {
        /// Path or name, with @N for a version.
        file: String,
        /// Sync at once.
        #[arg(long)]
        sync: bool,
    },
    /// Have a version inactive after the next sync: the active or staged one, unless @N says which.
    Recall {
        /// Path or name, with @N for a version.
        file: String,
        /// Sync at once.
        #[arg(long)]
        sync: bool,
    },
    /// Bring what is staged to provisioners, and take what is recalled away.
    Sync,
    /// Delete versions that are inactive.
    #[command(visible_alias = "rm")]
    Delete {
        /// Paths or names, with @N where there are several versions.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<String>,
    },
}

#[derive(Args)]
struct Narrow {
    /// Only those of this automator.
    #[arg(long, value_name = "NAME", conflicts_with = "provider")]
    automator: Option<String>,
    /// Only those of this provider type.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Only those of this type.
    #[arg(long = "type", value_name = "TYPE")]
    resource_type: Option<String>,
    /// Only those with this name; `*` stands for anything.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only those with a version in this status: inactive, staged, active or recalled.
    #[arg(long)]
    status: Option<String>,
}

impl Narrow {
    fn query(&self) -> ListQuery {
        let kind = match (&self.automator, &self.provider) {
            (Some(_), _) => Some("automatortypes".to_owned()),
            (None, Some(_)) => Some("providertypes".to_owned()),
            (None, None) => None,
        };
        let plugin = self.automator.clone().or_else(|| self.provider.clone());
        let fields = [
            ("kind", kind),
            ("plugin", plugin),
            ("type", self.resource_type.clone()),
            ("name", self.name.clone()),
            ("status", self.status.clone()),
        ];
        let given = fields.into_iter().filter_map(|(field, value)| Some((field, value?)));
        given.fold(ListQuery::new(), |query, (field, value)| query.with(field, value))
    }
}

const COLUMNS: [Column<Resource>; 6] = [
    Column::new("NAME", Resource::path),
    Column::new("ACTIVE", |file| number(file, ResourceStatus::Active)),
    Column::new("NEXT", next),
    Column::new("VERSIONS", |file| file.versions.len().to_string()),
    Column::new("SIZE", |file| {
        file.versions.first().map(|newest| size(newest.size_bytes)).unwrap_or_default()
    }),
    Column::new("AGE", |file| {
        file.versions.first().map(|newest| age_now(newest.created_at)).unwrap_or_default()
    }),
];

fn with_status(file: &Resource, status: ResourceStatus) -> Option<&ResourceVersion> {
    file.versions.iter().find(|version| version.status == status)
}

fn number(file: &Resource, status: ResourceStatus) -> String {
    with_status(file, status).map(|version| version.number.to_string()).unwrap_or_default()
}

/// What the next sync does.
fn next(file: &Resource) -> String {
    let of = |status| with_status(file, status).map(|version| format!("{} {status}", version.number));
    let parts = [of(ResourceStatus::Recalled), of(ResourceStatus::Staged)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Upload { file, automator, provider, resource_type, name, stage, sync } => {
            let name = name_of(&file, name)?;
            let plugin = match (automator, provider) {
                (Some(automator), _) => format!("automatortypes/{automator}"),
                (None, provider) => format!("providertypes/{}", provider.unwrap_or_default()),
            };
            let path = format!("{plugin}/{resource_type}/{name}");
            show(session, &upload(client, &path, &file, stage, sync).await?)
        }
        Verb::List(narrow) => {
            let fetch = |query: ListQuery| async move { client.resource_list(&query).await };
            output::list(session.format, &all(narrow.query(), None, fetch).await?, &COLUMNS)
        }
        Verb::Get { file } => show(session, &find(client, &file).await?.0),
        Verb::Download { file, to } => download(client, &file, to).await,
        Verb::Stage { file, sync } => {
            let (found, number) = find(client, &file).await?;
            let number = number.unwrap_or_else(|| found.versions.first().map_or(1, |newest| newest.number));
            let changed = client.resource_stage(&found.path(), number).await?;
            ordered(session, changed, number, sync).await
        }
        Verb::Recall { file, sync } => {
            let (found, number) = find(client, &file).await?;
            let number = match number {
                Some(number) => number,
                None => slated(&found)?,
            };
            let changed = client.resource_recall(&found.path(), number).await?;
            ordered(session, changed, number, sync).await
        }
        Verb::Sync => synced(session, &client.resource_sync().await?),
        Verb::Delete { files } => {
            for file in files {
                let (found, number) = find(client, &file).await?;
                let number = only(&found, number)?;
                client.resource_delete(&found.path(), number).await?;
                note(format!("{}@{number}: deleted", found.path()));
            }
            Ok(())
        }
    }
}

/// The version that machines get, or are to get.
fn slated(file: &Resource) -> Result<u32> {
    let is_slated = |status| matches!(status, ResourceStatus::Active | ResourceStatus::Staged);
    let found = file.versions.iter().find(|version| is_slated(version.status));
    found.map(|version| version.number).ok_or_else(|| {
        Failure::new(format!("no version of {} is active or staged", file.path()))
            .hint("say which one is meant with @N")
    })
}

/// The version that was named, or the only one.
fn only(file: &Resource, number: Option<u32>) -> Result<u32> {
    match (number, file.versions.as_slice()) {
        (Some(number), _) => Ok(number),
        (None, [one]) => Ok(one.number),
        (None, versions) => Err(Failure::new(format!("{} has {} versions", file.path(), versions.len()))
            .hint("say which one is meant with @N")),
    }
}

/// Says what an order came to, and syncs if that is wanted too.
async fn ordered(session: &Session, file: Resource, number: u32, sync: bool) -> Result<()> {
    if sync {
        let told = session.client.resource_sync().await?;
        return synced(session, &told);
    }
    let path = file.path();
    let status = file.versions.iter().find(|version| version.number == number).map(|version| version.status);
    let status = status.map(|status| status.to_string()).unwrap_or_default();
    output::changed(session.format, &file, &path, &format!("{path}@{number}: {status}"))
}

fn synced(session: &Session, told: &ResourceSync) -> Result<()> {
    if !matches!(session.format, Format::Table | Format::Wide | Format::Name) {
        return output::item(session.format, told, "", |_, _| Vec::new());
    }
    if told == &ResourceSync::default() {
        note("nothing was staged or recalled");
    }
    let line = |word: &'static str| move |title: &String| format!("{title}: {word}\n");
    let lines = told.activated.iter().map(line("active")).chain(told.recalled.iter().map(line("inactive")));
    data(&lines.collect::<String>())
}

/// A file by its path or by its name alone, and the version that was named.
async fn find(client: &Client, text: &str) -> Result<(Resource, Option<u32>)> {
    let (name, number) = match text.rsplit_once('@') {
        Some((name, number)) => match number.parse() {
            Ok(number) => (name, Some(number)),
            Err(_) => return Err(Failure::new(format!("'{number}' is no number of a version"))),
        },
        None => (text, None),
    };
    if name.contains('/') {
        return Ok((client.resource_get(name).await.map_err(missing)?, number));
    }
    let fetch = |query: ListQuery| async move { client.resource_list(&query).await };
    let mut found: Vec<Resource> = all(ListQuery::new().with("name", name), None, fetch).await?;
    found.retain(|file| file.name == name);
    match found.len() {
        0 => Err(missing(model::Error::not_found(format!("file '{name}'")))),
        1 => Ok((found.remove(0), number)),
        count => Err(Failure::new(format!("{count} files are named '{name}'; write the path of one"))
            .details(found.iter().take(MEANT_SHOWN).map(Resource::path).collect())),
    }
}

fn missing(error: model::Error) -> Failure {
    let not_found = error.kind == model::ErrorKind::NotFound;
    let failure = Failure::from(error);
    if not_found { failure.or_hint("see the files with: banyan resource list") } else { failure }
}

fn show(session: &Session, file: &Resource) -> Result<()> {
    output::item(session.format, file, &file.path(), |file, wide| {
        let line = |version: &ResourceVersion| {
            let digest = version.digest.as_ref().filter(|_| wide);
            let digest = digest.map(|digest| format!("  {digest}")).unwrap_or_default();
            let (status, size) = (version.status, size(version.size_bytes));
            let (age, by) = (age_now(version.created_at), &version.created_by);
            format!("{:<4} {status:<8}  {size}  {age} ago by {by}{digest}", version.number)
        };
        let versions: Vec<String> = file.versions.iter().map(line).collect();
        let secret = if file.secret { ", kept sealed and never shown" } else { "" };
        vec![
            pair("name", file.path()),
            pair("format", format!("{}{secret}", file.format)),
            pair("versions", versions.join("\n")),
        ]
    })
}

fn name_of(file: &Path, name: Option<String>) -> Result<String> {
    let own = || file.file_name().and_then(|name| name.to_str()).filter(|name| *name != "-");
    name.or_else(|| own().map(str::to_owned))
        .ok_or_else(|| Failure::new("standard input has no name").hint("give the file one with --name"))
}

/// Uploads a file or standard input, showing how far it is.
async fn upload(client: &Client, path: &str, file: &Path, stage: bool, sync: bool) -> Result<Resource> {
    let (reader, length) = open(file).await?;
    let sent = Sent::default();
    let mut progress = Progress::new(path);
    let upload = client.resource_upload(path, ResourceUpload { stage, sync, length }, sent.count(reader));
    match sent.show(&mut progress, length, upload).await {
        Ok(made) => {
            let newest = made.versions.first();
            let told = newest.map(|version| format!("version {} is {}", version.number, version.status));
            progress.done(&told.unwrap_or_default());
            Ok(made)
        }
        Err(error) => {
            progress.clear();
            Err(error.into())
        }
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;

async fn open(file: &Path) -> Result<(Reader, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(tokio::io::stdin()), None));
    }
    let failed = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", file.display()));
    let facts = tokio::fs::metadata(file).await.map_err(failed)?;
    if facts.is_dir() {
        let name = file.display();
        return Err(Failure::new(format!("{name} is a folder"))
            .hint(format!("pack it: tar -czf ARCHIVE.tar.gz -C {name} .")));
    }
    let reader = tokio::fs::File::open(file).await.map_err(failed)?;
    Ok((Box::new(reader), facts.is_file().then_some(facts.len())))
}

async fn download(client: &Client, text: &str, to: Option<PathBuf>) -> Result<()> {
    let (file, number) = find(client, text).await?;
    let chosen = with_status(&file, ResourceStatus::Active).or_else(|| file.versions.first());
    let number = number.or_else(|| chosen.map(|version| version.number)).unwrap_or(1);
    let mut content = client.resource_download(&file.path(), number).await?;
    let to = to.unwrap_or_else(|| PathBuf::from(&file.name));
    if to == Path::new("-") {
        let mut out = tokio::io::stdout();
        while let Some(chunk) = content.try_next().await? {
            out.write_all(&chunk).await?;
        }
        return Ok(out.flush().await?);
    }
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(format!("{} is there already", to.display()))
            .hint("--to names another file, or - for standard output"),
        _ => Failure::new(format!("cannot write {}: {error}", to.display())),
    };
    let mut out = tokio::fs::File::create_new(&to).await.map_err(failed)?;
    while let Some(chunk) = content.try_next().await? {
        out.write_all(&chunk).await.map_err(failed)?;
    }
    out.flush().await.map_err(failed)?;
    note(format!("{}@{number} is in {}", file.path(), to.display()));
    Ok(())
}
