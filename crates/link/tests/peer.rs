//! Root servers among themselves: what is asked of one is answered by another, and nobody else may ask.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{Parent, any_port, ca, node, server, zone_credentials};
use futures::future::BoxFuture;
use link::limits::CERT_VALID;
use link::{
    BlobSource, ByteStream, Calls, Children, Credentials, Frame, HttpsParent, HttpsParentConfig, Identity,
    Kind, PeerClient, PeerHandler,
};
use model::exchange::Ask;
use model::{ChildId, Digest, Error, ErrorKind, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const WAIT: Duration = Duration::from_secs(10);

/// Knows one zone, which says every frame again, and one blob.
struct Echo;

impl PeerHandler for Echo {
    fn ask(&self, child: &ChildId, _: Ask) -> BoxFuture<'_, Result<ByteStream>> {
        let known = child.as_str() == "z-1";
        Box::pin(async move {
            if !known {
                return Err(Error::conflict("no such zone here").hint("look elsewhere"));
            }
            let (ours, mut theirs) = ByteStream::pair();
            tokio::spawn(async move {
                while let Some(frame) = theirs.recv().await {
                    theirs.send(frame).await.unwrap();
                }
            });
            Ok(ours)
        })
    }

    fn tell(&self, question: Value) -> BoxFuture<'_, Result<Value>> {
        Box::pin(async move { Ok(json!({ "asked": question })) })
    }

    /// Whatever is asked for, it is this.
    fn blob(&self, _: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        Box::pin(async { Ok(BlobSource::from_bytes(Bytes::from_static(b"layer"))) })
    }
}

async fn refused(url: &str, credentials: &Credentials) {
    let client = PeerClient::new(credentials, url).unwrap();
    let told = client.tell::<_, Value>(&json!(1), WAIT).await.unwrap_err();
    assert_eq!(told.kind, ErrorKind::Forbidden, "{told}");
    assert!(client.ask(&ChildId::from("z-1"), Ask::Nodes).await.is_err());
    let digest = Digest::from_sha256(&Sha256::digest(b"layer"));
    assert_eq!(client.blob(&digest, &mut Vec::new()).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_server_answers_the_others_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let config = |peers| HttpsParentConfig {
        listen: any_port(),
        server: server(&ca),
        children: Children::zones(),
        desk: None,
        issuer: None,
        peers,
        dispatcher: None,
    };
    let parent =
        HttpsParent::start(config(Some(Arc::new(Echo))), Parent::new(1), Calls::new()).await.unwrap();
    let url = format!("https://{}", parent.address());
    let root = ca.issue_fresh(Identity::new(Kind::Root, "s-1"), &[], CERT_VALID).unwrap();
    let client = PeerClient::new(&root, &url).unwrap();

    let told: Value = client.tell(&json!({"a": 1}), WAIT).await.unwrap();
    assert_eq!(told, json!({"asked": {"a": 1}}));
    let mut stream = client.ask(&ChildId::from("z-1"), Ask::Nodes).await.unwrap();
    stream.send(Frame::Stderr(Bytes::from_static(b"hello"))).await.unwrap();
    assert_eq!(stream.recv().await, Some(Frame::Stderr(Bytes::from_static(b"hello"))));
    let error = client.ask(&ChildId::from("z-2"), Ask::Nodes).await.unwrap_err();
    assert_eq!((error.kind, error.hint.as_deref()), (ErrorKind::Conflict, Some("look elsewhere")));

    let mut layer = Vec::new();
    let digest = Digest::from_sha256(&Sha256::digest(b"layer"));
    assert_eq!(client.blob(&digest, &mut layer).await.unwrap(), 5);
    assert_eq!(layer, b"layer");
    let other = Digest::from_sha256(&Sha256::digest(b"another"));
    assert!(client.blob(&other, &mut Vec::new()).await.is_err(), "what came is not what was asked for");

    for child in [zone_credentials(&ca), node(&ca, 1)] {
        refused(&url, &child).await;
    }
    // A parent that has no peers takes no root server either.
    let alone = HttpsParent::start(config(None), Parent::new(1), Calls::new()).await.unwrap();
    refused(&format!("https://{}", alone.address()), &root).await;
}
