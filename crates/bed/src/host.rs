//! One host: its namespaces, its disk, and the role that runs on it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::fault::{Detour, detour_rules};
use crate::shell::{Shell, network_run};
use crate::sweep::cgroups_remove;

pub const SUBNET_PREFIX: u8 = 16;
pub const SWITCH_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 254);
pub const REST_PORT: u16 = 7700;
pub const ROOT_PORT: u16 = 7710;
pub const ZONE_PORT: u16 = 7720;
pub const BROKER_PORT: u16 = 7721;
/// Each host has a network of its own, so all may use this name.
pub const BRIDGE: &str = "banyan0";
/// How long a role may take to say that it is up.
const UP_WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);
/// Seconds in which a role that is refused says so.
const REFUSAL_WAIT: u32 = 20;
const FILLER: &str = "filler";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Root,
    Zone,
    Node,
    /// Runs nothing of ours.
    Bare,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Zone => "zone",
            Self::Node => "node",
            Self::Bare => "bare",
        }
    }

    /// Where children of such a host come to.
    pub const fn ports(self) -> &'static [u16] {
        match self {
            Self::Root => &[ROOT_PORT],
            Self::Zone => &[ZONE_PORT, BROKER_PORT],
            Self::Node | Self::Bare => &[],
        }
    }
}

/// What a node is given beside its name and zone.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    pub labels: Vec<(String, String)>,
    pub cpu_overcommit: u64,
    /// It speaks HTTPS to its zone, and not MQTT.
    pub https: bool,
    /// Lines that go into its configuration as they are.
    pub more: String,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self { labels: Vec::new(), cpu_overcommit: 20, https: false, more: String::new() }
    }
}

/// What a host is made from.
pub struct Plan {
    pub name: String,
    pub kind: Kind,
    pub number: u8,
    /// Of the bed; the host's own folder is below it.
    pub folder: PathBuf,
    pub binary: PathBuf,
    /// The process that holds the switch and the disks.
    pub switch: u32,
    pub cgroup: String,
    pub disk_mb: u64,
}

/// A machine of the bed. It stays the same machine when its power is cut: address, name and disk.
pub struct Host {
    plan: Plan,
    life: Mutex<Life>,
}

#[derive(Default)]
struct Life {
    shell: Option<Shell>,
    /// Counts the boots; part of the name of its cable.
    boots: u32,
    /// Where in the log the current run of the role begins.
    log_from: u64,
    detours: Vec<Detour>,
}

