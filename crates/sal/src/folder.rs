//! Folders that only their owner may enter.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

const PRIVATE: u32 = 0o700;

/// Makes a folder of ours, with those above it that are missing, for its owner alone; one that is there is closed to
/// others. Instances' files lie in such folders: among them may be programs that run as root for whoever starts them.
pub fn folder_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    match mode == PRIVATE {
        true => Ok(()),
        false => std::fs::set_permissions(path, std::fs::Permissions::from_mode(PRIVATE)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nobody_else_gets_into_a_private_folder() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (outer, inner) = (dir.path().join("a"), dir.path().join("a/b"));
        folder_private(&inner).unwrap();
        assert_eq!((mode(&outer), mode(&inner)), (PRIVATE, PRIVATE));
        std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder_private(&inner).unwrap();
        assert_eq!(mode(&inner), PRIVATE);
    }
}
