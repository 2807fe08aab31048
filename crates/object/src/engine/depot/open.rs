//! Opening the depot: what it is asked for later is tried first, and the prefix is taken for this store.

use std::io;
use std::path::Path as Folder;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::super::api::EngineError;
use super::{Depot, Failure, Owner, PARTS_AT_ONCE, away, failure, is_refusal, reason};
use crate::config::Gateway;

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How often a request is repeated, if half of the time for one has not passed.
const RETRIES: usize = 4;
const BACKOFF: BackoffConfig = BackoffConfig {
    init_backoff: Duration::from_millis(100),
    max_backoff: Duration::from_secs(3),
    base: 2.0,
};
const THREADS: usize = 2;

impl Depot {
    /// Blocking. `salt` is the secret of the store's journal.
    pub fn open(gateway: &Gateway, data: &Folder, salt: u64) -> Result<Arc<Self>, EngineError> {
        let prefix = gateway.prefix.trim_matches('/');
        let sound = !prefix.is_empty() && Path::parse(prefix).is_ok_and(|path| path.as_ref() == prefix);
        if !sound {
            return Err(EngineError::Gateway(format!(
                "'{}' cannot be the prefix of names in the gateway's bucket: it needs words of letters, digits, '-', '_' and '.', with '/' between them",
                gateway.prefix.escape_debug()
            )));
        }
        let uploads = data.join("uploads");
        let was_here = uploads.exists();
        let run: u64 = rand::random();
        let store =
            hex::encode(&Sha256::digest([b"banyan store".as_slice(), &salt.to_le_bytes()].concat())[..16]);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("object-depot")
            .enable_all()
            .build()?;
        let depot = Self {
            store: Arc::new(client(gateway)?),
            name: format!("bucket '{}' at {}", gateway.bucket, gateway.endpoint),
            prefix: prefix.to_owned(),
            owner: Owner { store, run: format!("{run:016x}") },
            run,
            write: gateway.write,
            uploads,
            runtime: Some(runtime),
            stop: CancellationToken::new(),
            parts: Arc::new(Semaphore::new(PARTS_AT_ONCE)),
            readers: AtomicUsize::new(0),
            entered: AtomicBool::new(false),
            trouble: Mutex::default(),
            litter: Mutex::default(),
        };
        match depot.enter() {
            Ok(()) => {}
            // It was good before: the rest of the store does not wait for it.
            Err(EngineError::Away(reason)) if was_here => {
                tracing::error!(reason, depot = depot.name, "large objects cannot be used until it answers");
            }
            Err(EngineError::Away(reason)) => return Err(EngineError::Gateway(reason)),
            Err(error) => return Err(error),
        }
        Ok(Arc::new(depot))
    }

    /// Tries what will be asked for and takes the prefix, once.
    pub(super) fn enter(&self) -> Result<(), EngineError> {
        if self.entered.load(Ordering::Acquire) {
            return Ok(());
        }
        let keeps_versions = self.probe()?;
        if keeps_versions && !self.uploads.exists() {
            return Err(EngineError::Gateway(format!(
                "the {} keeps versions, so that nothing deleted there would ever be gone; suspend its versioning or name another bucket",
                self.name
            )));
        }
        if keeps_versions {
            tracing::warn!(depot = self.name, "the bucket keeps versions: what is deleted there is not gone");
        }
        self.claim()?;
        std::fs::create_dir_all(&self.uploads)?;
        self.uploads_left()?;
        self.entered.store(true, Ordering::Release);
        Ok(())
    }

    /// Lists, writes, reads and deletes. Whether the bucket keeps versions of what is deleted.
    fn probe(&self) -> Result<bool, EngineError> {
        let (store, name) = (self.store.clone(), self.name.clone());
        let (folder, path) = (self.path("blobs"), self.path(&format!("probe-{}", self.owner.run)));
        self.wait(async move {
            let cannot = |what: &str, error: &object_store::Error| {
                let reason = reason(error);
                let what = if reason.contains("NoSuchBucket") { "is not there" } else { what };
                let sentence = format!("the {name} {what}: {reason}");
                if is_refusal(error) { EngineError::Gateway(sentence) } else { EngineError::Away(sentence) }
            };
            let content = Bytes::from(path.to_string());
            let mut names = store.list(Some(&folder));
            names.next().await.transpose().map_err(|error| cannot("cannot be listed", &error))?;
            let put = store.put(&path, PutPayload::from(content.clone())).await;
            let put = put.map_err(|error| cannot("cannot be written", &error))?;
            let range = store.get_range(&path, 1..content.len() as u64).await;
            let read = range.map_err(|error| cannot("cannot be read", &error))?;
            if read != content.slice(1..) {
                return Err(EngineError::Gateway(format!(
                    "the {name} gives back other bytes than it was given"
                )));
            }
            store.delete(&path).await.map_err(|error| cannot("cannot be deleted from", &error))?;
            Ok(put.version.is_some_and(|version| version != "null"))
        })
    }

