//! What a bridge is made from, and the names that follow from it.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use model::{Error, Result};

use crate::cidr::Ipv4Cidr;

/// The kernel's limit on the name of a network device.
const DEVICE_NAME_MAX: usize = 15;
/// Digits of the address number at the end of a device's name.
const NUMBER_DIGITS: usize = 4;
const NAMESPACE_PREFIX_MAX: usize = 64;
const INSTANCE_NAME_MAX: usize = 128;
/// The widest subnet whose address numbers fit the digits, and the narrowest that is of use.
const PREFIX_WIDEST: u8 = 16;
const PREFIX_NARROWEST: u8 = 29;
const MTU_DEFAULT: u32 = 1500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Name of the bridge device.
    pub bridge: String,
    pub subnet: Ipv4Cidr,
    /// File that keeps the leases.
    pub state: PathBuf,
    /// Name of the nftables tables, one of family `inet` and one of family `bridge`.
    pub table: String,
    /// Start of the names of the host's ends of the pairs. Not shared with another bridge.
    pub veth_prefix: String,
    /// Start of the names under `/run/netns`. Not the start of another bridge's prefix.
    pub netns_prefix: String,
    /// Translate addresses on the way out of the host, and let the host forward.
    pub nat: bool,
    /// Ports of the host that instances may reach, beside ICMP echo.
    pub allow_tcp: Vec<u16>,
    pub allow_udp: Vec<u16>,
    pub mtu: u32,
}

impl BridgeConfig {
    /// The usual names for a bridge of this name.
    pub fn new(bridge: &str, subnet: Ipv4Cidr, state: impl Into<PathBuf>) -> Self {
        Self {
            bridge: bridge.to_owned(),
            subnet,
            state: state.into(),
            table: bridge.to_owned(),
            veth_prefix: bridge.chars().take(DEVICE_NAME_MAX - NUMBER_DIGITS - 1).chain(['v']).collect(),
            netns_prefix: format!("{bridge}-"),
            nat: true,
            allow_tcp: Vec::new(),
            allow_udp: Vec::new(),
            mtu: MTU_DEFAULT,
        }
    }

    pub fn validate(&self) -> Result<()> {
        name_check("bridge", &self.bridge, DEVICE_NAME_MAX)?;
        name_check("table", &self.table, NAMESPACE_PREFIX_MAX)?;
        name_check("veth_prefix", &self.veth_prefix, DEVICE_NAME_MAX - NUMBER_DIGITS)?;
        name_check("netns_prefix", &self.netns_prefix, NAMESPACE_PREFIX_MAX)?;
        subnet_check(self.subnet).map_err(|error| error.at("subnet"))?;
        if !(576..=65_535).contains(&self.mtu) {
            return Err(Error::invalid("the mtu must be from 576 to 65535").at("mtu"));
        }
        Ok(())
    }

    /// The host's own address on the bridge.
    pub fn gateway(&self) -> Ipv4Addr {
        self.subnet.host(1)
    }

    /// Name of the host's end of the pair of the address with this number.
    pub fn veth(&self, number: u32) -> String {
        format!("{}{number:0width$x}", self.veth_prefix, width = NUMBER_DIGITS)
    }

    pub fn netns_name(&self, instance: &str) -> String {
        format!("{}{instance}", self.netns_prefix)
    }
}

/// The MAC address that belongs to an address: locally administered, and unique wherever the address is.
pub fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x62, a, b, c, d]
}

pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

pub fn subnet_check(subnet: Ipv4Cidr) -> Result<()> {
    if !(PREFIX_WIDEST..=PREFIX_NARROWEST).contains(&subnet.prefix()) {
        return Err(Error::invalid(format!(
            "the subnet {subnet} must have a prefix from /{PREFIX_WIDEST} to /{PREFIX_NARROWEST}"
        )));
    }
    let first = subnet.network();
    if first.is_loopback() || first.is_link_local() || first.octets()[0] == 0 || first.octets()[0] >= 224 {
        return Err(Error::invalid(format!("the subnet {subnet} is not usable for instances")));
    }
    Ok(())
}

/// Instance names become file names, so they are kept plain.
pub fn instance_check(instance: &str) -> Result<()> {
    name_check("instance", instance, INSTANCE_NAME_MAX)
}

/// Letters, digits and `-_.`, beginning with a letter or digit: good for devices, tables and files alike.
fn name_check(field: &str, name: &str, max: usize) -> Result<()> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let begins_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if !begins_well || name.len() > max || !name.bytes().all(legal) {
        let shown = name.escape_debug();
        return Err(Error::invalid(format!(
            "'{shown}' is not usable: 1 to {max} letters, digits and '-_.', not beginning with a sign"
        ))
        .at(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_usual_names_fit_whatever_the_bridge_is_called() {
        for bridge in ["banyan0", "a", "abcdefghijklmno"] {
            let config = BridgeConfig::new(bridge, "10.7.0.0/16".parse().unwrap(), "/tmp/x");
            config.validate().unwrap();
            assert!(config.veth(65_534).len() <= DEVICE_NAME_MAX);
            assert_ne!(config.veth(1), config.bridge);
        }
    }

    #[test]
    fn bad_names_and_subnets_are_refused_by_field() {
        let good = BridgeConfig::new("banyan0", "10.7.0.0/24".parse().unwrap(), "/tmp/x");
        let check = |change: fn(&mut BridgeConfig), field: &str| {
            let mut config = good.clone();
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().field.as_deref(), Some(field));
        };
        check(|c| c.bridge = "a-name-that-is-too-long".into(), "bridge");
        check(|c| c.table = "x } flush ruleset".into(), "table");
        check(|c| c.veth_prefix = "a/b".into(), "veth_prefix");
        check(|c| c.netns_prefix = "../".into(), "netns_prefix");
        check(|c| c.subnet = "10.0.0.0/8".parse().unwrap(), "subnet");
        check(|c| c.subnet = "127.1.0.0/24".parse().unwrap(), "subnet");
        check(|c| c.subnet = "169.254.1.0/24".parse().unwrap(), "subnet");
        check(|c| c.mtu = 100, "mtu");
        assert!(instance_check("../../etc").is_err() && instance_check("").is_err());
    }
}
