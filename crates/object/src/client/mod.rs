//! A small S3 client: for the command line and for a store behind this one.

mod answer;
mod refusal;
mod sign;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::{HeaderMap, Method, StatusCode};
use model::{Error, ErrorKind, Result};
use reqwest::{Body, Response, Url};
use s3s::dto::TimestampFormat;
use s3s::xml;

use answer::{Begun, Left};
pub use answer::{Listing, Versions};
use refusal::{error_of, place, refusal};
pub use sign::{Credentials, Signable, Signer, canonical_query};

use crate::escape::escape;

/// How listings say times.
pub const DATE_TIME: TimestampFormat = TimestampFormat::DateTime;

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const UNTRUSTED: &str = "name the file of its CA's certificate in SSL_CERT_FILE";
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long a server may stay silent.
const READ_WAIT: Duration = Duration::from_secs(120);
/// The most objects of one multi-delete.
pub const DELETE_MAX: usize = 1000;
/// The most of an answer in XML.
const XML_MAX: usize = 16 << 20;

/// Speaks path style to one endpoint.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    endpoint: Url,
    region: String,
    credentials: Credentials,
}

/// One request, as it is put together.
pub struct Ask<'a> {
    pub method: Method,
    pub bucket: &'a str,
    pub key: &'a str,
    pub query: Vec<(String, String)>,
    /// Lower-case names.
    pub headers: Vec<(String, String)>,
    pub body: Option<Body>,
}

impl<'a> Ask<'a> {
    pub fn new(method: Method, bucket: &'a str, key: &'a str) -> Self {
        Self { method, bucket, key, query: Vec::new(), headers: Vec::new(), body: None }
    }

    #[must_use]
    pub fn query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = Some(body.into());
        self
    }
}

