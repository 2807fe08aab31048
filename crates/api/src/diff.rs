//! What differs between what is there and what is asked for, as lines for people.

use serde_json::Value;

/// One field: its path, and its value before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub path: String,
    pub old: Option<Value>,
    pub new: Option<Value>,
}

/// Every leaf that differs, in the order of its path.
pub fn diff(old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    walk("", Some(old), Some(new), &mut found);
    found
}

fn walk(path: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    let object = |value: Option<&Value>| value.is_none_or(Value::is_object);
    if object(old) && object(new) {
        let empty = serde_json::Map::new();
        let map = |value: Option<&Value>| {
            value.and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone())
        };
        let (old, new) = (map(old), map(new));
        let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            walk(&inner, old.get(key), new.get(key), found);
        }
        return;
    }
    found.push(Difference { path: path.to_owned(), old: old.cloned(), new: new.cloned() });
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = &self.path;
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => write!(f, "~ {path}: {old} -> {new}"),
            (None, Some(new)) => write!(f, "+ {path}: {new}"),
            (Some(old), None) => write!(f, "- {path}: {old}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(old: Value, new: Value, expect: &[&str]) {
        let found: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn only_what_differs_is_named() {
        check(json!({"a": 1}), json!({"a": 1}), &[]);
        check(
            json!({"cpu": "0.25", "env": {"A": "1", "B": "2"}, "user": "x"}),
            json!({"cpu": "0.5", "env": {"A": "1", "C": "3"}}),
            &["~ cpu: \"0.25\" -> \"0.5\"", "- env.B: \"2\"", "+ env.C: \"3\"", "- user: \"x\""],
        );
        check(
            json!({"command": ["a"]}),
            json!({"command": ["a", "b"]}),
            &["~ command: [\"a\"] -> [\"a\",\"b\"]"],
        );
        check(json!({}), json!({"gpu": {"count": 1}}), &["+ gpu.count: 1"]);
    }
}
