//! Files that plugins use. A `path` is `KIND/PLUGIN/TYPE/NAME`, such as `automatortypes/shell/scripts/hello.sh`.

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use model::{Error, Result};
use reqwest::Method;

use super::{Client, ListQuery, segment};
use crate::{Page, Resource, ResourceSync};

/// What becomes of an upload.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceUpload {
    pub stage: bool,
    /// Stages it too.
    pub sync: bool,
    /// Known length, so that a too large one is refused before it is sent.
    pub length: Option<u64>,
}

fn at(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(segment).collect();
    format!("/v1/resources/{}", parts.join("/"))
}

fn version(path: &str, number: u32) -> String {
    format!("{}/versions/{number}", at(path))
}

impl Client {
    pub async fn resource_list(&self, query: &ListQuery) -> Result<Page<Resource>> {
        self.list("/v1/resources", query).await
    }

    pub async fn resource_get(&self, path: &str) -> Result<Resource> {
        self.get(&at(path)).await
    }

    /// Streams a new version up.
    pub async fn resource_upload<S, E>(&self, path: &str, upload: ResourceUpload, body: S) -> Result<Resource>
    where
        S: Stream<Item = std::result::Result<Bytes, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        let mut request = self.request(Method::POST, &at(path)).body(reqwest::Body::wrap_stream(body));
        for (name, is_set) in [("stage", upload.stage), ("sync", upload.sync)] {
            if is_set {
                request = request.query(&[(name, "true")]);
            }
        }
        if let Some(length) = upload.length {
            request = request.header(reqwest::header::CONTENT_LENGTH, length);
        }
        let response = self.send(request).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::internal("the answer cannot be read").because(error))
    }

    /// Marks a version to be active after the next sync, instead of the one that is.
    pub async fn resource_stage(&self, path: &str, number: u32) -> Result<Resource> {
        self.json(self.request(Method::POST, &format!("{}/stage", version(path, number)))).await
    }

    /// Marks a version to be gone from provisioners after the next sync.
    pub async fn resource_recall(&self, path: &str, number: u32) -> Result<Resource> {
        self.json(self.request(Method::POST, &format!("{}/recall", version(path, number)))).await
    }

    /// Brings what is staged to the tenant's provisioners, and takes what is recalled away.
    pub async fn resource_sync(&self) -> Result<ResourceSync> {
        self.json(self.request(Method::POST, "/v1/resources/sync")).await
    }

    pub async fn resource_delete(&self, path: &str, number: u32) -> Result<()> {
        self.delete(&version(path, number), None).await
    }

    pub async fn resource_download(
        &self,
        path: &str,
        number: u32,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>> {
        let request = self.request(Method::GET, &format!("{}/content", version(path, number)));
        let response = self.send(request).await?;
        let broken = |error| Error::unavailable("the file broke off").because(error);
        Ok(Box::pin(response.bytes_stream().map_err(broken)))
    }
}
