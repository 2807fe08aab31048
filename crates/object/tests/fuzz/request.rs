//! Requests of the corpus, spoiled and sent over a real connection.

use std::net::SocketAddr;
use std::time::Duration;

use object::checksum::md5_base64;
use object::client::{Credentials, Signable, Signer, canonical_query};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mutate::mutate;

pub const KEY: &str = "FUZZKEY";
pub const SECRET: &str = "fuzzsecret";
/// An answer that has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most of an answer that is read.
const ANSWER_MAX: u64 = 64 << 20;
const METHODS: [&str; 6] = ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"];

#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// The requests that everything begins with.
pub fn corpus() -> Vec<Request> {
    include_str!("corpus.http").split("\n%%\n").map(Request::read).collect()
}

fn decoded(text: &str) -> String {
    text.replace("%20", " ").replace("%2B", "+").replace("%3D", "=")
}

impl Request {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let (method, target) = lines.next().and_then(|line| line.split_once(' ')).expect("a request line");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        let header =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: pairs.map(pair).collect(),
            headers: lines.map(|line| header(line).expect("a header")).collect(),
            body: body.replace("\\r\n", "\r\n").into_bytes(),
        }
    }

    /// Names the upload that is open now.
    pub fn with_upload(mut self, id: &str) -> Self {
        self.query
            .iter_mut()
            .filter(|(_, value)| value == "${upload}")
            .for_each(|(_, value)| *value = id.to_owned());
        self
    }

    fn host(&self) -> &str {
        let host = self.headers.iter().find(|(name, _)| name == "host");
        host.map_or("localhost", |(_, host)| host)
    }

    /// Changes one or two of its parts.
    pub fn spoiled(mut self, chance: &mut StdRng, all: &[Self]) -> Self {
        let other = all.choose(chance).expect("the corpus is not empty").clone();
        let pool: Vec<Vec<u8>> = all.iter().map(|request| request.body.clone()).collect();
        for _ in 0..chance.random_range(1..=2) {
            match chance.random_range(0..20) {
                0..8 if !self.body.is_empty() => self.body = mutate(chance, &self.body, &pool),
                0..8 => self.body = other.body.clone(),
                8 => self.method = (*METHODS.choose(chance).expect("there are methods")).to_owned(),
                9 => self.path = text(chance, &self.path),
                10 => self.query.clone_from(&other.query),
                11 => self.query.extend(other.query.iter().cloned()),
                12 | 13 => pair(chance, &mut self.query),
                14 => self.headers.extend(other.headers.iter().cloned()),
                15 => self.headers.clone_from(&other.headers),
                _ => pair(chance, &mut self.headers),
            }
        }
        self
    }

    /// The bytes to send. Signed after it was spoiled, so that the signature is right.
    pub fn bytes(mut self, chance: &mut StdRng) -> Vec<u8> {
        if let Some((_, value)) = self.headers.iter_mut().find(|(name, _)| name == "content-md5")
            && chance.random_bool(0.9)
        {
            *value = md5_base64(&self.body);
        }
        let signed = self.headers.iter().any(|(name, _)| name == "authorization");
        if !signed && chance.random_bool(0.7) {
            self.sign();
        }
        let length = if chance.random_bool(0.03) { chance.random() } else { self.body.len() as u64 };
        let query =
            if self.query.is_empty() { String::new() } else { format!("?{}", canonical_query(&self.query)) };
        let mut bytes = format!("{} {}{query} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        let mut line = |name: &str, value: &str| bytes.extend(format!("{name}: {value}\r\n").into_bytes());
        line("host", self.host());
        line("connection", "close");
        if !self.body.is_empty() || self.method != "GET" {
            line("content-length", &length.to_string());
        }
        self.headers.iter().filter(|(name, _)| name != "host").for_each(|(name, value)| line(name, value));
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        if chance.random_bool(0.05) { mutate(chance, &bytes, &[]) } else { bytes }
    }

    fn sign(&mut self) {
        let at = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        if !self.headers.iter().any(|(name, _)| name == "x-amz-content-sha256") {
            self.headers.push(("x-amz-content-sha256".into(), "UNSIGNED-PAYLOAD".into()));
        }
        self.headers.push(("x-amz-date".into(), at.clone()));
        let headers: Vec<(String, String)> =
            self.headers.iter().filter(|(name, _)| name != "host").cloned().collect();
        let payload =
            headers.iter().find(|(name, _)| name == "x-amz-content-sha256").map_or("", |(_, value)| value);
        let credentials = Credentials {
            access_key_id: KEY.into(),
            secret_access_key: SECRET.to_owned().into(),
            session_token: None,
        };
        // The token service of the cloud shares the port and has a name of its own.
        let service = if self.path == "/" && self.method == "POST" { "sts" } else { "s3" };
        let signer = Signer { credentials: &credentials, region: "us-east-1", service, at: &at };
        let authorization = signer.header(&Signable {
            method: &self.method,
            host: self.host(),
            path: &self.path,
            query: &self.query,
            headers: &headers,
            payload,
        });
        self.headers.push(("authorization".into(), authorization));
    }
}

fn text(chance: &mut StdRng, text: &str) -> String {
    String::from_utf8_lossy(&mutate(chance, text.as_bytes(), &[])).into_owned()
}

fn pair(chance: &mut StdRng, pairs: &mut [(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let at = chance.random_range(0..pairs.len());
    match chance.random_bool(0.8) {
        true => pairs[at].1 = text(chance, &pairs[at].1),
        false => pairs[at].0 = text(chance, &pairs[at].0),
    }
}

/// Status and text of the answer; `None` if the connection ended without one.
pub async fn send(address: SocketAddr, bytes: &[u8]) -> Option<(u16, Vec<u8>)> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.expect("the store listens");
        let (mut reader, mut writer) = stream.split();
        let mut answer = Vec::new();
        let write = async {
            // The store may close while it is written to.
            let _ = writer.write_all(bytes).await;
            let _ = writer.shutdown().await;
        };
        let mut limited = (&mut reader).take(ANSWER_MAX);
        let (_, _) = tokio::join!(write, limited.read_to_end(&mut answer));
        // Closed at once, so that ports are free again.
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        answer
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer to\n{}", bytes.escape_ascii()));
    let status = answer.strip_prefix(b"HTTP/1.1 ").or_else(|| answer.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
    Some((std::str::from_utf8(status).ok()?.parse().ok()?, answer))
}
