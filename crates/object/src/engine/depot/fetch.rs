//! Blobs of the depot on their way out.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::stream::{self, StreamExt};

use super::super::api::{CHUNK, EngineError};
use super::super::blob::Place;
use super::super::chunk::Layout;
use super::super::core::Core;
use super::super::get::Stream;
use super::Depot;

/// Bytes that all readers together ask for at once.
const READ_ALL: usize = 48 << 20;
/// Requests under way for one stream.
const AHEAD: usize = 2;
/// Chunks of one request.
const CHUNKS_MIN: usize = 4;
const CHUNKS_MAX: usize = 64;
/// Chunks and checksums that lie no further apart are fetched together.
const TOGETHER: u64 = 1 << 20;

/// As long as it is there, what it reads is not reclaimed.
struct Reader {
    core: Arc<Core>,
    depot: Arc<Depot>,
    pinned: i64,
    layout: Layout,
}

impl Reader {
    fn new(core: &Arc<Core>, depot: &Arc<Depot>, layout: Layout) -> Self {
        depot.readers.fetch_add(1, Ordering::Relaxed);
        Self { core: core.clone(), depot: depot.clone(), pinned: core.pins.add(), layout }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.core.pins.remove(self.pinned);
        self.depot.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn depot<'a>(core: &'a Core, layout: &Layout) -> Result<(&'a Arc<Depot>, u64), EngineError> {
    match (&core.depot, layout.blob.place) {
        (Some(depot), Place::Remote { run }) => Ok((depot, run)),
        _ => Err(EngineError::Missing(layout.id)),
    }
}

impl Depot {
    /// Chunks of one request: the more readers, the fewer.
    fn window(&self) -> usize {
        (READ_ALL / CHUNK / AHEAD / self.readers().max(1)).clamp(CHUNKS_MIN, CHUNKS_MAX)
    }

    fn bytes(
        &self,
        layout: &Layout,
        run: u64,
        place: Range<u64>,
    ) -> impl Future<Output = Result<Bytes, EngineError>> + Send + 'static {
        self.read(layout.id, self.blob_path(layout.id, run), place, layout.length())
    }
}

/// The range in pieces, some asked for ahead. The first request is answered before this is: what is away says so now.
pub(in crate::engine) async fn fetch(
    core: &Arc<Core>,
    layout: Layout,
    range: Range<u64>,
) -> Result<Stream, EngineError> {
    let (depot, run) = depot(core, &layout)?;
    let all = Layout::touched(&range);
    let (place, crcs) = (layout.place(&all), layout.crcs(&all));
    let reader = Reader::new(core, depot, layout);
    if crcs.end - place.start <= TOGETHER {
        let bytes = depot.run(depot.bytes(&reader.layout, run, place.start..crcs.end)).await?;
        let at = |offset: u64| usize::try_from(offset - place.start).unwrap_or(0);
        let (chunks, crcs) = (bytes.slice(..at(place.end)), bytes.slice(at(crcs.start)..));
        reader.layout.check(all.start, &chunks, &crcs)?;
        let content = reader.layout.content(&all, &range, chunks);
        return Ok(stream::iter([content]).boxed());
    }
    let crcs = depot.run(depot.bytes(&reader.layout, run, crcs)).await?;
    let (reader, window) = (Arc::new(reader), depot.window());
    let stream = stream::iter(all.clone().step_by(window)).map(move |first| {
        let chunks = first..(first + window as u64).min(all.end);
        let at = |chunk: u64| usize::try_from((chunk - all.start) * 4).unwrap_or(0);
        let crcs = crcs.slice(at(chunks.start)..at(chunks.end));
        let (reader, range) = (reader.clone(), range.clone());
        async move {
            let layout = &reader.layout;
            let bytes = reader.depot.run(reader.depot.bytes(layout, run, layout.place(&chunks))).await?;
            layout.check(chunks.start, &bytes, &crcs)?;
            layout.content(&chunks, &range, bytes)
        }
    });
    Ok(stream.buffered(AHEAD).boxed())
}

/// Reads all of it and compares the checksums. Blocking.
pub(in crate::engine) fn verify(
    core: &Core,
    layout: &Layout,
    mut each: impl FnMut(u64) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let (depot, run) = depot(core, layout)?;
    let all = 0..layout.chunks();
    let crcs = depot.wait(depot.bytes(layout, run, layout.crcs(&all)))?;
    for first in all.clone().step_by(CHUNKS_MIN) {
        let chunks = first..(first + CHUNKS_MIN as u64).min(all.end);
        let bytes = depot.wait(depot.bytes(layout, run, layout.place(&chunks)))?;
        let at = |chunk: u64| usize::try_from(chunk * 4).unwrap_or(0);
        layout.check(chunks.start, &bytes, &crcs[at(chunks.start)..at(chunks.end)])?;
        each(bytes.len() as u64)?;
    }
    Ok(())
}
