//! A machine that tasks are carried out on.

use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::ssh::{Auth, Command, HostKey, Identity, Output, Pin, Pool, Said, Target, quote};
use crate::task::{Fault, Report, Task};

/// The longest time for one command, unless a task says otherwise.
pub const COMMAND_MAX: Duration = Duration::from_secs(1800);
/// The longest time for one file.
const PUT_MAX: Duration = Duration::from_secs(300);

/// One machine, reached through the pool.
#[derive(Clone)]
pub struct Machine {
    pool: Pool,
    target: Target,
    stop: CancellationToken,
}

impl Machine {
    /// The machine of a task. Only while it is confirmed may its key be unknown.
    pub fn of(task: &Task, pool: &Pool) -> Result<Self, Fault> {
        let host =
            task.address().ok_or_else(|| Fault::invalid("the task does not say where the machine is"))?;
        let auth = match (task.ssh_auth("key"), task.ssh_auth("password")) {
            (Some(key), _) => Auth::Key(Identity::parse(key)?),
            (None, Some(password)) => Auth::Password(password.to_owned().into()),
            (None, None) => Auth::Key(task.cluster_key()?),
        };
        let mut known = Vec::new();
        for key in task.host_keys() {
            known.push(HostKey::try_from(key.to_owned())?);
        }
        let pin = match (known.is_empty(), task.task_name) {
            (false, _) => Pin::Known(known),
            (true, crate::task::Verb::Confirm) => Pin::First,
            (true, _) => {
                return Err(Fault::invalid("the machine's host key is not known: it was not confirmed"));
            }
        };
        let (port, user) = (task.ssh_port(), task.ssh_user().to_owned());
        let target = Target { host: host.to_owned(), port, user, auth, pin };
        Ok(Self { pool: pool.clone(), target, stop: CancellationToken::new() })
    }

    /// What runs there is ended when `stop` is.
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// The same machine for what must be done in any case, such as tidying up.
    pub fn anyway(&self) -> Self {
        self.clone().until(CancellationToken::new())
    }

    /// Ends what is done for it.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn is_root(&self) -> bool {
        self.target.user == "root"
    }

    /// A line that runs as root there.
    fn as_root(&self, line: &str) -> String {
        if self.is_root() { line.to_owned() } else { format!("sudo -n -E sh -c {}", quote(line)) }
    }

    /// Runs a line as root, whatever its outcome. What it said until it was cut off is in the fault.
    pub async fn run(&self, line: &str, limit: Duration) -> Result<Output, Fault> {
        let session = self.pool.session(&self.target).await?;
        let command = Command::new(self.as_root(line)).limit(limit);
        let mut said = Said::new(command.keep);
        match session.run_into(command, &self.stop, &mut said).await {
            Ok(exit) => Ok(said.ended(exit)),
            Err(error) => Err(Fault::from(error).said(&said)),
        }
    }

    /// Runs a line as root; an end other than 0 is a fault with what was printed.
    pub async fn must(&self, what: &str, line: &str, limit: Duration) -> Result<Report, Fault> {
        let output = self.run(line, limit).await?;
        let (stdout, stderr) = (output.stdout.text(), output.stderr.text());
        if output.is_good() {
            return Ok(Report { stdout, stderr, ..Report::default() });
        }
        Err(Fault {
            stdout,
            stderr,
            ..Fault::failed(format!("{what} failed on {}: {}", self.target.host, output.reason()))
        })
    }

    /// Writes a file that belongs to root.
    pub async fn put(&self, path: &str, mode: u32, bytes: Bytes) -> Result<(), Fault> {
        let session = self.pool.session(&self.target).await?;
        if self.is_root() {
            return Ok(session.put(path, mode, bytes, PUT_MAX).await?);
        }
        // Through a folder of the user's own, because root's are closed to it.
        let way = format!("/tmp/banyan-{:016x}", rand::random::<u64>());
        session.put(&format!("{way}/file"), 0o600, bytes, PUT_MAX).await?;
        let (way, path) = (quote(&way), quote(path));
        let line = format!(
            "umask 077; mkdir -p \"$(dirname {path})\" && install -o root -g root -m {mode:o} {way}/file {path}.part && mv -f {path}.part {path}; end=$?; rm -rf {way}; exit $end"
        );
        self.must("writing a file", &line, PUT_MAX).await.map(drop)
    }
}
