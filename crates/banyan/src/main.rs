//! `banyan`: every role and the command line in one binary.
//!
//! ```text
//!  main ─▶ __shim        one small process per container, before anything else starts
//!       ─▶ up            a whole cloud on this machine          (up.rs, role/)
//!       ─▶ cli/<noun>    a person's command, over api::Client   (session.rs, wait.rs)
//!                        ├─ context.rs    which cloud, as whom
//!                        ├─ manifest/     files for apply
//!                        └─ output/       data to stdout, the rest to stderr
//! ```

mod cli;
mod context;
mod doors;
mod down;
mod failure;
mod manifest;
mod output;
mod role;
mod session;
mod stop;
mod terminal;
mod up;
mod wait;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::FromArgMatches;
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use failure::{Failure, colour_wanted};

/// The first argument with which the binary becomes the keeper of one container.
const SHIM: &str = "__shim";
/// When a role has started, and how often it looks again.
const SETTLE_FIRST: Duration = Duration::from_secs(15);
const SETTLE_EVERY: Duration = Duration::from_secs(600);
/// Of the warnings of the broker one is told in this time. Several questions so close together are about the same line.
const SPARING_EVERY: Duration = Duration::from_secs(60);
const SAME_LINE: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == SHIM) {
        return ExitCode::from(u8::try_from(node::shim_main(words)).unwrap_or(u8::MAX));
    }
    // Other libraries may have chosen already; then theirs is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let matches = cli::command().try_get_matches();
    let cli = match matches.and_then(|matches| cli::Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return cli::usage::refuse(&error),
    };
    let is_role = cli.command.is_role();
    log_start(is_role);
    let format = cli.globals.output;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            Failure::new(format!("cannot start: {error}")).print(format);
            return ExitCode::FAILURE;
        }
    };
    if is_role {
        sal::files_raise();
        runtime.spawn(settle());
    }
    let outcome = runtime.block_on(cli::run(cli));
    // A read of standard input cannot be called back and must not hold up the exit.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print(format);
            ExitCode::from(failure.code)
        }
    }
}

/// Whoever runs for long keeps only those pages of the binary in its memory that it goes on using.
async fn settle() {
    tokio::time::sleep(SETTLE_FIRST).await;
    loop {
        sal::program_release();
        tokio::time::sleep(SETTLE_EVERY).await;
    }
}

/// The broker that is built in tells every connection as news; of its warnings see [`Sparing`]. The library of S3 tells
/// the mistakes of clients as errors; what the store itself fails at is told by the store. Only whoever looks for details
/// wants all that.
fn quiet(filter: &str) -> String {
    let details = ["debug", "trace"].iter().any(|word| filter.contains(word));
    let mut quiet = filter.to_owned();
    for (name, level) in [("rmqtt", "warn"), ("s3s", "off")] {
        if !details && !filter.contains(name) {
            quiet.push_str(&format!(",{name}={level}"));
        }
    }
    quiet
}

/// Logs go to stderr, filtered by BANYAN_LOG: for a role in its own process what happens, else only what went wrong.
fn log_start(role: bool) {
    let default = if role { "info" } else { "warn" };
    let filter = std::env::var("BANYAN_LOG").ok().filter(|text| !text.is_empty());
    let filter = EnvFilter::try_new(quiet(filter.as_deref().unwrap_or(default))).unwrap_or_else(|error| {
        output::note(format!("BANYAN_LOG is not a filter ({error}); using '{default}'"));
        EnvFilter::new(quiet(default))
    });
    let colour = colour_wanted(std::io::stderr().is_terminal());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .finish();
    // Where the broker is taken down on purpose, nobody need hear from those who miss it.
    let sparing = Sparing::default();
    let wanted = dynamic_filter_fn(move |line, _| {
        let said = *line.level() == Level::WARN && line.target().starts_with("rmqtt");
        !(stop::ending() && of_broker(line.target())) && (!said || sparing.lets_through())
    });
    lines.with(wanted).init();
}

/// The broker warns of every stranger that does not get in, and whoever reaches its port could fill the disk with that:
/// one line a minute is let through.
#[derive(Default)]
struct Sparing(Mutex<Option<Instant>>);

impl Sparing {
    /// Asked more than once about the same line.
    fn lets_through(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last.map(|last| last.elapsed()) {
            Some(since) if since < SAME_LINE => true,
            Some(since) if since < SPARING_EVERY => false,
            _ => {
                *last = Some(Instant::now());
                true
            }
        }
    }
}

/// Whether a line comes from the broker or from those who talk to it.
fn of_broker(target: &str) -> bool {
    ["link::mqtt", "rmqtt", "rumqtt"].iter().any(|own| target.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_warnings_at_once_one_is_told() {
        let sparing = Sparing::default();
        assert!(sparing.lets_through() && sparing.lets_through(), "twice about one line");
        std::thread::sleep(2 * SAME_LINE);
        assert!(!sparing.lets_through());
    }

    #[test]
    fn what_strangers_can_fill_the_log_with_is_left_out() {
        assert_eq!(quiet("info"), "info,rmqtt=warn,s3s=off");
        assert_eq!(quiet("info,s3s=warn"), "info,s3s=warn,rmqtt=warn");
        assert_eq!(quiet("debug"), "debug");
    }
}
