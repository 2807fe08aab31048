//! `banyan cluster ssh`: the machine's own sshd through the `ssh` program of this host. The cluster's key and
//! the machine's host keys are in memory alone, readable by that program while it runs.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Stdio;

use api::ClusterNode;
use clap::Args;
use rustix::fs::{MemfdFlags, Mode, fchmod, memfd_create};

use super::logs::pick;
use super::{find, show};
use crate::failure::{Failure, Result};
use crate::session::Session;

const AFTER_HELP: &str = "\
Examples:
  banyan cluster ssh shop                  the first machine
  banyan cluster ssh shop 1001             another one
  banyan cluster ssh shop nginx -- uptime  the first with that service";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    cluster: String,
    /// Number or host name of a machine, or a service on it [default: the first machine].
    node: Option<String>,
    /// Command to run instead of a shell: one word is a line for the shell there, several arrive as they are.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Returns the exit code of the command.
pub async fn run(session: &Session, args: Arguments) -> Result<u8> {
    let cluster = find(session, &args.cluster).await?;
    let name = cluster.name.as_str();
    let mut nodes = session.client.cluster_nodes(name).await?;
    nodes.sort_by_key(|node| node.num);
    let node = match &args.node {
        Some(text) => pick(nodes, text)?,
        None => {
            nodes.into_iter().next().ok_or_else(|| Failure::new(format!("cluster {name} has no machine")))?
        }
    };
    let address = show::address(&node)
        .ok_or_else(|| Failure::new(format!("machine {} has no address yet", node.num)))?;
    if node.host_keys.is_empty() {
        return Err(Failure::new(format!("machine {} was not confirmed yet", node.num))
            .hint(format!("see: banyan cluster get {name}")));
    }
    let key = session.client.cluster_key(name).await?;
    let key = in_memory("key", &key.private_key)?;
    let known = in_memory("known_hosts", &known_hosts(&node))?;
    let mut ssh = tokio::process::Command::new("ssh");
    let option = |text: String| ["-o".to_owned(), text];
    ssh.args(["-F", "none", "-i", &path(&key), "-p", &node.ssh_port.to_string()])
        .args(option("IdentitiesOnly=yes".to_owned()))
        .args(option("UpdateHostKeys=no".to_owned()))
        .args(option("StrictHostKeyChecking=yes".to_owned()))
        .args(option(format!("HostKeyAlias={ALIAS}")))
        .args(option(format!("UserKnownHostsFile={}", path(&known))))
        .args(option("GlobalKnownHostsFile=/dev/null".to_owned()))
        .args(["-l", &node.ssh_user, "--", address])
        .args(remote(&args.command))
        .stdin(Stdio::inherit());
    let ended = ssh.status().await.map_err(|error| {
        Failure::new(format!("ssh cannot be run: {error}"))
            .hint("install OpenSSH's client, e.g. apt install openssh-client")
    })?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// What ssh is to run. It joins words with spaces and has the shell of the machine read them again, so several
/// words are quoted for it; one word is a line of the user's own.
fn remote(command: &[String]) -> Option<String> {
    match command {
        [] => None,
        [line] => Some(line.clone()),
        words => Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,@%+".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Under which the machine is known, whatever its address and port.
const ALIAS: &str = "machine";

fn known_hosts(node: &ClusterNode) -> String {
    node.host_keys.iter().map(|key| format!("{ALIAS} {}\n", key.replace('\n', " "))).collect()
}

/// A file that is nowhere on a disk and goes with this process.
fn in_memory(name: &str, content: &str) -> Result<File> {
    let made = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        file.write_all(content.as_bytes())?;
        if !content.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(file)
    };
    made().map_err(|error| Failure::new(format!("the key cannot be handed to ssh: {error}")))
}

fn path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_as_they_are_and_a_line_is_the_shells() {
        let said = |words: &[&str]| remote(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["hostname && exit 3"]).as_deref(), Some("hostname && exit 3"));
        assert_eq!(said(&["sh", "-c", "exit 7"]).as_deref(), Some("sh -c 'exit 7'"));
        assert_eq!(said(&["echo", "it's", "a  b", ""]).as_deref(), Some(r"echo 'it'\''s' 'a  b' ''"));
    }
}
