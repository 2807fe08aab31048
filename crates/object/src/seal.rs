//! Encryption at rest: whose key seals an object, and how it is proven.

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use s3s::S3ErrorCode;
use s3s::dto::ServerSideEncryption;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::engine::{EngineError, SealKey};
use crate::fault::{Fault, Result};
use crate::record::{Bucket, Seal};

const AES256: &str = ServerSideEncryption::AES256;
const KMS: &str = ServerSideEncryption::AWS_KMS;
const NONCE: usize = 12;
/// The longest name of a key that the store keeps.
const KEY_ID_MAX: usize = 256;

/// A key that a client sends with every request and the store never keeps.
#[derive(Clone)]
pub struct CustomerKey {
    key: SealKey,
    md5: String,
}

impl CustomerKey {
    /// From the three headers; `None` if none of them is there.
    pub fn of(algorithm: Option<&str>, key: Option<&str>, md5: Option<&str>) -> Result<Option<Self>> {
        if algorithm.is_none() && key.is_none() && md5.is_none() {
            return Ok(None);
        }
        let missing = |what: &'static str| move || invalid(what);
        let algorithm = algorithm.ok_or_else(missing(
            "Requests specifying Server Side Encryption with Customer provided keys must provide a valid encryption algorithm.",
        ))?;
        if algorithm != AES256 {
            return Err(Fault::new(
                S3ErrorCode::InvalidEncryptionAlgorithmError,
                "The encryption request that you specified is not valid. The valid value is AES256.",
            ));
        }
        let key = key.ok_or_else(missing(
            "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key.",
        ))?;
        let md5 = md5.ok_or_else(missing(
            "Requests specifying Server Side Encryption with Customer provided keys must provide the client calculated MD5 of the secret key.",
        ))?;
        let bytes = STANDARD.decode(key.trim()).map(Zeroizing::new).ok();
        let bytes = bytes
            .and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok())
            .ok_or_else(missing("The secret key was invalid for the specified algorithm."))?;
        if crate::checksum::md5_base64(&bytes) != md5.trim() {
            return Err(invalid(
                "The calculated MD5 hash of the key did not match the hash that was provided.",
            ));
        }
        Ok(Some(Self { key: SealKey(Zeroizing::new(bytes)), md5: md5.trim().to_owned() }))
    }

    fn proof(&self, salt: &[u8]) -> Hmac<Sha256> {
        let mut mac = mac(&*self.key.0);
        mac.update(b"customer key");
        mac.update(salt);
        mac
    }

    fn fits(&self, salt: &[u8], proof: &[u8]) -> bool {
        self.proof(salt).verify_slice(proof).is_ok()
    }
}

/// What a request asks about the encryption of what it writes.
#[derive(Clone, Default)]
pub struct Wish {
    pub algorithm: Option<ServerSideEncryption>,
    pub kms_key: Option<String>,
    pub customer: Option<CustomerKey>,
}

/// How a new object is sealed, and the key to do it with.
#[derive(Clone, Default)]
pub struct Sealing {
    pub record: Option<Seal>,
    pub key: Option<SealKey>,
}

impl Wish {
    /// What the request asks for, else what the bucket has set, else nothing.
    pub fn sealing(&self, root: &[u8; 32], bucket: &Bucket) -> Result<Sealing> {
        self.check()?;
        if let Some(customer) = &self.customer {
            let salt: [u8; 16] = rand::random();
            let proof = customer.proof(&salt).finalize().into_bytes().to_vec();
            let record = Seal::Customer { md5: customer.md5.clone(), salt: salt.to_vec(), proof };
            return Ok(Sealing { record: Some(record), key: Some(customer.key.clone()) });
        }
        let Some(kms) = self.store_key(bucket)? else { return Ok(Sealing::default()) };
        let key = SealKey(Zeroizing::new(rand::random()));
        let wrapped = wrap(root, kms.as_deref(), &key);
        Ok(Sealing { record: Some(Seal::Store { wrapped, kms }), key: Some(key) })
    }

    fn check(&self) -> Result<()> {
        let algorithm = self.algorithm.as_ref().map(ServerSideEncryption::as_str);
        if self.customer.is_some() && (algorithm.is_some() || self.kms_key.is_some()) {
            return Err(invalid(
                "Server Side Encryption with Customer provided key is incompatible with the encryption method specified",
            ));
        }
        match algorithm {
            Some(KMS) if self.kms_key.as_ref().is_none_or(String::is_empty) => Err(invalid(
                "This store keeps no default key: name one in x-amz-server-side-encryption-aws-kms-key-id.",
            )),
            Some(KMS) if self.kms_key.as_ref().is_some_and(|key| key.len() > KEY_ID_MAX) => {
                Err(invalid("The name of the key is too long."))
            }
            Some(AES256) | None if self.kms_key.is_some() => Err(invalid(
                "x-amz-server-side-encryption-aws-kms-key-id goes with x-amz-server-side-encryption: aws:kms alone.",
            )),
            Some(AES256 | KMS) | None => Ok(()),
            Some(_) => Err(invalid("The encryption method specified is not supported")),
        }
    }

