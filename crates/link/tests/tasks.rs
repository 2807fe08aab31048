//! Tasks for provisioners: who may ask, how long a poll waits, and which of several servers is asked.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{Parent, any_port, ca, server};
use futures::future::BoxFuture;
use link::limits::CERT_VALID;
use link::{
    BlobSource, Ca, Calls, Children, Credentials, Desk, Dispatcher, EnrollToken, HttpsParent,
    HttpsParentConfig, Identity, Kind, MemoryBook, Newcomer, RemoteIssuer, TaskAnswer, TaskAsk, TaskClient,
    TaskDone, TokenBook, certify, enroll,
};
use model::{ChildId, Digest, Error, ErrorKind, Name, Report, Result, Timestamp};
use sha2::{Digest as _, Sha256};
use work::queue::Claim;

/// Has news only when it is told so.
#[derive(Default)]
struct Giver {
    news: AtomicBool,
    last: AtomicUsize,
    done: Mutex<Vec<(ChildId, Claim)>>,
    removed: AtomicBool,
    elsewhere: Mutex<Option<Option<String>>>,
}

impl Dispatcher for Giver {
    fn poll(&self, provisioner: &ChildId, ask: TaskAsk, is_last: bool) -> BoxFuture<'_, Result<TaskAnswer>> {
        let provisioner = provisioner.to_string();
        Box::pin(async move {
            if is_last {
                self.last.fetch_add(1, Ordering::Relaxed);
            } else if !self.news.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let workers = [(provisioner, ask.capacity)].into();
            Ok(TaskAnswer { seen: ask.seen + 1, workers, ..TaskAnswer::default() })
        })
    }

    fn finish(&self, provisioner: &ChildId, done: TaskDone) -> BoxFuture<'_, Result<()>> {
        self.done.lock().unwrap().push((provisioner.clone(), done.claim));
        Box::pin(async { Ok(()) })
    }

    fn resource(&self, _: &ChildId, tenant: &str, _: &Digest) -> BoxFuture<'_, Result<BlobSource>> {
        let found = match tenant {
            "main" => Ok(BlobSource::from_bytes(Bytes::from_static(b"#!/bin/sh\n"))),
            other => Err(Error::not_found(format!("file of '{other}'"))),
        };
        Box::pin(async { found })
    }

    fn admits(&self, provisioner: &ChildId) -> bool {
        !self.removed.load(Ordering::Relaxed) && provisioner.as_str().starts_with("prv-")
    }

    fn removed(&self, _: &ChildId) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    fn holds(&self) -> std::result::Result<(), Option<String>> {
        match &*self.elsewhere.lock().unwrap() {
            Some(holder) => Err(holder.clone()),
            None => Ok(()),
        }
    }
}

struct World {
    _dir: tempfile::TempDir,
    ca: Arc<Ca>,
    book: Arc<MemoryBook>,
    giver: Arc<Giver>,
    root: HttpsParent,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = ca(dir.path());
        let (book, giver) = (Arc::new(MemoryBook::default()), Arc::new(Giver::default()));
        let root = listen(&ca, &book, &giver).await;
        Self { _dir: dir, ca, book, giver, root }
    }

    fn url(&self) -> String {
        format!("https://{}", self.root.address())
    }

    async fn join(&self) -> Credentials {
        let (token, record) = EnrollToken::make(self.ca.fingerprint(), Kind::Provisioner, None, later());
        self.book.add(record).await.unwrap();
        enroll(&self.url(), &token, Newcomer::provisioner(&name("p1"))).await.unwrap()
    }
}

async fn listen(ca: &Arc<Ca>, book: &Arc<MemoryBook>, giver: &Arc<Giver>) -> HttpsParent {
    let clock = Arc::new(work::SystemClock);
    let desk = Desk { kind: Kind::Zone, parent: None, issuer: ca.clone(), book: book.clone(), clock };
    let config = HttpsParentConfig {
        listen: any_port(),
        server: server(ca),
        children: Children::zones(),
        desk: Some(desk),
        issuer: Some(ca.clone()),
        peers: None,
        dispatcher: Some(giver.clone()),
    };
    HttpsParent::start(config, Parent::new(1), Calls::new()).await.unwrap()
}

