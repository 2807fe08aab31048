//! `banyan why instance NAME`: every candidate with the reason it lost. Of a workload see [`super::workload::why`].

use api::InstanceWhy;
use clap::{Args, Subcommand};
use model::{Explanation, Outcome};

use super::instance::find;
use crate::failure::Result;
use crate::output::table::{grid, terminal_width};
use crate::output::{self, Format, data};
use crate::session::Session;
use crate::wait::sentence;

#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Why an instance is where it is, or why it is nowhere.
    Instance {
        /// Name, id, or the beginning of an id.
        instance: String,
    },
    /// Why a workload is as it is.
    Workload {
        /// Name, id, or the beginning of an id.
        workload: String,
    },
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let instance = match args.what {
        What::Instance { instance } => instance,
        What::Workload { workload } => return super::workload::why::run(session, &workload).await,
    };
    let instance = find(session, &instance).await?;
    let why = session.client.instance_why(instance.id.as_str()).await?;
    match session.format {
        Format::Table | Format::Wide => data(&page(&why, terminal_width())),
        format => output::item(format, &why, why.name.as_str(), |_, _| Vec::new()),
    }
}

/// The decisions about one instance, as text.
pub fn page(why: &InstanceWhy, width: Option<u16>) -> String {
    let mut text = sentence("instance", why.name.as_str(), &why.phase.to_string());
    if let Some(message) = &why.message {
        text += &format!(": {message}");
    }
    text += "\n";
    for explanation in [&why.root, &why.zone].into_iter().flatten() {
        text += &level(explanation, width);
    }
    if why.root.is_none() && why.zone.is_none() {
        text += "No decision has been made yet.\n";
    }
    text
}

/// One decision: who took it, and what became of each candidate.
fn level(explanation: &Explanation, width: Option<u16>) -> String {
    let mut text = match &explanation.chosen {
        Some(chosen) => format!("\n{} chose {chosen} at {}\n", explanation.by, explanation.at),
        None => format!("\n{} found no place at {}\n", explanation.by, explanation.at),
    };
    let rows = explanation.verdicts.iter().map(|verdict| {
        let (result, score, reason) = match &verdict.outcome {
            Outcome::Chosen { score } => ("chosen", score.to_string(), "best of those that fit".to_owned()),
            Outcome::Beaten { score, by } => ("beaten", score.to_string(), format!("{by} points behind")),
            Outcome::Rejected { reason } => ("rejected", String::new(), reason.clone()),
        };
        vec![verdict.candidate.clone(), result.to_owned(), score, reason]
    });
    let others = explanation.others.iter().map(|others| {
        vec![format!("{} more", others.count), "rejected".into(), String::new(), others.reason.clone()]
    });
    let rows: Vec<_> = rows.chain(others).collect();
    if rows.is_empty() {
        return text + "  there was no candidate\n";
    }
    let header = ["CANDIDATE", "RESULT", "SCORE", "REASON"].map(str::to_owned).to_vec();
    for line in grid(header, rows.into_iter(), width.map(|width| width - 2)).lines() {
        text += &format!("  {line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_candidate_is_shown_with_its_reason() {
        let why: InstanceWhy = serde_json::from_value(serde_json::json!({
            "name": "web", "phase": "running",
            "root": {"at": "2026-01-01T00:00:00Z", "by": "root", "chosen": "near", "verdicts": [
                {"candidate": "near", "outcome": {"chosen": {"score": 900}}},
                {"candidate": "mid", "outcome": {"beaten": {"score": 700, "by": 200}}},
                {"candidate": "far", "outcome": {"rejected": {"reason": "needs 8 CPU, 4 are free"}}}],
                "others": [{"reason": "cordoned", "count": 7}]}
        }))
        .unwrap();
        let expect = "\
instance web is running

root chose near at 2026-01-01T00:00:00Z
  CANDIDATE  RESULT    SCORE  REASON
  near       chosen    900    best of those that fit
  mid        beaten    700    200 points behind
  far        rejected  -      needs 8 CPU, 4 are free
  7 more     rejected  -      cordoned
";
        assert_eq!(page(&why, None), expect);
    }
}
