//! Where things are and what happened: zones, nodes, enrolment, history, watch.

use model::{Event, Result};

use super::stream::WatchStream;
use super::{Client, ListQuery, segment};
use crate::{EnrolRole, Enrolment, EnrolmentCreate, Node, NodeCordon, Page, WatchKind, Zone};

impl Client {
    pub async fn zone_list(&self, query: &ListQuery) -> Result<Page<Zone>> {
        self.list("/v1/zones", query).await
    }

    pub async fn zone_get(&self, name: &str) -> Result<Zone> {
        self.get(&format!("/v1/zones/{}", segment(name))).await
    }

    pub async fn node_list(&self, query: &ListQuery) -> Result<Page<Node>> {
        self.list("/v1/nodes", query).await
    }

    pub async fn node_get(&self, name: &str) -> Result<Node> {
        self.get(&format!("/v1/nodes/{}", segment(name))).await
    }

    /// Sets or lifts the cordon: a cordoned node takes no new instances.
    pub async fn node_cordon(&self, name: &str, cordoned: bool) -> Result<Node> {
        self.post(&format!("/v1/nodes/{}/cordon", segment(name)), &NodeCordon { cordoned }).await
    }

    /// A one-time token for a new zone, node or provisioner.
    pub async fn enrolment_create(&self, role: EnrolRole, zone: Option<&str>) -> Result<Enrolment> {
        self.post("/v1/enrolments", &EnrolmentCreate { role, zone: zone.map(str::to_owned) }).await
    }

    /// The history, newest first; filters `subject` and `what`.
    pub async fn event_list(&self, query: &ListQuery) -> Result<Page<Event>> {
        self.list("/v1/events", query).await
    }

    /// Changes after `since` (the `seq` of a page or of an event), or from now on.
    pub async fn watch(&self, kind: WatchKind, since: Option<i64>) -> Result<WatchStream> {
        self.watch_named(kind, None, since).await
    }

    /// As [`Client::watch`], of things whose name fits a pattern.
    pub async fn watch_named(
        &self,
        kind: WatchKind,
        name: Option<&str>,
        since: Option<i64>,
    ) -> Result<WatchStream> {
        let mut request = self.request(reqwest::Method::GET, "/v1/watch").query(&[("kind", kind.as_str())]);
        if let Some(name) = name {
            request = request.query(&[("name", name)]);
        }
        if let Some(since) = since {
            request = request.query(&[("since", since)]);
        }
        Ok(WatchStream::new(self.send(request).await?))
    }
}
