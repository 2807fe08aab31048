//! What is wrong with the way between two hosts, as rules of the switch.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::Ipv4Addr;

/// What happens to what two hosts send each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing passes, either way.
    Cut,
    /// What the first sends is lost.
    OneWay,
    /// Connections are made, and what the first then sends on them is lost.
    HalfOpen,
    /// So many of a hundred packets are lost, both ways.
    Loss(u8),
    /// Every byte takes so many milliseconds, each way; through a proxy.
    Delay(u64),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("cut"),
            Self::OneWay => f.write_str("cut one way"),
            Self::HalfOpen => f.write_str("half open"),
            Self::Loss(percent) => write!(f, "loss of {percent} %"),
            Self::Delay(ms) => write!(f, "delay of {ms} ms"),
        }
    }
}

/// The faults in force, by the pair of hosts; the first of a pair is the sender of what goes one way.
pub type Faults = BTreeMap<(Ipv4Addr, Ipv4Addr), Fault>;

/// The whole of the switch's rules, replacing those before in one step.
pub fn switch_rules(faults: &Faults) -> String {
    let mut text = String::from(
        "add table bridge bed\ndelete table bridge bed\ntable bridge bed {\n chain pass {\n  \
         type filter hook prerouting priority 0; policy accept;\n",
    );
    for (&(from, to), fault) in faults {
        let mut rule = |from: Ipv4Addr, to: Ipv4Addr, rest: &str| {
            let _ = writeln!(text, "  ip saddr {from} ip daddr {to} {rest}drop");
        };
        match fault {
            Fault::Cut => {
                rule(from, to, "");
                rule(to, from, "");
            }
            Fault::OneWay => rule(from, to, ""),
            Fault::HalfOpen => rule(from, to, "tcp flags & syn == 0 "),
            Fault::Loss(percent) => {
                let share = format!("numgen random mod 100 < {percent} ");
                rule(from, to, &share);
                rule(to, from, &share);
            }
            // The proxy carries it; connections from before end at the host that opened them.
            Fault::Delay(_) => {}
        }
    }
    text.push_str(" }\n}\n");
    text
}

/// Where connections of a host to a parent go instead: `(parent, port, proxy's port)`.
pub type Detour = (Ipv4Addr, u16, u16);

/// Rules of a host that send it over the proxies, and end the connections that do not go there.
pub fn detour_rules(switch: Ipv4Addr, detours: &[Detour]) -> String {
    let mut text = String::from("add table ip bed\ndelete table ip bed\n");
    if detours.is_empty() {
        return text;
    }
    text.push_str("table ip bed {\n chain turn {\n  type nat hook output priority -100; policy accept;\n");
    for (parent, port, proxy) in detours {
        let _ = writeln!(text, "  ip daddr {parent} tcp dport {port} dnat to {switch}:{proxy}");
    }
    text.push_str(" }\n chain stale {\n  type filter hook output priority 0; policy accept;\n");
    for (parent, port, _) in detours {
        let _ = writeln!(text, "  ip daddr {parent} tcp dport {port} reject with tcp reset");
    }
    text.push_str(" }\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

    fn rules(fault: Fault) -> Vec<String> {
        let text = switch_rules(&Faults::from([((A, B), fault)]));
        text.lines().filter(|line| line.ends_with("drop")).map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn a_cut_drops_both_ways_and_the_others_less() {
        let there = "ip saddr 10.77.0.1 ip daddr 10.77.0.2 drop";
        assert_eq!(rules(Fault::Cut), [there, "ip saddr 10.77.0.2 ip daddr 10.77.0.1 drop"]);
        assert_eq!(rules(Fault::OneWay), [there]);
        assert_eq!(
            rules(Fault::HalfOpen),
            ["ip saddr 10.77.0.1 ip daddr 10.77.0.2 tcp flags & syn == 0 drop"]
        );
        assert_eq!(rules(Fault::Loss(20)).len(), 2);
        assert!(rules(Fault::Loss(20))[0].contains("numgen random mod 100 < 20 drop"));
        assert!(rules(Fault::Delay(300)).is_empty());
    }

    #[test]
    fn a_detour_leads_to_the_proxy_and_its_end_takes_it_away() {
        let text = detour_rules(B, &[(A, 7720, 4000)]);
        assert!(text.contains("ip daddr 10.77.0.1 tcp dport 7720 dnat to 10.77.0.2:4000"));
        assert!(text.contains("reject with tcp reset"));
        assert!(!detour_rules(B, &[]).contains("chain"));
    }
}
