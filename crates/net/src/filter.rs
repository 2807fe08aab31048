//! The nftables rules of a bridge: who may speak as whom, what reaches the host, what leaves it.
//!
//! The rules are loaded in one transaction when the bridge starts. Which port
//! may use which address follows from the address alone, so the sets are filled
//! for whole blocks of addresses ahead of their use and an attach runs no tool.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use model::{Error, Result};
use tokio::io::AsyncWriteExt;

use crate::config::{BridgeConfig, mac_of, mac_text};

/// Addresses whose rules are loaded together.
const BLOCK: u32 = 1024;
const NFT_TIMEOUT: Duration = Duration::from_secs(20);

/// What is in the kernel; held while something is being loaded.
#[derive(Debug)]
pub struct Filter {
    loaded: tokio::sync::Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    blocks: BTreeSet<u32>,
    /// How nft showed the tables after they were loaded.
    shown: Option<String>,
}

impl Filter {
    /// Puts the rules into the kernel in place of what is there, with the blocks of `numbers`.
    pub async fn start(config: &BridgeConfig, numbers: impl Iterator<Item = u32>) -> Result<Self> {
        let blocks: BTreeSet<u32> = numbers.chain([0]).map(|number| number / BLOCK).collect();
        let shown = load(config, &blocks).await?;
        Ok(Self { loaded: tokio::sync::Mutex::new(Loaded { blocks, shown }) })
    }

    /// Puts the rules back when they are no longer as they were loaded, as after a reload of the host's firewall; says
    /// whether that was so.
    pub async fn mend(&self, config: &BridgeConfig) -> Result<bool> {
        let mut loaded = self.loaded.lock().await;
        if tables_show(&config.table).await == loaded.shown {
            return Ok(false);
        }
        loaded.shown = load(config, &loaded.blocks).await?;
        Ok(true)
    }

    /// Sees to it that the port of this number may speak.
    pub async fn number_ensure(&self, config: &BridgeConfig, number: u32) -> Result<()> {
        let block = number / BLOCK;
        let mut loaded = self.loaded.lock().await;
        if !loaded.blocks.contains(&block) {
            nft(&elements(config, block)).await?;
            loaded.blocks.insert(block);
        }
        Ok(())
    }
}

/// Loads everything in place of what is there, and says how nft shows it.
async fn load(config: &BridgeConfig, blocks: &BTreeSet<u32>) -> Result<Option<String>> {
    let mut text = ruleset(config);
    for block in blocks {
        text.push_str(&elements(config, *block));
    }
    nft(&text).await?;
    Ok(tables_show(&config.table).await)
}

/// The tables as nft lists them, without counters and without what is in the sets; nothing when one is missing.
async fn tables_show(table: &str) -> Option<String> {
    let mut shown = String::new();
    for family in ["bridge", "inet"] {
        let output = nft_run(&["-s", "-t", "list", "table", family, table], "").await.ok()?;
        if !output.status.success() {
            return None;
        }
        shown.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    Some(shown)
}

/// Removes the rules; it is no error when there are none.
pub async fn filter_remove(table: &str) -> Result<()> {
    let families = ["bridge", "inet"];
    let text: String =
        families.map(|f| format!("add table {f} {table}\ndelete table {f} {table}\n")).concat();
    nft(&text).await
}

/// The elements that let the ports of one block speak, each as itself only.
fn elements(config: &BridgeConfig, block: u32) -> String {
    let size = u32::try_from(config.subnet.size()).unwrap_or(u32::MAX);
    let numbers = (block * BLOCK).max(2)..(block * BLOCK + BLOCK).min(size - 1);
    let (mut names, mut ports) = (String::new(), String::new());
    for number in numbers {
        let (veth, address) = (config.veth(number), config.subnet.host(number));
        let _ = write!(names, "\"{veth}\", ");
        let _ = write!(ports, "\"{veth}\" . {} . {address}, ", mac_text(mac_of(address)));
    }
    let table = &config.table;
    format!(
        "add element bridge {table} names {{ {names} }}\nadd element bridge {table} ports {{ {ports} }}\n"
    )
}

fn port_set(name: &str, ports: &[u16]) -> String {
    let list: Vec<String> = ports.iter().collect::<BTreeSet<_>>().into_iter().map(u16::to_string).collect();
    let elements =
        if list.is_empty() { String::new() } else { format!("elements = {{ {} }};", list.join(", ")) };
    format!("set {name} {{ type inet_service; {elements} }}")
}

fn ruleset(config: &BridgeConfig) -> String {
    let clean = ["bridge", "inet"]
        .map(|f| format!("add table {f} {0}\ndelete table {f} {0}\n", config.table))
        .concat();
    format!("{clean}{}{}", ruleset_bridge(config), ruleset_inet(config))
}

/// A port may send IPv4 and ARP from its own MAC and address, and nothing else.
fn ruleset_bridge(config: &BridgeConfig) -> String {
    let table = &config.table;
    format!(
        r#"table bridge {table} {{
  set names {{ type ifname; }}
  set ports {{ type ifname . ether_addr . ipv4_addr; }}
  chain prerouting {{
    type filter hook prerouting priority -300; policy accept;
    iifname @names jump guard
  }}
  chain guard {{
    ether type ip iifname . ether saddr . ip saddr @ports accept
    ether type arp arp operation {{ request, reply }} iifname . ether saddr . arp saddr ip @ports iifname . arp saddr ether . arp saddr ip @ports accept
    counter drop
  }}
}}
"#
    )
}

