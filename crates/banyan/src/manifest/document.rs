//! Text into documents: YAML with several of them, or JSON. Every field has a line to be told with.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::flaw::Flaw;

/// One document of a file.
pub struct Document<'a> {
    pub value: Value,
    /// Its number in the file, from 1.
    pub number: usize,
    text: &'a str,
    /// Which of the YAML stream it is.
    index: usize,
    /// Which of a list, when the file has a list of documents.
    item: Option<usize>,
    /// Fields that stand there more than once.
    twins: Vec<String>,
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// All documents of a text; empty ones are left out.
pub fn documents<'a>(text: &'a str, label: &str) -> Result<Vec<Document<'a>>, Box<Flaw>> {
    let mut found = Vec::new();
    let wrong = |line: Option<usize>, sentence: String| Box::new(Flaw::at_line(label, line, sentence));
    if is_json(text) {
        let twins = RefCell::default();
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = Whole { path: String::new(), twins: &twins }.deserialize(&mut reader);
        let value = value.and_then(|value| reader.end().map(|()| value));
        let value = value
            .map_err(|error| wrong(Some(error.line()), format!("this is not JSON: {}", plain(&error))))?;
        take(&mut found, text, 0, value, twins.into_inner());
    } else {
        for (index, reader) in yaml_serde::Deserializer::from_str(text).enumerate() {
            let twins = RefCell::default();
            let value = Whole { path: String::new(), twins: &twins }.deserialize(reader);
            let value = value.map_err(|error| {
                let line = error.location().map(|at| at.line());
                wrong(line, format!("this is not YAML: {}", plain(&error)))
            })?;
            take(&mut found, text, index, value, twins.into_inner());
        }
    }
    found.iter_mut().enumerate().for_each(|(index, document)| document.number = index + 1);
    found.retain(|document| !document.value.is_null());
    Ok(found)
}

/// An error of a reader without the position, which is told apart.
fn plain(error: &impl ToString) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    text.to_owned()
}

fn take<'a>(found: &mut Vec<Document<'a>>, text: &'a str, index: usize, value: Value, twins: Vec<String>) {
    let Value::Array(items) = value else {
        found.push(Document { value, number: 0, text, index, item: None, twins });
        return;
    };
    for (item, value) in items.into_iter().enumerate() {
        let inside = |path: &String| {
            let rest = path.strip_prefix(&format!("[{item}]"))?;
            Some(rest.trim_start_matches('.').to_owned())
        };
        let twins = twins.iter().filter_map(inside).collect();
        found.push(Document { value, number: 0, text, index, item: Some(item), twins });
    }
}

impl Document<'_> {
    /// The line of a field, or of what it would be in, from 1.
    pub fn line(&self, path: &str) -> Option<usize> {
        self.line_of(path, 0)
    }

    fn line_of(&self, path: &str, skip: usize) -> Option<usize> {
        let mut path = path;
        loop {
            let whole = match self.item {
                Some(item) if path.is_empty() || path.starts_with('[') => format!("[{item}]{path}"),
                Some(item) => format!("[{item}].{path}"),
                None => path.to_owned(),
            };
            if let Some(line) = self.seek(&whole, skip) {
                return Some(line);
            }
            path = &path[..path.rfind(['.', '[']).unwrap_or(0)];
            if whole.is_empty() || (path.is_empty() && self.item.is_some()) {
                return None;
            }
        }
    }

    /// A reader tells the place where it fails, so it is made to fail at the field.
    fn seek(&self, path: &str, skip: usize) -> Option<usize> {
        let skip = Cell::new(skip);
        let seek = Seek { rest: path, skip: &skip };
        if is_json(self.text) {
            let mut reader = serde_json::Deserializer::from_str(self.text);
            return seek.deserialize(&mut reader).err().map(|error| error.line());
        }
        let reader = yaml_serde::Deserializer::from_str(self.text).nth(self.index)?;
        seek.deserialize(reader).err().and_then(|error| error.location()).map(|at| at.line())
    }

    /// The fields that stand there more than once, each with the line of the second.
    pub fn twins(&self) -> impl Iterator<Item = (&str, Option<usize>)> {
        self.twins.iter().map(|path| (path.as_str(), self.line_of(path, 1)))
    }
}

