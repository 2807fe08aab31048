//! Clients that do not keep to the rules: raw HTTPS and raw MQTT, with certificates that are good for less.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Heard, Transport, World, node, observed, patiently, world};
use link::Credentials;
use link::limits::{BODY_MAX, PACKET_MAX, SMALL_BODY_MAX, STRANGERS_MAX};
use model::exchange::Revision;
use rumqttc::{
    AsyncClient, Broker, Event, Incoming, LastWill, MqttOptions, PubAckReason, PublishOptions, PublishResult,
    QoS, SubscribeReasonCode, TlsConfiguration, Transport as Wire,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn tls(credentials: &Credentials, with_certificate: bool) -> rustls::ClientConfig {
    let ca = CertificateDer::from_pem_slice(credentials.ca.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca).unwrap();
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    if !with_certificate {
        return builder.with_no_client_auth();
    }
    let cert = CertificateDer::from_pem_slice(credentials.cert.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).unwrap();
    builder.with_client_auth_cert(vec![cert], key).unwrap()
}

fn mqtt(world: &World, client_id: &str, credentials: &Credentials, with_certificate: bool) -> MqttOptions {
    let address = world.zone.broker_address;
    let mut options = MqttOptions::new(client_id, Broker::tcp(address.ip().to_string(), address.port()));
    let tls = TlsConfiguration::Rustls(Arc::new(tls(credentials, with_certificate)));
    options.set_transport(Wire::tls_with_config(tls)).set_keep_alive(5);
    options
}

/// Whether the broker takes the connection.
async fn connects(options: MqttOptions) -> bool {
    let (_client, mut events) = AsyncClient::builder(options).build();
    patiently("an answer", async {
        loop {
            match events.poll().await {
                Ok(Event::Incoming(Incoming::ConnAck(_))) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_takes_nobody_under_another_name() {
    let world = world(Transport::Mqtt).await;
    let mallory = node(&world.ca, 2);
    let id = mallory.identity.id.clone();
    let will = |topic: String| LastWill::new(topic, "{\"conn\":1}", QoS::AtLeastOnce, false, None);
    assert!(connects(mqtt(&world, &id, &mallory, true)).await, "its own name is fine");
    assert!(!connects(mqtt(&world, world.child.as_str(), &mallory, true)).await, "another's name");
    assert!(!connects(mqtt(&world, common::ZONE, &mallory, true)).await, "the zone's name");
    assert!(!connects(mqtt(&world, &id, &mallory, false)).await, "no certificate");
    let mut options = mqtt(&world, &id, &mallory, true);
    options.set_last_will(will(format!("banyan/v1/{id}/up/gone")));
    assert!(connects(options.clone()).await, "its own will");
    options.set_last_will(will(format!("banyan/v1/{}/up/gone", world.child)));
    assert!(!connects(options).await, "a will that speaks for another");
    let mut options = mqtt(&world, &id, &mallory, true);
    options.set_credentials("admin", "admin");
    options.set_client_id(world.child.to_string());
    assert!(!connects(options).await, "a user name changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cannot_publish_or_subscribe_for_another() {
    let world = world(Transport::Mqtt).await;
    let mallory = node(&world.ca, 2);
    let me = mallory.identity.id.clone();
    let mut options = mqtt(&world, &me, &mallory, true);
    options.set_max_packet_size(Some(1 << 20));
    let (client, mut events) = AsyncClient::builder(options).capacity(16).build();
    let polling = tokio::spawn(async move { while events.poll().await.is_ok() {} });
    let body = serde_json::to_vec(&observed(9)).unwrap();
    for topic in
        [format!("banyan/v1/{}/up/observed", world.child), format!("banyan/v1/{me}/down/desired"), "x".into()]
    {
        let options = PublishOptions::at_least_once();
        let notice = client.publish_tracked(topic.clone(), body.clone(), options).await.unwrap();
        match patiently("an ack", notice.wait_async()).await.unwrap() {
            PublishResult::Qos1(ack) => assert_eq!(ack.reason, PubAckReason::NotAuthorized, "{topic}"),
            other => panic!("{other:?}"),
        }
    }
    for filter in [format!("banyan/v1/{}/down/+", world.child), "banyan/v1/+/up/+".into(), "#".into()] {
        let notice = client.subscribe_tracked(filter.clone(), QoS::AtLeastOnce).await.unwrap();
        let ack = patiently("an ack", notice.wait_async()).await.unwrap();
        assert_eq!(ack.return_codes, [SubscribeReasonCode::NotAuthorized], "{filter}");
    }
    polling.abort();
    // The child itself is heard, and nothing that was said in its name came before.
    world.uplink.push(observed(1)).await.unwrap();
    let heard = patiently("the child", async { world.zone.handler.heard.lock().await.recv().await }).await;
    assert_eq!(heard, Some(Heard::Observed(world.child.clone(), Revision { epoch: 1, rev: 1 })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packet_over_the_limit_ends_the_connection() {
    let world = world(Transport::Mqtt).await;
    let mallory = node(&world.ca, 2);
    let me = mallory.identity.id.clone();
    // The client would refuse by itself if it believed the broker's limit, so bytes are written by hand.
    let address = world.zone.broker_address;
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(&mallory, true)));
    let mut tls = connector.connect("localhost".try_into().unwrap(), socket).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut connect = vec![0x10, 0, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 5, 0, 0, me.len() as u8];
    connect.extend_from_slice(me.as_bytes());
    connect[1] = (connect.len() - 2) as u8;
    tls.write_all(&connect).await.unwrap();
    let mut answer = [0; 4];
    tls.read_exact(&mut answer).await.unwrap();
    assert_eq!((answer[0], answer[3]), (0x20, 0), "connected");
    let length = PACKET_MAX + 1024;
    let header = [
        0x32,
        (length & 0x7f) as u8 | 0x80,
        (length >> 7 & 0x7f) as u8 | 0x80,
        (length >> 14 & 0x7f) as u8 | 0x80,
        (length >> 21) as u8,
    ];
    tls.write_all(&header).await.unwrap();
    let _ = tls.write_all(&vec![0; 1 << 20]).await;
    patiently("the end", async {
        let mut rest = [0; 1024];
        while tls.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    })
    .await;
    world.uplink.push(observed(1)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_routes_need_a_certificate_and_small_enough_bodies() {
    let world = world(Transport::Https).await;
    let client = |with_certificate| {
        let tls = tls(&world.credentials, with_certificate);
        reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap()
    };
    let (nobody, child) = (client(false), client(true));
    let url = world.zone.url();
    let post = async |client: &reqwest::Client, path: &str, body: Vec<u8>| {
        client.post(format!("{url}/link/v1/{path}")).body(body).send().await.unwrap().status().as_u16()
    };
    for path in ["observed", "desired", "beat", "standing", "issue"] {
        assert_eq!(post(&nobody, path, b"{}".to_vec()).await, 401, "{path}");
    }
    for path in ["stream/1", "blob/sha256:1"] {
        let answer = nobody.get(format!("{url}/link/v1/{path}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 401, "{path}");
    }
    assert_eq!(post(&nobody, "enroll", b"{}".to_vec()).await, 400);
    assert_eq!(post(&nobody, "enroll", vec![b' '; SMALL_BODY_MAX + 1]).await, 413);
    assert_eq!(post(&child, "beat", Vec::new()).await, 204);
    assert_eq!(post(&child, "standing", Vec::new()).await, 204);
    assert_eq!(post(&child, "desired", vec![b' '; SMALL_BODY_MAX + 1]).await, 413);
    assert_eq!(post(&child, "observed", b"nonsense".to_vec()).await, 400);
    assert_eq!(post(&child, "observed", bomb()).await, 413);
    let large = child.post(format!("{url}/link/v1/observed")).body(vec![b' '; BODY_MAX + 1]).send().await;
    // The parent may answer before it has read everything, which some see as a broken connection.
    assert!(large.is_err() || large.is_ok_and(|answer| answer.status().as_u16() == 413));
    assert_eq!(post(&child, "beat", Vec::new()).await, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_over_https_does_not_cut_off_the_calls_over_mqtt() {
    let world = world(Transport::Mqtt).await;
    let uplink = world.uplink.clone();
    let answering = tokio::spawn(async move {
        loop {
            if let link::Down::Call(call) = uplink.next().await {
                let stream = uplink.open_stream(&call.stream).await.unwrap();
                let _ = stream.send(link::Frame::Eof).await;
            }
        }
    });
    let visitor = reqwest::Client::builder()
        .tls_backend_preconfigured(tls(&world.credentials, true))
        .no_proxy()
        .build()
        .unwrap();
    let beat = visitor.post(format!("{}/link/v1/beat", world.zone.url())).send().await.unwrap();
    assert_eq!(beat.status().as_u16(), 204);
    drop((beat, visitor));
    let beats = || world.zone.handler.beats.lock().unwrap()[&world.child];
    let before = beats();
    patiently("it beats over MQTT", async {
        while beats() < before + 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let mut heard = world.zone.handler.heard.lock().await;
    while let Ok(event) = heard.try_recv() {
        assert_ne!(event, Heard::Link(world.child.clone(), false), "the link over MQTT is there");
    }
    world.zone.calls.call(&world.child, model::exchange::Ask::Nodes).await.unwrap();
    answering.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_that_says_nothing_is_not_kept() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = world(Transport::Https).await;
    let url = world.zone.url();
    let address = url.strip_prefix("https://").unwrap().to_owned();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(&world.credentials, false)));
    let silent = async |begun: &str| {
        let socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let name = address.rsplit_once(':').unwrap().0.to_owned();
        let mut tls = connector.connect(name.try_into().unwrap(), socket).await.unwrap();
        tls.write_all(begun.as_bytes()).await.unwrap();
        let _ = patiently("the end", tls.read_to_end(&mut Vec::new())).await;
    };
    tokio::join!(silent(""), silent("P"), silent("PRI * HTTP/2.0\r\n"));
    world.uplink.push(observed(1)).await.unwrap();
}

/// Strangers that hold every place they can get, with bodies that never end, keep no child out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_do_not_take_the_places_of_children() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = world(Transport::Https).await;
    let url = world.zone.url();
    let address = url.strip_prefix("https://").unwrap().to_owned();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(&world.credentials, false)));
    let come = async || {
        let socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        let name = address.rsplit_once(':').unwrap().0.to_owned();
        let mut tls = connector.connect(name.try_into().unwrap(), socket).await.unwrap();
        let head = "POST /link/v1/enroll HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{";
        tls.write_all(head.as_bytes()).await.unwrap();
        tls
    };
    let mut held = Vec::new();
    for _ in 0..STRANGERS_MAX {
        held.push(come().await);
    }
    // One more is not let in, and a child is.
    let _ = patiently("the end", come().await.read_to_end(&mut Vec::new())).await;
    world.uplink.push(observed(1)).await.unwrap();
    // They are let go in time although each of them has said something.
    let _ = patiently("the end", held.remove(0).read_to_end(&mut Vec::new())).await;
}

/// Little that unpacks to much.
fn bomb() -> Vec<u8> {
    use std::io::Write;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let block = vec![b' '; 1 << 20];
    for _ in 0..(BODY_MAX >> 20) + 1 {
        packer.write_all(&block).unwrap();
    }
    packer.finish().unwrap()
}

/// A network that goes silent: connections stay open and nothing passes.
struct Proxy {
    address: std::net::SocketAddr,
    silent: tokio::sync::watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    async fn start(to: std::net::SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind(common::any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = tokio::sync::watch::Sender::new(false);
        let watched = silent.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let mut silence = watched.subscribe();
                connections.spawn(async move {
                    let mut near = near;
                    let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                    let silenced = tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
                        silenced = async { silence.wait_for(|silent| *silent).await.is_ok() } => silenced,
                    };
                    if silenced {
                        // Both sockets stay open and nothing is carried between them any more.
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { address, silent, task }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn a_silent_network_is_noticed(transport: Transport) {
    use link::Down;
    let world = world(transport).await;
    let credentials = node(&world.ca, 2);
    let child = credentials.identity.child_id();
    let (https, broker) = world.zone.addresses();
    let proxy = Proxy::start(if transport == Transport::Https { https } else { broker }).await;
    let uplink = match transport {
        Transport::Https => link::https_uplink(&credentials, &format!("https://{}", proxy.address)).unwrap(),
        Transport::Mqtt | Transport::Mosquitto => {
            link::mqtt_uplink(&credentials, &proxy.address.to_string(), &world.zone.url()).unwrap()
        }
    };
    world.zone.handler.wait(Heard::Link(child.clone(), true)).await;
    common::desired_next(&*uplink).await;
    proxy.silent.send_replace(true);
    patiently("lost", async { while !matches!(uplink.next().await, Down::Lost) {} }).await;
    if transport != Transport::Https {
        world.zone.handler.wait(Heard::Link(child.clone(), false)).await;
    }
    proxy.silent.send_replace(false);
    patiently("up", async { while !matches!(uplink.next().await, Down::Up) {} }).await;
    let at = world.zone.handler.change();
    assert_eq!(common::desired_next(&*uplink).await.at, at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_is_noticed_over_https() {
    a_silent_network_is_noticed(Transport::Https).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_is_noticed_over_mqtt() {
    a_silent_network_is_noticed(Transport::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_is_noticed_over_mosquitto() {
    a_silent_network_is_noticed(Transport::Mosquitto).await;
}

/// Many changes in a row while a child does not read: only the latest set matters, and it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_coalesced_for_a_slow_child() {
    for transport in [Transport::Https, Transport::Mqtt] {
        let world = world(transport).await;
        let mut last = world.zone.handler.change();
        for _ in 0..200 {
            last = world.zone.handler.change();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut sets = 0;
        while common::desired_next(&*world.uplink).await.at != last {
            sets += 1;
        }
        assert!(sets < 20, "{sets} sets before the last over {transport:?}");
    }
}

/// A child that writes its messages by hand.
struct Raw {
    me: String,
    client: AsyncClient,
    /// Topic and content of what came down.
    down: tokio::sync::mpsc::UnboundedReceiver<(String, serde_json::Value)>,
    polling: tokio::task::JoinHandle<()>,
}

impl Raw {
    async fn connect(world: &World, n: u128) -> Self {
        let credentials = node(&world.ca, n);
        let me = credentials.identity.id.clone();
        let (client, mut events) =
            AsyncClient::builder(mqtt(world, &me, &credentials, true)).capacity(16).build();
        let (tell, down) = tokio::sync::mpsc::unbounded_channel();
        let polling = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                if let Event::Incoming(Incoming::Publish(publish)) = event {
                    let topic = String::from_utf8_lossy(&publish.topic).into_owned();
                    let _ = tell.send((topic, serde_json::from_slice(&publish.payload).unwrap()));
                }
            }
        });
        let notice =
            client.subscribe_tracked(format!("banyan/v1/{me}/down/+"), QoS::AtLeastOnce).await.unwrap();
        patiently("subscribed", notice.wait_async()).await.unwrap();
        Self { me, client, down, polling }
    }

    async fn say(&self, leaf: &str, body: serde_json::Value) -> PubAckReason {
        let topic = format!("banyan/v1/{}/up/{leaf}", self.me);
        self.publish(topic, body).await
    }

    async fn publish(&self, topic: String, body: serde_json::Value) -> PubAckReason {
        let body = serde_json::to_vec(&body).unwrap();
        let notice = self.client.publish_tracked(topic, body, PublishOptions::at_least_once()).await.unwrap();
        match patiently("an ack", notice.wait_async()).await.unwrap() {
            PublishResult::Qos1(ack) => ack.reason,
            other => panic!("{other:?}"),
        }
    }

    async fn hears(&mut self, leaf: &str) -> serde_json::Value {
        let wanted = format!("banyan/v1/{}/down/{leaf}", self.me);
        patiently(leaf, async {
            loop {
                let (topic, body) = self.down.recv().await.unwrap();
                if topic == wanted {
                    return body;
                }
            }
        })
        .await
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.polling.abort();
    }
}

/// Messages of a connection that is over, and messages that come twice, change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_and_repeated_messages_do_nothing() {
    use serde_json::json;
    for transport in [Transport::Mqtt, Transport::Mosquitto] {
        let world = world(transport).await;
        let mut raw = Raw::connect(&world, 5).await;
        let child = model::ChildId::from(raw.me.as_str());
        let pulse = json!({ "at": "2026-01-01T00:00:00Z", "orphans_removed": 0 });
        let beat = |conn: u64, wait: serde_json::Value| json!({ "conn": conn, "wait": wait, "pulse": pulse });
        let report = |conn: u64, seq: u64| json!({ "conn": conn, "seq": seq, "observed": observed(seq) });
        raw.say("beat", beat(1, json!(null))).await;
        assert_eq!(raw.hears("welcome").await["conn"], 1);
        raw.say("beat", beat(2, json!(null))).await;
        assert_eq!(raw.hears("welcome").await["conn"], 2);
        // The first connection speaks on, too late.
        raw.say("beat", beat(1, json!({ "seq": 9, "have": null }))).await;
        raw.say("have", json!({ "conn": 1, "wait": { "seq": 10, "have": null } })).await;
        raw.say("observed", report(1, 11)).await;
        raw.say("gone", json!({ "conn": 1 })).await;
        // The second asks twice and reports twice.
        for _ in 0..2 {
            raw.say("have", json!({ "conn": 2, "wait": { "seq": 1, "have": null } })).await;
        }
        let answer = raw.hears("desired").await;
        assert_eq!((&answer["conn"], &answer["seq"]), (&json!(2), &json!(1)), "{transport:?}");
        for _ in 0..2 {
            raw.say("observed", report(2, 3)).await;
            let ack = raw.hears("ack").await;
            assert_eq!((&ack["conn"], &ack["seq"]), (&json!(2), &json!(3)), "{transport:?}");
        }
        raw.say("beat", json!("nonsense")).await;
        raw.say("gone", json!({ "conn": 2 })).await;
        let mut events = Vec::new();
        let mut heard = world.zone.handler.heard.lock().await;
        while events.last() != Some(&Heard::Link(child.clone(), false)) {
            let event = patiently("the end", heard.recv()).await.unwrap();
            let of_raw = matches!(&event, Heard::Link(c, _) | Heard::Observed(c, _) if *c == child);
            if of_raw {
                events.push(event);
            }
        }
        let at = Revision { epoch: 1, rev: 3 };
        let (link, seen) = (|up| Heard::Link(child.clone(), up), || Heard::Observed(child.clone(), at));
        assert_eq!(events, [link(true), link(true), seen(), seen(), link(false)], "{transport:?}");
    }
}

/// What docs/roles.md gives Mosquitto to do keeps each node at its own topics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_broker_keeps_each_node_at_its_own_topics() {
    use serde_json::json;
    let world = world(Transport::Mosquitto).await;
    common::desired_next(&*world.uplink).await;
    let mut mallory = Raw::connect(&world, 2).await;
    let victim = world.child.as_str();
    for topic in [
        format!("banyan/v1/{victim}/up/gone"),
        format!("banyan/v1/{victim}/down/call"),
        format!("banyan/v1/{}/down/call", mallory.me),
        "x".to_owned(),
    ] {
        let reason = mallory.publish(topic.clone(), json!({ "conn": 1 })).await;
        assert_eq!(reason, PubAckReason::NotAuthorized, "{topic}");
    }
    for filter in ["#".to_owned(), "banyan/v1/+/up/+".to_owned(), format!("banyan/v1/{victim}/down/+")] {
        let notice = mallory.client.subscribe_tracked(filter, QoS::AtLeastOnce).await.unwrap();
        let _ = patiently("an answer", notice.wait_async()).await;
    }
    world.zone.handler.change();
    common::desired_next(&*world.uplink).await;
    world.uplink.push(observed(1)).await.unwrap();
    assert!(mallory.down.try_recv().is_err(), "it hears nothing of others");
    let stranger = mqtt(&world, "n-1", &world.credentials, false);
    assert!(!connects(stranger).await, "no certificate");
    // Under whatever name it comes, the broker knows it by its certificate: the victim is not pushed out.
    assert!(connects(mqtt(&world, victim, &node(&world.ca, 3), true)).await);
    world.uplink.push(observed(2)).await.unwrap();
    // A node that joined another zone is not heard, although the broker lets it in.
    let foreign = node(&world.ca, 4);
    world.zone.handler.removed.lock().unwrap().push(foreign.identity.child_id());
    let uplink = world.zone.uplink(Transport::Mosquitto, &foreign);
    assert!(common::stays_down(&*uplink).await);
}

/// The identity of a node was copied to a second host: each ends the connection of the other, and both must not
/// keep the broker busy with that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_with_one_identity_come_less_and_less_often() {
    const WATCHED: Duration = Duration::from_secs(10);
    // By then each paused for at least 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5 and 2.5 seconds.
    const CONNECTIONS_MAX: usize = 2 * 9 + 6;
    let world = world(Transport::Mqtt).await;
    let _second = world.zone.uplink(Transport::Mqtt, &world.credentials);
    let mut heard = world.zone.handler.heard.lock().await;
    let mut connections = 0;
    let _ = tokio::time::timeout(WATCHED, async {
        while let Some(event) = heard.recv().await {
            connections += usize::from(matches!(event, Heard::Link(_, true)));
        }
    })
    .await;
    assert!((2..=CONNECTIONS_MAX).contains(&connections), "{connections} connections");
}
