//! A piece of software: what it needs, and how it is installed, started and stopped.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Link, Other, lenient};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Service {
    pub name: String,
    pub dependencies: Dependencies,
    pub provisioner: Provisioner,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    #[serde(flatten)]
    pub other: Other,
}

/// The shape on disk. Loom had one flat list of dependencies.
#[derive(Deserialize)]
struct Written {
    name: String,
    #[serde(default)]
    dependencies: Dependencies,
    #[serde(default)]
    dependson: Vec<String>,
    #[serde(default)]
    provisioner: Provisioner,
    #[serde(default)]
    links: Vec<Link>,
    #[serde(default, deserialize_with = "lenient::count")]
    version: Option<u64>,
    #[serde(flatten)]
    other: Other,
}

impl From<Written> for Service {
    fn from(written: Written) -> Self {
        let mut dependencies = written.dependencies;
        // Loom ordered installing and starting alike by this list.
        for stage in [&mut dependencies.install, &mut dependencies.runtime] {
            stage.requires.extend(written.dependson.iter().cloned());
        }
        Self {
            name: written.name,
            dependencies,
            provisioner: written.provisioner,
            links: written.links,
            version: written.version,
            other: written.other,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dependencies {
    /// Other names under which it satisfies what is required.
    pub provides: Vec<String>,
    /// Services that cannot be in the same cluster.
    pub conflicts: Vec<String>,
    pub install: StageDependencies,
    pub runtime: StageDependencies,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageDependencies {
    /// Must be in the cluster, and come first.
    pub requires: Vec<String>,
    /// Come first if they are in the cluster.
    pub uses: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Provisioner {
    #[serde(default)]
    pub actions: BTreeMap<ActionKind, Action>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionKind {
    Install,
    Configure,
    Initialize,
    Start,
    Stop,
    Remove,
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Install => "install",
            Self::Configure => "configure",
            Self::Initialize => "initialize",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Remove => "remove",
        })
    }
}

/// How an action is carried out: the automator, and what it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "WrittenAction")]
pub struct Action {
    #[serde(rename = "type")]
    pub automator: String,
    pub fields: Other,
}

/// Loom had `script` and `data` where Coopr has `fields`, and called chef-solo `chef`.
#[derive(Deserialize)]
struct WrittenAction {
    #[serde(rename = "type")]
    automator: String,
    #[serde(default)]
    fields: Other,
    #[serde(flatten)]
    other: Other,
}

impl From<WrittenAction> for Action {
    fn from(written: WrittenAction) -> Self {
        let mut fields = written.fields;
        let chef = matches!(written.automator.as_str(), "chef" | "chef-solo");
        for (name, value) in written.other {
            let name = match name.as_str() {
                "script" if chef => "run_list".to_owned(),
                "data" if chef => "json_attributes".to_owned(),
                "data" => "args".to_owned(),
                _ => name,
            };
            fields.entry(name).or_insert(value);
        }
        let automator = if written.automator == "chef" { "chef-solo".to_owned() } else { written.automator };
        Self { automator, fields }
    }
}

impl Service {
    pub fn has(&self, action: ActionKind) -> bool {
        self.provisioner.actions.contains_key(&action)
    }

    /// What must be in the cluster for it, each once.
    pub fn requires(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for stage in [&self.dependencies.install, &self.dependencies.runtime] {
            for name in &stage.requires {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_of_loom_is_understood() {
        let old = json!({"name": "web", "dependson": ["base"], "provisioner": {"actions": {
            "install": {"type": "chef", "script": "recipe[web]"},
            "start": {"type": "shell", "script": "web.sh", "data": "start"}}}});
        let service: Service = super::super::read(old).unwrap();
        assert_eq!(service.dependencies.install.requires, ["base"]);
        assert_eq!(service.dependencies.runtime.requires, ["base"]);
        assert_eq!(service.requires(), ["base"]);
        let install = &service.provisioner.actions[&ActionKind::Install];
        assert_eq!(
            (install.automator.as_str(), &install.fields["run_list"]),
            ("chef-solo", &json!("recipe[web]"))
        );
        let start = &service.provisioner.actions[&ActionKind::Start];
        assert_eq!((&start.fields["script"], &start.fields["args"]), (&json!("web.sh"), &json!("start")));
    }

    #[test]
    fn what_is_read_is_written_again() {
        let text = json!({"name": "web", "description": "pages", "dependencies": {"provides": [], "conflicts": [],
            "install": {"requires": [], "uses": []}, "runtime": {"requires": ["db"], "uses": ["cache"]}},
            "provisioner": {"actions": {"stop": {"type": "shell", "fields": {"script": "x"}}}}});
        let service: Service = super::super::read(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(service).unwrap(), text);
    }
}
