//! The key of a cluster: Ed25519, written as `ssh-keygen` writes it.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::{Error, Result};
use zeroize::Zeroizing;

const KIND: &[u8] = b"ssh-ed25519";
/// Letters of a line of the private part.
const LINE: usize = 70;
/// The private part is filled up to a multiple of this.
const BLOCK: usize = 8;

pub struct Key {
    /// The line for `authorized_keys`.
    pub public: String,
    pub private: Zeroizing<String>,
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

impl Key {
    pub fn from_seed(seed: &[u8; 32], comment: &str) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed)
            .map_err(|_| Error::internal("the key of a cluster cannot be made"))?;
        let point = pair.public_key().as_ref();
        let mut public = Vec::new();
        text(&mut public, KIND);
        text(&mut public, point);
        // Two equal numbers show that it was opened with the right passphrase; there is none.
        let mut inner = Zeroizing::new(vec![0; 8]);
        text(&mut inner, KIND);
        text(&mut inner, point);
        text(&mut inner, &Zeroizing::new([seed.as_slice(), point].concat()));
        text(&mut inner, comment.as_bytes());
        let fill = (1..).take((BLOCK - inner.len() % BLOCK) % BLOCK);
        inner.extend(fill);
        let mut whole = Zeroizing::new(b"openssh-key-v1\0".to_vec());
        text(&mut whole, b"none");
        text(&mut whole, b"none");
        text(&mut whole, b"");
        whole.extend(1_u32.to_be_bytes());
        text(&mut whole, &public);
        text(&mut whole, &inner);
        let letters = Zeroizing::new(STANDARD.encode(&*whole));
        let mut private = Zeroizing::new(String::from("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
        for line in letters.as_bytes().chunks(LINE) {
            private.extend(line.iter().map(|byte| char::from(*byte)));
            private.push('\n');
        }
        private.push_str("-----END OPENSSH PRIVATE KEY-----\n");
        Ok(Self { public: format!("ssh-ed25519 {} {comment}", STANDARD.encode(public)), private })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn ssh_keygen_reads_it() {
        let key = Key::from_seed(&[7; 32], "site").expect("made");
        assert!(key.public.starts_with("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"), "{}", key.public);
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("key");
        std::fs::write(&file, key.private.as_bytes()).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("closed");
        let Ok(output) = Command::new("ssh-keygen").arg("-y").arg("-f").arg(&file).output() else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), key.public, "{output:?}");
    }
}
