//! `banyan delete -f`: removes what files describe, in the reverse of the order in which it was made.

use std::path::PathBuf;

use api::Client;
use clap::Args;

use super::apply::client_for;
use super::apply::plan::{Act, Plan, found, show};
use super::{Globals, Waiting, app};
use crate::failure::{Failure, Result};
use crate::manifest::{Body, Resource, load};
use crate::output::note;
use crate::session::Session;
use crate::wait::workload::{self as rollout, Goal as Rollout};
use crate::wait::{Goal, wait};

#[derive(Args)]
#[command(after_help = "Examples:\n  banyan delete -f shop.yaml --dry-run\n  banyan delete -f manifests/")]
pub struct Arguments {
    /// File, folder or `-` for standard input; may be repeated.
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Show what would be deleted, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// What was ordered to go and is waited for.
enum Going {
    Instance { id: String, name: String },
    Workload(String),
    App(String),
}

pub async fn run(globals: &Globals, args: Arguments) -> Result<()> {
    let mut resources = load(&args.files)?;
    resources.reverse();
    let session = Session::open(globals)?;
    let mut plans = Vec::new();
    for resource in &resources {
        let there = exists(&client_for(&session, resource), resource).await?;
        plans.push(Plan::just(if there { Act::Delete } else { Act::Missing }));
    }
    show(session.format, &resources, &plans, false)?;
    if args.dry_run {
        return Ok(());
    }
    let doomed: Vec<_> =
        resources.iter().zip(&plans).filter(|(_, plan)| plan.act == Act::Delete).map(|(r, _)| r).collect();
    let mut next = doomed.into_iter().peekable();
    while let Some(resource) = next.next() {
        // What is still there of one kind may hold on to things of the next, such as a tenant to its apps.
        let mut going = vec![(resource, order(&client_for(&session, resource), resource).await?)];
        while let Some(same) = next.next_if(|other| other.body.kind() == resource.body.kind()) {
            going.push((same, order(&client_for(&session, same), same).await?));
        }
        for (resource, going) in going {
            finish(&client_for(&session, resource), going, &args.waiting).await?;
            note(format!("{} {}: deleted", resource.body.kind(), resource.name));
        }
    }
    Ok(())
}

async fn exists(client: &Client, resource: &Resource) -> Result<bool> {
    let name = resource.name.as_str();
    Ok(match &resource.body {
        Body::Tenant(_) => found(client.tenant_get(name).await)?.is_some(),
        Body::User(_) => found(client.user_get(name).await)?.is_some(),
        Body::Image(_) => found(client.image_get(name).await)?.is_some(),
        Body::Instance(_) => found(client.instance_get(name).await)?.is_some(),
        Body::App(_) => found(client.app_get(name).await)?.is_some(),
        Body::Workload(_) => found(client.workload_get(name).await)?.is_some(),
    })
}

async fn order(client: &Client, resource: &Resource) -> Result<Option<Going>> {
    let name = resource.name.as_str();
    let wrong = |error: model::Error| Failure::from(error).at(&resource.place);
    Ok(match &resource.body {
        Body::Tenant(_) => client.tenant_delete(name, None).await.map(|_| None).map_err(wrong)?,
        Body::User(_) => client.user_delete(name, None).await.map(|_| None).map_err(wrong)?,
        Body::Image(_) => client.image_delete(name, None).await.map(|_| None).map_err(wrong)?,
        Body::Instance(_) => {
            let instance = client.instance_delete(name, None).await.map_err(wrong)?;
            Some(Going::Instance { id: instance.id.to_string(), name: name.to_owned() })
        }
        Body::App(_) => {
            client.app_delete(name, None).await.map_err(wrong)?;
            Some(Going::App(name.to_owned()))
        }
        Body::Workload(_) => {
            client.workload_delete(name, None).await.map_err(wrong)?;
            Some(Going::Workload(name.to_owned()))
        }
    })
}

async fn finish(client: &Client, going: Option<Going>, waiting: &Waiting) -> Result<()> {
    let (Some(going), Some(limit)) = (going, waiting.limit()) else { return Ok(()) };
    match going {
        Going::Instance { id, name } => wait(client, &id, &name, Goal::Gone, limit).await.map(drop),
        Going::Workload(name) => rollout::wait(client, &name, Rollout::Gone, limit).await.map(drop),
        Going::App(name) => app::wait_gone(client, &name, limit).await,
    }
}
