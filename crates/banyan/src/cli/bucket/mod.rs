//! `banyan bucket create|list|get|delete|versioning|quota|endpoint`, and settings that are documents

mod document;
mod setting;

use api::{Bucket, BucketQuota, ListQuery};
use clap::{Args, Subcommand};
use model::Bytes;

use super::object::remote::{self, s3};
use super::parse;
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::table::Column;
use crate::output::text::{age_now, pair, pair_some, size};
use crate::output::{self, note};
use crate::session::{Session, all};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan bucket create photos\n  banyan object put cat.jpg photos/2026/\n  banyan bucket quota photos 10GiB\n  banyan bucket policy set photos policy.json\n  banyan bucket lifecycle set photos rules.yaml\n  echo 'IndexDocument: {Suffix: index.html}' | banyan bucket website set web -\n\nDocuments have the fields that the AWS tools have. Any S3 client works too: 'banyan key create' gives it an access key, 'banyan bucket endpoint' its address."
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a bucket. Its name is unique in the whole cloud.
    Create {
        /// Name of the bucket: 3 to 63 small letters, digits, dots and hyphens.
        name: String,
        /// Keep every version of every object.
        #[arg(long)]
        versioning: bool,
        /// Let objects be locked against deletion; also keeps versions.
        #[arg(long)]
        lock: bool,
    },
    /// All buckets of the tenant and what they hold.
    #[command(visible_alias = "ls")]
    List {
        /// Only those with this name; `*` stands for anything.
        #[arg(long, value_name = "PATTERN")]
        name: Option<String>,
    },
    /// One bucket and what it holds.
    #[command(visible_alias = "show")]
    Get {
        /// Name of the bucket.
        name: String,
    },
    /// Remove an empty bucket.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the bucket.
        name: String,
        /// Delete all its objects and versions first.
        #[arg(long)]
        force: bool,
    },
    /// Keep every version of every object from now on, or stop doing so; without a state, say which it is.
    Versioning {
        /// Name of the bucket.
        name: String,
        /// on or off, or as it is printed: enabled or suspended. Versions that are there stay.
        #[arg(value_parser = ["on", "off", "enabled", "suspended"])]
        state: Option<String>,
    },
    /// Who else may do what with the bucket: a policy as S3 has it.
    #[command(subcommand)]
    Policy(setting::Verb),
    /// What expires when: objects, old versions, unfinished uploads.
    #[command(subcommand)]
    Lifecycle(setting::Verb),
    /// Serve the bucket as a website: its index, its error page, redirects.
    #[command(subcommand)]
    Website(setting::Verb),
    /// Which web pages of others may use the bucket in a browser.
    #[command(subcommand)]
    Cors(setting::Verb),
    /// Whether new objects are encrypted unless they say otherwise.
    #[command(subcommand)]
    Encryption(setting::Verb),
    /// Where the requests on the bucket are logged.
    #[command(subcommand)]
    Logging(setting::Verb),
    /// What keeps policies and lists from letting everyone in.
    #[command(subcommand)]
    PublicAccess(setting::Verb),
    /// Set the most bytes a bucket may hold (for admins).
    Quota {
        /// Name of the bucket.
        name: String,
        /// Such as 10GiB, or 'none' to lift the limit.
        limit: String,
    },
    /// Where S3 clients reach the store.
    Endpoint {
        /// Where instances on the store's own machine reach it.
        #[arg(long)]
        inside: bool,
    },
}

