//! Names and addresses of hosts, as a server's certificate carries them, and who may have which.

use std::net::IpAddr;

use model::{Error, ErrorKind, Result};

/// Names and addresses that one server certificate may carry.
pub const HOSTS_MAX: usize = 64;
const HOST_NAME_MAX: usize = 253;

/// A host in the form in which two of them are compared.
pub fn host_key(host: &str) -> String {
    match address(host) {
        Some(address) => address.to_string(),
        None => host.trim_end_matches('.').to_ascii_lowercase(),
    }
}

/// Every machine is this to itself, so anybody may have it.
pub fn host_is_loopback(host: &str) -> bool {
    match address(host) {
        Some(address) => address.is_loopback(),
        None => host_key(host) == "localhost",
    }
}

/// An address that came in another form is still that address.
fn address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// One name of one host: no pattern, nothing that is read in another way elsewhere.
pub fn host_check(host: &str) -> Result<()> {
    let named = (1..=HOST_NAME_MAX).contains(&host.len())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    if named || host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let shown: String = host.chars().take(HOST_NAME_MAX).collect();
    Err(Error::invalid(format!("'{}' is not a host name", shown.escape_debug())))
}

/// All of them are hosts, and not too many.
pub fn hosts_check(hosts: &[String]) -> Result<()> {
    if hosts.len() > HOSTS_MAX {
        return Err(Error::new(ErrorKind::Forbidden, format!("a server has {HOSTS_MAX} names at most")));
    }
    hosts.iter().try_for_each(|host| host_check(host))
}

/// Whether a certificate may carry `asked` where only `allowed` are given out, beside the loopback.
pub fn hosts_allowed(asked: &[String], allowed: &[String]) -> Result<()> {
    let allowed: Vec<String> = allowed.iter().map(|host| host_key(host)).collect();
    let other = asked.iter().find(|host| !host_is_loopback(host) && !allowed.contains(&host_key(host)));
    match other {
        None => Ok(()),
        Some(host) => {
            let text = format!("the name '{}' is not one of those that it joined with", host.escape_debug());
            Err(Error::new(ErrorKind::Forbidden, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str]) -> Vec<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    #[test]
    fn one_host_in_many_forms_is_one_host() {
        for (one, other) in [
            ("East.Example", "east.example"),
            ("east.example.", "east.example"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:DB8:0::1", "2001:db8::1"),
        ] {
            assert_eq!(host_key(one), host_key(other));
        }
        assert!(
            ["127.0.0.1", "127.9.9.9", "::1", "LocalHost", "localhost."].into_iter().all(host_is_loopback)
        );
        assert!(!host_is_loopback("10.0.0.1") && !host_is_loopback("localhost.example"));
    }

    #[test]
    fn only_names_that_were_given_are_allowed_in_whatever_form() {
        let allowed = list(&["east.example", "10.0.0.1"]);
        for asked in [&["EAST.example."][..], &["::ffff:10.0.0.1", "127.0.0.1"], &["localhost"], &[]] {
            assert!(hosts_allowed(&list(asked), &allowed).is_ok(), "{asked:?}");
        }
        for asked in [&["root.example"][..], &["east.example", "10.0.0.2"], &["x.east.example"]] {
            assert!(hosts_allowed(&list(asked), &allowed).is_err(), "{asked:?}");
        }
    }

    #[test]
    fn a_pattern_is_no_host() {
        for bad in ["", "*.example", "a b", "a/b", "fe80::1%eth0"] {
            assert!(host_check(bad).is_err(), "{bad}");
        }
        assert!(hosts_check(&vec!["a".to_owned(); HOSTS_MAX + 1]).is_err());
    }
}
