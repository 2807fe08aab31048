//! Files of plugins among the blobs: taken in as they come, and looked into where they must be archives.

use std::fs::File;
use std::path::Path;

use model::image::LayerFormat;
use model::{Digest, Error, Result};
use tokio::io::AsyncRead;

use super::blob::Staged;
use super::{ImageLimits, ImageStore, disk, found, tarball};

/// Files, folders and links of one archive.
const ENTRIES_MAX: u64 = 100_000;
/// Bytes of one archive once it is unpacked.
const UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// A file that lies among the blobs and is ready to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTaken {
    pub digest: Digest,
    pub size: u64,
}

impl ImageStore {
    /// Takes a file in; it is durable when this returns. `limit` bounds it.
    pub async fn file_take(
        &self,
        body: impl AsyncRead + Send,
        limit: u64,
        is_archive: bool,
    ) -> Result<FileTaken> {
        let spool = self.spool(body, limit).await?;
        let taken = FileTaken { digest: spool.digest.clone(), size: spool.size };
        self.blocking(move |store| {
            if is_archive {
                archive_check(&spool.file)?;
            }
            store.blobs.commit(vec![Staged::new(spool.digest, spool.size, spool.file)])
        })
        .await?;
        Ok(taken)
    }
}

/// Refuses what automators could not unpack, or not safely.
fn archive_check(path: &Path) -> Result<()> {
    let head = tarball::head_read(path)?;
    let format = match tarball::format_of(&head) {
        Some(format @ (LayerFormat::Tar | LayerFormat::TarGzip)) => format,
        _ => {
            let seems = found::seems(&head);
            return Err(Error::invalid(format!(
                "this is not an archive: {seems} was found, but a .tar or .tar.gz is accepted"
            )));
        }
    };
    let limits = ImageLimits {
        layer_unpacked_bytes_max: UNPACKED_BYTES_MAX,
        layer_entries_max: ENTRIES_MAX,
        ..ImageLimits::default()
    };
    let file = File::open(path).map_err(disk)?;
    let summary = tarball::scan(file, format, "the archive", &limits, &mut |_| {})?;
    match summary.files {
        0 => Err(Error::invalid("this archive holds no file")),
        _ => Ok(()),
    }
}