    /// `None` is no encryption by the store; `Some(None)` its own key; `Some(Some(id))` a named one.
    fn store_key(&self, bucket: &Bucket) -> Result<Option<Option<String>>> {
        match self.algorithm.as_ref().map(ServerSideEncryption::as_str) {
            Some(KMS) => return Ok(Some(self.kms_key.clone())),
            Some(_) => return Ok(Some(None)),
            None => {}
        }
        let rules = bucket.settings.encryption.as_ref().map(|encryption| encryption.rules.as_slice());
        let default = rules
            .unwrap_or_default()
            .iter()
            .find_map(|rule| rule.apply_server_side_encryption_by_default.as_ref());
        let Some(default) = default else { return Ok(None) };
        match default.sse_algorithm.as_str() {
            KMS => Ok(Some(Some(default.kms_master_key_id.clone().unwrap_or_else(|| "default".into())))),
            _ => Ok(Some(None)),
        }
    }
}

/// The key that opens what was sealed; the client's key must be there exactly when it is needed.
pub fn open(root: &[u8; 32], seal: Option<&Seal>, customer: Option<&CustomerKey>) -> Result<Option<SealKey>> {
    match (seal, customer) {
        (Some(Seal::Customer { salt, proof, .. }), Some(key)) if key.fits(salt, proof) => {
            Ok(Some(key.key.clone()))
        }
        (Some(Seal::Customer { .. }), Some(_)) => Err(Fault::new(
            S3ErrorCode::InvalidRequest,
            "The provided encryption parameters did not match the ones used originally.",
        )),
        (Some(Seal::Customer { .. }), None) => Err(Fault::new(
            S3ErrorCode::InvalidRequest,
            "The object was stored using a form of Server Side Encryption. The correct parameters must be provided to retrieve the object.",
        )),
        (_, Some(_)) => Err(Fault::new(
            S3ErrorCode::InvalidRequest,
            "The encryption parameters are not applicable to this object.",
        )),
        (Some(Seal::Store { wrapped, kms }), None) => Ok(Some(unwrap(root, kms.as_deref(), wrapped)?)),
        (None, None) => Ok(None),
    }
}

/// For a copy that shares the bytes of its source: the same key under the new terms.
/// `None` if the bytes must be written again.
pub fn shared(
    root: &[u8; 32],
    source: Option<&Seal>,
    key: Option<&SealKey>,
    new: &Sealing,
) -> Option<Sealing> {
    match (source, &new.record) {
        (None, None) => Some(Sealing::default()),
        (Some(Seal::Store { .. }), Some(Seal::Store { kms, .. })) => {
            let key = key?.clone();
            let wrapped = wrap(root, kms.as_deref(), &key);
            Some(Sealing { record: Some(Seal::Store { wrapped, kms: kms.clone() }), key: Some(key) })
        }
        (Some(Seal::Customer { .. }), Some(Seal::Customer { .. })) => {
            let same = *key?.0 == *new.key.as_ref()?.0;
            same.then(|| new.clone())
        }
        _ => None,
    }
}

/// What answers say of an object's encryption.
#[derive(Debug, Default)]
pub struct Shown {
    pub algorithm: Option<ServerSideEncryption>,
    pub kms_key: Option<String>,
    pub customer_algorithm: Option<String>,
    pub customer_md5: Option<String>,
}

pub fn shown(seal: Option<&Seal>) -> Shown {
    match seal {
        None => Shown::default(),
        Some(Seal::Store { kms: None, .. }) => {
            Shown { algorithm: Some(ServerSideEncryption::from_static(AES256)), ..Shown::default() }
        }
        Some(Seal::Store { kms, .. }) => Shown {
            algorithm: Some(ServerSideEncryption::from_static(KMS)),
            kms_key: kms.clone(),
            ..Shown::default()
        },
        Some(Seal::Customer { md5, .. }) => Shown {
            customer_algorithm: Some(AES256.to_owned()),
            customer_md5: Some(md5.clone()),
            ..Shown::default()
        },
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key).expect("any length of key is good")
}

/// The key that wraps data keys: derived, so that the root key itself touches no data.
fn wrapper(root: &[u8; 32], kms: Option<&str>) -> Aes256Gcm {
    let mut mac = mac(root);
    mac.update(b"object store: data keys");
    if let Some(kms) = kms {
        mac.update(b" under ");
        mac.update(kms.as_bytes());
    }
    Aes256Gcm::new_from_slice(&mac.finalize().into_bytes()).expect("the key has 32 bytes")
}

