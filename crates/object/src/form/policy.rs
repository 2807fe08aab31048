//! The policy of a form: what its fields may be, signed by who allows the upload.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use s3s::S3ErrorCode;
use s3s::dto::{Timestamp, TimestampFormat};
use serde::Deserialize;
use serde_json::Value;

use crate::fault::{Fault, Result};
use crate::time::millis;

/// The most conditions of one policy.
const CONDITIONS_MAX: usize = 100;

#[derive(Debug)]
pub struct Policy {
    conditions: Vec<Condition>,
    /// Fewest and most bytes of the file.
    pub sizes: (u64, u64),
}

#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Equal { field: String, value: String },
    StartsWith { field: String, prefix: String },
}

#[derive(Deserialize)]
struct Document {
    expiration: String,
    conditions: Vec<Value>,
}

impl Policy {
    /// No policy: anything goes that an anonymous caller may do.
    pub fn none() -> Self {
        Self { conditions: Vec::new(), sizes: (0, u64::MAX) }
    }

    /// Reads a policy as the form carries it. `now` is milliseconds since 1970.
    pub fn parse(encoded: &str, now: i64) -> Result<Self> {
        let text = STANDARD.decode(encoded.trim()).map_err(|_| invalid("it is not base64"))?;
        let document: Document =
            serde_json::from_slice(&text).map_err(|_| invalid("it must have expiration and conditions"))?;
        // The parser would take a blank between date and time.
        let exact = document.expiration.as_bytes().get(10) == Some(&b'T');
        let text = if exact { document.expiration.as_str() } else { "" };
        let expiration = Timestamp::parse(TimestampFormat::DateTime, text);
        let expiration = expiration.map_err(|_| invalid("its expiration is not an ISO 8601 date"))?;
        if millis(&expiration) <= now {
            return Err(refused("Policy expired."));
        }
        if document.conditions.len() > CONDITIONS_MAX {
            return Err(invalid("it has too many conditions"));
        }
        let mut policy = Self::none();
        for condition in &document.conditions {
            policy.add(condition).ok_or_else(|| invalid("it has a condition that is not understood"))?;
        }
        Ok(policy)
    }

