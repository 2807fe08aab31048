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
//! Lists are in the order of node numbers. `%%` is a percent sign. What stands between two signs and cannot be a macro,
//! because it begins like none or has letters that none has, stays as it is; and so does a macro of a service that no
//! machine carries, because it may be meant for another cluster.

mod node;
mod parse;
mod room;

pub use node::{NodeRecord, Nodes};

use std::collections::BTreeSet;

use model::{Error, Result};
use serde_json::Value;

use parse::{Expression, What};
use room::{Full, Room};

/// Deepest nesting of a configuration.
const DEPTH_MAX: usize = 128;
/// Bytes of all texts of a configuration when it is expanded.
pub const EXPANDED_MAX: usize = 4 << 20;

/// What macros are about.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    pub nodes: &'a Nodes,
    /// The node for which the text is.
    pub this: &'a NodeRecord,
    pub owner: Option<&'a str>,
}

/// The text with every macro in it expanded, if it has no more than `most` bytes then.
pub fn text(text: &str, scope: Scope<'_>, most: usize) -> Result<String> {
    expand(text, scope, &mut Room::new(most))
}

fn expand(text: &str, scope: Scope<'_>, out: &mut Room) -> Result<String> {
    let mut rest = text;
    while let Some((before, piece, after)) = next_piece(rest) {
        out.push(before).map_err(full)?;
        rest = after;
        let Piece::Macro(macro_text) = piece else {
            out.push("%").map_err(full)?;
            continue;
        };
        let expression = parsed(macro_text)?;
        let is_known =
            evaluate(&expression, scope, out).map_err(|error| wrong(macro_text, &error.message))?;
        if !is_known {
            ["%", macro_text, "%"].into_iter().try_for_each(|part| out.push(part)).map_err(full)?;
        }
    }
    out.push(rest).map_err(full)?;
    Ok(out.take())
}

fn full(_: Full) -> Error {
    Error::invalid("its macros become too much text")
}

/// A configuration with every macro in its string values expanded, up to [`EXPANDED_MAX`].
pub fn value(value: &Value, scope: Scope<'_>) -> Result<Value> {
    nested(value, scope, 0, &mut Room::new(EXPANDED_MAX))
}

