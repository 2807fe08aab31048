//! Enrolment: a one-time token becomes a certificate.
//!
//! ```text
//!  issuer:  EnrollToken::make -> record (hash only) in the book, text to the operator
//!  joiner:  makes a key, pins the parent by the token's fingerprint, sends token + name + request
//!  parent:  Desk: check the token (in time, right kind and name) -> id -> Issuer -> certificate -> redeem -> answer
//! ```
//! The id follows from the token and the joiner's public key. So the same joiner may ask again when the answer was lost,
//! and is who it was; somebody else with the same token is refused.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use model::{Error, ErrorKind, Name, NodeId, ProvisionerId, Result, Timestamp, ZoneId};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use work::SharedClock;

use crate::ca::{
    IssueAsk, Issued, Issuer, fingerprint_of_pem, key_and_request, key_kept_and_request, request_key,
};
use crate::hosts::hosts_check;
use crate::https::{PATH_ENROLL, PATH_ISSUE, ParentClient, Parents, answer_read, unreachable_parent};
use crate::identity::{Credentials, Identity, Kind};
use crate::limits::{CONNECT_WAIT, REQUEST_WAIT, SMALL_BODY_MAX};
use crate::tls::joiner_config;
use crate::wallet::Wallet;
use crate::wire;

const TEXT_PREFIX: &str = "banyan1.";
const SECRET_LEN: usize = 24;
/// The ending of the file with the key of one that has asked to join and has no certificate yet.
const JOINING: &str = "joining";

/// The token as the operator carries it: a secret, and which CA to expect.
#[derive(Clone)]
pub struct EnrollToken {
    secret: [u8; SECRET_LEN],
    ca: [u8; 32],
}

impl EnrollToken {
    /// A new token and the record that its issuer keeps. The record cannot be turned back into the token.
    pub fn make(ca: [u8; 32], kind: Kind, name: Option<Name>, expires_at: Timestamp) -> (Self, TokenRecord) {
        let token = Self { secret: rand::random(), ca };
        let digest = digest_of(&token.secret);
        let record = TokenRecord { digest, kind, name, expires_at, hosts: Vec::new(), used_by: None };
        (token, record)
    }
}

impl fmt::Display for EnrollToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.secret[..], &self.ca[..]].concat();
        write!(f, "{TEXT_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl fmt::Debug for EnrollToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnrollToken(..)")
    }
}

impl FromStr for EnrollToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::invalid("this is not an enrolment token").hint("make one with 'banyan enroll'");
        let encoded = text.trim().strip_prefix(TEXT_PREFIX).ok_or_else(wrong)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| wrong())?;
        let (secret, ca) = bytes.split_at_checked(SECRET_LEN).ok_or_else(wrong)?;
        let secret = secret.try_into().map_err(|_| wrong())?;
        Ok(Self { secret, ca: ca.try_into().map_err(|_| wrong())? })
    }
}

fn digest_of(secret: &[u8]) -> String {
    hex::encode(Sha256::digest(secret))
}

/// The number that the id of a joiner is made of: the same for the same token and key.
fn number_of(secret: &[u8], public_key: &[u8]) -> u128 {
    let hash = Sha256::new().chain_update(digest_of(secret)).chain_update(public_key).finalize();
    hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// What the issuer keeps of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// SHA-256 of the secret, in hex.
    pub digest: String,
    pub kind: Kind,
    /// The only name that may join with it; any when absent.
    pub name: Option<Name>,
    pub expires_at: Timestamp,
    /// Names and addresses that whoever joins with it may have whatever else stands against that: the operator
    /// said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Who joined with it, and may ask for its certificate again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
}

impl TokenRecord {
    /// The record once `joiner` has used the token.
    #[must_use]
    pub fn used(self, joiner: &Joiner) -> Self {
        Self { used_by: Some(joiner.identity.id.clone()), ..self }
    }

    /// Whether this token lets `joiner` in. One sentence for all cases, so that nothing can be learned by trying.
    pub fn check(&self, joiner: &Joiner) -> Result<()> {
        let right_name = self.name.as_ref().is_none_or(|name| *name == joiner.name);
        let unused = self.used_by.as_ref().is_none_or(|id| *id == joiner.identity.id);
        if self.kind == joiner.identity.kind && right_name && unused && joiner.at < self.expires_at {
            return Ok(());
        }
        Err(token_refused())
    }
}

/// What a [`TokenBook`] says when there is no such token, or not for this joiner.
pub fn token_refused() -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        "the token is not valid: it was used, has expired or is for another",
    )
    .hint("make a new one with 'banyan enroll'")
}

/// Who wants to join: the identity it will have and the name that it asked for.
#[derive(Debug, Clone)]
pub struct Joiner {
    pub identity: Identity,
    pub name: Name,
    /// Names and addresses under which it will be reached by its own children.
    pub hosts: Vec<String>,
    pub at: Timestamp,
}

