//! `hosts`: machines that are there already.
//!
//! Fields: `hosts`, a list of `[USER@]ADDRESS[:PORT] [ssh-ed25519 AAAA…]`, by lines or commas; `ssh_user`; `ssh_key`
//! or `ssh_password`, with which we come in. A machine belongs to the node whose name stands in a file
//! on it, written once and atomically, so that any number of workers can choose at the same time and a
//! worker that dies in between leaves nothing that the next does not find.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{Provider, Setting, confirm, patience};
use crate::machine::Machine;
use crate::ssh::{Auth, Command, Exit, HostKey, Identity, Pin, Session, SshError, Target, quote};
use crate::task::{Fault, Report, Task, Verb};

/// Says whose the machine is.
const CLAIM: &str = "/var/lib/banyan/machine";
/// The result that names machines which may be the node's as well.
const UNCLEAR: &str = "hosts_unclear";
const AUTHORIZED: &str = ".ssh/authorized_keys";
const ACT_MAX: Duration = Duration::from_secs(30);
const CONFIRM_MAX: Duration = Duration::from_secs(120);
/// Machines of one pool.
const HOSTS_MAX: usize = 10_000;

pub struct Hosts;

/// One line of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Host {
    user: String,
    host: String,
    port: u16,
    key: Option<HostKey>,
}

impl Host {
    fn parse(line: &str, user: &str) -> Result<Self, Fault> {
        let wrong =
            || Fault::invalid(format!("'{}' is no machine: write [USER@]ADDRESS[:PORT]", model::shown(line)));
        let (place, key) =
            line.split_once(char::is_whitespace).map_or((line, ""), |(place, key)| (place, key.trim()));
        let (user, place) = place.split_once('@').unwrap_or((user, place));
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None if place.matches(':').count() == 1 => {
                place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
            }
            None => (place, None),
        };
        let port = port.map_or(Ok(22), str::parse).map_err(|_| wrong())?;
        if host.is_empty() || user.is_empty() || host.contains(['/', ' ']) {
            return Err(wrong());
        }
        let key = if key.is_empty() { None } else { Some(HostKey::try_from(key.to_owned())?) };
        Ok(Self { user: user.to_owned(), host: host.to_owned(), port, key })
    }

    /// Identifies it among the machines of the pool.
    fn id(&self) -> String {
        format!("{}@{}:{}", self.user, self.host, self.port)
    }
}

fn pool(task: &Task) -> Result<Vec<Host>, Fault> {
    let text = task.provider_field("hosts").unwrap_or_default();
    let user = task.provider_field("ssh_user").unwrap_or_else(|| "root".to_owned());
    let lines =
        text.split(['\n', ',']).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let hosts: Vec<Host> =
        lines.take(HOSTS_MAX + 1).map(|line| Host::parse(line, &user)).collect::<Result<_, _>>()?;
    match hosts.len() {
        0 => Err(Fault::credentials("the provider has no machines: fill in its field 'hosts'")),
        count if count > HOSTS_MAX => {
            Err(Fault::invalid(format!("a provider has at most {HOSTS_MAX} machines")))
        }
        _ => Ok(hosts),
    }
}

/// How the pool's owner comes in.
fn target(task: &Task, host: &Host) -> Result<Target, Fault> {
    let auth = match (task.provider_field("ssh_key"), task.provider_field("ssh_password")) {
        (Some(key), _) => {
            Auth::Key(Identity::parse(&key).map_err(|error| Fault::credentials(error.to_string()))?)
        }
        (None, Some(password)) => Auth::Password(password.into()),
        (None, None) => return Err(Fault::credentials("the provider needs 'ssh_key' or 'ssh_password'")),
    };
    let pin = host.key.clone().map_or(Pin::First, |key| Pin::Known(vec![key]));
    Ok(Target { host: host.host.clone(), port: host.port, user: host.user.clone(), auth, pin })
}

impl Provider for Hosts {
    fn name(&self) -> &str {
        "hosts"
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        match setting.task.task_name {
            Verb::Create => create(setting).boxed(),
            Verb::Confirm => async {
                let machine = Machine::of(setting.task, setting.pool)?;
                confirm(&machine, patience(setting.task, CONFIRM_MAX)).await
            }
            .boxed(),
            _ => delete(setting).boxed(),
        }
    }
}

