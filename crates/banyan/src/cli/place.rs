//! What nodes and zones have in common on the command line: draining with progress, removing after a
//! question, and the history of what they used.

use std::future::Future;
use std::time::{Duration, Instant};

use api::{Instance, ListQuery};
use clap::Args;
use model::{ErrorKind, Phase, PlaceMode, RestartPolicy, Sample, Timestamp};

use super::parse;
use crate::failure::{Failure, Result};
use crate::output::progress::Progress;
use crate::output::text::{clock, now, plural, size};
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};
use crate::terminal;

/// How often it is asked how far a drain is.
const DRAIN_POLL: Duration = Duration::from_millis(500);
/// With every so many of these it is asked whether only pinned instances are left.
const PINNED_POLLS: u32 = 4;
/// Points of a line of blocks.
const SPARK_WIDTH: usize = 60;
/// Rows of the table of a history; more samples are averaged.
const ROWS_MAX: usize = 20;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[derive(Debug, Args)]
pub struct Draining {
    /// Also move instances whose policy is to wait for their node (--lost wait).
    #[arg(long)]
    pub force: bool,
    /// Return as soon as the order is taken; the drain goes on.
    #[arg(long, help_heading = "Waiting")]
    no_wait: bool,
    /// Longest to wait until it is empty, such as 90s or 1h. The drain goes on after that.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse::duration, help_heading = "Waiting")]
    timeout: Duration,
}