fn nested(value: &Value, scope: Scope<'_>, depth: usize, out: &mut Room) -> Result<Value> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("the configuration is nested deeper than {DEPTH_MAX} levels")));
    }
    match value {
        Value::String(string) => expand(string, scope, out).map(Value::String),
        Value::Array(items) => {
            let each = |(at, item): (usize, &Value)| {
                nested(item, scope, depth + 1, out).map_err(|e| e.at(&format!("[{at}]")))
            };
            items.iter().enumerate().map(each).collect::<Result<_>>().map(Value::Array)
        }
        Value::Object(members) => {
            let each = |(name, item): (&String, &Value)| {
                Ok((name.clone(), nested(item, scope, depth + 1, out).map_err(|error| error.at(name))?))
            };
            members.iter().map(each).collect::<Result<_>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

/// Checks the form of every macro in a text without expanding it.
pub fn check(text: &str) -> Result<()> {
    let mut rest = text;
    while let Some((_, piece, after)) = next_piece(rest) {
        if let Piece::Macro(macro_text) = piece {
            parsed(macro_text)?;
        }
        rest = after;
    }
    Ok(())
}

/// The services that macros in a text name; those that cannot be read are left out.
pub fn services(text: &str) -> BTreeSet<String> {
    let (mut named, mut rest) = (BTreeSet::new(), text);
    while let Some((_, piece, after)) = next_piece(rest) {
        if let Piece::Macro(macro_text) = piece
            && let Ok(expression) = parsed(macro_text)
        {
            match expression.what {
                What::Host { service }
                | What::Ip { service, .. }
                | What::Count { service }
                | What::Instance { service } => drop(named.insert(service)),
                What::Owner | What::HostSelf | What::IpSelf { .. } => {}
            }
        }
        rest = after;
    }
    named
}

fn wrong(macro_text: &str, why: &str) -> Error {
    Error::invalid(format!("the macro %{}% cannot be expanded: {why}", model::shown(macro_text)))
}

/// What a percent sign begins.
enum Piece<'a> {
    /// `%%`: the sign itself.
    Sign,
    /// What stands between two signs.
    Macro(&'a str),
}

/// The text before the next macro or doubled sign, that, and the text after it. A sign that begins neither is text.
fn next_piece(text: &str) -> Option<(&str, Piece<'_>, &str)> {
    let mut from = 0;
    while let Some(found) = text[from..].find('%') {
        let at = from + found;
        let rest = &text[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            return Some((&text[..at], Piece::Sign, after));
        }
        if let Some(end) = macro_end(rest) {
            return Some((&text[..at], Piece::Macro(&rest[..end]), &rest[end + 1..]));
        }
        from = at + 1;
    }
    None
}

/// How macros begin, and those that have texts in them.
const FAMILIES: [&str; 5] = ["host.", "ip.", "num.", "instance.", "cluster."];
const FUNCTIONS: [&str; 2] = ["join(", "map("];

/// Where a macro ends at whose beginning the text stands, if it has the shape of one.
fn macro_end(text: &str) -> Option<usize> {
    let begins = |word: &str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    if FUNCTIONS.iter().any(|word| begins(word)) {
        return sign_after_quotes(text);
    }
    let end = text.find('%')?;
    if !FAMILIES.iter().any(|word| begins(word)) {
        return is_dotted(&text[..end]).then_some(end);
    }
    let fits = |letter: char| letter.is_alphanumeric() || "_-.[]".contains(letter);
    text[..end].chars().all(fits).then_some(end)
}

/// Words with dots between them: nothing but a macro with a typo in its first word looks like that. What begins with
/// two hexadecimal digits is a letter of an address and what follows it.
fn is_dotted(text: &str) -> bool {
    let is_letter = text.len() >= 2 && text.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let is_word = |word: &str| {
        word.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter))
    };
    !is_letter && text.contains('.') && text.split('.').all(is_word)
}

/// Where the next percent sign is; between quotes, where doubled ones are part of the text, the next single one.
fn sign_after_quotes(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut quote = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' if quote.is_some() && bytes.get(at + 1) == Some(&b'%') => at += 1,
            b'%' => return Some(at),
            letter if quote == Some(letter) => quote = None,
            letter @ (b'\'' | b'"') if quote.is_none() => quote = Some(letter),
            _ => {}
        }
        at += 1;
    }
    None
}

fn parsed(macro_text: &str) -> Result<Expression> {
    let parsed = match macro_text.contains("%%") {
        true => parse::parse(&macro_text.replace("%%", "%")),
        false => parse::parse(macro_text),
    };
    parsed.map_err(|error| wrong(macro_text, &error))
}

/// Adds what a macro becomes. It is not known where that would be something of a service that nobody carries.
fn evaluate(expression: &Expression, scope: Scope<'_>, out: &mut Room) -> Result<bool> {
    let this = scope.this;
    let mut one = |part: &str| expression.put(part, out).map(|()| true).map_err(full);
    match &expression.what {
        What::Owner => scope.owner.map_or(Ok(false), one),
        What::HostSelf => this.hostname.as_deref().map_or(Ok(false), one),
        What::IpSelf { kind } => one(this.address(kind)?),
        What::Count { service } => one(&scope.nodes.count(service).to_string()),
        What::Instance { service } => {
            let place = scope.nodes.place(service, this);
            place.map_or(Ok(false), |place| one(&(place + 1).to_string()))
        }
        What::Host { service } => each(expression, scope.nodes, service, NodeRecord::host, out),
        What::Ip { kind, service } => each(expression, scope.nodes, service, |node| node.address(kind), out),
    }
}

