//! `banyan template check`

use std::path::PathBuf;

use clap::Args;
use model::Fault;
use serde::Serialize;
use template::check::{Finding, Level, check};

use super::catalogue::{self, Source, Unread};
use crate::failure::{EXIT_FAILED, Result};
use crate::output::table::{grid, terminal_width};
use crate::output::{self, Format, data};

const AFTER_HELP: &str = "\
Examples:
  banyan template check ./catalogue
  banyan template check ./catalogue -o json

The exit code is 1 when there is an error. Warnings alone do not fail.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Folder of the catalogue.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    /// How many definitions were read.
    definitions: usize,
    findings: Vec<Found>,
}

/// A finding, and the file that it is about.
#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    finding: Finding,
    /// Absent where it is about nothing that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip)]
    place: String,
}

pub fn run(format: Format, args: &Arguments) -> Result<u8> {
    let folder = catalogue::read(&args.folder)?;
    let mut findings: Vec<Found> = folder.unread.iter().flat_map(unread).collect();
    findings.extend(check(&folder.catalogue).into_iter().map(|finding| {
        let source = folder.sources.get(&(finding.of, finding.name.clone()));
        found(finding, source)
    }));
    let ok = !findings.iter().any(|found| found.finding.level == Level::Error);
    let report = Report { ok, definitions: folder.catalogue.len(), findings };
    match format {
        Format::Table | Format::Wide => data(&page(&report))?,
        Format::Name => {
            let line = |found: &Found| format!("{} {}\n", found.finding.kind, found.finding.name);
            data(&report.findings.iter().map(line).collect::<String>())?;
        }
        format => output::item(format, &report, "", |_, _| Vec::new())?,
    }
    Ok(if report.ok { 0 } else { EXIT_FAILED })
}

fn found(finding: Finding, source: Option<&Source>) -> Found {
    let place = source.map_or_else(|| finding.path.clone(), |source| source.at(&finding.path));
    Found { file: source.map(|source| source.file.display().to_string()), place, finding }
}

fn unread(unread: &Unread) -> Vec<Found> {
    let one = |fault: &Fault| {
        let finding = Finding {
            level: Level::Error,
            kind: unread.kind.to_string(),
            name: unread.name.clone(),
            of: unread.kind,
            path: fault.field.clone().unwrap_or_default(),
            message: fault.message.clone(),
        };
        found(finding, Some(&unread.source))
    };
    unread.faults.iter().map(one).collect()
}

fn page(report: &Report) -> String {
    let count = |level: Level| report.findings.iter().filter(|found| found.finding.level == level).count();
    let told =
        |count: usize, what: &str| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    let summary = format!(
        "{}, {}, {}\n",
        told(report.definitions, "definition"),
        told(count(Level::Error), "error"),
        told(count(Level::Warning), "warning")
    );
    if report.findings.is_empty() {
        return summary;
    }
    let row = |found: &Found| {
        let finding = &found.finding;
        let level = if finding.level == Level::Error { "error" } else { "warning" };
        let what = format!("{} {}", finding.kind, finding.name);
        vec![level.to_owned(), what, found.place.clone(), finding.message.clone()]
    };
    let header = ["LEVEL", "WHAT", "WHERE", "MESSAGE"].map(str::to_owned).to_vec();
    grid(header, report.findings.iter().map(row), terminal_width()) + "\n" + &summary
}
