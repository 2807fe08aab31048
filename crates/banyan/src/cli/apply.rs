//! `banyan apply -f`: plan first, for every document; then do what the plan
//! says. What is already as described is left alone, so it may be run again.

use std::path::PathBuf;

use api::{Client, InstanceCreate, TenantCreate, UserCreate, UserUpdate};
use clap::Args;
use model::{ErrorKind, Role};

use super::{Globals, Waiting, image, instance};
use crate::failure::{EXIT_CHANGES, Failure, Result};
use crate::manifest::diff::{Difference, diff};
use crate::manifest::{Body, Resource, UserSpec, load};
use crate::output::{Format, data, note};
use crate::session::{Session, json};
use crate::wait::{Goal, wait};

const AFTER_HELP: &str = "\
A document has kind (Instance, Image, Tenant or User), metadata with a name, and spec:

  kind: Instance
  metadata: { name: web }
  spec: { image: busybox, memory: 64MiB, command: [httpd, -f, -p, \"80\"] }

Examples:
  banyan apply -f cloud.yaml --dry-run
  banyan apply -f manifests/
  generate | banyan apply -f -";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// File, folder or `-` for standard input; may be repeated.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: exit with 2 when something would change.
    #[arg(long, requires = "dry_run")]
    detailed_exitcode: bool,
    /// Delete and make anew what cannot be changed in place.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// What one document needs.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Nothing,
    Create,
    Change(Vec<Difference>),
    /// Cannot be changed in place.
    Replace(Vec<Difference>),
}

impl Action {
    const fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "unchanged",
            Self::Create => "create",
            Self::Change(_) => "change",
            Self::Replace(_) => "replace",
        }
    }

    fn differences(&self) -> &[Difference] {
        match self {
            Self::Change(found) | Self::Replace(found) => found,
            _ => &[],
        }
    }
}

#[derive(serde::Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    action: &'static str,
    differences: Vec<String>,
}

pub async fn run(globals: &Globals, args: Arguments) -> Result<u8> {
    // Everything that can be wrong without a cloud is told before asking for one.
    let resources = load(&args.files)?;
    let session = Session::open(globals)?;
    let mut plan = Vec::new();
    for resource in &resources {
        plan.push(decide(&client_for(&session, resource), resource).await?);
    }
    show(session.format, &resources, &plan)?;
    if args.dry_run {
        let changes = plan.iter().any(|action| *action != Action::Nothing);
        return Ok(if changes && args.detailed_exitcode { EXIT_CHANGES } else { 0 });
    }
    if let Some((resource, _)) =
        resources.iter().zip(&plan).find(|(_, action)| matches!(action, Action::Replace(_)) && !args.replace)
    {
        return Err(Failure::new(format!(
            "{} '{}' cannot be changed in place; nothing was changed",
            resource.body.kind(),
            resource.name
        ))
        .at(&resource.place)
        .hint("add --replace to delete it and make it anew"));
    }
    perform(&session, &resources, &plan, &args.waiting).await?;
    Ok(0)
}

fn client_for(session: &Session, resource: &Resource) -> Client {
    match &resource.tenant {
        Some(tenant) => session.client.with_tenant(tenant.clone()),
        None => session.client.clone(),
    }
}

fn show(format: Format, resources: &[Resource], plan: &[Action]) -> Result<()> {
    let mut rows = resources.iter().zip(plan).map(|(resource, action)| Row {
        kind: resource.body.kind(),
        name: resource.name.to_string(),
        action: action.word(),
        differences: action.differences().iter().map(ToString::to_string).collect(),
    });
    match format {
        Format::Json => {
            data(&(serde_json::to_string_pretty(&rows.collect::<Vec<_>>()).expect("plain data") + "\n"))
        }
        Format::Yaml => data(&yaml_serde::to_string(&rows.collect::<Vec<_>>()).expect("plain data")),
        Format::Name => rows.try_for_each(|row| data(&format!("{}\n", row.name))),
        Format::Table | Format::Wide => rows.try_for_each(|row| data(&text(&row))),
    }
}

fn text(row: &Row) -> String {
    let sign = match row.action {
        "create" => "+",
        "change" => "~",
        "replace" => "±",
        _ => " ",
    };
    let mut text = format!("{sign} {} {}: {}\n", row.kind, row.name, row.action);
    row.differences.iter().for_each(|line| text += &format!("    {line}\n"));
    text
}

