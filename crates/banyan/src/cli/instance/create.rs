//! `banyan instance create`: options become a spec, the spec an instance.

use api::InstanceCreate;
use clap::Args;
use model::{ErrorKind, InstanceSpec, Name};

use super::get;
use super::options::InstanceOptions;
use crate::cli::Waiting;
use crate::failure::{Failure, Result};
use crate::output::{self, note};
use crate::session::Session;
use crate::wait::{Goal, wait};

const AFTER_HELP: &str = "\
Examples:
  banyan instance create hello --image busybox --restart never -- echo hello
  banyan instance create web --image busybox --cpu 0.5 --memory 64MiB --health-tcp 80 -- httpd -f -p 80
  banyan instance create db --image busybox --label app=db --away app=db -- sleep 1000
  banyan instance create big --image busybox --cpu 64 --dry-run -- sleep 1000";

/// A create is repeated with the same idempotency key while the cloud cannot be reached.
const ATTEMPTS_MAX: usize = 3;

// What takes something away has nothing to take away from here.
#[derive(Args)]
#[command(
    after_help = AFTER_HELP,
    mut_arg("unset_env", |arg| arg.hide(true)),
    mut_arg("unlabel", |arg| arg.hide(true))
)]
pub struct Arguments {
    /// Name of the new instance, unique in the tenant.
    name: Name,
    /// Image to boot: a name or an id.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    options: InstanceOptions,
    #[command(flatten)]
    waiting: Waiting,
    /// Check everything and show what would be asked for, without asking.
    #[arg(long)]
    dry_run: bool,
    /// Command and its arguments; the image's own when absent.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let mut spec = InstanceSpec { command: args.command, ..InstanceSpec::new(args.image) };
    args.options.change(&mut spec)?;
    spec.validate()?;
    let request = InstanceCreate { name: args.name, spec };
    if args.dry_run {
        return dry_run(session, &request).await;
    }
    let instance = create(session, &request).await?;
    let instance = match args.waiting.limit() {
        None => {
            note(format!("instance {}: asked for; see: banyan instance get {0}", instance.name));
            instance
        }
        Some(timeout) => {
            let goal = Goal::Running { after: None };
            wait(&session.client, instance.id.as_str(), instance.name.as_str(), goal, timeout)
                .await?
                .unwrap_or(instance)
        }
    };
    let name = instance.name.to_string();
    output::item(session.format, &instance, &name, get::describe)
}

/// Asks for it, again with the same key when the answer was lost, so that it is made once.
pub async fn create(session: &Session, request: &InstanceCreate) -> Result<api::Instance> {
    let key = hex::encode(rand::random::<[u8; 16]>());
    let mut attempt = 1;
    loop {
        match session.client.instance_create_once(request, &key).await {
            Err(error) if error.kind == ErrorKind::Unavailable && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(std::time::Duration::from_millis(200 * attempt as u64)).await;
                attempt += 1;
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                return Err(Failure::from(error).or_hint("see the images with: banyan image list"));
            }
            Err(error) => return Err(error.into()),
            Ok(instance) => return Ok(instance),
        }
    }
}

/// Checks what can be checked from here: the image is there, the name is free, the quota holds.
async fn dry_run(session: &Session, request: &InstanceCreate) -> Result<()> {
    let client = &session.client;
    client.image_get(&request.spec.image).await.map_err(|error| {
        Failure::from(error).at("image").or_hint("see the images with: banyan image list")
    })?;
    match client.instance_get(request.name.as_str()).await {
        Ok(_) => {
            return Err(Failure::new(format!("there is already an instance '{}'", request.name)).at("name"));
        }
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let report = client.quota().await?;
    let (quota, usage) = (report.quota, report.usage);
    let over = [
        ("instances", quota.instances.is_some_and(|most| usage.instances + 1 > most)),
        ("cpu", quota.cpu.is_some_and(|most| usage.cpu.0 + request.spec.cpu.0 > most.0)),
        ("memory", quota.memory.is_some_and(|most| usage.memory.0 + request.spec.memory.0 > most.0)),
    ];
    if let Some((what, _)) = over.iter().find(|(_, over)| *over) {
        return Err(Failure::new(format!(
            "the quota of {what} of tenant '{}' would be exceeded",
            report.tenant
        ))
        .hint("see what is used with: banyan quota get"));
    }
    note(format!("instance {}: would be created (nothing was changed)", request.name));
    let name = request.name.to_string();
    output::item(session.format, request, &name, |request, _| {
        let spec = output::yaml(&request.spec);
        vec![("name".into(), request.name.to_string()), ("spec".into(), spec)]
    })
}
