//! `banyan enroll zone|node|provisioner`: a one-time token, for operators, and the file that the newcomer needs;
//! `banyan enroll list|revoke`: the tokens that are out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use api::{EnrolRole, Enrolment, EnrolmentCreate, EnrolmentToken, ListQuery};
use clap::{Args, ValueEnum};
use link::hosts::host_is_loopback;

use super::node::zones_away;
use crate::failure::{Failure, Result};
use crate::output::table::Column;
use crate::output::{self, Format, data, note};
use crate::role::node::claimed;
use crate::session::{Session, all};
use crate::up::DATA_DEFAULT;

/// Names that are tried, one after the other.
const COUNTED_MAX: u32 = 1_000;
/// Ports that are tried, in pairs.
const PORT_FIRST: u16 = 7730;
const PORT_LAST: u16 = 7930;
const PORT_STEP: usize = 10;

const AFTER_HELP: &str = "\
The token goes to standard output. The file that the new machine needs is shown beside it on standard error, ready
to be pasted there.

Examples:
  banyan enroll zone
  banyan enroll zone --host 10.0.0.1       the zone shares that address with root
  banyan enroll node --zone east
  banyan enroll provisioner
  banyan enroll list
  banyan enroll revoke 3f2a                void a token, by the beginning of its id";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Zone,
    Node,
    Provisioner,
    /// The tokens that are out.
    List,
    /// Void a token; who joined with it stays.
    Revoke,
}

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// What will join; or what to do with tokens that are out.
    #[arg(value_enum)]
    role: Role,
    /// The token to revoke: the beginning of its id.
    #[arg(required_if_eq("role", "revoke"))]
    id: Option<String>,
    /// Zone that a node joins; may be left out where there is only one.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Name or address that the zone may have although root or another zone has it; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let role = match (args.role, &args.id) {
        (Role::Revoke, Some(id)) if id.is_empty() => {
            return Err(Failure::new("an empty text is no token").hint("see them with: banyan enroll list"));
        }
        (Role::Revoke, Some(id)) => {
            session.client.enrolment_revoke(id).await?;
            note(format!("token {id}: revoked"));
            return Ok(());
        }
        (Role::List, None) => {
            let mut tokens = session.client.enrolment_list().await?;
            for away in zones_away(session).await {
                note(format!("zone {away} is not connected: its tokens are not listed"));
            }
            if matches!(session.format, Format::Table | Format::Wide) {
                let names = users(session, &tokens).await;
                for token in &mut tokens {
                    let name = token.used_by.as_ref().and_then(|id| names.get(id)).cloned();
                    token.used_by = name.or(token.used_by.take());
                }
            }
            return output::list(session.format, &tokens, &COLUMNS);
        }
        (Role::Zone, None) => EnrolRole::Zone,
        (Role::Node, None) => EnrolRole::Node,
        (Role::Provisioner, None) => EnrolRole::Provisioner,
        (_, Some(word)) => {
            return Err(Failure::new(format!("'{word}' means nothing here")).hint("see --help"));
        }
        (Role::Revoke, None) => return Err(Failure::new("say which token; see 'banyan enroll list'")),
    };
    let ask = EnrolmentCreate { role, zone: args.zone, hosts: args.hosts };
    let enrolment = session.client.enrolment_create(&ask).await?;
    match session.format {
        Format::Json | Format::Yaml => {
            note(format!("good once, until {}", enrolment.expires_at));
            output::item(session.format, &enrolment, "", |_, _| Vec::new())
        }
        _ => {
            let taken = taken(session, role).await;
            note(paste(&enrolment, &ask.hosts, &Free::find(&enrolment, taken.as_ref())));
            data(&format!("{}\n", enrolment.token))
        }
    }
}

const COLUMNS: [Column<EnrolmentToken>; 5] = [
    Column::new("ID", |token| token.id.clone()),
    Column::new("FOR", |token| match token.role {
        EnrolRole::Zone => "zone".to_owned(),
        EnrolRole::Node => "node".to_owned(),
        EnrolRole::Provisioner => "provisioner".to_owned(),
    }),
    Column::new("ZONE", |token| token.zone.as_ref().map(ToString::to_string).unwrap_or_default()),
    Column::new("UNTIL", |token| token.expires_at.to_string()),
    Column::new("USED BY", |token| token.used_by.clone().unwrap_or_default()),
];

