//! Users of a tenant; for its admins.

use api::{PasswordChange, User, UserCreate, UserUpdate};
use model::{Error, ErrorKind, Name, Result, Role, UserId, shown};
use store::Txn;

use super::once::{Once, once};
use super::page::{Query, cut, glob};
use super::{version_check, view};
use crate::auth::password_validate;
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Snapshot, Versioned};
use crate::tables::{UserRecord, encode, kind};

pub const FILTERS: &[&str] = &["name", "role"];
const EMAIL_MAX: usize = 254;

pub async fn create(cloud: &Cloud, caller: &Caller, body: UserCreate, key: Option<&Once>) -> Result<User> {
    role_allowed(cloud, caller, body.role)?;
    password_validate(&body.password)?;
    email_free(cloud, body.email.as_deref(), None)?;
    once(cloud, key, async || {
        let record = UserRecord {
            id: UserId::from_random(rand::random()),
            tenant: caller.tenant.clone(),
            name: body.name.clone(),
            role: body.role,
            password_hash: cloud.passwords.hash(body.password.clone()).await?,
            email: body.email.clone(),
            created_at: cloud.now(),
        };
        let snapshot = cloud.state.snapshot();
        let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
        let encoded = encode(&record);
        let row = Versioned { version: 0, value: record.into() };
        let mut answer = view::user(&snapshot, &row);
        let tenant_id = Some(caller.tenant.as_str());
        let mut txn = Txn::new().insert(kind::USER, &row.id, tenant_id, Some(row.name.as_str()), encoded);
        if let Some(key) = key {
            txn = key.record(txn, cloud, caller, &answer);
        }
        txn = txn.check(kind::TENANT, &caller.tenant, Some(tenant.version));
        txn = journal(txn, cloud, caller, &row, "create", format!("as {}", row.role));
        answer.version = cloud.state.commit(txn).await?.versions[0];
        Ok(answer)
    })
    .await
}

/// An address belongs to one user. An empty one takes it away.
fn email_free(cloud: &Cloud, email: Option<&str>, of: Option<&UserId>) -> Result<()> {
    let Some(email) = email.filter(|email| !email.is_empty()) else { return Ok(()) };
    let plain = email.len() <= EMAIL_MAX && !email.chars().any(|c| c.is_whitespace() || c.is_control());
    let sides = email.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    if !plain || !sides {
        return Err(Error::invalid("this is not an e-mail address").at("email"));
    }
    let snapshot = cloud.state.snapshot();
    let taken =
        snapshot.users.values().any(|user| user.email.as_deref() == Some(email) && of != Some(&user.id));
    if taken {
        return Err(Error::conflict("another user has this e-mail address").at("email"));
    }
    Ok(())
}

/// Nobody gives more than they have, and operators live in the tenant `main` alone.
fn role_allowed(cloud: &Cloud, caller: &Caller, role: Role) -> Result<()> {
    if role > caller.principal.role {
        return Err(Error::new(
            ErrorKind::Forbidden,
            format!("the role {role} is more than your own, {}", caller.principal.role),
        )
        .at("role"));
    }
    let main = cloud.state.snapshot().operators();
    if role == Role::Operator && main.as_ref() != Some(&caller.tenant) {
        return Err(Error::invalid("operators belong to the tenant 'main'").at("role"));
    }
    Ok(())
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, row: &UserRecord, verb: &str, message: String) -> Txn {
    let line = Line {
        tenant: Some(&row.tenant),
        what: &format!("user.{verb}"),
        kind: kind::USER,
        id: row.id.as_str(),
        name: row.name.as_str(),
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

fn find<'a>(snapshot: &'a Snapshot, caller: &Caller, name: &str) -> Result<&'a Row<UserRecord>> {
    let unknown = || Error::not_found(format!("user '{}'", shown(name)));
    let parsed: Name = name.parse().map_err(|_| unknown())?;
    snapshot.user_by_name(&caller.tenant, &parsed).ok_or_else(unknown)
}

pub fn get(cloud: &Cloud, caller: &Caller, name: &str) -> Result<User> {
    let snapshot = cloud.state.snapshot();
    Ok(view::user(&snapshot, find(&snapshot, caller, name)?))
}

pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<api::Page<User>> {
    let snapshot = cloud.state.snapshot();
    let role: Option<Role> = query.parsed("role")?;
    let after = query.after.as_deref().unwrap_or("");
    let mut items: Vec<User> = snapshot
        .user_names
        .iter()
        .filter(|((tenant, name), _)| *tenant == caller.tenant && name.as_str() > after)
        .filter(|((_, name), _)| query.get("name").is_none_or(|pattern| glob(pattern, name.as_str())))
        .filter_map(|(_, id)| snapshot.users.get(id))
        .filter(|user| role.is_none_or(|role| user.role == role))
        .take(query.limit + 1)
        .map(|row| view::user(&snapshot, row))
        .collect();
    let next = cut(&mut items, query.limit, |user| user.name.to_string());
    Ok(api::Page { items, next, seq: snapshot.seq })
}

