//! The nodes of a cluster as macros see them.

use std::collections::BTreeMap;

use model::{Error, Result};
use serde_json::{Map, Value};

/// One node: what macros can ask of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    pub id: String,
    pub hostname: Option<String>,
    pub nodenum: u64,
    pub services: Vec<String>,
    /// By type, such as `access_v4`.
    pub addresses: BTreeMap<String, String>,
}

/// The nodes of a cluster, in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    all: Vec<NodeRecord>,
    /// The places of those that carry a service: a configuration may ask thousands of times.
    carriers: BTreeMap<String, Vec<usize>>,
    /// Where each stands, by its id.
    ids: BTreeMap<String, usize>,
}

impl Nodes {
    pub fn new(mut all: Vec<NodeRecord>) -> Self {
        all.sort_by(|a, b| (a.nodenum, &a.id).cmp(&(b.nodenum, &b.id)));
        let mut carriers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, node) in all.iter().enumerate() {
            for service in &node.services {
                let places = carriers.entry(service.clone()).or_default();
                // A service that is named twice is carried once.
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
        }
        // Of two with one id the first is meant.
        let ids = all.iter().enumerate().rev().map(|(at, node)| (node.id.clone(), at)).collect();
        Self { all, carriers, ids }
    }

    /// Reads records by id, a list of records that name their id, or either under `nodes`.
    pub fn read(value: Value) -> Result<Self> {
        let rows: Vec<(Option<String>, Value)> = match value {
            Value::Object(mut members) if members.get("nodes").is_some_and(|nodes| !is_record(nodes)) => {
                return Self::read(members.remove("nodes").unwrap_or_default());
            }
            Value::Object(members) => members.into_iter().map(|(id, record)| (Some(id), record)).collect(),
            Value::Array(items) => items.into_iter().map(|record| (None, record)).collect(),
            _ => {
                return Err(Error::invalid(
                    "nodes must be a JSON object of records by id, or a list of records",
                ));
            }
        };
        let mut nodes: Vec<NodeRecord> = Vec::new();
        for (at, (id, record)) in rows.into_iter().enumerate() {
            let place = id.clone().unwrap_or_else(|| format!("[{at}]"));
            let node = record_read(id, record).map_err(|error| error.at(&place))?;
            if nodes.iter().any(|other| other.id == node.id) {
                return Err(Error::invalid(format!(
                    "there are two nodes with the id {}",
                    model::shown(&node.id)
                )));
            }
            nodes.push(node);
        }
        Ok(Self::new(nodes))
    }

    pub fn get(&self, id: &str) -> Result<&NodeRecord> {
        self.ids.get(id).and_then(|at| self.all.get(*at)).ok_or_else(|| {
            let ids: Vec<&str> = self.all.iter().map(|node| node.id.as_str()).take(20).collect();
            Error::not_found(format!("node '{}'", model::shown(id)))
                .hint(format!("there are: {}", ids.join(", ")))
        })
    }

    /// How many carry it.
    pub fn count(&self, service: &str) -> usize {
        self.places(service).len()
    }

    /// Those that carry it, in the order of their numbers.
    pub fn carrying(&self, service: &str) -> impl ExactSizeIterator<Item = &NodeRecord> {
        self.places(service).iter().map(|at| &self.all[*at])
    }

    /// Which of those that carry it a node is, from 0.
    pub fn place(&self, service: &str, node: &NodeRecord) -> Option<usize> {
        let key = (node.nodenum, &node.id);
        self.places(service).binary_search_by(|at| (self.all[*at].nodenum, &self.all[*at].id).cmp(&key)).ok()
    }

    fn places(&self, service: &str) -> &[usize] {
        self.carriers.get(service).map_or(&[], Vec::as_slice)
    }
}

impl NodeRecord {
    pub fn host(&self) -> Result<&str> {
        self.hostname.as_deref().ok_or_else(|| Error::invalid(format!("node {} has no hostname", self.id)))
    }

    pub fn address(&self, kind: &str) -> Result<&str> {
        let found = self.addresses.get(kind).map(String::as_str);
        found.ok_or_else(|| Error::invalid(format!("node {} has no address {kind}", self.id)))
    }
}

/// Whether a value is one record rather than many.
fn is_record(value: &Value) -> bool {
    value.get("nodenum").is_some() || value.get("hostname").is_some() || value.get("properties").is_some()
}

