//! Conditions of statements.

use std::net::IpAddr;

use super::pattern;
use crate::access::context::Context;

/// The keys that S3 knows, in lower case. A key that ends in `/` is followed by a tag's name. Those that
/// no request here has a value for are absent in every request, as they would be there.
const KEYS: &[&str] = &[
    "aws:calledvia",
    "aws:calledviafirst",
    "aws:calledvialast",
    "aws:currenttime",
    "aws:ec2instancesourceprivateipv4",
    "aws:ec2instancesourcevpc",
    "aws:epochtime",
    "aws:federatedprovider",
    "aws:multifactorauthage",
    "aws:multifactorauthpresent",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalisawsservice",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:principalservicename",
    "aws:principalservicenameslist",
    "aws:principaltag/",
    "aws:principaltype",
    "aws:referer",
    "aws:requestedregion",
    "aws:requesttag/",
    "aws:resourceaccount",
    "aws:resourceorgid",
    "aws:resourceorgpaths",
    "aws:resourcetag/",
    "aws:securetransport",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceidentity",
    "aws:sourceip",
    "aws:sourceorgid",
    "aws:sourceorgpaths",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpcarn",
    "aws:sourcevpce",
    "aws:tagkeys",
    "aws:tokenissuetime",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "aws:viaawsservice",
    "aws:vpceaccount",
    "aws:vpceorgid",
    "aws:vpceorgpaths",
    "aws:vpcsourceip",
    "s3:accessgrantsinstancearn",
    "s3:accesspointnetworkorigin",
    "s3:authtype",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
    "s3:delimiter",
    "s3:destinationregion",
    "s3:existingjoboperation",
    "s3:existingjobpriority",
    "s3:existingobjecttag/",
    "s3:if-match",
    "s3:if-none-match",
    "s3:inventoryaccessibleoptionalfields",
    "s3:isreplicationpauserequest",
    "s3:jobsuspendedcause",
    "s3:locationconstraint",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:objectcreationoperation",
    "s3:prefix",
    "s3:requestjoboperation",
    "s3:requestjobpriority",
    "s3:requestobjecttag/",
    "s3:requestobjecttagkeys",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:signatureversion",
    "s3:tlsversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-object-ownership",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
];

/// Keys that requests would have a value for in S3 and have none here. A statement that hangs on one would not do what
/// it says, so new policies may not have them.
const UNSET: &[&str] = &["aws:resourcetag/", "aws:tokenissuetime", "s3:locationconstraint"];

/// Keys that say who asks or from where. Fixed values for one of them make a statement not public.
const WHO: &[&str] = &[
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceip",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "aws:username",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
];

/// One key under one operator; holds if one of the values fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    test: Test,
    negated: bool,
    if_exists: bool,
    set: Option<Set>,
    key: String,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    All,
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Text { ignore_case: bool, wild: bool },
    Number(Order),
    Date(Order),
    Bool,
    Binary,
    Address,
    Arn,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Condition {
    /// Says what is wrong with an operator, a key or a value that we do not know.
    pub fn new(operator: &str, key: &str, values: Vec<String>) -> Result<Self, String> {
        let (set, name) = match operator.split_once(':') {
            Some(("ForAllValues", name)) => (Some(Set::All), name),
            Some(("ForAnyValue", name)) => (Some(Set::Any), name),
            _ => (None, operator),
        };
        let (name, if_exists) = match name.strip_suffix("IfExists") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let unknown = || format!("Invalid Condition type : {operator}");
        let (test, negated) = test(name).ok_or_else(unknown)?;
        if test == Test::Null && (if_exists || set.is_some()) {
            return Err(unknown());
        }
        let lower = key.to_ascii_lowercase();
        let known = KEYS.iter().any(|known| match known.strip_suffix('/') {
            Some(_) => lower.strip_prefix(known).is_some_and(|tag| !tag.is_empty()),
            None => lower == *known,
        });
        if !known {
            return Err(format!("Policy has an invalid condition key: {key}"));
        }
        if values.is_empty() {
            return Err(format!("The condition on {key} has no values"));
        }
        if let Some(value) = values.iter().find(|value| !test.takes(value)) {
            return Err(format!("Invalid value for {operator} of {key}: {value}"));
        }
        Ok(Self { test, negated, if_exists, set, key: lower, values })
    }

    /// Whether no request here has a value for its key although those of S3 do.
    pub fn is_deaf(&self) -> bool {
        UNSET.iter().any(|unset| match unset.strip_suffix('/') {
            Some(_) => self.key.starts_with(unset),
            None => self.key == *unset,
        })
    }

    pub fn holds(&self, context: &Context) -> bool {
        let known = context.get(&self.key);
        if self.test == Test::Null {
            let absent = known.is_none_or(<[_]>::is_empty);
            return self.values.iter().any(|value| value.eq_ignore_ascii_case("true") == absent);
        }
        let Some(known) = known.filter(|known| !known.is_empty()) else {
            return self.if_exists || self.set == Some(Set::All) || (self.negated && self.set.is_none());
        };
        let fits = |value: &String| {
            self.values.iter().any(|wanted| self.test.fits(value, wanted, context)) != self.negated
        };
        match self.set {
            Some(Set::All) => known.iter().all(fits),
            Some(Set::Any) => known.iter().any(fits),
            None if self.negated => known.iter().all(fits),
            None => known.iter().any(fits),
        }
    }

    /// Whether it keeps a statement for everyone from being public.
    pub fn narrows_who(&self) -> bool {
        let fixed = match self.test {
            Test::Address => self.values.iter().all(|value| is_narrow(value)),
            Test::Text { wild, .. } => {
                !self.values.iter().any(|value| value.contains("${") || wild && value.contains(['*', '?']))
            }
            Test::Arn => self.values.iter().all(|value| !value.contains(['*', '?', '$'])),
            _ => false,
        };
        let strict = !self.negated && !self.if_exists && self.set != Some(Set::All);
        fixed && strict && WHO.contains(&self.key.as_str())
    }
}

