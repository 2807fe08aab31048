//! Hosts that are network namespaces, each with an address and an sshd of its own, on one bridge.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use provision::ssh::{Auth, HostKey, Identity, Pin, Target};

/// Of the range that is set aside for measuring networks.
const NETWORK: &str = "198.18";
const PATIENCE: Duration = Duration::from_secs(60);

/// All that was made; it is gone when this is dropped.
pub struct Lab {
    folder: tempfile::TempDir,
    /// What the names of namespaces, links and the bridge begin with.
    prefix: String,
    identity: Identity,
    hosts: Vec<Host>,
}

struct Host {
    sshd: Child,
    address: String,
    key: HostKey,
}

impl Lab {
    pub fn start(count: usize) -> Result<Self> {
        let prefix = format!("bs{}", std::process::id() % 10_000);
        let identity = Identity::from_seed(&rand::random());
        let mut lab = Self { folder: tempfile::tempdir()?, prefix, identity, hosts: Vec::new() };
        lab.networks(count)?;
        std::fs::create_dir_all("/run/sshd")?;
        lab.secret("key", lab.identity.private_text().as_str())?;
        lab.secret("authorized", &(lab.identity.public_text() + "\n"))?;
        for number in 0..count {
            let host = lab.host(number)?;
            lab.hosts.push(host);
        }
        let began = Instant::now();
        for host in &lab.hosts {
            while std::net::TcpStream::connect((host.address.as_str(), 22)).is_err() {
                ensure!(began.elapsed() < PATIENCE, "{} does not listen", host.address);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(lab)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file of the key that all hosts let in.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| host.address.as_str())
    }

    pub fn targets(&self) -> Vec<Target> {
        let target = |host: &Host| Target {
            host: host.address.clone(),
            port: 22,
            user: "root".to_owned(),
            auth: Auth::Key(self.identity.clone()),
            pin: Pin::Known(vec![host.key.clone()]),
        };
        self.hosts.iter().map(target).collect()
    }

    fn secret(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?)
    }

    fn networks(&self, count: usize) -> Result<()> {
        let name = &self.prefix;
        let mut lines = format!(
            "link add {name} type bridge\naddr add {NETWORK}.255.254/16 dev {name}\nlink set {name} up\n"
        );
        for number in 0..count {
            lines += &format!("netns add {name}-{number}\n");
        }
        batch(&lines)?;
        let mut lines = String::new();
        for number in 0..count {
            lines += &format!(
                "link add {name}-{number} type veth peer name eth0 netns {name}-{number}\n\
                 link set {name}-{number} master {name} up\n"
            );
        }
        batch(&lines)?;
        for number in 0..count {
            let own = format!("-n {name}-{number}");
            for line in [
                format!("{own} addr add {}/16 dev eth0", address(number)),
                format!("{own} link set lo up"),
                format!("{own} link set eth0 up"),
            ] {
                let done = Command::new("ip").args(line.split_whitespace()).status()?;
                ensure!(done.success(), "ip {line}");
            }
        }
        Ok(())
    }

    fn host(&self, number: usize) -> Result<Host> {
        let at = self.folder.path().display();
        let key = Identity::from_seed(&rand::random());
        self.secret(&format!("host-{number}"), key.private_text().as_str())?;
        let config = format!(
            "HostKey {at}/host-{number}\nPidFile none\nAuthorizedKeysFile {at}/authorized\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nUseDNS no\n"
        );
        self.secret(&format!("config-{number}"), &config)?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}-{number}", self.prefix)]);
        // With a home of its own, which is empty: what this machine's root runs at every login is not measured.
        let line = format!("mount -t tmpfs home /root && exec /usr/sbin/sshd -D -f {at}/config-{number}");
        command.args(["sh", "-c", &line]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let sshd = command.spawn().context("Debian's package openssh-server is missing")?;
        Ok(Host { sshd, address: address(number), key: HostKey::try_from(key.public_text())? })
    }
}

fn address(number: usize) -> String {
    format!("{NETWORK}.{}.{}", number / 250, number % 250 + 1)
}

fn batch(lines: &str) -> Result<()> {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    ip.stdin.take().context("it was asked for")?.write_all(lines.as_bytes())?;
    ensure!(ip.wait()?.success(), "the hosts were not made");
    Ok(())
}

/// Ends a process and what it started.
fn end(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        end(child);
    }
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in &mut self.hosts {
            end(host.sshd.id());
            let _ = host.sshd.wait();
        }
        let spaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let own = format!("{}-", self.prefix);
        for name in spaces.map(|space| space.file_name().to_string_lossy().into_owned()) {
            if name.starts_with(&own) {
                // Sessions whose sshd ended before them are nobody's children.
                let left = Command::new("ip").args(["netns", "pids", &name]).output();
                let left = left.map(|left| String::from_utf8_lossy(&left.stdout).into_owned());
                left.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).for_each(end);
                let _ = Command::new("ip").args(["netns", "delete", &name]).status();
            }
        }
        let _ = Command::new("ip").args(["link", "delete", &self.prefix]).stderr(Stdio::null()).status();
    }
}
