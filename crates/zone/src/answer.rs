//! What root asks of a zone, answered on a stream opened for each question.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use link::{ByteStream, Frame, Kind, TokenBook, TokenRecord};
use model::constraint::Labels;
use model::exchange::{Ask, InstanceUsage, NodeReport};
use model::{Check, ChildId, Error, InstanceId, Name, PlaceMode, Result, Sample, Timestamp};
use tier::ledger::Write;

use crate::core::Ordered;
use crate::health;
use crate::service::ZoneService;

/// Instances whose use is asked for in one question.
const USAGE_INSTANCES_MAX: usize = 20_000;
/// Nodes that are asked at the same time.
const USAGE_NODES_AT_ONCE: usize = 32;
/// A node that takes longer is left out.
const USAGE_WAIT: Duration = Duration::from_secs(4);
const USAGE_BYTES_MAX: usize = 4 << 20;
/// Written to see whether the ledger can be.
const PROBE: &str = "probe";

impl ZoneService {
    pub(crate) async fn reply_to(&self, ask: Ask, stream: ByteStream) {
        let done = match &ask {
            Ask::Nodes => reply(&stream, &self.nodes()).await,
            Ask::Mode { node, mode, force, seen } => {
                done(&stream, self.mode(node, *mode, *force, *seen).await).await
            }
            Ask::Admit { digest, expires_at } => match self.admit(digest, *expires_at).await {
                Ok(()) => reply(&stream, &self.doorway()).await,
                Err(error) => Err(error),
            },
            Ask::Tokens => match self.book().tokens() {
                Ok(tokens) => reply(&stream, &tokens).await,
                Err(error) => Err(error),
            },
            Ask::Revoke { digest } => done(&stream, self.book().revoke(digest).await).await,
            Ask::History { node, since } => match self.history_of(node.as_ref(), *since) {
                Ok(samples) => reply(&stream, &samples).await,
                Err(error) => Err(error),
            },
            Ask::Usage { instances } => match self.usage(instances).await {
                Ok(usages) => reply(&stream, &usages).await,
                Err(error) => Err(error),
            },
            Ask::Health => reply(&stream, &self.health().await).await,
            Ask::Label { node, set, unset, seen } => {
                done(&stream, self.label(node, set, unset, *seen).await).await
            }
            Ask::Remove { node, force } => done(&stream, self.remove(node, *force).await).await,
            Ask::Logs { instance, .. } | Ask::Exec { instance, .. } | Ask::Stats { instance } => {
                return self.pass_on(instance.clone(), ask, stream).await;
            }
        };
        if let Err(error) = done {
            let _ = stream.send(Frame::Error(error.message)).await;
        }
    }

    /// The nodes, with what they said of themselves.
    fn nodes(&self) -> Vec<NodeReport> {
        let shift_us = self.now().0 - self.steady().0;
        let mut nodes = self.core().nodes();
        let vitals = self.vitals();
        for node in &mut nodes {
            node.last_seen = Timestamp(node.last_seen.0 + shift_us);
            vitals.fill(node);
        }
        nodes
    }

    async fn mode(&self, node: &Name, mode: PlaceMode, force: bool, seen: Option<i64>) -> Result<()> {
        let _in_order = self.disk().lock().await;
        self.core().node_seen(node.as_str(), seen)?;
        let ordered = self.core().node_mode(node.as_str(), mode, force)?;
        self.keep(ordered).await
    }

    async fn label(&self, node: &Name, set: &Labels, unset: &[String], seen: Option<i64>) -> Result<()> {
        let _in_order = self.disk().lock().await;
        self.core().node_seen(node.as_str(), seen)?;
        let ordered = self.core().node_label(node.as_str(), set, unset)?;
        self.keep(ordered).await
    }

    async fn remove(&self, node: &Name, force: bool) -> Result<()> {
        let _in_order = self.disk().lock().await;
        let id = self.node_named(node)?;
        let ordered = self.core().node_remove(node.as_str(), force)?;
        self.keep(ordered).await?;
        self.calls().kick(&id);
        Ok(())
    }

    /// Keeps an order, and only then puts it in force and lets everybody hear of it.
    async fn keep(&self, (order, writes): Ordered) -> Result<()> {
        self.ledger().commit_async(writes).await?;
        self.core().ordered(order);
        self.wake();
        self.changed();
        Ok(())
    }

    async fn admit(&self, digest: &str, expires_at: Timestamp) -> Result<()> {
        let (digest, hosts) = (digest.to_owned(), Vec::new());
        let record = TokenRecord { digest, kind: Kind::Node, name: None, expires_at, hosts, used_by: None };
        self.book().add(record).await
    }

    fn history_of(&self, node: Option<&Name>, since: Timestamp) -> Result<Vec<Sample>> {
        let node = match node {
            Some(name) => Some(self.node_named(name)?),
            None => None,
        };
        Ok(self.history().since(node.as_ref(), since))
    }

