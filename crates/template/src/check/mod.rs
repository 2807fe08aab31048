//! Everything in a catalogue that dangles or contradicts itself, found in one look.

mod machine;
mod service;
mod template;

use serde::Serialize;

use crate::catalogue::{Catalogue, Kind};
use crate::entity::{self, Other, PluginType};
use crate::expand;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It cannot be used as it is.
    Error,
    /// It can be used, but hardly as it was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub kind: String,
    pub name: String,
    /// The folder of its kind.
    #[serde(skip)]
    pub of: Kind,
    /// The field, as a dotted path.
    pub path: String,
    /// A sentence.
    pub message: String,
}

/// Looks at every entity. The worst comes first, then by kind and name.
pub fn check(catalogue: &Catalogue) -> Vec<Finding> {
    check_while(catalogue, &mut || true)
}

/// The same, but templates are laid out on trial only while there is time: `go_on` is asked now and then.
pub fn check_while(catalogue: &Catalogue, go_on: &mut dyn FnMut() -> bool) -> Vec<Finding> {
    let mut report = Report::default();
    for ((kind, name), unknown) in &catalogue.unknown {
        for one in unknown {
            report.warning(At { kind: *kind, name }, one.path.clone(), one.message.clone());
        }
    }
    machine::check(catalogue, &mut report);
    service::check(catalogue, &mut report);
    template::check(catalogue, &mut report, go_on);
    let mut findings = report.findings;
    findings.sort_by(|a, b| (a.level, &a.kind, &a.name).cmp(&(b.level, &b.kind, &b.name)));
    findings.dedup();
    findings
}

/// Macros must be well formed wherever they stand, and should name services that there are.
fn text(catalogue: &Catalogue, report: &mut Report, at: At<'_>, path: &str, text: &str) {
    if let Err(error) = expand::check(text) {
        report.error(at, path, error.message);
    }
    for name in expand::services(text).iter().filter(|name| !catalogue.services.contains_key(*name)) {
        report.warning(
            at,
            path,
            format!("a macro names service '{}', which does not exist", model::shown(name)),
        );
    }
}

/// Fields that a plugin does not describe and that look like one it does. Others may be known to it alone.
fn fields(report: &mut Report, at: At<'_>, path: &str, plugin: &PluginType, given: &Other) {
    let sides = [&plugin.parameters.admin, &plugin.parameters.user];
    let known: Vec<&str> = sides.iter().flat_map(|side| side.fields.keys().map(String::as_str)).collect();
    for name in given.keys() {
        if let Some(message) = entity::misspelt(name, &known) {
            report.warning(at, format!("{path}.{name}"), message);
        }
    }
}

/// The fields of which one set is needed, in words.
fn any_of(sets: &[Vec<&str>]) -> String {
    let words: Vec<String> = sets.iter().map(|set| set.join(" and ")).collect();
    words.join(", or ")
}

#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
}

/// The entity that is looked at.
#[derive(Clone, Copy)]
struct At<'a> {
    kind: Kind,
    name: &'a str,
}

impl Report {
    fn add(&mut self, level: Level, at: At<'_>, path: impl Into<String>, message: impl Into<String>) {
        let (kind, name) = (at.kind.to_string(), at.name.to_owned());
        self.findings.push(Finding {
            level,
            kind,
            name,
            of: at.kind,
            path: path.into(),
            message: message.into(),
        });
    }

    fn error(&mut self, at: At<'_>, path: impl Into<String>, message: impl Into<String>) {
        self.add(Level::Error, at, path, message);
    }

    fn warning(&mut self, at: At<'_>, path: impl Into<String>, message: impl Into<String>) {
        self.add(Level::Warning, at, path, message);
    }
}

#[cfg(test)]
mod tests;
