//! Uploads that show how far they are.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::AsyncRead;

use super::progress::Progress;

const CHUNK_BYTES: usize = 256 * 1024;
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// How much of an upload has been sent.
#[derive(Clone, Default)]
pub struct Sent(Arc<AtomicU64>);

impl Sent {
    /// What `reader` holds, counted as it is taken.
    pub fn count<R: AsyncRead + Send + 'static>(
        &self,
        reader: R,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + Send + use<R> {
        let counter = self.0.clone();
        tokio_util::io::ReaderStream::with_capacity(reader, CHUNK_BYTES).inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                counter.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
        })
    }

    /// Waits for the upload and shows how far it is.
    pub async fn show<T>(
        &self,
        progress: &mut Progress,
        length: Option<u64>,
        upload: impl Future<Output = T>,
    ) -> T {
        progress.now("uploading");
        tokio::pin!(upload);
        loop {
            tokio::select! {
                outcome = &mut upload => return outcome,
                () = tokio::time::sleep(PROGRESS_EVERY) => {
                    progress.bytes(self.0.load(Ordering::Relaxed), length);
                }
            }
        }
    }
}
