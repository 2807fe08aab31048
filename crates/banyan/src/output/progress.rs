//! What a person sees while a command waits: a spinner on a terminal, one line
//! per change elsewhere. Always on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::note;
use crate::failure::colour_wanted;

const SPIN_EVERY: Duration = Duration::from_millis(100);

pub struct Progress {
    what: String,
    since: Instant,
    spinner: Option<ProgressBar>,
    last: String,
}

impl Progress {
    /// `what` is the thing waited for, as in `instance web`.
    pub fn new(what: impl Into<String>) -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_draw_target(ProgressDrawTarget::stderr());
            let plain = "{spinner} {msg}";
            let style = if colour_wanted(true) { "{spinner:.cyan} {msg}" } else { plain };
            bar.set_style(
                ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(SPIN_EVERY);
            bar
        });
        Self { what: what.into(), since: Instant::now(), spinner, last: String::new() }
    }

    /// Shows where it is now; repeating the same is silent.
    pub fn now(&mut self, state: &str) {
        if state == self.last {
            return;
        }
        self.last = state.to_owned();
        let line = format!("{}: {state}", self.what);
        match &self.spinner {
            Some(bar) => bar.set_message(line),
            None => note(line),
        }
    }

    /// How far a transfer is.
    pub fn bytes(&mut self, done: u64, total: Option<u64>) {
        let Some(bar) = &self.spinner else { return };
        let total = total.map(|t| format!(" of {}", super::text::size(t))).unwrap_or_default();
        bar.set_message(format!("{}: {}{total}", self.what, super::text::size(done)));
    }

    /// Ends it with a line that stays.
    pub fn done(self, state: &str) {
        if let Some(bar) = &self.spinner {
            bar.finish_and_clear();
        }
        note(format!("{}: {state} ({:.1}s)", self.what, self.since.elapsed().as_secs_f64()));
    }

    /// Ends it without a word; what follows says it.
    pub fn clear(self) {
        if let Some(bar) = &self.spinner {
            bar.finish_and_clear();
        }
    }
}
