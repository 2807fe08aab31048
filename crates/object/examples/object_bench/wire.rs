//! One connection to an S3 server. It costs as little as it can, because it shares the cores with the
//! server: requests are signed before the clock runs, bodies are sent from one buffer and thrown away on
//! arrival, and all connections live on one thread.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use bytes::Buf;
use object::client::{Credentials, Signable, Signer, canonical_query};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const BUCKET: &str = "bench";
const REGION: &str = "us-east-1";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Bodies up to this size are hashed for the signature, as clients without TLS do.
const HASHED_MAX: usize = 64 << 10;
/// Bytes received at once.
const RECEIVE: usize = 256 << 10;
/// The most of a head.
const HEAD_MAX: usize = 16 << 10;
/// No two of these blocks are the same: some servers keep equal ones once.
pub const BLOCK: usize = 1 << 20;
const STAMP: usize = 16;

/// A server that is measured.
pub struct Server {
    pub name: String,
    pub address: SocketAddr,
    pub credentials: Credentials,
    pub pid: u32,
    pub folder: PathBuf,
}

impl Server {
    /// From a line `name address access-key secret-key pid folder`.
    pub fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, address, access, secret, pid, folder] = words[..] else {
            bail!("'{line}' does not describe a server");
        };
        Ok(Self {
            name: name.to_owned(),
            address: address.parse()?,
            credentials: Credentials {
                access_key_id: access.to_owned(),
                secret_access_key: secret.to_owned().into(),
                session_token: None,
            },
            pid: pid.parse()?,
            folder: folder.into(),
        })
    }

    /// The head of a request, signed.
    pub fn head(
        &self,
        method: &str,
        key: &str,
        query: &[(String, String)],
        load: Option<Load<'_>>,
    ) -> Vec<u8> {
        let at = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let host = self.address.to_string();
        let path = if key.is_empty() { format!("/{BUCKET}") } else { format!("/{BUCKET}/{key}") };
        let payload = match load {
            Some(load) if load.size <= HASHED_MAX => load.hash(),
            Some(_) => UNSIGNED.to_owned(),
            None => hex::encode(Sha256::digest([])),
        };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [header("x-amz-content-sha256", &payload), header("x-amz-date", &at)];
        let signer = Signer { credentials: &self.credentials, region: REGION, service: "s3", at: &at };
        let what = Signable { method, host: &host, path: &path, query, headers: &headers, payload: &payload };
        let authorization = signer.header(&what);
        let mark = if query.is_empty() { "" } else { "?" };
        let query = canonical_query(query);
        let length = load.map_or(0, |load| load.size);
        format!(
            "{method} {path}{mark}{query} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: {payload}\r\n\
             x-amz-date: {at}\r\nauthorization: {authorization}\r\ncontent-length: {length}\r\n\r\n"
        )
        .into_bytes()
    }
}

/// The bytes of an object: blocks of the same filler, each with a stamp of its own.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    pub number: u64,
    pub size: usize,
    pub filler: &'a [u8],
}

impl Load<'_> {
    fn hash(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(stamp(self.number, 0));
        digest.update(&self.filler[STAMP..self.size]);
        hex::encode(digest.finalize())
    }
}

fn stamp(number: u64, block: usize) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    stamp[8..].copy_from_slice(&(block as u64).to_le_bytes());
    stamp
}

/// A connection that is kept.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What came back.
pub struct Answer {
    size: usize,
    begin: [u8; STAMP],
}

