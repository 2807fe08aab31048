//! A store with a few users, and a client that signs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit, Mac};
use object::identity::{Account, Identity, Key, Principal, Rights};
use object::{Config, Store};
use reqwest::{Method, StatusCode};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Access keys are the users' names.
struct Users(Mutex<BTreeMap<String, Principal>>);

fn account(id: &str) -> Account {
    Account { id: id.into(), name: id.into() }
}

#[async_trait::async_trait]
impl Identity for Users {
    async fn key(&self, id: &str) -> Option<Key> {
        let principal = self.0.lock().unwrap().get(id).cloned()?;
        Some(Key { secret: format!("secret of {id}").into(), principal })
    }

    async fn account(&self, id: &str) -> Option<Account> {
        let users = self.0.lock().unwrap();
        users.values().find(|user| *user.account.id == *id).map(|user| user.account.clone())
    }

    async fn account_by_email(&self, _: &str) -> Option<Account> {
        None
    }

    async fn user_exists(&self, account: &str, user: &str) -> bool {
        let users = self.0.lock().unwrap();
        users.values().any(|known| *known.account.id == *account && *known.user == *user)
    }

    async fn quota(&self, account: &str) -> Option<u64> {
        (account == "poor").then_some(10)
    }

    fn root_key(&self) -> [u8; 32] {
        [9; 32]
    }
}

/// No users.
pub fn nobody() -> Arc<dyn Identity> {
    Arc::new(Users(Mutex::default()))
}

pub struct Bed {
    /// None where another process runs it.
    store: Option<Store>,
    host: String,
    users: Arc<Users>,
    http: reqwest::Client,
    _data: Option<tempfile::TempDir>,
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The text of an element.
    pub fn text(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    }

    /// `ok`, or the code of the error.
    pub fn code(&self) -> &str {
        match self.status {
            200..=299 => "ok",
            _ => self.text("Code").unwrap_or("?"),
        }
    }
}

/// Who signs.
#[derive(Debug, Clone)]
pub struct Signer {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
}

/// The signer with a user's own key.
pub fn user(name: &str) -> Signer {
    Signer { id: name.into(), secret: format!("secret of {name}"), token: None }
}

impl Bed {
    /// Users `admin`, `member`, `viewer` and `M. Tester` of account `home`, `other` of account `away`, and `poor` of one that may keep ten bytes.
    pub async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// The same with other settings.
    pub async fn start_with(set: impl FnOnce(&mut Config)) -> Self {
        let users = [
            ("admin", "home", Rights::Manage),
            ("member", "home", Rights::Write),
            ("viewer", "home", Rights::Read),
            ("M. Tester", "home", Rights::Write),
            ("other", "away", Rights::Manage),
            ("poor", "poor", Rights::Manage),
        ];
        let users = users.map(|(name, tenant, rights)| {
            let principal = Principal {
                account: account(tenant),
                user: name.into(),
                rights,
                operator: false,
                session: None,
            };
            (name.to_owned(), principal)
        });
        let users = Arc::new(Users(Mutex::new(users.into_iter().collect())));
        let data = tempfile::tempdir().unwrap();
        let mut config = Config::new(data.path().to_owned(), "127.0.0.1:0".parse().unwrap());
        set(&mut config);
        let store = Store::start(config, users.clone()).await.unwrap();
        let (host, http) = (store.address().to_string(), reqwest::Client::new());
        Self { store: Some(store), host, users, http, _data: Some(data) }
    }

    /// One that another process runs.
    pub fn at(host: String) -> Self {
        let users = Arc::new(Users(Mutex::default()));
        Self { store: None, host, users, http: reqwest::Client::new(), _data: None }
    }

    pub async fn stop(self) {
        drop(self.http);
        if let Some(store) = self.store {
            store.stop().await;
        }
    }

    /// Serves one more address.
    pub async fn listen_also(&self, ip: &str) -> model::Result<()> {
        self.store.as_ref().unwrap().listen_also(ip.parse().unwrap()).await
    }

    /// Sets the most bytes of a bucket.
    pub async fn quota_set(&self, bucket: &str, bytes: u64) {
        let service = self.store.as_ref().unwrap().service();
        object::inventory::quota_set(service, bucket, Some(bytes)).await.unwrap();
    }

    /// Takes a user's key away.
    pub fn remove(&self, name: &str) {
        self.users.0.lock().unwrap().remove(name);
    }

    pub fn host(&self) -> String {
        self.host.clone()
    }

    /// Sends as it is.
    pub async fn raw(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let method: Method = method.parse().unwrap();
        let mut req = self.http.request(method, format!("http://{}{target}", self.host()));
        for (name, value) in headers {
            req = req.header(*name, *value);
        }
        let response = req.body(body.to_owned()).send().await.unwrap();
        let status: StatusCode = response.status();
        Answer { status: status.as_u16(), body: response.text().await.unwrap() }
    }

    /// Signs by a header and sends.
    pub async fn call(&self, by: &Signer, method: &str, target: &str, body: &str) -> Answer {
        self.call_with(by, method, target, &[], body).await
    }

