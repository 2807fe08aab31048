//! Settings of buckets as documents: S3's XML on the wire, JSON or YAML with the names of the AWS tools for people.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Number, Value};

/// Lists as the tools name them, and the element that XML repeats for each entry.
const LISTS: [(&str, &str); 8] = [
    ("Rules", "Rule"),
    ("CORSRules", "CORSRule"),
    ("AllowedHeaders", "AllowedHeader"),
    ("AllowedMethods", "AllowedMethod"),
    ("AllowedOrigins", "AllowedOrigin"),
    ("ExposeHeaders", "ExposeHeader"),
    ("Transitions", "Transition"),
    ("NoncurrentVersionTransitions", "NoncurrentVersionTransition"),
];
/// A list that has an element of its own around it in XML.
const WRAPPED: (&str, &str) = ("RoutingRules", "RoutingRule");
/// Tags are a list only where several of them are asked for together.
const TAGS: (&str, &str, &str) = ("And", "Tags", "Tag");
/// Elements that hold others even when they are empty.
const HOLDERS: [&str; 2] = ["Filter", "And"];
const NUMBERS: [&str; 8] = [
    "Days",
    "NoncurrentDays",
    "NewerNoncurrentVersions",
    "DaysAfterInitiation",
    "ObjectSizeGreaterThan",
    "ObjectSizeLessThan",
    "MaxAgeSeconds",
    "MaxKeys",
];
const FLAGS: [&str; 6] = [
    "ExpiredObjectDeleteMarker",
    "BucketKeyEnabled",
    "BlockPublicAcls",
    "BlockPublicPolicy",
    "IgnorePublicAcls",
    "RestrictPublicBuckets",
];
/// How deep documents may be; S3's are not half as deep.
const DEPTH_MAX: usize = 16;

/// A document as XML under a root element.
pub fn to_xml(root: &str, document: &Value) -> Result<String, String> {
    let mut text = String::new();
    element(&mut text, root, document, 0)?;
    Ok(text)
}

fn element(text: &mut String, name: &str, value: &Value, depth: usize) -> Result<(), String> {
    let named = name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty();
    if !named || depth > DEPTH_MAX {
        return Err(format!("'{}' is not the name of a setting", name.escape_debug()));
    }
    text.push_str(&format!("<{name}>"));
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let entries = match value {
                    Value::Array(entries) => entries.as_slice(),
                    other => std::slice::from_ref(other),
                };
                if field == WRAPPED.0 {
                    text.push_str(&format!("<{field}>"));
                }
                for entry in entries {
                    element(text, singular(name, field), entry, depth + 1)?;
                }
                if field == WRAPPED.0 {
                    text.push_str(&format!("</{field}>"));
                }
            }
        }
        Value::Array(_) => return Err(format!("'{name}' holds a list in a list")),
        Value::Null => {}
        Value::String(word) => text.push_str(&quick_xml::escape::escape(word.as_str())),
        other => text.push_str(&other.to_string()),
    }
    text.push_str(&format!("</{name}>"));
    Ok(())
}

fn singular<'a>(parent: &str, field: &'a str) -> &'a str {
    if (parent, field) == (TAGS.0, TAGS.1) {
        return TAGS.2;
    }
    let lists = LISTS.iter().chain([&WRAPPED]);
    lists.into_iter().find(|(list, _)| *list == field).map_or(field, |(_, each)| each)
}

/// An element that is being read.
struct Open {
    name: String,
    fields: Map<String, Value>,
    text: String,
}

/// What stands under the root element.
pub fn from_xml(text: &str) -> Result<Value, String> {
    let mut reader = Reader::from_str(text);
    let mut path: Vec<Open> = Vec::new();
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) if path.len() <= DEPTH_MAX => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                path.push(Open { name, fields: Map::new(), text: String::new() });
            }
            Event::Start(_) => return Err("it is too deep".into()),
            Event::Empty(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                let open = Open { name, fields: Map::new(), text: String::new() };
                match path.last_mut() {
                    Some(parent) => parent.take(open),
                    None => return Ok(Value::Object(Map::new())),
                }
            }
            Event::End(_) => {
                let Some(open) = path.pop() else { return Err("it ends too early".into()) };
                match path.last_mut() {
                    Some(parent) => parent.take(open),
                    None => return Ok(Value::Object(open.fields)),
                }
            }
            Event::Text(words) => {
                let words = words.decode().map_err(|error| error.to_string())?;
                path.last_mut().into_iter().for_each(|open| open.text.push_str(&words));
            }
            Event::GeneralRef(name) => {
                let name = name.decode().map_err(|error| error.to_string())?;
                let meant = quick_xml::escape::unescape(&format!("&{name};")).map(|word| word.into_owned());
                let meant = meant.map_err(|error| error.to_string())?;
                path.last_mut().into_iter().for_each(|open| open.text.push_str(&meant));
            }
            Event::Eof => return Err("it has no end".into()),
            _ => {}
        }
    }
}

