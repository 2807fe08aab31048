//! Where things are and what happened: zones, nodes, enrolment, history, watch.

use model::{Event, PlaceMode, Result, Sample, Timestamp};
use reqwest::Method;

use super::stream::WatchStream;
use super::{Client, ListQuery, if_match, segment};
use crate::{
    Enrolment, EnrolmentCreate, EnrolmentToken, Node, NodeLabels, Page, PlaceModeSet, PlatformHealth, Server,
    WatchKind, Zone, ZoneHosts,
};

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

    /// Opens, cordons or drains a node, or puts it into maintenance.
    pub async fn node_mode(&self, name: &str, mode: PlaceMode, force: bool) -> Result<Node> {
        self.post(&format!("/v1/nodes/{}/mode", segment(name)), &PlaceModeSet { mode, force }).await
    }

    /// The same, only if the node is at this version.
    pub async fn node_mode_if(&self, name: &str, set: &PlaceModeSet, version: i64) -> Result<Node> {
        let path = format!("/v1/nodes/{}/mode", segment(name));
        self.json(self.request(Method::POST, &path).headers(if_match(Some(version))).json(set)).await
    }

    /// The root servers of the store.
    pub async fn server_list(&self) -> Result<Vec<Server>> {
        self.get("/v1/servers").await
    }

    /// Forgets a root server that fell silent, by name.
    pub async fn server_remove(&self, name: &str) -> Result<()> {
        self.delete(&format!("/v1/servers/{}", segment(name)), None).await
    }

    pub async fn node_labels(&self, name: &str, labels: &NodeLabels) -> Result<Node> {
        self.post(&format!("/v1/nodes/{}/labels", segment(name)), labels).await
    }

    /// Forgets a node for good; its certificate is never let in again.
    pub async fn node_remove(&self, name: &str, force: bool) -> Result<()> {
        self.remove(&format!("/v1/nodes/{}", segment(name)), force).await
    }

    /// What a node used, oldest first.
    pub async fn node_history(&self, name: &str, since: Option<Timestamp>) -> Result<Vec<Sample>> {
        self.history(&format!("/v1/nodes/{}/history", segment(name)), since).await
    }

    pub async fn zone_mode(&self, name: &str, mode: PlaceMode, force: bool) -> Result<Zone> {
        self.post(&format!("/v1/zones/{}/mode", segment(name)), &PlaceModeSet { mode, force }).await
    }

    /// Forgets a zone for good, with its nodes.
    pub async fn zone_remove(&self, name: &str, force: bool) -> Result<()> {
        self.remove(&format!("/v1/zones/{}", segment(name)), force).await
    }

    /// What the nodes of a zone used together, oldest first.
    pub async fn zone_history(&self, name: &str, since: Option<Timestamp>) -> Result<Vec<Sample>> {
        self.history(&format!("/v1/zones/{}/history", segment(name)), since).await
    }

    /// How the platform itself is: links, leases, disks, clocks, certificates, stuck things.
    pub async fn platform_health(&self) -> Result<PlatformHealth> {
        self.get("/v1/platform").await
    }

    async fn remove(&self, path: &str, force: bool) -> Result<()> {
        let request = self.request(Method::DELETE, path).query(&[("force", force)]);
        self.send(request.timeout(super::REQUEST_TIMEOUT)).await.map(drop)
    }

    async fn history(&self, path: &str, since: Option<Timestamp>) -> Result<Vec<Sample>> {
        let mut request = self.request(Method::GET, path);
        if let Some(since) = since {
            request = request.query(&[("since", since.to_string())]);
        }
        self.json(request).await
    }

    /// A one-time token for a new zone or node.
    pub async fn enrolment_create(&self, ask: &EnrolmentCreate) -> Result<Enrolment> {
        self.post("/v1/enrolments", ask).await
    }

    /// Tokens that are out: those of root, and of the zones that answer.
    pub async fn enrolment_list(&self) -> Result<Vec<EnrolmentToken>> {
        self.get("/v1/enrolments").await
    }

    /// Voids a token, by its id or the beginning of it.
    pub async fn enrolment_revoke(&self, id: &str) -> Result<()> {
        self.delete(&format!("/v1/enrolments/{}", segment(id)), None).await
    }

    /// Lets the listeners of a zone have these names and addresses too.
    pub async fn zone_hosts(&self, name: &str, hosts: &ZoneHosts) -> Result<Zone> {
        self.post(&format!("/v1/zones/{}/hosts", segment(name)), hosts).await
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