    /// Signs all of the headers, too.
    pub async fn call_with(
        &self,
        by: &Signer,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let digest = hex::encode(Sha256::digest(body.as_bytes()));
        let headers = self.signed(by, method, target, headers, &digest, (&stamp(0), "us-east-1"));
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.raw(method, target, &headers, body).await
    }

    /// The request id of an answer, and the answer.
    pub async fn head_of(&self, by: &Signer, method: &str, target: &str) -> (String, Answer) {
        let headers = self.signed(by, method, target, &[], "UNSIGNED-PAYLOAD", (&stamp(0), "us-east-1"));
        let mut req = self.http.request(method.parse().unwrap(), format!("http://{}{target}", self.host()));
        for (name, value) in headers {
            req = req.header(name, value);
        }
        let response = req.send().await.unwrap();
        let id = response.headers()["x-amz-request-id"].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        (id, Answer { status, body: response.text().await.unwrap() })
    }

    /// The headers with a signature of them, made at a time for a region; `host` is signed but not among them.
    pub fn signed(
        &self,
        by: &Signer,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        digest: &str,
        (at, region): (&str, &str),
    ) -> Vec<(String, String)> {
        let host = self.host();
        let mut signed: BTreeMap<&str, &str> = headers.iter().copied().collect();
        signed.extend([("host", host.as_str()), ("x-amz-date", at), ("x-amz-content-sha256", digest)]);
        if let Some(token) = &by.token {
            signed.insert("x-amz-security-token", token);
        }
        let names = signed.keys().copied().collect::<Vec<_>>().join(";");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!("{method}\n{path}\n{}\n{lines}\n{names}\n{digest}", canonical_query(query));
        let scope = format!("{}/{region}/s3/aws4_request", &at[..8]);
        let signature = sign(&by.secret, at, &scope, &canonical);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            by.id
        );
        signed.insert("authorization", &authorization);
        signed.remove("host");
        signed.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Writes a signed request onto the wire as it is, announcing `length` bytes of body, and leaves it open.
    pub async fn wire(
        &self,
        by: &Signer,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        length: usize,
        body: &[u8],
    ) -> TcpStream {
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.host());
        for (name, value) in
            self.signed(by, method, target, headers, "UNSIGNED-PAYLOAD", (&stamp(0), "us-east-1"))
        {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {length}\r\n\r\n"));
        let mut stream = TcpStream::connect(self.host()).await.unwrap();
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        stream
    }

    /// Sends a whole request on the wire, without what clients do to its target.
    pub async fn call_as_is(&self, by: &Signer, method: &str, target: &str, body: &[u8]) -> Answer {
        let close = [("connection", "close")];
        let stream = self.wire(by, method, target, &close, body.len(), body).await;
        answer(stream).await
    }

    /// A presigned target.
    pub fn presign(&self, by: &Signer, method: &str, path: &str, expires: &str) -> String {
        self.presign_at(by, method, path, expires, &stamp(0))
    }

    /// One that was made at a time.
    pub fn presign_at(&self, by: &Signer, method: &str, path: &str, expires: &str, now: &str) -> String {
        let scope = format!("{}/us-east-1/s3/aws4_request", &now[..8]);
        let mut query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={now}&X-Amz-Expires={expires}",
            format!("{}/{scope}", by.id).replace('/', "%2F")
        );
        if let Some(token) = &by.token {
            query.push_str(&format!("&X-Amz-Security-Token={token}"));
        }
        query.push_str("&X-Amz-SignedHeaders=host");
        let canonical = format!(
            "{method}\n{path}\n{}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD",
            canonical_query(&query),
            self.host()
        );
        let signature = sign(&by.secret, now, &scope, &canonical);
        format!("{path}?{query}&X-Amz-Signature={signature}")
    }

    /// Asks the token service.
    pub async fn sts(&self, by: Option<&Signer>, form: &str) -> Answer {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        match by {
            Some(by) => self.call_with(by, "POST", "/", &[kind], form).await,
            None => self.raw("POST", "/", &[kind], form).await,
        }
    }

    /// The credentials of a session.
    pub async fn session(&self, by: &Signer, form: &str) -> Signer {
        let answer = self.sts(Some(by), form).await;
        assert_eq!(answer.code(), "ok", "{}", answer.body);
        let text = |name| answer.text(name).unwrap().to_owned();
        Signer { id: text("AccessKeyId"), secret: text("SecretAccessKey"), token: Some(text("SessionToken")) }
    }
}

/// Reads until the store closes.
pub async fn answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    Answer { status, body }
}

/// A time so many seconds from now, as signatures write it.
pub fn stamp(from_now: i64) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(from_now);
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn canonical_query(query: &str) -> String {
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| if pair.contains('=') { pair.to_owned() } else { format!("{pair}=") })
        .collect();
    pairs.sort();
    pairs.join("&")
}

pub fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn sign(secret: &str, now: &str, scope: &str, canonical: &str) -> String {
    let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}");
    let first = format!("AWS4{secret}").into_bytes();
    let key = scope.split('/').fold(first, |key, step| mac(&key, step));
    hex::encode(mac(&key, &text))
}
