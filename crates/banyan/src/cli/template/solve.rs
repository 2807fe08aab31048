//! `banyan template solve`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use template::solve::{Solved, solve};
use template::{Answer, Catalogue, Layout, Request, Unsolvable};

use super::catalogue;
use crate::cli::parse;
use crate::failure::{EXIT_FAILED, Failure, Result};
use crate::output::table::{grid, terminal_width};
use crate::output::{self, Format, data};

const AFTER_HELP: &str = "\
Examples:
  banyan template solve --catalogue ./catalogue --template lamp --size 5
  banyan template solve --catalogue ./catalogue --template lamp --size 5 --services base,mysql-server -o json

Where there is no layout the exit code is 1, and with -o json standard output says why:
{\"unsolvable\":{\"reason\":…,\"conflicts\":[…]}}";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(flatten)]
    pub asked: Asked,
}

/// What is asked for.
#[derive(Args)]
pub struct Asked {
    /// Folder of the catalogue.
    #[arg(long, value_name = "DIR")]
    pub catalogue: PathBuf,
    /// Name of the cluster template.
    #[arg(long, value_name = "NAME")]
    template: String,
    /// Number of machines.
    #[arg(long, value_name = "N")]
    size: u32,
    /// Provider of the machines [default: the template's].
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Services, separated by commas [default: the template's].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    services: Vec<String>,
    /// Hardware type of every machine [default: the template's, else any].
    #[arg(long, value_name = "NAME")]
    hardwaretype: Option<String>,
    /// Image type of every machine [default: the template's, else any].
    #[arg(long, value_name = "NAME")]
    imagetype: Option<String>,
    /// Longest to search.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "10s")]
    time_limit: Duration,
}

impl Asked {
    pub fn request(&self) -> Request {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let named = self.services.iter().map(|name| name.trim().to_owned());
        Request {
            template: self.template.clone(),
            size: self.size,
            provider: given(&self.provider),
            services: named.filter(|name| !name.is_empty()).collect(),
            hardwaretype: given(&self.hardwaretype),
            imagetype: given(&self.imagetype),
        }
    }

    /// Says yes until the time is over.
    pub fn clock(&self) -> impl FnMut() -> bool {
        let end = Instant::now() + self.time_limit;
        move || Instant::now() < end
    }
}

pub fn run(format: Format, args: &Arguments) -> Result<u8> {
    let catalogue = catalogue::read_whole(&args.asked.catalogue)?;
    let answer = solve(&catalogue, &args.asked.request(), &mut args.asked.clock())?;
    match answered(format, answer)? {
        Ok(solved) => show(format, &catalogue, &solved).map(|()| 0),
        Err(code) => Ok(code),
    }
}

/// What was solved; else the exit code, when what is wrong has been told.
pub fn answered(format: Format, answer: Answer) -> Result<Result<Solved, u8>> {
    let (reason, told) = match answer {
        Answer::Solved(solved) => return Ok(Ok(solved)),
        Answer::Unsolvable(unsolvable) => (failure(&unsolvable), json!({ "unsolvable": unsolvable })),
        Answer::Undecided(reason) => {
            let failure = Failure::new(reason.clone()).hint("give it more time with --time-limit 5m");
            (failure, json!({ "undecided": { "reason": reason } }))
        }
    };
    match format {
        Format::Json | Format::Yaml => output::item(format, &told, "", |_, _| Vec::new())?,
        Format::Table | Format::Wide | Format::Name => return Err(reason),
    }
    Ok(Err(EXIT_FAILED))
}

fn failure(unsolvable: &Unsolvable) -> Failure {
    let line = |conflict: &template::solve::Conflict| {
        conflict.path.as_ref().map(|path| format!("{path}: {}", conflict.text))
    };
    let failure = Failure::new(unsolvable.reason.clone());
    match unsolvable.conflicts.as_slice() {
        // Its sentence is in the reason already.
        [one] if unsolvable.reason.contains(&one.text) => match &one.path {
            Some(path) => failure.at(path),
            None => failure,
        },
        all => failure.details(all.iter().filter_map(line).collect()),
    }
}

fn show(format: Format, catalogue: &Catalogue, solved: &Solved) -> Result<()> {
    match format {
        Format::Table | Format::Wide => data(&page(catalogue, solved)),
        Format::Name => {
            data(&solved.layout.0.iter().map(|group| group.services.join(",") + "\n").collect::<String>())
        }
        format => output::item(format, solved, "", |_, _| Vec::new()),
    }
}

fn page(catalogue: &Catalogue, solved: &Solved) -> String {
    let mut text = layout(&solved.layout);
    let machines = if solved.size == 1 { "machine" } else { "machines" };
    text += &format!("\n{} {machines} at {}", solved.size, solved.provider);
    if let Some(cost) = solved.layout.cost(catalogue, &solved.provider) {
        text += &format!(", {cost} an hour");
    }
    text + "\n"
}

/// A layout as a table.
pub fn layout(layout: &Layout) -> String {
    let header = ["COUNT", "HARDWARE", "IMAGE", "SERVICES"].map(str::to_owned).to_vec();
    let row = |group: &template::Group| {
        let services = group.services.join(", ");
        vec![group.count.to_string(), group.hardwaretype.clone(), group.imagetype.clone(), services]
    };
    grid(header, layout.0.iter().map(row), terminal_width())
}
