//! What is said of a command line that cannot be understood.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::failure::{Failure, colour_wanted};
use crate::output::Format;

/// The exit code of a command line that cannot be understood.
const EXIT_USAGE: u8 = 2;

/// What the parser says of numbers, in words for people.
const WORDS: [(&str, &str); 4] = [
    ("invalid digit found in string", "write a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("cannot parse integer from empty string", "write a whole number"),
    ("invalid float literal", "write a number"),
];

/// Shows help where help was asked for, and else what is wrong. Returns the exit code.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = in_words(&error.render().to_string());
    if json_wanted(std::env::args_os().skip(1), std::env::var_os("BANYAN_OUTPUT")) {
        failure(&text).print(Format::Json);
    } else {
        let mut err = std::io::stderr().lock();
        let colour = colour_wanted(err.is_terminal());
        let text = if colour { in_words(&error.render().ansi().to_string()) } else { text };
        let _ = err.write_all(text.as_bytes());
    }
    ExitCode::from(EXIT_USAGE)
}

fn in_words(text: &str) -> String {
    WORDS.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The text of the parser as a failure: its first part is what is wrong, the rest helps.
fn failure(text: &str) -> Failure {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let mut parts = text.split("\n\n").map(|part| {
        part.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let message = parts.next().unwrap_or_default();
    let details = parts.filter(|part| !part.is_empty()).collect();
    Failure { code: EXIT_USAGE, ..Failure::new(message).details(details) }
}

/// Whether errors are for a program, as far as can be seen without understanding the rest.
fn json_wanted(words: impl Iterator<Item = OsString>, variable: Option<OsString>) -> bool {
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let own = words.iter().take_while(|word| *word != "--");
    let mut given = None;
    for (index, word) in own.enumerate() {
        let value = match word.as_str() {
            "-o" | "--output" => words.get(index + 1).cloned(),
            word => word
                .strip_prefix("--output=")
                .or_else(|| word.strip_prefix("-o").filter(|_| !word.starts_with("--")))
                .map(|value| value.trim_start_matches('=').to_owned()),
        };
        given = value.or(given);
    }
    given.map_or_else(|| variable.is_some_and(|value| value == "json"), |value| value == "json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str, variable: Option<&str>) -> bool {
        json_wanted(line.split_whitespace().map(OsString::from), variable.map(OsString::from))
    }

    #[test]
    fn programs_are_told_apart() {
        for line in ["-o json x", "x --output json", "x -ojson", "x --output=json", "-o yaml x -o=json"] {
            assert!(wanted(line, None), "{line}");
        }
        for line in ["x", "-o table x", "exec web -- -o json", "--other json", "-o"] {
            assert!(!wanted(line, None), "{line}");
        }
        assert!(wanted("x", Some("json")) && !wanted("-o table x", Some("json")));
    }

    #[test]
    fn numbers_are_asked_for_in_words() {
        let error = crate::cli::command()
            .try_get_matches_from(["banyan", "workload", "scale", "web", "many"])
            .expect_err("not a number");
        let text = in_words(&error.render().to_string());
        assert!(text.contains("write a whole number"), "{text}");
        let failure = failure(&text);
        assert!(failure.message.starts_with("invalid value 'many'"), "{failure:?}");
        assert_eq!(failure.code, EXIT_USAGE);
    }
}
