//! What a bucket's lifecycle rules say about one version. Pure.

use std::time::Duration;

use s3s::dto::{BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule, Tag};

use crate::record::Version;
use crate::record::version::Head;
use crate::time::millis;

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The rules of a bucket and how long a day is.
pub struct Rules<'a> {
    pub rules: &'a BucketLifecycleConfiguration,
    pub day: Duration,
}

/// What is to be done with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// The current object ends: a delete marker where versions are kept.
    Expire,
    /// This version goes for good.
    Remove,
    /// It moves to another storage class.
    Move(String),
}

/// How a version stands among the others of its key.
#[derive(Debug, Clone, Copy)]
pub enum Standing {
    /// The newest; whether older ones are there.
    Current { alone: bool },
    /// Older: since when, and how many older ones are newer than it.
    Past { since: i64, newer: usize },
}

impl Rules<'_> {
    /// The first thing that is due for the version at `now`.
    pub fn due(&self, object: &str, version: &Version, standing: Standing, now: i64) -> Option<Due> {
        let applying = || self.rules.rules.iter().filter(|rule| applies(rule, object, version));
        let ends = applying().find_map(|rule| match standing {
            Standing::Current { alone } => self.current(rule, &version.head, alone, now),
            Standing::Past { since, newer } => self.past(rule, since, newer, now),
        });
        ends.or_else(|| {
            let class =
                applying().filter_map(|rule| self.class(rule, &version.head, standing, now)).next_back()?;
            (version.head.storage_class.as_deref() != Some(&class) && !version.head.marker)
                .then_some(Due::Move(class))
        })
    }

    /// The most older versions that a rule keeps whatever their age.
    pub fn kept_max(&self) -> usize {
        let expirations = self
            .rules
            .rules
            .iter()
            .filter_map(|rule| rule.noncurrent_version_expiration.as_ref()?.newer_noncurrent_versions);
        let transitions = self.rules.rules.iter().flat_map(|rule| {
            let steps = rule.noncurrent_version_transitions.iter().flatten();
            steps.filter_map(|step| step.newer_noncurrent_versions)
        });
        let most = expirations.chain(transitions).max().unwrap_or(0);
        usize::try_from(most).unwrap_or(0)
    }

    fn current(&self, rule: &LifecycleRule, head: &Head, alone: bool, now: i64) -> Option<Due> {
        let expiration = rule.expiration.as_ref()?;
        let reached = self.reached(expiration, head.modified, now);
        if head.marker {
            let swept = expiration.expired_object_delete_marker == Some(true);
            return (alone && (swept || reached)).then_some(Due::Remove);
        }
        reached.then_some(Due::Expire)
    }

    fn reached(&self, expiration: &LifecycleExpiration, modified: i64, now: i64) -> bool {
        let days = expiration.days.is_some_and(|days| now >= self.after(modified, days));
        days || expiration.date.as_ref().is_some_and(|date| now >= millis(date))
    }

    fn past(&self, rule: &LifecycleRule, since: i64, newer: usize, now: i64) -> Option<Due> {
        let expiration = rule.noncurrent_version_expiration.as_ref()?;
        let days = expiration.noncurrent_days.unwrap_or(0);
        let kept = usize::try_from(expiration.newer_noncurrent_versions.unwrap_or(0)).unwrap_or(0);
        (newer >= kept && now >= self.after(since, days)).then_some(Due::Remove)
    }

    fn class(&self, rule: &LifecycleRule, head: &Head, standing: Standing, now: i64) -> Option<String> {
        match standing {
            Standing::Current { .. } => {
                let reached = rule.transitions.iter().flatten().filter(|step| {
                    step.days.is_some_and(|days| now >= self.after(head.modified, days))
                        || step.date.as_ref().is_some_and(|date| now >= millis(date))
                });
                let last = reached.max_by_key(|step| step.days)?;
                last.storage_class.as_ref().map(|class| class.as_str().to_owned())
            }
            Standing::Past { since, newer } => {
                let steps = rule.noncurrent_version_transitions.iter().flatten();
                let reached = steps.filter(|step| {
                    let kept = usize::try_from(step.newer_noncurrent_versions.unwrap_or(0)).unwrap_or(0);
                    newer >= kept && now >= self.after(since, step.noncurrent_days.unwrap_or(0))
                });
                let last = reached.max_by_key(|step| step.noncurrent_days)?;
                last.storage_class.as_ref().map(|class| class.as_str().to_owned())
            }
        }
    }

    /// Whether an upload that began then is to be given up.
    pub fn abandons(&self, object: &str, started: i64, now: i64) -> bool {
        let rules = self.rules.rules.iter().filter(|rule| enabled(rule) && prefix_fits(rule, object));
        rules
            .filter_map(|rule| rule.abort_incomplete_multipart_upload.as_ref()?.days_after_initiation)
            .any(|days| now >= self.after(started, days))
    }

    /// When the current version ends, and by which rule: the header `x-amz-expiration`.
    pub fn expiration(&self, object: &str, version: &Version) -> Option<(i64, String)> {
        let rules = self.rules.rules.iter().filter(|rule| applies(rule, object, version));
        let ends = rules.filter_map(|rule| {
            let expiration = rule.expiration.as_ref()?;
            let date = expiration.date.as_ref().map(millis);
            let days = expiration.days.map(|days| whole_days(version.head.modified, days));
            Some((date.or(days)?, rule.id.clone().unwrap_or_default()))
        });
        ends.min()
    }

    fn after(&self, from: i64, days: i32) -> i64 {
        if self.day == DAY {
            return whole_days(from, days);
        }
        let span = i64::try_from(self.day.as_millis()).unwrap_or(i64::MAX);
        from.saturating_add(span.saturating_mul(i64::from(days)))
    }
}