    fn node_named(&self, name: &Name) -> Result<ChildId> {
        self.core().node_named(name.as_str()).ok_or_else(|| Error::not_found(format!("node '{name}'")))
    }

    /// What instances use: every node that holds some is asked once, many at a time. A node that does not
    /// answer is left out, as are instances that do not run.
    async fn usage(&self, instances: &[InstanceId]) -> Result<Vec<InstanceUsage>> {
        if instances.len() > USAGE_INSTANCES_MAX {
            let message =
                format!("the use of {USAGE_INSTANCES_MAX} instances at most can be asked for at once");
            return Err(Error::invalid(message).at("instances"));
        }
        let mut by_node: BTreeMap<ChildId, Vec<InstanceId>> = BTreeMap::new();
        {
            let core = self.core();
            for id in instances {
                if let Some(node) = core.node_of(id) {
                    by_node.entry(node).or_default().push(id.clone());
                }
            }
        }
        let answers = stream::iter(by_node).map(|(node, ids)| self.usage_on(node, ids));
        let answers: Vec<Vec<InstanceUsage>> = answers.buffer_unordered(USAGE_NODES_AT_ONCE).collect().await;
        Ok(answers.into_iter().flatten().collect())
    }

    async fn usage_on(&self, node: ChildId, instances: Vec<InstanceId>) -> Vec<InstanceUsage> {
        let asked: HashSet<InstanceId> = instances.iter().cloned().collect();
        let answer = async {
            let mut stream = self.calls().call(&node, Ask::Usage { instances }).await?;
            let bytes = stream.read_all(USAGE_BYTES_MAX).await?;
            serde_json::from_slice::<Vec<InstanceUsage>>(&bytes)
                .map_err(|e| Error::invalid("the node's answer cannot be read").because(e))
        };
        match tokio::time::timeout(USAGE_WAIT, answer).await {
            // A node speaks only of what it was asked for.
            Ok(Ok(usages)) => usages.into_iter().filter(|usage| asked.contains(&usage.id)).collect(),
            Ok(Err(error)) => {
                tracing::debug!(%node, %error, "a node did not say what its instances use");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!(%node, "a node took too long to say what its instances use");
                Vec::new()
            }
        }
    }

    async fn health(&self) -> Vec<Check> {
        let now = self.now();
        let probe = self.ledger().commit_async(vec![Write::put(PROBE.to_owned(), &now)]).await;
        let disk = sal::facts::disk_space(self.data()).ok();
        let nodes = self.nodes();
        let stuck = self.transitions().stuck(self.steady());
        let vitals = self.vitals();
        let mut checks = health::checks(&health::Seen {
            now,
            zone: self.name(),
            nodes: &nodes,
            orphans: &|node| vitals.orphans(node),
            network: &|node| vitals.network(node),
            twins: &|node| vitals.twins(node, now),
            stuck: &stuck,
            rtt_us: self.rtt().map(|rtt| rtt.as_micros()),
            ledger: probe.err().map(|error| error.message),
            disk: disk.map(|(total, free)| (total.0.saturating_sub(free.0), total.0)),
        });
        checks.extend(self.probes().iter().map(|probe| probe(now)));
        checks
    }

    /// Joins root's stream to one that the node opens.
    async fn pass_on(&self, instance: InstanceId, ask: Ask, stream: ByteStream) {
        let node = self.core().node_of(&instance);
        let opened = match &node {
            Some(node) => self.calls().call(node, ask).await,
            None => Err(Error::unavailable("the instance is on no node now")),
        };
        match opened {
            Ok(below) => link::pipe(stream, below).await,
            Err(error) => {
                let message = match &node {
                    Some(node) => self.with_name(node, error.message),
                    None => error.message,
                };
                drop(stream.send(Frame::Error(message)).await);
            }
        }
    }

    /// The link knows nodes by their ids, people by their names.
    fn with_name(&self, node: &ChildId, message: String) -> String {
        let reports = self.core().nodes();
        let report = reports.iter().find(|report| report.id == node.as_str());
        report.map_or_else(
            || message.clone(),
            |report| message.replace(node.as_str(), &format!("node {}", report.facts.name)),
        )
    }
}

async fn reply(stream: &ByteStream, body: &impl serde::Serialize) -> Result<()> {
    let json =
        serde_json::to_vec(body).map_err(|e| Error::internal("an answer cannot be written").because(e))?;
    stream.send(Frame::Data(json.into())).await?;
    stream.send(Frame::Eof).await
}

/// The answer to an order: an empty object, or why not.
async fn done(stream: &ByteStream, result: Result<()>) -> Result<()> {
    result?;
    reply(stream, &serde_json::json!({})).await
}
