//! Records that are read in bulk: postcard behind a byte that names the format.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const FORMAT: u8 = 1;

pub fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(record, vec![FORMAT]).expect("a record of owned parts encodes")
}

/// `None` if the bytes are not a record of this format.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    decode_begin(bytes)
}

/// Reads what a record begins with and leaves the rest.
pub fn decode_begin<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Option<T> {
    let (format, rest) = bytes.split_first()?;
    let begin = || postcard::take_from_bytes(rest).ok().map(|(begin, _)| begin);
    (*format == FORMAT).then(begin).flatten()
}
