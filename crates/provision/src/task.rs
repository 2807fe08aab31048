//! What a worker is given and what it gives back, in Coopr's shape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use model::Report;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What is to be done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    Create,
    Confirm,
    Bootstrap,
    Install,
    Configure,
    Initialize,
    Start,
    Stop,
    Remove,
    Delete,
}

impl Verb {
    /// As plugins and scripts are told it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Confirm => "confirm",
            Self::Bootstrap => "bootstrap",
            Self::Install => "install",
            Self::Configure => "configure",
            Self::Initialize => "initialize",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Remove => "remove",
            Self::Delete => "delete",
        }
    }

    /// Whether a provider does it; the others are done on the machine.
    pub fn is_hardware(self) -> bool {
        matches!(self, Self::Create | Self::Confirm | Self::Delete)
    }
}

/// One task. It holds credentials, so it does not show what is in it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub task_id: String,
    pub job_id: String,
    pub cluster_id: String,
    pub task_name: Verb,
    pub node_id: String,
    #[serde(default)]
    pub config: Map<String, Value>,
    /// `config.nodes`, which many tasks have in common.
    #[serde(skip)]
    pub nodes: Option<Arc<Value>>,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({} {} on {})", self.task_id, self.task_name.word(), self.node_id)
    }
}

/// What a service does for one verb.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<'a> {
    pub service: &'a str,
    /// The name of the automator.
    pub by: &'a str,
    pub fields: &'a Map<String, Value>,
}

impl Action<'_> {
    /// A field as text; numbers and switches are written out.
    pub fn text(&self, field: &str) -> Option<String> {
        text(self.fields.get(field)?)
    }

    /// The words of a field that is a list or a text with commas.
    pub fn list(&self, field: &str) -> Vec<String> {
        match self.fields.get(field) {
            Some(Value::Array(all)) => all.iter().filter_map(text).collect(),
            Some(value) => {
                let words = text(value).unwrap_or_default();
                words.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
            }
            None => Vec::new(),
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(switch) => Some(switch.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Task {
    fn str(&self, field: &str) -> Option<&str> {
        self.config.get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn map(&self, field: &str) -> Option<&Map<String, Value>> {
        self.config.get(field).and_then(Value::as_object)
    }

    /// A property of the machine, such as its image or flavor.
    pub fn text(&self, field: &str) -> Option<String> {
        text(self.config.get(field)?).filter(|text| !text.is_empty())
    }

    pub fn hostname(&self) -> &str {
        self.str("hostname").unwrap_or_default()
    }

    /// What identifies the machine at its provider.
    pub fn provider_id(&self) -> Option<&str> {
        self.str("providerid")
    }

    /// Whether it is only looked whether a machine that stood is still there.
    pub fn is_look(&self) -> bool {
        self.config.get("standing").and_then(Value::as_bool) == Some(true)
    }

    /// Where the machine is reached from here.
    pub fn address(&self) -> Option<&str> {
        let known = self.map("ipaddresses").and_then(|all| all.get("access_v4")).and_then(Value::as_str);
        known.or_else(|| self.str("ipaddress"))
    }

    pub fn ssh_port(&self) -> u16 {
        let port = self.config.get("ssh-port").and_then(Value::as_u64);
        port.and_then(|port| u16::try_from(port).ok()).unwrap_or(22)
    }

    pub fn ssh_user(&self) -> &str {
        let given = self.map("ssh-auth").and_then(|auth| auth.get("user")).and_then(Value::as_str);
        given.or_else(|| self.str("sshuser")).unwrap_or("root")
    }

    pub fn ssh_auth(&self, field: &str) -> Option<&str> {
        self.map("ssh-auth").and_then(|auth| auth.get(field)).and_then(Value::as_str)
    }

    /// Host keys that were seen when the machine was confirmed.
    pub fn host_keys(&self) -> Vec<&str> {
        self.map("ssh_host_keys")
            .into_iter()
            .flat_map(|keys| keys.values())
            .filter_map(Value::as_str)
            .collect()
    }

    /// The key that all machines of the cluster let in; only here, in tasks under way.
    pub fn cluster_key(&self) -> Result<crate::ssh::Identity, Fault> {
        let text =
            self.str("cluster-key").ok_or_else(|| Fault::invalid("the task has no key of its cluster"))?;
        Ok(crate::ssh::Identity::parse(text)?)
    }

    pub fn automators(&self) -> Vec<&str> {
        let all = self.config.get("automators").and_then(Value::as_array);
        all.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The plugins that it needs, as their files are staged.
    pub fn plugins(&self) -> Vec<String> {
        let automator = |name: &str| format!("automatortypes/{name}");
        match self.task_name {
            verb if verb.is_hardware() => {
                vec![format!("providertypes/{}", self.provider_type().unwrap_or("banyan"))]
            }
            Verb::Bootstrap => self.automators().into_iter().map(automator).collect(),
            _ => self.action().map(|action| automator(action.by)).into_iter().collect(),
        }
    }

    pub fn provider_type(&self) -> Option<&str> {
        self.map("provider")?.get("providertype")?.as_str()
    }

    /// A field of the provider, as its administrator or the user gave it.
    pub fn provider_field(&self, field: &str) -> Option<String> {
        text(self.map("provider")?.get("provisioner")?.get(field)?)
    }

    pub fn action(&self) -> Option<Action<'_>> {
        static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let service = self.map("service")?;
        let action = service.get("action")?.as_object()?;
        let fields = action.get("fields").and_then(Value::as_object).unwrap_or(&NONE);
        Some(Action { service: service.get("name")?.as_str()?, by: action.get("type")?.as_str()?, fields })
    }

    /// The properties of the nodes of the cluster.
    pub fn nodes(&self) -> Option<&Value> {
        self.nodes.as_deref().or_else(|| self.config.get("nodes"))
    }

    /// The task with all that belongs to it, as programs see it.
    pub fn whole(&self) -> Self {
        let mut task = self.clone();
        if let Some(nodes) = task.nodes.take() {
            task.config.insert("nodes".to_owned(), Value::clone(&nodes));
        }
        task
    }

    /// The task as a machine may see it: without the provider and the way in.
    pub fn shown_there(&self) -> Value {
        let mut task = self.whole();
        for secret in ["provider", "ssh-auth", "ssh_host_keys", "cluster-key"] {
            task.config.remove(secret);
        }
        serde_json::to_value(task).unwrap_or_default()
    }

    /// The cluster's configuration, one value a path: `a.b.0` and its text.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut flat = BTreeMap::new();
        if let Some(cluster) = self.config.get("cluster") {
            flatten("", cluster, &mut flat);
        }
        flat
    }
}

/// Values of one configuration.
const SETTINGS_MAX: usize = 10_000;

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        _ if into.len() >= SETTINGS_MAX => {}
        Value::Object(map) => map.iter().for_each(|(name, value)| flatten(&under(name), value, into)),
        Value::Array(all) => {
            all.iter()
                .enumerate()
                .for_each(|(place, value)| flatten(&under(&place.to_string()), value, into));
        }
        value => drop(into.insert(path.to_owned(), text(value).unwrap_or_default())),
    }
}

/// Why a task was not done.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    pub status: i32,
    pub message: String,
    /// The same may go well later.
    pub is_passing: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Fault {
    /// What the provider was told is wrong; nothing was made.
    pub const CREDENTIALS: i32 = 201;
    /// The task itself cannot be carried out.
    pub const INVALID: i32 = 400;
    /// There was a machine, and it is gone for good.
    pub const GONE: i32 = 410;
    /// The machine could not be reached, or not to the end; it may just be starting anew.
    pub const UNREACHED: i32 = 503;
    /// There is no room for the machine: another one has none either.
    pub const NO_ROOM: i32 = 507;
    /// It was tried and failed.
    pub const FAILED: i32 = 1;

    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: Self::INVALID, is_passing: false, ..Self::failed(message) }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        let (stdout, stderr) = Default::default();
        Self { status: Self::FAILED, message: message.into(), is_passing: true, stdout, stderr }
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self { status: Self::GONE, is_passing: false, ..Self::failed(message) }
    }

    pub fn credentials(message: impl Into<String>) -> Self {
        Self { status: Self::CREDENTIALS, is_passing: false, ..Self::failed(message) }
    }

    /// With what was said until then.
    pub fn said(self, said: &crate::ssh::Said) -> Self {
        Self { stdout: said.stdout.text(), stderr: said.stderr.text(), ..self }
    }
}