impl Answer {
    /// Whether it is the object that was put.
    pub fn check(&self, number: u64, size: usize) -> Result<()> {
        ensure!(self.size == size && self.begin == stamp(number, 0), "another object came back");
        Ok(())
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    pub async fn open(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address).await.with_context(|| server.name.clone())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(RECEIVE) })
    }

    /// Makes the bucket, unless it is there.
    pub async fn bucket(server: &Server) -> Result<()> {
        let head = server.head("PUT", "", &[], None);
        match Self::open(server).await?.exchange(&head, None, None).await {
            Err(error) if !error.to_string().contains("status 409") => Err(error),
            _ => Ok(()),
        }
    }

    /// Asks and reads the whole answer; `keep` receives its body.
    pub async fn exchange(
        &mut self,
        head: &[u8],
        load: Option<Load<'_>>,
        keep: Option<&mut Vec<u8>>,
    ) -> Result<Answer> {
        match load {
            None => self.stream.write_all(head).await?,
            Some(load) => self.send(head, load).await?,
        }
        self.answer(keep).await
    }

    async fn send(&mut self, mut head: &[u8], load: Load<'_>) -> Result<()> {
        for (block, start) in (0..load.size).step_by(BLOCK).enumerate() {
            let end = (load.size - start).min(BLOCK);
            let stamp = stamp(load.number, block);
            let mut bytes = Buf::chain(head, &stamp[..]).chain(&load.filler[STAMP..end]);
            self.stream.write_all_buf(&mut bytes).await?;
            head = &[];
        }
        Ok(())
    }

    async fn answer(&mut self, keep: Option<&mut Vec<u8>>) -> Result<Answer> {
        self.buffer.clear();
        let end = loop {
            ensure!(self.buffer.len() < HEAD_MAX, "the head of an answer does not end");
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the server closed the connection");
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let (status, framing) = head_read(&self.buffer[..end])?;
        let body = self.buffer[end..].to_vec();
        let mut answer = Answer { size: 0, begin: [0; STAMP] };
        let mut none = Vec::new();
        let wants = keep.is_some() || status >= 300;
        let keep = keep.unwrap_or(&mut none);
        match framing {
            Framing::Length(length) => {
                self.plain(body, length, wants.then_some(&mut *keep), &mut answer).await?
            }
            Framing::Chunked => self.chunked(body, keep).await?,
        }
        if status >= 300 {
            bail!("status {status}: {}", String::from_utf8_lossy(&keep[..keep.len().min(300)]));
        }
        Ok(answer)
    }

    async fn plain(
        &mut self,
        first: Vec<u8>,
        length: usize,
        mut keep: Option<&mut Vec<u8>>,
        answer: &mut Answer,
    ) -> Result<()> {
        let mut take = |bytes: &[u8], at: usize| {
            if at < STAMP {
                let count = bytes.len().min(STAMP - at);
                answer.begin[at..at + count].copy_from_slice(&bytes[..count]);
            }
            if let Some(keep) = &mut keep {
                keep.extend_from_slice(bytes);
            }
        };
        take(&first, 0);
        let mut size = first.len();
        while size < length {
            self.buffer.clear();
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "an answer broke off");
            take(&self.buffer, size);
            size += read;
        }
        ensure!(size == length, "more came than was said");
        answer.size = size;
        Ok(())
    }

    /// Only for listings, which are kept.
    async fn chunked(&mut self, mut raw: Vec<u8>, keep: &mut Vec<u8>) -> Result<()> {
        while !raw.ends_with(b"\r\n0\r\n\r\n") {
            ensure!(self.stream.read_buf(&mut raw).await? > 0, "an answer broke off");
        }
        let mut rest = &raw[..];
        loop {
            let end = rest.windows(2).position(|two| two == b"\r\n").context("a chunk has no length")?;
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..end])?.trim(), 16)?;
            if size == 0 {
                return Ok(());
            }
            keep.extend_from_slice(rest.get(end + 2..end + 2 + size).context("a chunk is cut off")?);
            rest = &rest[end + 4 + size..];
        }
    }
}

fn head_read(head: &[u8]) -> Result<(u16, Framing)> {
    let text = std::str::from_utf8(head)?;
    let status = text.get(9..12).context("no status")?.parse()?;
    let mut framing = Framing::Length(0);
    for line in text.split("\r\n").skip(1) {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.trim().parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        }
    }
    Ok((status, framing))
}
