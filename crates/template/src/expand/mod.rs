//! Macros in configuration and links: `%host.service.web%` becomes the names of the machines that carry `web`.
//!
//! | macro | what it becomes |
//! |---|---|
//! | `%host.self%`, `%host.service.S%`, `%host.service.S[0]%` | host names |
//! | `%ip.self%`, `%ip.TYPE.self%`, `%ip.service.S%`, `%ip.TYPE.service.S[0]%` | addresses; TYPE is `bind_v4` unless said |
//! | `%num.service.S%` | how many machines carry it |
//! | `%instance.self.service.S%` | which of them this one is, from 1 |
//! | `%cluster.owner%` | whose cluster it is |
//! | `%join(X,'sep')%`, `%map(X,'$:80')%`, `%join(map(X,'$:80'),',')%` | a list with another separator, each with a text around it; `$$` is a dollar |
//!
//! Lists are in the order of node numbers. `%%` stays as it is. A macro of a service that no machine
//! carries stays as it is too, because it may be meant for another cluster.

mod node;
mod parse;

pub use node::{NodeRecord, Nodes};

use model::{Error, Result};
use serde_json::Value;

use parse::{Expression, What};

/// Deepest nesting of a configuration.
const DEPTH_MAX: usize = 128;

/// What macros are about.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub nodes: &'a Nodes,
    /// The node for which the text is.
    pub this: &'a NodeRecord,
    pub owner: Option<&'a str>,
}

