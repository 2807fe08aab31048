//! Who is let in, and as whom: enrolment, certificates, limits.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Heard, Parent, Transport, ZONE, Zone, any_port, ca, node, observed, patiently, server, world};
use link::limits::{BODY_MAX, CERT_VALID};
use link::{
    Ca, Calls, Children, Desk, Down, EnrollToken, HttpsParent, HttpsParentConfig, Identity, Issuer, Kind,
    MemoryBook, RemoteIssuer, Renewal, TokenBook, Wallet, certify, enroll,
};
use model::exchange::Revision;
use model::{ErrorKind, Name, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use work::Clock;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn later() -> Timestamp {
    work::SystemClock.now().plus_ms(60_000)
}

async fn zone(dir: &std::path::Path, ca: &Arc<Ca>) -> Zone {
    Zone::start(dir, ca, Parent::new(1), (any_port(), any_port())).await
}

#[tokio::test]
async fn a_token_lets_one_node_in_once() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let zone = zone(dir.path(), &ca).await;
    let (token, record) = EnrollToken::make(ca.fingerprint(), Kind::Node, Some(name("node-1")), later());
    zone.book.add(record).await.unwrap();
    let refused = |error: model::Error| assert_eq!(error.kind, ErrorKind::Unauthenticated, "{error}");

    refused(enroll(&zone.url(), &token, &name("node-2")).await.unwrap_err());
    let credentials = enroll(&zone.url(), &token, &name("node-1")).await.unwrap();
    assert_eq!(credentials.identity.kind, Kind::Node);
    assert_eq!(credentials.identity.parent.as_deref(), Some(ZONE));
    refused(enroll(&zone.url(), &token, &name("node-1")).await.unwrap_err());

    for transport in [Transport::Https, Transport::Mqtt] {
        let uplink = zone.uplink(transport, &credentials);
        patiently("up", async { while !matches!(uplink.next().await, Down::Up) {} }).await;
        zone.handler.wait(Heard::Link(credentials.identity.child_id(), true)).await;
    }
    credentials.save(dir.path()).unwrap();
    let read = link::Credentials::load(dir.path()).unwrap().unwrap();
    assert_eq!((read.identity, read.key), (credentials.identity, credentials.key));
}

/// Gives no certificate at first.
struct Moody(Arc<Ca>, std::sync::atomic::AtomicBool);

impl Issuer for Moody {
    fn issue(&self, ask: link::IssueAsk) -> futures::future::BoxFuture<'_, model::Result<link::Issued>> {
        if self.1.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Box::pin(async { Err(model::Error::unavailable("root is away")) });
        }
        Issuer::issue(&*self.0, ask)
    }

    fn fingerprint(&self) -> [u8; 32] {
        self.0.fingerprint()
    }
}

#[tokio::test]
async fn a_token_is_not_lost_with_a_certificate_that_was_not_given_or_did_not_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let book = Arc::new(MemoryBook::default());
    let desk = Desk {
        kind: Kind::Node,
        parent: Some(ZONE.to_owned()),
        issuer: Arc::new(Moody(ca.clone(), true.into())),
        book: book.clone(),
        clock: Arc::new(work::SystemClock),
    };
    let config = HttpsParentConfig {
        listen: any_port(),
        server: server(&ca),
        children: Children::nodes_of(ZONE),
        desk: Some(desk),
        issuer: None,
        peers: None,
        dispatcher: None,
    };
    let zone = HttpsParent::start(config, Parent::new(1), Calls::new()).await.unwrap();
    let url = format!("https://localhost:{}", zone.address().port());
    let (token, record) = EnrollToken::make(ca.fingerprint(), Kind::Node, None, later());
    book.add(record).await.unwrap();
    let (mine, others) = (dir.path().join("mine"), dir.path().join("others"));
    let join = |home: &std::path::Path| {
        let (home, url, token) = (home.to_owned(), url.clone(), token.clone());
        async move { link::enroll_kept(&home, &url, &token, &name("node-1")).await }
    };
    assert_eq!(join(&mine).await.unwrap_err().kind, ErrorKind::Unavailable);
    let key = std::fs::read(mine.with_extension("joining")).unwrap();
    let first = join(&mine).await.unwrap();
    assert!(!mine.with_extension("joining").exists());
    // As if the answer had been lost: the same key is let in again, as who it is; another key is not.
    std::fs::write(mine.with_extension("joining"), key).unwrap();
    let again = join(&mine).await.unwrap();
    assert_eq!((again.identity, again.key), (first.identity, first.key));
    assert_eq!(join(&others).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    assert!(
        !others.exists() && !others.with_extension("joining").exists(),
        "one that is refused keeps nothing"
    );
}

