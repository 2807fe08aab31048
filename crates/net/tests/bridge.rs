//! The network of a node against the real kernel: reach, translation, filters, leases, clearing away.
//! Needs root, and the Debian packages nftables and iproute2.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use common::{Net, PATIENCE, SILENCE, call, datagram_passes, run, serve};
use model::ErrorKind;
use net::{Bridge, Ipv4Cidr};

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_and_the_host_reach_an_instance() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let (a, b) = (bridge.attach("i-a").await.unwrap(), bridge.attach("i-b").await.unwrap());
    assert_ne!(a.address, b.address);
    assert!(a.netns.starts_with("/run/netns") && a.netns.exists());
    assert_eq!(bridge.attach("i-a").await.unwrap(), a, "a second attach changes nothing");
    assert_eq!(bridge.lookup("i-a"), Some(a.clone()));

    let server = serve(&b.netns, Ipv4Addr::UNSPECIFIED, 0);
    let to = SocketAddr::from((b.address, server.port()));
    assert_eq!(call(Some(&a.netns), to, PATIENCE).unwrap(), a.address.to_string());
    assert_eq!(call(None, to, PATIENCE).unwrap(), bridge.gateway().to_string());
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    assert_eq!(call(Some(&b.netns), loopback, PATIENCE).unwrap(), "127.0.0.1");
    run(&format!(
        "ip netns exec {}i-a busybox ping -c 1 -W 10 {}",
        net.config.netns_prefix,
        bridge.gateway()
    ));

    let counters = bridge.counters("i-a").unwrap();
    assert!(counters.sent_bytes > 0 && counters.received_bytes > 0, "{counters:?}");
    bridge.detach("i-a").await.unwrap();
    bridge.detach("i-a").await.unwrap();
    assert_eq!(bridge.lookup("i-a"), None);
    assert!(!a.netns.exists() && bridge.counters("i-a").is_err());
    bridge.stop().await.unwrap();
    assert_eq!(net.remains(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_took_away_is_put_back() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let a = bridge.attach("i-a").await.unwrap();
    let server = serve(&a.netns, Ipv4Addr::UNSPECIFIED, 0);
    let to = SocketAddr::from((a.address, server.port()));
    assert_eq!(bridge.mend().await.unwrap(), [""; 0], "nothing is wrong");
    let tag = net.config.bridge.clone();
    for harm in [
        format!("nft delete table inet {tag}"),
        format!("nft flush table bridge {tag}"),
        format!("ip link set {tag} down"),
        format!("ip link delete {tag}"),
    ] {
        run(&harm);
        let mended = bridge.mend().await.unwrap();
        assert!(!mended.is_empty(), "{harm} was not seen");
        assert_eq!(bridge.mend().await.unwrap(), [""; 0], "{harm}: {mended:?}");
        assert_eq!(call(None, to, PATIENCE).unwrap(), bridge.gateway().to_string(), "{harm}");
    }
    bridge.stop().await.unwrap();
    assert_eq!(net.remains(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outside_is_reached_by_translation_and_does_not_reach_in() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let a = bridge.attach("i-a").await.unwrap();
    // A namespace of its own plays the outside; it knows no way to the subnet.
    let [_, _, third, _] = bridge.subnet().network().octets();
    let (host, outside) = (format!("198.18.{third}.1"), format!("198.18.{third}.2"));
    let (space, near, far) =
        (format!("{}-out", net.config.bridge), format!("x{}", net.config.bridge), "far0");
    net.devices.push(near.clone());
    net.namespaces.push(space.clone());
    run(&format!("ip netns add {space}"));
    run(&format!("ip link add {near} type veth peer name {far} netns {space}"));
    run(&format!("ip address add {host}/24 dev {near}"));
    run(&format!("ip link set {near} up"));
    run(&format!("ip -n {space} address add {outside}/24 dev {far}"));
    run(&format!("ip -n {space} link set {far} up"));
    let path = std::path::Path::new("/run/netns").join(&space);

    let server = serve(&path, outside.parse().unwrap(), 0);
    assert_eq!(call(Some(&a.netns), server, PATIENCE).unwrap(), host, "the outside sees the host");

    // Even when the outside learns the way, it gets no further than the host.
    let inside = serve(&a.netns, a.address, 0);
    assert!(call(None, inside, PATIENCE).is_ok());
    run(&format!("ip -n {space} route add {} via {host}", bridge.subnet()));
    assert!(call(Some(&path), inside, SILENCE).is_err());
    bridge.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_speaks_with_anothers_address_or_mac() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let (a, b) = (bridge.attach("i-a").await.unwrap(), bridge.attach("i-b").await.unwrap());
    let c = bridge.attach("i-c").await.unwrap();
    let space = format!("{}i-a", net.config.netns_prefix);
    assert!(datagram_passes((&a.netns, a.address), &b, PATIENCE), "as itself it may speak");

    run(&format!("ip -n {space} address add {}/32 dev eth0", c.address));
    assert!(!datagram_passes((&a.netns, c.address), &b, SILENCE), "the address of c");
    run(&format!("ip -n {space} address add {}/32 dev eth0", bridge.gateway()));
    assert!(!datagram_passes((&a.netns, bridge.gateway()), &b, SILENCE), "the address of the gateway");
    run(&format!("ip -n {space} address del {}/32 dev eth0", bridge.gateway()));
    run(&format!("ip -n {space} address del {}/32 dev eth0", c.address));
    assert!(datagram_passes((&a.netns, a.address), &b, PATIENCE));

    run(&format!("ip -n {space} link set eth0 address {}", c.mac));
    assert!(!datagram_passes((&a.netns, a.address), &b, SILENCE), "the MAC of c");
    run(&format!("ip -n {space} link set eth0 address {}", a.mac));
    assert!(datagram_passes((&a.netns, a.address), &b, PATIENCE));

    // It was the guard that held it back and nothing else.
    run(&format!("nft delete table bridge {}", net.config.table));
    run(&format!("ip -n {space} address add {}/32 dev eth0", c.address));
    assert!(datagram_passes((&a.netns, c.address), &b, PATIENCE));
    bridge.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_host_only_what_is_allowed_is_reached() {
    let mut net = Net::new();
    let (closed, open) = (TcpListener::bind("0.0.0.0:0").unwrap(), TcpListener::bind("0.0.0.0:0").unwrap());
    let open_port = open.local_addr().unwrap().port();
    net.config.allow_tcp.push(open_port);
    let bridge = net.start().await;
    let a = bridge.attach("i-a").await.unwrap();
    let greet = std::thread::spawn(move || {
        use std::io::Write;
        open.accept().unwrap().0.write_all(b"open").unwrap();
    });
    let at = |port| SocketAddr::from((bridge.gateway(), port));
    assert_eq!(call(Some(&a.netns), at(open_port), PATIENCE).unwrap(), "open");
    greet.join().unwrap();
    let port = closed.local_addr().unwrap().port();
    let timed_out = call(Some(&a.netns), at(port), SILENCE).unwrap_err();
    assert!(
        matches!(timed_out.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock),
        "{timed_out}"
    );
    bridge.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_adopts_and_retain_removes_what_belongs_to_nobody() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let (a, b) = (bridge.attach("i-a").await.unwrap(), bridge.attach("i-b").await.unwrap());
    let server = serve(&a.netns, a.address, 0);
    let space = std::fs::metadata(&a.netns).map(|m| std::os::unix::fs::MetadataExt::ino(&m)).unwrap();
    drop(bridge);

    // Another life of the process, the same disk.
    let bridge = Bridge::start(net.config.clone()).await.unwrap();
    assert_eq!(bridge.attach("i-a").await.unwrap(), a);
    assert_eq!(std::fs::metadata(&a.netns).map(|m| std::os::unix::fs::MetadataExt::ino(&m)).unwrap(), space);
    assert_eq!(call(None, server, PATIENCE).unwrap(), bridge.gateway().to_string(), "it was not disturbed");

    // Leftovers of a life whose leases were lost, and half a port.
    run(&format!("ip netns add {}i-orphan", net.config.netns_prefix));
    run(&format!(
        "ip link add {}00f0 master {} type veth peer name p{}",
        net.config.veth_prefix, net.config.bridge, net.config.bridge
    ));
    bridge.retain(&["i-a".to_owned()]).await.unwrap();
    assert!(!b.netns.exists());
    assert!(
        !std::path::Path::new("/run/netns").join(format!("{}i-orphan", net.config.netns_prefix)).exists()
    );
    assert!(!std::path::Path::new("/sys/class/net").join(format!("{}00f0", net.config.veth_prefix)).exists());
    assert_eq!(bridge.attachments(), [("i-a".to_owned(), a.clone())]);

    run(&format!("ip link delete {}", a.host_veth));
    assert_eq!(bridge.attach("i-a").await.unwrap(), a, "a port that somebody removed is made again");
    let server = serve(&a.netns, a.address, 0);
    assert!(call(None, server, PATIENCE).is_ok());
    bridge.stop().await.unwrap();
    assert_eq!(net.remains(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_leases_never_hand_an_instance_the_wrong_namespace() {
    let mut net = Net::new();
    let bridge = net.start().await;
    for instance in ["i-a", "i-b"] {
        bridge.attach(instance).await.unwrap();
    }
    drop(bridge);
    std::fs::remove_file(&net.config.state).unwrap();
    let bridge = Bridge::start(net.config.clone()).await.unwrap();
    // The other way round, so each finds a namespace with the other's address.
    let (b, a) = (bridge.attach("i-b").await.unwrap(), bridge.attach("i-a").await.unwrap());
    for attachment in [&a, &b] {
        let server = serve(&attachment.netns, attachment.address, 0);
        assert!(call(None, server, PATIENCE).is_ok(), "{attachment:?}");
    }
    bridge.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_attach_at_once() {
    let mut net = Net::new();
    let bridge = net.start().await;
    let begin = std::time::Instant::now();
    let names: Vec<String> = (0..100).map(|n| format!("i-{n:017x}")).collect();
    let attached = futures::future::join_all(names.iter().map(|name| bridge.attach(name))).await;
    eprintln!("100 attaches in parallel: {:?}", begin.elapsed());
    let attached: Vec<_> = attached.into_iter().map(Result::unwrap).collect();
    let addresses: BTreeSet<_> = attached.iter().map(|a| a.address).collect();
    assert_eq!(addresses.len(), 100);
    for attachment in &attached {
        // A closed port answers at once, and only where somebody has the address.
        let refused = call(None, SocketAddr::from((attachment.address, 9)), PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{attachment:?}");
    }
    let begin = std::time::Instant::now();
    for n in 0..20 {
        bridge.attach(&format!("i-one-{n}")).await.unwrap();
    }
    eprintln!("one attach: {:?}", begin.elapsed() / 20);
    let begin = std::time::Instant::now();
    bridge.stop().await.unwrap();
    eprintln!("stop with 120: {:?}", begin.elapsed());
    assert_eq!(net.remains(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused_with_a_sentence() {
    let mut net = Net::new();
    let bridge = net.start().await;
    assert_eq!(bridge.attach("../etc").await.unwrap_err().kind, ErrorKind::Invalid);

    let mut clash = Net::new();
    clash.config.subnet = Ipv4Cidr::new(bridge.subnet().host(128), 25);
    let error = Bridge::start(clash.config.clone()).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains(&net.config.bridge), "{error}");
    clash.config.bridge = "lo".into();
    clash.config.subnet = Ipv4Cidr::new(Ipv4Addr::new(10, 232, 77, 0), 29);
    let error = Bridge::start(clash.config.clone()).await.err().unwrap();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    clash.config.bridge = clash.config.table.clone();
    bridge.stop().await.unwrap();

    let mut small = Net::new();
    small.subnets = (0..=31).map(|n| Ipv4Cidr::new(Ipv4Addr::new(10, 232, 77, n * 8), 29)).collect();
    let bridge = small.start().await;
    let results = futures::future::join_all((0..6).map(|n| {
        let bridge = bridge.clone();
        async move { bridge.attach(&format!("i-{n}")).await }
    }))
    .await;
    let full: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(full.len(), 1, "five addresses for six");
    assert_eq!(full[0].kind, ErrorKind::OutOfSpace);
    bridge.stop().await.unwrap();
}
