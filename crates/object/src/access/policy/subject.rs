//! Who asks, as policies name them.

use crate::identity::Principal;
use crate::service::Caller;

/// Who a policy is asked about.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Anonymous,
    User(&'a Principal),
    /// A part of the cloud, such as `logging.s3.amazonaws.com`.
    Service(&'a str),
}

impl<'a> Subject<'a> {
    pub fn of(caller: &'a Caller) -> Self {
        caller.principal.as_ref().map_or(Self::Anonymous, Self::User)
    }
}

/// The ARN of a user, or of the role that its session assumed.
pub fn arn(principal: &Principal) -> String {
    let account = &principal.account.id;
    match &principal.session {
        Some(session) => format!("arn:aws:sts::{account}:assumed-role/{session}"),
        None => format!("arn:aws:iam::{account}:user/{}", principal.user),
    }
}

/// A name in the `Principal` of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Everyone,
    Account(String),
    User {
        account: String,
        user: String,
    },
    Role {
        account: String,
        role: String,
    },
    Session {
        account: String,
        session: String,
    },
    Service(String),
    /// Someone whom we do not know, such as a federation.
    Stranger,
}

impl Name {
    /// Reads a value under `AWS`. `None` if it has none of the known forms.
    pub fn parse_aws(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Everyone);
        }
        let Some(arn) = text.strip_prefix("arn:") else {
            let plain =
                !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            return plain.then(|| Self::Account(text.to_owned()));
        };
        let parts: Vec<&str> = arn.splitn(5, ':').collect();
        let ["aws" | "aws-cn" | "aws-us-gov", service, "", account, resource] = parts[..] else {
            return None;
        };
        let account = account.to_owned();
        match (service, resource.split_once('/')) {
            ("iam", None) if resource == "root" && !account.is_empty() => Some(Self::Account(account)),
            ("iam", Some(("user", user))) if !user.is_empty() => {
                // Without an account the name is that of an account.
                if account.is_empty() {
                    return Some(Self::Account(user.to_owned()));
                }
                Some(Self::User { account, user: last(user).to_owned() })
            }
            ("iam", Some(("role", role))) if !role.is_empty() => {
                Some(Self::Role { account, role: last(role).to_owned() })
            }
            ("sts", Some(("assumed-role", session))) if session.contains('/') => {
                Some(Self::Session { account, session: session.to_owned() })
            }
            ("sts", Some(("federated-user", name))) if !name.is_empty() => Some(Self::Stranger),
            _ => None,
        }
    }

    pub fn includes(&self, subject: Subject<'_>) -> bool {
        let user = match subject {
            _ if *self == Self::Everyone => return true,
            Subject::Anonymous => return false,
            Subject::Service(name) => return matches!(self, Self::Service(named) if named == name),
            Subject::User(user) => user,
        };
        let role = user.session.as_deref();
        match self {
            Self::Everyone => true,
            Self::Account(account) => *account == *user.account.id,
            Self::User { account, user: name } => {
                *account == *user.account.id && *name == *user.user && role.is_none()
            }
            Self::Role { account, role: name } => {
                let role = role.and_then(|role| role.split_once('/'));
                *account == *user.account.id && role.is_some_and(|(role, _)| role == name)
            }
            Self::Session { account, session } => {
                *account == *user.account.id && role == Some(session.as_str())
            }
            Self::Service(_) | Self::Stranger => false,
        }
    }
}

/// Users and roles may stand under a path that is no part of their name.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
