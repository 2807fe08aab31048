//! Keys: ours, with which we come in, and those of machines, by which we know them.

use std::fmt;
use std::sync::Arc;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::SshError;

/// A private key. It never shows itself.
#[derive(Clone)]
pub struct Identity(pub(super) Arc<PrivateKey>);

impl Identity {
    /// A new Ed25519 key from 32 random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Arc::new(PrivateKey::from(Ed25519Keypair::from_seed(seed))))
    }

    /// Reads a key as `ssh-keygen` writes it, without a passphrase.
    pub fn parse(text: &str) -> Result<Self, SshError> {
        let key = PrivateKey::from_openssh(text.trim_start()).map_err(|error| {
            SshError::Key(format!(
                "this is no private key that can be used ({error}); make one with: ssh-keygen -t ed25519 -N ''"
            ))
        })?;
        if key.is_encrypted() {
            let why = "the private key has a passphrase, which nobody can type here; take it off with: ssh-keygen -p";
            return Err(SshError::Key(why.to_owned()));
        }
        if key.algorithm().is_rsa() {
            let why = "RSA keys are not used; make another one with: ssh-keygen -t ed25519 -N ''";
            return Err(SshError::Key(why.to_owned()));
        }
        Ok(Self(Arc::new(key)))
    }

    /// As a file for `ssh -i`.
    pub fn private_text(&self) -> Zeroizing<String> {
        self.0.to_openssh(LineEnding::LF).unwrap_or_default()
    }

    /// The line for `authorized_keys`.
    pub fn public_text(&self) -> String {
        self.0.public_key().to_openssh().unwrap_or_default()
    }

    /// Tells keys apart without showing them.
    pub fn fingerprint(&self) -> String {
        self.0.public_key().fingerprint(HashAlg::Sha256).to_string()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

/// The public key of a machine: `ssh-ed25519 AAAA…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostKey(String);

impl HostKey {
    pub(super) fn of(key: &PublicKey) -> Self {
        let mut key = key.clone();
        key.set_comment("");
        Self(key.to_openssh().unwrap_or_default().trim_end().to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn fingerprint(&self) -> String {
        PublicKey::from_openssh(&self.0)
            .map_or_else(|_| self.0.clone(), |key| key.fingerprint(HashAlg::Sha256).to_string())
    }
}

impl TryFrom<String> for HostKey {
    type Error = SshError;

    fn try_from(text: String) -> Result<Self, SshError> {
        let key = PublicKey::from_openssh(text.trim())
            .map_err(|error| SshError::Key(format!("'{}' is no host key: {error}", model::shown(&text))))?;
        Ok(Self::of(&key))
    }
}

impl From<HostKey> for String {
    fn from(key: HostKey) -> Self {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_and_read_and_does_not_show_itself() {
        let key = Identity::from_seed(&[7; 32]);
        let text = key.private_text();
        let again = Identity::parse(&text).unwrap();
        assert_eq!(again.public_text(), key.public_text());
        assert!(key.public_text().starts_with("ssh-ed25519 AAAA"));
        let shown = format!("{key:?}");
        assert!(shown.starts_with("Identity(SHA256:") && !shown.contains("PRIVATE"));
        assert!(Identity::parse("no key").unwrap_err().to_string().contains("ssh-keygen -t ed25519"));
    }

    #[test]
    fn host_keys_compare_without_their_comment() {
        let key = Identity::from_seed(&[9; 32]).public_text();
        let with: HostKey = format!("{key} root@somewhere").try_into().unwrap();
        let without: HostKey = key.try_into().unwrap();
        assert_eq!(with, without);
        assert!(HostKey::try_from("ssh-ed25519 nonsense".to_owned()).is_err());
    }
}
