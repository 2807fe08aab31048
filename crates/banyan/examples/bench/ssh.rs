//! One command on many hosts over SSH: ours, OpenSSH, Ansible and pyinfra on the same hosts, in turn.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use provision::ssh::{Command as Line, Pool, Target};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::fleet::TICKS_A_SECOND;
use crate::lab::Lab;

/// Hosts at once, the same for all.
const AT_ONCE: usize = 50;
const LINE: &str = "uname -n";

struct Measured {
    wall: Duration,
    cpu: f64,
}

/// `venv` is a folder with `bin/ansible` and `bin/pyinfra`.
pub async fn run(counts: &[usize], venv: &Path) -> Result<()> {
    println!(
        "{:<44} {:>6} {:>9} {:>12} {:>10} {:>9}",
        "", "hosts", "seconds", "hosts/second", "CPU", "ratio"
    );
    let (mut end, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for count in counts {
        let lab = Lab::start(*count)?;
        // The hosts are taken down whatever happens.
        tokio::select! {
            measured = measure(&lab, *count, venv) => measured?,
            _ = end.recv() => bail!("it was ended"),
            _ = interrupt.recv() => bail!("it was ended"),
        }
    }
    Ok(())
}

async fn measure(lab: &Lab, count: usize, venv: &Path) -> Result<()> {
    let targets = lab.targets();
    let pool = Pool::new(count);
    let cold = timed(ours(&pool, &targets)).await?;
    cold.row("banyan, connecting", count, &cold);
    let warm = timed(ours(&pool, &targets)).await?;
    warm.row("banyan, sessions there", count, &warm);
    drop(pool);
    // What the hosts alone make it cost.
    let openssh = timed(openssh(lab)).await?;
    openssh.row("ssh, connecting", count, &cold);
    let ansible = Ansible::new(lab, venv)?;
    let cases = [("raw", Forks::AsMany), ("command", Forks::AsMany), ("command", Forks::AsShipped)];
    for (module, forks) in cases {
        let sockets = lab.folder().join(format!("sockets-{module}-{forks:?}"));
        let name = match forks {
            Forks::AsMany => format!("ansible -m {module}"),
            Forks::AsShipped => format!("ansible -m {module} as shipped (5 forks)"),
        };
        let first = timed(ansible.run(module, forks, &sockets, count)).await?;
        first.row(&format!("{name}, connecting"), count, &cold);
        let second = timed(ansible.run(module, forks, &sockets, count)).await?;
        second.row(&format!("{name}, connections there"), count, &warm);
    }
    let pyinfra = timed(pyinfra(lab, venv)).await?;
    pyinfra.row("pyinfra exec, connecting", count, &cold);
    Ok(())
}

async fn ours(pool: &Pool, targets: &[Target]) -> Result<()> {
    let one = |target: &Target| {
        let (pool, target) = (pool.clone(), target.clone());
        let run = async move {
            let output = pool.session(&target).await?.run(Line::new(LINE)).await?;
            ensure!(output.is_good() && !output.stdout.text().is_empty(), "{}", output.reason());
            Ok(())
        };
        async { tokio::spawn(run).await? }
    };
    futures::stream::iter(targets.iter().map(one)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

/// One process of OpenSSH for each host.
async fn openssh(lab: &Lab) -> Result<()> {
    let (key, known) = (lab.key(), lab.folder().join("known-ssh"));
    let one = |address: &str| {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o"]);
        command.arg(format!("UserKnownHostsFile={}", known.display())).arg("-i").arg(&key);
        command.args([&format!("root@{address}"), LINE]).stdin(Stdio::null()).kill_on_drop(true);
        async move {
            let done = command.output().await.context("ssh cannot be started")?;
            ensure!(done.status.success(), "ssh: {:.500}", String::from_utf8_lossy(&done.stderr));
            Ok(())
        }
    };
    futures::stream::iter(lab.addresses().map(one))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Forks {
    /// As many at once as ours, and the pipelining that its manual recommends.
    AsMany,
    /// What it does without being told anything.
    AsShipped,
}

struct Ansible {
    program: PathBuf,
    home: PathBuf,
    inventory: PathBuf,
}

impl Ansible {
    fn new(lab: &Lab, venv: &Path) -> Result<Self> {
        let (home, inventory) = (lab.folder().join("home"), lab.folder().join("inventory"));
        std::fs::create_dir_all(&home)?;
        let key = lab.key();
        let line = |address: &str| {
            format!(
                "{address} ansible_user=root ansible_ssh_private_key_file={} ansible_python_interpreter=/usr/bin/python3\n",
                key.display()
            )
        };
        std::fs::write(&inventory, lab.addresses().map(line).collect::<String>())?;
        Ok(Self { program: venv.join("bin/ansible"), home, inventory })
    }

    async fn run(&self, module: &str, forks: Forks, sockets: &Path, count: usize) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["all", "-o", "-m", module, "-a", LINE, "-i"]).arg(&self.inventory);
        command
            .env("HOME", &self.home)
            .env("ANSIBLE_HOST_KEY_CHECKING", "False")
            .env("ANSIBLE_REMOTE_TMP", self.home.join("remote"))
            .env("ANSIBLE_SSH_CONTROL_PATH_DIR", sockets);
        if matches!(forks, Forks::AsMany) {
            command.env("ANSIBLE_FORKS", AT_ONCE.to_string()).env("ANSIBLE_PIPELINING", "True");
        }
        let done = command.kill_on_drop(true).output().await.context("ansible cannot be started")?;
        let said = String::from_utf8_lossy(&done.stdout);
        let good = said.lines().filter(|line| line.contains("CHANGED")).count();
        let why = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success() && good == count,
            "ansible: {good} of {count}: {said:.2000} {why:.2000}"
        );
        Ok(())
    }
}

async fn pyinfra(lab: &Lab, venv: &Path) -> Result<()> {
    let inventory = lab.folder().join("inventory.py");
    let hosts: Vec<String> = lab.addresses().map(|address| format!("{address:?}")).collect();
    let text = format!(
        "hosts = ([{}], {{'ssh_user': 'root', 'ssh_key': {:?}, 'ssh_strict_host_key_checking': 'no', \
         'ssh_known_hosts_file': {:?}}})\n",
        hosts.join(", "),
        lab.key(),
        lab.folder().join("known")
    );
    std::fs::write(&inventory, text)?;
    let mut command = Command::new(venv.join("bin/pyinfra"));
    command.args(["-y", "--parallel", &AT_ONCE.to_string()]).arg(&inventory).args(["exec", "--"]);
    command.args(LINE.split(' ')).env("HOME", lab.folder().join("home")).stdin(Stdio::null());
    let done = command.kill_on_drop(true).output().await.context("pyinfra cannot be started")?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "pyinfra: {why:.2000}");
    Ok(())
}

async fn timed(work: impl Future<Output = Result<()>>) -> Result<Measured> {
    let (before, since) = (spent()?, Instant::now());
    work.await?;
    Ok(Measured { wall: since.elapsed(), cpu: spent()? - before })
}

impl Measured {
    fn row(&self, what: &str, count: usize, ours: &Self) {
        let wall = self.wall.as_secs_f64();
        println!(
            "{what:<44} {count:>6} {wall:>9.2} {:>12.0} {:>8.2} s {:>7.1} x",
            count as f64 / wall,
            self.cpu,
            wall / ours.wall.as_secs_f64()
        );
    }
}

/// CPU seconds of this process and of those it waited for. The hosts are none of them until the end.
fn spent() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let tail = stat.rsplit_once(')').context("a stat line")?.1;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks = fields[11..15].iter().map(|field| field.parse::<u64>());
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / TICKS_A_SECOND)
}
