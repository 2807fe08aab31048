//! A store in a folder of its own, and short ways to ask it.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use http::{Extensions, HeaderMap, Method, Uri};
use object::identity::{Account, Identity, Key, Principal, Rights};
use object::service::{Caller, Service};
use object::{Config, Store};
use s3s::dto::*;
use s3s::{Body, S3, S3Error, S3Request};

pub const BUCKET: &str = "bucket";

struct Nobody {
    quota: Option<u64>,
}

#[async_trait::async_trait]
impl Identity for Nobody {
    async fn key(&self, _id: &str) -> Option<Key> {
        None
    }

    async fn account(&self, _id: &str) -> Option<Account> {
        None
    }

    async fn account_by_email(&self, _email: &str) -> Option<Account> {
        None
    }

    async fn user_exists(&self, _account: &str, _user: &str) -> bool {
        false
    }

    async fn quota(&self, _account: &str) -> Option<u64> {
        self.quota
    }

    fn root_key(&self) -> [u8; 32] {
        [7; 32]
    }
}

pub struct Bed {
    store: Store,
    folder: tempfile::TempDir,
}

impl Bed {
    pub async fn new() -> Self {
        Self::with_quota(None).await
    }

    pub async fn with_quota(quota: Option<u64>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(folder.path().to_owned(), "127.0.0.1:0".parse().unwrap());
        let store = Store::start(config, Arc::new(Nobody { quota })).await.unwrap();
        let bed = Self { store, folder };
        let input = CreateBucketInput { bucket: BUCKET.into(), ..CreateBucketInput::default() };
        bed.service().create_bucket(request(Method::PUT, input, &[])).await.unwrap();
        bed
    }

    pub fn service(&self) -> &Service {
        self.store.service()
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub async fn stop(self) {
        self.store.stop().await;
    }

    /// Puts `body`; `headers` are those of the request.
    pub async fn put(
        &self,
        key: &str,
        body: &[u8],
        headers: &[(&'static str, &str)],
    ) -> Result<PutObjectOutput, S3Error> {
        let text = |wanted: &str| {
            headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        let condition = |name: &str| text(name).map(|value| value.parse().unwrap());
        let input = PutObjectInput {
            bucket: BUCKET.into(),
            key: key.into(),
            body: Some(Body::from(Bytes::copy_from_slice(body)).into()),
            content_length: text("content-length").map(|value| value.parse().unwrap()),
            server_side_encryption: text("x-amz-server-side-encryption").map(ServerSideEncryption::from),
            sse_customer_algorithm: text(CUSTOMER[0]),
            sse_customer_key: text(CUSTOMER[1]),
            sse_customer_key_md5: text(CUSTOMER[2]),
            if_match: condition("if-match"),
            if_none_match: condition("if-none-match"),
            ..PutObjectInput::default()
        };
        let response = self.service().put_object(request(Method::PUT, input, headers)).await?;
        Ok(response.output)
    }

    /// The answer and all its bytes.
    pub async fn get(&self, mut input: GetObjectInput) -> Result<(GetObjectOutput, Vec<u8>), S3Error> {
        input.bucket = BUCKET.into();
        let response = self.service().get_object(request(Method::GET, input, &[])).await?;
        let mut output = response.output;
        let bytes = match output.body.take() {
            Some(body) => body.try_collect::<Vec<Bytes>>().await.unwrap().concat(),
            None => Vec::new(),
        };
        Ok((output, bytes))
    }

    pub async fn delete(&self, key: &str) {
        let input =
            DeleteObjectInput { bucket: BUCKET.into(), key: key.into(), ..DeleteObjectInput::default() };
        self.service().delete_object(request(Method::DELETE, input, &[])).await.unwrap();
    }
}

pub const CUSTOMER: [&str; 3] = [
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-server-side-encryption-customer-key-md5",
];

/// The three values that go with a customer's key.
pub fn customer(byte: u8) -> [String; 3] {
    use base64::Engine as _;
    let key = [byte; 32];
    let text = base64::engine::general_purpose::STANDARD.encode(key);
    ["AES256".into(), text, object::checksum::md5_base64(&key)]
}

pub fn request<T>(method: Method, input: T, headers: &[(&'static str, &str)]) -> S3Request<T> {
    let account = Account { id: "tenant".into(), name: "tenant".into() };
    let principal =
        Principal { account, user: "user".into(), rights: Rights::Manage, operator: false, session: None };
    let mut extensions = Extensions::new();
    let region = "us-east-1".into();
    extensions.insert(Caller {
        principal: Some(principal),
        address: None,
        tls: None,
        region,
        narrowed: None,
    });
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    S3Request {
        input,
        method,
        uri: Uri::from_static("/"),
        headers,
        extensions,
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}
