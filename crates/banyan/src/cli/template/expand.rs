//! `banyan template expand`

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use template::expand::{EXPANDED_MAX, Nodes, Scope, text};

use super::catalogue;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, data};

const AFTER_HELP: &str = "\
Examples:
  banyan template expand --nodes nodes.json --self n1 '%host.self% of %num.service.web%'
  banyan template expand --nodes nodes.json --self n1 \"%join(map(host.service.zookeeper-server,'\\$:2181'),',')%\"

Nodes are records by id, as in a task:
{\"n1\":{\"hostname\":\"web-1000.local\",\"nodenum\":1000,\"services\":[\"web\"],
       \"ipaddresses\":{\"access_v4\":\"1.2.3.4\",\"bind_v4\":\"10.0.0.4\"}}}

Macros: host.self, host.service.S, ip.self, ip.service.S, ip.TYPE.self, ip.TYPE.service.S, num.service.S,
instance.self.service.S, cluster.owner; S[0] is the first of them; join(X,'sep') and map(X,'$:80') shape lists.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// File of the cluster's nodes.
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// Id of the node that the text is for.
    #[arg(long = "self", value_name = "ID")]
    this: String,
    /// Owner of the cluster; without it %cluster.owner% stays as it is.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The text with macros.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
}

pub fn run(format: Format, args: &Arguments) -> Result<()> {
    let place = |failure: Failure| failure.at(args.nodes.display().to_string());
    let nodes = Nodes::read(catalogue::json(&args.nodes)?).map_err(|error| match error.field.clone() {
        Some(field) => Failure::from(error).at(format!("{}: {field}", args.nodes.display())),
        None => place(Failure::from(error)),
    })?;
    let this = nodes.get(&args.this)?;
    let scope = Scope { nodes: &nodes, this, owner: args.owner.as_deref() };
    let expanded = text(&args.text, scope, EXPANDED_MAX)?;
    match format {
        Format::Json | Format::Yaml => {
            output::item(format, &json!({ "text": expanded }), "", |_, _| Vec::new())
        }
        Format::Table | Format::Wide | Format::Name => data(&(expanded + "\n")),
    }
}
