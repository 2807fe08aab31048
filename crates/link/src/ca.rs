//! The certificate authority of the tree, and who may ask it for a certificate.
//!
//! A certificate says who its holder is and nothing that the holder wrote itself: of a
//! request only the public key is used.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use model::{Error, ErrorKind, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hosts::hosts_check;
use crate::identity::{Credentials, Identity, Kind, file_write_private};
use crate::limits::{CA_VALID, CERT_BACKDATE, CERT_VALID};

const KEY_FILE: &str = "ca.key.pem";
const CERT_FILE: &str = "ca.cert.pem";

/// A request for a certificate. `sans` are names and addresses; only a server has any.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IssueAsk {
    pub identity: Identity,
    pub csr: String,
    #[serde(default)]
    pub sans: Vec<String>,
}

/// The certificate and the CA that signed it, in PEM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Issued {
    pub cert: String,
    pub ca: String,
}

/// Who gives out certificates: root's CA itself, or a zone that passes the request on to root.
pub trait Issuer: Send + Sync + 'static {
    fn issue(&self, ask: IssueAsk) -> BoxFuture<'_, Result<Issued>>;
    /// SHA-256 of the CA's certificate.
    fn fingerprint(&self) -> [u8; 32];
}

pub struct Ca {
    cert: String,
    fingerprint: [u8; 32],
    issuer: rcgen::Issuer<'static, KeyPair>,
    valid_for: Duration,
}

impl Ca {
    /// Opens the CA in `dir`, making it first when there is none.
    pub fn create_or_load(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let key = key_create_or_load(&dir.join(KEY_FILE))?;
        let path = dir.join(CERT_FILE);
        let cert = match std::fs::read_to_string(&path) {
            Ok(cert) => cert,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let cert = ca_certificate(&key)?;
                file_write_private(&path, cert.as_bytes())?;
                cert
            }
            Err(error) => return Err(error.into()),
        };
        Self::from_parts(key, cert)
    }

    /// A new CA as its key and certificate, in PEM, for whoever keeps them elsewhere than in a folder.
    pub fn make() -> Result<(String, String)> {
        let key = KeyPair::generate().map_err(broken("a key"))?;
        let cert = ca_certificate(&key)?;
        Ok((key.serialize_pem(), cert))
    }

    pub fn from_pem(key: &str, cert: &str) -> Result<Self> {
        Self::from_parts(KeyPair::from_pem(key).map_err(broken("the CA's key"))?, cert.to_owned())
    }

    /// The key and the certificate that [`Ca::create_or_load`] keeps in `dir`; `None` when there are none.
    pub fn read(dir: &Path) -> Result<Option<(String, String)>> {
        let read = |file| match std::fs::read_to_string(dir.join(file)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some).map_err(Error::from),
        };
        Ok(read(KEY_FILE)?.zip(read(CERT_FILE)?))
    }

    fn from_parts(key: KeyPair, cert: String) -> Result<Self> {
        let fingerprint = fingerprint_of_pem(&cert)?;
        let issuer = rcgen::Issuer::from_ca_cert_pem(&cert, key).map_err(broken("the CA's certificate"))?;
        Ok(Self { cert, fingerprint, issuer, valid_for: CERT_VALID })
    }

    /// Sets how long the certificates are good that it gives out.
    #[must_use]
    pub fn valid_for(mut self, valid_for: Duration) -> Self {
        self.valid_for = valid_for;
        self
    }

    pub fn cert_pem(&self) -> &str {
        &self.cert
    }

    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Signs the public key of a request for `identity`.
    pub fn issue(&self, ask: &IssueAsk, valid_for: Duration) -> Result<Issued> {
        let mut csr = CertificateSigningRequestParams::from_pem(&ask.csr)
            .map_err(|error| Error::invalid("the certificate request is not valid").because(error))?;
        csr.params = leaf_params(&ask.identity, &ask.sans, valid_for)?;
        let cert = csr.signed_by(&self.issuer).map_err(broken("a certificate"))?;
        Ok(Issued { cert: cert.pem(), ca: self.cert.clone() })
    }

    /// Makes a key and its certificate in one step, for a part that lives in the same process as the CA.
    pub fn issue_fresh(
        &self,
        identity: Identity,
        sans: &[String],
        valid_for: Duration,
    ) -> Result<Credentials> {
        let (key, csr) = key_and_request()?;
        let ask = IssueAsk { identity, csr, sans: sans.to_vec() };
        let issued = self.issue(&ask, valid_for)?;
        Ok(Credentials { identity: ask.identity, cert: issued.cert, key, ca: issued.ca, parents: Vec::new() })
    }
}