fn wrap(root: &[u8; 32], kms: Option<&str>, key: &SealKey) -> Vec<u8> {
    let nonce: [u8; NONCE] = rand::random();
    let payload = Payload { msg: &*key.0, aad: b"data key" };
    let sealed =
        wrapper(root, kms).encrypt(&Nonce::from(nonce), payload).expect("32 bytes are far below the limit");
    [nonce.as_slice(), &sealed].concat()
}

fn unwrap(root: &[u8; 32], kms: Option<&str>, wrapped: &[u8]) -> Result<SealKey> {
    let broken = || EngineError::Index("a data key does not open under the store's key".into());
    let (nonce, text) = wrapped.split_first_chunk::<NONCE>().ok_or_else(broken)?;
    let payload = Payload { msg: text, aad: b"data key" };
    let plain = wrapper(root, kms).decrypt(&Nonce::from(*nonce), payload).map_err(|_| broken())?;
    let plain = Zeroizing::new(plain);
    let key = <[u8; 32]>::try_from(plain.as_slice()).map_err(|_| broken())?;
    Ok(SealKey(Zeroizing::new(key)))
}

fn invalid(message: &'static str) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ROOT: [u8; 32] = [7; 32];

    fn customer(byte: u8) -> CustomerKey {
        let key = [byte; 32];
        let (text, md5) = (STANDARD.encode(key), crate::checksum::md5_base64(&key));
        CustomerKey::of(Some("AES256"), Some(&text), Some(&md5)).unwrap().unwrap()
    }

    fn bucket() -> Bucket {
        let owner = crate::identity::Account { id: "o".into(), name: "o".into() };
        let acl = crate::record::Acl::private(&owner);
        serde_json::from_value(serde_json::json!({
            "id": 1, "name": "b", "owner": owner, "created": 0, "acl": acl,
        }))
        .unwrap()
    }

    #[test]
    fn a_store_key_opens_only_under_its_root_and_name() {
        let wish = Wish {
            algorithm: Some(ServerSideEncryption::from_static(KMS)),
            kms_key: Some("k1".into()),
            customer: None,
        };
        let sealing = wish.sealing(&ROOT, &bucket()).unwrap();
        let key = open(&ROOT, sealing.record.as_ref(), None).unwrap().unwrap();
        assert_eq!(*key.0, *sealing.key.unwrap().0);
        assert!(open(&[8; 32], sealing.record.as_ref(), None).is_err());
        let Some(Seal::Store { wrapped, .. }) = sealing.record else { panic!("not the store's") };
        assert!(open(&ROOT, Some(&Seal::Store { wrapped, kms: None }), None).is_err());
    }

    #[test]
    fn a_customer_key_is_proven_and_not_kept() {
        let wish = Wish { customer: Some(customer(1)), ..Wish::default() };
        let seal = wish.sealing(&ROOT, &bucket()).unwrap().record;
        assert!(open(&ROOT, seal.as_ref(), Some(&customer(1))).is_ok());
        assert!(open(&ROOT, seal.as_ref(), Some(&customer(2))).is_err());
        assert!(open(&ROOT, seal.as_ref(), None).is_err());
        assert!(open(&ROOT, None, Some(&customer(1))).is_err());
        let kept = postcard::to_allocvec(&seal).unwrap();
        assert!(!kept.windows(32).any(|window| window == [1; 32]));
    }

    #[test]
    fn contradictions_are_refused() {
        let code = |wish: Wish| match wish.sealing(&ROOT, &bucket()) {
            Err(Fault::S3(code, _)) => Some(code),
            _ => None,
        };
        let aes = || Some(ServerSideEncryption::from_static(AES256));
        let kms = || Some(ServerSideEncryption::from_static(KMS));
        let other = Some(ServerSideEncryption::from_static("aes:kms"));
        let key = Some("k".to_owned());
        let bad = Some(S3ErrorCode::InvalidArgument);
        assert_eq!(code(Wish { algorithm: aes(), customer: Some(customer(1)), kms_key: None }), bad);
        assert_eq!(code(Wish { algorithm: kms(), customer: Some(customer(1)), kms_key: key.clone() }), bad);
        assert_eq!(code(Wish { algorithm: aes(), kms_key: key.clone(), customer: None }), bad);
        assert_eq!(code(Wish { algorithm: None, kms_key: key, customer: None }), bad);
        assert_eq!(code(Wish { algorithm: kms(), kms_key: None, customer: None }), bad);
        assert_eq!(code(Wish { algorithm: other, kms_key: None, customer: None }), bad);
        assert_eq!(code(Wish { algorithm: aes(), kms_key: None, customer: None }), None);
        assert!(CustomerKey::of(Some("AES256"), None, None).is_err());
        assert!(CustomerKey::of(None, Some("AAAA"), Some("AAAA")).is_err());
    }
}
