//! TLS: a certificate and its key from files, read again when they change.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use model::{Error, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::TlsFiles;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What connections are greeted with.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Current>,
}

struct Current {
    pem: Pem,
    acceptor: TlsAcceptor,
}

/// The files as they were read.
#[derive(PartialEq, Eq)]
struct Pem {
    certificate: Vec<u8>,
    key: zeroize::Zeroizing<Vec<u8>>,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self> {
        let current = Current::of(Pem::read(&files)?)?;
        Ok(Self { files, current: RwLock::new(current) })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.current.read().expect("no panic under this lock").acceptor.clone()
    }

    /// Takes up new files until `stop`. Files that cannot be used change nothing.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || this.look()).await;
            match looked {
                Ok(Ok(true)) => tracing::info!("S3 has a new certificate"),
                Ok(Err(error)) => {
                    tracing::warn!(error = error.message, "the new certificate of S3 is not taken");
                }
                _ => {}
            }
        }
    }

    /// Whether there was something new.
    fn look(&self) -> Result<bool> {
        let pem = Pem::read(&self.files)?;
        if pem == self.current.read().expect("no panic under this lock").pem {
            return Ok(false);
        }
        let current = Current::of(pem)?;
        *self.current.write().expect("no panic under this lock") = current;
        Ok(true)
    }
}

impl Pem {
    fn read(files: &TlsFiles) -> Result<Self> {
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| Error::invalid(format!("{} cannot be read: {error}", path.display())))
        };
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)?.into() })
    }
}

impl Current {
    fn of(pem: Pem) -> Result<Self> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem.certificate)
            .collect::<Result<_, _>>()
            .map_err(|error| Error::invalid(format!("the certificate of S3 is not in PEM: {error}")))?;
        if chain.is_empty() {
            return Err(Error::invalid("the certificate file of S3 has no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(&pem.key)
            .map_err(|error| Error::invalid(format!("the private key of S3 is not in PEM: {error}")))?;
        let unusable = |error: rustls::Error| {
            Error::invalid(format!("the certificate of S3 and its key cannot be used: {error}"))
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { pem, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

/// The version and the cipher of a connection.
pub type Agreed = (&'static str, &'static str);

/// What a handshake agreed on.
pub fn agreed(connection: &rustls::ServerConnection) -> Option<Agreed> {
    let version = match connection.protocol_version()? {
        rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3",
        rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "TLS",
    };
    Some((version, connection.negotiated_cipher_suite()?.suite().as_str().unwrap_or("-")))
}
