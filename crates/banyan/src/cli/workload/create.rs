//! `banyan workload create` and `update`: options become a spec, or change one.

use api::diff::diff;
use api::{Workload, WorkloadCreate, WorkloadUpdate};
use clap::Args;
use model::{ErrorKind, InstanceSpec, Name, WorkloadSpec};

use super::options::WorkloadOptions;
use super::{act, find, show};
use crate::cli::Waiting;
use crate::cli::instance::options::InstanceOptions;
use crate::failure::{Failure, Result};
use crate::output::{Format, data, note};
use crate::session::{Session, json};
use crate::wait::workload::Goal;

const CREATE_HELP: &str = "\
Examples:
  banyan workload create web --image busybox --replicas 3 --health-tcp 80 -- httpd -f -p 80
  banyan workload create probe --image busybox --daemon -- sleep 100000
  banyan workload create sums --image busybox --once --completions 5 --parallelism 2 -- sh -c 'echo $((6*7))'
  banyan workload create backup --image busybox --cron '0 3 * * *' --time-zone Europe/Berlin -- echo saved
  banyan workload create api --image busybox --autoscale-cpu 70 --min 2 --max 8 -- httpd -f -p 80";
const UPDATE_HELP: &str = "\
Examples:
  banyan workload update web --image web-2 --canary 1 --canary-hold 30s
  banyan workload update web --memory 64MiB --max-unavailable 1 --no-wait
  banyan workload update web --env LEVEL=debug --unset-env PROXY --unlabel team
  banyan workload update web -- httpd -f -p 8080";

/// How often an update is tried again when somebody else changed the workload in between.
const UPDATES_MAX: usize = 5;

// What takes something away has nothing to take away from here.
#[derive(Args)]
#[command(
    after_help = CREATE_HELP,
    mut_arg("unset_env", |arg| arg.hide(true)),
    mut_arg("unlabel", |arg| arg.hide(true)),
    mut_arg("no_canary", |arg| arg.hide(true)),
    mut_arg("no_autoscale", |arg| arg.hide(true))
)]
pub struct CreateArguments {
    /// Name of the new workload, unique in the tenant; at most 56 characters.
    name: Name,
    /// Image to boot: a name or an id.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// App it belongs to.
    #[arg(long, value_name = "NAME")]
    app: Option<Name>,
    #[command(flatten)]
    workload: WorkloadOptions,
    #[command(flatten)]
    instance: InstanceOptions,
    #[command(flatten)]
    waiting: Waiting,
    /// Check what can be checked from here and show what would be asked for, without asking.
    #[arg(long)]
    dry_run: bool,
    /// Command and its arguments; the image's own when absent.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Args)]
#[command(after_help = UPDATE_HELP)]
pub struct UpdateArguments {
    /// Name, id, or the beginning of an id.
    name: String,
    /// Image to boot: a name or an id.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    workload: WorkloadOptions,
    #[command(flatten)]
    instance: InstanceOptions,
    #[command(flatten)]
    waiting: Waiting,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Command and its arguments; as it was when absent.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn create(session: &Session, args: CreateArguments) -> Result<()> {
    let instance = InstanceSpec { command: args.command, ..InstanceSpec::new(args.image) };
    let mut spec = WorkloadSpec::new(instance);
    args.workload.change(&mut spec, args.instance)?;
    spec.validate_for(&args.name)?;
    let request = WorkloadCreate { name: args.name, app: args.app, spec };
    if args.dry_run {
        note(format!("workload {}: would be created (nothing was changed)", request.name));
        let manifest = crate::manifest::workload_text(&request.name, request.app.as_ref(), &request.spec);
        return data(&manifest);
    }
    let made = session.client.workload_create(&request).await.map_err(|error| {
        let missing = error.kind == ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see the images with: banyan image list") } else { failure }
    })?;
    let (goal, name) = (Goal::settled(&made), made.name.to_string());
    act::finish(session, made, goal, &args.waiting).await?;
    match session.format {
        Format::Table | Format::Wide => show::show(session, &session.client.workload_get(&name).await?).await,
        _ => Ok(()),
    }
}

pub async fn update(session: &Session, args: UpdateArguments) -> Result<()> {
    let seen = find(session, &args.name).await?;
    let mut spec = seen.spec.clone();
    if let Some(image) = args.image {
        spec.instance.image = image;
    }
    if !args.command.is_empty() {
        spec.instance.command = args.command;
    }
    let names_canary = args.workload.names_canary();
    args.workload.change(&mut spec, args.instance)?;
    spec.validate_for(&seen.name)?;
    let changes = diff(&json(&seen.spec), &json(&spec));
    if args.dry_run {
        let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
        note(format!("workload {}: would be changed (nothing was changed)", seen.name));
        return data(&lines);
    }
    if changes.is_empty() {
        note(format!("workload {}: nothing was changed; what is given is what it is", seen.name));
        return show::show(session, &seen).await;
    }
    let changed = put(session, seen.clone(), WorkloadUpdate { spec }).await?;
    if let Some(canary) = changed.spec.update.canary.as_ref().filter(|_| !names_canary) {
        let tried = canary.instances;
        note(format!("it is first tried on {tried}, as an earlier --canary said; --no-canary ends that"));
    }
    let goal = Goal::changed(&seen, &changed);
    act::finish(session, changed, goal, &args.waiting).await
}

/// Changes what was seen. When only its status moved in between, the same change still fits.
async fn put(session: &Session, mut seen: Workload, body: WorkloadUpdate) -> Result<Workload> {
    let name = seen.name.clone();
    let mut attempt = 1;
    loop {
        match session.client.workload_update(name.as_str(), &body, Some(seen.version)).await {
            Err(error) if error.kind == ErrorKind::VersionMismatch && attempt < UPDATES_MAX => {
                attempt += 1;
                let now = session.client.workload_get(name.as_str()).await?;
                if now.spec != seen.spec {
                    return Err(Failure::new(format!(
                        "workload {name} was changed by somebody else just now"
                    ))
                    .hint("look at it and try again"));
                }
                seen = now;
            }
            other => return Ok(other?),
        }
    }
}
