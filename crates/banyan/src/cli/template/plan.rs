//! `banyan template plan`

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use template::plan::{self, Cluster, Graph, Order, PlanNode};
use template::solve::{adapt, known, solve};
use template::{Catalogue, Layout};

use super::catalogue;
use super::solve::{Asked, answered};
use crate::failure::{Failure, Result};
use crate::output::table::{grid, terminal_width};
use crate::output::{self, Format, data};

/// Most edges that are written out task by task; larger plans name gates.
const EDGES_SHOWN_MAX: usize = 200_000;
/// Most nodes that a line of the table names.
const NODES_SHOWN_MAX: usize = 8;

const AFTER_HELP: &str = "\
Examples:
  banyan template plan --catalogue ./catalogue --template lamp --size 5
  banyan template plan --catalogue ./catalogue --template lamp --size 7 --from layout.json -o json
  banyan template plan --catalogue ./catalogue --template lamp --size 5 --action restart --on mysql-server

A task may start when all that it needs is done. Stages are a view of the same graph: nothing waits for a stage.";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    #[command(flatten)]
    asked: Asked,
    /// Layout of the cluster that stands, as `solve -o json` prints it; without it the cluster is new.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Plan this for the cluster instead of making or changing it.
    #[arg(long, value_enum, value_name = "ACTION")]
    action: Option<Action>,
    /// Services that the action is for, separated by commas [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "action")]
    on: Vec<String>,
    /// Machines that are upgraded at a time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Delete every machine.
    Delete,
    /// Configure services that run.
    Configure,
    /// Stop, configure and start services.
    Reconfigure,
    /// Start services, and what they need before them.
    Start,
    /// Stop services, and what needs them before them.
    Stop,
    /// Stop and start services and what needs them.
    Restart,
    /// Install services anew, a few machines at a time.
    Upgrade,
}

/// A plan as programs see it.
#[derive(Serialize)]
struct Shown<'a> {
    action: String,
    template: &'a str,
    provider: &'a str,
    size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    /// Whether nothing but a new layout would do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    anew: bool,
    layout: &'a Layout,
    nodes: &'a [PlanNode],
    tasks: Vec<ShownTask<'a>>,
    /// All tasks of a gate must be done for those that wait for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    gates: BTreeMap<String, Vec<&'a str>>,
    /// Tasks by the longest way to them.
    levels: Vec<Vec<&'a str>>,
    /// The levels as Coopr shows them, a node once in each.
    stages: Vec<Vec<StageTask<'a>>>,
}

#[derive(Serialize)]
struct ShownTask<'a> {
    #[serde(flatten)]
    task: StageTask<'a>,
    needs: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gates: Vec<String>,
}

#[derive(Serialize, Clone)]
struct StageTask<'a> {
    id: &'a str,
    #[serde(rename = "taskName")]
    name: String,
    #[serde(rename = "nodeId")]
    node: &'a str,
    service: &'a str,
}

struct Planned {
    action: String,
    nodes: Vec<PlanNode>,
    graph: Graph,
}

pub fn run(format: Format, args: &Arguments) -> Result<u8> {
    let catalogue = catalogue::read_whole(&args.asked.catalogue)?;
    let from = args.from.as_ref().map(|file| {
        let layout = Layout::read(catalogue::json(file)?).map_err(Failure::from);
        let layout =
            layout.and_then(|layout| known(&catalogue, &layout).map(|()| layout).map_err(Failure::from));
        layout.map_err(|failure| failure.at(file.display().to_string()))
    });
    let from = from.transpose()?;
    let request = args.asked.request();
    let mut clock = args.asked.clock();
    let answer = match &from {
        Some(from) => adapt(&catalogue, &request, from, &mut clock)?,
        None => solve(&catalogue, &request, &mut clock)?,
    };
    let mut solved = match answered(format, answer)? {
        Ok(solved) => solved,
        Err(code) => return Ok(code),
    };
    if let (Some(_), Some(from)) = (args.action, &from) {
        solved.layout = from.clone();
    }
    let planned = planned(&catalogue, args, from.as_ref(), &solved.layout)?;
    let stages = planned.graph.stages(&planned.nodes)?;
    match format {
        Format::Table | Format::Wide => {
            data(&(super::solve::layout(&solved.layout) + "\n" + &page(&planned, &stages)))?;
        }
        Format::Name => {
            let lines = stages.iter().flatten().map(|task| told(&planned, *task) + "\n");
            data(&lines.collect::<String>())?;
        }
        format => show(format, &planned, &stages, &solved)?,
    }
    Ok(0)
}

