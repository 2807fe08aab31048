//! How data reaches stdout: one of five formats, chosen by `-o`. Everything
//! that is not data goes to stderr, through [`progress`] or [`note`].

pub mod progress;
pub mod table;
pub mod text;
pub mod upload;

use std::io::Write;

use serde::Serialize;

use crate::failure::{Failure, Result};
use table::Column;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns for people, fitted to the terminal.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// JSON, stable for programs.
    Json,
    /// The same as JSON, in YAML.
    Yaml,
    /// Names only, one per line.
    Name,
}

/// Writes data to stdout. A reader that went away, as `head` does, is no error: there is no more to do.
pub fn data(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Says something to the person at stderr.
pub fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

/// A value as YAML. By way of JSON, so that both say the same: YAML alone would tag what is one of several.
pub fn yaml<T: Serialize + ?Sized>(value: &T) -> String {
    let value = serde_json::to_value(value).expect("plain data");
    yaml_serde::to_string(&value).expect("plain data")
}

/// Writes a value as JSON or YAML.
fn structured<T: Serialize + ?Sized>(format: Format, value: &T) -> Result<String> {
    match format {
        Format::Yaml => Ok(yaml(value)),
        _ => serde_json::to_string_pretty(value)
            .map(|text| text + "\n")
            .map_err(|e| Failure::new(e.to_string())),
    }
}

/// The text of a list in any format. The first column is the name.
pub fn list_text<T: Serialize>(format: Format, items: &[T], columns: &[Column<T>]) -> Result<String> {
    match format {
        Format::Table | Format::Wide => {
            Ok(table::render(items, columns, format == Format::Wide, table::terminal_width()))
        }
        Format::Json | Format::Yaml => structured(format, items),
        Format::Name => Ok(items.iter().map(|item| (columns[0].value)(item) + "\n").collect()),
    }
}

pub fn list<T: Serialize>(format: Format, items: &[T], columns: &[Column<T>]) -> Result<()> {
    data(&list_text(format, items, columns)?)
}

/// One thing: as a table it is shown as `key: value` lines made by `describe`.
pub fn item<T: Serialize>(
    format: Format,
    item: &T,
    name: &str,
    describe: impl FnOnce(&T, bool) -> Vec<(String, String)>,
) -> Result<()> {
    match format {
        Format::Table | Format::Wide => data(&text::pairs(&describe(item, format == Format::Wide))),
        Format::Json | Format::Yaml => data(&structured(format, item)?),
        Format::Name => data(&format!("{name}\n")),
    }
}

/// What a small change came to: one line for people, the whole thing for programs.
pub fn changed<T: Serialize>(format: Format, item: &T, name: &str, line: &str) -> Result<()> {
    match format {
        Format::Table | Format::Wide => data(&format!("{line}\n")),
        Format::Json | Format::Yaml => data(&structured(format, item)?),
        Format::Name => data(&format!("{name}\n")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Serialize)]
    struct Thing {
        name: String,
        size: u64,
    }

    fn check(format: Format, expect: &str) {
        let things = [Thing { name: "a".into(), size: 1 }, Thing { name: "b".into(), size: 20 }];
        let columns: [Column<Thing>; 2] = [
            Column::new("NAME", |t: &Thing| t.name.clone()),
            Column::wide("SIZE", |t: &Thing| t.size.to_string()),
        ];
        assert_eq!(list_text(format, &things, &columns).unwrap(), expect);
    }

    #[test]
    fn a_list_in_every_format() {
        check(Format::Table, "NAME\na\nb\n");
        check(Format::Wide, "NAME  SIZE\na     1\nb     20\n");
        check(Format::Name, "a\nb\n");
        check(Format::Yaml, "- name: a\n  size: 1\n- name: b\n  size: 20\n");
        check(
            Format::Json,
            "[\n  {\n    \"name\": \"a\",\n    \"size\": 1\n  },\n  {\n    \"name\": \"b\",\n    \"size\": 20\n  }\n]\n",
        );
    }
}