impl Open {
    fn take(&mut self, child: Open) {
        let of_tags = (self.name.as_str(), child.name.as_str()) == (TAGS.0, TAGS.2);
        let of_lists = LISTS.iter().find(|(_, each)| *each == child.name);
        let wrapped = self.name == WRAPPED.0 && child.name == WRAPPED.1;
        let list = if of_tags { Some(TAGS.1) } else { of_lists.map(|(list, _)| *list) };
        let (name, value) = (child.name.clone(), child.value());
        match (list, self.fields.get_mut(list.unwrap_or(&name))) {
            (_, Some(Value::Array(entries))) => entries.push(value),
            (_, Some(first)) => *first = Value::Array(vec![first.take(), value]),
            (Some(list), None) => drop(self.fields.insert(list.to_owned(), Value::Array(vec![value]))),
            (None, None) if wrapped => drop(self.fields.insert(name, Value::Array(vec![value]))),
            (None, None) => drop(self.fields.insert(name, value)),
        }
    }

    fn value(mut self) -> Value {
        let name = self.name.as_str();
        if name == WRAPPED.0 {
            return self.fields.remove(WRAPPED.1).unwrap_or_else(|| Value::Array(Vec::new()));
        }
        if !self.fields.is_empty() || HOLDERS.contains(&name) {
            return Value::Object(self.fields);
        }
        let number = NUMBERS.contains(&name).then(|| self.text.parse::<Number>().ok()).flatten();
        let flag = FLAGS.contains(&name).then(|| self.text.parse::<bool>().ok()).flatten();
        number.map(Value::Number).or(flag.map(Value::Bool)).unwrap_or(Value::String(self.text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn check(root: &str, document: Value, xml: &str) {
        assert_eq!(to_xml(root, &document).unwrap(), xml);
        assert_eq!(from_xml(xml).unwrap(), document);
    }

    #[test]
    fn documents_go_there_and_back() {
        check(
            "LifecycleConfiguration",
            json!({"Rules": [
                {"Expiration": {"Days": 30}, "Filter": {"And": {"Prefix": "a&b<", "Tags": [{"Key": "k", "Value": "1"}]}}, "ID": "007", "Status": "Enabled"},
                {"Expiration": {"ExpiredObjectDeleteMarker": true}, "Filter": {}, "Status": "Disabled"},
            ]}),
            "<LifecycleConfiguration><Rule><Expiration><Days>30</Days></Expiration><Filter><And><Prefix>a&amp;b&lt;</Prefix><Tag><Key>k</Key><Value>1</Value></Tag></And></Filter><ID>007</ID><Status>Enabled</Status></Rule><Rule><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration><Filter></Filter><Status>Disabled</Status></Rule></LifecycleConfiguration>",
        );
        check(
            "CORSConfiguration",
            json!({"CORSRules": [{"AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["*"], "MaxAgeSeconds": 5}]}),
            "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedOrigin>*</AllowedOrigin><MaxAgeSeconds>5</MaxAgeSeconds></CORSRule></CORSConfiguration>",
        );
        check(
            "WebsiteConfiguration",
            json!({"IndexDocument": {"Suffix": "i.html"}, "RoutingRules": [{"Redirect": {"HostName": "h"}}]}),
            "<WebsiteConfiguration><IndexDocument><Suffix>i.html</Suffix></IndexDocument><RoutingRules><RoutingRule><Redirect><HostName>h</HostName></Redirect></RoutingRule></RoutingRules></WebsiteConfiguration>",
        );
    }

    #[test]
    fn odd_documents_are_refused() {
        assert!(to_xml("R", &json!({"a><b": 1})).is_err());
        assert!(to_xml("R", &json!({"A": [[1]]})).is_err());
        for odd in ["", "<a>", "<a></b>", "plain"] {
            assert!(from_xml(odd).is_err(), "{odd}");
        }
    }
}
