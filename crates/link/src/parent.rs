//! What a parent must be able to answer, whatever the transport.

use std::net::SocketAddr;
use std::path::Path;

use futures::future::BoxFuture;
use model::exchange::{Ack, Ask, Revision};
use model::{ChildId, Desired, Digest, Error, Observed, Pulse, Result};
use serde_json::Value;
use tokio::io::AsyncRead;

use crate::hosts::hosts_allowed;
use crate::stream::ByteStream;

/// The parent behind the link. The link has verified who the child is before it calls.
pub trait ParentHandler: Send + Sync + 'static {
    /// Takes what a child observes. The acknowledgement says what the parent now has.
    fn observed(&self, child: &ChildId, observed: Observed) -> BoxFuture<'_, Result<Ack>>;

    /// Resolves as soon as there is something newer than `have`; with `None` at once, with the whole set.
    /// It may be dropped and asked again at any time; the link puts the time limit around it.
    fn desired(&self, child: &ChildId, have: Option<Revision>) -> BoxFuture<'_, Result<Desired>>;

    /// As [`ParentHandler::desired`], in a page of about so many bytes and one entry at least. Asked for when a page
    /// was too large to be sent.
    fn desired_page(
        &self,
        child: &ChildId,
        have: Option<Revision>,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Desired>> {
        let _ = bytes;
        self.desired(child, have)
    }

    /// A child is connected, or is known to be gone (last will, closed connection).
    fn link_state(&self, child: &ChildId, up: bool);

    /// Two processes speak with the identity of this child, in turns.
    fn twins(&self, child: &ChildId) {
        let _ = child;
    }

    /// Any sign of life; it renews the child's lease. A beat brings a pulse.
    fn heard(&self, child: &ChildId, pulse: Option<&Pulse>);

    /// What carries the words of these children, and maybe of others that were not heard yet, is away: that nothing
    /// is heard of them says nothing. Said again and again until it is back, and once then.
    fn spare(&self, children: &[ChildId]) {
        let _ = children;
    }

    /// A blob that the child needs.
    fn blob(&self, child: &ChildId, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>>;

    /// Whether this parent is the one to talk to now. If not it may say who is, by the address that its children
    /// have for that one; they are sent there.
    fn holds(&self) -> Result<(), Option<String>> {
        Ok(())
    }

    /// Whether this child joined here. Asked where a broker of somebody else vouches for it, who may know
    /// nodes of other zones too.
    fn knows(&self, child: &ChildId) -> bool {
        self.admits(child)
    }

    /// Whether the listener of this child may have a certificate with these names and addresses.
    fn hosts_allow(&self, child: &ChildId, hosts: &[String]) -> Result<()> {
        let _ = child;
        hosts_allowed(hosts, &[])
    }

    /// Whether this child, whose certificate is valid, is still one of ours.
    fn admits(&self, child: &ChildId) -> bool {
        let _ = child;
        true
    }

    /// Whether this child was one of ours and was removed for good. It is told so, and drops what it holds; one
    /// that is merely unknown is not.
    fn removed(&self, child: &ChildId) -> bool {
        let _ = child;
        false
    }
}

/// What one root server answers the others. The link has verified that the caller is one of them.
pub trait PeerHandler: Send + Sync + 'static {
    /// Puts a question to a child that is connected here.
    fn ask(&self, child: &ChildId, ask: Ask) -> BoxFuture<'_, Result<ByteStream>>;

    /// A small question among the servers themselves.
    fn tell(&self, question: Value) -> BoxFuture<'_, Result<Value>>;

    /// A blob that lies here.
    fn blob(&self, digest: &Digest) -> BoxFuture<'_, Result<BlobSource>>;
}

/// Whether somebody could listen there now. The embedded broker shares its port with itself while a certificate is
/// exchanged, so it asks first.
pub fn listen_check(listen: SocketAddr) -> Result<()> {
    std::net::TcpListener::bind(listen)
        .map(drop)
        .map_err(|error| Error::unavailable(format!("cannot listen on {listen}: {error}")).because(error))
}

/// A blob that is ready to be sent.
pub struct BlobSource {
    pub len: u64,
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
}

impl BlobSource {
    pub async fn from_file(path: &Path) -> Result<Self> {
        let file = tokio::fs::File::open(path).await?;
        let len = file.metadata().await?.len();
        Ok(Self { len, reader: Box::new(file) })
    }

    pub fn from_bytes(bytes: bytes::Bytes) -> Self {
        Self { len: bytes.len() as u64, reader: Box::new(std::io::Cursor::new(bytes)) }
    }
}
