//! `banyan tenant create|list|get|delete`, for operators.

use api::{ListQuery, Tenant, TenantCreate};
use clap::{Args, Subcommand};
use model::Name;

use super::quota::{QuotaOptions, of};
use crate::failure::Result;
use crate::output::table::Column;
use crate::output::text::{age_now, pair};
use crate::output::{self, note};
use crate::session::{Session, all};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan tenant create team-a --instances 10 --cpu 4 --memory 8GiB\n  banyan --tenant team-a user create ann --role admin"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a tenant.
    Create {
        /// Name of the tenant.
        name: Name,
        #[command(flatten)]
        quota: QuotaOptions,
    },
    /// All tenants.
    #[command(visible_alias = "ls")]
    List,
    /// One tenant.
    #[command(visible_alias = "show")]
    Get {
        /// Name or id.
        tenant: String,
    },
    /// Remove a tenant that has nothing left.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name or id.
        tenant: String,
    },
}

const COLUMNS: [Column<Tenant>; 6] = [
    Column::new("NAME", |t| t.name.to_string()),
    Column::new("INSTANCES", |t| of(t.usage.instances, t.quota.instances)),
    Column::new("CPU", |t| of(t.usage.cpu, t.quota.cpu)),
    Column::new("MEMORY", |t| of(t.usage.memory, t.quota.memory)),
    Column::new("AGE", |t| age_now(t.created_at)),
    Column::wide("ID", |t| t.id.to_string()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let client = &session.client;
    match args.verb {
        Verb::Create { name, quota } => {
            let tenant = client.tenant_create(&TenantCreate { name, quota: quota.quota() }).await?;
            note(format!(
                "tenant {0}: created; add its first user with: banyan --tenant {0} user create NAME --role admin",
                tenant.name
            ));
            show(session, &tenant)
        }
        Verb::List => {
            let tenants =
                all(ListQuery::new(), None, |query| async move { client.tenant_list(&query).await }).await?;
            output::list(session.format, &tenants, &COLUMNS)
        }
        Verb::Get { tenant } => show(session, &client.tenant_get(&tenant).await?),
        Verb::Delete { tenant } => {
            client.tenant_delete(&tenant, None).await?;
            note(format!("tenant {tenant}: deleted"));
            Ok(())
        }
    }
}

fn show(session: &Session, tenant: &Tenant) -> Result<()> {
    let name = tenant.name.to_string();
    output::item(session.format, tenant, &name, |tenant, _| {
        vec![
            pair("name", &tenant.name),
            pair("id", &tenant.id),
            pair("instances", of(tenant.usage.instances, tenant.quota.instances)),
            pair("cpu", of(tenant.usage.cpu, tenant.quota.cpu)),
            pair("memory", of(tenant.usage.memory, tenant.quota.memory)),
            pair("created", format!("{} ago", age_now(tenant.created_at))),
        ]
    })
}
