//! The port of one instance: a namespace with `eth0` in it and the other end on the bridge.
//!
//! ```text
//!  nothing ──make──▶ unnamed namespace, pair, address, route ──name──▶ complete
//!     ▲                        │ the process dies: the kernel removes all of it
//!     └────────────────────────┘
//! ```

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVeth};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::netlink::Netlink;
use crate::netns::{netns_mounted, netns_publish, netns_remove, netns_run, thread_run};
use crate::warm::WarmSpaces;

/// Name of the device inside the namespace.
pub const DEVICE: &str = "eth0";

/// All that is needed to make a port.
#[derive(Debug, Clone)]
pub struct PortPlan {
    pub veth: String,
    /// Name of the bridge; its number changes when somebody makes it anew.
    pub bridge: String,
    pub netns: PathBuf,
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Ipv4Addr,
    pub mac: [u8; 6],
    pub mtu: u32,
}

/// Makes the port, or keeps it when it is there as planned. Blocking.
pub fn port_ensure(plan: &PortPlan, warm: &WarmSpaces) -> io::Result<()> {
    let mut host = Netlink::open()?;
    let bridge = host.link_get(&plan.bridge)?.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("the bridge {} is gone", plan.bridge))
    })?;
    if let Some(veth) = host.link_get(&plan.veth)?
        && namespace_is_as_planned(plan)
    {
        return host.link_up(veth.index, Some(bridge.index));
    }
    // A leftover of another life, or half of a pair.
    remove(&mut host, plan)?;
    let namespace = warm.take()?;
    // The host's socket was opened before, so it stays the host's.
    thread_run(|| port_make(&mut host, plan, bridge.index, &namespace))
}

/// Removes the port and all leftovers of it. Blocking.
pub fn port_remove(plan: &PortPlan) -> io::Result<()> {
    remove(&mut Netlink::open()?, plan)
}

fn remove(host: &mut Netlink, plan: &PortPlan) -> io::Result<()> {
    host.link_remove(&plan.veth)?;
    netns_remove(&plan.netns)
}

/// Two namespaces may have changed their addresses when a lease file was lost, so the address is asked for.
fn namespace_is_as_planned(plan: &PortPlan) -> bool {
    let inside = || -> io::Result<bool> {
        let mut netlink = Netlink::open()?;
        let Some(device) = netlink.link_get(DEVICE)? else { return Ok(false) };
        Ok(netlink.address_list(device.index)?.contains(&(plan.address, plan.prefix)))
    };
    netns_mounted(&plan.netns) && matches!(netns_run(&plan.netns, inside), Ok(Ok(true)))
}

/// Runs on a thread of its own, which it moves into the namespace.
fn port_make(host: &mut Netlink, plan: &PortPlan, bridge: u32, namespace: &File) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    host.link_add(pair(plan, bridge, namespace.as_raw_fd()))?;
    let done = namespace_configure(plan).and_then(|()| netns_publish(&plan.netns));
    if done.is_err() {
        let _ = host.link_remove(&plan.veth);
    }
    done
}

/// One message makes both ends: ours on the bridge and up, the other in its namespace. The other
/// cannot be up from the start, because the kernel joins the two only afterwards.
fn pair(plan: &PortPlan, bridge: u32, namespace: i32) -> LinkMessage {
    let inner = LinkUnspec::new_with_name(DEVICE)
        .address(plan.mac.to_vec())
        .mtu(plan.mtu)
        .setns_by_fd(namespace)
        .build();
    LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
        .name(plan.veth.clone())
        .mtu(plan.mtu)
        .controller(bridge)
        .up()
        .set_info_data(InfoData::Veth(InfoVeth::Peer(inner)))
        .build()
}

fn namespace_configure(plan: &PortPlan) -> io::Result<()> {
    let mut inside = Netlink::open()?;
    let device = inside.link_get(DEVICE)?.ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("{DEVICE} is missing in the namespace"))
    })?;
    inside.link_up(device.index, None)?;
    inside.address_add(device.index, plan.address, plan.prefix)?;
    inside.route_default_add(device.index, plan.gateway)
}