fn planned(catalogue: &Catalogue, args: &Arguments, from: Option<&Layout>, to: &Layout) -> Result<Planned> {
    let Some(action) = args.action else {
        let old = from.map(plan::nodes).unwrap_or_default();
        let assignment = plan::assign(&old, to);
        let (nodes, graph) = plan::change(&catalogue.services, &assignment)?;
        return Ok(Planned { action: assignment.action().to_owned(), nodes, graph });
    };
    let nodes = plan::nodes(to);
    let cluster = Cluster::new(&catalogue.services, &nodes)?;
    let on = (!args.on.is_empty()).then_some(args.on.as_slice());
    let order = match action {
        Action::Delete => Order::ClusterDelete,
        Action::Configure => Order::ClusterConfigure,
        Action::Reconfigure => Order::ClusterConfigureWithRestart,
        Action::Start => Order::StartServices,
        Action::Stop => Order::StopServices,
        Action::Restart => Order::RestartServices,
        Action::Upgrade => {
            let graph = plan::upgrade(&cluster, on, args.batch as usize)?;
            return Ok(Planned { action: "UPGRADE_SERVICES".into(), nodes, graph });
        }
    };
    let graph = plan::order(&cluster, order, on, None)?;
    let name = serde_json::to_value(order).ok().and_then(|name| name.as_str().map(str::to_owned));
    Ok(Planned { action: name.unwrap_or_default(), nodes, graph })
}

/// Writes the plan for programs. Tasks are numbered in the order of the stages.
fn show(
    format: Format,
    planned: &Planned,
    stages: &[Vec<usize>],
    solved: &template::solve::Solved,
) -> Result<()> {
    let graph = &planned.graph;
    let order: Vec<usize> = stages.iter().flatten().copied().collect();
    let mut ids = vec![String::new(); graph.len()];
    for (number, task) in order.iter().enumerate() {
        ids[*task] = format!("{:03}", number + 1);
    }
    let stage_task = |task: &usize| StageTask {
        id: &ids[*task],
        name: graph.task(*task).name.to_string(),
        node: &planned.nodes[graph.task(*task).node].id,
        service: &graph.task(*task).service,
    };
    let named = |tasks: &[usize]| -> Vec<&str> { tasks.iter().map(|task| ids[*task].as_str()).collect() };
    let gated = graph.edge_count() > EDGES_SHOWN_MAX;
    let gate = |gate: &usize| format!("gate{}", gate + 1);
    let shown_task = |task: &usize| {
        let mut needs = if gated { graph.needs(*task).to_vec() } else { graph.all_needs(*task) };
        needs.sort_by_key(|need| &ids[*need]);
        let gates = if gated { graph.waits(*task).iter().map(gate).collect() } else { Vec::new() };
        ShownTask { task: stage_task(task), needs: named(&needs), gates }
    };
    let gates = graph.gates().iter().enumerate().filter(|_| gated);
    let shown = Shown {
        action: planned.action.clone(),
        template: &solved.template,
        provider: &solved.provider,
        size: solved.layout.size(),
        cost: solved.cost,
        anew: solved.anew,
        layout: &solved.layout,
        nodes: &planned.nodes,
        tasks: order.iter().map(shown_task).collect(),
        gates: gates.map(|(at, tasks)| (gate(&at), named(tasks))).collect(),
        levels: graph.sorted_levels(&planned.nodes)?.iter().map(|level| named(level)).collect(),
        stages: stages.iter().map(|stage| stage.iter().map(stage_task).collect()).collect(),
    };
    output::item(format, &shown, "", |_, _| Vec::new())
}

fn told(planned: &Planned, task: usize) -> String {
    let task = planned.graph.task(task);
    let node = &planned.nodes[task.node].id;
    match task.service.as_str() {
        "" => format!("{} {node}", task.name),
        service => format!("{} {service} {node}", task.name),
    }
}

/// The stages as a table: what is done, and on which nodes.
fn page(planned: &Planned, stages: &[Vec<usize>]) -> String {
    let mut rows = Vec::new();
    for (number, stage) in stages.iter().enumerate() {
        let mut like: Vec<(String, &str, Vec<&str>)> = Vec::new();
        for task in stage.iter().map(|task| planned.graph.task(*task)) {
            let node = planned.nodes[task.node].id.as_str();
            let name = task.name.to_string();
            match like.iter_mut().find(|(other, service, _)| *other == name && *service == task.service) {
                Some((_, _, nodes)) => nodes.push(node),
                None => like.push((name, &task.service, vec![node])),
            }
        }
        for (name, service, nodes) in like {
            let mut on = nodes[..nodes.len().min(NODES_SHOWN_MAX)].join(", ");
            if nodes.len() > NODES_SHOWN_MAX {
                on += &format!(" and {} more", nodes.len() - NODES_SHOWN_MAX);
            }
            rows.push(vec![(number + 1).to_string(), name, service.to_owned(), on]);
        }
    }
    let header = ["STAGE", "TASK", "SERVICE", "NODES"].map(str::to_owned).to_vec();
    let count = planned.graph.len();
    let tasks = if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") };
    let table = grid(header, rows.into_iter(), terminal_width());
    format!("{}: {tasks} in {} stages\n\n{table}", planned.action, stages.len())
}
