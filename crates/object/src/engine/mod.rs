//! The local engine: an index and bytes, crash-safe.
//!
//! *One writer.* Every change is a closure that runs on the writer's thread,
//! in order. Closures that wait together form a group: their changes and the
//! bytes of their small blobs are appended to the journal, one `fdatasync`
//! makes the group durable, and all are answered. A closure
//! that returns an error leaves nothing behind.
//!
//! *The journal is also the pack.* Blobs up to [`PACKED_MAX`] live where the
//! journal put them; segments with little alive are rewritten in the background.
//! Larger blobs are files of their own, synced with their folder before the
//! closure that names them runs.
//!
//! *The index* (redb) is written at checkpoints only, by a thread of its own, so
//! that the writer never waits for it. What changed since lies over it in
//! memory, in a map that is cheap to clone: every group publishes one, and views
//! read through it. After a crash the journal since the last checkpoint is
//! applied. A torn tail fails its checksum and ends the journal; a damaged group
//! that sound ones follow is an error.
//!
//! *Removal.* The last release of a blob stamps it dead. The keeper removes its
//! bytes after a grace, unless a [`Pin`] is older than that; the file goes before
//! the record, so that a crash leaves nothing that nobody finds. Files that were
//! being written when the process ended are removed when the engine opens.
//!
//! *Pace.* Where much has changed since the last checkpoint, the writer waits for
//! the next. The keeper makes it, and changes records as well: these changes do
//! not wait in the writer's queue, or both would wait for each other.
//!
//! *A depot* is a bucket of another S3 store that takes the large blobs instead of
//! files. They pass through a file on their way and have the same form there. See `depot`.
//!
//! *A full disk* refuses blobs while there is still a reserve for deletes and the
//! index. A write that fails is cut off and answered with an error; a sync that
//! fails stops the engine, because nobody knows what is on the disk.
//!
//! *Bytes* are kept in chunks of 64 KiB, each with a CRC32C that is checked on
//! every read; sealed blobs hold AES-256-GCM chunks under a key of their own. The
//! scrubber reads all of them, slowly, and records those that do not match.
//!
//! ```text
//!   data/lock            one engine at a time
//!   data/index           redb: the records as of the last checkpoint
//!   data/journal/N       segments: groups of changes and packed blobs
//!   data/blobs/N/ID      large blobs: chunks, then their checksums
//!   data/uploads/ID-RUN  with a depot: uploads under way there
//! ```

mod api;
mod blob;
mod buffers;
mod chunk;
mod compact;
mod core;
mod depot;
mod file;
mod get;
mod hand;
mod index;
mod journal;
mod keeper;
mod layers;
mod open;
mod put;
mod replay;
mod scrub;
mod seal;
mod sink;
mod stats;
mod tx;
mod writer;

pub use api::*;
pub use blob::Alive;
pub use depot::GatewayState;
pub use put::{BlobWriter, Written};
pub use scrub::{Scrub, ScrubState};
pub use stats::Stats;
pub use tx::Tx;