/// Where the tokens of an issuer are kept.
pub trait TokenBook: Send + Sync + 'static {
    fn add(&self, record: TokenRecord) -> BoxFuture<'_, Result<()>>;

    /// Whether [`TokenBook::redeem`] would let the joiner in now; changes nothing.
    fn check(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>>;

    /// Notes that the token with this digest is used, if [`TokenRecord::check`] lets the joiner in, and
    /// records the joiner where it must be known, all or nothing. Of two joiners only one succeeds; the same one may
    /// come again.
    fn redeem(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>>;
}

/// Tokens in memory; they are gone when the process is.
#[derive(Default)]
pub struct MemoryBook(Mutex<HashMap<String, TokenRecord>>);

impl TokenBook for MemoryBook {
    fn add(&self, record: TokenRecord) -> BoxFuture<'_, Result<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(record.digest.clone(), record);
        Box::pin(async { Ok(()) })
    }

    fn check(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = records.get(digest).ok_or_else(token_refused).and_then(|record| record.check(&joiner));
        Box::pin(async { checked })
    }

    fn redeem(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let mut records = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = match records.get_mut(digest) {
            Some(record) => record.check(&joiner).map(|()| *record = record.clone().used(&joiner)),
            None => Err(token_refused()),
        };
        Box::pin(async { checked })
    }
}

/// The parent's side of enrolment.
#[derive(Clone)]
pub struct Desk {
    /// What joins here, and under whom. Provisioners join where zones do.
    pub kind: Kind,
    pub parent: Option<String>,
    pub issuer: Arc<dyn Issuer>,
    pub book: Arc<dyn TokenBook>,
    pub clock: SharedClock,
}

/// The request of a joiner.
#[derive(Serialize, Deserialize)]
pub(crate) struct EnrollAsk {
    /// The token's secret, in hex.
    secret: String,
    name: Name,
    csr: String,
    #[serde(default)]
    hosts: Vec<String>,
    /// What it wants to be, where that is not what usually joins there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
}

/// How somebody wants to join.
#[derive(Debug, Clone)]
pub struct Newcomer {
    pub name: Name,
    /// Names and addresses of its listeners; a node has none.
    pub hosts: Vec<String>,
    /// What it wants to be, where that is not what usually joins there.
    pub kind: Option<Kind>,
}

impl Newcomer {
    pub fn provisioner(name: &Name) -> Self {
        Self { kind: Some(Kind::Provisioner), ..Self::from(name) }
    }
}