#[tokio::test]
async fn an_expired_forged_or_misused_token_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let zone = zone(dir.path(), &ca).await;
    let (expired, record) = EnrollToken::make(ca.fingerprint(), Kind::Node, None, Timestamp(1));
    zone.book.add(record).await.unwrap();
    let (forged, _) = EnrollToken::make(ca.fingerprint(), Kind::Node, None, later());
    let (of_a_zone, record) = EnrollToken::make(ca.fingerprint(), Kind::Zone, None, later());
    zone.book.add(record).await.unwrap();
    for token in [expired, forged, of_a_zone] {
        let error = enroll(&zone.url(), &token, &name("node-1")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthenticated, "{error}");
    }
}

#[tokio::test]
async fn a_joiner_does_not_speak_to_a_parent_of_another_ca() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let zone = zone(dir.path(), &ca).await;
    let (token, mut record) = EnrollToken::make([1; 32], Kind::Node, None, later());
    record.kind = Kind::Node;
    zone.book.add(record).await.unwrap();
    let error = enroll(&zone.url(), &token, &name("node-1")).await.unwrap_err();
    assert!(error.message.contains("CA"), "{error}");
}

/// Neither a certificate of another CA, nor an expired one, nor one of another zone's node or of a zone gets through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let zone = zone(dir.path(), &ca).await;
    let mut foreign = node(&common::ca(&dir.path().join("other")), 1);
    foreign.ca = ca.cert_pem().to_owned();
    let id = model::NodeId::from_random(3).to_string();
    let lent = |identity| ca.issue_fresh(identity, &[], CERT_VALID).unwrap();
    let expired =
        ca.issue_fresh(Identity::new(Kind::Node, id.clone()).under(ZONE), &[], Duration::ZERO).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let wrong = [
        ("another CA", foreign),
        ("expired", expired),
        ("another zone's node", lent(Identity::new(Kind::Node, id.clone()).under("z-2"))),
        ("no zone's node", lent(Identity::new(Kind::Node, id))),
        ("a zone", lent(Identity::new(Kind::Zone, "z-2"))),
        ("a server", server(&ca)),
    ];
    for (what, credentials) in wrong {
        for transport in [Transport::Https, Transport::Mqtt] {
            let uplink = zone.uplink(transport, &credentials);
            let up = tokio::time::timeout(Duration::from_millis(1500), uplink.next()).await;
            assert!(up.is_err(), "{what} over {transport:?}: {up:?}");
            assert!(uplink.push(observed(1)).await.is_err(), "{what} over {transport:?}");
        }
    }
    assert!(zone.handler.beats.lock().unwrap().is_empty(), "nobody was heard");
}