/// Days later, at the next midnight.
fn whole_days(from: i64, days: i32) -> i64 {
    let day = DAY.as_millis() as i64;
    let end = from.saturating_add(day.saturating_mul(i64::from(days)));
    end.saturating_add(day - 1) / day * day
}

fn enabled(rule: &LifecycleRule) -> bool {
    rule.status.as_str() == ExpirationStatus::ENABLED
}

fn prefix_fits(rule: &LifecycleRule, object: &str) -> bool {
    let filter = rule.filter.as_ref();
    let and = filter.and_then(|filter| filter.and.as_ref());
    let prefixes = [
        rule.prefix.as_deref(),
        filter.and_then(|filter| filter.prefix.as_deref()),
        and.and_then(|and| and.prefix.as_deref()),
    ];
    prefixes.into_iter().flatten().all(|prefix| object.starts_with(prefix))
}

fn applies(rule: &LifecycleRule, object: &str, version: &Version) -> bool {
    let Some(filter) = &rule.filter else { return enabled(rule) && prefix_fits(rule, object) };
    let and = filter.and.as_ref();
    let mut tags = filter.tag.iter().chain(and.and_then(|and| and.tags.as_ref()).into_iter().flatten());
    let has = |tag: &Tag| {
        let wanted = (tag.key.as_deref().unwrap_or_default(), tag.value.as_deref().unwrap_or_default());
        version.tags.iter().any(|(key, value)| (key.as_str(), value.as_str()) == wanted)
    };
    let size = i64::try_from(version.head.size).unwrap_or(i64::MAX);
    let above = [filter.object_size_greater_than, and.and_then(|and| and.object_size_greater_than)];
    let below = [filter.object_size_less_than, and.and_then(|and| and.object_size_less_than)];
    enabled(rule)
        && prefix_fits(rule, object)
        && tags.all(has)
        && above.into_iter().flatten().all(|least| size > least)
        && below.into_iter().flatten().all(|most| size < most)
}
