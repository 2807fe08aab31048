//! `banyan quota list|get|set`

use api::{ListQuery, QuotaReport, Tenant};
use clap::{Args, Subcommand};
use model::{Bytes, Cpu, Quota};

use super::parse;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::text::{pair, pair_some};
use crate::output::{self, note};
use crate::session::{Session, all};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan quota get\n  banyan quota set team-a --instances 10 --cpu 4 --memory 8GiB"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// What every tenant may have, and has (for operators).
    #[command(visible_alias = "ls")]
    List,
    /// What a tenant may have, and has.
    #[command(visible_alias = "show")]
    Get {
        /// Name of the tenant (for operators); your own when absent.
        name: Option<String>,
    },
    /// Change what a tenant may have (for operators). What is not named stays.
    Set {
        /// Name of the tenant.
        name: String,
        #[command(flatten)]
        quota: QuotaOptions,
        /// Lift every limit that is not named.
        #[arg(long)]
        replace: bool,
    },
}

/// The limits as options.
#[derive(Debug, Clone, Args)]
pub struct QuotaOptions {
    /// Most instances.
    #[arg(long, value_name = "COUNT")]
    instances: Option<u64>,
    /// Most cores together, such as 8.
    #[arg(long, value_name = "CORES", value_parser = parse::quantity::<Cpu>)]
    cpu: Option<Cpu>,
    /// Most memory together, such as 16GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse::quantity::<Bytes>)]
    memory: Option<Bytes>,
    /// Most bytes in buckets together, such as 1TiB.
    #[arg(long, value_name = "SIZE", value_parser = parse::quantity::<Bytes>)]
    object_bytes: Option<Bytes>,
    /// Most clusters.
    #[arg(long, value_name = "COUNT")]
    clusters: Option<u64>,
    /// Most machines of all clusters together.
    #[arg(long, value_name = "COUNT")]
    cluster_machines: Option<u64>,
}

impl QuotaOptions {
    pub const fn quota(&self) -> Quota {
        Quota {
            instances: self.instances,
            cpu: self.cpu,
            memory: self.memory,
            object_bytes: self.object_bytes,
            clusters: self.clusters,
            cluster_machines: self.cluster_machines,
        }
    }
}

const COLUMNS: [Column<QuotaReport>; 7] = [
    Column::new("TENANT", |q| q.tenant.to_string()),
    Column::new("INSTANCES", |q| of(q.usage.instances, q.quota.instances)),
    Column::new("CPU", |q| of(q.usage.cpu, q.quota.cpu)),
    Column::new("MEMORY", |q| of(q.usage.memory, q.quota.memory)),
    Column::new("IN BUCKETS", in_buckets),
    Column::wide("CLUSTERS", |q| of(q.usage.clusters, q.quota.clusters)),
    Column::wide("THEIR MACHINES", |q| of(q.usage.cluster_machines, q.quota.cluster_machines)),
];

/// Bytes in buckets, where the server knows them.
fn in_buckets(report: &QuotaReport) -> String {
    match report.usage.object_bytes {
        Some(used) => of(used, report.quota.object_bytes),
        None => most(report.quota.object_bytes),
    }
}

fn report_of(tenant: Tenant) -> QuotaReport {
    QuotaReport { tenant: tenant.name, quota: tenant.quota, usage: tenant.usage }
}

/// `3 of 10`, or `3, no limit`.
pub fn of<T: std::fmt::Display>(used: T, most: Option<T>) -> String {
    match most {
        Some(most) => format!("{used} of {most}"),
        None => format!("{used}, no limit"),
    }
}

/// `at most 10`, or `no limit`.
fn most<T: std::fmt::Display>(most: Option<T>) -> String {
    most.map_or_else(|| "no limit".to_owned(), |most| format!("at most {most}"))
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    let report = match args.verb {
        Verb::List => {
            let tenants =
                all(ListQuery::new(), None, |query| async move { client.tenant_list(&query).await }).await?;
            let reports: Vec<QuotaReport> = tenants.into_iter().map(report_of).collect();
            return output::list(session.format, &reports, &COLUMNS);
        }
        Verb::Get { name: None } => client.quota().await?,
        Verb::Get { name: Some(name) } => report_of(client.tenant_get(&name).await?),
        Verb::Set { name, quota, replace } => {
            let asked = quota.quota();
            if asked == Quota::default() && !replace {
                return Err(Failure::new("no limit is named")
                    .hint("name one, such as --instances 10, or lift all with --replace"));
            }
            let before = client.tenant_get(&name).await?;
            let kept = if replace { Quota::default() } else { before.quota };
            let quota = Quota {
                instances: asked.instances.or(kept.instances),
                cpu: asked.cpu.or(kept.cpu),
                memory: asked.memory.or(kept.memory),
                object_bytes: asked.object_bytes.or(kept.object_bytes),
                clusters: asked.clusters.or(kept.clusters),
                cluster_machines: asked.cluster_machines.or(kept.cluster_machines),
            };
            // With the version that was read, so that two changes at once do not undo each other.
            let tenant = client.quota_set(&name, &quota, Some(before.version)).await?;
            note(format!("quota of tenant {}: changed", tenant.name));
            report_of(tenant)
        }
    };
    let name = report.tenant.to_string();
    output::item(session.format, &report, &name, |report, _| {
        vec![
            pair("tenant", &report.tenant),
            pair("instances", of(report.usage.instances, report.quota.instances)),
            pair("cpu", of(report.usage.cpu, report.quota.cpu)),
            pair("memory", of(report.usage.memory, report.quota.memory)),
            pair("in buckets", in_buckets(report)),
            pair_some("objects", report.usage.objects),
            pair("clusters", of(report.usage.clusters, report.quota.clusters)),
            pair("machines of clusters", of(report.usage.cluster_machines, report.quota.cluster_machines)),
        ]
    })
}
