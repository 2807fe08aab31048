//! Tags of buckets and objects: their limits and both their forms.

use std::collections::HashSet;

use s3s::S3ErrorCode;
use s3s::dto::Tag;

use crate::fault::{Fault, Result};

pub const OBJECT_TAGS_MAX: usize = 10;
pub const BUCKET_TAGS_MAX: usize = 50;
const KEY_MAX: usize = 128;
const VALUE_MAX: usize = 256;

pub type Tags = Vec<(String, String)>;

fn invalid(why: &'static str) -> Fault {
    Fault::new(S3ErrorCode::InvalidTag, why)
}

/// Pairs within the limits of S3.
pub fn check(tags: Tags, most: usize) -> Result<Tags> {
    if tags.len() > most {
        return Err(invalid("Too many tags"));
    }
    let mut keys = HashSet::new();
    for (key, value) in &tags {
        if key.is_empty() || key.chars().count() > KEY_MAX {
            return Err(invalid("The key of a tag has 1 to 128 characters"));
        }
        if value.chars().count() > VALUE_MAX {
            return Err(invalid("The value of a tag has 256 characters at most"));
        }
        if [key, value].into_iter().any(|text| !crate::escape::fits_xml(text)) {
            return Err(invalid("A tag holds a character that it may not hold"));
        }
        if !keys.insert(key.as_str()) {
            return Err(invalid("Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(tags)
}

pub fn from_dto(tags: Vec<Tag>, most: usize) -> Result<Tags> {
    let pairs = tags.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
    check(pairs.collect(), most)
}

pub fn to_dto(tags: &[(String, String)]) -> Vec<Tag> {
    let tag = |(key, value): &(String, String)| Tag { key: Some(key.clone()), value: Some(value.clone()) };
    tags.iter().map(tag).collect()
}

/// As in the header `x-amz-tagging`: a query string.
pub fn from_query(text: &str) -> Result<Tags> {
    let mut tags = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        tags.push((unescape(key)?, unescape(value)?));
    }
    check(tags, OBJECT_TAGS_MAX)
}

fn unescape(text: &str) -> Result<String> {
    let spaced = text.replace('+', " ");
    let mut bytes = Vec::with_capacity(spaced.len());
    let mut rest = spaced.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let [high, low, tail @ ..] = rest else { return Err(invalid("A tag ends within an escape")) };
            let mut byte = [0];
            hex::decode_to_slice([*high, *low], &mut byte)
                .map_err(|_| invalid("A tag holds a wrong escape"))?;
            bytes.push(byte[0]);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid("A tag is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_becomes_pairs() {
        let tags = from_query("Hello=World&a%20b=c+d&empty=&bare").expect("fine");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(tags, [pair("Hello", "World"), pair("a b", "c d"), pair("empty", ""), pair("bare", "")]);
    }

    #[test]
    fn bad_ones_are_refused() {
        assert!(from_query("a=%09%0A").is_ok());
        for text in ["a=1&a=2", "%zz=1", "%e=1", "=x", "%ff=1", "a=%00", "%1b=1", "a=%EF%BF%BF"] {
            assert!(from_query(text).is_err(), "{text}");
        }
        let many: Vec<String> = (0..11).map(|number| format!("k{number}=v")).collect();
        assert!(from_query(&many.join("&")).is_err());
        assert!(from_query(&format!("{}=v", "k".repeat(129))).is_err());
        assert!(from_query(&format!("k={}", "v".repeat(257))).is_err());
    }
}
