//! Locks of versions: retention until a time, legal holds, and what they forbid.

use s3s::S3ErrorCode;
use s3s::dto::{DefaultRetention, ObjectLockConfiguration, ObjectLockRetentionMode};

use crate::fault::{Fault, Result};
use crate::record::{Bucket, Hold, Retention, Version};

const DAY: i64 = 24 * 60 * 60 * 1000;
/// The longest default retention.
const DAYS_MAX: i32 = 36_500;
const YEARS_MAX: i32 = 100;

/// A retention as clients name it. It must end in the future.
pub fn retention(mode: &str, until: i64, now: i64) -> Result<Retention> {
    let compliance = is_compliance(mode)?;
    if until <= now {
        return Err(Fault::new(S3ErrorCode::InvalidArgument, "The retain until date must be in the future!"));
    }
    Ok(Retention { compliance, until })
}

pub fn mode(retention: &Retention) -> &'static str {
    if retention.compliance {
        ObjectLockRetentionMode::COMPLIANCE
    } else {
        ObjectLockRetentionMode::GOVERNANCE
    }
}

fn is_compliance(mode: &str) -> Result<bool> {
    match mode {
        ObjectLockRetentionMode::COMPLIANCE => Ok(true),
        ObjectLockRetentionMode::GOVERNANCE => Ok(false),
        _ => Err(malformed()),
    }
}

/// A legal hold as clients name it.
pub fn hold(status: &str) -> Result<Hold> {
    match status {
        "ON" => Ok(Hold::On),
        "OFF" => Ok(Hold::Off),
        _ => Err(malformed()),
    }
}

/// The lock of a bucket, or that it has none.
pub fn of(bucket: &Bucket) -> Result<&ObjectLockConfiguration> {
    bucket
        .settings
        .lock
        .as_ref()
        .ok_or_else(|| Fault::new(S3ErrorCode::InvalidRequest, "Bucket is missing Object Lock Configuration"))
}

/// Checks a configuration before it is set.
pub fn check(lock: &ObjectLockConfiguration) -> Result<()> {
    if lock.object_lock_enabled.as_ref().is_none_or(|enabled| enabled.as_str() != "Enabled") {
        return Err(malformed());
    }
    let Some(rule) = &lock.rule else { return Ok(()) };
    let Some(default) = &rule.default_retention else { return Err(malformed()) };
    is_compliance(default.mode.as_ref().map_or("", |mode| mode.as_str()))?;
    let (count, most) = match (default.days, default.years) {
        (Some(days), None) => (days, DAYS_MAX),
        (None, Some(years)) => (years, YEARS_MAX),
        _ => return Err(malformed()),
    };
    if !(1..=most).contains(&count) {
        let code = S3ErrorCode::Custom("InvalidRetentionPeriod".into());
        return Err(Fault::new(code, "A default retention is 1 to 36500 days or 1 to 100 years."));
    }
    Ok(())
}

/// Applies the bucket's lock to a new version.
pub fn apply(bucket: &Bucket, version: &mut Version, now: i64) -> Result<()> {
    if bucket.settings.lock.is_none() && version.retention.is_none() && version.hold == Hold::Unset {
        return Ok(());
    }
    let rule = of(bucket)?.rule.as_ref().and_then(|rule| rule.default_retention.as_ref());
    if let (None, Some(rule)) = (&version.retention, rule) {
        version.retention = Some(default(rule, now));
    }
    Ok(())
}

fn default(rule: &DefaultRetention, now: i64) -> Retention {
    let years = || i64::from(rule.years.unwrap_or_default()) * 365;
    let days = rule.days.map_or_else(years, i64::from);
    let compliance =
        rule.mode.as_ref().is_some_and(|mode| mode.as_str() == ObjectLockRetentionMode::COMPLIANCE);
    Retention { compliance, until: now + days * DAY }
}

/// Whether a version may be removed. `bypass` passes over governance.
pub fn check_removal(version: &Version, now: i64, bypass: bool) -> Result<()> {
    let retained = version
        .retention
        .as_ref()
        .is_some_and(|retention| retention.until > now && (retention.compliance || !bypass));
    if version.hold == Hold::On || retained { Err(denied()) } else { Ok(()) }
}

/// Whether a retention may take the place of another: while one lasts it can only grow,
/// unless governance is bypassed. `None` is no retention.
pub fn check_change(old: Option<&Retention>, new: Option<&Retention>, now: i64, bypass: bool) -> Result<()> {
    let Some(old) = old.filter(|old| old.until > now) else { return Ok(()) };
    let grows = new.is_some_and(|new| new.compliance == old.compliance && new.until >= old.until);
    if grows || (!old.compliance && bypass) { Ok(()) } else { Err(denied()) }
}

fn malformed() -> Fault {
    Fault::new(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

fn denied() -> Fault {
    Fault::new(S3ErrorCode::AccessDenied, "Access Denied because object protected by object lock.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn governance(until: i64) -> Retention {
        Retention { compliance: false, until }
    }

    fn compliance(until: i64) -> Retention {
        Retention { compliance: true, until }
    }

    #[test]
    fn retention_can_only_grow_while_it_lasts() {
        let may = |old: Retention, new: Option<Retention>, bypass| {
            check_change(Some(&old), new.as_ref(), 10, bypass).is_ok()
        };
        assert!(may(governance(20), Some(governance(21)), false));
        assert!(may(governance(20), Some(governance(20)), false));
        assert!(!may(governance(20), Some(governance(19)), false));
        assert!(may(governance(20), Some(governance(19)), true));
        assert!(!may(governance(20), Some(compliance(21)), false));
        assert!(may(governance(20), Some(compliance(21)), true));
        assert!(!may(governance(20), None, false));
        assert!(may(governance(20), None, true));
        assert!(may(compliance(20), Some(compliance(21)), false));
        assert!(!may(compliance(20), Some(compliance(19)), true));
        assert!(!may(compliance(20), Some(governance(21)), true));
        assert!(!may(compliance(20), None, true));
        assert!(may(compliance(9), None, false), "it is over");
        assert!(check_change(None, Some(&compliance(11)), 10, false).is_ok());
    }

    #[test]
    fn configurations_are_checked() {
        let code = |mode: &str, days, years| {
            let default_retention = Some(DefaultRetention {
                days,
                mode: Some(ObjectLockRetentionMode::from(mode.to_owned())),
                years,
            });
            let lock = ObjectLockConfiguration {
                object_lock_enabled: Some("Enabled".to_owned().into()),
                rule: Some(s3s::dto::ObjectLockRule { default_retention }),
            };
            check(&lock).err().map(|fault| s3s::S3Error::from(fault).code().as_str().to_owned())
        };
        let malformed = Some("MalformedXML".to_owned());
        let period = Some("InvalidRetentionPeriod".to_owned());
        assert_eq!(code("GOVERNANCE", Some(1), None), None);
        assert_eq!(code("COMPLIANCE", None, Some(100)), None);
        assert_eq!(code("GOVERNANCE", Some(1), Some(1)), malformed);
        assert_eq!(code("GOVERNANCE", None, None), malformed);
        assert_eq!(code("governance", Some(1), None), malformed);
        assert_eq!(code("GOVERNANCE", Some(0), None), period);
        assert_eq!(code("GOVERNANCE", None, Some(-1)), period);
        assert_eq!(code("GOVERNANCE", Some(36_501), None), period);
    }
}
