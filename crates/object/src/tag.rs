//! Tags of buckets and objects: their limits.

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