impl From<&Name> for Newcomer {
    fn from(name: &Name) -> Self {
        Self { name: name.clone(), hosts: Vec::new(), kind: None }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Enrolled {
    identity: Identity,
    cert: String,
    ca: String,
}

impl Desk {
    pub(crate) async fn enroll(&self, ask: EnrollAsk) -> Result<Enrolled> {
        let kind = ask.kind.unwrap_or(self.kind);
        if kind != self.kind && (self.kind, kind) != (Kind::Zone, Kind::Provisioner) {
            return Err(Error::invalid(format!("a {kind} does not join here")));
        }
        let secret = hex::decode(&ask.secret).map_err(|_| token_refused())?;
        let random = number_of(&secret, &request_key(&ask.csr)?);
        let id = match kind {
            Kind::Zone => ZoneId::from_random(random).to_string(),
            Kind::Node => NodeId::from_random(random).to_string(),
            Kind::Provisioner => ProvisionerId::from_random(random).to_string(),
            Kind::Server | Kind::Root => return Err(Error::invalid("a server cannot join")),
        };
        let identity = Identity { kind, id, parent: self.parent.clone() };
        hosts_check(&ask.hosts)?;
        let (identity_new, at) = (identity.clone(), self.clock.now());
        let joiner = Joiner { identity: identity_new, name: ask.name, hosts: ask.hosts, at };
        tracing::info!(%identity, name = %joiner.name, "enrolment asked for");
        let refused = |error: &Error| tracing::warn!(%identity, %error, "enrolment refused");
        let digest = digest_of(&secret);
        self.book.check(&digest, joiner.clone()).await.inspect_err(refused)?;
        // What fails here leaves the token good.
        let wanted = IssueAsk { identity: identity.clone(), csr: ask.csr, sans: Vec::new() };
        let issued = self.issuer.issue(wanted).await.inspect_err(refused)?;
        self.book.redeem(&digest, joiner).await.inspect_err(refused)?;
        tracing::info!(%identity, "enrolled");
        Ok(Enrolled { identity, cert: issued.cert, ca: issued.ca })
    }
}

/// Joins a parent at the first of its addresses that answers. The private key is made here and never leaves; save
/// what is returned.
pub async fn enroll(
    parents: impl Into<Parents>,
    token: &EnrollToken,
    newcomer: impl Into<Newcomer>,
) -> Result<Credentials> {
    enroll_with(&parents.into(), token, &newcomer.into(), key_and_request()?).await
}

/// As [`enroll`], and keeps what comes of it in `dir`. The key is there before anybody is asked, so that an answer that was
/// lost can be asked for again after a restart, with the same token.
pub async fn enroll_kept(
    dir: &Path,
    parents: impl Into<Parents>,
    token: &EnrollToken,
    newcomer: impl Into<Newcomer>,
) -> Result<Credentials> {
    // Beside the folder, which is there only once it has joined.
    let file = dir.with_extension(JOINING);
    if let Some(home) = file.parent() {
        std::fs::create_dir_all(home)?;
    }
    let made = key_kept_and_request(&file)?;
    let joined = match enroll_with(&parents.into(), token, &newcomer.into(), made).await {
        Err(error) if error.kind == ErrorKind::Unavailable => return Err(error),
        Ok(credentials) => credentials.save(dir).map(|()| credentials)?,
        // Refused: nothing is to be asked for again.
        Err(error) => {
            let _ = std::fs::remove_file(file);
            return Err(error);
        }
    };
    let _ = std::fs::remove_file(file);
    Ok(joined)
}

async fn enroll_with(
    parents: &Parents,
    token: &EnrollToken,
    newcomer: &Newcomer,
    made: (String, String),
) -> Result<Credentials> {
    let mut unreached = Error::invalid("a parent has at least one address");
    for url in parents.urls() {
        match enroll_at(url, token, newcomer, made.clone()).await {
            Err(error) if error.kind == ErrorKind::Unavailable => unreached = error,
            done => {
                let mut credentials = done?;
                credentials.parents = parents.urls().to_vec();
                return Ok(credentials);
            }
        }
    }
    Err(unreached)
}

async fn enroll_at(
    url: &str,
    token: &EnrollToken,
    newcomer: &Newcomer,
    (key, csr): (String, String),
) -> Result<Credentials> {
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(joiner_config(token.ca)?)
        .no_proxy()
        .https_only(true)
        .connect_timeout(CONNECT_WAIT)
        .build()
        .map_err(|error| Error::internal("the HTTPS client cannot be made").because(error))?;
    let Newcomer { name, hosts, kind } = newcomer.clone();
    let ask = EnrollAsk { secret: hex::encode(token.secret), name, csr, hosts, kind };
    let request = client
        .post(format!("{url}{PATH_ENROLL}"))
        .timeout(REQUEST_WAIT)
        .body(wire::encode(&ask, SMALL_BODY_MAX)?);
    let enrolled: Option<Enrolled> = answer_read(request.send().await.map_err(unreachable_parent)?).await?;
    let enrolled = enrolled.ok_or_else(|| Error::unavailable("the parent gave no certificate"))?;
    if fingerprint_of_pem(&enrolled.ca)? != token.ca {
        return Err(Error::new(
            ErrorKind::Unauthenticated,
            "the parent answered with another CA than its token's",
        ));
    }
    let Enrolled { identity, cert, ca } = enrolled;
    Ok(Credentials { identity, cert, key, ca, parents: Vec::new() })
}

/// Asks the parent for certificates, over the child's own mutual TLS: renewals, and what a zone passes on to root.
pub struct RemoteIssuer {
    client: ParentClient,
    fingerprint: [u8; 32],
}

impl RemoteIssuer {
    pub fn new(wallet: impl Into<Wallet>, parents: impl Into<Parents>) -> Result<Self> {
        let wallet = wallet.into();
        let fingerprint = fingerprint_of_pem(&wallet.credentials().ca)?;
        Ok(Self { client: ParentClient::new(&wallet, parents)?, fingerprint })
    }
}

impl Issuer for RemoteIssuer {
    fn issue(&self, ask: IssueAsk) -> BoxFuture<'_, Result<Issued>> {
        Box::pin(async move {
            // Asked rarely: a connection from before would show a certificate that was replaced since.
            self.client.reconnect()?;
            let issued = self.client.post_any(PATH_ISSUE, &ask, REQUEST_WAIT).await?;
            issued.ok_or_else(|| Error::unavailable("the parent gave no certificate"))
        })
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// Makes a key, has it certified and returns both: how a zone gets its listener's certificate.
pub async fn certify(issuer: &dyn Issuer, identity: Identity, sans: Vec<String>) -> Result<Credentials> {
    let (key, csr) = key_and_request()?;
    let issued = issuer.issue(IssueAsk { identity: identity.clone(), csr, sans }).await?;
    Ok(Credentials { identity, cert: issued.cert, key, ca: issued.ca, parents: Vec::new() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_reads_back_and_its_record_does_not_hold_it() {
        let (token, record) = EnrollToken::make([7; 32], Kind::Zone, None, Timestamp(10));
        let text = token.to_string();
        let read: EnrollToken = text.parse().unwrap();
        assert_eq!((read.secret, read.ca), (token.secret, token.ca));
        assert!(!serde_json::to_string(&record).unwrap().contains(&hex::encode(token.secret)));
        for bad in ["", "banyan1.", "banyan1.AAAA", &text[1..], &format!("{text}AAAA")] {
            assert!(bad.parse::<EnrollToken>().is_err(), "{bad}");
        }
    }
}
