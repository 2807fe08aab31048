//! The store behind: one of ours, with one user.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object::client::{Ask, Client, Credentials};
use object::config::Gateway;
use object::engine::{Engine, EngineConfig};
use object::identity::{Account, Identity, Key, Principal, Rights};
use object::{Config, Store};

use crate::bed;
use crate::moto::Moto;

pub const USER: &str = "AKREMOTE000000000000";
pub const SECRET: &str = "remote/secret+remote/secret+remote/secret";
pub const BUCKET: &str = "depot";
pub const PREFIX: &str = "some/cloud";

/// Knows one user.
pub struct Single;

fn account() -> Account {
    Account { id: "tenant".into(), name: "tenant".into() }
}

#[async_trait::async_trait]
impl Identity for Single {
    async fn key(&self, id: &str) -> Option<Key> {
        let principal = Principal {
            account: account(),
            user: "user".into(),
            rights: Rights::Manage,
            operator: false,
            session: None,
        };
        (id == USER).then(|| Key { secret: SECRET.to_owned().into(), principal })
    }

    async fn account(&self, id: &str) -> Option<Account> {
        (id == "tenant").then(account)
    }

    async fn account_by_email(&self, _: &str) -> Option<Account> {
        None
    }

    async fn user_exists(&self, _: &str, _: &str) -> bool {
        true
    }

    async fn quota(&self, _: &str) -> Option<u64> {
        None
    }

    fn root_key(&self) -> [u8; 32] {
        [5; 32]
    }
}

/// What serves.
enum Server {
    Ours { store: Store, _data: tempfile::TempDir },
    Moto { _moto: Moto },
}

pub struct Remote {
    server: Server,
    pub endpoint: String,
    pub client: Client,
}

pub fn client(endpoint: &str) -> Client {
    let credentials = Credentials {
        access_key_id: USER.into(),
        secret_access_key: SECRET.to_owned().into(),
        session_token: None,
    };
    Client::new(endpoint, "us-east-1", credentials).unwrap()
}

impl Remote {
    pub async fn ours() -> Self {
        let data = tempfile::tempdir().unwrap();
        let config = Config::new(data.path().to_owned(), "127.0.0.1:0".parse().unwrap());
        let store = Store::start(config, Arc::new(Single)).await.unwrap();
        let endpoint = format!("http://{}", store.address());
        Self::with(Server::Ours { store, _data: data }, endpoint).await
    }

    pub async fn moto() -> Self {
        let moto = tokio::task::spawn_blocking(Moto::start).await.unwrap();
        let endpoint = moto.endpoint.clone();
        Self::with(Server::Moto { _moto: moto }, endpoint).await
    }

    async fn with(server: Server, endpoint: String) -> Self {
        let client = client(&endpoint);
        client.bucket_create(BUCKET, false).await.unwrap();
        Self { server, endpoint, client }
    }

    pub async fn stop(self) {
        if let Server::Ours { store, .. } = self.server {
            store.stop().await;
        }
    }

    pub fn gateway(&self) -> Gateway {
        gateway(&self.endpoint)
    }

    /// The names of the blobs that are there.
    pub async fn blobs(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let prefix = format!("{PREFIX}/blobs/");
            let page = self.client.list(BUCKET, &prefix, None, after.as_deref()).await.unwrap();
            names.extend(page.objects.into_iter().filter_map(|object| object.key));
            after = page.next;
            if after.is_none() {
                return names;
            }
        }
    }

    /// Whether there is an upload in parts that is not complete.
    pub async fn uploads(&self) -> bool {
        let ask = Ask::new(http::Method::GET, BUCKET, "").query("uploads", "");
        self.client.ask(ask).await.unwrap().text().await.unwrap().contains("<UploadId>")
    }

    pub async fn bytes(&self, key: &str) -> Vec<u8> {
        self.client.get(BUCKET, key, None, None).await.unwrap().bytes().await.unwrap().to_vec()
    }

    pub async fn put(&self, key: &str, bytes: Vec<u8>) {
        let length = bytes.len() as u64;
        let stream = futures::stream::iter([Ok(bytes.into())]);
        self.client.put(BUCKET, key, length, Vec::new(), stream).await.unwrap();
    }
}

pub fn gateway(endpoint: &str) -> Gateway {
    Gateway {
        prefix: PREFIX.into(),
        timeout: Duration::from_secs(20),
        ..Gateway::new(endpoint, BUCKET, USER, SECRET)
    }
}

pub fn config(data: &Path, gateway: Gateway) -> EngineConfig {
    EngineConfig { gateway: Some(gateway), ..bed::config(data) }
}

/// Opens as the store does, not on a thread of the runtime.
pub async fn open(config: EngineConfig) -> Engine {
    tokio::task::spawn_blocking(|| Engine::open(config)).await.unwrap().expect("the engine opens")
}

pub async fn refusal(config: EngineConfig) -> String {
    let opened = tokio::task::spawn_blocking(|| Engine::open(config)).await.unwrap();
    opened.map(drop).expect_err("it does not open").to_string()
}

/// Waits for what the background does.
pub async fn until(mut done: impl AsyncFnMut() -> bool) {
    while !done().await {
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
