//! `banyan cluster logs`: what was done to machines, and what it printed.

use std::collections::BTreeMap;

use api::{Cluster, ClusterNode, JobTask, NodeAction, TaskStatus};
use clap::Args;

use super::find;
use crate::failure::{Failure, Result};
use crate::output::text::clock;
use crate::output::{self, Format, data};
use crate::session::Session;

const AFTER_HELP: &str = "\
Examples:
  banyan cluster logs shop                 all machines, what failed with its output
  banyan cluster logs shop 1001 --full     one machine, with all that was printed";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Number or host name of a machine [default: all].
    node: Option<String>,
    /// Also what was printed where nothing failed.
    #[arg(long)]
    full: bool,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let cluster = find(session, &args.cluster).await?;
    let name = cluster.name.as_str();
    let mut machines = machines(session, &cluster).await?;
    if let Some(text) = &args.node
        && let Ok(num) = text.parse()
        && machines.contains_key(&num)
    {
        machines.retain(|other, _| *other == num);
    } else if let Some(text) = &args.node {
        let node = pick(session.client.cluster_nodes(name).await?, text)?;
        machines.retain(|other, _| *other == node.num);
    }
    let mut logs = BTreeMap::new();
    for num in machines.keys() {
        logs.insert(*num, session.client.cluster_node_log(name, *num).await?);
    }
    match session.format {
        Format::Table | Format::Wide | Format::Name => {
            for (num, title) in &machines {
                data(&text(&format!("{num} {title}"), &logs[num], args.full))?;
            }
            Ok(())
        }
        format => output::item(format, &logs, name, |_, _| Vec::new()),
    }
}

/// By number: the machines there are, and those of the last job that are gone.
async fn machines(session: &Session, cluster: &Cluster) -> Result<BTreeMap<u32, String>> {
    let name = cluster.name.as_str();
    let mut machines = BTreeMap::new();
    if let Some(job) = &cluster.job {
        let job = session.client.cluster_job(name, &job.id).await?;
        // Of what was never tried nothing is kept.
        let is_kept = |task: &&JobTask| {
            task.failures > 0 || matches!(task.status, TaskStatus::Complete | TaskStatus::Failed)
        };
        let done = job.stages.iter().flatten().filter(is_kept);
        machines.extend(done.map(|task| (task.node, "(gone)".to_owned())));
    }
    let standing = session.client.cluster_nodes(name).await?;
    machines.extend(standing.into_iter().map(|node| (node.num, node.hostname)));
    Ok(machines)
}

/// A machine by its number or host name, or the first with a service of that name.
pub fn pick(nodes: Vec<ClusterNode>, text: &str) -> Result<ClusterNode> {
    let known: Vec<String> = nodes.iter().map(|node| node.num.to_string()).collect();
    let is = |node: &&ClusterNode| {
        let label = node.hostname.split('.').next();
        node.num.to_string() == text || node.hostname == text || label == Some(text)
    };
    let found = nodes
        .iter()
        .find(is)
        .or_else(|| nodes.iter().find(|node| node.services.iter().any(|service| service == text)));
    found.cloned().ok_or_else(|| {
        let failure = Failure::new(format!("there is no machine '{text}'"));
        match known.is_empty() {
            true => failure.hint("the cluster has none"),
            false => failure.hint(format!("its machines are {}; or name a service", known.join(", "))),
        }
    })
}

fn text(title: &str, actions: &[NodeAction], full: bool) -> String {
    let mut text = format!("{title}\n");
    for action in actions {
        let (name, service, status) = (&action.action, &action.service, action.status.as_str());
        let again = match action.failures {
            0 => String::new(),
            1 => ", failed once".to_owned(),
            count => format!(", failed {count} times"),
        };
        let mut line = format!("  {}  {name}", clock(action.changed_at));
        if !service.is_empty() {
            line += &format!(" {service}");
        }
        line += &format!("  {status}{again}");
        if let Some(message) = &action.message {
            line += &format!("  {message}");
        }
        text += &(plain(&line) + "\n");
        if full || action.status == TaskStatus::Failed {
            for (mark, printed) in [("|", &action.stdout), ("!", &action.stderr)] {
                text.extend(printed.lines().map(|line| format!("    {mark} {}\n", plain(line))));
            }
        }
    }
    text
}

/// What a machine printed must not drive the terminal.
fn plain(line: &str) -> String {
    line.replace(|letter: char| letter.is_control() && letter != '\t', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(num: u32, services: &[&str]) -> ClusterNode {
        serde_json::from_value(serde_json::json!({
            "id": format!("n{num}"), "num": num, "hostname": format!("web1-{num}.local"), "services": services,
            "hardwaretype": "small", "imagetype": "debian", "status": "confirmed", "ssh_user": "root", "ssh_port": 22
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_is_found_by_number_name_or_service() {
        let nodes = vec![node(1000, &["web"]), node(1001, &["web", "db"])];
        for (text, num) in
            [("1001", 1001), ("web1-1000", 1000), ("web1-1001.local", 1001), ("db", 1001), ("web", 1000)]
        {
            assert_eq!(pick(nodes.clone(), text).unwrap().num, num, "{text}");
        }
        assert!(pick(nodes, "1002").unwrap_err().hint.unwrap().contains("1000, 1001"));
    }

    #[test]
    fn what_failed_is_shown_with_its_output() {
        let action = |status: &str| -> NodeAction {
            serde_json::from_value(serde_json::json!({
                "id": "t", "action": "INSTALL", "service": "web", "status": status, "failures": 2,
                "changed_at": "2026-01-01T00:00:00Z", "message": "why", "stdout": "out\u{1b}[31m", "stderr": "err"
            }))
            .unwrap()
        };
        let shown = text("1000 web", &[action("failed")], false);
        assert!(shown.contains("INSTALL web  failed, failed 2 times  why"), "{shown}");
        assert!(shown.contains("    | out [31m\n    ! err\n"), "{shown}");
        assert!(!text("1000 web", &[action("complete")], false).contains("err"));
        assert!(text("1000 web", &[action("complete")], true).contains("err"));
    }
}
