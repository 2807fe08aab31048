//! `banyan instance stats`

use api::ListQuery;
use clap::Args;
use model::exchange::InstanceStats;
use serde::Serialize;

use super::find;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::size;
use crate::output::{self, note};
use crate::session::{Session, all};

#[derive(Args)]
pub struct Arguments {
    /// Names, ids or beginnings of ids; all running ones when absent.
    #[arg(value_name = "INSTANCE")]
    instances: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    stats: InstanceStats,
}

fn memory(row: &Row) -> String {
    match row.stats.memory_limit_bytes {
        0 => size(row.stats.memory_bytes),
        limit => format!("{} of {}", size(row.stats.memory_bytes), size(limit)),
    }
}

const COLUMNS: [Column<Row>; 7] = [
    Column::new("NAME", |r| r.name.clone()),
    Column::new("CPU", |r| format!("{:.1}%", r.stats.cpu_milli as f64 / 10.0)),
    Column::new("MEMORY", memory),
    Column::new("PROCESSES", |r| r.stats.pids.to_string()),
    Column::new("NET IN/OUT", |r| {
        format!("{}/{}", size(r.stats.net_received_bytes), size(r.stats.net_sent_bytes))
    }),
    Column::new("DISK IN/OUT", |r| {
        format!("{}/{}", size(r.stats.disk_read_bytes), size(r.stats.disk_written_bytes))
    }),
    Column::wide("CPU TIME", |r| format!("{:.2}s", r.stats.cpu_used_us as f64 / 1e6)),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let mut instances = Vec::new();
    for text in &args.instances {
        instances.push(find(session, text).await?);
    }
    if args.instances.is_empty() {
        let query = ListQuery::new().with("phase", "running");
        instances =
            all(query, None, |query| async move { session.client.instance_list(&query).await }).await?;
    }
    let mut rows = Vec::new();
    let mut failed: Option<Failure> = None;
    for instance in instances {
        let name = instance.name.to_string();
        match session.client.instance_stats(instance.id.as_str()).await {
            Ok(stats) => rows.push(Row { name, stats }),
            Err(error) => {
                let failure = Failure::from(error).or_hint(format!("banyan instance get {name}"));
                note(format!("instance {name}: {failure}"));
                failed = Some(failure);
            }
        }
    }
    match failed {
        Some(failure) if rows.is_empty() => Err(failure),
        _ => output::list(session.format, &rows, &COLUMNS),
    }
}
