//! `banyan image import|pull|list|get|delete`

use std::path::{Path, PathBuf};

use api::{Client, Image, ImagePull, ListQuery, Upload};
use clap::{Args, Subcommand};
use model::{ErrorKind, ImageId, Name};
use tokio::io::AsyncRead;

use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::table::Column;
use crate::output::text::{age_now, command, pair, pair_some, plural, size};
use crate::output::upload::Sent;
use crate::output::{self, note};
use crate::session::{Session, all, is_id_prefix, pick};

const AFTER_HELP: &str = "\
Examples:
  banyan image import app ./app.tar              OCI or docker archive, or a root file system
  banyan image import app ./layout/              OCI layout: a folder with index.json
  docker save app | banyan image import app -
  banyan image pull alpine REGISTRY/library/alpine:3.20";
/// Instances of an image that are named before it is deleted.
const USERS_SHOWN: usize = 5;

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Upload an OCI archive or layout, a docker archive or a root file system tarball.
    #[command(visible_alias = "load")]
    Import {
        /// Name of the image.
        name: Name,
        /// File or OCI layout folder; `-` reads standard input.
        file: PathBuf,
        /// Every tenant may use it (for operators).
        #[arg(long)]
        public: bool,
    },
    /// Fetch an image from a registry.
    Pull {
        /// Name of the image here.
        name: Name,
        /// What to fetch: REGISTRY/REPOSITORY:TAG or @DIGEST.
        reference: String,
        /// Every tenant may use it (for operators).
        #[arg(long)]
        public: bool,
    },
    /// All images the tenant may use.
    #[command(visible_alias = "ls")]
    List {
        /// Only those with this name; `*` stands for anything.
        #[arg(long, value_name = "PATTERN")]
        name: Option<String>,
    },
    /// One image.
    #[command(visible_alias = "show")]
    Get {
        /// Name, id, or the beginning of an id.
        image: String,
    },
    /// Remove images. Instances made from them keep running.
    #[command(visible_alias = "rm")]
    Delete {
        /// Names, ids or beginnings of ids.
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
}

const COLUMNS: [Column<Image>; 8] = [
    Column::new("NAME", |i| i.name.to_string()),
    Column::new("SIZE", |i| size(i.size_bytes)),
    Column::new("LAYERS", |i| i.manifest.layers.len().to_string()),
    Column::new("ARCH", |i| i.manifest.platform.arch.to_string()),
    Column::new("SOURCE", |i| i.source.clone()),
    Column::new("AGE", |i| age_now(i.created_at)),
    Column::wide("OWNER", |i| if i.public { format!("{} (public)", i.tenant) } else { i.tenant.to_string() }),
    Column::wide("ID", |i| i.id.to_string()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Import { name, file, public } => {
            let image = import(client, name.as_str(), &file, public).await?;
            show(session, &image)
        }
        Verb::Pull { name, reference, public } => {
            let image = pull(client, name.as_str(), reference, public).await?;
            show(session, &image)
        }
        Verb::List { name } => {
            let query = name.iter().fold(ListQuery::new(), |query, name| query.with("name", name));
            let images = all(query, None, |query| async move { client.image_list(&query).await }).await?;
            output::list(session.format, &images, &COLUMNS)
        }
        Verb::Get { image } => {
            let name = resolve(client, &image).await?;
            show(session, &client.image_get(&name).await.map_err(missing)?)
        }
        Verb::Delete { images, dry_run } => {
            for image in images {
                let found = client.image_get(&resolve(client, &image).await?).await.map_err(missing)?;
                warn_users(client, &found).await;
                if dry_run {
                    note(format!("image {}: would be deleted (nothing was changed)", found.name));
                    continue;
                }
                client.image_delete(found.id.as_str(), None).await?;
                note(format!("image {}: deleted", found.name));
            }
            Ok(())
        }
    }
}

/// Says which instances were made from an image that goes. They keep running, but no more can be made.
async fn warn_users(client: &Client, image: &Image) {
    let query = ListQuery::new().with("image", &image.name).limit(USERS_SHOWN);
    let users = client.instance_list(&query).await.map(|page| page.items).unwrap_or_default();
    if !users.is_empty() {
        let names: Vec<_> = users.iter().map(|instance| instance.name.to_string()).collect();
        let more = if users.len() == USERS_SHOWN { " and perhaps more" } else { "" };
        note(format!(
            "image {}: {}{more} were made from it; they keep running",
            image.name,
            names.join(", ")
        ));
    }
}