pub async fn update(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    body: UserUpdate,
    seen: Option<i64>,
) -> Result<User> {
    let snapshot = cloud.state.snapshot();
    let old = find(&snapshot, caller, name)?.clone();
    version_check(seen, old.version, "user")?;
    role_allowed(cloud, caller, old.role)?;
    let mut new = UserRecord::clone(&old);
    let mut said = Vec::new();
    if let Some(role) = body.role {
        role_allowed(cloud, caller, role)?;
        if role != old.role {
            last_operator_stays(&snapshot, &old)?;
            said.push(format!("role {role}"));
        }
        new.role = role;
    }
    if body.email.is_some() {
        email_free(cloud, body.email.as_deref(), Some(&old.id))?;
        new.email = body.email.filter(|email| !email.is_empty());
        said.push("a new e-mail address".to_owned());
    }
    let mut txn = Txn::new();
    let password = body.password;
    if let Some(password) = password {
        password_validate(&password)?;
        new.password_hash = cloud.passwords.hash(password).await?;
        said.push("a new password".to_owned());
        txn = sessions_end(txn, &snapshot, &old.id);
    }
    // The version of the user is asked for at a known place of the transaction.
    let place = txn.ops().len();
    txn = txn.update(kind::USER, &old.id, old.version, encode(&new));
    txn = journal(txn, cloud, caller, &new, "update", said.join(", "));
    let version = cloud.state.commit(txn).await?.versions[place];
    Ok(view::user(&snapshot, &Versioned { version, value: new.into() }))
}

/// Everyone may change their own password, knowing the old one. All other sessions end.
pub async fn password_change(cloud: &Cloud, caller: &Caller, body: PasswordChange) -> Result<()> {
    password_validate(&body.new).map_err(|error| Error { field: None, ..error }.at("new"))?;
    let snapshot = cloud.state.snapshot();
    let old = snapshot.users.get(&caller.principal.user).ok_or_else(|| Error::not_found("such user"))?;
    let limit = format!("password/{}", old.id);
    cloud.logins.attempt(&limit, cloud.steady())?;
    if !cloud.passwords.verify(body.current, Some(old.password_hash.clone())).await? {
        return Err(Error::new(ErrorKind::Forbidden, "the current password is not right").at("current"));
    }
    cloud.logins.refund(&limit);
    let mut new = UserRecord::clone(old);
    new.password_hash = cloud.passwords.hash(body.new).await?;
    let txn = Txn::new().update(kind::USER, &old.id, old.version, encode(&new));
    let txn = sessions_end(txn, &snapshot, &old.id);
    let txn = journal(txn, cloud, caller, &new, "password", String::new());
    cloud.state.commit(txn).await.map(drop)
}

pub async fn delete(cloud: &Cloud, caller: &Caller, name: &str, seen: Option<i64>) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = find(&snapshot, caller, name)?;
    version_check(seen, row.version, "user")?;
    role_allowed(cloud, caller, row.role)?;
    if row.id == caller.principal.user {
        return Err(Error::conflict("nobody can delete themselves"));
    }
    last_operator_stays(&snapshot, row)?;
    let mut txn = Txn::new().delete(kind::USER, &row.id, Some(row.version));
    txn = sessions_end(txn, &snapshot, &row.id);
    for token in snapshot.tokens.values().filter(|token| token.user == row.id) {
        txn = txn.delete(kind::TOKEN, &token.id, None);
    }
    for key in snapshot.keys.values().filter(|key| key.user == row.id) {
        txn = txn.delete(kind::KEY, &key.id, None);
    }
    txn = journal(txn, cloud, caller, row, "delete", String::new());
    cloud.state.commit(txn).await.map(drop)
}

fn sessions_end(txn: Txn, snapshot: &Snapshot, user: &UserId) -> Txn {
    let of_user = snapshot.sessions.values().filter(|session| session.user == *user);
    of_user.fold(txn, |txn, session| txn.delete(kind::SESSION, &session.id, None))
}

fn last_operator_stays(snapshot: &Snapshot, user: &UserRecord) -> Result<()> {
    let operators = snapshot.users.values().filter(|user| user.role == Role::Operator).count();
    if user.role == Role::Operator && operators <= 1 {
        return Err(Error::conflict("the last operator must stay one"));
    }
    Ok(())
}
