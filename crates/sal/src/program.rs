//! Programs the host must have and the packages that bring them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program that was not found, and the Debian package that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub program: String,
    pub package: String,
}

/// Folders of system programs that the search path of a plain user lacks.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Which of the `(program, package)` pairs are not installed.
pub fn missing_programs(wanted: &[(&str, &str)]) -> Vec<Missing> {
    let absent = wanted.iter().filter(|(program, _)| program_find(program).is_none());
    absent
        .map(|(program, package)| Missing { program: (*program).into(), package: (*package).into() })
        .collect()
}

/// Where `program` is: in the search path or among the system programs.
pub fn program_find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What is missing and what to type, or nothing when nothing is missing.
pub fn missing_sentence(missing: &[Missing]) -> Option<String> {
    let names: Vec<&str> = missing.iter().map(|m| m.program.as_str()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|m| m.package.as_str()).collect();
    packages.sort_unstable();
    packages.dedup();
    (!names.is_empty()).then(|| {
        let (names, packages) = (names.join(", "), packages.join(" "));
        format!("missing on this host: {names}; on Debian or Ubuntu: apt-get install {packages}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package_once() {
        let missing = missing_programs(&[("sh", "dash"), ("no-such-a", "tools"), ("no-such-b", "tools")]);
        assert_eq!(
            missing_sentence(&missing).as_deref(),
            Some("missing on this host: no-such-a, no-such-b; on Debian or Ubuntu: apt-get install tools")
        );
        assert_eq!(missing_sentence(&missing_programs(&[("sh", "dash")])), None);
    }

    #[test]
    fn a_folder_is_not_a_program() {
        assert!(program_find("../bin").is_none());
        assert!(program_find("sh").is_some());
    }
}
