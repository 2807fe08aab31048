//! What the command line says when something did not happen: what, where, and
//! what to do next. Everything a command can fail with becomes a [`Failure`].

use std::fmt;
use std::io::{IsTerminal, Write};

use crate::output::Format;

/// The exit code when nothing more fitting is known.
pub const EXIT_FAILED: u8 = 1;
/// Changes are planned (`apply --dry-run --detailed-exitcode`).
pub const EXIT_CHANGES: u8 = 2;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A sentence: what was wrong.
    pub message: String,
    /// The field of the request or the place in a file.
    pub place: Option<String>,
    /// The next thing to do, best as a command.
    pub hint: Option<String>,
    /// Lines that help to see why: the last events, the last lines of output.
    pub details: Vec<String>,
    pub code: u8,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, hint: None, details: Vec::new(), code: EXIT_FAILED }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A hint for when the failure brought none of its own.
    #[must_use]
    pub fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    #[must_use]
    pub fn details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    /// That nothing was done to the others of `count` things, because one of them cannot be found.
    #[must_use]
    pub fn all_or_none(mut self, count: usize, done: &str) -> Self {
        if count > 1 {
            self.details.insert(0, format!("nothing was {done}"));
        }
        self
    }

    /// One failure is returned as it is; several become one, and `what` says what they have in common.
    pub fn of_many(mut failures: Vec<Self>, what: &str) -> Result<()> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            count => {
                let details = failures.iter().flat_map(Self::lines).collect();
                Err(Self::new(format!("{count} {what}")).details(details))
            }
        }
    }

    /// The lines for a terminal, without colour.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("error: {}", self.message)];
        lines.extend(self.place.iter().map(|place| format!("  where: {place}")));
        lines.extend(self.details.iter().map(|line| format!("  {line}")));
        lines.extend(self.hint.iter().map(|hint| format!("  hint: {hint}")));
        lines
    }

    /// The same for programs.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": {
            "message": self.message, "where": self.place, "hint": self.hint, "details": self.details, "code": self.code,
        }})
    }

    /// Writes it to stderr, for programs as one line of JSON. An error while saying so has nowhere to go.
    pub fn print(&self, format: Format) {
        let mut err = std::io::stderr().lock();
        if format == Format::Json {
            let _ = writeln!(err, "{}", self.json());
            return;
        }
        let colour = colour_wanted(err.is_terminal());
        for (index, line) in self.lines().into_iter().enumerate() {
            let line = match line.strip_prefix("error:") {
                Some(rest) if index == 0 && colour => format!("\x1b[1;31merror:\x1b[0m{rest}"),
                _ => line,
            };
            let _ = writeln!(err, "{line}");
        }
    }
}

/// Colour is for terminals, and only while NO_COLOR is empty or unset.
pub fn colour_wanted(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<model::Error> for Failure {
    fn from(mut error: model::Error) -> Self {
        let mut failure = Self::new(std::mem::take(&mut error.message));
        failure.place = error.field;
        failure.hint = error.hint;
        // What clashes may be in the reason already.
        let said = |fault: &model::Fault| fault.field.is_none() && failure.message.contains(&fault.message);
        error.more.retain(|fault| !said(fault));
        if !error.more.is_empty() {
            let count = error.more.len();
            let what = if count == 1 { "another thing is wrong:" } else { "other things are wrong:" };
            failure.details.push(what.to_owned());
            failure.details.extend(error.more.iter().map(|fault| format!("  {}", api::read::line(fault))));
        }
        if failure.hint.is_none() && error.kind == model::ErrorKind::Unauthenticated {
            failure.hint = Some("log in with: banyan login".into());
        }
        failure
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// What went wrong and why, from the outside in. A cause that repeats what was said already is left out.
fn sentence(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        match said.as_str() {
            "" => said = cause,
            already if already.contains(&cause) => {}
            _ => said += &format!(": {cause}"),
        }
    }
    said
}

impl From<anyhow::Error> for Failure {
    /// Keeps the place and the hint of a failure or model error inside.
    fn from(error: anyhow::Error) -> Self {
        let message = sentence(&error);
        match error.downcast::<Self>() {
            Ok(failure) => failure,
            Err(error) => match error.downcast::<model::Error>() {
                Ok(inner) => Self { message, ..Self::from(inner) },
                Err(_) => Self::new(message),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_where_and_what_next() {
        let error =
            model::Error::invalid("memory must be 6MiB or more").at("memory").at("spec").hint("write 6MiB");
        let failure = Failure::from(error).details(vec!["last line".into()]);
        assert_eq!(
            failure.lines(),
            [
                "error: memory must be 6MiB or more",
                "  where: spec.memory",
                "  last line",
                "  hint: write 6MiB"
            ]
        );
    }

    #[test]
    fn several_failures_become_one() {
        assert_eq!(Failure::of_many(Vec::new(), "things failed"), Ok(()));
        let one = || Failure::new("no").hint("do this");
        assert_eq!(Failure::of_many(vec![one()], "things failed"), Err(one()));
        let two = Failure::of_many(vec![one(), one()], "things failed").expect_err("two failed");
        assert_eq!(two.lines()[..3], ["error: 2 things failed", "  error: no", "    hint: do this"]);
        assert_eq!(one().json()["error"]["hint"], "do this");
    }

    #[test]
    fn an_inner_hint_survives_the_way_up() {
        let error = anyhow::Error::new(Failure::new("no").hint("do this")).context("while trying");
        assert_eq!(Failure::from(error).hint.as_deref(), Some("do this"));
        let error = anyhow::Error::new(model::Error::invalid("bad").hint("that")).context("while starting");
        let failure = Failure::from(error);
        assert_eq!(
            (failure.message.as_str(), failure.hint.as_deref()),
            ("while starting: bad", Some("that"))
        );
    }
}
