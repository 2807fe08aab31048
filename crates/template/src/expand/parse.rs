//! The grammar of macros.
//!
//! ```text
//! macro  = "join(" inner "," literal ")" | inner
//! inner  = "map(" basic "," literal ")" | basic
//! basic  = name [ "[" digits "]" ]
//! ```

use super::room::{Full, Room};

/// What a macro is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Owner,
    HostSelf,
    Host { service: String },
    IpSelf { kind: String },
    Ip { kind: String, service: String },
    Count { service: String },
    Instance { service: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    pub what: What,
    pub instance: Option<usize>,
    pub format: Option<String>,
    pub separator: Option<String>,
}

/// The address that is meant when none is named.
const ADDRESS_DEFAULT: &str = "bind_v4";

impl Expression {
    /// Adds one element with the text of `map` around it.
    pub fn put(&self, raw: &str, out: &mut Room) -> Result<(), Full> {
        let Some(format) = &self.format else { return out.push(raw) };
        let mut rest = format.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            out.push(before)?;
            rest = match after.strip_prefix('$') {
                Some(after) => {
                    out.push("$")?;
                    after
                }
                None => {
                    out.push(raw)?;
                    after
                }
            };
        }
        out.push(rest)
    }
}

struct Reader<'a> {
    rest: &'a str,
}

/// Reads what stands between two percent signs. The error is the reason.
pub fn parse(text: &str) -> Result<Expression, String> {
    let mut reader = Reader { rest: text };
    let joined = reader.take("join(");
    let mapped = reader.take("map(");
    let (name, instance) = reader.basic()?;
    let format = if mapped { Some(reader.argument()?) } else { None };
    let separator = if joined { Some(reader.argument()?) } else { None };
    if !reader.rest.is_empty() {
        return Err(format!("'{}' is too much", model::shown(reader.rest)));
    }
    Ok(Expression { what: what(name)?, instance, format, separator })
}

impl<'a> Reader<'a> {
    fn take(&mut self, word: &str) -> bool {
        self.rest.strip_prefix(word).map(|rest| self.rest = rest).is_some()
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        if self.take(word) {
            Ok(())
        } else {
            Err(format!("'{word}' is expected at '{}'", model::shown(self.rest)))
        }
    }

    fn basic(&mut self) -> Result<(&'a str, Option<usize>), String> {
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let end = self.rest.find(|c| !allowed(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if name.is_empty() {
            return Err("a name is missing".into());
        }
        self.rest = rest;
        if !self.take("[") {
            return Ok((name, None));
        }
        let (digits, rest) = self.rest.split_once(']').ok_or("']' is missing")?;
        self.rest = rest;
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| plain);
        number
            .map(|number| (name, Some(number)))
            .ok_or_else(|| format!("'{}' is no number", model::shown(digits)))
    }

    /// A comma, a text in quotes, and a closing bracket.
    fn argument(&mut self) -> Result<String, String> {
        self.expect(",")?;
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote =
            quote.ok_or_else(|| format!("a text in quotes is expected at '{}'", model::shown(self.rest)))?;
        let (literal, rest) =
            self.rest[1..].split_once(quote).ok_or_else(|| format!("the closing {quote} is missing"))?;
        self.rest = rest;
        self.expect(")")?;
        Ok(literal.to_owned())
    }
}

fn what(name: &str) -> Result<What, String> {
    let unknown = || {
        let known = "cluster.owner, host.self, host.service.S, ip.self, ip.service.S, ip.TYPE.self, ip.TYPE.service.S, \
                     num.service.S and instance.self.service.S";
        format!("'{}' is no macro; there are {known}", model::shown(name))
    };
    let service = |rest: &str| match rest {
        "" => Err("the name of a service is missing".to_owned()),
        _ => Ok(rest.to_owned()),
    };
    match name {
        "cluster.owner" => return Ok(What::Owner),
        "host.self" => return Ok(What::HostSelf),
        "ip.self" => return Ok(What::IpSelf { kind: ADDRESS_DEFAULT.to_owned() }),
        _ => {}
    }
    if let Some(rest) = name.strip_prefix("host.service.") {
        return Ok(What::Host { service: service(rest)? });
    }
    if let Some(rest) = name.strip_prefix("num.service.") {
        return Ok(What::Count { service: service(rest)? });
    }
    if let Some(rest) = name.strip_prefix("instance.self.service.") {
        return Ok(What::Instance { service: service(rest)? });
    }
    let rest = name.strip_prefix("ip.").ok_or_else(unknown)?;
    let parts: Vec<&str> = rest.splitn(3, '.').collect();
    match parts.as_slice() {
        [kind, "service", name] => Ok(What::Ip { kind: (*kind).to_owned(), service: service(name)? }),
        ["service", ..] => {
            let name = rest.strip_prefix("service.").unwrap_or_default();
            Ok(What::Ip { kind: ADDRESS_DEFAULT.to_owned(), service: service(name)? })
        }
        [kind, "self"] => Ok(What::IpSelf { kind: (*kind).to_owned() }),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_dots_and_dashes() {
        let ip = |kind: &str, service: &str| What::Ip { kind: kind.to_owned(), service: service.to_owned() };
        for (text, expect) in [
            ("ip.bind_v4.service.a-b-c", ip("bind_v4", "a-b-c")),
            ("ip.external.service.a.b.c", ip("external", "a.b.c")),
            ("ip.service.a_b", ip("bind_v4", "a_b")),
            ("ip.service.a.b.c", ip("bind_v4", "a.b.c")),
            ("ip.x.self", What::IpSelf { kind: "x".to_owned() }),
        ] {
            assert_eq!(parse(text).map(|expression| expression.what), Ok(expect), "{text}");
        }
    }

    #[test]
    fn what_is_no_macro() {
        for text in [
            "",
            "abc",
            "abc)",
            "abc''",
            "host.service.",
            "ip.",
            "ip.service.",
            "HOST.self",
            "num.self",
            "map(,'$')",
            "map(host.self)",
            "map(host.self,$)",
            "map(host.self,'$",
            "map(host.self,'$'",
            "map(host.self,'$'))",
            "join(,'-')",
            "join(host.self)",
            "join(host.self,-)",
            "join(host.self,)",
            "join(host.self,'-'",
            "join(map(host.self,'-')))",
            "map(join(host.self,'-'),'$')",
            "host.service.a[1",
            "host.service.a[]",
            "host.service.a]",
            "host.service.a[1.0]",
            "host.service.a[-1]",
            "host.service.a[99999999999999999999999]",
            "host.self ",
            "ip.a.b.c",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