/// The host answers ICMP echo, the allowed ports and what it began itself. Neighbours reach each
/// other; the outside is reached but does not reach in; link-local addresses, where clouds keep
/// the credentials of the machine, stay out of reach.
fn ruleset_inet(config: &BridgeConfig) -> String {
    let (table, bridge, subnet) = (&config.table, &config.bridge, config.subnet);
    let outbound = if config.nat { "accept" } else { "counter drop" };
    let masquerade = if config.nat {
        format!("ip saddr {subnet} oifname != \"{bridge}\" masquerade")
    } else {
        String::new()
    };
    format!(
        r#"table inet {table} {{
  {sets}
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridge}" jump host
  }}
  chain host {{
    ct state established,related accept
    icmp type echo-request accept
    tcp dport @allow_tcp accept
    udp dport @allow_udp accept
    counter drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" oifname "{bridge}" accept
    iifname "{bridge}" jump outbound
    oifname "{bridge}" jump inbound
  }}
  chain outbound {{
    ip daddr 169.254.0.0/16 counter drop
    tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
    {outbound}
  }}
  chain inbound {{
    tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
    ct state established,related accept
    ct status dnat accept
    counter drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    {masquerade}
  }}
}}
"#,
        sets = port_set("allow_tcp", &config.allow_tcp) + "\n  " + &port_set("allow_udp", &config.allow_udp),
    )
}

async fn nft_run(words: &[&str], text: &str) -> Result<Output> {
    let program = sal::program_find("nft").ok_or_else(|| {
        let missing = sal::missing_programs(&[("nft", "nftables")]);
        Error::unavailable("the network of this node needs the program nft")
            .hint(sal::missing_sentence(&missing).unwrap_or_default())
    })?;
    let run = async {
        let mut command = tokio::process::Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let mut stdin = child.stdin.take().expect("the input is a pipe");
        // When nft ends early, its own words say more than the broken pipe.
        let _ = stdin.write_all(text.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await
    };
    tokio::time::timeout(NFT_TIMEOUT, run)
        .await
        .map_err(|_| Error::unavailable("nft did not end in time"))?
        .map_err(|error| Error::internal("nft cannot be run").because(error))
}

/// Runs `nft -f -`: all of the text takes effect, or none of it.
async fn nft(text: &str) -> Result<()> {
    let output = nft_run(&["-f", "-"], text).await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("it said nothing").to_owned();
    tracing::warn!(%said, "nft refused the rules");
    let hint = if rustix::process::geteuid().is_root() {
        "the kernel may lack a part of nftables; its log and `nft list ruleset` say more"
    } else {
        "run the node as root"
    };
    Err(Error::unavailable(format!("nft refused the rules of the bridge: {line}")).hint(hint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_port_is_bound_to_its_address_and_no_other() {
        let config = BridgeConfig::new("b0", "10.7.0.0/29".parse().unwrap(), "/x");
        let text = elements(&config, 0);
        assert!(text.contains("\"b0v0002\" . 02:62:0a:07:00:02 . 10.7.0.2, "), "{text}");
        assert!(
            text.contains("10.7.0.6") && !text.contains("10.7.0.7") && !text.contains("10.7.0.1,"),
            "{text}"
        );
    }

    #[test]
    fn without_translation_nothing_leaves() {
        let mut config = BridgeConfig::new("b0", "10.7.0.0/29".parse().unwrap(), "/x");
        assert!(ruleset(&config).contains("masquerade"));
        config.nat = false;
        assert!(!ruleset(&config).contains("masquerade"));
        config.allow_tcp = vec![53, 53];
        assert!(ruleset(&config).contains("elements = { 53 };"));
    }
}
