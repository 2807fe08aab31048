//! The text files of the repository, read once for all checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What is built or made by running, at the top of the repository.
const SKIPPED_TOP: [&str; 4] = [".git", "target", "data", ".mirror"];

pub struct File {
    /// Relative to the repository, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|e| e.to_str()).unwrap_or("")
    }

    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

/// The root of the repository, from where this crate was built.
pub fn repository() -> Result<PathBuf> {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let root = Path::new(&here).join("../..");
    root.canonicalize().with_context(|| format!("{} is not there", root.display()))
}

/// Every file that is text. What is not UTF-8 is a fixture and has no style.
pub fn load(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let top = folder == root;
        if top && SKIPPED_TOP.iter().any(|skipped| name == *skipped) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &path, files)?;
        } else if kind.is_file()
            && path.extension().is_none_or(|e| e != "log")
            && let Ok(text) = String::from_utf8(fs::read(&path)?)
        {
            let path = path.strip_prefix(root).expect("walked from the root").to_string_lossy().into_owned();
            files.push(File { path, text });
        }
    }
    Ok(())
}
