//! The keys of records. The first byte is the space; numbers are big endian, so that byte order is their order.

use std::ops::Range;

/// What stands under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Space {
    /// Numbers of the store: next bucket id, next version.
    Counter = b'c',
    /// Bucket by name.
    Bucket = b'b',
    /// Names of buckets by the account that owns them.
    Owned = b'w',
    /// Usage by bucket id.
    Usage = b'u',
    /// Usage by account.
    Account = b'a',
    /// The newest version of a key, also if it is a delete marker.
    Current = b'o',
    /// Older versions of a key, newest first.
    Past = b'p',
    /// The number of the older version that is `null`, if there is one.
    Null = b'n',
    /// Open uploads by bucket, key and upload id.
    Upload = b'm',
    /// Parts by upload and number.
    Part = b'q',
    /// For whoever needs a small durable list (log lines, events): by name and number.
    Queue = b'l',
    /// The engine's own.
    Engine = b'e',
}

fn start(space: Space, bucket: u32, room: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + room);
    key.push(space as u8);
    key.extend_from_slice(&bucket.to_be_bytes());
    key
}

/// Where the name of an object begins in a key.
pub const NAME_AT: usize = 5;

/// Where names that begin with these bytes stand.
pub fn of_name(space: Space, bucket: u32, name: &[u8]) -> Vec<u8> {
    let mut key = start(space, bucket, name.len());
    key.extend_from_slice(name);
    key
}

pub fn bucket(name: &str) -> Vec<u8> {
    [&[Space::Bucket as u8], name.as_bytes()].concat()
}

/// Accounts have no NUL in their ids, so it ends them.
pub fn owned(account: &str, bucket: &str) -> Vec<u8> {
    [&[Space::Owned as u8], account.as_bytes(), &[0], bucket.as_bytes()].concat()
}

pub fn usage(bucket: u32) -> Vec<u8> {
    start(Space::Usage, bucket, 0)
}

pub fn account_usage(account: &str) -> Vec<u8> {
    [&[Space::Account as u8], account.as_bytes()].concat()
}

pub fn counter(name: &str) -> Vec<u8> {
    [&[Space::Counter as u8], name.as_bytes()].concat()
}

pub fn current(bucket: u32, object: &str) -> Vec<u8> {
    let mut key = start(Space::Current, bucket, object.len());
    key.extend_from_slice(object.as_bytes());
    key
}

/// Names of objects hold no NUL, so it ends the name and keeps the order.
pub fn past(bucket: u32, object: &str, seq: u64) -> Vec<u8> {
    let mut key = start(Space::Past, bucket, object.len() + 9);
    key.extend_from_slice(object.as_bytes());
    key.push(0);
    key.extend_from_slice(&(!seq).to_be_bytes());
    key
}

/// All older versions of a key.
pub fn pasts(bucket: u32, object: &str) -> Range<Vec<u8>> {
    let mut key = start(Space::Past, bucket, object.len() + 1);
    key.extend_from_slice(object.as_bytes());
    key.push(0);
    under(key)
}

pub fn null(bucket: u32, object: &str) -> Vec<u8> {
    let mut key = start(Space::Null, bucket, object.len());
    key.extend_from_slice(object.as_bytes());
    key
}

pub fn upload(bucket: u32, object: &str, id: &str) -> Vec<u8> {
    let mut key = start(Space::Upload, bucket, object.len() + 1 + id.len());
    key.extend_from_slice(object.as_bytes());
    key.push(0);
    key.extend_from_slice(id.as_bytes());
    key
}

pub fn part(bucket: u32, upload: &str, number: u16) -> Vec<u8> {
    let mut key = start(Space::Part, bucket, upload.len() + 3);
    key.extend_from_slice(upload.as_bytes());
    key.push(0);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// All parts of an upload.
pub fn parts(bucket: u32, upload: &str) -> Range<Vec<u8>> {
    let mut key = part(bucket, upload, 0);
    key.truncate(key.len() - 2);
    under(key)
}

/// The bucket and the name of the object that a key of [`Space::Current`] or [`Space::Past`] is about.
pub fn place(key: &[u8], space: Space) -> Option<(u32, String)> {
    let (_, rest) = key.split_first()?;
    let (bucket, name) = rest.split_first_chunk::<4>()?;
    let name = if space == Space::Past { name.get(..name.len().checked_sub(9)?)? } else { name };
    Some((u32::from_be_bytes(*bucket), String::from_utf8(name.to_vec()).ok()?))
}

/// Everything that begins with `prefix`.
pub fn under(prefix: Vec<u8>) -> Range<Vec<u8>> {
    let mut end = prefix.clone();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    prefix..end
}

/// All of a bucket in one space.
pub fn of_bucket(space: Space, bucket: u32) -> Range<Vec<u8>> {
    under(start(space, bucket, 0))
}
