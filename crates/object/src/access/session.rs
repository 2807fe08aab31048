//! Temporary credentials.
//!
//! Nothing is kept: the token holds sealed what it stands for, the access key id
//! is a digest of the token, and the secret is derived from the id. A request is
//! signed with the secret and carries the token; both are checked. The key that
//! asked for a session is looked up at each use, so that its end ends the session.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use s3s::S3ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::fault::{Fault, Result};
use crate::identity::Rights;

/// What ids of temporary keys begin with.
const PREFIX: &str = "ASIA";
const DIGEST: usize = 10;
const MARK: usize = 5;
const NONCE: usize = 12;
const SEAL: Payload<'static, 'static> = Payload { msg: b"", aad: b"session token" };
/// The longest token that is looked at.
const TOKEN_MAX: usize = 16 * 1024;

/// What a session stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The access key that asked for it.
    pub parent: String,
    /// The most it may do.
    pub rights: Level,
    /// The role that was assumed, as `role/session`.
    pub role: Option<String>,
    /// Seconds since 1970.
    pub expires: i64,
    /// What it is narrowed to.
    pub policy: Option<String>,
    /// The account in which an operator acts, if it is not its own.
    pub account: Option<String>,
}

/// [`Rights`], as they are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    Viewer,
    Member,
    Admin,
}

impl Level {
    /// By the name of a role.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "viewer" => Some(Self::Viewer),
            "member" => Some(Self::Member),
            "admin" => Some(Self::Admin),
            _ => None,
        }
    }

    pub fn rights(self) -> Rights {
        match self {
            Self::Viewer => Rights::Read,
            Self::Member => Rights::Write,
            Self::Admin => Rights::Manage,
        }
    }
}

impl From<Rights> for Level {
    fn from(rights: Rights) -> Self {
        match rights {
            Rights::Read => Self::Viewer,
            Rights::Write => Self::Member,
            Rights::Manage => Self::Admin,
        }
    }
}

/// What a client gets.
pub struct Issued {
    pub id: String,
    pub secret: Zeroizing<String>,
    pub token: String,
}

/// Makes credentials for a session.
pub fn issue(root: &[u8; 32], session: &Session) -> Issued {
    let plain = postcard::to_allocvec(session).expect("a record of owned parts encodes");
    let nonce: [u8; NONCE] = rand::random();
    let sealed = cipher(root)
        .encrypt(&Nonce::from(nonce), Payload { msg: &plain, ..SEAL })
        .expect("a small text can be sealed");
    let token = URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
    let id = id_of(root, &token);
    let secret = derived_secret(root, &id);
    Issued { id, secret, token }
}

/// Whether an access key is of the temporary kind.
pub fn is_temporary(id: &str) -> bool {
    id.starts_with(PREFIX) && id.len() == PREFIX.len() + (DIGEST + MARK) * 8 / 5
}

/// The secret of a temporary key; `None` if the id was not made here.
pub fn secret(root: &[u8; 32], id: &str) -> Option<Zeroizing<String>> {
    let (digest, mark) = id.strip_prefix(PREFIX)?.split_at_checked(DIGEST * 8 / 5)?;
    (marked(root, digest) == mark).then(|| derived_secret(root, id))
}

/// What a token stands for; `InvalidToken` if it is forged or of another key, `ExpiredToken` if its time is over.
pub fn open(root: &[u8; 32], id: &str, token: &str, now: i64) -> Result<Session> {
    let invalid =
        || Fault::new(S3ErrorCode::InvalidToken, "The provided token is malformed or otherwise invalid.");
    if token.len() > TOKEN_MAX || id_of(root, token) != id {
        return Err(invalid());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| invalid())?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE>().ok_or_else(invalid)?;
    let plain = cipher(root).decrypt(&Nonce::from(*nonce), Payload { msg: sealed, ..SEAL });
    let session: Session = postcard::from_bytes(&plain.map_err(|_| invalid())?).map_err(|_| invalid())?;
    if session.expires <= now {
        return Err(Fault::new(S3ErrorCode::ExpiredToken, "The provided token has expired."));
    }
    Ok(session)
}