impl Client {
    pub fn new(endpoint: &str, region: &str, credentials: Credentials) -> Result<Self> {
        let endpoint = Url::parse(endpoint).map_err(|error| {
            Error::invalid(format!(
                "'{}' is not the address of an S3 store: {error}",
                endpoint.escape_debug()
            ))
        })?;
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WAIT)
            .read_timeout(READ_WAIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::internal(format!("no HTTP client: {error}")))?;
        Ok(Self { http, endpoint, region: region.to_owned(), credentials })
    }

    fn host(&self) -> String {
        let name = self.endpoint.host_str().unwrap_or_default();
        match self.endpoint.port() {
            Some(port) => format!("{name}:{port}"),
            None => name.to_owned(),
        }
    }

    fn url(&self, path: &str, query: &str) -> Result<Url> {
        let base = self.endpoint.as_str().trim_end_matches('/');
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{base}{path}{mark}{query}")
            .parse()
            .map_err(|error| Error::internal(format!("no address: {error}")))
    }

    /// Sends and waits for the head of the answer, whatever its status.
    pub async fn send(&self, ask: Ask<'_>) -> Result<Response> {
        let at = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let paths = Paths::of(ask.bucket, ask.key)?;
        let mut headers = ask.headers;
        headers.push(("x-amz-content-sha256".into(), UNSIGNED.into()));
        headers.push(("x-amz-date".into(), at.clone()));
        headers.extend(
            self.credentials.session_token.clone().map(|token| ("x-amz-security-token".into(), token)),
        );
        let signer = Signer { credentials: &self.credentials, region: &self.region, service: "s3", at: &at };
        let authorization = signer.header(&Signable {
            method: ask.method.as_str(),
            host: &self.host(),
            path: &paths.signed,
            query: &ask.query,
            headers: &headers,
            payload: UNSIGNED,
        });
        let url = self.url(&paths.sent, &canonical_query(&ask.query))?;
        let mut request = self.http.request(ask.method, url).header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(body) = ask.body {
            request = request.body(body);
        }
        request.send().await.map_err(|error| {
            let cause = root_cause(&error);
            let told = Error::unavailable(format!("S3 at {} does not answer: {cause}", self.endpoint));
            if cause.contains("UnknownIssuer") { told.hint(UNTRUSTED) } else { told }
        })
    }

    /// Sends; an answer that is no success becomes an error with the words of the store.
    pub async fn ask(&self, ask: Ask<'_>) -> Result<Response> {
        let (bucket, key) = (ask.bucket, ask.key);
        let response = self.send(ask).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response, &place(bucket, key)).await)
    }

    async fn xml<T: for<'x> xml::Deserialize<'x>>(&self, ask: Ask<'_>) -> Result<T> {
        parse(&body(self.ask(ask).await?).await?)
    }

    /// A link for whoever has it.
    pub fn presign(&self, method: &str, bucket: &str, key: &str, seconds: u64) -> Result<Url> {
        let at = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let paths = Paths::of(bucket, key)?;
        let signer = Signer { credentials: &self.credentials, region: &self.region, service: "s3", at: &at };
        let host = self.host();
        let path = &paths.signed;
        let what = Signable { method, host: &host, path, query: &[], headers: &[], payload: UNSIGNED };
        self.url(&paths.sent, &signer.query(&what, seconds))
    }

    pub async fn bucket_create(&self, bucket: &str, lock: bool) -> Result<()> {
        let mut ask = Ask::new(Method::PUT, bucket, "");
        if lock {
            ask = ask.header("x-amz-bucket-object-lock-enabled", "true");
        }
        self.ask(ask).await.map(drop)
    }

    pub async fn bucket_delete(&self, bucket: &str) -> Result<()> {
        self.ask(Ask::new(Method::DELETE, bucket, "")).await.map(drop)
    }

    pub async fn versioning_set(&self, bucket: &str, enabled: bool) -> Result<()> {
        let status = if enabled { "Enabled" } else { "Suspended" };
        let text = format!(
            "<VersioningConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>{status}</Status></VersioningConfiguration>"
        );
        self.setting_set(bucket, "versioning", text).await
    }

    /// The document of a sub-resource of a bucket, such as `policy`.
    pub async fn setting_get(&self, bucket: &str, name: &str) -> Result<Vec<u8>> {
        body(self.ask(Ask::new(Method::GET, bucket, "").query(name, "")).await?).await
    }

    pub async fn setting_set(&self, bucket: &str, name: &str, text: String) -> Result<()> {
        let ask = Ask::new(Method::PUT, bucket, "").query(name, "").header("content-md5", md5_of(&text));
        self.ask(ask.body(text)).await.map(drop)
    }

    pub async fn setting_delete(&self, bucket: &str, name: &str) -> Result<()> {
        self.ask(Ask::new(Method::DELETE, bucket, "").query(name, "")).await.map(drop)
    }

    /// One page of names.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &str,
        delimiter: Option<&str>,
        after: Option<&str>,
    ) -> Result<Listing> {
        let mut ask = Ask::new(Method::GET, bucket, "").query("list-type", "2").query("prefix", prefix);
        if let Some(delimiter) = delimiter {
            ask = ask.query("delimiter", delimiter);
        }
        if let Some(after) = after {
            ask = ask.query("continuation-token", after);
        }
        self.xml(ask).await
    }

    /// The first page of versions and delete markers.
    pub async fn versions(&self, bucket: &str) -> Result<Versions> {
        self.xml(Ask::new(Method::GET, bucket, "").query("versions", "")).await
    }

    /// `None` if there is no such object.
    pub async fn head(&self, bucket: &str, key: &str) -> Result<Option<HeaderMap>> {
        let response = self.send(Ask::new(Method::HEAD, bucket, key)).await?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(response.headers().clone())),
            _ => Err(refusal(response, &place(bucket, key)).await),
        }
    }

    /// The object. With `rest` what comes behind so many bytes of it, if its ETag is still this one.
    pub async fn get(
        &self,
        bucket: &str,
        key: &str,
        rest: Option<(u64, &str)>,
        version: Option<&str>,
    ) -> Result<Response> {
        let mut ask = Ask::new(Method::GET, bucket, key);
        if let Some((from, etag)) = rest {
            ask = ask.header("range", format!("bytes={from}-")).header("if-match", etag.to_owned());
        }
        if let Some(version) = version {
            ask = ask.query("versionId", version);
        }
        self.ask(ask).await
    }

    pub async fn delete(&self, bucket: &str, key: &str, version: Option<&str>) -> Result<()> {
        let mut ask = Ask::new(Method::DELETE, bucket, key);
        if let Some(version) = version {
            ask = ask.query("versionId", version);
        }
        self.ask(ask).await.map(drop)
    }

    /// Deletes up to [`DELETE_MAX`] objects or versions in one request. The first that stays becomes the error.
    pub async fn delete_many(&self, bucket: &str, what: &[(String, Option<String>)]) -> Result<()> {
        // What XML cannot say goes alone.
        let (odd, plain): (Vec<_>, Vec<_>) = what.iter().partition(|(key, _)| key.contains(is_unsayable));
        for (key, version) in odd {
            self.delete(bucket, key, version.as_deref()).await?;
        }
        if plain.is_empty() {
            return Ok(());
        }
        let objects: String = plain
            .into_iter()
            .map(|(key, version)| {
                let version = version.as_ref().map(|id| format!("<VersionId>{}</VersionId>", xml_text(id)));
                format!("<Object><Key>{}</Key>{}</Object>", xml_text(key), version.unwrap_or_default())
            })
            .collect();
        let text = format!("<Delete><Quiet>true</Quiet>{objects}</Delete>");
        let ask = Ask::new(Method::POST, bucket, "").query("delete", "").header("content-md5", md5_of(&text));
        let left: Left = self.xml(ask.body(text)).await?;
        match left.0.first() {
            None => Ok(()),
            Some(error) => {
                let text = |part: &Option<String>| part.clone().unwrap_or_default();
                let others = match left.0.len() - 1 {
                    0 => String::new(),
                    count => format!("; {count} more stayed"),
                };
                let (key, code) = (text(&error.key), text(&error.code));
                let message = format!("{bucket}/{key}: {} ({code}){others}", text(&error.message));
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }

    /// Puts a body whose length is known. Answers the headers of the store.
    pub async fn put<S>(
        &self,
        bucket: &str,
        key: &str,
        length: u64,
        headers: Vec<(String, String)>,
        stream: S,
    ) -> Result<HeaderMap>
    where
        S: Stream<Item = std::io::Result<Bytes>> + Send + Sync + 'static,
    {
        let mut ask = Ask::new(Method::PUT, bucket, key).body(Body::wrap_stream(stream));
        ask.headers = headers;
        ask.headers.push(("content-length".into(), length.to_string()));
        Ok(self.ask(ask).await?.headers().clone())
    }

    pub async fn upload_start(
        &self,
        bucket: &str,
        key: &str,
        headers: Vec<(String, String)>,
    ) -> Result<String> {
        let mut ask = Ask::new(Method::POST, bucket, key).query("uploads", "");
        ask.headers = headers;
        let begun: Begun = self.xml(ask).await?;
        begun.upload.ok_or_else(|| Error::internal("the store began an upload without an id"))
    }

    /// Sends a part; answers its ETag as it stands in the header.
    pub async fn upload_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u32,
        body: Bytes,
    ) -> Result<String> {
        let ask = Ask::new(Method::PUT, bucket, key)
            .query("uploadId", upload)
            .query("partNumber", number.to_string())
            .header("content-length", body.len().to_string())
            .body(body);
        let response = self.ask(ask).await?;
        let etag = response.headers().get("etag").and_then(|value| value.to_str().ok());
        etag.map(str::to_owned).ok_or_else(|| Error::internal("the store took a part without an ETag"))
    }

    pub async fn upload_complete(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        etags: &[String],
    ) -> Result<()> {
        let parts: String = etags
            .iter()
            .zip(1..)
            .map(|(etag, number)| {
                format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
            })
            .collect();
        let text = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let response =
            self.ask(Ask::new(Method::POST, bucket, key).query("uploadId", upload).body(text)).await?;
        let bytes = body(response).await?;
        match error_of(&bytes) {
            // The status is sent before the end is known, so an error may stand in a good answer.
            Some((code, message)) => {
                let message = format!("{}{message} ({code})", place(bucket, key));
                Err(Error::new(ErrorKind::Conflict, message))
            }
            None => Ok(()),
        }
    }

    pub async fn upload_abort(&self, bucket: &str, key: &str, upload: &str) -> Result<()> {
        self.ask(Ask::new(Method::DELETE, bucket, key).query("uploadId", upload)).await.map(drop)
    }
}

