//! What the store keeps: records and the keys they stand under.
//!
//! Buckets are JSON (few, read by people); versions and parts are postcard
//! behind a format byte (many, read in bulk).

mod as_xml;
pub mod bucket;
pub mod key;
mod packed;
pub mod upload;
pub mod version;

pub use bucket::{Acl, Bucket, Grant, Grantee, Permission, Usage, Versioning};
pub use upload::{Part, Upload};
pub use version::{Blob, Checksum, Hold, Retention, Seal, Version};