/// Reads any value, and notes fields that stand there twice.
struct Whole<'a> {
    path: String,
    twins: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        let number = Number::from_f64(number);
        number.map(Value::Number).ok_or_else(|| E::custom("infinity and not-a-number are not possible"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, values.len());
            match items.next_element_seed(Whole { path, twins: self.twins })? {
                Some(value) => values.push(value),
                None => return Ok(Value::Array(values)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key_seed(Key)? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.twins.borrow_mut().push(path.clone());
            }
            let value = fields.next_value_seed(Whole { path, twins: self.twins })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The name of a field. Numbers and the like are names too, as they are written.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<String, E> {
        Ok(flag.to_string())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

/// Fails where the field of a path is.
#[derive(Clone, Copy)]
struct Seek<'a> {
    rest: &'a str,
    /// How many fields of that name are passed over first.
    skip: &'a Cell<usize>,
}

impl Seek<'_> {
    fn found<E: serde::de::Error>(self) -> Result<(), E> {
        if self.rest.is_empty() { Err(E::custom("here")) } else { Ok(()) }
    }

    /// What is left of the path inside the field of this name, if it leads there.
    fn inside(self, key: &str) -> Option<Self> {
        let rest = self.rest.strip_prefix(key)?;
        let inner = rest.strip_prefix('.').or_else(|| rest.starts_with('[').then_some(rest))?;
        Some(Self { rest: inner, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.found()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.found()
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.found()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.found()
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.found()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.found()
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.found()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.found()?;
        let wanted = self.rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let index = wanted.and_then(|(index, _)| index.parse::<usize>().ok());
        for at in 0.. {
            let there = match (wanted, index) {
                (Some((_, rest)), Some(index)) if index == at => {
                    let rest = rest.strip_prefix('.').unwrap_or(rest);
                    items.next_element_seed(Self { rest, ..self })?.is_some()
                }
                _ => items.next_element::<IgnoredAny>()?.is_some(),
            };
            if !there {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.found()?;
        while let Some(inside) = fields.next_key_seed(SeekKey(self))? {
            match inside {
                Some(seek) => fields.next_value_seed(seek)?,
                None => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Fails at the name of the field that a path ends with.
struct SeekKey<'a>(Seek<'a>);

impl<'a> SeekKey<'a> {
    fn key<E: serde::de::Error>(self, key: &str) -> Result<Option<Seek<'a>>, E> {
        if key != self.0.rest {
            return Ok(self.0.inside(key));
        }
        match self.0.skip.get() {
            0 => Err(E::custom("here")),
            left => {
                self.0.skip.set(left - 1);
                Ok(None)
            }
        }
    }
}

impl<'de, 'a> DeserializeSeed<'de> for SeekKey<'a> {
    type Value = Option<Seek<'a>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'_> for SeekKey<'a> {
    type Value = Option<Seek<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        self.key(&flag.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.key(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.key(&number.to_string())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.key(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const YAML: &str = "kind: App\nspec:\n  a.b/c: 1\n  list:\n    - x: 1\n    - x: 2\n      y: 3\n---\n\n---\nkind: Other\nspec:\n  env:\n    A: 1\n    80: x\n    A: 2\n";

    #[test]
    fn every_field_has_its_line() {
        let found = documents(YAML, "a").unwrap();
        assert_eq!(found.iter().map(|document| document.number).collect::<Vec<_>>(), [1, 3]);
        for (path, line) in [
            ("kind", 1),
            ("spec", 2),
            ("spec.a.b/c", 3),
            ("spec.list[1]", 6),
            ("spec.list[1].y", 7),
            ("spec.list[1].missing", 6),
            ("spec.missing.deeper", 2),
            ("", 1),
        ] {
            assert_eq!(found[0].line(path), Some(line), "{path}");
        }
        assert_eq!(found[1].line("spec.env.80"), Some(15));
        assert_eq!(found[1].value["spec"]["env"]["80"], "x");
        assert_eq!(found[1].twins().collect::<Vec<_>>(), [("spec.env.A", Some(16))]);
    }

    #[test]
    fn json_has_lines_too() {
        let found = documents("[\n{\"kind\":\n1},\n{\"a\":{\"b\":2,\n\"b\":3}}]", "a").unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].line("kind"), found[1].line("a.b")), (Some(2), Some(4)));
        assert_eq!(found[1].twins().collect::<Vec<_>>(), [("a.b", Some(5))]);
    }

    #[test]
    fn what_cannot_be_read_has_its_line() {
        for (text, line) in
            [("a: 1\nb: [", "a:"), ("{\n\"a\": x}", "a:2"), ("a: .nan", "a:1"), ("a: !x 1", "a:1")]
        {
            let flaw = documents(text, "a").err().unwrap();
            assert!(flaw.line().starts_with(line), "{}", flaw.line());
        }
    }
}