/// The path of a request. Whoever handles an address tidies it: `a/../b` becomes `b`, also with the dots escaped. An escaped
/// slash makes one step of those around it, which stays as it is and means the same to S3.
struct Paths {
    signed: String,
    sent: String,
}

impl Paths {
    fn of(bucket: &str, key: &str) -> Result<Self> {
        let is_dots = |step: &str| matches!(step, "." | "..");
        if is_dots(bucket) || is_dots(key) {
            let what = if is_dots(bucket) { "bucket" } else { "key" };
            return Err(Error::invalid(format!("a {what} of dots alone cannot be put into an address"))
                .hint("a client of S3 that does not tidy addresses can name it"));
        }
        let signed = match (bucket, key) {
            ("", _) => "/".to_owned(),
            (bucket, "") => format!("/{}", escape(bucket, false)),
            (bucket, key) => format!("/{}/{}", escape(bucket, false), escape(key, true)),
        };
        let sent = match key.split('/').any(is_dots) {
            true => format!("/{}/{}", escape(bucket, false), escape(key, false)),
            false => signed.clone(),
        };
        Ok(Self { signed, sent })
    }
}

/// The ETag of content that is put in one piece.
pub fn etag_of(mut content: impl std::io::Read) -> std::io::Result<String> {
    let mut md5 = <md5::Md5 as md5::Digest>::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match content.read(&mut buffer)? {
            0 => return Ok(hex::encode(md5::Digest::finalize(md5))),
            count => md5::Digest::update(&mut md5, &buffer[..count]),
        }
    }
}

