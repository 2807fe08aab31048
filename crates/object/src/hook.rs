//! Which addresses a webhook may have.
//!
//! Whoever may set events up in a bucket makes the store send requests. They must not reach what only the store's
//! own machine can reach: its loopback, the services on its other addresses, and the link-local addresses behind which
//! clouds keep credentials. A store that itself listens on loopback serves its machine, whose users reach all that anyway;
//! its instances, which come from elsewhere, do not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use s3s::S3ErrorCode;

use crate::fault::{Fault, Result};

const CALL_WAIT: Duration = Duration::from_secs(10);
/// Addresses of documentation (RFC 5737, RFC 3849), which no machine has.
const NOBODY: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// The address behind a target: a plain `http(s)://` one, or one that ends an ARN.
pub fn address(arn: &str) -> Option<&str> {
    arn.find("http://").or_else(|| arn.find("https://")).map(|at| &arn[at..])
}

/// Refuses targets that are no webhooks, or such as may not be called. `listen` is where the store listens.
pub fn check(arn: &str, listen: IpAddr) -> Result<()> {
    let url = address(arn).and_then(|address| reqwest::Url::parse(address).ok());
    let url =
        url.ok_or_else(|| refused("The target must be a webhook: an address with http:// or https://"))?;
    if allows(&url, listen) {
        Ok(())
    } else {
        Err(refused("The target is an address that webhooks may not have"))
    }
}

/// Whose rules hold for what a caller sets up: the store's own where it comes from this machine, else a stranger's.
pub fn side(listen: IpAddr, caller: Option<IpAddr>) -> IpAddr {
    let here = caller.is_some_and(|caller| caller.to_canonical().is_loopback());
    if here { listen } else { STRANGER }
}

/// Where a store listens whose machine is out of bounds.
pub const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Whether a webhook may have this address, as far as it is no name but that of the machine itself.
pub fn allows(url: &reqwest::Url, listen: IpAddr) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse() {
        Ok(ip) => is_allowed(ip, listen),
        Err(_) => listen.is_loopback() || !names_itself(host),
    }
}

/// Whether a name is `localhost`, or one below it.
fn names_itself(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn refused(why: &'static str) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, why)
}

/// Asked of literal addresses when a target is set and when it is called, and of every address a name stands for when it
/// is called.
fn is_allowed(ip: IpAddr, listen: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if is_link_local || ip.is_multicast() {
        return false;
    }
    listen.is_loopback() || !(ip.is_loopback() || ip.is_unspecified() || is_own(ip))
}

/// Whether one of the machine's interfaces has this address now: only such may be taken for a socket. Where the machine
/// lets sockets take any address (`ip_nonlocal_bind`), it is the one that the machine would call itself from.
fn is_own(ip: IpAddr) -> bool {
    let binds = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    let nobody = NOBODY[usize::from(ip.is_ipv6())];
    if !binds(nobody) {
        return binds(ip);
    }
    let any: IpAddr = if ip.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    // No packet goes out by this; the port does not matter.
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

/// Calls webhooks: follows no redirects, and no names that lead where they may not.
pub fn client(listen: IpAddr) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(CALL_WAIT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .dns_resolver(std::sync::Arc::new(Names { listen }))
        .build()
}

struct Names {
    listen: IpAddr,
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let listen = self.listen;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|found| is_allowed(found.ip(), listen)).collect();
            if allowed.is_empty() {
                return Err("it stands for no address that webhooks may have".into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_webhooks() {
        let here = "127.0.0.1".parse().expect("an address");
        assert_eq!(address("http://h:1/x"), Some("http://h:1/x"));
        assert_eq!(address("arn:aws:sns:us-east-1:t:https://h/x"), Some("https://h/x"));
        check("arn:aws:sns:us-east-1:t:https://h/x", here).expect("a webhook");
        assert!(check("arn:aws:sns:us-east-1:123:topic", here).is_err());
        assert!(check("http://", here).is_err());
    }

    #[test]
    fn instances_set_up_no_webhooks_on_their_host() {
        let here: IpAddr = "127.0.0.1".parse().expect("an address");
        let instance: IpAddr = "10.129.0.7".parse().expect("an address");
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().expect("an address");
        let may = |caller| check("http://127.0.0.1:7700/", side(here, caller)).is_ok();
        assert!(may(Some(here)) && may(Some(mapped)));
        assert!(!may(Some(instance)) && !may(None));
        assert!(check("http://10.129.0.9/", side(here, Some(instance))).is_ok());
    }

    #[test]
    fn the_machines_own_addresses_are_for_a_store_of_one_machine() {
        let verdict = |to: &str, listen: &str| check(to, listen.parse().expect("an address")).is_ok();
        for own in [
            "http://127.0.0.1:7700/",
            "http://[::1]/",
            "http://0.0.0.0:80/",
            "http://[::ffff:127.0.0.1]/",
            "http://2130706433/",
        ] {
            assert!(verdict(own, "127.0.0.1"), "{own}");
            assert!(!verdict(own, "0.0.0.0"), "{own}");
        }
        for never in ["http://169.254.169.254/latest", "http://[fe80::1]/", "http://224.0.0.1/"] {
            assert!(!verdict(never, "127.0.0.1"), "{never}");
        }
        assert!(verdict("http://203.0.113.7/", "0.0.0.0"));
        for name in ["http://localhost:1/", "http://LOCALHOST./", "http://web.localhost/"] {
            assert!(verdict(name, "127.0.0.1"), "{name}");
            assert!(!verdict(name, "0.0.0.0"), "{name}");
        }
        assert!(verdict("http://localhost.example.org/", "0.0.0.0"));
    }

    #[test]
    fn the_addresses_of_interfaces_are_the_machines_own() {
        let out = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        assert!(is_own("127.0.0.7".parse().expect("an address")));
        assert!(!is_own("203.0.113.7".parse().expect("an address")));
        // A machine without any network has none.
        if out.connect("203.0.113.7:9").is_err() {
            return;
        }
        let own = out.local_addr().expect("an address").ip();
        let target = format!("http://{}/", SocketAddr::new(own, 7700));
        assert!(check(&target, "127.0.0.1".parse().expect("an address")).is_ok());
        assert!(check(&target, "0.0.0.0".parse().expect("an address")).is_err(), "{target}");
        assert!(
            check(&target, side("127.0.0.1".parse().expect("an address"), Some(own))).is_err(),
            "{target}"
        );
    }

    #[tokio::test]
    async fn names_lead_to_no_address_of_the_machine() {
        let found = |listen: IpAddr| async move {
            let name: Name = "localhost".parse().expect("a name");
            Names { listen }.resolve(name).await.is_ok()
        };
        assert!(found("127.0.0.1".parse().expect("an address")).await);
        assert!(!found(STRANGER).await);
    }
}
