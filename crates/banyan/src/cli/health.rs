//! `banyan health`: how the platform itself is, as traffic lights, worst first.

use std::io::IsTerminal;
use std::time::Duration;

use api::PlatformHealth;
use clap::Args;
use model::{Check, Light};

use crate::failure::{EXIT_FAILED, Result, colour_wanted};
use crate::output::table::{self, Column};
use crate::output::text::clock;
use crate::output::{self, Format, data, note};
use crate::session::Session;

const AFTER_HELP: &str = "\
The exit code is 0 while nothing is red and 1 when something is. What each check means and what heals by
itself stands in docs/operations.md.

Examples:
  banyan health
  banyan health --all --watch
  banyan health -o json | jq '.checks[] | select(.light == \"red\")'";

/// Up to so many checks all are shown; of more, the green ones only with --all.
const SHOWN_MAX: usize = 40;
const WATCH_EVERY: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Show every green check, however many there are.
    #[arg(short, long)]
    all: bool,
    /// Look again every five seconds until interrupted.
    #[arg(short, long)]
    watch: bool,
}

const fn word(light: Light) -> &'static str {
    match light {
        Light::Green => "green",
        Light::Yellow => "yellow",
        Light::Red => "red",
    }
}

const COLUMNS: [Column<Check>; 5] = [
    Column::new("LIGHT", |c| word(c.light).to_owned()),
    Column::new("SUBJECT", |c| c.subject.clone()),
    Column::new("CHECK", |c| c.name.clone()),
    Column::new("FOUND", |c| c.message.clone()),
    Column::wide("WHAT TO DO", |c| c.hint.clone().unwrap_or_default()),
];

/// Returns the exit code.
pub async fn run(session: &Session, args: Arguments) -> Result<u8> {
    loop {
        let health = session.client.platform_health().await?;
        show(session.format, &health, &args)?;
        if !args.watch {
            return Ok(verdict(&health));
        }
        tokio::time::sleep(WATCH_EVERY).await;
    }
}

/// Says what the lights come to, and gives the exit code.
fn verdict(health: &PlatformHealth) -> u8 {
    let count = |light| health.checks.iter().filter(|check| check.light == light).count();
    match health.light {
        Light::Green => note(format!("all {} checks are green", health.checks.len())),
        Light::Yellow => note(format!("{} yellow: it works, and somebody should look", count(Light::Yellow))),
        Light::Red => note(format!("{} red, {} yellow", count(Light::Red), count(Light::Yellow))),
    }
    if health.light == Light::Red { EXIT_FAILED } else { 0 }
}

fn show(format: Format, health: &PlatformHealth, args: &Arguments) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    if args.watch && terminal && matches!(format, Format::Table | Format::Wide) {
        data(&format!("\x1b[2J\x1b[H{}\n", clock(health.at)))?;
    }
    match format {
        Format::Table | Format::Wide => {
            data(&text(health, args.all, format == Format::Wide, colour_wanted(terminal)))
        }
        Format::Name => data(&format!("{}\n", word(health.light))),
        format => output::item(format, health, "", |_, _| Vec::new()),
    }
}

fn text(health: &PlatformHealth, all: bool, wide: bool, colour: bool) -> String {
    let every = all || health.checks.len() <= SHOWN_MAX;
    let shown: Vec<Check> =
        health.checks.iter().filter(|check| every || check.light != Light::Green).cloned().collect();
    let mut text = String::new();
    if !shown.is_empty() {
        let plain = table::render(&shown, &COLUMNS, wide, table::terminal_width());
        text = plain.lines().map(|line| coloured(line, colour) + "\n").collect();
    }
    if shown.len() < health.checks.len() {
        text += &format!("and {} green ones; --all shows them\n", health.checks.len() - shown.len());
    }
    // In a wide table the advice has its column.
    let advice = shown.iter().filter(|check| check.light != Light::Green && !wide);
    for (check, hint) in advice.filter_map(|check| Some((check, check.hint.as_ref()?))) {
        text += &format!("  {} {}: {hint}\n", check.subject, check.name);
    }
    text
}

/// The light at the beginning of a line in its colour.
fn coloured(line: &str, colour: bool) -> String {
    let codes = [("red", "1;31"), ("yellow", "33"), ("green", "32")];
    for (word, code) in codes.into_iter().filter(|_| colour) {
        if let Some(rest) = line.strip_prefix(word) {
            return format!("\x1b[{code}m{word}\x1b[0m{rest}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    fn health(green: usize) -> PlatformHealth {
        let check = |light, name: &str| Check::new(name, "root", light, "found", Timestamp(0));
        let mut checks = vec![check(Light::Red, "store").hint("do this"), check(Light::Yellow, "clock")];
        checks.extend((0..green).map(|_| check(Light::Green, "disk")));
        PlatformHealth { light: Light::Red, at: Timestamp(0), checks }
    }

    #[test]
    fn the_worst_is_first_and_says_what_to_do() {
        let text = text(&health(1), false, false, false);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].starts_with("red") && lines[2].starts_with("yellow"), "{text}");
        assert!(lines[3].starts_with("green"), "{text}");
        assert_eq!(lines[4], "  root store: do this");
    }

    #[test]
    fn many_green_ones_are_counted_unless_asked_for() {
        let short = text(&health(500), false, false, false);
        assert!(short.contains("and 500 green ones; --all shows them"), "{short}");
        assert_eq!(text(&health(500), true, false, false).lines().count(), 1 + 502 + 1);
    }

    #[test]
    fn only_lights_are_coloured() {
        assert_eq!(coloured("red   root", true), "\x1b[1;31mred\x1b[0m   root");
        assert_eq!(coloured("red   root", false), "red   root");
        assert_eq!(coloured("LIGHT", true), "LIGHT");
    }
}
