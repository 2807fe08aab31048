//! JSON into types, telling everything that is wrong with it at once, each with its path and in words for people.
//!
//! A reader of types stops at the first fault. Here that fault is told, the place is mended (the field is
//! left out, or gets a stand-in where it must be there) and the whole is read again, until it can be read.
//! What was mended is in doubt: nothing more is said of it.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

use crate::{Error, Fault, Faults, Result, shown};

/// Most times that a value is mended and read again.
const ROUNDS_MAX: usize = 200;
/// Most names that are listed in a sentence.
const NAMES_SHOWN: usize = 24;

/// A body of a request.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    // An absent body reads as an empty object, which says best what is missing.
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if !error.is_data() {
        return Err(Error::invalid(format!("the body is not JSON: {error}")));
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("the body is not JSON: {error}")))?;
    from_value::<T>(&value, |_| Ok(()))?;
    // What a plain value may be and a type may not: the same field twice.
    let text = error.to_string();
    let twice = quoted(&text).next().filter(|_| text.starts_with("duplicate field"));
    Err(match twice {
        Some(field) => Error::invalid(format!("the field '{}' is given twice", shown(field))).at(field),
        None => Error::invalid(text),
    })
}

/// A value, read and checked. The check also looks at what could only be read in part.
pub fn from_value<T: DeserializeOwned>(value: &Value, check: impl FnOnce(&T) -> Result<()>) -> Result<T> {
    if let Ok(found) = T::deserialize(value) {
        return check(&found).map(|()| found);
    }
    let mut mending = Mending { value: value.clone(), faults: Faults::default(), doubtful: Vec::new() };
    for _ in 0..ROUNDS_MAX {
        let error = match serde_path_to_error::deserialize::<_, T>(&mending.value) {
            Ok(found) => {
                mending.take(check(&found));
                break;
            }
            Err(error) => error,
        };
        let steps = steps(error.path());
        if !mending.mend::<T>(steps, &error.into_inner().to_string()) {
            break;
        }
    }
    Err(mending.faults.done().err().unwrap_or_else(|| Error::invalid("this cannot be read")))
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
    /// The one key of an object that says which of several it is.
    Variant(String),
}

fn steps(path: &Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { variant } => Some(Step::Variant(variant.clone())),
        Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

fn text_of(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Step::Index(index) => text += &format!("[{index}]"),
            Step::Key(key) | Step::Variant(key) => {
                text += if text.is_empty() { "" } else { "." };
                text += key;
            }
        }
    }
    text
}

/// What a field is called in a sentence about it.
fn subject(steps: &[Step]) -> String {
    let name = steps.iter().rposition(|step| !matches!(step, Step::Index(_))).unwrap_or(0);
    match steps.is_empty() {
        true => "this".to_owned(),
        false => shown(&text_of(&steps[name..])),
    }
}

fn find<'a>(value: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Key(key) | Step::Variant(key) => value.get_mut(key),
        Step::Index(index) => value.get_mut(index),
    })
}

struct Mending {
    value: Value,
    faults: Faults,
    doubtful: Vec<String>,
}

impl Mending {
    fn doubts(&self, path: &str) -> bool {
        self.doubtful.iter().any(|mended| match path.strip_prefix(mended.as_str()) {
            Some(rest) => mended.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']),
            None => false,
        })
    }

    fn tell(&mut self, steps: &[Step], sentence: impl Into<String>) {
        let path = text_of(steps);
        if !self.doubts(&path) {
            self.faults.add(&path, sentence);
        }
        self.doubtful.push(path);
    }

    /// Adds what a check found of what is not in doubt.
    fn take(&mut self, checked: Result<()>) {
        let faults = checked.err().map(|error| error.faults()).unwrap_or_default();
        for fault in faults {
            if !self.doubts(fault.field.as_deref().unwrap_or_default()) {
                self.faults.push(fault);
            }
        }
    }

    /// Tells one fault and mends it; false where that is not possible.
    fn mend<T: DeserializeOwned>(&mut self, mut steps: Vec<Step>, text: &str) -> bool {
        let mut names = quoted(text);
        if text.starts_with("missing field") {
            let field = names.next().unwrap_or_default();
            steps.push(Step::Key(field.to_owned()));
            self.tell(&steps, format!("'{}' is missing", shown(field)));
            return self.stand_in::<T>(&steps) || self.leave_out::<T>(steps);
        }
        if text.starts_with("unknown field") {
            let field = names.next().unwrap_or_default().to_owned();
            if steps.last() != Some(&Step::Key(field.clone())) {
                steps.push(Step::Key(field.clone()));
            }
            self.tell(&steps, unknown_field(&field, &names.collect::<Vec<_>>()));
            return self.leave_out::<T>(steps);
        }
        let sentence = match text.starts_with("unknown variant") {
            true => unknown_word(names.next().unwrap_or_default(), &names.collect::<Vec<_>>()),
            false => match find(&mut self.value, &steps).zip(expected(text)) {
                Some((value, expected)) => format!("{} {}", subject(&steps), mismatch(&expected, value)),
                None => text.to_owned(),
            },
        };
        self.tell(&steps, sentence);
        self.leave_out::<T>(steps)
    }

