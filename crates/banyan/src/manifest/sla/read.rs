//! Reading JSON with its path at hand. What is wrong is collected, so that all of it is told at once.

use std::collections::BTreeSet;

use api::read::mismatch;
use model::Faults;
use serde_json::{Map, Value};

/// The fields of one object. Those that nobody looked at are told in the end, by [`Fields::rest`].
pub struct Fields<'a> {
    map: &'a Map<String, Value>,
    pub path: String,
    seen: BTreeSet<&'static str>,
}

/// Zero, false, empty text and empty lists ask for nothing.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(asks),
        Value::Object(fields) => fields.values().any(asks),
    }
}

/// The paths inside a value that ask for something.
fn asking(path: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        _ if !asks(value) => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(key, inner)| asking(&format!("{path}.{key}"), inner, found));
        }
        _ => found.push(path.to_owned()),
    }
}

fn is_kind(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => kind == "true or false",
        Value::Number(_) => kind == "a number",
        Value::String(_) => kind == "a text",
        Value::Array(_) => kind == "a list",
        Value::Object(_) => kind == "an object",
    }
}

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value, path: impl Into<String>, faults: &mut Faults) -> Option<Self> {
        let path = path.into();
        match value {
            Value::Object(map) => Some(Self { map, path, seen: BTreeSet::new() }),
            value => {
                faults.add(&path, mismatch("an object", value));
                None
            }
        }
    }

    /// The path of a field of this object.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.seen.insert(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        faults: &mut Faults,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let found = read(value);
        if found.is_none() {
            faults.add(&self.at(key), mismatch(expected, value));
        }
        found
    }

    /// Says so when a field that must be there is not.
    pub fn needed(&mut self, key: &'static str, faults: &mut Faults) {
        if self.get(key).is_none() {
            faults.add(&self.at(key), format!("'{key}' is missing"));
        }
    }

    pub fn text(&mut self, key: &'static str, faults: &mut Faults) -> Option<&'a str> {
        self.read(key, "a text", faults, Value::as_str)
    }

    /// A text that names something; an empty one is none.
    pub fn word(&mut self, key: &'static str, faults: &mut Faults) -> Option<&'a str> {
        self.text(key, faults).filter(|text| !text.is_empty())
    }

    /// A whole number that is not negative; zero is none.
    pub fn count(&mut self, key: &'static str, faults: &mut Faults) -> Option<u64> {
        let whole = |value: &Value| match value.as_u64() {
            Some(number) => Some(number),
            None => value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n)).map(|n| n as u64),
        };
        self.read(key, "a whole number, zero or more", faults, whole).filter(|number| *number > 0)
    }

    /// A number that is not negative.
    pub fn number(&mut self, key: &'static str, faults: &mut Faults) -> Option<f64> {
        let read = |value: &Value| value.as_f64().filter(|number| *number >= 0.0);
        self.read(key, "a number, zero or more", faults, read)
    }

    pub fn flag(&mut self, key: &'static str, faults: &mut Faults) -> bool {
        self.read(key, "true or false", faults, Value::as_bool).unwrap_or(false)
    }

    /// The items of a list, each with its path.
    pub fn list(&mut self, key: &'static str, faults: &mut Faults) -> Vec<(String, &'a Value)> {
        let path = self.at(key);
        let items = self.read(key, "a list", faults, Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default().iter().enumerate();
        items.map(|(index, item)| (format!("{path}[{index}]"), item)).collect()
    }

    /// A text that is always the same; anything else is told with what it must be.
    pub fn constant(&mut self, key: &'static str, must_be: &str, faults: &mut Faults) -> bool {
        let expected = format!("\"{must_be}\"");
        match self.get(key) {
            None => {
                self.needed(key, faults);
                true
            }
            Some(Value::String(text)) if text == must_be => true,
            Some(Value::String(text)) => {
                faults.add(&self.at(key), format!("must be {expected}, not \"{}\"", model::shown(text)));
                false
            }
            Some(value) => {
                faults.add(&self.at(key), mismatch(&expected, value));
                false
            }
        }
    }

    pub fn texts(&mut self, key: &'static str, faults: &mut Faults) -> Vec<(String, &'a str)> {
        let mut texts = Vec::new();
        for (path, item) in self.list(key, faults) {
            match item.as_str() {
                Some(text) => texts.push((path, text)),
                None => faults.add(&path, mismatch("a text", item)),
            }
        }
        texts
    }

    /// Whatever these fields ask for cannot be given; `kind` is what they are by the schema.
    pub fn cannot(&mut self, keys: &[&'static str], kind: &str, sentence: &str, faults: &mut Faults) {
        for key in keys {
            let Some(value) = self.get(key) else { continue };
            let mut found = Vec::new();
            match is_kind(value, kind) {
                true => asking(&self.at(key), value, &mut found),
                false => faults.add(&self.at(key), mismatch(kind, value)),
            }
            found.iter().for_each(|path| faults.add(path, sentence));
        }
    }

    /// Fields that nobody looked at and that ask for something.
    pub fn rest(self, faults: &mut Faults) {
        for (key, value) in self.map.iter().filter(|(key, _)| !self.seen.contains(key.as_str())) {
            if asks(value) {
                let sentence = format!("'{}' is not a field of an SLA descriptor v2.0", model::shown(key));
                faults.add(&self.at(key), sentence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_no_ask() {
        for nothing in
            [json!(null), json!(0), json!(""), json!([]), json!({}), json!({"a": [0, ""]}), json!(false)]
        {
            assert!(!asks(&nothing), "{nothing}");
        }
        for something in [json!(1), json!("x"), json!([[1]]), json!({"a": {"b": true}})] {
            assert!(asks(&something), "{something}");
        }
    }

    #[test]
    fn faults_have_paths_and_say_what_was_found() {
        let value = json!({"a": 1, "b": "x", "c": [1, "t"], "d": 1.5, "e": {"f": {"g": 1, "h": 0}}, "z": 3});
        let mut faults = Faults::default();
        let mut fields = Fields::of(&value, "top", &mut faults).expect("an object");
        assert_eq!(fields.text("a", &mut faults), None);
        assert_eq!(fields.count("b", &mut faults), None);
        assert_eq!(fields.texts("c", &mut faults), [("top.c[1]".to_owned(), "t")]);
        assert_eq!(fields.count("d", &mut faults), None);
        fields.needed("missing", &mut faults);
        fields.cannot(&["e"], "an object", "no", &mut faults);
        fields.cannot(&["b"], "a list", "no", &mut faults);
        fields.rest(&mut faults);
        let lines: Vec<String> = faults.into_vec().iter().map(api::read::line).collect();
        assert_eq!(
            lines,
            [
                "top.a: must be a text, not a number (1); write \"1\"",
                "top.b: must be a whole number, zero or more, not a text (\"x\")",
                "top.c[0]: must be a text, not a number (1); write \"1\"",
                "top.d: must be a whole number, zero or more, not a number (1.5)",
                "top.missing: 'missing' is missing",
                "top.e.f.g: no",
                "top.b: must be a list, not a text (\"x\")",
                "top.z: 'z' is not a field of an SLA descriptor v2.0",
            ]
        );
    }
}
