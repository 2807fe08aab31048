//! Access keys: their secrets, for the check of signatures, and whom they speak for.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, Uri};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};
use zeroize::Zeroizing;

use super::policy::{For, Policy};
use super::request::parameter;
use super::session;
use crate::fault::{Fault, Result};
use crate::identity::{Identity, Principal};

pub const TOKEN: &str = "x-amz-security-token";

/// Finds the secret that a request must be signed with.
pub struct Auth {
    identity: Arc<dyn Identity>,
}

impl Auth {
    pub fn new(identity: Arc<dyn Identity>) -> Self {
        Self { identity }
    }
}

#[async_trait]
impl S3Auth for Auth {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(secret(&*self.identity, access_key).await?.as_str()))
    }
}

/// The secret of an access key, temporary or not; `InvalidAccessKeyId` if it has none.
pub async fn secret(identity: &dyn Identity, access_key: &str) -> Result<Zeroizing<String>> {
    if session::is_temporary(access_key) {
        return session::secret(&identity.root_key(), access_key).ok_or_else(unknown);
    }
    Ok(identity.key(access_key).await.ok_or_else(unknown)?.secret)
}

/// Whom a request speaks for.
pub struct Identified {
    pub principal: Principal,
    /// What temporary credentials were narrowed to.
    pub narrowed: Option<Arc<Policy>>,
    /// Whether the credentials are temporary.
    pub temporary: bool,
}

/// The token that a request carries.
pub fn token_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let header = headers.get(TOKEN).and_then(|value| value.to_str().ok()).map(str::to_owned);
    header.or_else(|| parameter(uri, "X-Amz-Security-Token")).or_else(|| parameter(uri, TOKEN))
}

/// Whom a key speaks for whose signature was right. A temporary one must come with its token,
/// and no other with any.
pub async fn identify(identity: &dyn Identity, access_key: &str, token: Option<&str>) -> Result<Identified> {
    let invalid = |message: &'static str| Fault::new(S3ErrorCode::InvalidToken, message);
    if !session::is_temporary(access_key) {
        if token.is_some() {
            return Err(invalid("The key takes no token."));
        }
        let key = identity.key(access_key).await.ok_or_else(unknown)?;
        return Ok(Identified { principal: key.principal, narrowed: None, temporary: false });
    }
    let token = token.ok_or_else(|| invalid("The key needs its token."))?;
    let now = jiff::Timestamp::now().as_second();
    let session = session::open(&identity.root_key(), access_key, token, now)?;
    let mut principal = identity.key(&session.parent).await.ok_or_else(unknown)?.principal;
    principal.rights = principal.rights.min(session.rights.rights());
    principal.session = session.role.map(Into::into);
    if let Some(account) = session.account {
        // Whoever is no operator any more has nothing to do there.
        let account = identity.account(&account).await.filter(|_| principal.operator);
        principal.account =
            account.ok_or_else(|| invalid("The token is for an account that is closed to its key."))?;
    }
    let narrowed = session.policy.map(|policy| Policy::parse(&policy, For::Session)).transpose()?;
    Ok(Identified { principal, narrowed: narrowed.map(Arc::new), temporary: true })
}

fn unknown() -> Fault {
    Fault::new(
        S3ErrorCode::InvalidAccessKeyId,
        "The AWS Access Key Id you provided does not exist in our records.",
    )
}
