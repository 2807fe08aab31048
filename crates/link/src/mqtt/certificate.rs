//! What certificate a broker shows to somebody who comes now. A connection that is there says nothing of it: it may be
//! older than the certificate.

use std::sync::Arc;

use model::{Error, Result, Timestamp};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address_parse;
use crate::identity::validity_of;
use crate::limits::CONNECT_WAIT;
use crate::tls::client_config;
use crate::wallet::Wallet;

/// From when and until when the certificate of the broker at `host:port` is good. One that is not good any more is an
/// error.
pub async fn broker_certificate(address: &str, me: &Wallet) -> Result<(Timestamp, Timestamp)> {
    let (host, port) = address_parse(address)?;
    let lost = |error: std::io::Error| {
        Error::unavailable(format!("the broker at {address} lets nobody in: {error}")).because(error)
    };
    let name = ServerName::try_from(host.clone())
        .map_err(|error| Error::invalid(format!("'{host}' is not the name of a host")).because(error))?;
    let connector = TlsConnector::from(Arc::new(client_config(me)?));
    let shown = async {
        let socket = TcpStream::connect((host.as_str(), port)).await.map_err(lost)?;
        let stream = connector.connect(name, socket).await.map_err(lost)?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        validity_of(shown.ok_or_else(|| Error::unavailable("the broker shows no certificate"))?)
    };
    timeout(CONNECT_WAIT, shown)
        .await
        .map_err(|_| Error::unavailable(format!("the broker at {address} does not answer")))?
}
