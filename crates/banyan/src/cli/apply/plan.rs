//! What each document needs, found by comparing it with what is there.

use std::collections::BTreeMap;

use api::{App, Client, Workload};
use model::{ErrorKind, Name, Role};
use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::manifest::{AppSpec, Body, Resource, UserSpec, WorkloadManifest};
use crate::output::{Format, data};
use crate::session::json;
use api::diff::diff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Create,
    Change,
    /// Cannot be changed in place.
    Replace,
    Delete,
    /// It is not there, which is what was asked for.
    Missing,
}

/// What one document needs, and in words for people what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub act: Act,
    pub lines: Vec<String>,
}

impl Plan {
    pub const fn just(act: Act) -> Self {
        Self { act, lines: Vec::new() }
    }

    pub fn changes(&self) -> bool {
        !matches!(self.act, Act::Nothing | Act::Missing)
    }

    /// `act` if the two differ.
    fn of(old: &Value, new: &Value, act: Act) -> Self {
        let lines: Vec<_> = diff(old, new).iter().map(ToString::to_string).collect();
        Self { act: if lines.is_empty() { Act::Nothing } else { act }, lines }
    }
}

impl Act {
    const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "unchanged",
            Self::Create => "create",
            Self::Change => "change",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Missing => "there is none",
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::Nothing | Self::Missing => " ",
            Self::Create => "+",
            Self::Change => "~",
            Self::Replace => "±",
            Self::Delete => "-",
        }
    }

    /// What has happened, once it was done.
    pub const fn done(self) -> &'static str {
        match self {
            Self::Nothing => "unchanged",
            Self::Create => "created",
            Self::Change => "changed",
            Self::Replace => "replaced",
            Self::Delete => "deleted",
            Self::Missing => "there is none",
        }
    }
}

#[derive(serde::Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    action: &'static str,
    differences: Vec<String>,
    /// Of what was translated: the document it became.
    #[serde(skip_serializing_if = "Option::is_none")]
    translation: Option<Value>,
}

/// Shows the plan; of what was translated also, when asked, what it became.
pub fn show(format: Format, resources: &[Resource], plans: &[Plan], translation: bool) -> Result<()> {
    let translated = |resource: &Resource| (translation && resource.translated).then(|| resource.text());
    let rows = || {
        let both = resources.iter().zip(plans);
        let rows = both.map(|(resource, plan)| Row {
            kind: resource.body.kind(),
            name: resource.name.to_string(),
            action: plan.act.word(),
            differences: plan.lines.clone(),
            translation: translated(resource).and_then(|text| yaml_serde::from_str(&text).ok()),
        });
        rows.collect::<Vec<_>>()
    };
    match format {
        Format::Json => data(&(serde_json::to_string_pretty(&rows()).expect("plain data") + "\n")),
        Format::Yaml => data(&yaml_serde::to_string(&json(&rows())).expect("plain data")),
        Format::Name => resources.iter().try_for_each(|resource| data(&format!("{}\n", resource.name))),
        Format::Table | Format::Wide => {
            for (resource, plan) in resources.iter().zip(plans) {
                data(&text(resource.body.kind(), resource.name.as_str(), plan))?;
            }
            resources.iter().filter_map(translated).try_for_each(|text| data(&format!("---\n{text}")))
        }
    }
}

fn text(kind: &str, name: &str, plan: &Plan) -> String {
    let mut text = format!("{} {kind} {name}: {}\n", plan.act.sign(), plan.act.word());
    plan.lines.iter().for_each(|line| text += &format!("    {line}\n"));
    text
}