/// The text with every macro in it expanded.
pub fn text(text: &str, scope: Scope<'_>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, macro_text, after)) = next_macro(rest) {
        out.push_str(before);
        let expression = parse::parse(macro_text).map_err(|error| wrong(macro_text, &error))?;
        match evaluate(&expression, scope).map_err(|error| wrong(macro_text, &error.message))? {
            Some(expanded) => out.push_str(&expanded),
            None => out.extend(["%", macro_text, "%"]),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// A configuration with every macro in its string values expanded.
pub fn value(value: &Value, scope: Scope<'_>) -> Result<Value> {
    nested(value, scope, 0)
}

fn nested(value: &Value, scope: Scope<'_>, depth: usize) -> Result<Value> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("the configuration is nested deeper than {DEPTH_MAX} levels")));
    }
    match value {
        Value::String(string) => text(string, scope).map(Value::String),
        Value::Array(items) => {
            let each = |(at, item): (usize, &Value)| {
                nested(item, scope, depth + 1).map_err(|e| e.at(&format!("[{at}]")))
            };
            items.iter().enumerate().map(each).collect::<Result<_>>().map(Value::Array)
        }
        Value::Object(members) => {
            let each = |(name, item): (&String, &Value)| {
                Ok((name.clone(), nested(item, scope, depth + 1).map_err(|error| error.at(name))?))
            };
            members.iter().map(each).collect::<Result<_>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

/// Checks the form of every macro in a text without expanding it.
pub fn check(text: &str) -> Result<()> {
    let mut rest = text;
    while let Some((_, macro_text, after)) = next_macro(rest) {
        parse::parse(macro_text).map_err(|error| wrong(macro_text, &error))?;
        rest = after;
    }
    Ok(())
}

fn wrong(macro_text: &str, why: &str) -> Error {
    Error::invalid(format!("the macro %{}% cannot be expanded: {why}", model::shown(macro_text)))
}

/// The text before the next macro, the macro without its signs, and the text after it.
fn next_macro(text: &str) -> Option<(&str, &str, &str)> {
    let begin = percent(text, 0)?;
    let end = percent(text, begin + 1)?;
    Some((&text[..begin], &text[begin + 1..end], &text[end + 1..]))
}

/// Where the next single percent sign is.
fn percent(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'%', Some(b'%')) => at += 2,
            (b'%', _) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

fn evaluate(expression: &Expression, scope: Scope<'_>) -> Result<Option<String>> {
    let Some(parts) = parts(&expression.what, expression.instance, scope)? else { return Ok(None) };
    let formatted: Vec<String> = parts.iter().map(|part| expression.formatted(part)).collect();
    Ok(Some(formatted.join(expression.separator.as_deref().unwrap_or(","))))
}

fn parts(what: &What, instance: Option<usize>, scope: Scope<'_>) -> Result<Option<Vec<String>>> {
    let this = scope.this;
    match what {
        What::Owner => Ok(scope.owner.map(|owner| vec![owner.to_owned()])),
        What::HostSelf => Ok(this.hostname.clone().map(|name| vec![name])),
        What::IpSelf { kind } => this.address(kind).map(|address| Some(vec![address])),
        What::Count { service } => Ok(Some(vec![scope.nodes.carrying(service).len().to_string()])),
        What::Instance { service } => {
            let place = scope.nodes.carrying(service).iter().position(|node| node.id == this.id);
            Ok(place.map(|place| vec![(place + 1).to_string()]))
        }
        What::Host { service } => each(scope.nodes.carrying(service), service, instance, NodeRecord::host),
        What::Ip { kind, service } => {
            each(scope.nodes.carrying(service), service, instance, |node| node.address(kind))
        }
    }
}

/// A property of every node that carries the service, or of one of them.
fn each(
    nodes: Vec<&NodeRecord>,
    service: &str,
    instance: Option<usize>,
    property: impl Fn(&NodeRecord) -> Result<String>,
) -> Result<Option<Vec<String>>> {
    match instance {
        Some(at) => match nodes.get(at) {
            Some(node) => Ok(Some(vec![property(node)?])),
            None => Err(Error::invalid(format!(
                "there are fewer than {} nodes with {service} on the cluster",
                at + 1
            ))),
        },
        None if nodes.is_empty() => Ok(None),
        None => nodes.into_iter().map(property).collect::<Result<_>>().map(Some),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn nodes() -> Nodes {
        Nodes::read(json!({
            "n3": {"hostname": "three", "nodenum": 1002, "services": ["web"], "ipaddresses": {"access_v4": "1.0.0.3", "bind_v4": "10.0.0.3"}},
            "n1": {"hostname": "one", "nodenum": "1000", "services": ["web", "db"], "ipaddresses": {"access_v4": "1.0.0.1", "bind_v4": "10.0.0.1"}},
            "n2": {"nodenum": 1001, "services": [{"name": "mute"}], "ipaddresses": {}},
        }))
        .unwrap()
    }

    fn expand(text: &str) -> Result<String> {
        let nodes = nodes();
        super::text(text, Scope { nodes: &nodes, this: nodes.get("n1").unwrap(), owner: Some("ada") })
    }

    #[test]
    fn every_macro() {
        for (text, expect) in [
            ("no macro", "no macro"),
            ("%host.self%", "one"),
            ("%host.service.web%", "one,three"),
            ("a %host.service.web[1]%:80 b", "a three:80 b"),
            ("%ip.self% %ip.access_v4.self%", "10.0.0.1 1.0.0.1"),
            ("%ip.service.web% %ip.access_v4.service.web[0]%", "10.0.0.1,10.0.0.3 1.0.0.1"),
            ("%num.service.web% of %num.service.none%", "2 of 0"),
            ("%instance.self.service.web%", "1"),
            ("%cluster.owner%@example.com", "ada@example.com"),
            ("%join(host.service.web,'; ')%", "one; three"),
            ("%map(host.service.web,'$:2181')%", "one:2181,three:2181"),
            ("%join(map(host.service.web,\"<$$$>\"),'')%", "<$one><$three>"),
            ("100%% sure: %host.self%", "100%% sure: one"),
            ("one % alone", "one % alone"),
        ] {
            assert_eq!(expand(text).unwrap(), expect, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_known_stays_and_takes_nothing_with_it() {
        for text in ["%host.service.none%", "%ip.access_v4.service.none%", "%instance.self.service.mute%"] {
            assert_eq!(expand(text).unwrap(), text);
        }
        assert_eq!(
            expand("%host.self%/%host.service.none%/%num.service.db%").unwrap(),
            "one/%host.service.none%/1"
        );
    }

    #[test]
    fn what_is_missing_or_misspelt_is_an_error() {
        for (text, expect) in [
            ("%host.service.mute%", "node n2 has no hostname"),
            ("%ip.service.mute%", "node n2 has no address bind_v4"),
            ("%ip.ipv6.self%", "node n1 has no address ipv6"),
            ("%host.service.web[2]%", "fewer than 3 nodes with web"),
            ("%host.service.none[0]%", "fewer than 1 nodes with none"),
            ("%host.nobody%", "'host.nobody' is no macro"),
            ("50% of 60%", "a name is missing"),
        ] {
            let error = expand(text).unwrap_err();
            assert!(error.message.contains(expect), "{text}: {}", error.message);
        }
    }

    #[test]
    fn a_configuration_is_expanded_in_its_values() {
        let nodes = nodes();
        let scope = Scope { nodes: &nodes, this: nodes.get("n3").unwrap(), owner: None };
        let config = json!({"%host.self%": ["%host.self%", 1, {"id": "%instance.self.service.web%"}], "by": "%cluster.owner%"});
        let expect = json!({"%host.self%": ["three", 1, {"id": "2"}], "by": "%cluster.owner%"});
        assert_eq!(value(&config, scope).unwrap(), expect);
        let error = value(&json!({"a": [{"b": "%x%"}]}), scope).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("a[0].b"));
    }
}