#[derive(Debug, Args)]
pub struct Removing {
    /// Also when it is alive and holds instances; they are started anew elsewhere.
    #[arg(long)]
    pub force: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub struct Past {
    /// How far back, such as 30m or 1d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse::duration)]
    since: Duration,
}

impl Past {
    pub fn since(&self) -> Timestamp {
        now().plus_ms(-(self.since.as_millis() as i64))
    }
}

/// How far a drain is.
pub struct Left {
    /// Those that are to move.
    pub instances: u64,
    /// Stopped and ended ones, which stay with their output.
    pub resting: u64,
    /// Why what is left is still there.
    pub why: Option<String>,
    pub mode: PlaceMode,
}

impl Left {
    fn says(&self) -> String {
        let count = format!("{} left", plural(self.instances, "instance"));
        match &self.why {
            Some(why) if !why.is_empty() => format!("{count}: {why}"),
            _ => count,
        }
    }
}

/// Whether it is stopped, or ended for good.
fn rests(instance: &Instance) -> bool {
    match (instance.phase, instance.spec.restart) {
        (Phase::Stopped, _) | (Phase::Exited, RestartPolicy::Never) => true,
        (Phase::Exited, RestartPolicy::OnFailure) => instance.exit_code == Some(0),
        _ => false,
    }
}

/// How many of the instances that this filter finds are pinned to a node, and never move.
pub async fn pinned(session: &Session, filter: &str, value: &str) -> Result<u64> {
    let client = session.client.with_tenant("*");
    let query = ListQuery::new().with(filter, value);
    let found = all(query, None, |query| {
        let client = client.clone();
        async move { client.instance_list(&query).await }
    })
    .await?;
    let pinned = |instance: &&Instance| instance.spec.constraints.node.is_some() && !rests(instance);
    Ok(found.iter().filter(pinned).count() as u64)
}

/// How many instances there are, and how many of them do not run.
pub fn held(instances: u64, resting: u64) -> String {
    match resting {
        0 => instances.to_string(),
        1 => format!("{instances}, of which 1 is stopped or ended"),
        resting => format!("{instances}, of which {resting} are stopped or ended"),
    }
}

/// Waits until nothing is left but what is `pinned`; `what` is as in `node n1`, `look` asks how far it is.
pub async fn drained<F, P>(
    what: &str,
    args: &Draining,
    look: impl Fn() -> F,
    pinned: impl Fn() -> P,
) -> Result<()>
where
    F: Future<Output = model::Result<Left>>,
    P: Future<Output = Result<u64>>,
{
    if args.no_wait {
        note(format!("{what}: drains; see how far with: banyan {what_get}", what_get = get_words(what)));
        return Ok(());
    }
    let deadline = Instant::now() + args.timeout;
    let mut progress = Progress::new(what);
    let mut polls: u32 = 0;
    loop {
        let left = match look().await {
            Ok(left) => left,
            Err(error) if error.kind == ErrorKind::Unavailable && Instant::now() < deadline => {
                progress.now(&format!("{}; asking again", error.message));
                tokio::time::sleep(DRAIN_POLL).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if left.instances == 0 {
            progress.done(&match left.resting {
                0 => "empty".to_owned(),
                count => {
                    format!("nothing runs there; {count} that ended or are stopped stay with their output")
                }
            });
            return Ok(());
        }
        if !left.mode.empties() {
            progress.clear();
            return Err(Failure::new(format!("{what} was opened again; {}", left.says())));
        }
        polls += 1;
        if polls.is_multiple_of(PINNED_POLLS) && pinned().await? == left.instances {
            progress.done(&format!("empty but for {} pinned to a node there", left.instances));
            return Ok(());
        }
        progress.now(&left.says());
        if Instant::now() >= deadline {
            progress.clear();
            let waited = args.timeout.as_secs();
            return Err(Failure::new(format!("{what} is not empty after {waited}s: {}", left.says())).hint(
                "the drain goes on; --force also moves what would rather wait, and what is pinned there ends when it is removed",
            ));
        }
        tokio::time::sleep(DRAIN_POLL).await;
    }
}

/// `node n1` as the words of the command that shows it.
fn get_words(what: &str) -> String {
    match what.split_once(' ') {
        Some((noun, name)) => format!("{noun} get {name}"),
        None => what.to_owned(),
    }
}

/// Asks before something is removed for good.
pub fn remove_confirmed(what: &str, args: &Removing) -> Result<()> {
    remove_sure(what, args.yes)
}

/// The same, where nothing but `--yes` is to be said.
pub fn remove_sure(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !terminal::interactive() {
        return Err(Failure::new(format!("{what} would be removed for good; nothing was changed"))
            .hint("say that you mean it with --yes"));
    }
    match terminal::confirm(&format!("Remove {what} for good? It can join again only with a new token."))? {
        true => Ok(()),
        false => Err(Failure::new("nothing was changed")),
    }
}

/// Lines of blocks and a table for people; the samples themselves for programs.
pub fn history(session: &Session, what: &str, samples: &[Sample]) -> Result<()> {
    match session.format {
        Format::Table | Format::Wide if samples.is_empty() => {
            note(format!("{what}: nothing is known of that time"));
            Ok(())
        }
        Format::Table | Format::Wide => data(&history_text(samples)),
        Format::Name => Err(Failure::new("a history has no names").hint("use -o table, wide, json or yaml")),
        format => output::list(format, samples, &[]),
    }
}

fn history_text(samples: &[Sample]) -> String {
    let line = |name: &str, read: fn(&Sample) -> u64, show: fn(u64) -> String| {
        let values: Vec<u64> = samples.iter().map(read).collect();
        let (low, high) = (values.iter().min().copied(), values.iter().max().copied());
        let range = format!("{} to {}", show(low.unwrap_or(0)), show(high.unwrap_or(0)));
        format!("{name:<10} {}  {range}\n", spark(&values))
    };
    let mut text = line("cpu", |s| s.usage.cpu_milli, cores);
    text += &line("memory", |s| s.usage.memory_bytes, size);
    text += &line("disk", |s| s.usage.disk_used_bytes, size);
    text += &line("instances", |s| s.usage.instances, |count| count.to_string());
    text.push('\n');
    let header = ["TIME", "CPU", "MEMORY", "DISK", "NET IN/S", "NET OUT/S", "INSTANCES"];
    let header = header.map(str::to_owned).to_vec();
    text + &output::table::grid(header, rows(samples).into_iter(), output::table::terminal_width())
}

fn cores(milli: u64) -> String {
    format!("{}.{:02}", milli / 1_000, milli % 1_000 / 10)
}

fn mean(samples: &[Sample], read: impl Fn(&Sample) -> u64) -> u64 {
    let sum: u128 = samples.iter().map(|sample| u128::from(read(sample))).sum();
    u64::try_from(sum / samples.len().max(1) as u128).unwrap_or(u64::MAX)
}

/// At most [`ROWS_MAX`] rows, each the mean of some samples that follow each other.
fn rows(samples: &[Sample]) -> Vec<Vec<String>> {
    let share = samples.len().div_ceil(ROWS_MAX).max(1);
    let mut before: Option<&Sample> = None;
    let mut rows = Vec::new();
    for part in samples.chunks(share) {
        let Some(last) = part.last() else { continue };
        let rate = |read: fn(&Sample) -> u64| {
            let first = before.unwrap_or(&part[0]);
            let ms = last.at.ms_since(first.at);
            match (ms, read(last).checked_sub(read(first))) {
                // Counters begin anew when a machine starts.
                (1.., Some(bytes)) => size(bytes.saturating_mul(1_000) / ms as u64),
                _ => String::new(),
            }
        };
        rows.push(vec![
            clock(last.at),
            cores(mean(part, |s| s.usage.cpu_milli)),
            size(mean(part, |s| s.usage.memory_bytes)),
            format!("{} of {}", size(last.usage.disk_used_bytes), size(last.usage.disk_total_bytes)),
            rate(|s| s.usage.net_received_bytes),
            rate(|s| s.usage.net_sent_bytes),
            last.usage.instances.to_string(),
        ]);
        before = Some(last);
    }
    rows
}

/// The course of values as blocks between nothing and the largest of them.
fn spark(values: &[u64]) -> String {
    let share = values.len().div_ceil(SPARK_WIDTH).max(1);
    let highest = values.iter().copied().max().unwrap_or(0).max(1);
    let block = |part: &[u64]| {
        let value = part.iter().copied().max().unwrap_or(0);
        let level = u128::from(value) * (SPARKS.len() as u128 - 1) / u128::from(highest);
        SPARKS[level as usize]
    };
    values.chunks(share).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Usage;

    #[test]
    fn blocks_follow_the_values_and_fit() {
        assert_eq!(spark(&[0, 50, 100]), "▁▄█");
        assert_eq!(spark(&[0, 0]), "▁▁");
        assert_eq!(spark(&vec![7; 1_000]).chars().count(), 59);
    }

    #[test]
    fn a_long_history_is_a_short_table_with_rates() {
        let sample = |second: i64| Sample {
            at: Timestamp(second * 1_000_000),
            usage: Usage { cpu_milli: 500, net_received_bytes: second as u64 * 1_024, ..Usage::default() },
        };
        let samples: Vec<Sample> = (0..400).map(sample).collect();
        let rows = rows(&samples);
        assert_eq!(rows.len(), ROWS_MAX);
        assert_eq!((rows[3][1].as_str(), rows[3][4].as_str()), ("0.50", "1.0KiB"));
        // The machine started anew: no rate, rather than a wrong one.
        let again = [sample(100), Sample { at: Timestamp(200_000_000), ..sample(0) }];
        assert_eq!(super::rows(&again)[1][4], "");
    }

    #[test]
    fn the_rest_of_a_drain_says_why() {
        let left = Left {
            instances: 1,
            resting: 0,
            why: Some("web waits for its node".into()),
            mode: PlaceMode::Draining,
        };
        assert_eq!(left.says(), "1 instance left: web waits for its node");
        assert_eq!(get_words("node n1"), "node get n1");
    }
}
