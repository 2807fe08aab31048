//! What may not stand in a text file, and which files must be there.

use crate::Finding;
use crate::files::File;

/// Written in two halves, so that this file does not find itself.
const MARKERS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("dbg", "!"),
    concat!("todo", "!"),
];
const CONFLICTS: [&str; 3] = [concat!("<<<<", "<<<"), concat!(">>>>", ">>>"), concat!("====", "===")];

/// Folders of somebody's machine. The paths are those of a developer, not of a product.
const FOREIGN_PATHS: [&str; 3] = [concat!("/wo", "rk"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

const REQUIRED: [&str; 5] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "CONTRIBUTING.md"];
/// Made by a program or written by others.
const EXEMPT: [&str; 2] = ["Cargo.lock", "LICENSE"];

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = REQUIRED
        .iter()
        .filter(|name| !files.iter().any(|file| file.path == **name))
        .map(|name| format!("{name}: is missing"))
        .collect();
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        findings.extend(check_file(file));
    }
    findings
}

fn check_file(file: &File) -> Vec<Finding> {
    let styled = matches!(file.extension(), "rs" | "md" | "toml");
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut found = |what: String| findings.push(format!("{}:{}: {what}", file.path, index + 1));
        if let Some(marker) = MARKERS.iter().find(|marker| holds_word(line, marker)) {
            found(format!("'{marker}' is a stray marker; do it now or leave it out"));
        }
        if CONFLICTS.iter().any(|mark| line == *mark || line.starts_with(&format!("{mark} "))) {
            found("a conflict marker is left".into());
        }
        if let Some(path) = FOREIGN_PATHS.iter().find(|path| holds_path(line, path)) {
            found(format!("'{path}' is a path outside the repository"));
        }
        if styled && line.contains('\t') {
            found("a tab; indent with spaces".into());
        }
        if styled && line.ends_with([' ', '\t']) {
            found("white space at the end of the line".into());
        }
    }
    if file.path.ends_with("/src/lib.rs") && !file.text.starts_with("//!") {
        findings.push(format!("{}:1: begin with '//!': what the crate owns and who calls it", file.path));
    }
    findings
}

fn holds_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && (word.ends_with('!') || !after.is_some_and(is_word))
    })
}

/// Whether an absolute path begins here: nothing that goes on a longer path or address stands before it.
fn holds_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        let begins = before.is_none_or(|c| c.is_whitespace() || "\"'`(=:<[,".contains(c));
        let whole = path.ends_with('/') || !after.is_some_and(|c| c.is_alphanumeric() || "-_.".contains(c));
        begins && whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Finding> {
        check_file(&File { path: path.into(), text: text.into() })
    }

    #[test]
    fn stray_text_is_found() {
        for marker in MARKERS {
            assert_eq!(found("a.rs", &format!("// {marker} later\n")).len(), 1, "{marker}");
        }
        for conflict in CONFLICTS {
            assert_eq!(found("a.md", &format!("{conflict}\n")).len(), 1, "{conflict}");
        }
        assert_eq!(found("a.md", "x \n")[0], "a.md:1: white space at the end of the line");
        assert_eq!(found("a.rs", "\tx\n").len(), 1);
        for path in FOREIGN_PATHS {
            assert_eq!(found("a.sh", &format!("cd {}/x\n", path.trim_end_matches('/'))).len(), 1, "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_it_is_left_alone() {
        let mktemp = format!("mktemp -d /tmp/a.{}", "X".repeat(6));
        for line in [mktemp.as_str(), "crates/work/src", "/v1/root/x", "hackathon", "/workload", "a == b"] {
            assert!(found("a.rs", line).is_empty(), "{line}");
        }
        assert!(found("Makefile", "\techo x").is_empty());
    }

    #[test]
    fn a_library_says_what_it_owns() {
        assert_eq!(found("crates/a/src/lib.rs", "pub mod x;\n").len(), 1);
        assert!(found("crates/a/src/lib.rs", "//! Owns x.\n").is_empty());
    }
}
