//! Images: upload, pull, list.

use bytes::Bytes;
use futures::Stream;
use model::Result;
use reqwest::Method;

use super::{Client, ListQuery, if_match, segment};
use crate::{Image, ImagePull, Page};

/// What is uploaded and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upload {
    /// For operators: every tenant may use it.
    pub public: bool,
    /// Known length, so that a too large one is refused before it is sent.
    pub length: Option<u64>,
}

fn path(name: &str) -> String {
    format!("/v1/images/{}", segment(name))
}

impl Client {
    /// Streams an archive up: OCI archive, docker archive or root file system tarball.
    pub async fn image_import<S, E>(&self, name: &str, upload: Upload, body: S) -> Result<Image>
    where
        S: Stream<Item = std::result::Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let mut request = self.request(Method::PUT, &path(name)).body(reqwest::Body::wrap_stream(body));
        if upload.public {
            request = request.query(&[("public", "true")]);
        }
        if let Some(length) = upload.length {
            request = request.header(reqwest::header::CONTENT_LENGTH, length);
        }
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body)
            .map_err(|error| model::Error::internal("the answer cannot be read").because(error))
    }

    pub async fn image_pull(&self, name: &str, body: &ImagePull) -> Result<Image> {
        // A pull takes as long as the registry does, so the usual limit does not hold.
        let request = self.request(Method::POST, &format!("{}/pull", path(name))).json(body);
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body)
            .map_err(|error| model::Error::internal("the answer cannot be read").because(error))
    }

    pub async fn image_list(&self, query: &ListQuery) -> Result<Page<Image>> {
        self.list("/v1/images", query).await
    }

    pub async fn image_get(&self, name: &str) -> Result<Image> {
        self.get(&path(name)).await
    }

    pub async fn image_delete(&self, name: &str, version: Option<i64>) -> Result<()> {
        let request = self.request(Method::DELETE, &path(name)).headers(if_match(version));
        self.send(request).await.map(drop)
    }
}
