//! Every bound of the store, by name.

use std::time::Duration;

/// Changes that a watcher can still replay.
pub const CHANGES_KEPT: i64 = 50_000;
/// Journal rows kept; older ones are dropped.
pub const JOURNAL_KEPT: i64 = 200_000;
/// Rows that one journal query returns at most.
pub const JOURNAL_PAGE_MAX: i64 = 1_000;
/// Records that one read of many takes at once.
pub(crate) const LIST_PAGE: usize = 500;
/// Operations in one transaction.
pub const TXN_OPS_MAX: usize = 4_096;
/// Bytes of one body, as JSON text.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a kind, id, tenant, name or subject.
pub(crate) const KEY_BYTES_MAX: usize = 512;

/// Transactions that wait for the writer; more callers wait for a place.
pub(crate) const QUEUE_MAX: usize = 1_024;
/// A batch takes no further transaction once it holds this many operations.
pub(crate) const BATCH_OPS_MAX: usize = 2_048;
/// A batch takes no further transaction once its bodies reach this size.
pub(crate) const BATCH_BYTES_MAX: usize = 16 << 20;
/// Attempts to apply one batch before its callers get `Unavailable`.
pub(crate) const BATCH_ATTEMPTS_MAX: u32 = 5;
/// Pause before the second attempt; it doubles for each further one.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// One attempt on PostgreSQL may take this long, so that a silent network does not hold callers for ever.
pub(crate) const BATCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Old changes and journal rows are dropped each time this many new ones came.
pub(crate) const PRUNE_EVERY: i64 = 512;

/// Connections for reading.
pub(crate) const READERS_MAX: u32 = 4;
/// Wait for a connection before a read answers `Unavailable`.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Recent changes kept in memory, so that live watchers do not read the database.
pub(crate) const RING_CHANGES_MAX: usize = 4_096;
/// Bytes of bodies among those.
pub(crate) const RING_BYTES_MAX: usize = 16 << 20;
/// Changes that one step of a watch returns.
pub(crate) const WATCH_BATCH_MAX: usize = 256;
/// How often PostgreSQL is asked for what other servers committed while it tells of changes by itself.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The same while it does not.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// One read may take this long before it answers `Unavailable`.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// A broken connection is given this long to say goodbye.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);
