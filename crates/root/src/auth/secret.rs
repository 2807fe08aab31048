//! Random secrets, their hashes, and the master key that seals what must be read again.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use model::{Error, Result};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Owner only; anything wider is refused.
const KEY_MODE: u32 = 0o600;

/// 256 random bits as text.
pub fn secret_new() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

pub fn token_secret() -> String {
    format!("bynt_{}", secret_new())
}

pub fn session_secret() -> String {
    format!("byns_{}", secret_new())
}

/// SHA-256 in hex. Enough for secrets that are random; passwords are not.
pub fn hash_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn derive(key: &[u8], purpose: &str) -> [u8; KEY_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    mac.update(purpose.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Seals secrets at rest: AES-256-GCM with a random nonce, bound to a context.
#[derive(Clone)]
pub struct MasterKey {
    cipher: Aes256Gcm,
    /// From which keys for other uses are derived.
    seed: Zeroizing<[u8; KEY_BYTES]>,
}

impl MasterKey {
    /// Reads the key file, or makes it on first start.
    pub fn open(path: &Path) -> Result<Self> {
        match fs::File::open(path) {
            Ok(file) => Self::read(path, file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(describe(path, error)),
        }
    }

    /// Reads the key of a store that already holds things sealed with it; a new one would open none of them.
    pub fn open_present(path: &Path) -> Result<Self> {
        if path.exists() {
            return Self::open(path);
        }
        Err(Error::invalid(format!(
            "the master key {} is missing, but the database is in use",
            path.display()
        ))
        .hint("copy the file from another root server, or from a copy of this folder; without it access keys cannot be read"))
    }

    fn read(path: &Path, mut file: fs::File) -> Result<Self> {
        let mode = file.metadata().map_err(|e| describe(path, e))?.permissions().mode() & 0o777;
        if mode & !KEY_MODE != 0 {
            return Err(Error::invalid(format!(
                "the master key {} can be read by others (mode {mode:o})",
                path.display()
            ))
            .hint(format!("chmod 600 {}", path.display())));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_BYTES + 1));
        let limited = Read::by_ref(&mut file).take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes);
        limited.map_err(|e| describe(path, e))?;
        if bytes.len() != KEY_BYTES {
            return Err(Error::invalid(format!(
                "{} is not a master key of {KEY_BYTES} bytes",
                path.display()
            )));
        }
        Ok(Self::from_bytes(&bytes))
    }

    /// Written aside and renamed, so that a crash leaves no half key.
    fn create(path: &Path) -> Result<Self> {
        let bytes = Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
        let aside = path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(KEY_MODE)
            .open(&aside)
            .map_err(|e| describe(&aside, e))?;
        file.write_all(bytes.as_ref())
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&aside, path))
            .map_err(|e| describe(path, e))?;
        if let Some(dir) = path.parent() {
            fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| describe(dir, e))?;
        }
        Ok(Self::from_bytes(bytes.as_ref()))
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let cipher = Aes256Gcm::new_from_slice(bytes).expect("the key has 32 bytes");
        Self { cipher, seed: Zeroizing::new(derive(bytes, "seed")) }
    }

    /// A key of its own for another use, the same at every start.
    pub fn derive(&self, purpose: &str) -> [u8; KEY_BYTES] {
        derive(self.seed.as_ref(), purpose)
    }

    /// `context` must be given again to open: a sealed secret moved to another record does not open.
    pub fn seal(&self, context: &str, plain: &[u8]) -> String {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let payload = aes_gcm::aead::Payload { msg: plain, aad: context.as_bytes() };
        let sealed =
            self.cipher.encrypt(&Nonce::from(nonce), payload).expect("the text is far below the limit");
        let mut out = nonce.to_vec();
        out.extend_from_slice(&sealed);
        STANDARD_NO_PAD.encode(out)
    }

    pub fn unseal(&self, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>> {
        let broken = || Error::internal("a sealed secret does not open with this master key");
        let bytes = STANDARD_NO_PAD.decode(sealed).map_err(|_| broken())?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_BYTES>().ok_or_else(broken)?;
        let payload = aes_gcm::aead::Payload { msg: text, aad: context.as_bytes() };
        self.cipher.decrypt(&Nonce::from(*nonce), payload).map(Zeroizing::new).map_err(|_| broken())
    }
}

fn describe(path: &Path, error: std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    Error { message, ..Error::from(error) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_seal_opens_only_with_its_key_and_context() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        let key = MasterKey::open(&path).unwrap();
        let sealed = key.seal("key/BYN1", b"secret");
        assert!(!sealed.contains("secret"));
        let again = MasterKey::open(&path).unwrap();
        assert_eq!(again.unseal("key/BYN1", &sealed).unwrap().as_slice(), b"secret");
        assert!(again.unseal("key/BYN2", &sealed).is_err());
        let other = MasterKey::open(&dir.path().join("other.key")).unwrap();
        assert!(other.unseal("key/BYN1", &sealed).is_err());
        assert!(again.unseal("key/BYN1", "AAAA").is_err());
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        drop(MasterKey::open(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(MasterKey::open(&path).err().unwrap().hint.unwrap().contains("chmod 600"));
    }
}
