//! `banyan cluster rollback`: says first what that does to machines.

use api::{ClusterPreview, ClusterSolve};
use clap::Args;

use super::{change, find};
use crate::cli::Waiting;
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::session::Session;
use crate::terminal;

#[derive(Args)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    waiting: Waiting,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let name = cluster.name.as_str();
    let body = ClusterSolve { cluster: Some(name.to_owned()), rollback: true, ..ClusterSolve::default() };
    let preview = session.client.cluster_solve(&body).await?;
    if let Some(unsolvable) = preview.unsolvable {
        return Err(Failure::new(unsolvable.reason).details(unsolvable.conflicts));
    }
    let told = told(&preview);
    if args.dry_run {
        note(format!("cluster {name}: a rollback {told} (nothing was changed)"));
        return Ok(());
    }
    note(format!("cluster {name}: a rollback {told}"));
    sure(name, &preview, args.yes)?;
    // What was said is true of the cluster as it was seen, and of no other.
    let after = session.client.cluster_order(name, "rollback", &(), Some(cluster.version)).await?;
    change::finish(session, after, &args.waiting).await
}

/// Asks at a terminal. Elsewhere nothing is deleted without `--yes`.
fn sure(name: &str, preview: &ClusterPreview, yes: bool) -> Result<()> {
    if yes || (preview.deleted.is_empty() && !terminal::interactive()) {
        return Ok(());
    }
    if !terminal::interactive() {
        return Err(Failure::new("machines would be deleted with all that is on them; nothing was changed")
            .hint("say that you mean it with --yes"));
    }
    match terminal::confirm(&format!("Roll cluster {name} back?"))? {
        true => Ok(()),
        false => Err(Failure::new("nothing was changed")),
    }
}

fn told(preview: &ClusterPreview) -> String {
    let numbers = |all: &[u32]| all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let machines = |all: &[u32]| match all.len() {
        1 => format!("machine {}", numbers(all)),
        count => format!("{count} machines ({})", numbers(all)),
    };
    let mut parts = Vec::new();
    if !preview.deleted.is_empty() {
        parts.push(format!("deletes {}", machines(&preview.deleted)));
    }
    if !preview.made.is_empty() {
        parts.push(format!("makes {}", machines(&preview.made)));
    }
    if parts.is_empty() {
        parts
            .push("keeps all machines, and installs, configures and starts services as they were".to_owned());
    }
    parts.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_machines_is_said() {
        let of = |made: &[u32], deleted: &[u32]| {
            let (made, deleted) = (made.to_vec(), deleted.to_vec());
            told(&ClusterPreview { made, deleted, ..ClusterPreview::default() })
        };
        assert_eq!(of(&[], &[1001]), "deletes machine 1001");
        assert_eq!(of(&[1004], &[1001, 1002]), "deletes 2 machines (1001, 1002) and makes machine 1004");
        assert!(of(&[], &[]).starts_with("keeps all machines"));
    }
}
