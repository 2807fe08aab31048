//! A store alone, with accounts from a file: for trying, measuring and conformance suites.
//!
//! `store DATA LISTEN ACCOUNTS.json [DAY_SECONDS]`; the file is a list of
//! `{"id", "name", "email", "access_key", "secret_key"}`. With `STORE_GATEWAY="ENDPOINT BUCKET PREFIX KEY SECRET"` large
//! objects lie in another store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use object::config::Gateway;
use object::identity::{Account, Identity, Key, Principal, Rights};
use object::{Config, Store};
use serde::Deserialize;

#[derive(Deserialize)]
struct Entry {
    id: String,
    name: String,
    #[serde(default)]
    email: String,
    access_key: String,
    secret_key: String,
}

struct Accounts(Vec<Entry>);

impl Entry {
    fn account(&self) -> Account {
        Account { id: self.id.as_str().into(), name: self.name.as_str().into() }
    }
}

#[async_trait::async_trait]
impl Identity for Accounts {
    async fn key(&self, id: &str) -> Option<Key> {
        let entry = self.0.iter().find(|entry| entry.access_key == id)?;
        let user = entry.name.as_str().into();
        let principal = Principal {
            account: entry.account(),
            user,
            rights: Rights::Manage,
            operator: false,
            session: None,
        };
        Some(Key { secret: entry.secret_key.clone().into(), principal })
    }

    async fn account(&self, id: &str) -> Option<Account> {
        self.0.iter().find(|entry| entry.id == id).map(Entry::account)
    }

    async fn account_by_email(&self, email: &str) -> Option<Account> {
        self.0.iter().find(|entry| !email.is_empty() && entry.email == email).map(Entry::account)
    }

    async fn user_exists(&self, account: &str, user: &str) -> bool {
        self.0.iter().any(|entry| entry.id == account && entry.name == user)
    }

    async fn quota(&self, _account: &str) -> Option<u64> {
        None
    }

    fn root_key(&self) -> [u8; 32] {
        [7; 32]
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [data, listen, accounts, rest @ ..] = args.as_slice() else {
        return Err("store DATA LISTEN ACCOUNTS.json [DAY_SECONDS]".into());
    };
    let mut config = Config::new(PathBuf::from(data), listen.parse()?);
    config.region = "default".into();
    config.domains = vec!["localhost".into()];
    if let Some(seconds) = rest.first() {
        config.day_set(Duration::from_secs(seconds.parse()?));
    }
    if let Ok(words) = std::env::var("STORE_GATEWAY") {
        let [endpoint, bucket, prefix, key, secret] = words.split(' ').collect::<Vec<_>>()[..] else {
            return Err("STORE_GATEWAY: ENDPOINT BUCKET PREFIX KEY SECRET".into());
        };
        let gateway = Gateway::new(endpoint, bucket, key, secret);
        config.gateway = Some(Gateway { prefix: prefix.to_owned(), ..gateway });
    }
    let identity = Arc::new(Accounts(serde_json::from_slice(&std::fs::read(accounts)?)?));
    let store = Store::start(config, identity).await.map_err(|error| error.message)?;
    eprintln!("serving S3 on {}", store.address());
    tokio::signal::ctrl_c().await?;
    store.stop().await;
    Ok(())
}