fn record_read(id: Option<String>, record: Value) -> Result<NodeRecord> {
    let Value::Object(members) = record else {
        return Err(Error::invalid("a node must be a JSON object"));
    };
    // A node as the cluster shows it has the same under `properties`.
    let inner = members.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let field = |name: &str| inner.get(name).or_else(|| members.get(name)).filter(|value| !value.is_null());
    let id = id.or_else(|| members.get("id").and_then(Value::as_str).map(str::to_owned));
    let id = id.ok_or_else(|| Error::invalid("a node in a list must have an id").at("id"))?;
    let nodenum = match field("nodenum") {
        None => 0,
        Some(number) => number_read(number)
            .ok_or_else(|| Error::invalid("nodenum must be a whole number").at("nodenum"))?,
    };
    let hostname = match field("hostname") {
        None => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err(Error::invalid("hostname must be a string").at("hostname")),
    };
    let services = match field("services").or_else(|| members.get("services")) {
        None => Vec::new(),
        Some(Value::Array(items)) => items.iter().map(service_read).collect::<Result<_>>()?,
        Some(_) => return Err(Error::invalid("services must be a list").at("services")),
    };
    let mut addresses = match field("ipaddresses") {
        None => BTreeMap::new(),
        Some(Value::Object(members)) => addresses_read(members)?,
        Some(_) => {
            return Err(
                Error::invalid("ipaddresses must be an object of addresses by type").at("ipaddresses")
            );
        }
    };
    // Loom knew one address for all uses.
    if let Some(Value::String(only)) = field("ipaddress") {
        for kind in ["access_v4", "bind_v4"] {
            addresses.entry(kind.to_owned()).or_insert_with(|| only.clone());
        }
    }
    Ok(NodeRecord { id, hostname, nodenum, services, addresses })
}

fn number_read(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn service_read(value: &Value) -> Result<String> {
    let name = value.as_str().or_else(|| value.get("name")?.as_str());
    name.map(str::to_owned)
        .ok_or_else(|| Error::invalid("a service is a name, or an object with one").at("services"))
}

fn addresses_read(members: &Map<String, Value>) -> Result<BTreeMap<String, String>> {
    let present = members.iter().filter(|(_, value)| !value.is_null());
    let read = |(kind, value): (&String, &Value)| match value {
        Value::String(address) => Ok((kind.clone(), address.clone())),
        _ => Err(Error::invalid("an address must be a string").at(kind).at("ipaddresses")),
    };
    present.map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_read_from_every_shape() {
        let plain =
            json!({"hostname": "h", "nodenum": 1, "services": ["a"], "ipaddresses": {"bind_v4": "10.0.0.1"}});
        let mut listed = plain.clone();
        listed["id"] = json!("x");
        let whole = json!({"id": "x", "services": [{"name": "a"}],
            "properties": {"hostname": "h", "nodenum": 1, "ipaddresses": {"bind_v4": "10.0.0.1"}}});
        let expect = Nodes::read(json!({"x": plain})).unwrap();
        for shape in
            [json!([listed]), json!([whole]), json!({"nodes": [listed]}), json!({"nodes": {"x": plain}})]
        {
            assert_eq!(Nodes::read(shape.clone()).unwrap(), expect, "{shape}");
        }
        let loom = Nodes::read(json!({"x": {"ipaddress": "10.0.0.9"}})).unwrap();
        assert_eq!(loom.get("x").unwrap().address("access_v4").unwrap(), "10.0.0.9");
    }

    #[test]
    fn what_is_no_record_is_told() {
        for (value, expect) in [
            (json!("x"), "must be a JSON object of records"),
            (json!({"x": 1}), "a node must be"),
            (json!([{"hostname": "h"}]), "must have an id"),
            (json!({"x": {"nodenum": "y"}}), "whole number"),
            (json!({"x": {"services": "a"}}), "must be a list"),
            (json!([{"id": "x"}, {"id": "x"}]), "two nodes"),
        ] {
            let error = Nodes::read(value.clone()).unwrap_err();
            assert!(error.message.contains(expect), "{value}: {}", error.message);
        }
        assert!(Nodes::default().get("x").unwrap_err().message.contains("there is no node 'x'"));
    }
}
