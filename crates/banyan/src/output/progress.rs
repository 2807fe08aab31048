//! What a person sees while a command waits: a spinner or a bar on a terminal, one line
//! per change elsewhere. Always on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::note;
use super::text::size;
use crate::failure::colour_wanted;

const SPIN_EVERY: Duration = Duration::from_millis(100);
/// How a transfer is shown whose length is known.
const BAR: &str = "{spinner} [{bar:24}] {percent:>3}% {msg}";
const BAR_COLOURED: &str = "{spinner:.cyan} [{bar:24.cyan}] {percent:>3}% {msg}";

pub struct Progress {
    what: String,
    since: Instant,
    spinner: Option<ProgressBar>,
    /// Whether the spinner has become a bar.
    measured: bool,
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
        Self { what: what.into(), since: Instant::now(), spinner, measured: false, last: String::new() }
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
        let seconds = self.since.elapsed().as_secs_f64();
        let rate = if seconds > 0.0 { (done as f64 / seconds) as u64 } else { 0 };
        let of = total.map(|total| format!(" of {}", size(total))).unwrap_or_default();
        bar.set_message(format!("{}: {}{of}, {}/s", self.what, size(done), size(rate)));
        let Some(total) = total.filter(|total| *total > 0) else { return };
        if !self.measured {
            let style = if colour_wanted(true) { BAR_COLOURED } else { BAR };
            let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            self.measured = true;
        }
        bar.set_length(total);
        bar.set_position(done.min(total));
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