    fn owner_path(&self) -> Path {
        self.path("owner")
    }

    fn owner_read(&self) -> Result<Option<Owner>, EngineError> {
        let (store, path) = (self.store.clone(), self.owner_path());
        let bytes = self.wait(async move {
            let got = match store.get(&path).await {
                Ok(got) => got.bytes().await,
                Err(error) => Err(error),
            };
            match got.map_err(|error| (failure(&error), error)) {
                Ok(bytes) => Ok(Some(bytes)),
                Err((Failure::Absent, _)) => Ok(None),
                Err((_, error)) => Err(away(&error)),
            }
        })?;
        let unread =
            || EngineError::Gateway(format!("{}/owner in the {} cannot be read", self.prefix, self.name));
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(|_| unread())).transpose()
    }

    /// Takes the prefix for this opening of this store; it must not be another store's.
    fn claim(&self) -> Result<(), EngineError> {
        let foreign = |owner: &Owner| owner.store != self.owner.store;
        let mode = match self.owner_read()? {
            Some(owner) if foreign(&owner) => return Err(self.taken()),
            Some(_) => PutMode::Overwrite,
            None => PutMode::Create,
        };
        let (store, path) = (self.store.clone(), self.owner_path());
        let body = serde_json::to_vec(&self.owner).map_err(io::Error::other)?;
        self.wait(async move {
            match store.put_opts(&path, PutPayload::from(body.clone()), mode.into()).await {
                Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                // A store that knows no conditions.
                Err(_) => {
                    store.put(&path, PutPayload::from(body)).await.map(drop).map_err(|error| away(&error))
                }
            }
        })?;
        self.owned()
    }

    /// Nobody else has taken the prefix meanwhile.
    pub(super) fn owned(&self) -> Result<(), EngineError> {
        match self.owner_read()? {
            Some(owner) if owner == self.owner => Ok(()),
            Some(owner) if owner.store == self.owner.store => Err(EngineError::Gateway(format!(
                "a copy of this store has taken over the prefix '{}' in the {}",
                self.prefix, self.name
            ))),
            _ => Err(self.taken()),
        }
    }

    fn taken(&self) -> EngineError {
        EngineError::Gateway(format!(
            "the prefix '{}' in the {} holds the data of another store; choose another prefix, or open the data folder that belongs to it",
            self.prefix, self.name
        ))
    }
}

fn client(gateway: &Gateway) -> Result<AmazonS3, EngineError> {
    let invalid = |error: String| EngineError::Gateway(format!("the gateway cannot be set up: {error}"));
    let url = reqwest::Url::parse(&gateway.endpoint)
        .ok()
        .filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
    let Some(mut url) = url else {
        return Err(invalid(format!(
            "'{}' is not the address of an S3 store",
            gateway.endpoint.escape_debug()
        )));
    };
    if gateway.virtual_host {
        let host = format!("{}.{}", gateway.bucket, url.host_str().unwrap_or_default());
        url.set_host(Some(&host)).map_err(|error| invalid(error.to_string()))?;
    }
    let mut options = ClientOptions::new()
        .with_allow_http(true)
        .with_timeout(gateway.timeout)
        .with_connect_timeout(CONNECT_WAIT.min(gateway.timeout));
    if let Some(pem) = &gateway.ca {
        let certificates = Certificate::from_pem_bundle(pem).map_err(|error| invalid(reason(&error)))?;
        options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
    }
    AmazonS3Builder::new()
        .with_endpoint(url.as_str().trim_end_matches('/'))
        .with_bucket_name(&gateway.bucket)
        .with_region(&gateway.region)
        .with_access_key_id(&gateway.access_key)
        .with_secret_access_key(gateway.secret_key.as_str())
        .with_virtual_hosted_style_request(gateway.virtual_host)
        .with_client_options(options)
        .with_retry(RetryConfig {
            backoff: BACKOFF,
            max_retries: RETRIES,
            retry_timeout: gateway.timeout / 2,
        })
        .build()
        .map_err(|error| invalid(reason(&error)))
}
