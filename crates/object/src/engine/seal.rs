//! Sealing: AES-256-GCM per chunk under a key of the blob's own.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::api::SealKey;

/// Seals and opens the chunks of one blob.
#[derive(Clone)]
pub(super) struct Cipher(Box<Aes256Gcm>);

impl Cipher {
    pub fn new(key: &SealKey, salt: &[u8; 16]) -> Self {
        let mut mac =
            <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key.0.as_slice()).expect("any length will do");
        mac.update(b"banyan blob");
        mac.update(salt);
        let key = zeroize::Zeroizing::new(<[u8; 32]>::from(mac.finalize().into_bytes()));
        Self(Box::new(Aes256Gcm::new_from_slice(key.as_slice()).expect("the key has 32 bytes")))
    }

    /// The key is used for one blob only, so the chunk's number is a nonce. The last one is marked: a blob cut short does not open.
    pub fn seal(&self, chunk: u64, last: bool, plain: &[u8]) -> Vec<u8> {
        let payload = Payload { msg: plain, aad: &[u8::from(last)] };
        self.0.encrypt(&nonce(chunk), payload).expect("a chunk is far below the limit")
    }

    pub fn open(&self, chunk: u64, last: bool, sealed: &[u8]) -> Option<Vec<u8>> {
        let payload = Payload { msg: sealed, aad: &[u8::from(last)] };
        self.0.decrypt(&nonce(chunk), payload).ok()
    }
}

fn nonce(chunk: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&chunk.to_be_bytes());
    Nonce::from(nonce)
}
