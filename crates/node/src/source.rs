//! Where root file systems come from: the one thing the engine asks of whoever keeps image layers.

use std::path::PathBuf;

use futures::future::BoxFuture;
use model::{ImageManifest, Result};

/// Gives the layers of an image as directories on this machine.
pub trait LayerSource: Send + Sync + 'static {
    /// Unpacked directories, lowest first, fit to be overlayfs lower directories. They are fetched
    /// and unpacked first where needed. Dropping the future gives up waiting and breaks nothing.
    fn rootfs_layers<'a>(&'a self, image: &'a ImageManifest) -> BoxFuture<'a, Result<Vec<PathBuf>>>;

    /// No instance of this node uses the image any more: its layers may go when room is needed.
    fn release(&self, image: &ImageManifest);
}
