//! `banyan workload why`, also `banyan why workload`: its state, what happened to it, and of each
//! instance that is not well why it is where it is.

use api::{InstanceWhy, Workload};
use model::Phase;
use model::exchange::Health;
use serde::Serialize;

use super::find;
use crate::cli::why::page;
use crate::failure::Result;
use crate::output::table::terminal_width;
use crate::output::text::plural;
use crate::output::{self, Format, data};
use crate::session::Session;
use crate::wait::workload::{instances, state, well};
use crate::wait::{last_events, last_trouble, sentence};

/// Instances that are looked at, and of which decisions are shown.
const LOOKED_AT: usize = 500;
const EXPLAINED_MAX: usize = 3;

#[derive(Serialize)]
struct Why<'a> {
    workload: &'a Workload,
    /// Of instances that are not well.
    instances: Vec<InstanceWhy>,
}

pub async fn run(session: &Session, text: &str) -> Result<()> {
    let workload = find(session, text).await?;
    let (client, name) = (&session.client, workload.name.as_str());
    let found = instances(client, name, LOOKED_AT).await?;
    let ill: Vec<_> = found.iter().filter(|instance| !well(instance)).collect();
    let is_starting =
        |one: &&api::Instance| one.phase == Phase::Running && one.health == Some(Health::Starting);
    let starting = found.iter().filter(is_starting).count();
    let mut why = Why { workload: &workload, instances: Vec::new() };
    for instance in ill.iter().take(EXPLAINED_MAX) {
        why.instances.push(client.instance_why(instance.id.as_str()).await?);
    }
    if !matches!(session.format, Format::Table | Format::Wide) {
        return output::item(session.format, &why, name, |_, _| Vec::new());
    }
    let mut text = sentence("workload", name, &state(&workload)) + "\n";
    if let Ok(revisions) = client.workload_revisions(name).await {
        let failed = revisions.iter().filter_map(|r| Some((r.revision, r.failed.as_ref()?)));
        failed
            .for_each(|(revision, reason)| text += &format!("revision {revision} was given up: {reason}\n"));
    }
    for line in last_events(client, &format!("workload/{name}")).await {
        text += &format!("{line}\n");
    }
    match (found.len(), ill.len()) {
        (0, _) => text += "It has no instances now.\n",
        (all, 0) if starting > 0 => {
            text += &format!(
                "Of its {}, {starting} {} not passed the health check yet; see: banyan workload get {name}\n",
                plural(all as u64, "instance"),
                if starting == 1 { "has" } else { "have" }
            )
        }
        (all, 0) => text += &format!("Nothing is wrong with its {}.\n", plural(all as u64, "instance")),
        (1, _) => text += "Its instance is not well:\n",
        (all, bad) => {
            text += &format!(
                "{bad} of its {all} instances {}:\n",
                if bad == 1 { "is not well" } else { "are not well" }
            )
        }
    }
    for (instance, explained) in ill.iter().zip(&why.instances) {
        text += &format!("\n{}", page(explained, terminal_width()));
        text += &last_trouble(client, instance).await.map(|line| format!("{line}\n")).unwrap_or_default();
    }
    data(&text)
}