/// A child whose parent is not ours: the address is right and the CA is not.
#[tokio::test]
async fn a_child_does_not_speak_to_a_parent_of_another_ca() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let zone = zone(dir.path(), &ca).await;
    let stranger = node(&common::ca(&dir.path().join("other")), 1);
    for transport in [Transport::Https, Transport::Mqtt] {
        let uplink = zone.uplink(transport, &stranger);
        assert!(tokio::time::timeout(Duration::from_millis(1500), uplink.next()).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oversized_set_is_refused_and_the_link_goes_on() {
    for transport in [Transport::Https, Transport::Mqtt] {
        let world = world(transport).await;
        let mut large = observed(1);
        large.facts.version = "0".repeat(BODY_MAX + 1);
        let error = world.uplink.push(large).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{transport:?}: {error}");
        world.uplink.push(observed(2)).await.unwrap();
        let at = Revision { epoch: 1, rev: 2 };
        world.zone.handler.wait(Heard::Observed(world.child.clone(), at)).await;
    }
}

/// Root and a zone: the zone enrols at root, gets its listener's certificate there, and enrols a node by passing
/// its request on.
#[tokio::test]
async fn a_zone_enrols_its_nodes_through_root() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let book = Arc::new(MemoryBook::default());
    let desk = Desk {
        kind: Kind::Zone,
        parent: None,
        issuer: ca.clone(),
        book: book.clone(),
        clock: Arc::new(work::SystemClock),
    };
    let config = HttpsParentConfig {
        listen: any_port(),
        server: server(&ca),
        children: Children::zones(),
        desk: Some(desk),
        issuer: Some(ca.clone()),
        peers: None,
        dispatcher: None,
    };
    let handler = Parent::new(1);
    *handler.hosts.lock().unwrap() = vec!["east.example".to_owned()];
    let root = HttpsParent::start(config, handler, Calls::new()).await.unwrap();
    let root_url = format!("https://{}", root.address());
    let (token, record) = EnrollToken::make(ca.fingerprint(), Kind::Zone, None, later());
    book.add(record).await.unwrap();
    let me = enroll(&root_url, &token, &name("zone-1")).await.unwrap();

    let issuer = Arc::new(RemoteIssuer::new(&me, &root_url).unwrap());
    let listener = Identity::new(Kind::Server, me.identity.id.clone());
    let server = certify(&*issuer, listener, vec!["127.0.0.1".into()]).await.unwrap();
    let nodes = Arc::new(MemoryBook::default());
    let desk = Desk {
        kind: Kind::Node,
        parent: Some(me.identity.id.clone()),
        issuer: issuer.clone(),
        book: nodes.clone(),
        clock: Arc::new(work::SystemClock),
    };
    let config = HttpsParentConfig {
        listen: any_port(),
        server,
        children: Children::nodes_of(me.identity.id.clone()),
        desk: Some(desk),
        issuer: None,
        peers: None,
        dispatcher: None,
    };
    let zone = HttpsParent::start(config, Parent::new(1), Calls::new()).await.unwrap();
    let (token, record) = EnrollToken::make(issuer.fingerprint(), Kind::Node, None, later());
    nodes.add(record).await.unwrap();
    let node = enroll(&format!("https://{}", zone.address()), &token, &name("node-1")).await.unwrap();
    assert_eq!(node.identity.parent.as_deref(), Some(me.identity.id.as_str()));

    // Its listener may have the names that root keeps for it, and no others, however often it asks.
    for names in [&["root.example"][..], &["east.example", "10.0.0.1"], &["*.example"]] {
        let listener = Identity::new(Kind::Server, me.identity.id.clone());
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert!(certify(&*issuer, listener, names).await.is_err());
    }
    let listener = Identity::new(Kind::Server, me.identity.id.clone());
    certify(&*issuer, listener, vec!["East.Example".into()]).await.unwrap();

    // The zone cannot have a certificate for another zone, or for another zone's node.
    for other in [Identity::new(Kind::Zone, "z-9"), Identity::new(Kind::Node, "n-9").under("z-9")] {
        let error = certify(&*issuer, other, Vec::new()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Forbidden);
    }
}

/// A certificate of seconds: it is renewed while the child speaks, and the old one is refused once it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_renewed_without_a_cut() {
    for transport in [Transport::Https, Transport::Mqtt] {
        let world = world(transport).await;
        let identity = node(&world.ca, 7).identity;
        let child = identity.child_id();
        let old = world.ca.issue_fresh(identity, &[], Duration::from_secs(6)).unwrap();
        let ends = old.validity().unwrap().1;
        let me = Wallet::from(&old);
        let uplink = match transport {
            Transport::Https => link::https_uplink(&me, &world.zone.url()).unwrap(),
            _ => link::mqtt_uplink(&me, &world.zone.broker_address.to_string(), &world.zone.url()).unwrap(),
        };
        patiently("up", async { while !matches!(uplink.next().await, Down::Up) {} }).await;
        let dir = world.dir.path().join("identity");
        let issuer = Arc::new(RemoteIssuer::new(&me, &world.zone.url()).unwrap());
        let renewal =
            Renewal { wallet: me.clone(), issuer: issuer.clone(), names: Vec::new(), dir: Some(dir.clone()) };
        let renewing = tokio::spawn(renewal.run());
        let mut rev = 0;
        while work::SystemClock.now() < ends.plus_ms(1500) {
            rev += 1;
            uplink.push(observed(rev)).await.unwrap_or_else(|error| panic!("{transport:?}: {error}"));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        renewing.abort();
        certify(&*issuer, me.identity(), Vec::new()).await.expect("it can be renewed again");
        let kept = link::Credentials::load(&dir).unwrap().unwrap();
        assert!(me.until().unwrap() > ends && kept.cert == me.credentials().cert);
        assert_ne!(kept.key, old.key, "a new key");
        let mut heard = world.zone.handler.heard.lock().await;
        while let Ok(event) = heard.try_recv() {
            assert_ne!(event, Heard::Link(child.clone(), false), "{transport:?}");
        }
        drop(heard);
        drop(uplink);
        let late = world.zone.uplink(transport, &old);
        assert!(common::stays_down(&*late).await, "{transport:?}: the old one has ended");
    }
}

/// The certificate that a TLS listener shows. Nothing when it is being exchanged at this moment.
async fn shown(address: std::net::SocketAddr, me: &link::Credentials) -> Option<Vec<u8>> {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der(&me.ca)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(me.key.as_bytes()).unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![der(&me.cert)], key)
        .unwrap();
    let socket = tokio::net::TcpStream::connect(address).await.ok()?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let tls = connector.connect("localhost".try_into().unwrap(), socket).await.ok()?;
    Some(tls.get_ref().1.peer_certificates()?[0].to_vec())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_show_a_renewed_certificate_and_keep_who_is_connected() {
    let world = world(Transport::Mqtt).await;
    common::desired_next(&*world.uplink).await;
    let (https, broker) = world.zone.addresses();
    let fresh = server(&world.ca);
    let wanted = CertificateDer::from_pem_slice(fresh.cert.as_bytes()).unwrap().to_vec();
    world.zone.https.wallet().replace(fresh).unwrap();
    for address in [https, broker] {
        patiently("the new certificate", async {
            while shown(address, &world.credentials).await.as_ref() != Some(&wanted) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    for rev in 1..=10 {
        world.uplink.push(observed(rev)).await.unwrap();
        let at = world.zone.handler.change();
        assert_eq!(common::desired_next(&*world.uplink).await.at, at);
    }
    let mut heard = world.zone.handler.heard.lock().await;
    while let Ok(event) = heard.try_recv() {
        assert_ne!(event, Heard::Link(world.child.clone(), false));
    }
}

#[test]
fn a_wallet_keeps_what_it_has_when_the_new_is_of_no_use() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let mine = node(&ca, 1);
    let wallet = Wallet::from(&mine);
    let mut mixed = node(&ca, 1);
    mixed.key = node(&ca, 1).key;
    let foreign = node(&common::ca(&dir.path().join("other")), 1);
    for bad in [mixed, foreign, node(&ca, 2)] {
        assert!(wallet.replace(bad).is_err());
        assert_eq!(wallet.credentials().cert, mine.cert);
    }
    wallet.replace(node(&ca, 1)).unwrap();
    assert_ne!(wallet.credentials().cert, mine.cert);
}

/// Of several addresses the child uses the one that answers and holds the duty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_finds_the_parent_that_holds_the_duty() {
    let dir = tempfile::tempdir().unwrap();
    let ca = ca(dir.path());
    let first = zone(&dir.path().join("1"), &ca).await;
    let second = zone(&dir.path().join("2"), &ca).await;
    let dead = std::net::TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    *first.handler.moved.lock().unwrap() = Some(None);
    let me = node(&ca, 1);
    let child = me.identity.child_id();
    let urls = [format!("https://{dead}"), first.url(), second.url()];
    let uplink = link::https_uplink(&me, &urls[..]).unwrap();
    second.handler.wait(Heard::Link(child.clone(), true)).await;
    uplink.push(observed(1)).await.unwrap();
    assert!(first.handler.beats.lock().unwrap().is_empty(), "it heard nobody");
    // The duty goes to the first, and the second says so.
    *first.handler.moved.lock().unwrap() = None;
    *second.handler.moved.lock().unwrap() = Some(Some(first.url()));
    second.https.dismiss();
    first.handler.wait(Heard::Link(child.clone(), true)).await;
    // Its process ends, and the second takes over.
    *second.handler.moved.lock().unwrap() = None;
    drop(first);
    let mut rev = 1;
    patiently("the second", async {
        loop {
            rev += 1;
            if uplink.push(observed(rev)).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    second.handler.wait(Heard::Observed(child, Revision { epoch: 1, rev })).await;
}