impl From<Fault> for Report {
    fn from(fault: Fault) -> Self {
        let Fault { status, message, is_passing, stdout, stderr } = fault;
        Self { status, message, is_passing, stdout, stderr, ..Self::default() }
    }
}

impl From<crate::ssh::SshError> for Fault {
    fn from(error: crate::ssh::SshError) -> Self {
        use crate::ssh::SshError::{Broken, Unreachable};
        let status = match &error {
            Unreachable { .. } | Broken { .. } => Self::UNREACHED,
            _ => Self::FAILED,
        };
        Self { status, is_passing: error.is_passing(), ..Self::failed(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        serde_json::from_value(serde_json::json!({
            "taskId": "c-1-7", "jobId": "c-1", "clusterId": "c", "taskName": "INSTALL", "nodeId": "n",
            "config": {
                "hostname": "web1-1000.local", "sshuser": "debian", "providerid": "i-1",
                "ipaddresses": {"access_v4": "192.0.2.7", "bind_v4": "10.0.0.7"},
                "automators": ["shell"], "ssh-auth": {"user": "admin", "password": "secret"},
                "ssh_host_keys": {"ed25519": "ssh-ed25519 AAAA"},
                "provider": {"providertype": "ec2", "provisioner": {"api_password": "secret", "size": 3}},
                "service": {"name": "web", "action": {"type": "shell", "fields": {"script": "a.sh", "ports": "1, 2,", "count": 4}}},
                "cluster": {"web": {"port": 80, "hosts": ["a", "b"], "tls": true}, "name": "x"}
            }
        }))
        .unwrap()
    }

    #[test]
    fn a_task_is_read_as_it_is_written() {
        let task = task();
        assert_eq!(task.address(), Some("192.0.2.7"));
        assert_eq!((task.ssh_user(), task.ssh_port()), ("admin", 22));
        assert_eq!(task.provider_field("size").as_deref(), Some("3"));
        let action = task.action().unwrap();
        assert_eq!((action.service, action.by), ("web", "shell"));
        assert_eq!(action.list("ports"), ["1", "2"]);
        assert_eq!(action.text("count").as_deref(), Some("4"));
        let settings: Vec<String> =
            task.settings().iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(settings, ["name=x", "web.hosts.0=a", "web.hosts.1=b", "web.port=80", "web.tls=true"]);
        assert_eq!(serde_json::to_value(&task).unwrap()["taskName"], "INSTALL");
    }

    #[test]
    fn secrets_do_not_show() {
        let task = task();
        assert_eq!(format!("{task:?}"), "Task(c-1-7 install on n)");
        let nodes = Some(Arc::new(serde_json::json!({"c-1001": {"hostname": "web1-1001"}})));
        let there = Task { nodes, ..task }.shown_there().to_string();
        assert!(there.contains("\"nodes\":{\"c-1001\""), "{there}");
        assert!(!there.contains("secret") && there.contains("web1-1000"));
    }
}
