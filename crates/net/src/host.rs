//! The host's side of a bridge: the device with its address, forwarding, and the choice of a free subnet.

use std::io;
use std::path::Path;

use model::{Error, Result};
use rtnetlink::LinkBridge;

use crate::cidr::Ipv4Cidr;
use crate::config::{BridgeConfig, mac_of};
use crate::lease::subnet_on_disk;
use crate::netlink::Netlink;

/// The bit of a device's flags that says that it is up.
const IFF_UP: u32 = 1;
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// An error of the kernel, told with what was being done.
pub fn kernel_error(what: &str, error: io::Error) -> Error {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    let told = Error::unavailable(format!("{what}: {error}")).because(error);
    if denied { told.hint("run the node as root: it needs CAP_NET_ADMIN and CAP_SYS_ADMIN") } else { told }
}

/// Chooses the subnet the leases on disk are of, else the one the bridge has, else the first free one.
pub fn subnet_choose(config: &BridgeConfig, candidates: &[Ipv4Cidr]) -> Result<Ipv4Cidr> {
    let known = subnet_on_disk(&config.state)?.into_iter().chain(bridge_subnet(&config.bridge)?);
    let mut last = None;
    for subnet in known.filter(|known| candidates.contains(known)).chain(candidates.iter().copied()) {
        match subnet_free(&config.bridge, subnet) {
            Ok(()) => return Ok(subnet),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::invalid("no subnet was given to choose from")))
}

fn bridge_subnet(bridge: &str) -> Result<Option<Ipv4Cidr>> {
    let told = |error| kernel_error("the links of this host cannot be read", error);
    let mut netlink = Netlink::open().map_err(told)?;
    let Some(link) = netlink.link_get(bridge).map_err(told)? else { return Ok(None) };
    let addresses = netlink.address_list(link.index).map_err(told)?;
    Ok(addresses.first().map(|(address, prefix)| Ipv4Cidr::new(*address, *prefix)))
}

/// Refuses a subnet that a route of the host leads to, unless the route is our own bridge's.
pub fn subnet_free(bridge: &str, subnet: Ipv4Cidr) -> Result<()> {
    let told = |error| kernel_error("the routes of this host cannot be read", error);
    let mut netlink = Netlink::open().map_err(told)?;
    let own = netlink.link_get(bridge).map_err(told)?.map(|link| link.index);
    let routes = netlink.route_list().map_err(told)?;
    let clash = routes.iter().find(|route| route.to.overlaps(subnet) && (own.is_none() || route.link != own));
    let Some(clash) = clash else { return Ok(()) };
    let links = netlink.link_list().map_err(told)?;
    let device =
        links.iter().find(|link| Some(link.index) == clash.link).map_or("nowhere", |link| link.name.as_str());
    Err(Error::conflict(format!("the subnet {subnet} clashes with the route to {} of {device}", clash.to))
        .at("subnet")
        .hint("choose a subnet that the host does not use; `ip route show table all` lists those in use"))
}

/// Makes the bridge, or adopts one that is as it should be.
pub fn bridge_ensure(config: &BridgeConfig) -> Result<()> {
    let told = |error| kernel_error(&format!("the bridge {} cannot be made", config.bridge), error);
    let mut netlink = Netlink::open().map_err(told)?;
    if netlink.link_get(&config.bridge).map_err(told)?.is_none() {
        // A fixed MAC; otherwise it would change with the ports and neighbours would talk to nobody.
        let message = LinkBridge::new(&config.bridge)
            .address(mac_of(config.gateway()).to_vec())
            .mtu(config.mtu)
            .up()
            .build();
        netlink.link_add(message).map_err(told)?;
    }
    let link = netlink.link_get(&config.bridge).map_err(told)?;
    let link = link.ok_or_else(|| Error::unavailable(format!("the bridge {} vanished", config.bridge)))?;
    if !link.is_bridge {
        return Err(Error::conflict(format!("the device {} exists and is no bridge", config.bridge))
            .at("bridge")
            .hint("give the node another name for its bridge"));
    }
    let wanted = (config.gateway(), config.subnet.prefix());
    let addresses = netlink.address_list(link.index).map_err(told)?;
    if let Some((other, prefix)) = addresses.iter().find(|address| **address != wanted) {
        return Err(Error::conflict(format!(
            "the bridge {} has the address {other}/{prefix} already",
            config.bridge
        ))
        .at("subnet")
        .hint(format!("remove it with `ip link delete {}` when nothing uses it", config.bridge)));
    }
    if addresses.is_empty() {
        netlink.address_add(link.index, wanted.0, wanted.1).map_err(told)?;
    }
    netlink.link_up(link.index, None).map_err(told)?;
    settings_apply(config)
}

/// What of the bridge is not as it was made, for people.
pub fn bridge_lack(config: &BridgeConfig) -> io::Result<Option<String>> {
    let name = &config.bridge;
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link_get(name)? else {
        return Ok(Some(format!("the bridge {name} was gone")));
    };
    if !netlink.address_list(link.index)?.contains(&(config.gateway(), config.subnet.prefix())) {
        return Ok(Some(format!("the bridge {name} had lost its address")));
    }
    if !device_up(name) {
        return Ok(Some(format!("the bridge {name} was down")));
    }
    Ok((config.nat && !forwards()).then(|| "the host no longer forwarded packets".to_owned()))
}

/// Whether a device is up; one that cannot be looked at counts as up.
fn device_up(name: &str) -> bool {
    let flags = std::fs::read_to_string(format!("/sys/class/net/{name}/flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
    flags.map_or(true, |flags| flags & IFF_UP != 0)
}

fn forwards() -> bool {
    std::fs::read_to_string(FORWARDING).is_ok_and(|value| value.trim() == "1")
}

/// Devices with our names that hang on another bridge than ours, or on none.
pub fn ports_loose(config: &BridgeConfig) -> io::Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link_get(&config.bridge)? else { return Ok(Vec::new()) };
    let loose = netlink.link_list()?.into_iter().filter(|port| port.controller != Some(link.index));
    Ok(loose.map(|port| port.name).filter(|name| name.starts_with(&config.veth_prefix)).collect())
}

fn settings_apply(config: &BridgeConfig) -> Result<()> {
    // Instances have no IPv6 in this form of the network, and the host needs none towards them.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", config.bridge), "1");
    if config.nat && !forwards() {
        std::fs::write(Path::new(FORWARDING), "1")
            .map_err(|error| kernel_error("the host cannot be made to forward packets", error))?;
    }
    Ok(())
}

pub fn bridge_remove(bridge: &str) -> Result<()> {
    let told = |error| kernel_error(&format!("the bridge {bridge} cannot be removed"), error);
    Netlink::open().and_then(|mut netlink| netlink.link_remove(bridge)).map_err(told)
}

/// The ports of a bridge whose names begin with `prefix`.
pub fn bridge_ports(bridge: &str, prefix: &str) -> io::Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let Some(link) = netlink.link_get(bridge)? else { return Ok(Vec::new()) };
    let ours = netlink.link_list()?.into_iter().filter(|port| port.controller == Some(link.index));
    Ok(ours.map(|port| port.name).filter(|name| name.starts_with(prefix)).collect())
}