/// The names of those who joined with these tokens, by id, as far as root knows them.
async fn users(session: &Session, tokens: &[EnrolmentToken]) -> BTreeMap<String, String> {
    let client = &session.client;
    let used = |role: EnrolRole| tokens.iter().any(|token| token.role == role && token.used_by.is_some());
    let mut names = BTreeMap::new();
    if used(EnrolRole::Zone) {
        let zones = all(ListQuery::new(), None, |query| async move { client.zone_list(&query).await }).await;
        names.extend(zones.unwrap_or_default().into_iter().map(|z| (z.id.to_string(), z.name.to_string())));
    }
    if used(EnrolRole::Node) {
        let nodes = all(ListQuery::new(), None, |query| async move { client.node_list(&query).await }).await;
        names.extend(nodes.unwrap_or_default().into_iter().map(|node| (node.id, node.name.to_string())));
    }
    if used(EnrolRole::Provisioner) {
        let found = client.provisioner_list().await.unwrap_or_default();
        names.extend(found.into_iter().map(|one| (one.id.to_string(), one.name.to_string())));
    }
    names
}

/// The names that are taken among the newcomer's kind, as far as root knows; nothing when it cannot say.
async fn taken(session: &Session, role: EnrolRole) -> Option<BTreeSet<String>> {
    let client = &session.client;
    let names: Vec<String> = match role {
        EnrolRole::Zone => {
            let zones = all(ListQuery::new(), None, |query| async move { client.zone_list(&query).await });
            zones.await.ok()?.into_iter().map(|zone| zone.name.to_string()).collect()
        }
        EnrolRole::Node => {
            let nodes = all(ListQuery::new(), None, |query| async move { client.node_list(&query).await });
            nodes.await.ok()?.into_iter().map(|node| node.name.to_string()).collect()
        }
        EnrolRole::Provisioner => {
            let found = client.provisioner_list().await.ok()?;
            found.into_iter().map(|provisioner| provisioner.name.to_string()).collect()
        }
    };
    Some(names.into_iter().collect())
}

/// What the newcomer may be called and use, as far as that can be seen from here.
struct Free {
    word: &'static str,
    name: String,
    /// Whether root said which names are taken.
    named: bool,
    /// It joins on this machine, beside what is there.
    here: bool,
    /// For its bridge and its cgroup.
    bridge: String,
    /// Two ports, one after the other.
    port: u16,
}

impl Free {
    fn find(enrolment: &Enrolment, taken: Option<&BTreeSet<String>>) -> Self {
        let (word, first): (_, &[&str]) = match enrolment.role {
            EnrolRole::Zone => ("zone", &["east", "west", "north", "south"]),
            EnrolRole::Node => ("node", &[]),
            EnrolRole::Provisioner => ("provisioner", &[]),
        };
        let here = enrolment.parents.iter().all(|url| host_is_loopback(host_of(url)));
        let counted = (1..=COUNTED_MAX).map(|number| match enrolment.role {
            EnrolRole::Zone => format!("zone{number}"),
            _ => format!("{}{number}", &word[..1]),
        });
        let free = |name: &String| {
            let known = taken.is_some_and(|taken| taken.contains(name));
            let taken = here && data_folder(word, name, here).exists();
            !known && !taken
        };
        let mut names = first.iter().map(|name| (*name).to_owned()).chain(counted);
        let name = names.find(free).unwrap_or_else(|| "NAME".to_owned());
        let mut bridges = (1..=COUNTED_MAX).map(|number| format!("banyan{number}"));
        let bridge = bridges.find(|name| bridge_free(name)).unwrap_or_else(|| "NAME".to_owned());
        let mut ports = (PORT_FIRST..PORT_LAST).step_by(PORT_STEP);
        let port = ports.find(|port| port_free(*port) && port_free(port + 1)).unwrap_or(PORT_FIRST);
        Self { word, name, named: taken.is_some(), here, bridge, port }
    }
}

fn data_folder(word: &str, name: &str, here: bool) -> PathBuf {
    let folder = if here { format!("{word}-{name}") } else { word.to_owned() };
    Path::new(DATA_DEFAULT).join(folder)
}

/// Neither a device nor somebody's claim has the name.
fn bridge_free(name: &str) -> bool {
    !Path::new("/sys/class/net").join(name).exists() && !claimed(name)
}

fn port_free(port: u16) -> bool {
    link::listen_check(SocketAddr::from(([127, 0, 0, 1], port))).is_ok()
}

