//! `banyan template check`

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use template::check::{Finding, Level, check};

use super::catalogue::{self, Unread};
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
    findings: Vec<Finding>,
}

pub fn run(format: Format, args: &Arguments) -> Result<u8> {
    let (catalogue, unread) = catalogue::read(&args.folder)?;
    let mut findings: Vec<Finding> = unread.iter().map(finding).collect();
    findings.extend(check(&catalogue));
    let ok = !findings.iter().any(|finding| finding.level == Level::Error);
    let report = Report { ok, definitions: catalogue.len(), findings };
    match format {
        Format::Table | Format::Wide => data(&page(&report))?,
        Format::Name => {
            let line = |finding: &Finding| format!("{} {}\n", finding.kind, finding.name);
            data(&report.findings.iter().map(line).collect::<String>())?;
        }
        format => output::item(format, &report, "", |_, _| Vec::new())?,
    }
    Ok(if report.ok { 0 } else { EXIT_FAILED })
}

fn finding(unread: &Unread) -> Finding {
    let name = unread.file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Finding {
        level: Level::Error,
        kind: unread.kind.to_string(),
        name,
        path: unread.file.display().to_string(),
        message: unread.failure.message.clone(),
    }
}

fn page(report: &Report) -> String {
    let count = |level: Level| report.findings.iter().filter(|finding| finding.level == level).count();
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
    let row = |finding: &Finding| {
        let level = if finding.level == Level::Error { "error" } else { "warning" };
        let what = format!("{} {}", finding.kind, finding.name);
        vec![level.to_owned(), what, finding.path.clone(), finding.message.clone()]
    };
    let header = ["LEVEL", "WHAT", "WHERE", "MESSAGE"].map(str::to_owned).to_vec();
    grid(header, report.findings.iter().map(row), terminal_width()) + "\n" + &summary
}
