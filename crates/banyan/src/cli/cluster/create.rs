//! `banyan cluster create` and `solve`.

use std::time::Duration;

use api::{ClusterAsk, ClusterCreate, ClusterPreview, ClusterSolve, ClusterWebhooks, PlanStep};
use clap::Args;
use model::{ErrorKind, Name};
use serde_json::Value;

use super::{Settings, change, show};
use crate::cli::{Waiting, parse};
use crate::failure::{EXIT_FAILED, Failure, Result};
use crate::output::table::{grid, terminal_width};
use crate::output::{self, Format, data, note};
use crate::session::Session;

const CREATE_HELP: &str = "\
Examples:
  banyan cluster create shop --template web --size 3
  banyan cluster create shop --template web --size 3 --services base,nginx --set web.port=8080 --lease 7d
  banyan cluster create big --template hadoop --size 50 --provider pool --field region=eu --no-wait";

const SOLVE_HELP: &str = "\
Examples:
  banyan cluster solve --template web --size 3
  banyan cluster solve --cluster shop --size 5
  banyan cluster solve --cluster shop --add cache -o json

Where there is no layout the exit code is 1.";

/// What a cluster is made of.
#[derive(Args)]
struct Wish {
    /// Provider of the machines [default: the template's].
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Services, separated by commas [default: the template's].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    services: Vec<String>,
    /// Hardware type of every machine [default: the template's, else any].
    #[arg(long, value_name = "NAME")]
    hardwaretype: Option<String>,
    /// Image type of every machine [default: the template's, else any].
    #[arg(long, value_name = "NAME")]
    imagetype: Option<String>,
}

#[derive(Args)]
#[command(after_help = CREATE_HELP)]
pub struct CreateArguments {
    /// Name of the new cluster, unique in the tenant.
    name: Name,
    /// Cluster template of the catalogue.
    #[arg(long, value_name = "NAME")]
    template: String,
    /// Number of machines.
    #[arg(long, value_name = "N")]
    size: u32,
    /// What it is for.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    #[command(flatten)]
    wish: Wish,
    /// Field of the provider, as KEY=VALUE; may be repeated.
    #[arg(long = "field", value_name = "KEY=VALUE", value_parser = parse::pair)]
    fields: Vec<(String, String)>,
    /// How long it lives, such as 12h or 7d [default: the template's].
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    lease: Option<Duration>,
    /// Domain of the host names [default: the template's, else local].
    #[arg(long, value_name = "DOMAIN")]
    dns_suffix: Option<String>,
    /// Address that gets a POST when a job starts.
    #[arg(long, value_name = "URL")]
    on_start: Option<String>,
    /// Address that gets a POST when a job has succeeded.
    #[arg(long, value_name = "URL")]
    on_success: Option<String>,
    /// Address that gets a POST when a job has failed.
    #[arg(long, value_name = "URL")]
    on_failure: Option<String>,
    /// Call these addresses only for jobs of these kinds, such as CLUSTER_CREATE,CLUSTER_EXPAND [default: all].
    #[arg(long, value_name = "ACTIONS", value_delimiter = ',')]
    on_actions: Vec<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    waiting: Waiting,
}

pub async fn create(session: &Session, args: CreateArguments) -> Result<()> {
    let fields = args.fields.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
    let hooks = [&args.on_start, &args.on_success, &args.on_failure].iter().any(|url| url.is_some());
    let (start, success, failure) = (args.on_start, args.on_success, args.on_failure);
    let actions = args.on_actions;
    if !hooks && !actions.is_empty() {
        return Err(Failure::new("no address is named that could be called")
            .at("--on-actions")
            .hint("name one with --on-start, --on-success or --on-failure"));
    }
    let webhooks = hooks.then_some(ClusterWebhooks { start, success, failure, actions });
    // Root knows what a template brings with all that it extends and includes.
    let (config, set) = args.settings.parts()?;
    let body = ClusterCreate {
        name: args.name,
        template: args.template,
        size: args.size,
        description: args.description,
        provider: args.wish.provider,
        provider_fields: fields,
        services: args.wish.services,
        hardwaretype: args.wish.hardwaretype,
        imagetype: args.wish.imagetype,
        lease_ms: args.lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
        dns_suffix: args.dns_suffix,
        config,
        set,
        webhooks,
    };
    let made = session.client.cluster_create(&body, None).await.map_err(|mut error| {
        if error.field.as_deref() == Some("lease_ms") {
            error.field = Some("lease".into());
        }
        let missing = error.kind == ErrorKind::NotFound;
        let failure = Failure::from(error);
        if missing { failure.or_hint("see what there is with: banyan catalogue list") } else { failure }
    })?;
    let name = made.name.to_string();
    change::finish(session, made, &args.waiting).await?;
    match session.format {
        Format::Table | Format::Wide => show::get(session, &name).await,
        _ => Ok(()),
    }
}

#[derive(Args)]
#[command(after_help = SOLVE_HELP)]
pub struct SolveArguments {
    /// Cluster template of a new cluster.
    #[arg(long, value_name = "NAME", required_unless_present = "cluster", conflicts_with = "cluster")]
    template: Option<String>,
    /// Cluster that is to change.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["provider", "services", "hardwaretype", "imagetype"])]
    cluster: Option<String>,
    /// Number of machines.
    #[arg(long, value_name = "N", required_unless_present = "cluster")]
    size: Option<u32>,
    #[command(flatten)]
    wish: Wish,
    /// Services to add to the cluster, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "cluster")]
    add: Vec<String>,
    /// Services to remove from the cluster, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "cluster")]
    remove: Vec<String>,
}

pub async fn solve(session: &Session, args: SolveArguments) -> Result<u8> {
    let body = match (args.cluster, args.template) {
        (Some(cluster), _) => ClusterSolve {
            cluster: Some(cluster),
            size: args.size,
            add: args.add,
            remove: args.remove,
            ..ClusterSolve::default()
        },
        (None, template) => {
            let Wish { provider, services, hardwaretype, imagetype } = args.wish;
            let (template, size) = (template.unwrap_or_default(), args.size.unwrap_or_default());
            let ask = ClusterAsk { template, size, provider, services, hardwaretype, imagetype };
            ClusterSolve { ask: Some(ask), ..ClusterSolve::default() }
        }
    };
    let preview = session.client.cluster_solve(&body).await?;
    let is_solved = preview.unsolvable.is_none();
    match session.format {
        Format::Table | Format::Wide | Format::Name => {
            if let Some(unsolvable) = preview.unsolvable {
                let mut conflicts = unsolvable.conflicts;
                conflicts.retain(|conflict| !unsolvable.reason.contains(conflict));
                return Err(Failure::new(unsolvable.reason).details(conflicts));
            }
            data(&page(&preview))?;
            if preview.anew {
                note("machines that stand cannot all be kept; say --anew to allow that");
            }
        }
        format => output::item(format, &preview, "", |_, _| Vec::new())?,
    }
    Ok(if is_solved { 0 } else { EXIT_FAILED })
}

/// `INSTALL nginx on 3`
fn step(step: &PlanStep) -> String {
    let service = if step.service.is_empty() { String::new() } else { format!(" {}", step.service) };
    format!("{}{service} on {}", step.name, step.count)
}

fn page(preview: &ClusterPreview) -> String {
    let header = ["COUNT", "HARDWARE", "IMAGE", "SERVICES"].map(str::to_owned).to_vec();
    let rows = preview.layout.iter().map(|group| {
        let services = group.services.join(", ");
        vec![group.count.to_string(), group.hardwaretype.clone(), group.imagetype.clone(), services]
    });
    let mut text = grid(header, rows, terminal_width());
    let total: u32 = preview.tasks.values().sum();
    let tasks: Vec<String> = preview.tasks.iter().map(|(name, count)| format!("{count} {name}")).collect();
    text += &format!("\n{total} tasks, the longest way {}: {}\n", preview.levels, tasks.join(", "));
    for (at, stage) in preview.stages.iter().enumerate() {
        let steps: Vec<String> = stage.iter().map(step).collect();
        text += &format!("  {:>2}  {}\n", at + 1, steps.join(", "));
    }
    if let Some(cost) = preview.cost {
        text += &format!("{cost} an hour\n");
    }
    text
}