/// Adds a property of every node that carries the service, or of one of them.
fn each<'a>(
    expression: &Expression,
    nodes: &'a Nodes,
    service: &str,
    property: impl Fn(&'a NodeRecord) -> Result<&'a str>,
    out: &mut Room,
) -> Result<bool> {
    if let Some(at) = expression.instance {
        let node = nodes.carrying(service).nth(at).ok_or_else(|| {
            Error::invalid(format!("there are fewer than {} nodes with {service} on the cluster", at + 1))
        })?;
        return expression.put(property(node)?, out).map(|()| true).map_err(full);
    }
    let separator = expression.separator.as_deref().unwrap_or(",");
    for (at, node) in nodes.carrying(service).enumerate() {
        // Looking at a node is not for nothing, even if it adds no text.
        out.spend(1).map_err(full)?;
        if at > 0 {
            out.push(separator).map_err(full)?;
        }
        expression.put(property(node)?, out).map_err(full)?;
    }
    Ok(nodes.count(service) > 0)
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
        super::text(text, Scope { nodes: &nodes, this: nodes.get("n1").unwrap(), owner: Some("ada") }, 1_000)
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
            ("100%% sure: %host.self%", "100% sure: one"),
            ("one % alone", "one % alone"),
            ("%%host.self%% %%%host.self%%%", "%host.self% %one%"),
            ("%host.self%%ip.self%", "one10.0.0.1"),
            ("%join(host.service.web,'%%')%", "one%three"),
            ("http://x/?q=a%20b%20c&h=%host.self%", "http://x/?q=a%20b%20c&h=one"),
            ("%h %l %u %t, 50% of %host.self%", "%h %l %u %t, 50% of one"),
            ("%Y-%m-%d", "%Y-%m-%d"),
            ("%host of% %ip x.self% %é%", "%host of% %ip x.self% %é%"),
            ("/caf%C3%A9.html%20x", "/caf%C3%A9.html%20x"),
            ("/%e2%82%ac.txt%20%host.self%", "/%e2%82%ac.txt%20one"),
            ("%join(host.service.web,',')%%host.self%", "one,threeone"),
            ("%map(host.self,'<$>')%%join(host.service.web,\"'%%\")%%%", "<one>one'%three%"),
        ] {
            assert_eq!(expand(text).unwrap(), expect, "{text}");
        }
    }

    #[test]
    fn a_few_letters_do_not_become_all_there_is() {
        let host = |name: String, nodenum| {
            let (id, hostname) = (name.clone(), Some(name));
            NodeRecord { id, hostname, nodenum, services: vec!["web".into()], addresses: Default::default() }
        };
        let nodes = Nodes::new((0..10_000).map(|num| host(format!("web-{num}"), num)).collect());
        let scope = Scope { nodes: &nodes, this: nodes.get("web-7").unwrap(), owner: None };
        let shout = |count: usize| json!({"a": format!("%map(host.self,'{}')%", "$ ".repeat(count))});
        assert_eq!(value(&shout(3), scope).unwrap()["a"], "web-7 web-7 web-7 ");
        let many = vec!["%join(map(host.service.web,''),'')%"; 20_000];
        for bomb in
            [shout(EXPANDED_MAX / 4), json!({"a": vec!["%host.service.web%"; 100]}), json!({"a": many})]
        {
            let began = std::time::Instant::now();
            let error = value(&bomb, scope).unwrap_err();
            assert!(error.message.contains("too much text"), "{}", error.message);
            assert!(began.elapsed().as_secs() < 20);
        }
        assert!(super::text("%host.service.web%", scope, 1_000).is_err());
        // Asking how many there are is no work.
        let counts = json!(vec!["%num.service.web% %instance.self.service.web%"; 50_000]);
        assert_eq!(value(&counts, scope).unwrap()[49_999], "10000 8");
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
            ("%hots.self%", "the macro %hots.self% cannot be expanded"),
            ("%hosts.service.web% a", "the macro %hosts.service.web% cannot be expanded"),
            ("%host.service.web[2]%", "fewer than 3 nodes with web"),
            ("%host.service.none[0]%", "fewer than 1 nodes with none"),
            ("%host.nobody%", "'host.nobody' is no macro"),
            ("%HOST.self%", "'HOST.self' is no macro"),
            ("50% of %ip.a.b.c%", "'ip.a.b.c' is no macro"),
            ("%map(host.self)%", "',' is"),
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
        let error = value(&json!({"a": [{"b": "%host.x%"}]}), scope).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("a[0].b"));
    }
}