fn md5_of(text: &str) -> String {
    STANDARD.encode(<md5::Md5 as md5::Digest>::digest(text.as_bytes()))
}

fn is_unsayable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn body(response: Response) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    loop {
        let next = stream.try_next().await;
        match next
            .map_err(|error| Error::unavailable(format!("the answer broke off: {}", root_cause(&error))))?
        {
            Some(chunk) if bytes.len() + chunk.len() <= XML_MAX => bytes.extend_from_slice(&chunk),
            Some(_) => return Err(Error::internal("the answer of the store is too long")),
            None => return Ok(bytes),
        }
    }
}

fn parse<T: for<'x> xml::Deserialize<'x>>(bytes: &[u8]) -> Result<T> {
    let mut reader = xml::Deserializer::new(bytes);
    T::deserialize(&mut reader)
        .map_err(|error| Error::internal(format!("the store's answer is not read: {error}")))
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_becomes_another_in_an_address() {
        let credentials = Credentials {
            access_key_id: "id".into(),
            secret_access_key: "secret".to_owned().into(),
            session_token: None,
        };
        let client = Client::new("http://127.0.0.1:1", "us-east-1", credentials).unwrap();
        for (key, path) in [
            ("a/b c", "/box/a/b%20c"),
            ("a/../b", "/box/a%2F..%2Fb"),
            ("./y", "/box/.%2Fy"),
            ("../../x", "/box/..%2F..%2Fx"),
            ("a/..", "/box/a%2F.."),
            ("/..", "/box/%2F.."),
            ("%2e%2e/a", "/box/%252e%252e/a"),
            ("a..b/...", "/box/a..b/..."),
            ("a//b/", "/box/a//b/"),
        ] {
            let link = client.presign("GET", "box", key, 60).unwrap();
            assert_eq!(link.path(), path, "{key}");
        }
        for (bucket, key) in [("box", "."), ("box", ".."), ("..", "x"), (".", "")] {
            assert!(client.presign("GET", bucket, key, 60).is_err(), "{bucket}/{key}");
        }
    }

    #[test]
    fn an_etag_is_an_md5() {
        assert_eq!(etag_of(&b"abc"[..]).unwrap(), "900150983cd24fb0d6963f7d28e17f72");
    }
}
