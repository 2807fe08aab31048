//! Credentials in use: they may be renewed while connections made with the old ones go on.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Error, Result, Timestamp};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::identity::{Credentials, Identity};
use crate::tls::certified;

/// A handle; cheap to clone. New connections show what it holds at that moment.
#[derive(Clone)]
pub struct Wallet(Arc<Inner>);

struct Inner {
    held: Mutex<Held>,
    changes: watch::Sender<u64>,
}

struct Held {
    credentials: Arc<Credentials>,
    /// Absent when the certificate or its key cannot be used.
    key: Option<Arc<CertifiedKey>>,
}

impl Wallet {
    pub fn credentials(&self) -> Arc<Credentials> {
        self.held().credentials.clone()
    }

    pub fn identity(&self) -> Identity {
        self.held().credentials.identity.clone()
    }

    /// When the certificate ends.
    pub fn until(&self) -> Result<Timestamp> {
        self.credentials().validity().map(|(_, until)| until)
    }

    /// Takes new credentials of the same identity and CA. When they are of no use the old ones stay.
    pub fn replace(&self, credentials: Credentials) -> Result<()> {
        let key = certified(&credentials)?;
        let mut held = self.held();
        if credentials.identity != held.credentials.identity || credentials.ca != held.credentials.ca {
            return Err(Error::conflict("the new certificate is not for the same identity"));
        }
        *held = Held { credentials: Arc::new(credentials), key: Some(Arc::new(key)) };
        drop(held);
        self.0.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// Counts replacements, for those who must do something about one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether what it holds can be used at all.
    pub(crate) fn check(&self) -> Result<()> {
        certified(&self.credentials()).map(drop)
    }

    fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.held().key.clone()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Credentials> for Wallet {
    fn from(credentials: Credentials) -> Self {
        let key = certified(&credentials).ok().map(Arc::new);
        let held = Held { credentials: Arc::new(credentials), key };
        Self(Arc::new(Inner { held: Mutex::new(held), changes: watch::Sender::new(0) }))
    }
}

impl From<&Credentials> for Wallet {
    fn from(credentials: &Credentials) -> Self {
        credentials.clone().into()
    }
}

impl From<&Wallet> for Wallet {
    fn from(wallet: &Wallet) -> Self {
        wallet.clone()
    }
}

impl fmt::Debug for Wallet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wallet").field(&self.identity()).finish()
    }
}

impl ResolvesClientCert for Wallet {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.key()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Wallet {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key()
    }
}