impl Issuer for Ca {
    fn issue(&self, ask: IssueAsk) -> BoxFuture<'_, Result<Issued>> {
        Box::pin(async move { Self::issue(self, &ask, self.valid_for) })
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

/// Whether the holder of one certificate may ask for another: a new one for itself, or, for a zone, one for
/// a node of its own or for its own listener. Which names the listener may have, its parent says
/// ([`crate::ParentHandler::hosts_allow`]).
pub fn issue_allowed(peer: &Identity, wanted: &Identity) -> bool {
    let own_node = wanted.kind == Kind::Node && wanted.parent.as_deref() == Some(peer.id.as_str());
    let own_server = wanted.kind == Kind::Server && wanted.id == peer.id && wanted.parent.is_none();
    peer == wanted || (peer.kind == Kind::Zone && (own_node || own_server))
}

/// A new key and the request that goes with it, in PEM. The key stays where it is made.
pub fn key_and_request() -> Result<(String, String)> {
    request_for(&KeyPair::generate().map_err(broken("a key"))?)
}

/// As [`key_and_request`], with the key in this file, which is made if it is not there.
pub(crate) fn key_kept_and_request(file: &Path) -> Result<(String, String)> {
    request_for(&key_create_or_load(file)?)
}

/// The public key of a request, whose maker has the private one.
pub(crate) fn request_key(csr: &str) -> Result<Vec<u8>> {
    let csr = CertificateSigningRequestParams::from_pem(csr)
        .map_err(|error| Error::invalid("the certificate request is not valid").because(error))?;
    Ok(csr.public_key.subject_public_key_info())
}

fn request_for(key: &KeyPair) -> Result<(String, String)> {
    let request = CertificateParams::default().serialize_request(key).map_err(broken("a request"))?;
    Ok((key.serialize_pem(), request.pem().map_err(broken("a request"))?))
}

pub fn fingerprint_of_pem(cert: &str) -> Result<[u8; 32]> {
    let der = CertificateDer::from_pem_slice(cert.as_bytes())
        .map_err(|error| Error::invalid("the certificate is not in PEM").because(error))?;
    Ok(fingerprint_of(&der))
}

pub(crate) fn fingerprint_of(der: &CertificateDer<'_>) -> [u8; 32] {
    Sha256::digest(der.as_ref()).into()
}

fn key_create_or_load(path: &Path) -> Result<KeyPair> {
    match std::fs::read_to_string(path) {
        Ok(text) => KeyPair::from_pem(&text).map_err(broken("the CA's key")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = KeyPair::generate().map_err(broken("a key"))?;
            file_write_private(path, key.serialize_pem().as_bytes())?;
            Ok(key)
        }
        Err(error) => Err(error.into()),
    }
}

fn ca_certificate(key: &KeyPair) -> Result<String> {
    let mut params = dated(CA_VALID);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Banyan CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params.self_signed(key).map_err(broken("the CA's certificate"))?.pem())
}

fn leaf_params(identity: &Identity, sans: &[String], valid_for: Duration) -> Result<CertificateParams> {
    identity.check()?;
    let server = identity.kind == Kind::Server;
    if !server && !sans.is_empty() {
        return Err(Error::new(ErrorKind::Forbidden, "only a server may carry names"));
    }
    hosts_check(sans)?;
    let mut params = dated(valid_for);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, identity.id.as_str());
    if let Some(parent) = &identity.parent {
        params.distinguished_name.push(DnType::OrganizationName, parent.as_str());
    }
    let uri = identity.uri().try_into().map_err(broken("an identity"))?;
    params.subject_alt_names = vec![SanType::URI(uri)];
    for san in sans {
        params.subject_alt_names.push(match san.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(san.as_str().try_into().map_err(broken("a host name"))?),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A child's certificate is no server's, so that no child can pose as a parent.
    params.extended_key_usages =
        vec![if server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth }];
    Ok(params)
}

fn dated(valid_for: Duration) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.not_before = (now - CERT_BACKDATE.min(valid_for)).into();
    params.not_after = (now + valid_for).into();
    params
}

fn broken(what: &'static str) -> impl Fn(rcgen::Error) -> Error {
    move |error| Error::internal(format!("{what} cannot be made or read")).because(error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_ca_is_made_once_and_its_key_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = Ca::create_or_load(dir.path()).unwrap();
        let again = Ca::create_or_load(dir.path()).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        let mode = std::fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_certificate_carries_the_identity_that_was_decided_and_not_what_the_request_says() {
        let dir = tempfile::tempdir().unwrap();
        let ca = Ca::create_or_load(dir.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut asked = CertificateParams::new(vec!["root.example".to_owned()]).unwrap();
        asked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        asked.distinguished_name.push(DnType::CommonName, "z-other");
        let csr = asked.serialize_request(&key).unwrap().pem().unwrap();
        let identity = Identity::new(Kind::Node, "n-1").under("z-1");
        let ask = IssueAsk { identity: identity.clone(), csr, sans: Vec::new() };
        let issued = ca.issue(&ask, CERT_VALID).unwrap();
        let der = CertificateDer::from_pem_slice(issued.cert.as_bytes()).unwrap();
        assert_eq!(Identity::from_certificate(&der).unwrap(), identity);
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert!(!parsed.is_ca());
        assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
    }

    #[test]
    fn a_zone_asks_for_its_own_and_nobody_asks_for_another() {
        let zone = Identity::new(Kind::Zone, "z-1");
        let node = Identity::new(Kind::Node, "n-1").under("z-1");
        assert!(issue_allowed(&zone, &zone) && issue_allowed(&zone, &node) && issue_allowed(&node, &node));
        assert!(issue_allowed(&zone, &Identity::new(Kind::Server, "z-1")));
        for wanted in [
            Identity::new(Kind::Zone, "z-2"),
            Identity::new(Kind::Node, "n-1").under("z-2"),
            Identity::new(Kind::Server, "z-2"),
        ] {
            assert!(!issue_allowed(&zone, &wanted) && !issue_allowed(&node, &wanted), "{wanted}");
        }
    }
}
