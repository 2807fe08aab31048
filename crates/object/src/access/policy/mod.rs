//! Policies: who may do what to which names, under which conditions. No I/O.
//!
//! A statement that denies wins over all that allow.

mod actions;
mod condition;
mod parse;
mod pattern;
mod subject;
#[cfg(test)]
mod tests;
mod unique;

pub use condition::Condition;
pub use parse::{For, SIZE_MAX};
pub use subject::{Name, Subject, arn};

use super::context::Context;

/// What a policy says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Deny,
    /// It has nothing to say.
    Silent,
}

/// A request, as policies see it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub subject: Subject<'a>,
    /// With its service: `s3:GetObject`.
    pub action: &'a str,
    /// As ARN.
    pub resource: &'a str,
    pub context: &'a Context,
}

/// A policy that has been read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    statements: Vec<Statement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Statement {
    allow: bool,
    principals: Principals,
    actions: Names,
    resources: Names,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
enum Principals {
    /// In policies of sessions: whoever holds the session.
    Holder,
    Only(Vec<Name>),
    Except(Vec<Name>),
}

/// Patterns, or all but those.
#[derive(Debug, Clone, PartialEq)]
struct Names {
    except: bool,
    patterns: Vec<String>,
}

impl Policy {
    pub fn verdict(&self, asked: &Asked<'_>) -> Verdict {
        let mut verdict = Verdict::Silent;
        for statement in self.statements.iter().filter(|statement| statement.applies(asked)) {
            if !statement.allow {
                return Verdict::Deny;
            }
            verdict = Verdict::Allow;
        }
        verdict
    }

    /// Whom its statements shut out, or all but whom: a name that nobody has does harm there. Where one is let in it lets
    /// nobody in.
    pub fn names_shut_out(&self) -> impl Iterator<Item = &Name> {
        self.statements.iter().flat_map(|statement| match &statement.principals {
            Principals::Only(names) if !statement.allow => names.as_slice(),
            Principals::Except(names) => names.as_slice(),
            Principals::Holder | Principals::Only(_) => &[],
        })
    }

    /// Whether it allows something to everyone, with no condition that narrows who that is.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allow
                && statement.principals.everyone()
                && !statement.conditions.iter().any(Condition::narrows_who)
        })
    }
}

impl Statement {
    fn applies(&self, asked: &Asked<'_>) -> bool {
        self.principals.include(asked.subject, self.allow)
            && self.actions.include(|action| pattern::fits(action, asked.action, true))
            && self
                .resources
                .include(|name| pattern::fits_within(name, asked.resource, false, true, asked.context))
            && self.conditions.iter().all(|condition| condition.holds(asked.context))
    }
}

impl Principals {
    /// What is allowed to everyone is not meant for parts of the cloud, which are to be named.
    fn include(&self, subject: Subject<'_>, allow: bool) -> bool {
        let named = allow && matches!(subject, Subject::Service(_));
        match self {
            Self::Holder => true,
            Self::Only(names) => {
                names.iter().any(|name| name.includes(subject) && !(named && *name == Name::Everyone))
            }
            Self::Except(names) => !names.iter().any(|name| name.includes(subject)),
        }
    }

    fn everyone(&self) -> bool {
        match self {
            Self::Holder => false,
            Self::Only(names) => names.contains(&Name::Everyone),
            Self::Except(_) => true,
        }
    }
}

impl Names {
    fn include(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.patterns.iter().any(|pattern| fits(pattern)) != self.except
    }
}
