//! Reads policies, refusing what we would not obey.

use s3s::S3ErrorCode;
use serde_json::{Map, Value};

use super::condition::Condition;
use super::pattern;
use super::subject::Name;
use super::unique::Unique;
use super::{Names, Policy, Principals, Statement, actions};
use crate::fault::{Fault, Result};

/// The most bytes of a policy.
pub const SIZE_MAX: usize = 20 * 1024;
/// Characters of an unknown action that are told back.
const ACTION_SHOWN: usize = 80;

/// What a policy is for.
#[derive(Debug, Clone, Copy)]
pub enum For<'a> {
    /// The bucket of this name.
    Bucket(&'a str),
    /// Temporary credentials, which it narrows.
    Session,
    /// A bucket; checked when it was stored.
    Kept,
}

fn malformed(reason: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::MalformedPolicy, reason)
}

impl Policy {
    /// Reads and checks a policy that someone gives; `MalformedPolicy` says what is wrong with it.
    pub fn parse(text: &str, purpose: For<'_>) -> Result<Self> {
        if text.len() > SIZE_MAX {
            return Err(malformed("Policies must not be larger than 20 KB."));
        }
        if !text.trim_start().starts_with('{') {
            return Err(malformed("Policies must be valid JSON and the first byte must be '{'"));
        }
        let invalid =
            |error: serde_json::Error| malformed(format!("This policy contains invalid Json: {error}"));
        if !matches!(purpose, For::Kept) {
            serde_json::from_str::<Unique>(text).map_err(invalid)?;
        }
        let value: Value = serde_json::from_str(text).map_err(invalid)?;
        let Value::Object(policy) = value else { return Err(malformed("Invalid policy syntax.")) };
        for (field, value) in &policy {
            match field.as_str() {
                "Version" if value == "2012-10-17" || value == "2008-10-17" => {}
                "Version" => return Err(malformed("The policy must contain a valid version string")),
                "Id" if value.is_string() => {}
                "Statement" => {}
                "Id" => return Err(malformed("Id must be a string")),
                _ => return Err(malformed(format!("Unknown field {field}"))),
            }
        }
        let statements = match policy.get("Statement") {
            Some(Value::Array(statements)) => statements.iter().collect(),
            Some(statement @ Value::Object(_)) => vec![statement],
            Some(_) => return Err(malformed("Statement must be an object or a list of objects")),
            None => return Err(malformed("Missing required field Statement")),
        };
        if statements.is_empty() {
            return Err(malformed("Could not parse the policy: Statement is empty!"));
        }
        let statements =
            statements.into_iter().map(|value| statement(value, purpose)).collect::<Result<_>>()?;
        Ok(Self { statements })
    }

    /// Reads a policy that was checked when it was stored. One that cannot be read denies everything,
    /// so that only its owner can pass, to replace it.
    pub fn kept(text: &str) -> Self {
        Self::parse(text, For::Kept).unwrap_or_else(|error| {
            tracing::error!(%error, "a policy that was kept cannot be read; it denies everything");
            let all = || Names { except: false, patterns: vec!["*".to_owned()] };
            let deny = Statement {
                allow: false,
                principals: Principals::Only(vec![Name::Everyone]),
                actions: all(),
                resources: all(),
                conditions: Vec::new(),
            };
            Self { statements: vec![deny] }
        })
    }
}

fn statement(value: &Value, purpose: For<'_>) -> Result<Statement> {
    let Value::Object(fields) = value else { return Err(malformed("A statement must be an object")) };
    const KNOWN: [&str; 9] = [
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    ];
    if let Some(field) = fields.keys().find(|field| !KNOWN.contains(&field.as_str())) {
        return Err(malformed(format!("Unknown field {field}")));
    }
    if fields.get("Sid").is_some_and(|sid| !sid.is_string()) {
        return Err(malformed("Sid must be a string"));
    }
    let allow = match fields.get("Effect").map(Value::as_str) {
        Some(Some("Allow")) => true,
        Some(Some("Deny")) => false,
        Some(other) => return Err(malformed(format!("Invalid effect: {}", other.unwrap_or("not a string")))),
        None => return Err(malformed("Missing required field Effect")),
    };
    Ok(Statement {
        allow,
        principals: principals(fields, allow, purpose)?,
        actions: actions(fields, purpose)?,
        resources: resources(fields, purpose)?,
        conditions: conditions(fields.get("Condition"), purpose)?,
    })
}

