//! The repository's own chores, run as `cargo xtask <chore>`.
//!
//! `tidy` keeps the house in the order that ARCHITECTURE.md describes: layers
//! ([`layer`]), sizes ([`size`], [`scan`], [`ratchet`]) and plain text ([`text`]).

mod files;
mod layer;
mod ratchet;
mod scan;
mod size;
mod text;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// One thing that is not in order: where, and what to do.
type Finding = String;

const USAGE: &str = "usage: cargo xtask tidy [--shrink]\n\
    \n\
    tidy            check layers, sizes and text; exit 1 with one line per finding\n\
    tidy --shrink   also lower crates/xtask/ratchet.json to what is left of the offenders";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["tidy"] => tidy(false),
        ["tidy", "--shrink"] => tidy(true),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(shrink: bool) -> Result<()> {
    let root = files::repository()?;
    let files = files::load(&root)?;
    let mut findings = layer::check(&root)?;
    findings.extend(text::check(&files));
    findings.extend(size::check(&root, &files, shrink)?);
    if findings.is_empty() {
        eprintln!("tidy: {} files in order", files.len());
        return Ok(());
    }
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    bail!("tidy: {} findings", findings.len())
}