impl Host {
    /// A host that is powered on and runs nothing yet.
    pub(crate) fn new(plan: Plan) -> Result<Self> {
        let host = Self { plan, life: Mutex::default() };
        std::fs::create_dir_all(host.disk_point())?;
        host.boot(&mut host.life())?;
        Ok(host)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn name(&self) -> &str {
        &self.plan.name
    }

    pub const fn kind(&self) -> Kind {
        self.plan.kind
    }

    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.plan.number)
    }

    pub fn cgroup(&self) -> &str {
        &self.plan.cgroup
    }

    fn folder(&self) -> PathBuf {
        self.plan.folder.join(&self.plan.name)
    }

    fn disk_point(&self) -> PathBuf {
        self.folder().join("disk")
    }

    /// Its data folder, as the host itself names it.
    pub fn data(&self) -> PathBuf {
        self.disk_point().join("data")
    }

    /// Its data folder, as this process reaches it; also while the host is off.
    pub fn data_seen(&self) -> PathBuf {
        self.seen(&self.data())
    }

    /// A file on its disk, as this process reaches it.
    pub fn seen(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.plan.switch.to_string()).join("root").join(below)
    }

    pub fn log(&self) -> PathBuf {
        self.plan.folder.join("logs").join(format!("{}.log", self.plan.name))
    }

    fn config(&self) -> PathBuf {
        self.folder().join("role.toml")
    }

    fn clock(&self) -> PathBuf {
        self.folder().join("clock")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder().join("role.pid")
    }

    /// The first process of the host, while it is powered on.
    pub fn init(&self) -> Option<u32> {
        self.life().shell.as_ref().map(Shell::pid)
    }

    fn cable(&self, boots: u32) -> String {
        format!("h{}-{boots}", self.plan.number)
    }

    fn boot(&self, life: &mut Life) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.plan.switch));
        command.args([
            "unshare",
            "--mount",
            "--net",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        let mut shell = Shell::start(command, true)?;
        let aside = self.folder().join("cgroup");
        // The host sees its own devices in /sys, the machine's cgroups, and names namespaces for itself.
        shell.run(&format!(
            "set -e; hostname {name}; mkdir -p /run/netns {aside}; mount -t tmpfs tmpfs /run/netns; \
             mount --rbind /sys/fs/cgroup {aside}; mount -t sysfs sysfs /sys; \
             mount --rbind {aside} /sys/fs/cgroup; umount -l {aside}; ip link set lo up; set +e",
            name = self.plan.name,
            aside = aside.display(),
        ))?;
        shell.run(&format!(
            "role() {{ while :; do BANYAN_CLOCK_AHEAD={clock} {binary} {role} --config {config} </dev/null >>{log} 2>&1 & echo $! >{pid}; \
             wait $!; [ $? -eq 137 ] && break; sleep 1; done; }}",
            clock = self.clock().display(),
            binary = self.plan.binary.display(),
            role = self.plan.kind.word(),
            config = self.config().display(),
            log = self.log().display(),
            pid = self.pid_file().display(),
        ))?;
        life.boots += 1;
        self.plug(life.boots, shell.pid())?;
        network_run(shell.pid(), &["nft", "-f", "-"], &detour_rules(SWITCH_ADDRESS, &life.detours))?;
        life.shell = Some(shell);
        Ok(())
    }

    /// The cable from the host to the switch.
    fn plug(&self, boots: u32, init: u32) -> Result<()> {
        let (cable, mac) = (self.cable(boots), format!("02:be:d0:00:00:{:02x}", self.plan.number));
        let inside = format!("/proc/{init}/ns/net");
        network_run(
            self.plan.switch,
            &[
                "ip", "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "address", &mac,
                "netns", &inside,
            ],
            "",
        )?;
        network_run(self.plan.switch, &["ip", "link", "set", &cable, "master", "switch", "up"], "")?;
        let address = format!("{}/{SUBNET_PREFIX}", self.address());
        network_run(init, &["ip", "address", "add", &address, "dev", "eth0"], "")?;
        network_run(init, &["ip", "link", "set", "eth0", "up"], "")
    }

    /// Writes the configuration of the role and starts it.
    pub(crate) fn role_begin(&self, config: &str) -> Result<()> {
        std::fs::write(self.config(), config)?;
        self.role_start()?;
        self.up_wait()
    }

    fn role_start(&self) -> Result<()> {
        let mut life = self.life();
        life.log_from = std::fs::metadata(self.log()).map_or(0, |file| file.len());
        let shell = life.shell.as_mut().context("the host is off")?;
        // Whoever wants to hit the role finds its new process, not the one before.
        let line = format!(
            "rm -f {pid}; role </dev/null >>{log} 2>&1 & LOOP=$!; while [ ! -s {pid} ]; do sleep 0.02; done",
            log = self.log().display(),
            pid = self.pid_file().display()
        );
        shell.run(&line).map(drop)
    }

    /// What the role said since it was last started.
    pub fn said(&self) -> String {
        let from = usize::try_from(self.life().log_from).unwrap_or(0);
        let all = std::fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(all.get(from..).unwrap_or_default()).into_owned()
    }

    /// Whether the role said that it is up since it was last started.
    pub fn is_up(&self) -> bool {
        self.said().contains(&format!("{} is up", self.plan.kind.word()))
    }

    /// Waits until the role says that it is up.
    pub fn up_wait(&self) -> Result<()> {
        let deadline = Instant::now() + UP_WAIT;
        while !self.is_up() {
            if Instant::now() > deadline {
                bail!("{} does not come up: {}", self.plan.name, self.said());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Kills the role's process and nothing else.
    pub fn kill9(&self) -> Result<()> {
        self.role_end("-9")
    }

    /// Asks the role to end, and waits for it.
    pub fn stop(&self) -> Result<()> {
        self.role_end("-TERM")
    }

    fn role_end(&self, signal: &str) -> Result<()> {
        let mut life = self.life();
        let shell = life.shell.as_mut().context("the host is off")?;
        let line = format!(
            "[ -z \"$LOOP\" ] || kill -9 $LOOP 2>/dev/null; LOOP=; role_pid=$(cat {}); \
             kill {signal} $role_pid 2>/dev/null; while [ -d /proc/$role_pid ]; do sleep 0.02; done",
            self.pid_file().display()
        );
        shell.run(&line).map(drop)
    }

    /// Stops the role's process in its tracks: it is alive and answers nobody. [`Host::thaw`] lets it go on.
    pub fn freeze(&self) -> Result<()> {
        self.role_signal("-STOP")
    }

    pub fn thaw(&self) -> Result<()> {
        self.role_signal("-CONT")
    }

    fn role_signal(&self, signal: &str) -> Result<()> {
        let mut life = self.life();
        let shell = life.shell.as_mut().context("the host is off")?;
        shell.run(&format!("kill {signal} $(cat {})", self.pid_file().display())).map(drop)
    }

    /// Everything on the host dies at once. The kernel still closes its connections, so others hear of it.
    pub fn power_off(&self) -> Result<()> {
        self.off(false)
    }

    /// As [`Host::power_off`], with the cable pulled first: nobody hears of it.
    pub fn power_cut(&self) -> Result<()> {
        self.off(true)
    }

    fn off(&self, silently: bool) -> Result<()> {
        let mut life = self.life();
        let Some(mut shell) = life.shell.take() else { return Ok(()) };
        let cable = self.cable(life.boots);
        if silently {
            network_run(self.plan.switch, &["ip", "link", "set", &cable, "down"], "")?;
        }
        shell.kill()?;
        // Gone already when the kernel was quick to end the host's network.
        let _ = network_run(self.plan.switch, &["ip", "link", "delete", &cable], "");
        cgroups_remove(&self.plan.cgroup);
        Ok(())
    }

    pub fn is_on(&self) -> bool {
        self.life().shell.is_some()
    }

    /// Powers the host on if it is off, and starts its role; does not wait for it.
    pub fn restart(&self) -> Result<()> {
        {
            let mut life = self.life();
            if life.shell.is_none() {
                self.boot(&mut life)?;
            }
        }
        self.role_start()
    }

    /// Sets the clock of its role so much ahead of the machine's, or back with a negative number.
    /// Only the clock that the role takes its time from; certificates are looked at by the machine's.
    pub fn clock_jump(&self, ahead: i64) -> Result<()> {
        let fresh = self.folder().join("clock.new");
        std::fs::write(&fresh, ahead.saturating_mul(1_000_000).to_string())?;
        Ok(std::fs::rename(fresh, self.clock())?)
    }

    /// Tries to be a role that is expected to be refused: what it said before it ended.
    pub fn role_try(&self, role: &str, config: &str) -> Result<String> {
        std::fs::write(self.config(), config)?;
        let line = format!(
            "timeout {REFUSAL_WAIT} {} {role} --config {} </dev/null",
            self.plan.binary.display(),
            self.config().display()
        );
        match self.run(&line) {
            Ok(said) => bail!("{} was not refused: {said}", self.plan.name),
            Err(refused) => Ok(format!("{refused:#}")),
        }
    }

    /// Runs a line of shell on the host.
    pub fn run(&self, line: &str) -> Result<String> {
        self.life().shell.as_mut().context("the host is off")?.run(line)
    }

    /// Leaves no byte on its disk.
    pub fn fill_disk(&self) -> Result<()> {
        let file = self.seen(&self.disk_point().join(FILLER));
        // What became free on a full disk is filled too.
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file)?;
        let chunk = vec![0; 1 << 20];
        while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
        while std::io::Write::write_all(&mut file, &chunk[..1]).is_ok() {}
        Ok(())
    }

    pub fn free_disk(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.seen(&self.disk_point().join(FILLER)))?)
    }

    /// Where its connections to parents go instead.
    pub(crate) fn detours_set(&self, detours: Vec<Detour>) -> Result<()> {
        let mut life = self.life();
        life.detours = detours;
        let rules = detour_rules(SWITCH_ADDRESS, &life.detours);
        match &life.shell {
            Some(shell) => network_run(shell.pid(), &["nft", "-f", "-"], &rules),
            None => Ok(()),
        }
    }

    /// The line of shell that makes its disk.
    pub(crate) fn disk_line(plan: &Plan) -> String {
        let point = plan.folder.join(&plan.name).join("disk");
        format!("mkdir -p {0} && mount -t tmpfs -o size={1}m tmpfs {0}", point.display(), plan.disk_mb)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.power_off();
        cgroups_remove(&self.plan.cgroup);
    }
}
