//! `banyan object-store get|scrub|damage`

use std::time::Duration;

use api::{DamagedObject, ObjectStore, ScrubStart};
use clap::{Args, Subcommand};
use model::Bytes;

use super::parse;
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::table::Column;
use crate::output::text::{age_now, pair, pair_some, plural, size};
use crate::output::{self, note};
use crate::session::Session;

/// How often a pass is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan object-store get\n  banyan object-store scrub --rate 100MiB\n  banyan object-store damage"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What the store holds and how it is.
    #[command(visible_alias = "show")]
    Get,
    /// Read everything that is kept and compare it with its checksums.
    Scrub {
        /// The most to read in a second, such as 100MiB [default: no limit].
        #[arg(long, value_name = "BYTES", value_parser = parse::quantity::<Bytes>)]
        rate: Option<Bytes>,
        /// Return at once; the pass goes on.
        #[arg(long)]
        no_wait: bool,
    },
    /// Versions of objects that cannot be read.
    Damage,
}

const COLUMNS: [Column<DamagedObject>; 4] = [
    Column::new("KEY", |d| d.key.clone()),
    Column::new("BUCKET", |d| d.bucket.clone()),
    Column::new("VERSION", |d| d.version_id.clone()),
    Column::new("SIZE", |d| size(d.bytes.0)),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Get => show(session, &client.object_store().await?),
        Verb::Scrub { rate, no_wait } => {
            let before = client.object_store().await?.scrub;
            let mut store = client.object_store_scrub(&ScrubStart { rate }).await?;
            if no_wait {
                note("scrub: begun; 'banyan object-store get' says how far it is");
                return show(session, &store);
            }
            let mut progress = Progress::new("scrub");
            // It begins a moment after it was asked for.
            while store.scrub.running || store.scrub.ended_at == before.ended_at {
                progress.bytes(store.scrub.bytes.0, Some(store.scrub.bytes_all.0));
                tokio::time::sleep(LOOK_EVERY).await;
                store = client.object_store().await?;
                if store.state == "stopped" {
                    progress.clear();
                    return Err(Failure::new("the store has stopped").hint("banyan health says what to do"));
                }
            }
            progress.done(&format!("{} read", size(store.scrub.bytes.0)));
            show(session, &store)?;
            match store.damaged {
                0 => Ok(()),
                count => Err(Failure::new(format!("{} damaged", plural(count, "piece")))
                    .hint("'banyan object-store damage' lists the objects they belong to")),
            }
        }
        Verb::Damage => output::list(session.format, &client.object_store_damage().await?, &COLUMNS),
    }
}

fn show(session: &Session, store: &ObjectStore) -> Result<()> {
    output::item(session.format, store, "object-store", |store, _| {
        let scrub = &store.scrub;
        let of = |done: u64, all: u64| format!("{} of {}", size(done), size(all));
        vec![
            pair("state", &store.state),
            pair("endpoint", &store.endpoint),
            pair("buckets", store.buckets),
            pair("objects", store.objects),
            pair("size", size(store.bytes.0)),
            pair("small objects", size(store.packed_bytes.0)),
            pair("large objects", size(store.file_bytes.0)),
            pair_some("gateway", store.gateway.clone()),
            pair_some("in the gateway", store.gateway.as_ref().map(|_| size(store.gateway_bytes.0))),
            pair("to be freed", size(store.dead_bytes.0)),
            pair("free", format!("{}, {} of it kept", size(store.free_bytes.0), size(store.reserve_bytes.0))),
            pair("damaged", store.damaged),
            pair("events waiting", format!("{} of {}", store.outbox, store.outbox_max)),
            pair_some("scrub", scrub.running.then(|| of(scrub.bytes.0, scrub.bytes_all.0))),
            pair_some("last scrub", scrub.ended_at.map(|at| format!("{} ago", age_now(at)))),
        ]
    })
}
