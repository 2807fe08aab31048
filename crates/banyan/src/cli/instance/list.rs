//! `banyan instance list`

use std::collections::BTreeSet;

use api::{Instance, ListQuery};
use clap::Args;
use model::Phase;

use crate::failure::Result;
use crate::output::table::Column;
use crate::output::text::{age_now, command, labels};
use crate::output::{self, Format, note};
use crate::session::{Session, all};
use crate::wait::run_ended;

#[derive(Args)]
pub struct Arguments {
    /// Only those in this phase, such as running or pending.
    #[arg(long, value_name = "PHASE")]
    phase: Option<String>,
    /// Only those with this name; `*` stands for anything.
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only those with this label; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Only those in this zone.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Only those on this node.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Show at most so many.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// The phase, and what belongs to it, in a word or two.
pub fn status(instance: &Instance) -> String {
    if let Some(code) = run_ended(instance) {
        return format!("exited ({code})");
    }
    match (instance.phase, instance.exit_code) {
        (Phase::Exited, Some(code)) => format!("exited ({code})"),
        (phase, _) => match instance.health {
            Some(health) if phase == Phase::Running => {
                format!("running ({})", format!("{health:?}").to_lowercase())
            }
            _ => phase.to_string(),
        },
    }
}

fn some<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

const WORKLOAD: &str = "WORKLOAD";
const ZONE: &str = "ZONE";

const COLUMNS: [Column<Instance>; 15] = [
    Column::new("NAME", |i| i.name.to_string()),
    Column::new(WORKLOAD, |i| some(&i.workload)),
    Column::new("PHASE", status),
    Column::new("ADDRESS", |i| some(&i.address)),
    Column::new(ZONE, |i| some(&i.zone)),
    Column::new("NODE", |i| some(&i.node)),
    Column::new("IMAGE", |i| i.spec.image.clone()),
    Column::new("CPU", |i| i.spec.cpu.to_string()),
    Column::new("MEMORY", |i| i.spec.memory.to_string()),
    Column::new("RESTARTS", |i| i.restarts.to_string()),
    Column::new("AGE", |i| age_now(i.created_at)),
    Column::wide("ID", |i| i.id.to_string()),
    Column::wide("COMMAND", |i| command(&i.spec.command)),
    Column::wide("LABELS", |i| labels(&i.spec.labels)),
    Column::wide("MESSAGE", |i| some(&i.message)),
];

impl Arguments {
    fn query(&self) -> ListQuery {
        let mut query = ListQuery::new();
        let fields =
            [("phase", &self.phase), ("name", &self.name), ("zone", &self.zone), ("node", &self.node)];
        for (field, value) in fields {
            if let Some(value) = value {
                query = query.with(field, value);
            }
        }
        for label in &self.label {
            query = query.with("label", label);
        }
        query
    }
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let fetch = |query: ListQuery| async move { session.client.instance_list(&query).await };
    let instances = all(args.query(), args.limit, fetch).await?;
    if instances.is_empty() && matches!(session.format, Format::Table | Format::Wide) {
        note("No instances. Make one with: banyan instance create NAME --image busybox -- sleep 1000");
        return Ok(());
    }
    // Who has no workloads, or is in one zone, need not see those columns.
    let owned = instances.iter().any(|instance| instance.workload.is_some());
    let zones: BTreeSet<_> = instances.iter().filter_map(|instance| instance.zone.as_ref()).collect();
    let apart = zones.len() > 1 || session.format == Format::Wide;
    let shown = |column: &Column<Instance>| match column.header {
        WORKLOAD => owned,
        ZONE => apart,
        _ => true,
    };
    let columns: Vec<_> = COLUMNS.into_iter().filter(shown).collect();
    output::list(session.format, &instances, &columns)
}
