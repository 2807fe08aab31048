//! `banyan enroll zone|node`: a one-time token, for operators, and the file that the newcomer needs.

use api::{EnrolRole, Enrolment, EnrolmentCreate};
use clap::{Args, ValueEnum};
use link::hosts::host_is_loopback;

use crate::failure::Result;
use crate::output::{self, Format, data, note};
use crate::session::Session;

const AFTER_HELP: &str = "\
The token goes to standard output. The file that the new machine needs is shown beside it on standard error, ready
to be pasted there.

Examples:
  banyan enroll zone
  banyan enroll zone --host 10.0.0.1       the zone shares that address with root
  banyan enroll node --zone east";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    Zone,
    Node,
}

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// What will join.
    #[arg(value_enum)]
    role: Role,
    /// Zone that a node joins; may be left out where there is only one.
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Name or address that the zone may have although root or another zone has it; may be repeated.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let role = match args.role {
        Role::Zone => EnrolRole::Zone,
        Role::Node => EnrolRole::Node,
    };
    let ask = EnrolmentCreate { role, zone: args.zone, hosts: args.hosts };
    let enrolment = session.client.enrolment_create(&ask).await?;
    match session.format {
        Format::Json | Format::Yaml => {
            note(format!("good once, until {}", enrolment.expires_at));
            output::item(session.format, &enrolment, "", |_, _| Vec::new())
        }
        _ => {
            note(paste(&enrolment, &ask.hosts));
            data(&format!("{}\n", enrolment.token))
        }
    }
}

/// The file with which the newcomer joins.
fn paste(enrolment: &Enrolment, hosts: &[String]) -> String {
    let (word, name) = match enrolment.role {
        EnrolRole::Zone => ("zone", "east"),
        EnrolRole::Node => ("node", "n1"),
    };
    let here = enrolment.parents.iter().all(|url| host_is_loopback(host_of(url)));
    let mut lines = vec![
        format!("# good once, until {}", enrolment.expires_at),
        format!("# on the new machine, as {word}.toml; then: banyan {word} --config {word}.toml"),
        format!("name = \"{name}\"                # as you like; no other {word} has it"),
        format!(
            "data = \"/var/lib/banyan/{}\"",
            if here { format!("{word}-{name}") } else { word.to_owned() }
        ),
    ];
    let urls: Vec<String> = enrolment.parents.iter().map(|url| format!("\"{url}\"")).collect();
    let parents = if urls.len() == 1 { urls.concat() } else { format!("[{}]", urls.join(", ")) };
    lines.push(format!("{} = {parents}", if word == "zone" { "root" } else { "zone" }));
    if let Some(broker) = &enrolment.broker {
        lines.push(format!("broker = \"{broker}\""));
    }
    lines.push(format!("token = \"{}\"", enrolment.token));
    match (enrolment.role, here) {
        (EnrolRole::Zone, true) => lines.extend([
            "names = []                 # nodes on this machine; add names under which others reach it"
                .to_owned(),
            "https_listen = \"127.0.0.1:7730\"   # other ports than those of the zone that is there"
                .to_owned(),
            "mqtt_listen = \"127.0.0.1:7731\"".to_owned(),
        ]),
        (EnrolRole::Zone, false) => {
            let names: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
            let names = if names.is_empty() { "\"HOST\"".to_owned() } else { names.join(", ") };
            lines.push(format!("names = [{names}]         # how nodes reach that machine"));
        }
        (EnrolRole::Node, true) => lines.extend([
            "bridge = \"banyan1\"         # others than those of the node that is there".to_owned(),
            "cgroup_parent = \"banyan1\"".to_owned(),
        ]),
        (EnrolRole::Node, false) => {}
    }
    if here {
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
        let zone =
            paste(&enrolment(EnrolRole::Zone, "https://root.example:7710", None), &["east.example".into()]);
        let read: toml::Table = toml::from_str(&zone).unwrap();
        assert_eq!(read["root"].as_str(), Some("https://root.example:7710"));
        assert_eq!(read["names"][0].as_str(), Some("east.example"));
        let far = enrolment(EnrolRole::Node, "https://east.example:7720", Some("east.example:7721"));
        let read: toml::Table = toml::from_str(&paste(&far, &[])).unwrap();
        assert_eq!(
            (read["zone"].as_str(), read["broker"].as_str()),
            (Some("https://east.example:7720"), Some("east.example:7721"))
        );
        assert!(!read.contains_key("bridge"));
        let near =
            paste(&enrolment(EnrolRole::Node, "https://127.0.0.1:40001", Some("127.0.0.1:40002")), &[]);
        assert!(near.contains("bridge") && near.contains("banyan up --host"), "{near}");
        assert_eq!(host_of("https://[::1]:7710"), "::1");
    }
}
