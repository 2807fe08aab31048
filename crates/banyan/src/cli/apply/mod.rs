//! `banyan apply -f`: plan first, for every document; then do what the plan
//! says. What is already as described is left alone, so it may be run again.

mod check;
mod perform;
pub mod plan;

use std::path::PathBuf;

use api::Client;
use clap::Args;

use self::plan::{Act, Plan};
use super::{Globals, Waiting};
use crate::failure::{EXIT_CHANGES, Failure, Result};
use crate::manifest::flaw::Flaw;
use crate::manifest::{Resource, load};
use crate::output::note;
use crate::session::Session;

const AFTER_HELP: &str = "\
A document has kind (Instance, Workload, App, Image, Tenant or User), metadata with a name, and spec:

  kind: Instance
  metadata: { name: web }
  spec: { image: busybox, memory: 64MiB, command: [httpd, -f, -p, \"80\"] }

  kind: Workload
  metadata: { name: web }
  spec:
    instance: { image: busybox, command: [httpd, -f, -p, \"80\"] }
    mode: { kind: service, replicas: 3 }

An SLA descriptor of Oakestra (sla_version v2.0) is taken as it is; --dry-run shows what becomes of it.

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
    /// Show what would change and what stands in the way, and change nothing.
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

pub async fn run(globals: &Globals, args: Arguments) -> Result<u8> {
    // Everything that can be wrong without a cloud is told before asking for one.
    let resources = load(&args.files)?;
    let session = Session::open(globals)?;
    let mut plans = Vec::new();
    for resource in &resources {
        let plan = plan::decide(&client_for(&session, resource), resource).await;
        plans.push(plan.map_err(|failure| placed(failure, resource))?);
    }
    let check::Found { mut refused, waiting } = check::all(&session, &resources, &plans).await?;
    if !args.dry_run && !refused.is_empty() {
        return Err(Flaw::failure(refused));
    }
    plan::show(session.format, &resources, &plans, args.dry_run)?;
    if args.dry_run {
        refused.extend(waiting);
        if !refused.is_empty() {
            return Err(Flaw::failure(refused));
        }
        let changes = plans.iter().any(Plan::changes);
        return Ok(if changes && args.detailed_exitcode { EXIT_CHANGES } else { 0 });
    }
    let stuck = |(_, plan): &(&Resource, &Plan)| plan.act == Act::Replace && !args.replace;
    if let Some((resource, _)) = resources.iter().zip(&plans).find(stuck) {
        return Err(Failure::new(format!(
            "{} '{}' cannot be changed in place; nothing was changed",
            resource.body.kind(),
            resource.name
        ))
        .at(&resource.place)
        .hint("add --replace to delete it and make it anew"));
    }
    waiting.iter().for_each(|flaw| note(format!("it will wait: {}", flaw.line())));
    perform::all(&session, &resources, &plans, &args.waiting).await?;
    Ok(0)
}

/// A failure that does not say where is at the document.
fn placed(failure: Failure, resource: &Resource) -> Failure {
    match failure.place {
        Some(_) => failure,
        None => failure.at(&resource.place),
    }
}

/// Acts in the tenant that a document names.
pub fn client_for(session: &Session, resource: &Resource) -> Client {
    match &resource.tenant {
        Some(tenant) => session.client.with_tenant(tenant.clone()),
        None => session.client.clone(),
    }
}