async fn create(setting: &Setting<'_>) -> Result<Report, Fault> {
    let task = setting.task;
    let hosts = pool(task)?;
    let key = task.cluster_key()?;
    // Where each node begins to look is its own, so that many do not all ask the same machine first.
    let start =
        task.node_id.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte as usize));
    let mut troubles = Vec::new();
    // Of these it is not known whether they are the node's; they are given back with it.
    let mut unclear = Vec::new();
    let mut taken = 0;
    for place in 0..hosts.len() {
        let host = &hosts[(start + place) % hosts.len()];
        match claim(setting, host, &key).await {
            Ok(Tried::Mine) => return Ok(made(task, host, &unclear)),
            Ok(Tried::Taken) => taken += 1,
            Ok(Tried::Missed(trouble)) => troubles.push(trouble),
            Err(trouble) => {
                unclear.push(host.id());
                troubles.push(trouble);
            }
        }
    }
    let count = hosts.len();
    match troubles.into_iter().next() {
        Some(trouble) if taken == 0 => {
            Err(Fault { message: format!("none of {count} machines can be used: {trouble}"), ..trouble })
        }
        // One of those may be reached again.
        Some(trouble) => Err(Fault {
            is_passing: true,
            ..Fault::credentials(format!(
                "{taken} of {count} machines of the provider are in use, and others cannot be used: {trouble}"
            ))
        }),
        None => Err(Fault::credentials(format!("all {count} machines of the provider are in use"))),
    }
}

fn made(task: &Task, host: &Host, unclear: &[String]) -> Report {
    let mut report = Report { hostname: Some(task.hostname().to_owned()), ..Report::default() };
    report.ipaddresses = ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), host.host.clone())).into();
    let values: [(&str, Value); 3] = [
        ("providerid", json!(host.id())),
        ("ssh-auth", json!({"user": host.user})),
        ("ssh-port", json!(host.port)),
    ];
    report.result.extend(values.map(|(name, value)| (name.to_owned(), value)));
    if !unclear.is_empty() {
        report.result.insert(UNCLEAR.to_owned(), json!(unclear));
    }
    if let Some(key) = &host.key {
        report.result.insert("ssh_host_keys".to_owned(), json!({"pool": key}));
    }
    report
}

/// What came of one machine.
enum Tried {
    Mine,
    Taken,
    /// It cannot be used, and is nobody's by us.
    Missed(Fault),
}

/// The node, as the file on its machine says it.
fn owner(task: &Task) -> String {
    quote(&format!("{}/{}", task.cluster_id, task.node_id))
}

/// Takes the machine for the node, unless it is another's. Also lets the cluster's key in. It is an error
/// if it is not known whether the machine was taken.
async fn claim(setting: &Setting<'_>, host: &Host, key: &Identity) -> Result<Tried, Fault> {
    let owner = owner(setting.task);
    let line = format!(
        "mkdir -p \"$(dirname {CLAIM})\" && {{ (set -C; echo {owner} > {CLAIM}) 2>/dev/null || [ \"$(cat {CLAIM})\" = {owner} ]; }} || exit 9"
    );
    let session = match setting.pool.session(&target(setting.task, host)?).await {
        Ok(session) => session,
        Err(error) => return Ok(Tried::Missed(denied(error))),
    };
    let output = session.run(Command::new(as_root(host, &line)).limit(ACT_MAX)).await?;
    match output.exit {
        Exit::Code(0) => {}
        Exit::Code(9) => return Ok(Tried::Taken),
        _ => {
            let why = Fault::failed(format!("{} cannot be taken: {}", host.host, output.reason()));
            return give_back(setting.task, host, &session).await.map(|_| Tried::Missed(why));
        }
    }
    let public = quote(&key.public_text());
    let line = format!(
        "umask 077 && mkdir -p .ssh && touch {AUTHORIZED} && {{ grep -qxF {public} {AUTHORIZED} || echo {public} >> {AUTHORIZED}; }}"
    );
    let output = session.run(Command::new(line).limit(ACT_MAX)).await?;
    if output.is_good() {
        return Ok(Tried::Mine);
    }
    let why = Fault::failed(format!("{} does not take the cluster's key: {}", host.host, output.reason()));
    give_back(setting.task, host, &session).await.map(|_| Tried::Missed(why))
}

