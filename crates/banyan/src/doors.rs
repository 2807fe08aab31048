//! Where the parts of `banyan up` listen: on the same ports with every start, so that zones and nodes of other
//! processes and machines that joined find them again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};

const FILE: &str = "ports.json";

/// Ports of root's link, and of the zone's listeners. Zero takes a free one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ports {
    pub root: u16,
    pub zone: u16,
    pub broker: u16,
    /// Other machines could come to them.
    #[serde(default)]
    pub open: bool,
}

/// Those that each role has by itself; taken where other machines are to come, which may have to pass firewalls.
const USUAL: Ports = Ports { root: 7710, zone: 7720, broker: 7721, open: true };

#[derive(Debug, Clone, Copy)]
pub struct Doors {
    ip: IpAddr,
    pub ports: Ports,
}

impl Doors {
    /// The ports of the last start, as far as they are free. With `open` other machines may come.
    pub fn find(data: &Path, open: bool) -> Self {
        let ip = if open { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        let first = if open { USUAL } else { Ports::default() };
        let kept = std::fs::read(data.join(FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        // Ports that only this machine used are given up for those that others expect.
        let wanted: Ports = kept.filter(|kept: &Ports| kept.open || !open).unwrap_or(first);
        let free = |port: u16| match link::listen_check(SocketAddr::from((ip, port))) {
            Ok(()) => port,
            Err(error) => {
                crate::up::say(&format!("{}; another port is taken", error.message));
                0
            }
        };
        let ports =
            Ports { root: free(wanted.root), zone: free(wanted.zone), broker: free(wanted.broker), open };
        Self { ip: ip.into(), ports }
    }

    /// What to note for the next start, now that the ports are known.
    pub fn kept(&self, root: u16, zone: u16, broker: u16) -> Ports {
        Ports { root, zone, broker, ..self.ports }
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }
}

/// Notes which ports were taken, for the next start.
pub fn ports_keep(data: &Path, ports: Ports) -> std::io::Result<()> {
    std::fs::write(data.join(FILE), serde_json::to_vec(&ports).expect("plain data"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_ports_of_the_last_start_are_taken_again_unless_somebody_has_them() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Doors::find(dir.path(), false).ports, Ports::default());
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = (taken.local_addr().unwrap().port(), taken);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let none = Ports::default();
        ports_keep(dir.path(), Ports { root: free, zone: taken.0, ..none }).unwrap();
        let doors = Doors::find(dir.path(), false);
        assert_eq!(doors.ports, Ports { root: free, ..none });
        let open = Doors::find(dir.path(), true).ports;
        assert!(open.open && open.root != free, "others do not expect it there");
        ports_keep(dir.path(), Ports { root: free, open: true, ..none }).unwrap();
        assert_eq!(Doors::find(dir.path(), true).ports.root, free);
        assert!(doors.at(free).ip().is_loopback());
    }
}
