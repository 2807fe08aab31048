//! A blocking conversation with the kernel about links, addresses and routes.
//!
//! A socket belongs to the network namespace of the thread that opened it, for
//! good. That is the whole trick of making a port: one socket of the host and
//! one of the new namespace, both in the hands of one short-lived thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rtnetlink::{AddressMessageBuilder, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use crate::cidr::Ipv4Cidr;

/// What of a link matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub is_bridge: bool,
    /// The bridge it is a port of.
    pub controller: Option<u32>,
}

/// A route of the host: where to, and through which link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    pub to: Ipv4Cidr,
    pub link: Option<u32>,
}

pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Sends one request and collects what the kernel answers up to its last word.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let answer =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                let length = (answer.header.length as usize).next_multiple_of(4).min(rest.len());
                rest = &rest[length.max(1)..];
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(answers),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
            }
        }
    }

    pub fn link_add(&mut self, link: LinkMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    pub fn link_get(&mut self, name: &str) -> io::Result<Option<Link>> {
        let wanted = LinkUnspec::new_with_name(name).build();
        match self.request(RouteNetlinkMessage::GetLink(wanted), NLM_F_ACK) {
            Ok(answers) => Ok(answers.into_iter().find_map(link_read)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn link_list(&mut self) -> io::Result<Vec<Link>> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        Ok(self.request(all, NLM_F_DUMP)?.into_iter().filter_map(link_read).collect())
    }

    /// Sets a link up, and makes it a port of `controller` when one is given.
    pub fn link_up(&mut self, index: u32, controller: Option<u32>) -> io::Result<()> {
        let mut link = LinkMessageBuilder::<LinkUnspec>::new().index(index).up();
        if let Some(controller) = controller {
            link = link.controller(controller);
        }
        self.request(RouteNetlinkMessage::SetLink(link.build()), NLM_F_ACK).map(drop)
    }

    /// Removes a link; it is no error when it is gone already.
    pub fn link_remove(&mut self, name: &str) -> io::Result<()> {
        let link = LinkUnspec::new_with_name(name).build();
        match self.request(RouteNetlinkMessage::DelLink(link), NLM_F_ACK) {
            Err(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error),
            _ => Ok(()),
        }
    }

    pub fn address_add(&mut self, index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let message = AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(address, prefix).build();
        self.request(RouteNetlinkMessage::NewAddress(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    /// The IPv4 addresses of a link with their prefix lengths.
    pub fn address_list(&mut self, index: u32) -> io::Result<Vec<(Ipv4Addr, u8)>> {
        let mut wanted = AddressMessage::default();
        wanted.header.family = AddressFamily::Inet;
        let answers = self.request(RouteNetlinkMessage::GetAddress(wanted), NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(|answer| address_read(answer, index)).collect())
    }

    pub fn route_default_add(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(index).build();
        self.request(RouteNetlinkMessage::NewRoute(message), NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// All IPv4 routes of all tables but the default ones.
    pub fn route_list(&mut self) -> io::Result<Vec<RouteEntry>> {
        let mut wanted = RouteMessage::default();
        wanted.header.address_family = AddressFamily::Inet;
        let answers = self.request(RouteNetlinkMessage::GetRoute(wanted), NLM_F_DUMP)?;
        Ok(answers.into_iter().filter_map(route_read).collect())
    }
}

fn link_read(answer: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let mut link =
        Link { index: message.header.index, name: String::new(), is_bridge: false, controller: None };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::LinkInfo(infos) => {
                link.is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
            }
            _ => {}
        }
    }
    Some(link)
}

fn address_read(answer: RouteNetlinkMessage, index: u32) -> Option<(Ipv4Addr, u8)> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
        _ => None,
    });
    (message.header.index == index).then_some((local?, message.header.prefix_len))
}

fn route_read(answer: RouteNetlinkMessage) -> Option<RouteEntry> {
    let RouteNetlinkMessage::NewRoute(message) = answer else { return None };
    let (mut to, mut link) = (None, None);
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = Some(address),
            RouteAttribute::Oif(index) => link = Some(index),
            _ => {}
        }
    }
    let prefix = message.header.destination_prefix_length;
    (1..=32).contains(&prefix).then_some(RouteEntry { to: Ipv4Cidr::new(to?, prefix), link })
}
