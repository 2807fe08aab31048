//! Programs that run here, beside us, for one task.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::ssh::{Exit, Kept, Output, Said, SshError};
use crate::task::Fault;
use crate::warden;

/// How long a program that has ended is still listened to, if something that left its group holds its pipes.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What programs may take over from us; everything else of our environment stays with us.
const ENVIRONMENT: [&str; 4] = ["PATH", "LANG", "TZ", "HOME"];

/// Ready to be a group of its own that ends with us, with little of our environment.
pub(crate) fn prepare(command: &mut Command) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_clear().process_group(0).kill_on_drop(true);
    for name in ENVIRONMENT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// A program, and what it started, which all end when nobody waits for it any more, or when we are killed.
pub(crate) struct Group {
    pub(crate) child: Child,
    /// What the warden knows it by.
    number: Option<u32>,
}

impl Group {
    /// Starts a prepared program. It must wait for its standard input before it does anything.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let number = child.id();
        let group = Self { child, number };
        if let Some(number) = number {
            warden::watch(number)?;
        }
        Ok(group)
    }

    /// Ends the program and what it started.
    pub(crate) async fn end(&mut self) {
        self.kill();
        let _ = self.child.wait().await;
    }

    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
    }

    /// Not any more when it was waited for: its number may be another's then.
    fn kill(&mut self) {
        kill_group(self.pid());
        if let Some(number) = self.number.take() {
            warden::forget(number);
        }
    }

    /// Waits until the program itself has ended, but leaves its number taken.
    async fn ended(&self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(pid), look)?.is_none() {
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Listens until the program has ended, and ends what it left running: that may hold its pipes for ever.
    pub(crate) async fn hear(
        &mut self,
        listening: impl Future<Output = io::Result<()>>,
    ) -> io::Result<ExitStatus> {
        let mut listening = pin!(listening);
        let is_heard = tokio::select! {
            heard = &mut listening => {
                heard?;
                self.ended().await?;
                true
            }
            ended = self.ended() => {
                ended?;
                false
            }
        };
        self.kill();
        if !is_heard && let Ok(heard) = timeout(LAST_WORDS, listening).await {
            heard?;
        }
        self.child.wait().await
    }
}

fn kill_group(pid: Option<Pid>) {
    if let Some(pid) = pid {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads to the end.
pub(crate) async fn gather(from: &mut (impl AsyncRead + Unpin), into: &mut Kept) -> io::Result<()> {
    let mut piece = vec![0; 16 << 10];
    loop {
        match from.read(&mut piece).await? {
            0 => return Ok(()),
            count => into.add(&piece[..count]),
        }
    }
}

/// Runs a program that waits for a line to its end, or ends it when its time is over or it is stopped.
/// What it said until then is in the fault.
pub(crate) async fn run(
    mut group: Group,
    what: &str,
    limit: Duration,
    keep: usize,
    stop: &CancellationToken,
) -> Result<Output, Fault> {
    let mut said = Said::new(keep);
    let pid = group.pid();
    let ended = {
        let mut listening = pin!(timeout(limit, listen(&mut group, &mut said)));
        tokio::select! {
            ended = &mut listening => Some(ended),
            () = stop.cancelled() => {
                // It was not waited for yet, so the number is its own. What it said until now may still be in its pipes.
                kill_group(pid);
                let _ = listening.await;
                None
            }
        }
    };
    group.end().await;
    let Some(ended) = ended else { return Err(Fault::from(SshError::Stopped).said(&said)) };
    match ended {
        Ok(Ok(exit)) => Ok(said.ended(exit)),
        Ok(Err(error)) => Err(Fault::failed(format!("{what} broke: {error}")).said(&said)),
        Err(_) => Err(Fault::from(SshError::Late { what: what.to_owned(), limit }).said(&said)),
    }
}

async fn listen(group: &mut Group, said: &mut Said) -> io::Result<Exit> {
    let closed = || io::Error::other("its standard streams are closed");
    let child = &mut group.child;
    let mut stdin = child.stdin.take().ok_or_else(closed)?;
    // One that is gone already tells so by its end.
    let _ = stdin.write_all(b"\n").await;
    drop(stdin);
    let mut out = child.stdout.take().ok_or_else(closed)?;
    let mut err = child.stderr.take().ok_or_else(closed)?;
    let Said { stdout, stderr } = said;
    let listening = async { tokio::try_join!(gather(&mut out, stdout), gather(&mut err, stderr)).map(drop) };
    Ok(exit(group.hear(listening).await?))
}

fn exit(status: ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(u32::try_from(code).unwrap_or(u32::MAX)),
        (None, signal) => Exit::Signal(signal.unwrap_or_default().to_string()),
    }
}