/// Turns "there is none" into none.
fn found<T>(answer: model::Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(thing) => Ok(Some(thing)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn change(old: &serde_json::Value, new: &serde_json::Value, wrap: fn(Vec<Difference>) -> Action) -> Action {
    let found = diff(old, new);
    if found.is_empty() { Action::Nothing } else { wrap(found) }
}

async fn decide(client: &Client, resource: &Resource) -> Result<Action> {
    let name = resource.name.as_str();
    Ok(match &resource.body {
        Body::Tenant(spec) => match found(client.tenant_get(name).await)? {
            None => Action::Create,
            Some(tenant) => change(&json(&tenant.quota), &json(&spec.quota), Action::Change),
        },
        Body::User(spec) => match found(client.user_get(name).await)? {
            None => Action::Create,
            Some(user) => change(&role(user.role), &role(spec.role), Action::Change),
        },
        Body::Image(spec) => match (found(client.image_get(name).await)?, &spec.reference) {
            (None, _) => Action::Create,
            (Some(image), Some(reference)) if image.source != *reference => {
                let source = |text: &str| serde_json::json!({ "reference": text });
                change(&source(&image.source), &source(reference), Action::Replace)
            }
            // A file is imported once; its content is not compared.
            (Some(_), _) => Action::Nothing,
        },
        Body::Instance(spec) => match found(client.instance_get(name).await)? {
            None => Action::Create,
            Some(instance) => change(&json(&instance.spec), &json(spec), Action::Replace),
        },
    })
}

fn role(role: Role) -> serde_json::Value {
    serde_json::json!({ "role": role })
}

async fn perform(
    session: &Session,
    resources: &[Resource],
    plan: &[Action],
    waiting: &Waiting,
) -> Result<()> {
    let mut started = Vec::new();
    for (resource, action) in resources.iter().zip(plan).filter(|(_, action)| **action != Action::Nothing) {
        let client = client_for(session, resource);
        let made = execute(session, &client, resource, action).await;
        let instance = made.map_err(|failure| match failure.place {
            Some(_) => failure,
            None => failure.at(&resource.place),
        })?;
        started.extend(instance.map(|instance| (client, instance)));
        note(format!("{} {}: {}", resource.body.kind(), resource.name, done(action)));
    }
    let Some(limit) = waiting.limit() else { return Ok(()) };
    for (client, instance) in started {
        let goal = Goal::Running { after: None };
        wait(&client, instance.id.as_str(), instance.name.as_str(), goal, limit).await?;
    }
    Ok(())
}

const fn done(action: &Action) -> &'static str {
    match action {
        Action::Nothing => "unchanged",
        Action::Create => "created",
        Action::Change(_) => "changed",
        Action::Replace(_) => "replaced",
    }
}

/// Does what one document needs; returns an instance that is to be waited for.
async fn execute(
    session: &Session,
    client: &Client,
    resource: &Resource,
    action: &Action,
) -> Result<Option<api::Instance>> {
    let name = resource.name.as_str();
    let exists = *action != Action::Create;
    match &resource.body {
        Body::Tenant(spec) if exists => drop(client.quota_set(name, &spec.quota, None).await?),
        Body::Tenant(spec) => {
            let body = TenantCreate { name: resource.name.clone(), quota: spec.quota };
            client.tenant_create(&body).await?;
        }
        Body::User(spec) if exists => {
            let body = UserUpdate { role: Some(spec.role), password: None };
            client.user_update(name, &body, None).await?;
        }
        Body::User(spec) => {
            let body = UserCreate { name: resource.name.clone(), role: spec.role, password: password(spec)? };
            client.user_create(&body).await?;
        }
        Body::Image(spec) => {
            if exists {
                client.image_delete(name, None).await?;
            }
            match (&spec.file, &spec.reference) {
                (Some(file), _) => drop(image::import(client, name, file, spec.public).await?),
                (None, Some(reference)) => {
                    drop(image::pull(client, name, reference.clone(), spec.public).await?)
                }
                (None, None) => {}
            }
        }
        Body::Instance(spec) => {
            if exists {
                remove(client, name).await?;
            }
            let body = InstanceCreate { name: resource.name.clone(), spec: (**spec).clone() };
            let session = Session { client: client.clone(), format: session.format };
            return instance::create(&session, &body).await.map(Some);
        }
    }
    Ok(None)
}

/// Deletes an instance and waits until its name is free.
async fn remove(client: &Client, name: &str) -> Result<()> {
    const REMOVAL_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);
    let instance = client.instance_delete(name, None).await?;
    wait(client, instance.id.as_str(), name, Goal::Gone, REMOVAL_LIMIT).await.map(drop)
}

fn password(spec: &UserSpec) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_reads_like_a_diff() {
        let action = change(&json!({"cpu": "1"}), &json!({"cpu": "2"}), Action::Replace);
        let differences = action.differences().iter().map(ToString::to_string).collect();
        let row = Row { kind: "Instance", name: "web".into(), action: action.word(), differences };
        assert_eq!(text(&row), "± Instance web: replace\n    ~ cpu: \"1\" -> \"2\"\n");
        assert_eq!(change(&json!({}), &json!({}), Action::Change), Action::Nothing);
    }
}
