//! The catalogue that clusters are made from.

use model::Result;

use super::{Client, ListQuery, segment};
use crate::{CatalogueChange, CatalogueWrite, Definition, Entities, Page};

fn path(kind: &str, name: &str) -> String {
    format!("/v1/catalogue/{}/{}", segment(kind), segment(name))
}

impl Client {
    /// Everything the tenant may use, in the shape of Coopr's export.
    pub async fn catalogue_export(&self) -> Result<Entities> {
        self.get("/v1/catalogue").await
    }

    pub async fn catalogue_write(&self, body: &CatalogueWrite) -> Result<CatalogueChange> {
        self.post("/v1/catalogue", body).await
    }

    pub async fn definition_list(&self, query: &ListQuery) -> Result<Page<Definition>> {
        self.list("/v1/definitions", query).await
    }

    /// `number` asks for an earlier one.
    pub async fn definition_get(&self, kind: &str, name: &str, number: Option<u64>) -> Result<Definition> {
        let query = number.map_or_else(ListQuery::new, |number| ListQuery::new().with("number", number));
        self.list(&path(kind, name), &query).await
    }

    pub async fn definition_delete(&self, kind: &str, name: &str, version: Option<i64>) -> Result<()> {
        self.delete(&path(kind, name), version).await
    }
}