fn principals(fields: &Map<String, Value>, allow: bool, purpose: For<'_>) -> Result<Principals> {
    match (fields.get("Principal"), fields.get("NotPrincipal"), purpose) {
        (None, None, For::Session) => Ok(Principals::Holder),
        (_, _, For::Session) => Err(malformed("The policy of a session names no Principal")),
        (Some(_), Some(_), _) => Err(malformed("Principal and NotPrincipal exclude each other")),
        (Some(value), None, _) => names(value).map(Principals::Only),
        (None, Some(_), _) if allow => Err(malformed("Allow with NotPrincipal is not allowed")),
        (None, Some(value), _) => names(value).map(Principals::Except),
        (None, None, _) => Err(malformed("Missing required field Principal")),
    }
}

fn names(value: &Value) -> Result<Vec<Name>> {
    let invalid = || malformed("Invalid principal in policy");
    let kinds = match value {
        Value::String(text) if text == "*" => return Ok(vec![Name::Everyone]),
        Value::Object(kinds) if !kinds.is_empty() => kinds,
        _ => return Err(invalid()),
    };
    let mut names = Vec::new();
    for (kind, value) in kinds {
        for text in strings(value, "Principal")? {
            names.push(match kind.as_str() {
                "AWS" => Name::parse_aws(&text).ok_or_else(invalid)?,
                "CanonicalUser" if !text.is_empty() => Name::Account(text),
                "Service" if !text.is_empty() => Name::Service(text),
                "Federated" if !text.is_empty() => Name::Stranger,
                _ => return Err(invalid()),
            });
        }
    }
    Ok(names)
}

fn actions(fields: &Map<String, Value>, purpose: For<'_>) -> Result<Names> {
    let names = one_of(fields, "Action", "NotAction")?;
    // What was kept before is not looked at again: it says nothing that could be asked.
    let odd = names.patterns.iter().find(|action| !actions::is_known(action));
    match odd.filter(|_| !matches!(purpose, For::Kept)) {
        Some(action) => {
            let action: String = action.chars().take(ACTION_SHOWN).collect();
            Err(malformed(format!("Policy has invalid action: {}", action.escape_debug())))
        }
        None => Ok(names),
    }
}

fn resources(fields: &Map<String, Value>, purpose: For<'_>) -> Result<Names> {
    let names = one_of(fields, "Resource", "NotResource")?;
    for resource in &names.patterns {
        let invalid = || malformed(format!("Policy has invalid resource: {resource}"));
        if resource == "*" {
            continue;
        }
        let path =
            resource.strip_prefix("arn:aws:s3:::").filter(|path| !path.is_empty()).ok_or_else(invalid)?;
        if let For::Bucket(bucket) = purpose {
            let named = path.split('/').next().unwrap_or(path);
            let fits = match named.split_once("${") {
                Some((fixed, _)) => bucket.starts_with(fixed),
                None => pattern::fits(named, bucket, false),
            };
            if !fits {
                return Err(invalid());
            }
        }
    }
    Ok(names)
}

fn conditions(value: Option<&Value>, purpose: For<'_>) -> Result<Vec<Condition>> {
    let mut conditions = Vec::new();
    let operators = match value {
        None => return Ok(conditions),
        Some(Value::Object(operators)) => operators,
        Some(_) => return Err(malformed("Condition must be an object")),
    };
    for (operator, keys) in operators {
        let Value::Object(keys) = keys else {
            return Err(malformed(format!("The condition {operator} must be an object")));
        };
        for (key, values) in keys {
            let values = strings(values, key)?;
            let condition = Condition::new(operator, key, values).map_err(malformed)?;
            if condition.is_deaf() && !matches!(purpose, For::Kept) {
                return Err(malformed(format!("The condition key {key} is not offered by this store")));
            }
            conditions.push(condition);
        }
    }
    Ok(conditions)
}

fn one_of(fields: &Map<String, Value>, plain: &str, except: &str) -> Result<Names> {
    let (value, except) = match (fields.get(plain), fields.get(except)) {
        (Some(value), None) => (value, false),
        (None, Some(value)) => (value, true),
        (None, None) => return Err(malformed(format!("Missing required field {plain}"))),
        (Some(_), Some(_)) => return Err(malformed(format!("{plain} and {except} exclude each other"))),
    };
    let patterns = strings(value, plain)?;
    if patterns.is_empty() {
        return Err(malformed(format!("{plain} is empty")));
    }
    Ok(Names { except, patterns })
}

/// A string or a list of them; numbers and booleans are taken as their text.
fn strings(value: &Value, field: &str) -> Result<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(malformed(format!("{field} must be a string or a list of strings"))),
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}
