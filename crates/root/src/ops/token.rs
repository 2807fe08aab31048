//! API tokens: one's own, and for admins those of the tenant.

use api::{Page, Token, TokenCreate, TokenCreated};
use model::{Error, ErrorKind, Result, Role, TokenId, shown};
use store::Txn;

use super::once::{Once, once};
use super::page::{Query, cut, glob};
use super::view;
use crate::auth::{hash_hex, token_secret};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Versioned};
use crate::tables::{TokenRecord, encode, kind};

pub const FILTERS: &[&str] = &["name"];

const TOKENS_PER_USER_MAX: usize = 100;
const EXPIRES_MAX_S: u64 = 10 * 365 * 24 * 3600;

/// The secret is in the answer and nowhere else.
pub async fn create(
    cloud: &Cloud,
    caller: &Caller,
    body: TokenCreate,
    key: Option<&Once>,
) -> Result<TokenCreated> {
    let role = role_of(caller, &body)?;
    once(cloud, key, async || {
        let snapshot = cloud.state.snapshot();
        let user = &caller.principal.user;
        if snapshot.tokens.values().filter(|token| token.user == *user).count() >= TOKENS_PER_USER_MAX {
            return Err(Error::conflict(format!("a user may have {TOKENS_PER_USER_MAX} tokens"))
                .hint("delete one that is not used"));
        }
        let owner = snapshot.users.get(user).ok_or_else(|| Error::not_found("such user"))?;
        let secret = token_secret();
        let now = cloud.now();
        let record = TokenRecord {
            id: TokenId::from_random(rand::random()),
            user: user.clone(),
            tenant: caller.principal.tenant.clone(),
            name: body.name.clone(),
            role,
            hash: hash_hex(secret.as_bytes()),
            created_at: now,
            expires_at: body.expires_in_s.map(|seconds| now.plus_ms(seconds as i64 * 1000)),
        };
        let encoded = encode(&record);
        let row = Versioned { version: 0, value: record.into() };
        let mut answer = TokenCreated { token: view::token(&snapshot, &row), secret };
        let mut txn = Txn::new().insert(kind::TOKEN, &row.id, Some(row.tenant.as_str()), None, encoded);
        if let Some(key) = key {
            txn = key.record(txn, cloud, caller, &answer);
        }
        txn = txn.check(kind::USER, user, Some(owner.version));
        txn = journal(txn, cloud, caller, &row, "create");
        answer.token.version = cloud.state.commit(txn).await?.versions[0];
        Ok(answer)
    })
    .await
}

/// The role of the new token; nobody gives more than they have.
fn role_of(caller: &Caller, body: &TokenCreate) -> Result<Role> {
    let role = body.role.unwrap_or(caller.principal.role);
    if role > caller.principal.role {
        return Err(Error::new(
            ErrorKind::Forbidden,
            format!("the role {role} is more than your own, {}", caller.principal.role),
        )
        .at("role"));
    }
    if body.expires_in_s.is_some_and(|seconds| !(1..=EXPIRES_MAX_S).contains(&seconds)) {
        return Err(Error::invalid(format!("expires_in_s must be 1 to {EXPIRES_MAX_S}")).at("expires_in_s"));
    }
    Ok(role)
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, row: &TokenRecord, verb: &str) -> Txn {
    let line = Line {
        tenant: Some(&row.tenant),
        what: &format!("token.{verb}"),
        kind: kind::TOKEN,
        id: row.id.as_str(),
        name: row.name.as_str(),
        message: format!("role {}", row.role),
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

/// Own tokens are seen by everyone, those of others in the tenant by admins.
fn visible(caller: &Caller, row: &TokenRecord) -> bool {
    row.tenant == caller.tenant && (row.user == caller.principal.user || caller.principal.role >= Role::Admin)
}

pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Token>> {
    let snapshot = cloud.state.snapshot();
    let after = query.after.as_deref().unwrap_or("");
    let mut items: Vec<Token> = snapshot
        .tokens
        .values()
        .filter(|row: &&Row<TokenRecord>| row.id.as_str() > after && visible(caller, row))
        .filter(|row| query.get("name").is_none_or(|pattern| glob(pattern, row.name.as_str())))
        .take(query.limit + 1)
        .map(|row| view::token(&snapshot, row))
        .collect();
    let next = cut(&mut items, query.limit, |token| token.id.to_string());
    Ok(Page { items, next, seq: snapshot.seq })
}

pub async fn delete(cloud: &Cloud, caller: &Caller, id: &str) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let row = id
        .parse::<TokenId>()
        .ok()
        .and_then(|id| snapshot.tokens.get(&id))
        .filter(|row| visible(caller, row))
        .ok_or_else(|| Error::not_found(format!("token '{}'", shown(id))))?;
    let txn = Txn::new().delete(kind::TOKEN, &row.id, Some(row.version));
    cloud.state.commit(journal(txn, cloud, caller, row, "delete")).await.map(drop)
}