    fn add(&mut self, condition: &Value) -> Option<()> {
        let field = |name: &str| name.strip_prefix('$').unwrap_or(name).to_ascii_lowercase();
        match condition {
            Value::Object(map) => {
                let mut pairs = map.iter();
                let ((name, value), None) = (pairs.next()?, pairs.next()) else { return None };
                let value = value.as_str()?.to_owned();
                self.conditions.push(Condition::Equal { field: field(name), value });
            }
            Value::Array(items) => {
                let [operator, first, second] = items.as_slice() else { return None };
                match operator.as_str()?.to_ascii_lowercase().as_str() {
                    "eq" => {
                        let (field, value) = (field(first.as_str()?), second.as_str()?.to_owned());
                        self.conditions.push(Condition::Equal { field, value });
                    }
                    "starts-with" => {
                        let (field, prefix) = (field(first.as_str()?), second.as_str()?.to_owned());
                        self.conditions.push(Condition::StartsWith { field, prefix });
                    }
                    "content-length-range" => {
                        let (min, max) = (number(first)?, number(second)?);
                        self.sizes = (self.sizes.0.max(min), self.sizes.1.min(max));
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Every condition must hold, and every field must be named by one.
    pub fn check(&self, fields: &[(String, String)]) -> Result<()> {
        let value =
            |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
        for condition in &self.conditions {
            let holds = match condition {
                Condition::Equal { field, value: wanted } => value(field) == Some(wanted.as_str()),
                // An empty start lets a field be anything, also absent.
                Condition::StartsWith { field, prefix } => {
                    value(field).unwrap_or_default().starts_with(prefix.as_str())
                }
            };
            if !holds {
                return Err(refused(&format!("Policy Condition failed: {}", condition.text())));
            }
        }
        for (name, _) in fields {
            if !is_exempt(name) && !self.conditions.iter().any(|condition| condition.field() == name) {
                return Err(refused(&format!("Extra input fields: {name}")));
            }
        }
        Ok(())
    }
}

impl Condition {
    fn field(&self) -> &str {
        match self {
            Self::Equal { field, .. } | Self::StartsWith { field, .. } => field,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Equal { field, value } => format!("[\"eq\", \"${field}\", \"{value}\"]"),
            Self::StartsWith { field, prefix } => format!("[\"starts-with\", \"${field}\", \"{prefix}\"]"),
        }
    }
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
}

/// Fields that carry the proof itself or say nothing about the object.
fn is_exempt(name: &str) -> bool {
    matches!(name, "awsaccesskeyid" | "signature" | "x-amz-signature" | "policy" | "file" | "submit")
        || name.starts_with("x-ignore-")
        || name.starts_with("x-amz-checksum-")
}

fn invalid(reason: &str) -> Fault {
    Fault::new(S3ErrorCode::InvalidPolicyDocument, format!("Invalid Policy: {reason}."))
}

fn refused(reason: &str) -> Fault {
    Fault::new(S3ErrorCode::AccessDenied, format!("Invalid according to Policy: {reason}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    const DATE: &str = "2030-01-01T00:00:00Z";

    fn parse(document: &Value) -> Result<Policy> {
        Policy::parse(&STANDARD.encode(document.to_string()), 0)
    }

    fn code(result: Result<impl std::fmt::Debug>) -> S3ErrorCode {
        match result.unwrap_err() {
            Fault::S3(code, _) => code,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_not_a_policy_is_told_apart() {
        let good = json!({"expiration": DATE, "conditions": []});
        assert!(parse(&good).is_ok());
        for bad in [
            json!({"expiration": DATE}),
            json!({"conditions": []}),
            json!({"EXPIRATION": DATE, "conditions": []}),
            json!({"expiration": "tomorrow", "conditions": []}),
            json!({"expiration": "2030-01-01 00:00:00+00:00", "conditions": []}),
            json!({"expiration": DATE, "conditions": [{}]}),
            json!({"expiration": DATE, "conditions": [{"a": "b", "c": "d"}]}),
            json!({"expiration": DATE, "conditions": [["content-length-range", 0]]}),
            json!({"expiration": DATE, "conditions": [["content-length-range", -1, 0]]}),
            json!({"expiration": DATE, "conditions": [["ends-with", "$key", "x"]]}),
        ] {
            assert_eq!(code(parse(&bad)), S3ErrorCode::InvalidPolicyDocument, "{bad}");
        }
        let expired = Policy::parse(&STANDARD.encode(good.to_string()), i64::MAX);
        assert_eq!(code(expired), S3ErrorCode::AccessDenied);
    }

    #[test]
    fn conditions_hold_and_name_every_field() {
        let policy = parse(&json!({"expiration": DATE, "conditions": [
            {"bUcket": "b"}, ["StArTs-WiTh", "$Key", "foo"], ["eq", "$acl", "private"],
            ["content-length-range", 1, 10],
        ]}))
        .unwrap();
        assert_eq!(policy.sizes, (1, 10));
        let fields = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let good = [("bucket", "b"), ("key", "foo.txt"), ("acl", "private")];
        let with = |more: &[(&str, &str)]| policy.check(&fields(&[&good[..], more].concat()));
        assert!(with(&[]).is_ok());
        assert!(with(&[("x-ignore-me", "1"), ("policy", "x"), ("x-amz-checksum-sha1", "x")]).is_ok());
        assert!(with(&[("x-amz-meta-a", "1")]).is_err());
        assert!(policy.check(&fields(&good[..2])).is_err());
        assert!(policy.check(&fields(&[("bucket", "c"), ("key", "foo"), ("acl", "private")])).is_err());
        assert!(policy.check(&fields(&[("bucket", "b"), ("key", "bar"), ("acl", "private")])).is_err());
    }
}
