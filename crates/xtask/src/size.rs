//! How large a file and a function may be.

use std::path::Path;

use anyhow::Result;

use crate::Finding;
use crate::files::File;
use crate::ratchet::{Ratchet, Sizes, compare, shrink};
use crate::scan::functions;

const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 80;
const ARCHITECTURE_LINES_MAX: usize = 299;
const CHECKLIST_LINES_MAX: usize = 59;

pub fn check(root: &Path, files: &[File], lower: bool) -> Result<Vec<Finding>> {
    let (large_files, large_functions) = measure(files);
    let mut ratchet = Ratchet::load(root)?;
    if lower {
        shrink(&mut ratchet.files, &large_files);
        shrink(&mut ratchet.functions, &large_functions);
        ratchet.save(root)?;
    }
    let mut findings = compare("the file", FILE_LINES_MAX, &ratchet.files, &large_files);
    findings.extend(compare("the function", FUNCTION_LINES_MAX, &ratchet.functions, &large_functions));
    findings.extend(pages(files));
    Ok(findings)
}

fn measure(files: &[File]) -> (Sizes, Sizes) {
    let (mut large_files, mut large_functions) = (Sizes::new(), Sizes::new());
    for file in files.iter().filter(|f| f.extension() == "rs") {
        if file.lines() > FILE_LINES_MAX {
            large_files.insert(file.path.clone(), file.lines());
        }
        for function in functions(&file.text).into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX) {
            let size = large_functions.entry(format!("{}::{}", file.path, function.name)).or_default();
            *size = function.lines.max(*size);
        }
    }
    (large_files, large_functions)
}

/// Pages that are only read when they are short.
fn pages(files: &[File]) -> Vec<Finding> {
    let limit = |path: &str| match path {
        "ARCHITECTURE.md" => Some(ARCHITECTURE_LINES_MAX),
        _ if path.starts_with("docs/checklists/") => Some(CHECKLIST_LINES_MAX),
        _ => None,
    };
    files
        .iter()
        .filter_map(|file| {
            let most = limit(&file.path).filter(|most| file.lines() > *most)?;
            Some(format!("{}: {} lines, at most {most} are read; shorten it", file.path, file.lines()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_found_with_its_name() {
        let body = "  x();\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("fn long() {{\n{body}}}\nfn short() {{}}\n");
        let files =
            [File { path: "a.rs".into(), text }, File { path: "b.rs".into(), text: "\n".repeat(701) }];
        let (large_files, large_functions) = measure(&files);
        assert_eq!(large_files.into_iter().collect::<Vec<_>>(), [("b.rs".to_owned(), 701)]);
        assert_eq!(large_functions.into_iter().collect::<Vec<_>>(), [("a.rs::long".to_owned(), 82)]);
    }
}