fn id_of(root: &[u8; 32], token: &str) -> String {
    let digest = Sha256::digest(token.as_bytes());
    let digest = base32(&digest[..DIGEST]);
    let mark = marked(root, &digest);
    format!("{PREFIX}{digest}{mark}")
}

/// Tells ids of ours from others without a look at a token.
fn marked(root: &[u8; 32], digest: &str) -> String {
    base32(&derive(root, "object store: session id", digest)[..MARK])
}

fn derived_secret(root: &[u8; 32], id: &str) -> Zeroizing<String> {
    Zeroizing::new(STANDARD_NO_PAD.encode(derive(root, "object store: session secret", id)))
}

fn cipher(root: &[u8; 32]) -> Aes256Gcm {
    let key = derive(root, "object store: session token", "");
    Aes256Gcm::new_from_slice(&key).expect("the key has 32 bytes")
}

fn derive(root: &[u8; 32], purpose: &str, of: &str) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(root).expect("any length of key is good");
    mac.update(purpose.as_bytes());
    mac.update(&[0]);
    mac.update(of.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Capitals and digits, five bits each. The length must divide by five.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::with_capacity(bytes.len() * 8 / 5);
    for chunk in bytes.chunks(5) {
        let bits = chunk.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        for place in (0..8).rev() {
            text.push(char::from(ALPHABET[(bits >> (place * 5)) as usize & 31]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ROOT: [u8; 32] = [7; 32];

    fn session() -> Session {
        Session {
            parent: "KEY".into(),
            rights: Level::Viewer,
            role: Some("viewer/backup".into()),
            expires: 1000,
            policy: None,
            account: None,
        }
    }

    fn code(result: Result<Session>) -> String {
        match result {
            Err(Fault::S3(code, _)) => code.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_session_opens_with_its_own_token() {
        let issued = issue(&ROOT, &session());
        assert!(is_temporary(&issued.id), "{}", issued.id);
        assert_eq!(secret(&ROOT, &issued.id).unwrap(), issued.secret);
        assert_eq!(open(&ROOT, &issued.id, &issued.token, 999).unwrap(), session());
    }

    #[test]
    fn two_sessions_share_nothing() {
        let (one, two) = (issue(&ROOT, &session()), issue(&ROOT, &session()));
        assert_ne!(one.id, two.id);
        assert_ne!(one.secret, two.secret);
        assert_eq!(code(open(&ROOT, &one.id, &two.token, 0)), "InvalidToken");
    }

    #[test]
    fn time_ends_a_session() {
        let issued = issue(&ROOT, &session());
        assert_eq!(code(open(&ROOT, &issued.id, &issued.token, 1000)), "ExpiredToken");
    }

    #[test]
    fn forged_tokens_and_ids_are_refused() {
        let issued = issue(&ROOT, &session());
        let mut token = issued.token.clone();
        token.replace_range(20..21, if &token[20..21] == "A" { "B" } else { "A" });
        assert_eq!(code(open(&ROOT, &issued.id, &token, 0)), "InvalidToken");
        // Also when the id is made to fit the token.
        assert_eq!(code(open(&ROOT, &id_of(&ROOT, &token), &token, 0)), "InvalidToken");
        let foreign = issue(&[8; 32], &session());
        assert!(secret(&ROOT, &foreign.id).is_none());
        assert_eq!(code(open(&ROOT, &foreign.id, &foreign.token, 0)), "InvalidToken");
        for id in ["", "ASIA", "ASIAé", "AKIAIOSFODNN7EXAMPLE", &"ASIAÄ".repeat(5)] {
            assert!(secret(&ROOT, id).is_none(), "{id}");
        }
        for token in ["", "not base64!", &"A".repeat(TOKEN_MAX + 1)] {
            assert_eq!(code(open(&ROOT, &id_of(&ROOT, token), token, 0)), "InvalidToken");
        }
    }
}