const COLUMNS: [Column<Bucket>; 8] = [
    Column::new("NAME", |b| b.name.clone()),
    Column::new("OBJECTS", |b| b.objects.to_string()),
    Column::new("SIZE", |b| size(b.bytes.0)),
    Column::new("VERSIONING", |b| b.versioning.clone()),
    Column::new("PUBLIC", |b| if b.public { "yes".into() } else { "no".into() }),
    Column::new("AGE", |b| age_now(b.created_at)),
    Column::wide("TENANT", |b| b.tenant.to_string()),
    Column::wide("QUOTA", |b| b.quota.map_or_else(|| "-".into(), |most| size(most.0))),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Create { name, versioning, lock } => {
            let s3 = s3(session).await?;
            let known = client.bucket_get(&name).await.is_ok();
            s3.bucket_create(&name, lock).await?;
            if versioning && !lock {
                s3.versioning_set(&name, true).await?;
            }
            note(format!("bucket {name}: {}", if known { "was there already" } else { "created" }));
            show(session, &client.bucket_get(&name).await?)
        }
        Verb::List { name } => list(session, name.as_deref()).await,
        Verb::Get { name } => show(session, &client.bucket_get(&name).await?),
        Verb::Delete { name, force } => {
            let s3 = s3(session).await?;
            if force {
                let mut progress = Progress::new(format!("bucket {name}"));
                let count =
                    remote::empty(&s3, &name, |count| progress.now(&format!("{count} deleted"))).await?;
                progress.clear();
                note(format!("bucket {name}: {count} objects and versions deleted"));
            }
            s3.bucket_delete(&name).await.map_err(|error| {
                match error.message.contains("BucketNotEmpty") {
                    true => Failure::from(error).hint("--force deletes what is in it, too"),
                    false => error.into(),
                }
            })?;
            note(format!("bucket {name}: deleted"));
            Ok(())
        }
        Verb::Versioning { name, state: None } => {
            let bucket = client.bucket_get(&name).await?;
            output::changed(session.format, &bucket, &bucket.name, &bucket.versioning)
        }
        Verb::Versioning { name, state: Some(state) } => {
            let enabled = ["on", "enabled"].contains(&state.as_str());
            s3(session).await?.versioning_set(&name, enabled).await?;
            note(format!("bucket {name}: versioning {state}"));
            Ok(())
        }
        Verb::Policy(verb) => setting::run(session, setting::POLICY, verb).await,
        Verb::Lifecycle(verb) => setting::run(session, setting::LIFECYCLE, verb).await,
        Verb::Website(verb) => setting::run(session, setting::WEBSITE, verb).await,
        Verb::Cors(verb) => setting::run(session, setting::CORS, verb).await,
        Verb::Encryption(verb) => setting::run(session, setting::ENCRYPTION, verb).await,
        Verb::Logging(verb) => setting::run(session, setting::LOGGING, verb).await,
        Verb::PublicAccess(verb) => setting::run(session, setting::PUBLIC_ACCESS, verb).await,
        Verb::Quota { name, limit } => {
            let bytes = match limit.as_str() {
                "none" => None,
                text => Some(parse::quantity::<Bytes>(text).map_err(Failure::new)?),
            };
            let bucket = client.bucket_quota_set(&name, &BucketQuota { bytes }).await?;
            note(format!("bucket {name}: quota {limit}"));
            show(session, &bucket)
        }
        Verb::Endpoint { inside } => {
            let given = client.s3_session().await?;
            let endpoint = if inside { remote::endpoint_inside(&given)? } else { given.endpoint };
            let address = Address { endpoint, region: given.region };
            output::changed(session.format, &address, &address.endpoint, &address.endpoint)
        }
    }
}

/// Where the store is, as programs get it.
#[derive(serde::Serialize)]
struct Address {
    endpoint: String,
    region: String,
}

/// All buckets of the tenant, or those with a name.
pub async fn list(session: &Session, name: Option<&str>) -> Result<()> {
    let client = &session.client;
    let query = name.iter().fold(ListQuery::new(), |query, name| query.with("name", name));
    let buckets = all(query, None, |query| async move { client.bucket_list(&query).await }).await?;
    output::list(session.format, &buckets, &COLUMNS)
}

fn show(session: &Session, bucket: &Bucket) -> Result<()> {
    output::item(session.format, bucket, &bucket.name, |bucket, _| {
        vec![
            pair("name", &bucket.name),
            pair("tenant", &bucket.tenant),
            pair("objects", bucket.objects),
            pair("versions", bucket.versions),
            pair("size", size(bucket.bytes.0)),
            pair("open uploads", size(bucket.upload_bytes.0)),
            pair_some("quota", bucket.quota.map(|most| size(most.0))),
            pair("versioning", &bucket.versioning),
            pair("public", if bucket.public { "yes" } else { "no" }),
            pair("age", age_now(bucket.created_at)),
        ]
    })
}
