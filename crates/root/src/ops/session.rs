//! Login, logout and who one is.

use std::net::IpAddr;

use api::{Login, LoginDone, Whoami};
use model::{Error, ErrorKind, Result, SessionId, UserId};
use store::Txn;

use crate::auth::{Principal, Proof, hash_hex, session_secret};
use crate::bootstrap::MAIN;
use crate::cloud::{Caller, Cloud};
use crate::config::SESSION_LASTS;
use crate::history::{self, Line};
use crate::state::{Row, Snapshot};
use crate::tables::{SessionRecord, UserRecord, encode, kind};

/// Sessions of one user at once; the oldest go.
const SESSIONS_PER_USER_MAX: usize = 32;

/// A wrong tenant, user or password give the same answer after the same time.
pub async fn login(cloud: &Cloud, body: Login, from: Option<IpAddr>) -> Result<LoginDone> {
    let user = user_verify(cloud, body, from).await?;
    let secret = session_secret();
    let now = cloud.now();
    let session = SessionRecord {
        id: SessionId::from_random(rand::random()),
        user: user.id.clone(),
        tenant: user.tenant.clone(),
        hash: hash_hex(secret.as_bytes()),
        created_at: now,
        expires_at: now.plus_ms(SESSION_LASTS.as_millis() as i64),
    };
    let principal = Principal {
        user: user.id.clone(),
        user_name: user.name.clone(),
        tenant: user.tenant.clone(),
        role: user.role,
        proof: Proof::Session(session.id.clone()),
        from,
    };
    let caller = Caller::new(cloud, principal, None)?;
    let txn = Txn::new()
        .insert(kind::SESSION, &session.id, Some(user.tenant.as_str()), None, encode(&session))
        // A password that changed in the meantime makes no session.
        .check(kind::USER, &user.id, Some(user.version));
    let txn = oldest_end(txn, &cloud.state.snapshot(), &user.id);
    cloud.state.commit(journal(txn, cloud, &caller, "login")).await?;
    Ok(LoginDone { token: secret, expires_at: session.expires_at, whoami: whoami(&caller) })
}

async fn user_verify(cloud: &Cloud, body: Login, from: Option<IpAddr>) -> Result<Row<UserRecord>> {
    let address = from.map(|ip| ip.to_string()).unwrap_or_default();
    let tenant_name = body.tenant.as_ref().map_or(MAIN, |name| name.as_str());
    let account = format!("{tenant_name}/{}/{address}", body.user);
    cloud.addresses.attempt(&address, cloud.steady())?;
    cloud.logins.attempt(&account, cloud.steady())?;
    let snapshot = cloud.state.snapshot();
    let tenant = snapshot.tenant_by_name(tenant_name);
    let user = tenant.and_then(|tenant| snapshot.user_by_name(&tenant.id, &body.user)).cloned();
    let hash = user.as_ref().map(|user| user.password_hash.clone());
    let right = cloud.passwords.verify(body.password, hash).await?;
    let Some(user) = user.filter(|_| right) else {
        return Err(Error::new(
            ErrorKind::Unauthenticated,
            "the tenant, the user or the password is not right",
        ));
    };
    cloud.addresses.refund(&address);
    cloud.logins.refund(&account);
    Ok(user)
}

/// Makes room for one more session of the user.
fn oldest_end(txn: Txn, snapshot: &Snapshot, user: &UserId) -> Txn {
    let mut sessions: Vec<_> = snapshot.sessions.values().filter(|session| session.user == *user).collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.created_at));
    let old = sessions.into_iter().skip(SESSIONS_PER_USER_MAX - 1);
    old.fold(txn, |txn, session| txn.delete(kind::SESSION, &session.id, None))
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, verb: &str) -> Txn {
    let line = Line {
        tenant: Some(&caller.principal.tenant),
        what: &format!("user.{verb}"),
        kind: kind::USER,
        id: caller.principal.user.as_str(),
        name: caller.principal.user_name.as_str(),
        message: String::new(),
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

/// Ends the session that the call was made with.
pub async fn logout(cloud: &Cloud, caller: &Caller) -> Result<()> {
    let Proof::Session(id) = &caller.principal.proof else {
        return Err(Error::conflict("this call was made with a token, not with a session")
            .hint("'banyan token delete' ends a token"));
    };
    let txn = journal(Txn::new().delete(kind::SESSION, id, None), cloud, caller, "logout");
    cloud.state.commit(txn).await.map(drop)
}

pub fn whoami(caller: &Caller) -> Whoami {
    Whoami {
        user: caller.principal.user_name.clone(),
        user_id: caller.principal.user.clone(),
        tenant: caller.tenant_name.clone(),
        tenant_id: caller.tenant.clone(),
        role: caller.principal.role,
    }
}