    /// Takes a part out; what cannot be taken out alone goes with what it is in.
    fn leave_out<T: DeserializeOwned>(&mut self, mut steps: Vec<Step>) -> bool {
        loop {
            self.doubtful.push(text_of(&steps));
            if matches!(steps.last(), Some(Step::Index(_))) && self.stand_in::<T>(&steps) {
                return true;
            }
            let Some(last) = steps.pop() else { return false };
            if let (Step::Key(key), Some(Value::Object(fields))) = (last, find(&mut self.value, &steps))
                && fields.remove(&key).is_some()
            {
                return true;
            }
        }
    }

    /// Puts something there that can be read, if there is such a thing.
    fn stand_in<T: DeserializeOwned>(&mut self, steps: &[Step]) -> bool {
        let Some((last, outer)) = steps.split_last() else { return false };
        let mut words = vec![Value::from("a"), 1.into(), Value::Array(Vec::new()), true.into()];
        words.push(Value::Object(Default::default()));
        while let Some(word) = (!words.is_empty()).then(|| words.remove(0)) {
            match (find(&mut self.value, outer), last) {
                (Some(Value::Object(fields)), Step::Key(key)) => drop(fields.insert(key.clone(), word)),
                (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => {
                    items[*index] = word
                }
                _ => return false,
            }
            let Err(error) = serde_path_to_error::deserialize::<_, T>(&self.value) else { return true };
            let at = self::steps(error.path());
            let text = error.into_inner().to_string();
            if at != steps || text.starts_with("missing field") {
                return true;
            }
            if text.starts_with("unknown variant") && words.len() == 4 {
                words.extend(quoted(&text).nth(1).map(Value::from));
            }
        }
        if let (Some(Value::Object(fields)), Step::Key(key)) = (find(&mut self.value, outer), last) {
            fields.remove(key);
        }
        false
    }
}

/// The parts of a text that stand between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What a reader says that it expected, in words for people.
fn expected(text: &str) -> Option<String> {
    let (found, wanted) = text.strip_prefix("invalid ")?.split_once(", expected ")?;
    let range = |most: &str| match found.starts_with("value") {
        true => format!("a whole number, 0 to {most}"),
        false => "a whole number".to_owned(),
    };
    Some(match wanted {
        "u8" => range("255"),
        "u16" => range("65535"),
        "u32" => range("4294967295"),
        "u64" | "usize" => range("18446744073709551615"),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "string or map" | "path string" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" | "struct variant" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    })
}

/// Says what a value must be, and what it is.
pub fn mismatch(expected: &str, value: &Value) -> String {
    let kind = match value {
        Value::Null => return format!("must be {expected}, and is empty"),
        Value::Array(_) => return format!("must be {expected}, not a list"),
        Value::Object(_) => return format!("must be {expected}, not an object"),
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
    };
    let text: String = value.to_string().chars().take(40).collect();
    let quotes = match value {
        Value::Bool(_) | Value::Number(_) if expected == "a text" => format!("; write \"{text}\""),
        _ => String::new(),
    };
    format!("must be {expected}, not {kind} ({text}){quotes}")
}

/// Says that there is no such field, and which was meant or which there are.
pub fn unknown_field(field: &str, known: &[&str]) -> String {
    let field_shown = shown(field);
    match (nearest(field, known), known.is_empty()) {
        (Some(near), _) => format!("there is no field '{field_shown}' here; did you mean '{near}'?"),
        (None, true) => format!("there is no field '{field_shown}' here"),
        (None, false) => {
            let are = if known.len() == 1 { "is only" } else { "are" };
            format!("there is no field '{field_shown}' here; there {are} {}", listed(known, "and"))
        }
    }
}

fn unknown_word(word: &str, known: &[&str]) -> String {
    format!("'{}' is not possible here: write {}", shown(word), listed(known, "or"))
}

/// `a, b or c`.
fn listed(names: &[&str], last: &str) -> String {
    let mut names: Vec<&str> = names.to_vec();
    if names.len() > NAMES_SHOWN {
        names.truncate(NAMES_SHOWN);
        names.push("others");
    }
    match names.split_last() {
        Some((end, rest)) if !rest.is_empty() => format!("{} {last} {end}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The known name that was likely meant.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let small = name.to_lowercase().replace(['-', ' '], "_");
    let far = |other: &str| strsim::osa_distance(&small, other);
    let best = known.iter().copied().min_by_key(|other| far(other))?;
    (far(best) <= (best.len() / 3).max(1)).then_some(best)
}

/// A fault as one line: where, then what.
pub fn line(fault: &Fault) -> String {
    match &fault.field {
        Some(field) => format!("{field}: {}", fault.message),
        None => fault.message.clone(),
    }
}
