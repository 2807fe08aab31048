//! TLS settings: a server that knows its callers, a client that trusts our CA alone, and a joiner that
//! trusts the CA whose fingerprint its token carries.

use std::sync::Arc;

use model::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::ca::fingerprint_of;
use crate::identity::Credentials;
use crate::wallet::Wallet;

/// Makes our provider the default of the process; a second time does nothing.
pub fn provider_install() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    provider_install();
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A server that takes callers without a certificate too, because a joiner has none yet; every other
/// route asks for the caller's identity.
pub(crate) fn server_config(server: &Wallet) -> Result<ServerConfig> {
    server.check()?;
    let provider = provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(
        roots(&server.credentials().ca)?.into(),
        provider.clone(),
    )
    .allow_unauthenticated()
    .build()
    .map_err(|error| Error::internal("client certificates cannot be verified").because(error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(server.clone()));
    // A session that is taken up again would not be asked for a certificate that is still valid.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A client that shows its certificate and trusts our CA alone. The caller sets the protocols.
pub(crate) fn client_config(me: &Wallet) -> Result<ClientConfig> {
    me.check()?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots(&me.credentials().ca)?)
        .with_client_cert_resolver(Arc::new(me.clone()));
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// The certificate with its key, if they belong together.
pub(crate) fn certified(credentials: &Credentials) -> Result<CertifiedKey> {
    CertifiedKey::from_der(chain(credentials)?, key(credentials)?, &provider()).map_err(unusable)
}

/// A client without a certificate that trusts the one CA with this fingerprint.
pub(crate) fn joiner_config(fingerprint: [u8; 32]) -> Result<ClientConfig> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Arc::new(PinVerifier { fingerprint, algorithms, provider: provider.clone() });
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

fn roots(ca: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(ca)?).map_err(unusable)?;
    Ok(roots)
}

/// The certificate and then the CA, which a joiner needs to see.
fn chain(credentials: &Credentials) -> Result<Vec<CertificateDer<'static>>> {
    Ok(vec![certificate(&credentials.cert)?, certificate(&credentials.ca)?])
}

fn certificate(pem: &str) -> Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Error::invalid("a certificate is not in PEM").because(error))
}

fn key(credentials: &Credentials) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())
        .map_err(|error| Error::invalid("a private key is not in PEM").because(error))
}

fn unusable(error: rustls::Error) -> Error {
    Error::internal("the certificate or its key cannot be used").because(error)
}

/// Finds the pinned CA among the certificates that the server shows, then verifies against it as usual.
#[derive(Debug)]
struct PinVerifier {
    fingerprint: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pinned = intermediates.iter().find(|cert| fingerprint_of(cert) == self.fingerprint);
        let Some(pinned) = pinned else {
            return Err(rustls::Error::General("the parent's CA is not the one that the token names".into()));
        };
        let mut roots = RootCertStore::empty();
        roots.add(pinned.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
