//! The network cards of a host: devices with hardware or a hypervisor behind
//! them, not the bridges and pairs that software made.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{names, text};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub name: String,
    pub mac: String,
    pub mtu: u32,
    pub up: bool,
    /// In megabits a second, where the driver says it.
    pub speed_mbit: Option<u32>,
}

pub fn nics(root: &Path) -> Vec<Nic> {
    let folder = root.join("sys/class/net");
    names(&folder).into_iter().filter_map(|name| nic(&folder.join(&name), name)).collect()
}

fn nic(folder: &Path, name: String) -> Option<Nic> {
    // What has no device behind it was made by software; loopback is among them.
    if !folder.join("device").exists() {
        return None;
    }
    Some(Nic {
        name,
        mac: text(folder.join("address")).unwrap_or_default(),
        mtu: text(folder.join("mtu")).and_then(|mtu| mtu.parse().ok()).unwrap_or(0),
        up: text(folder.join("operstate")).is_some_and(|state| state == "up"),
        speed_mbit: text(folder.join("speed"))
            .and_then(|speed| speed.parse().ok())
            .filter(|speed| *speed > 0),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_devices_with_something_behind_them_are_cards() {
        let root = tempfile::tempdir().unwrap();
        let net = root.path().join("sys/class/net");
        for (name, device) in [("eth0", true), ("lo", false), ("br0", false)] {
            std::fs::create_dir_all(net.join(name)).unwrap();
            std::fs::write(net.join(name).join("address"), "02:fc:00:00:00:01\n").unwrap();
            std::fs::write(net.join(name).join("mtu"), "1400\n").unwrap();
            std::fs::write(net.join(name).join("operstate"), "up\n").unwrap();
            std::fs::write(net.join(name).join("speed"), "-1\n").unwrap();
            if device {
                std::fs::create_dir(net.join(name).join("device")).unwrap();
            }
        }
        let expected = Nic {
            name: "eth0".into(),
            mac: "02:fc:00:00:00:01".into(),
            mtu: 1400,
            up: true,
            speed_mbit: None,
        };
        assert_eq!(nics(root.path()), [expected]);
    }
}