/// The file with which the newcomer joins.
fn paste(enrolment: &Enrolment, hosts: &[String], free: &Free) -> String {
    let Free { word, name, named, here, bridge, port } = free;
    let hint = match named {
        true => format!("as you like; root knows no {word} of this name"),
        false => format!("as you like; no other {word} may have it"),
    };
    let mut lines = vec![
        format!("# good once, until {}", enrolment.expires_at),
        format!("# on the new machine, as {word}.toml; then: banyan {word} --config {word}.toml"),
        format!("name = \"{name}\"                # {hint}"),
        format!("data = \"{}\"", data_folder(word, name, *here).display()),
    ];
    let urls: Vec<String> = enrolment.parents.iter().map(|url| format!("\"{url}\"")).collect();
    let parents = if urls.len() == 1 { urls.concat() } else { format!("[{}]", urls.join(", ")) };
    lines.push(format!("{} = {parents}", if *word == "node" { "zone" } else { "root" }));
    if let Some(broker) = &enrolment.broker {
        lines.push(format!("broker = \"{broker}\""));
    }
    lines.push(format!("token = \"{}\"", enrolment.token));
    match (enrolment.role, *here) {
        (EnrolRole::Zone, true) => lines.extend([
            "names = []                 # nodes on this machine; add names under which others reach it"
                .to_owned(),
            format!("https_listen = \"127.0.0.1:{port}\"   # free on this machine when this was printed"),
            format!("mqtt_listen = \"127.0.0.1:{}\"", port + 1),
        ]),
        (EnrolRole::Zone, false) => {
            let names: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
            let names = if names.is_empty() { "\"HOST\"".to_owned() } else { names.join(", ") };
            let how = if hosts.is_empty() { "instead of HOST, how" } else { "how" };
            lines.push(format!("names = [{names}]         # {how} nodes reach that machine"));
        }
        (EnrolRole::Node, true) => lines.extend([
            format!("bridge = \"{bridge}\"         # free on this machine when this was printed"),
            format!("cgroup_parent = \"{bridge}\""),
        ]),
        (EnrolRole::Node, false) | (EnrolRole::Provisioner, _) => {}
    }
    if *here {
        lines.push(
            "# It joins on this machine alone. So that others can: banyan up --host NAME, or names in the parent's file."
                .to_owned(),
        );
    }
    lines.join("\n") + "\n"
}

/// The host in `https://HOST:PORT`.
fn host_of(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn enrolment(role: EnrolRole, parent: &str, broker: Option<&str>) -> Enrolment {
        let (parents, broker) = (vec![parent.to_owned()], broker.map(str::to_owned));
        let expires_at = model::Timestamp(0);
        Enrolment { role, token: "banyan1.secret".to_owned(), expires_at, parents, broker }
    }

    #[test]
    fn what_is_shown_is_a_whole_file() {
        let shown = |enrolment: &Enrolment, hosts: &[String]| {
            paste(enrolment, hosts, &Free::find(enrolment, Some(&BTreeSet::new())))
        };
        let zone =
            shown(&enrolment(EnrolRole::Zone, "https://root.example:7710", None), &["east.example".into()]);
        let read: toml::Table = toml::from_str(&zone).unwrap();
        assert_eq!(read["root"].as_str(), Some("https://root.example:7710"));
        assert_eq!(read["names"][0].as_str(), Some("east.example"));
        let far = enrolment(EnrolRole::Node, "https://east.example:7720", Some("east.example:7721"));
        let read: toml::Table = toml::from_str(&shown(&far, &[])).unwrap();
        assert_eq!(
            (read["zone"].as_str(), read["broker"].as_str()),
            (Some("https://east.example:7720"), Some("east.example:7721"))
        );
        assert!(!read.contains_key("bridge"));
        let near =
            shown(&enrolment(EnrolRole::Node, "https://127.0.0.1:40001", Some("127.0.0.1:40002")), &[]);
        let worker = enrolment(EnrolRole::Provisioner, "https://root.example:7710", None);
        let read: toml::Table = toml::from_str(&shown(&worker, &[])).unwrap();
        assert_eq!(read["root"].as_str(), Some("https://root.example:7710"));
        assert_eq!(read["data"].as_str(), Some("/var/lib/banyan/provisioner"));
        assert!(near.contains("bridge") && near.contains("banyan up --host"), "{near}");
        assert_eq!(host_of("https://[::1]:7710"), "::1");
    }

    #[test]
    fn what_is_taken_is_not_suggested() {
        let far = enrolment(EnrolRole::Node, "https://east.example:7720", Some("east.example:7721"));
        let taken: BTreeSet<String> = ["n1", "n2", "n4"].map(str::to_owned).into();
        assert_eq!(Free::find(&far, Some(&taken)).name, "n3");
        let zone = enrolment(EnrolRole::Zone, "https://root.example:7710", None);
        assert_eq!(Free::find(&zone, Some(&["east".to_owned()].into())).name, "west");
        let unknown = paste(&far, &[], &Free::find(&far, None));
        assert!(unknown.contains("no other node may have it"), "{unknown}");
        // A device and a port that somebody has.
        assert!(!bridge_free("lo"));
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!port_free(port.local_addr().unwrap().port()));
    }
}