fn test(name: &str) -> Option<(Test, bool)> {
    let text = |ignore_case, wild| Test::Text { ignore_case, wild };
    Some(match name {
        "StringEquals" => (text(false, false), false),
        "StringNotEquals" => (text(false, false), true),
        "StringEqualsIgnoreCase" => (text(true, false), false),
        "StringNotEqualsIgnoreCase" => (text(true, false), true),
        "StringLike" => (text(false, true), false),
        "StringNotLike" => (text(false, true), true),
        "NumericEquals" => (Test::Number(Order::Equal), false),
        "NumericNotEquals" => (Test::Number(Order::Equal), true),
        "NumericLessThan" => (Test::Number(Order::Less), false),
        "NumericLessThanEquals" => (Test::Number(Order::LessOrEqual), false),
        "NumericGreaterThan" => (Test::Number(Order::Greater), false),
        "NumericGreaterThanEquals" => (Test::Number(Order::GreaterOrEqual), false),
        "DateEquals" => (Test::Date(Order::Equal), false),
        "DateNotEquals" => (Test::Date(Order::Equal), true),
        "DateLessThan" => (Test::Date(Order::Less), false),
        "DateLessThanEquals" => (Test::Date(Order::LessOrEqual), false),
        "DateGreaterThan" => (Test::Date(Order::Greater), false),
        "DateGreaterThanEquals" => (Test::Date(Order::GreaterOrEqual), false),
        "Bool" => (Test::Bool, false),
        "BinaryEquals" => (Test::Binary, false),
        "IpAddress" => (Test::Address, false),
        "NotIpAddress" => (Test::Address, true),
        "ArnEquals" | "ArnLike" => (Test::Arn, false),
        "ArnNotEquals" | "ArnNotLike" => (Test::Arn, true),
        "Null" => (Test::Null, false),
        _ => return None,
    })
}

impl Test {
    /// Whether a value of a policy can be compared at all.
    fn takes(self, value: &str) -> bool {
        match self {
            Self::Text { .. } | Self::Arn | Self::Binary => true,
            Self::Number(_) => number(value).is_some(),
            Self::Date(_) => date(value).is_some(),
            Self::Bool | Self::Null => flag(value).is_some(),
            Self::Address => network(value).is_some(),
        }
    }

    fn fits(self, value: &str, wanted: &str, context: &Context) -> bool {
        match self {
            Self::Text { ignore_case, wild } => {
                pattern::fits_within(wanted, value, ignore_case, wild, context)
            }
            Self::Number(order) => {
                both(number(value), number(wanted)).is_some_and(|(a, b)| order.holds(a, b))
            }
            Self::Date(order) => both(date(value), date(wanted)).is_some_and(|(a, b)| order.holds(a, b)),
            Self::Bool => flag(value).is_some() && flag(value) == flag(wanted),
            Self::Binary => value == wanted,
            Self::Address => {
                let address = value.parse::<IpAddr>().ok().map(|address| address.to_canonical());
                both(address, network(wanted)).is_some_and(|(address, network)| contains(network, address))
            }
            Self::Arn => arn_fits(wanted, value, context),
            Self::Null => false,
        }
    }
}

impl Order {
    fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

fn both<A, B>(a: Option<A>, b: Option<B>) -> Option<(A, B)> {
    Some((a?, b?))
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

fn flag(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// Milliseconds since 1970, from ISO 8601 or from seconds.
fn date(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000);
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_millisecond());
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    let start = day.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(start.timestamp().as_millisecond())
}

/// An address and how many of its bits count.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some((address, bits))
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let wide = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    if network.is_ipv4() != address.is_ipv4() {
        return false;
    }
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - u32::from(bits)) };
    wide(network) & mask == wide(address) & mask
}

/// Networks as wide as a large part of the world name nobody.
fn is_narrow(text: &str) -> bool {
    network(text).is_some_and(|(address, bits)| if address.is_ipv4() { bits >= 8 } else { bits >= 32 })
}

/// Each part between the colons fits on its own; the sixth takes the rest.
fn arn_fits(pattern: &str, arn: &str, context: &Context) -> bool {
    let (wanted, parts): (Vec<&str>, Vec<&str>) =
        (pattern.splitn(6, ':').collect(), arn.splitn(6, ':').collect());
    wanted.len() == 6
        && parts.len() == 6
        && wanted
            .iter()
            .zip(&parts)
            .all(|(wanted, part)| pattern::fits_within(wanted, part, false, true, context))
}
