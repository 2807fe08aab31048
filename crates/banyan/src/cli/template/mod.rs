//! `banyan template solve|plan|check|expand`: clusters from templates without a server, for authors and their CI.

pub mod catalogue;
mod check;
mod expand;
mod plan;
mod solve;

use clap::{Args, Subcommand};

use crate::failure::Result;
use crate::output::Format;

const AFTER_HELP: &str = "\
Examples:
  banyan template check ./catalogue                every dangling reference and contradiction
  banyan template solve --catalogue ./catalogue --template lamp --size 5 -o json > layout.json
  banyan template plan --catalogue ./catalogue --template lamp --size 7 --from layout.json
  banyan template expand --nodes nodes.json --self web-1 'http://%ip.access_v4.service.web%:80'

A catalogue is a folder with clustertemplates/, partialtemplates/, services/, hardwaretypes/, imagetypes/,
providers/, providertypes/ and automatortypes/, each with one JSON file per definition.

How many machines carry a service is said in constraints.services.NAME.quantities, all of it optional:
  min, max      from 0, without a limit
  stepSize      min, min + stepSize, min + 2 stepSize ...; 1 or more
  ratio         \"1:10\" of all machines, or {\"web\": \"1:10\"} of those with web; whole numbers of 1 or more";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The layout of a cluster: how many machines of which kind, with which services.
    Solve(solve::Arguments),
    /// The tasks that make a cluster, or change one into another, and what each waits for.
    Plan(plan::Arguments),
    /// Everything in a catalogue that dangles or contradicts itself.
    Check(check::Arguments),
    /// A text with its macros expanded.
    Expand(expand::Arguments),
}

pub fn run(format: Format, args: Arguments) -> Result<u8> {
    match args.verb {
        Verb::Solve(args) => solve::run(format, &args),
        Verb::Plan(args) => plan::run(format, &args),
        Verb::Check(args) => check::run(format, &args),
        Verb::Expand(args) => expand::run(format, &args).map(|()| 0),
    }
}