/// Takes the node's name off a machine. Returns whether it was there.
async fn give_back(task: &Task, host: &Host, session: &Session) -> Result<bool, Fault> {
    let line = format!("[ -f {CLAIM} ] && [ \"$(cat {CLAIM})\" = {} ] || exit 9; rm -f {CLAIM}", owner(task));
    let output = session.run(Command::new(as_root(host, &line)).limit(ACT_MAX)).await?;
    match output.exit {
        Exit::Code(0) => Ok(true),
        Exit::Code(9) => Ok(false),
        _ => Err(Fault::failed(format!("{} could not be given back: {}", host.host, output.reason()))),
    }
}

fn as_root(host: &Host, line: &str) -> String {
    if host.user == "root" { line.to_owned() } else { format!("sudo -n sh -c {}", quote(line)) }
}

fn denied(error: SshError) -> Fault {
    match error {
        SshError::Denied { .. } | SshError::HostKey { .. } => Fault::credentials(error.to_string()),
        error => error.into(),
    }
}

/// Gives the machine back. It is looked for where it was, or else everywhere: the word of its creation may be lost.
async fn delete(setting: &Setting<'_>) -> Result<Report, Fault> {
    let task = setting.task;
    let hosts = pool(task)?;
    let unclear = task.config.get(UNCLEAR).and_then(Value::as_array);
    let named: Vec<&str> = task
        .provider_id()
        .into_iter()
        .chain(unclear.into_iter().flatten().filter_map(Value::as_str))
        .collect();
    let is_there = |id: &str| hosts.iter().any(|host| host.id() == id);
    let is_known = task.provider_id().is_some_and(is_there);
    let hosts: Vec<&Host> =
        hosts.iter().filter(|host| !is_known || named.contains(&host.id().as_str())).collect();
    let owner = owner(task);
    let key = task.cluster_key().map(|key| quote(&key.public_text())).unwrap_or_default();
    let (mut is_found, mut unheard) = (false, None);
    for host in hosts {
        let session = match setting.pool.session(&target(task, host)?).await {
            Ok(session) => session,
            Err(error) if is_known => return Err(denied(error)),
            Err(error) => {
                unheard = unheard.or(Some(error));
                continue;
            }
        };
        let mine = format!("[ \"$(cat {CLAIM} 2>/dev/null)\" = {owner} ]");
        // The key goes first: the file says that there is still something to do.
        let keys = format!(
            "{mine} || exit 0; [ -f {AUTHORIZED} ] || exit 0; umask 077; \
             grep -vxF {key} {AUTHORIZED} > {AUTHORIZED}.part; cat {AUTHORIZED}.part > {AUTHORIZED} && rm {AUTHORIZED}.part"
        );
        if !key.is_empty() {
            let output = session.run(Command::new(keys).limit(ACT_MAX)).await?;
            if !output.is_good() {
                let why = output.reason();
                return Err(Fault::failed(format!("{} still lets the cluster's key in: {why}", host.host)));
            }
        }
        is_found |= give_back(task, host, &session).await?;
    }
    match unheard {
        // It may be one of those that were not heard.
        Some(error) if !is_found => Err(Fault {
            is_passing: true,
            ..Fault::failed(format!("not all machines could be asked whether they are the node's: {error}"))
        }),
        _ => Ok(Report::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_written_in_many_ways() {
        let id = |line: &str| Host::parse(line, "root").map(|host| host.id()).map_err(|fault| fault.message);
        assert_eq!(id("192.0.2.1").as_deref(), Ok("root@192.0.2.1:22"));
        assert_eq!(id("admin@web.example:2222").as_deref(), Ok("admin@web.example:2222"));
        assert_eq!(id("[2001:db8::1]:2222").as_deref(), Ok("root@2001:db8::1:2222"));
        assert_eq!(id("2001:db8::1").as_deref(), Ok("root@2001:db8::1:22"));
        let key = Identity::from_seed(&[3; 32]).public_text();
        assert!(Host::parse(&format!("a {key} comment"), "root").unwrap().key.is_some());
        for wrong in ["", "@a", "a:port", "a:99999", "a b"] {
            assert!(id(wrong).is_err(), "{wrong}");
        }
    }
}
