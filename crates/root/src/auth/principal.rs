//! Who a request comes from.

use std::net::IpAddr;

use model::{Error, ErrorKind, Name, Result, Role, SessionId, TenantId, Timestamp, TokenId, UserId};

use super::secret::hash_hex;
use crate::history::Actor;
use crate::state::{Credential, Snapshot};

/// Longest bearer token that is looked at.
const BEARER_MAX: usize = 256;

/// With what the caller proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    Session(SessionId),
    Token(TokenId),
    /// An access key's signature, checked by the caller of `ops`.
    Key(model::AccessKeyId),
}

#[derive(Debug, Clone)]
pub struct Principal {
    pub user: UserId,
    pub user_name: Name,
    pub tenant: TenantId,
    /// What these credentials may do: the lesser of the user's and the token's role.
    pub role: Role,
    pub proof: Proof,
    pub from: Option<IpAddr>,
}

impl Principal {
    pub fn actor(&self) -> Actor {
        Actor { who: self.user_name.to_string(), from: self.from.map(|ip| ip.to_string()) }
    }

    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }

    pub fn require(&self, role: Role) -> Result<()> {
        if self.role >= role {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Forbidden,
            format!("this needs the role {role}; these credentials have {}", self.role),
        ))
    }
}

/// Whether what a request was let in with is still good: for answers that go on.
pub fn stands(snapshot: &Snapshot, principal: &Principal, now: Timestamp) -> bool {
    let limit = match &principal.proof {
        Proof::Session(id) => {
            snapshot.sessions.get(id).filter(|s| s.expires_at > now).map(|_| Role::Operator)
        }
        Proof::Token(id) => snapshot
            .tokens
            .get(id)
            .filter(|token| token.expires_at.is_none_or(|at| at > now))
            .map(|token| token.role),
        Proof::Key(id) => snapshot.keys.get(id).map(|_| Role::Operator),
    };
    let user = snapshot.users.get(&principal.user);
    matches!((user, limit), (Some(user), Some(limit)) if user.role.min(limit) >= principal.role)
}

/// Finds the caller behind a bearer token. All failures look the same.
pub fn authenticate(
    snapshot: &Snapshot,
    bearer: &str,
    now: Timestamp,
    from: Option<IpAddr>,
) -> Result<Principal> {
    let unknown = || {
        Error::new(ErrorKind::Unauthenticated, "the credentials are not valid or have expired")
            .hint("log in again with 'banyan login'")
    };
    if bearer.is_empty() || bearer.len() > BEARER_MAX {
        return Err(unknown());
    }
    let (user, limit, proof) = match snapshot.credentials.get(&hash_hex(bearer.as_bytes())) {
        Some(Credential::Session(id)) => {
            let session = snapshot.sessions.get(id).filter(|s| s.expires_at > now).ok_or_else(unknown)?;
            (&session.user, Role::Operator, Proof::Session(id.clone()))
        }
        Some(Credential::Token(id)) => {
            let live = |expires: Option<Timestamp>| expires.is_none_or(|at| at > now);
            let token = snapshot.tokens.get(id).filter(|t| live(t.expires_at)).ok_or_else(unknown)?;
            (&token.user, token.role, Proof::Token(id.clone()))
        }
        None => return Err(unknown()),
    };
    let user = snapshot.users.get(user).ok_or_else(unknown)?;
    Ok(Principal {
        user: user.id.clone(),
        user_name: user.name.clone(),
        tenant: user.tenant.clone(),
        role: user.role.min(limit),
        proof,
        from,
    })
}