/// Turns "there is none" into none.
pub fn found<T>(answer: model::Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(thing) => Ok(Some(thing)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub async fn decide(client: &Client, resource: &Resource) -> Result<Plan> {
    let name = resource.name.as_str();
    Ok(match &resource.body {
        Body::Tenant(spec) => match found(client.tenant_get(name).await)? {
            None => Plan::just(Act::Create),
            Some(tenant) => Plan::of(&json(&tenant.quota), &json(&spec.quota), Act::Change),
        },
        Body::User(spec) => match found(client.user_get(name).await)? {
            None => {
                password(spec)?;
                Plan::just(Act::Create)
            }
            Some(user) => Plan::of(&role(user.role), &role(spec.role), Act::Change),
        },
        Body::Image(spec) => match (found(client.image_get(name).await)?, &spec.reference) {
            (None, _) => {
                if let Some(file) = &spec.file {
                    let found = std::fs::metadata(file);
                    found.map_err(|e| Failure::new(format!("cannot read {}: {e}", file.display())))?;
                }
                Plan::just(Act::Create)
            }
            (Some(image), Some(reference)) if image.source != *reference => {
                let source = |text: &str| serde_json::json!({ "reference": text });
                Plan::of(&source(&image.source), &source(reference), Act::Replace)
            }
            // A file is imported once; its content is not compared.
            (Some(_), _) => Plan::just(Act::Nothing),
        },
        Body::Instance(spec) => match found(client.instance_get(name).await)? {
            None => Plan::just(Act::Create),
            Some(instance) => Plan::of(&json(&instance.spec), &json(spec), Act::Replace),
        },
        Body::Workload(workload) => match found(client.workload_get(name).await)? {
            None => Plan::just(Act::Create),
            Some(there) => workload_plan(&there, workload)?,
        },
        Body::App(spec) => app_plan(client, &resource.name, spec).await?,
    })
}

/// The password of a user who is not there yet.
pub fn password(spec: &UserSpec) -> Result<String> {
    if let Some(password) = &spec.password {
        return Ok(password.clone());
    }
    let Some(file) = &spec.password_file else {
        return Err(
            Failure::new("a new user needs a password").hint("give spec.password or spec.password_file")
        );
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn role(role: Role) -> Value {
    serde_json::json!({ "role": role })
}

fn workload_plan(there: &Workload, asked: &WorkloadManifest) -> Result<Plan> {
    if there.app != asked.app {
        return Err(Failure::new(format!(
            "workload '{}' {}; it cannot be moved",
            there.name,
            owner(there.app.as_ref())
        ))
        .hint("delete it first, or change metadata.app"));
    }
    if there.status.phase == model::WorkloadPhase::Deleting {
        return Err(Failure::new(format!("workload '{}' is being deleted", there.name))
            .hint("try again when it is gone"));
    }
    Ok(Plan::of(&json(&there.spec), &json(&asked.spec), Act::Change))
}

fn owner(app: Option<&Name>) -> String {
    match app {
        Some(app) => format!("belongs to app '{app}'"),
        None => "belongs to no app".to_owned(),
    }
}

/// The workloads that there are of an app, and of those asked for what stands in their way.
pub async fn members(client: &Client, app: &App) -> Result<BTreeMap<Name, Workload>> {
    let mut members = BTreeMap::new();
    for member in &app.workloads {
        if let Some(workload) = found(client.workload_get(member.name.as_str()).await)? {
            members.insert(member.name.clone(), workload);
        }
    }
    Ok(members)
}

async fn app_plan(client: &Client, name: &Name, spec: &AppSpec) -> Result<Plan> {
    let app = found(client.app_get(name.as_str()).await)?;
    if app.as_ref().is_some_and(|app| app.deleting) {
        return Err(Failure::new(format!("app '{name}' is being deleted")).hint("try again when it is gone"));
    }
    let there = match &app {
        Some(app) => members(client, app).await?,
        None => BTreeMap::new(),
    };
    let mut lines = Vec::new();
    if let Some(app) = &app
        && app.description != spec.description
    {
        lines.push(format!("~ description: {:?} -> {:?}", app.description, spec.description));
    }
    for asked in &spec.workloads {
        match there.get(&asked.name) {
            Some(workload) => {
                let changes = diff(&json(&workload.spec), &json(&asked.spec));
                lines.extend((!changes.is_empty()).then(|| format!("~ workload {}: change", asked.name)));
                lines.extend(changes.iter().map(|change| format!("    {change}")));
            }
            None => {
                if let Some(other) = found(client.workload_get(asked.name.as_str()).await)? {
                    let whose = owner(other.app.as_ref());
                    return Err(Failure::new(format!(
                        "there is already a workload '{}'; it {whose}",
                        other.name
                    ))
                    .hint("choose another name, or delete it first"));
                }
                lines.push(format!("+ workload {}: create", asked.name));
            }
        }
    }
    let kept = |name: &Name| spec.workloads.iter().any(|asked| asked.name == *name);
    for name in there.keys().filter(|name| !kept(name)) {
        lines.push(format!("- workload {name}: delete"));
    }
    let act = match (&app, lines.is_empty()) {
        (None, _) => Act::Create,
        (Some(_), true) => Act::Nothing,
        (Some(_), false) => Act::Change,
    };
    Ok(Plan { act, lines })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_reads_like_a_diff() {
        let plan = Plan::of(&json!({"cpu": "1"}), &json!({"cpu": "2"}), Act::Replace);
        assert_eq!(text("Instance", "web", &plan), "± Instance web: replace\n    ~ cpu: \"1\" -> \"2\"\n");
        assert_eq!(Plan::of(&json!({}), &json!({}), Act::Change), Plan::just(Act::Nothing));
    }
}
