//! `banyan instance get`: the first page to look at, so it also shows the
//! latest events and, when something went wrong, the last lines of output.

use api::{Instance, ListQuery};
use clap::Args;
use model::Phase;

use super::find;
use crate::failure::Result;
use crate::output::text::{age_now, command, labels, pair, pair_some};
use crate::output::{self, Format, data};
use crate::session::Session;
use crate::wait::{event_line, last_output, state};

const EVENTS_SHOWN: usize = 8;

#[derive(Args)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    instance: String,
}

/// The page of an instance, as key and value.
pub fn describe(instance: &Instance, wide: bool) -> Vec<(String, String)> {
    let spec = &instance.spec;
    let mut page = vec![
        pair("name", &instance.name),
        pair("id", &instance.id),
        pair_some("workload", instance.workload.as_ref()),
        pair("phase", state(instance)),
        pair_some("address", instance.address),
        pair_some("zone", instance.zone.as_ref()),
        pair_some("node", instance.node.as_ref()),
        pair("image", &spec.image),
        pair("command", command(&spec.command)),
        pair("resources", format!("{} CPU, {} memory, {} processes", spec.cpu, spec.memory, spec.pids)),
        pair("labels", labels(&spec.labels)),
        pair("restart", format!("{} ({} so far)", policy(instance), instance.restarts)),
        pair("created", format!("{} ago by {}", age_now(instance.created_at), instance.created_by)),
        pair_some("started", instance.started_at.map(|at| format!("{} ago", age_now(at)))),
    ];
    if wide {
        page.push(pair("tenant", &instance.tenant));
        page.push(pair("version", instance.version));
        page.push(pair("generation", instance.generation));
        page.push(pair("spec", output::yaml(spec)));
    }
    page
}

fn policy(instance: &Instance) -> String {
    let value = serde_json::to_value(instance.spec.restart).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let instance = find(session, &args.instance).await?;
    let name = instance.name.to_string();
    output::item(session.format, &instance, &name, describe)?;
    if matches!(session.format, Format::Table | Format::Wide) {
        data(&lately(session, &instance).await)?;
    }
    Ok(())
}

async fn lately(session: &Session, instance: &Instance) -> String {
    let mut text = String::new();
    let query = ListQuery::new().with("instance", &instance.name).limit(EVENTS_SHOWN);
    if let Ok(page) = session.client.event_list(&query).await
        && !page.items.is_empty()
    {
        text += "\nlatest events:\n";
        page.items.iter().rev().for_each(|event| text += &format!("  {}\n", event_line(event)));
    }
    if matches!(instance.phase, Phase::Failed | Phase::Exited) {
        let lines = last_output(&session.client, instance.id.as_str()).await;
        if !lines.is_empty() {
            text += "\nlast output:\n";
            lines.iter().for_each(|line| text += &format!("  {line}\n"));
        }
    }
    text
}