fn later() -> Timestamp {
    work::Clock::now(&work::SystemClock).plus_ms(60_000)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn ask() -> TaskAsk {
    TaskAsk { session: "s".into(), capacity: 7, ..TaskAsk::default() }
}

fn done() -> TaskDone {
    TaskDone {
        claim: Claim { job: "j".into(), task: 3, attempt: 1, life: 1 },
        report: Report { stdout: "x".repeat(1 << 20), ..Report::default() },
    }
}

#[tokio::test]
async fn a_provisioner_joins_polls_and_reports() {
    let world = World::new().await;
    let me = world.join().await;
    assert_eq!((me.identity.kind, &me.identity.id[..4]), (Kind::Provisioner, "prv-"));
    let client = TaskClient::new(&me, &world.url()).unwrap();
    world.giver.news.store(true, Ordering::Relaxed);
    let answer = client.poll(&ask()).await.unwrap();
    assert_eq!(answer.workers, [(me.identity.id.clone(), 7)].into(), "it speaks as its certificate says");
    assert_eq!(world.giver.last.load(Ordering::Relaxed), 0);
    // A poll that brings nothing is asked once more, with that, and answered.
    world.giver.news.store(false, Ordering::Relaxed);
    assert_eq!(client.poll(&ask()).await.unwrap().seen, 1);
    assert_eq!(world.giver.last.load(Ordering::Relaxed), 1);
    client.finish(&done()).await.unwrap();
    assert_eq!(*world.giver.done.lock().unwrap(), [(me.identity.child_id(), done().claim)]);

    let digest = Digest::from_sha256(&Sha256::digest(b"#!/bin/sh\n"));
    let mut file = Vec::new();
    assert_eq!(client.resource("main", &digest, &mut file).await.unwrap(), 10);
    let other = Digest::from_sha256(&Sha256::digest(b"other"));
    assert!(client.resource("main", &other, &mut Vec::new()).await.is_err(), "other bytes than asked for");
    for tenant in ["second", "../main", ""] {
        assert!(client.resource(tenant, &digest, &mut Vec::new()).await.is_err());
    }

    // It may have a new certificate for itself, and nothing else.
    let issuer = RemoteIssuer::new(&me, &world.url()).unwrap();
    certify(&issuer, me.identity.clone(), Vec::new()).await.unwrap();
    for wanted in [Identity::new(Kind::Zone, "z-1"), Identity::new(Kind::Server, me.identity.id.clone())] {
        assert_eq!(certify(&issuer, wanted, Vec::new()).await.unwrap_err().kind, ErrorKind::Forbidden);
    }
}

#[tokio::test]
async fn nobody_else_gets_tasks() {
    let world = World::new().await;
    world.giver.news.store(true, Ordering::Relaxed);
    let issued = |identity| world.ca.issue_fresh(identity, &[], CERT_VALID).unwrap();
    for other in [
        Identity::new(Kind::Zone, "prv-1"),
        Identity::new(Kind::Node, "prv-1").under("z-1"),
        Identity::new(Kind::Root, "prv-1"),
        Identity::new(Kind::Provisioner, "prv-1").under("z-1"),
        Identity::new(Kind::Provisioner, "unknown"),
    ] {
        let client = TaskClient::new(issued(other.clone()), &world.url()).unwrap();
        for error in [client.poll(&ask()).await.unwrap_err(), client.finish(&done()).await.unwrap_err()] {
            assert_eq!(error.kind, ErrorKind::Forbidden, "{other}");
            assert!(!TaskClient::is_removed(&error));
        }
    }
    // A zone's token makes no provisioner, and a zone's desk takes none.
    let (token, record) = EnrollToken::make(world.ca.fingerprint(), Kind::Zone, None, later());
    world.book.add(record).await.unwrap();
    let joined = enroll(&world.url(), &token, Newcomer::provisioner(&name("p1"))).await;
    assert_eq!(joined.unwrap_err().kind, ErrorKind::Unauthenticated);
    // One that was removed is told so, and gets no new certificate.
    let me = world.join().await;
    world.giver.removed.store(true, Ordering::Relaxed);
    let error = TaskClient::new(&me, &world.url()).unwrap().poll(&ask()).await.unwrap_err();
    assert!(TaskClient::is_removed(&error));
    let issuer = RemoteIssuer::new(&me, &world.url()).unwrap();
    assert!(certify(&issuer, me.identity.clone(), Vec::new()).await.is_err());
    // Where nobody gives tasks out there is nothing to be had.
    let alone = HttpsParentConfig {
        listen: any_port(),
        server: server(&world.ca),
        children: Children::zones(),
        desk: None,
        issuer: None,
        peers: None,
        dispatcher: None,
    };
    let root = HttpsParent::start(alone, Parent::new(1), Calls::new()).await.unwrap();
    let client = TaskClient::new(&me, &format!("https://{}", root.address())).unwrap();
    assert_eq!(client.poll(&ask()).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test]
async fn of_several_servers_the_one_is_asked_that_gives_tasks_out() {
    let world = World::new().await;
    let me = world.join().await;
    let holder = Arc::new(Giver::default());
    holder.news.store(true, Ordering::Relaxed);
    let other = listen(&world.ca, &world.book, &holder).await;
    let url = format!("https://{}", other.address());
    *world.giver.elsewhere.lock().unwrap() = Some(Some(url.clone()));
    // Nobody listens at the second one.
    let client = TaskClient::new(&me, &[world.url(), "https://127.0.0.1:1".into(), url][..]).unwrap();
    client.poll(&ask()).await.unwrap();
    client.finish(&done()).await.unwrap();
    assert_eq!(holder.done.lock().unwrap().len(), 1);
    // The duty moves back.
    *world.giver.elsewhere.lock().unwrap() = None;
    *holder.elsewhere.lock().unwrap() = Some(None);
    client.finish(&done()).await.unwrap();
    assert_eq!(world.giver.done.lock().unwrap().len(), 1);
    drop(other);
    client.finish(&done()).await.unwrap();
}