fn missing(error: model::Error) -> Failure {
    let not_found = error.kind == ErrorKind::NotFound;
    let failure = Failure::from(error);
    if not_found { failure.or_hint("see the images with: banyan image list") } else { failure }
}

async fn resolve(client: &Client, text: &str) -> Result<String> {
    if !is_id_prefix(text, ImageId::PREFIX) {
        return Ok(text.to_owned());
    }
    let images = all(ListQuery::new(), None, |query| async move { client.image_list(&query).await }).await?;
    pick("image", text, images.into_iter().map(|i| (i.id.to_string(), i.name.to_string())))
}

fn show(session: &Session, image: &Image) -> Result<()> {
    let name = image.name.to_string();
    output::item(session.format, image, &name, |image, wide| {
        let manifest = &image.manifest;
        let mut page = vec![
            pair("name", &image.name),
            pair("id", &image.id),
            pair(
                "size",
                format!("{} in {}", size(image.size_bytes), plural(manifest.layers.len() as u64, "layer")),
            ),
            pair("arch", manifest.platform.arch),
            pair("source", &image.source),
            pair("owner", format!("{}{}", image.tenant, if image.public { " (public)" } else { "" })),
            pair("entry point", command(&manifest.entrypoint)),
            pair("command", command(&manifest.command)),
            pair_some("user", manifest.user.as_ref()),
            pair("created", format!("{} ago", age_now(image.created_at))),
        ];
        if wide {
            let layers: Vec<_> =
                manifest.layers.iter().map(|l| format!("{} {}", l.digest, size(l.size))).collect();
            page.push(pair("layers", layers.join("\n")));
        }
        page
    })
}

pub async fn pull(client: &Client, name: &str, reference: String, public: bool) -> Result<Image> {
    let mut progress = Progress::new(format!("image {name}"));
    progress.now(&format!("pulling {reference}"));
    match client.image_pull(name, &ImagePull { reference, public }).await {
        Ok(image) => {
            progress.done(&format!("pulled, {}", size(image.size_bytes)));
            Ok(image)
        }
        Err(error) => {
            progress.clear();
            Err(error.into())
        }
    }
}

/// Uploads a file, a layout folder or standard input, showing how far it is.
pub async fn import(client: &Client, name: &str, file: &Path, public: bool) -> Result<Image> {
    let (reader, length) = open(file).await?;
    let sent = Sent::default();
    let mut progress = Progress::new(format!("image {name}"));
    let upload = client.image_import(name, Upload { public, length }, sent.count(reader));
    match sent.show(&mut progress, length, upload).await {
        Ok(image) => {
            progress.done(&format!(
                "imported, {} in {}",
                size(image.size_bytes),
                plural(image.manifest.layers.len() as u64, "layer")
            ));
            Ok(image)
        }
        Err(error) => {
            progress.clear();
            Err(Failure::from(error).or_hint(
                "an image is an OCI archive or layout, a docker archive, or a tarball of a root file system",
            ))
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
        return Ok((layout(file)?, None));
    }
    let reader = tokio::fs::File::open(file).await.map_err(failed)?;
    Ok((Box::new(reader), facts.is_file().then_some(facts.len())))
}

/// An OCI layout travels as the archive of itself, packed while it is sent.
fn layout(folder: &Path) -> Result<Reader> {
    if !folder.join("index.json").is_file() {
        return Err(Failure::new(format!(
            "{} is not an OCI layout: there is no index.json in it",
            folder.display()
        ))
        .hint("import an archive instead, or the folder that holds index.json"));
    }
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        let mut archive = tar::Builder::new(std::io::BufWriter::new(far));
        archive.follow_symlinks(true);
        // When the other side has gone, the upload itself says why.
        let packed = archive.append_dir_all(".", &folder).and_then(|()| archive.finish());
        if let Err(error) = packed {
            tracing::warn!(%error, "the layout could not be packed");
        }
    });
    Ok(Box::new(tokio::net::UnixStream::from_std(near)?))
}
