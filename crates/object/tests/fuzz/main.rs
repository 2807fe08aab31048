//! Spoiled requests and documents: none may make the store panic, hang, or answer that it failed.
//!
//! Inputs are made from a seed and a corpus. The tests run for a moment with a fixed seed;
//! `make fuzz SECONDS=n SEED=s` goes on for longer.
#![allow(clippy::unwrap_used)]

mod mutate;
mod parsers;
mod request;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use object::identity::{Account, Identity, Key, Principal, Rights};
use object::{Config, Store};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use request::{KEY, Request, SECRET, corpus, send};

/// Inputs of the short form.
const REQUESTS: usize = 1500;
const DOCUMENTS: usize = 3000;
const SEED: u64 = 1;
/// After so many requests the bucket is put in order.
const TIDY: usize = 300;
/// Of so many requests one must be taken, or too little of the store is reached.
const GOOD_ONE_IN: usize = 25;
/// What is printed of an input that broke something.
const SHOWN_MAX: usize = 8 << 10;

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Remembers panics of every thread.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(info.to_string());
            before(info);
        }));
    });
}

fn sound(input: &[u8]) {
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    let shown = &input[..input.len().min(SHOWN_MAX)];
    assert!(panics.is_empty(), "{panics:?} after\n{}", shown.escape_ascii());
}

struct One;

#[async_trait::async_trait]
impl Identity for One {
    async fn key(&self, id: &str) -> Option<Key> {
        let account = Account { id: "account".into(), name: "fuzz".into() };
        let principal = Principal {
            account,
            user: "fuzz".into(),
            rights: Rights::Manage,
            operator: false,
            session: None,
        };
        (id == KEY).then(|| Key { secret: SECRET.to_owned().into(), principal })
    }

    async fn account(&self, id: &str) -> Option<Account> {
        (id == "account").then(|| Account { id: "account".into(), name: "fuzz".into() })
    }

    async fn account_by_email(&self, _: &str) -> Option<Account> {
        None
    }

    async fn user_exists(&self, _: &str, _: &str) -> bool {
        true
    }

    async fn quota(&self, _: &str) -> Option<u64> {
        Some(1 << 30)
    }

    fn root_key(&self) -> [u8; 32] {
        [7; 32]
    }
}

/// A bucket that lets everyone do everything, and an upload in it; answers the upload's id.
async fn tidy(client: &object::client::Client) -> String {
    if let Err(error) = client.bucket_create("fuzz", true).await {
        assert_eq!(error.kind, model::ErrorKind::Conflict, "{error}");
    }
    let policy = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::fuzz","arn:aws:s3:::fuzz/*"]}]}"#;
    for setting in ["publicAccessBlock", "cors", "notification", "lifecycle", "ownershipControls"] {
        let delete = object::client::Ask::new(http::Method::DELETE, "fuzz", "").query(setting, "");
        let _ = client.send(delete).await;
    }
    let put = object::client::Ask::new(http::Method::PUT, "fuzz", "").query("policy", "").body(policy);
    client.ask(put).await.unwrap();
    client.upload_start("fuzz", "m", Vec::new()).await.unwrap()
}

fn is_failure(status: u16) -> bool {
    // What the store does not do is told by 501.
    status >= 500 && status != 501
}

/// `ok`, or the code of the refusal.
fn word(status: u16, answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let code = text.split_once("<Code>").and_then(|(_, rest)| Some(rest.split_once("</Code>")?.0.to_owned()));
    if status < 300 { "ok".to_owned() } else { code.unwrap_or_else(|| status.to_string()) }
}

async fn requests(seed: u64, enough: impl Fn(usize) -> bool) -> BTreeMap<String, usize> {
    watch();
    // In memory: what is asked for is parsing, not syncing.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut config = Config::new(folder.path().to_owned(), "127.0.0.1:0".parse().unwrap());
    config.domains = vec!["localhost".into()];
    config.website_domains = vec!["web.localhost".into()];
    config.log_every = Duration::from_secs(1);
    config.day_set(Duration::from_secs(5));
    let store = Store::start(config, Arc::new(One)).await.unwrap();
    let credentials = object::client::Credentials {
        access_key_id: KEY.into(),
        secret_access_key: SECRET.to_owned().into(),
        session_token: None,
    };
    let endpoint = format!("http://{}", store.address());
    let client = object::client::Client::new(&endpoint, "us-east-1", credentials).unwrap();
    let corpus = corpus();
    let mut chance = StdRng::seed_from_u64(seed);
    let mut upload = String::new();
    let mut done = 0;
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    while !enough(done) {
        if done % TIDY == 0 {
            upload = tidy(&client).await;
        }
        // At first as they are: the corpus itself must be understood.
        let request: Request = match corpus.get(done) {
            Some(request) => request.clone().with_upload(&upload),
            None => {
                let request = corpus.choose(&mut chance).unwrap().clone().with_upload(&upload);
                request.spoiled(&mut chance, &corpus)
            }
        };
        let bytes = request.bytes(&mut chance);
        let answer = send(store.address(), &bytes).await;
        sound(&bytes);
        if let Some((status, answer)) = answer {
            let shown = &bytes[..bytes.len().min(SHOWN_MAX)];
            assert!(!is_failure(status), "{}\nto\n{}", answer.escape_ascii(), shown.escape_ascii());
            *told.entry(word(status, &answer)).or_default() += 1;
        }
        done += 1;
    }
    let good = told.get("ok").copied().unwrap_or(0);
    assert!(good * GOOD_ONE_IN > done, "nothing was tested; of {done} requests were answered {told:?}");
    told
}

fn documents(seed: u64, enough: impl Fn(usize) -> bool) -> usize {
    let pool = parsers::pool();
    let mut chance = StdRng::seed_from_u64(seed);
    let mut done = 0;
    while !enough(done) {
        for (parser, input) in parsers::inputs(&mut chance, &pool) {
            let parsed = std::panic::catch_unwind(|| parser(&input));
            assert!(parsed.is_ok(), "a parser panicked at\n{}", input.escape_ascii());
        }
        done += 1;
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_requests_are_answered() {
    requests(SEED, |done| done >= REQUESTS).await;
}

#[test]
fn spoiled_documents_are_refused() {
    documents(SEED, |done| done >= DOCUMENTS);
}

fn given<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the long form: make fuzz"]
async fn for_long() {
    let seed = given("FUZZ_SEED").unwrap_or_else(rand::random);
    let seconds = Duration::from_secs(given("FUZZ_SECONDS").unwrap_or(60));
    eprintln!("fuzz: seed {seed}");
    let until = |span: Duration| {
        let end = Instant::now() + span;
        move |_| Instant::now() >= end
    };
    let count = documents(seed, until(seconds / 5));
    eprintln!("fuzz: {count} rounds of documents");
    let told = requests(seed, until(seconds / 5 * 4)).await;
    eprintln!("fuzz: {} requests were answered: {told:?}", told.values().sum::<usize>());
}
