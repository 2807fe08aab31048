//! Parts of lists: limit, cursor, and the filters that several resources share.

use model::constraint::Labels;
use model::{Error, Result, shown};

pub const LIMIT_DEFAULT: usize = 100;
pub const LIMIT_MAX: usize = 1000;
/// Longest value of a filter.
const FILTER_MAX: usize = 512;

/// What a list was asked for. Fields that a list does not know are refused by name.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pub limit: usize,
    pub after: Option<String>,
    filters: Vec<(String, String)>,
}

impl Query {
    /// `known` are the filters of this list.
    pub fn parse(pairs: &[(String, String)], known: &[&str]) -> Result<Self> {
        let mut query = Self { limit: LIMIT_DEFAULT, ..Self::default() };
        for (field, value) in pairs {
            if value.len() > FILTER_MAX {
                return Err(Error::invalid(format!("{field} is longer than {FILTER_MAX} bytes")).at(field));
            }
            match field.as_str() {
                "limit" => query.limit = limit_parse(value)?,
                "after" => query.after = Some(value.clone()),
                "tenant" => {}
                name if known.contains(&name) => query.filters.push((field.clone(), value.clone())),
                _ => {
                    return Err(Error::invalid(format!(
                        "there is no parameter '{}' here; there are limit, after, tenant{}{}",
                        shown(field),
                        if known.is_empty() { "" } else { ", " },
                        known.join(", ")
                    ))
                    .at(field));
                }
            }
        }
        Ok(query)
    }

    pub fn get(&self, field: &str) -> Option<&str> {
        self.filters.iter().rev().find(|(f, _)| f == field).map(|(_, value)| value.as_str())
    }

    /// A value that must parse.
    pub fn parsed<T: serde::de::DeserializeOwned>(&self, field: &str) -> Result<Option<T>> {
        let Some(text) = self.get(field) else { return Ok(None) };
        serde_json::from_value(serde_json::Value::String(text.to_owned()))
            .map(Some)
            .map_err(|error| Error::invalid(format!("{field}: {error}")).at(field))
    }

    /// `label=key=value` pairs, all of which must hold; `label=key` asks for the key alone.
    pub fn labels(&self) -> Vec<(&str, Option<&str>)> {
        self.filters
            .iter()
            .filter(|(field, _)| field == "label")
            .map(|(_, text)| text.split_once('=').map_or((text.as_str(), None), |(k, v)| (k, Some(v))))
            .collect()
    }
}

fn limit_parse(text: &str) -> Result<usize> {
    text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)).ok_or_else(|| {
        Error::invalid(format!("limit must be a number from 1 to {LIMIT_MAX}, not '{}'", shown(text)))
            .at("limit")
    })
}

pub fn labels_match(labels: &Labels, wanted: &[(&str, Option<&str>)]) -> bool {
    wanted.iter().all(|(key, value)| match labels.get(*key) {
        Some(found) => value.is_none_or(|value| value == found),
        None => false,
    })
}

/// Cuts what was collected beyond the limit and gives the cursor of the next page.
pub fn cut<T>(items: &mut Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Option<String> {
    if items.len() <= limit {
        return None;
    }
    items.truncate(limit);
    items.last().map(cursor)
}

/// Whether `text` fits a pattern in which `*` stands for anything. A list asks it for every name there is.
pub fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(head).and_then(|text| text.strip_suffix(tail)) else {
        return false;
    };
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, fits) in [
            ("web", "web", true),
            ("web", "web-1", false),
            ("web*", "web-1", true),
            ("*-1", "web-1", true),
            ("w*b*1", "web-1", true),
            ("w*w", "w", false),
            ("a*b*c", "acb", false),
            ("a*b*b", "ab", false),
            ("a**c", "abc", true),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn unknown_parameters_are_named() {
        let pair = |k: &str, v: &str| vec![(k.to_owned(), v.to_owned())];
        assert_eq!(
            Query::parse(&pair("phse", "x"), &["phase"]).expect_err("refused").field.as_deref(),
            Some("phse")
        );
        assert!(Query::parse(&pair("limit", "0"), &[]).is_err());
        assert!(Query::parse(&pair("limit", "1001"), &[]).is_err());
        let query = Query::parse(&pair("label", "app=db"), &["label"]).expect("parses");
        assert_eq!(query.labels(), [("app", Some("db"))]);
    }
}
