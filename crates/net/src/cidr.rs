//! An IPv4 network, written as `10.7.0.0/24`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use model::Error;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ipv4Cidr {
    network: Ipv4Addr,
    prefix: u8,
}

impl Ipv4Cidr {
    /// The network of `prefix` bits that holds `address`.
    ///
    /// # Panics
    /// When `prefix` is above 32.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Self {
        assert!(prefix <= 32, "an IPv4 prefix has at most 32 bits");
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        Self { network: Ipv4Addr::from(u32::from(address) & mask), prefix }
    }

    pub const fn network(self) -> Ipv4Addr {
        self.network
    }

    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// How many addresses there are, the network's own and the broadcast address among them.
    pub const fn size(self) -> u64 {
        1 << (32 - self.prefix)
    }

    /// The address with this number; 0 is the network's own.
    pub fn host(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) | number)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::new(address, self.prefix) == self
    }

    pub fn overlaps(self, other: Self) -> bool {
        let shorter = self.prefix.min(other.prefix);
        Self::new(self.network, shorter) == Self::new(other.network, shorter)
    }
}

impl fmt::Display for Ipv4Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl FromStr for Ipv4Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad =
            || Error::invalid(format!("'{}' is not a network such as 10.7.0.0/24", text.escape_debug()));
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
        let prefix: u8 = prefix.parse().map_err(|_| bad())?;
        if prefix > 32 || text.contains('+') {
            return Err(bad());
        }
        let cidr = Self::new(address, prefix);
        if cidr.network != address {
            return Err(Error::invalid(format!(
                "'{text}' has bits beyond its prefix; the network is {cidr}"
            )));
        }
        Ok(cidr)
    }
}

impl TryFrom<String> for Ipv4Cidr {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Ipv4Cidr> for String {
    fn from(cidr: Ipv4Cidr) -> Self {
        cidr.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cidr(text: &str) -> Ipv4Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_reads_back_and_nonsense_does_not() {
        for text in ["10.7.0.0/24", "0.0.0.0/0", "192.0.2.1/32", "172.16.0.0/12"] {
            assert_eq!(cidr(text).to_string(), text);
        }
        for bad in ["", "10.7.0.0", "10.7.0.0/33", "10.7.0.1/24", "10.7.0/24", "10.7.0.0/-1", "10.7.0.0/+8"] {
            assert!(bad.parse::<Ipv4Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn overlap_is_seen_from_both_sides() {
        for (a, b, overlaps) in [
            ("10.0.0.0/8", "10.7.0.0/24", true),
            ("10.7.0.0/24", "10.7.1.0/24", false),
            ("0.0.0.0/0", "10.7.1.0/24", true),
            ("10.7.0.0/24", "10.7.0.255/32", true),
        ] {
            assert_eq!(cidr(a).overlaps(cidr(b)), overlaps, "{a} {b}");
            assert_eq!(cidr(b).overlaps(cidr(a)), overlaps, "{b} {a}");
        }
        assert!(cidr("10.7.0.0/24").contains(Ipv4Addr::new(10, 7, 0, 9)));
        assert_eq!(cidr("10.7.0.0/16").host(258), Ipv4Addr::new(10, 7, 1, 2));
    }
}
