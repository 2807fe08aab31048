//! Who a certificate speaks for, and the files that prove it.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use model::{ChildId, Error, ErrorKind, Result, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use work::{Clock, SystemClock};
use x509_parser::extensions::GeneralName;

const SCHEME: &str = "banyan://";
const ID_MAX: usize = 63;
const CREDENTIALS_FILE: &str = "credentials.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Zone,
    Node,
    /// The listening side of a parent.
    Server,
    /// One of several root servers, as it calls the others.
    Root,
    /// Carries out tasks that root gives out.
    Provisioner,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Node => "node",
            Self::Server => "server",
            Self::Root => "root",
            Self::Provisioner => "provisioner",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let all = [Self::Zone, Self::Node, Self::Server, Self::Root, Self::Provisioner];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a certificate is bound to. `parent` is the zone of a node, so that a node of one zone is
/// nobody to another although both trust the same CA.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    pub kind: Kind,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

impl Identity {
    pub fn new(kind: Kind, id: impl Into<String>) -> Self {
        Self { kind, id: id.into(), parent: None }
    }

    #[must_use]
    pub fn under(mut self, parent: impl Into<String>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    pub fn child_id(&self) -> ChildId {
        ChildId::from(self.id.as_str())
    }

    /// `banyan://zone/<id>`, or `banyan://node/<id>/<zone>` for a node.
    pub fn uri(&self) -> String {
        match &self.parent {
            Some(parent) => format!("{SCHEME}{}/{}/{parent}", self.kind, self.id),
            None => format!("{SCHEME}{}/{}", self.kind, self.id),
        }
    }

    pub fn check(&self) -> Result<()> {
        for part in [Some(&self.id), self.parent.as_ref()].into_iter().flatten() {
            let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            if part.is_empty() || part.len() > ID_MAX || !part.bytes().all(legal) {
                return Err(Error::invalid(format!("'{}' cannot be an identity", part.escape_debug())));
            }
        }
        Ok(())
    }

    fn from_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let kind = Kind::from_word(parts.next()?)?;
        let id = parts.next()?.to_owned();
        let parent = parts.next().map(str::to_owned);
        let identity = Self { kind, id, parent };
        (parts.next().is_none() && identity.check().is_ok()).then_some(identity)
    }

    /// Reads the identity of a certificate that was already verified. The common name and the URI must agree.
    pub fn from_certificate(der: &[u8]) -> Result<Self> {
        let refused = || Error::new(ErrorKind::Unauthenticated, "the certificate names no identity");
        let (_, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| refused())?;
        let names = certificate.subject_alternative_name().ok().flatten().ok_or_else(refused)?;
        let mut found = names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Self::from_uri(uri),
            _ => None,
        });
        let identity = found.next().ok_or_else(refused)?;
        let common = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if found.next().is_some() || common != Some(identity.id.as_str()) {
            return Err(refused());
        }
        Ok(identity)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}

/// Whom a parent takes as its children: root takes zones, a zone its own nodes.
#[derive(Debug, Clone)]
pub struct Children {
    pub kind: Kind,
    pub parent: Option<String>,
}

impl Children {
    pub fn zones() -> Self {
        Self { kind: Kind::Zone, parent: None }
    }

    pub fn nodes_of(zone: impl Into<String>) -> Self {
        Self { kind: Kind::Node, parent: Some(zone.into()) }
    }

    pub fn include(&self, identity: &Identity) -> bool {
        self.kind == identity.kind && self.parent == identity.parent
    }
}

/// A certificate, its key and the CA, all in PEM. The chain holds the certificate and then the CA.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credentials {
    pub identity: Identity,
    pub cert: String,
    pub key: String,
    pub ca: String,
    /// Where the parent was found at enrolment.
    #[serde(default)]
    pub parents: Vec<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Credentials {
    /// From when and until when the certificate is good.
    pub fn validity(&self) -> Result<(Timestamp, Timestamp)> {
        let der = CertificateDer::from_pem_slice(self.cert.as_bytes())
            .map_err(|error| Error::invalid("a certificate is not in PEM").because(error))?;
        validity_of(&der)
    }

    pub fn valid_now(&self) -> bool {
        let now = SystemClock.now();
        self.validity().is_ok_and(|(from, until)| from <= now && now < until)
    }

    /// Whether the certificate carries all these names and addresses of a server.
    pub fn serves(&self, names: &[String]) -> bool {
        let Ok(der) = CertificateDer::from_pem_slice(self.cert.as_bytes()) else { return false };
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(&der) else { return false };
        let Ok(Some(carried)) = certificate.subject_alternative_name() else { return false };
        let carries = |name: &String| {
            carried.value.general_names.iter().any(|carried| match (carried, name.parse::<IpAddr>()) {
                (GeneralName::DNSName(dns), Err(_)) => dns == name,
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V4(address))) => *bytes == address.octets(),
                (GeneralName::IPAddress(bytes), Ok(IpAddr::V6(address))) => *bytes == address.octets(),
                _ => false,
            })
        };
        names.iter().all(carries)
    }

    /// Keeps them in `dir`, readable by the owner alone.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal("credentials cannot be written").because(error))?;
        std::fs::create_dir_all(dir)?;
        file_write_private(&dir.join(CREDENTIALS_FILE), &text)
    }

    /// Writes the chain, the key and the CA as `NAME.cert.pem`, `NAME.key.pem` and `NAME.ca.pem`, for programs
    /// that take them from files.
    pub fn files_write(&self, dir: &Path, name: &str) -> Result<()> {
        let write = |kind: &str, content: &str| {
            file_write_private(&dir.join(format!("{name}.{kind}.pem")), content.as_bytes())
        };
        write("cert", &format!("{}{}", self.cert, self.ca))?;
        write("key", &self.key)?;
        write("ca", &self.ca)
    }

    /// Reads what [`Credentials::save`] wrote; `None` when there is nothing yet.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(CREDENTIALS_FILE);
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| Error::invalid(format!("{} is damaged", path.display())).because(error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// From when and until when a certificate is good.
pub(crate) fn validity_of(der: &[u8]) -> Result<(Timestamp, Timestamp)> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der)
        .map_err(|_| Error::new(ErrorKind::Unauthenticated, "the certificate cannot be read"))?;
    let validity = certificate.validity();
    let at = |seconds: i64| Timestamp(seconds.saturating_mul(1_000_000));
    Ok((at(validity.not_before.timestamp()), at(validity.not_after.timestamp())))
}

/// Writes a whole file with mode 0600, so that a crash leaves the old one or the new one.
pub(crate) fn file_write_private(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let draft = path.with_extension("draft");
    let _ = std::fs::remove_file(&draft);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    if let Some(dir) = path.parent() {
        std::fs::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_back_from_its_uri() {
        let node = Identity::new(Kind::Node, "n-1").under("z-1");
        assert_eq!(Identity::from_uri(&node.uri()), Some(node));
        for bad in [
            "banyan://node",
            "banyan://king/n-1",
            "http://node/n-1",
            "banyan://node/n-1/z/x",
            "banyan://node/N",
        ] {
            assert_eq!(Identity::from_uri(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_node_of_another_zone_is_no_child() {
        let children = Children::nodes_of("z-1");
        assert!(children.include(&Identity::new(Kind::Node, "n-1").under("z-1")));
        assert!(!children.include(&Identity::new(Kind::Node, "n-1").under("z-2")));
        assert!(!children.include(&Identity::new(Kind::Zone, "z-1")));
    }
}
