//! A bridge of its own for each test, removed at the end also when the test fails.
#![allow(clippy::unwrap_used, dead_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use net::{Attachment, Bridge, BridgeConfig, Ipv4Cidr, netns_run};

/// How long to wait for what must not come.
pub const SILENCE: Duration = Duration::from_millis(600);
/// How long to wait for what must come, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

static COUNT: AtomicU32 = AtomicU32::new(0);

pub struct Net {
    pub config: BridgeConfig,
    pub subnets: Vec<Ipv4Cidr>,
    /// Names of devices and namespaces that the test made beside the bridge.
    pub devices: Vec<String>,
    pub namespaces: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Net {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tag = format!("t{:x}{:x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let subnets: Vec<Ipv4Cidr> =
            (0..=255).map(|n| Ipv4Cidr::new(Ipv4Addr::new(10, 231, n, 0), 24)).collect();
        let config = BridgeConfig::new(&tag, subnets[0], dir.path().join("leases.json"));
        Self { config, subnets, devices: Vec::new(), namespaces: Vec::new(), _dir: dir }
    }

    pub async fn start(&mut self) -> Bridge {
        let bridge = Bridge::start_any(self.config.clone(), &self.subnets).await.unwrap();
        self.subnets = vec![bridge.subnet()];
        self.config.subnet = bridge.subnet();
        bridge
    }

    /// What is left in the kernel of this test's network.
    pub fn remains(&self) -> Vec<String> {
        let mut remains = Vec::new();
        let list = |folder: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let tag = &self.config.bridge;
        remains.extend(list("/sys/class/net").into_iter().filter(|n| n.starts_with(tag.as_str())));
        remains.extend(list("/run/netns").into_iter().filter(|n| n.starts_with(tag.as_str())));
        let tables = Command::new("nft").args(["list", "tables"]).output().unwrap();
        let tables = String::from_utf8_lossy(&tables.stdout).into_owned();
        remains.extend(tables.lines().filter(|l| l.split(' ').any(|w| w == tag)).map(str::to_owned));
        remains
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let tag = self.config.bridge.clone();
        for name in self.remains().iter().chain(&self.devices) {
            let _ = Command::new("ip").args(["link", "delete", name]).output();
        }
        for name in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            let name = name.file_name().to_string_lossy().into_owned();
            if name.starts_with(&tag) || self.namespaces.contains(&name) {
                let _ = Command::new("ip").args(["netns", "delete", &name]).output();
            }
        }
        for family in ["inet", "bridge"] {
            let _ = Command::new("nft").args(["delete", "table", family, &tag]).output();
        }
    }
}

/// Runs a command that must succeed; `ip` comes from Debian's package iproute2.
pub fn run(words: &str) {
    let mut split = words.split(' ');
    let output = Command::new(split.next().unwrap()).args(split).output().expect(words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Listens in a namespace and answers each caller with the address it came from.
pub fn serve(netns: &Path, address: Ipv4Addr, port: u16) -> SocketAddr {
    let listener = netns_run(netns, || TcpListener::bind((address, port))).unwrap().unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            let _ = stream.write_all(peer.ip().to_string().as_bytes());
        }
    });
    at
}

/// Calls from a namespace (from the host without one); the answer, or why there was none.
pub fn call(netns: Option<&Path>, to: SocketAddr, wait: Duration) -> std::io::Result<String> {
    let connect = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&to, wait)?;
        stream.set_read_timeout(Some(wait))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match netns {
        Some(netns) => netns_run(netns, connect)?,
        None => connect(),
    }
}

/// A datagram from `from` in one namespace to a socket in another; whether it arrived.
pub fn datagram_passes(from: (&Path, Ipv4Addr), to: &Attachment, wait: Duration) -> bool {
    let receiver = netns_run(&to.netns, || UdpSocket::bind((to.address, 0))).unwrap().unwrap();
    receiver.set_read_timeout(Some(wait)).unwrap();
    let target = receiver.local_addr().unwrap();
    let sent = netns_run(from.0, || UdpSocket::bind((from.1, 0))?.send_to(b"hello", target)).unwrap();
    sent.unwrap();
    let mut buffer = [0; 16];
    matches!(receiver.recv_from(&mut buffer), Ok((5, peer)) if peer.ip() == from.1)
}
