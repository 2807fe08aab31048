//! Where lines go, and how the objects with them are called.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use s3s::dto::{LoggingEnabled, PartitionDateSource};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::spool::Batch;
use crate::record::Bucket;

/// The longest prefix, in bytes: the rest of a name has to fit behind it.
pub const PREFIX_MAX: usize = 512;

/// Whether names may begin with this.
pub fn name_fits(prefix: &str) -> bool {
    prefix.len() <= PREFIX_MAX && !prefix.contains('\0')
}

/// A bucket, and what the names of its objects begin with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    pub bucket: String,
    /// Of the bucket that let the line in: one that took its name later may be somebody else's.
    pub id: u32,
    pub prefix: String,
    /// The day that names carry: that of the requests, else that of the delivery.
    pub day: Option<String>,
    /// Whether days are folders.
    pub parted: bool,
}

impl Target {
    pub fn of(asked: &LoggingEnabled, target: &Bucket, source: &Bucket, region: &str, at: Timestamp) -> Self {
        let format = asked.target_object_key_format.as_ref();
        let parted = format.and_then(|format| format.partitioned_prefix.as_ref());
        let (bucket, id, prefix) = (target.name.clone(), target.id, asked.target_prefix.clone());
        let Some(parted) = parted else { return Self { bucket, id, prefix, day: None, parted: false } };
        let by_event = parted
            .partition_date_source
            .as_ref()
            .is_some_and(|date| date.as_str() == PartitionDateSource::EVENT_TIME);
        let region = source.location.as_deref().unwrap_or(region);
        let prefix = format!("{prefix}{}/{region}/{}/", source.owner.id, source.name);
        let day = at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string();
        Self { bucket, id, prefix, day: by_event.then_some(day), parted: true }
    }

    /// The name of the object with the lines of a file that is delivered now.
    pub fn object(&self, file: &Batch, now: Timestamp) -> String {
        let now = now.to_zoned(TimeZone::UTC);
        let (day, time) = match &self.day {
            Some(day) => (day.clone(), "00-00-00".to_owned()),
            None => (now.strftime("%Y-%m-%d").to_string(), now.strftime("%H-%M-%S").to_string()),
        };
        let folder = if self.parted { day.replace('-', "/") + "/" } else { String::new() };
        let name = file.path.file_name().unwrap_or_default().as_encoded_bytes();
        let mark = Sha256::new().chain_update(name).chain_update([0]).chain_update(&self.prefix).finalize();
        format!("{}{folder}{day}-{time}-{}", self.prefix, hex::encode_upper(&mark[..8]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_format_and_tell_files_apart() {
        let begun: Timestamp = "2026-11-15T23:59:59Z".parse().unwrap();
        let now: Timestamp = "2026-11-16T07:08:09Z".parse().unwrap();
        let name = |day: Option<&str>, parted, number: u64| {
            let (bucket, prefix) = ("t".into(), "log/".into());
            let to = Target { bucket, id: 1, prefix, day: day.map(Into::into), parted };
            to.object(&Batch { number, begun, path: format!("/data/log/{number:016x}").into() }, now)
        };
        let begin = |name: String| name[..name.len() - 16].to_owned();
        assert_eq!(begin(name(None, false, 7)), "log/2026-11-16-07-08-09-");
        assert_eq!(begin(name(None, true, 7)), "log/2026/11/16/2026-11-16-07-08-09-");
        assert_eq!(begin(name(Some("2026-11-15"), true, 7)), "log/2026/11/15/2026-11-15-00-00-00-");
        assert_ne!(name(None, false, 7), name(None, false, 8));
    }

    #[test]
    fn prefixes_leave_room_for_the_rest() {
        assert!(name_fits(""));
        assert!(name_fits(&"x".repeat(PREFIX_MAX)));
        assert!(!name_fits(&"x".repeat(PREFIX_MAX + 1)));
        assert!(!name_fits("a\0b"));
    }
}
