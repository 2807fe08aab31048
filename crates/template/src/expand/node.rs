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
pub struct Nodes(Vec<NodeRecord>);

impl Nodes {
    pub fn new(mut nodes: Vec<NodeRecord>) -> Self {
        nodes.sort_by(|a, b| (a.nodenum, &a.id).cmp(&(b.nodenum, &b.id)));
        Self(nodes)
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
        self.0.iter().find(|node| node.id == id).ok_or_else(|| {
            let ids: Vec<&str> = self.0.iter().map(|node| node.id.as_str()).take(20).collect();
            Error::not_found(format!("node '{}'", model::shown(id)))
                .hint(format!("there are: {}", ids.join(", ")))
        })
    }

    pub fn carrying(&self, service: &str) -> Vec<&NodeRecord> {
        self.0.iter().filter(|node| node.services.iter().any(|name| name == service)).collect()
    }
}

impl NodeRecord {
    pub fn host(&self) -> Result<String> {
        self.hostname.clone().ok_or_else(|| Error::invalid(format!("node {} has no hostname", self.id)))
    }

    pub fn address(&self, kind: &str) -> Result<String> {
        let found = self.addresses.get(kind).cloned();
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
