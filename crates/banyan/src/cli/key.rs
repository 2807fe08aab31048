//! `banyan key create|list|delete`: access keys for S3 and EC2 clients.

use api::{AccessKey, ListQuery};
use clap::{Args, Subcommand};

use crate::failure::Result;
use crate::output::table::Column;
use crate::output::text::{age_now, pair};
use crate::output::{self, note};
use crate::session::{Session, all, pick};

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make an access key for yourself; its secret is shown this once.
    Create,
    /// All access keys you may see.
    #[command(visible_alias = "ls")]
    List,
    /// End an access key.
    #[command(visible_alias = "rm")]
    Delete {
        /// Id, or the beginning of one.
        key: String,
    },
}

const COLUMNS: [Column<AccessKey>; 3] = [
    Column::new("ID", |k| k.id.to_string()),
    Column::new("USER", |k| k.user.to_string()),
    Column::new("AGE", |k| age_now(k.created_at)),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    let list = || all(ListQuery::new(), None, |query| async move { client.key_list(&query).await });
    match args.verb {
        Verb::Create => {
            let created = client.key_create().await?;
            note("The secret is shown only this once.");
            let id = created.key.id.to_string();
            output::item(session.format, &created, &id, |created, _| {
                vec![
                    pair("access key id", &created.key.id),
                    pair("secret access key", &created.secret_access_key),
                ]
            })
        }
        Verb::List => output::list(session.format, &list().await?, &COLUMNS),
        Verb::Delete { key } => {
            let keys = list().await?;
            let id = pick("key", &key, keys.into_iter().map(|k| (k.id.to_string(), k.id.to_string())))?;
            client.key_delete(&id).await?;
            note(format!("key {id}: ended"));
            Ok(())
        }
    }
}
