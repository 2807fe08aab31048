//! A shell in namespaces of its own, told what to do over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Ends what a command says; the exit status follows.
const MARK: &str = "@@end";
const WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// A running shell. Dropping it ends it, and with it the namespaces that only it holds.
pub struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// The shell itself, as this process numbers it.
    pid: u32,
}

impl Shell {
    /// `command` ends in a program that becomes or starts the shell; `forks` when it starts it.
    pub fn start(mut command: Command, forks: bool) -> Result<Self> {
        command.args(["bash", "--norc", "--noprofile", "-s"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        let mut child = command.spawn().context("the shell of a host cannot be started")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("the shell has no output")?);
        let mut shell = Self { pid: child.id(), child, stdin, stdout };
        shell.run("true")?;
        if forks {
            let children = format!("/proc/{0}/task/{0}/children", shell.child.id());
            let text = std::fs::read_to_string(children)?;
            shell.pid = text.split_whitespace().next().context("the shell has no process")?.parse()?;
        }
        Ok(shell)
    }

    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Runs a line of shell and gives what it said; an error when its status is not 0.
    pub fn run(&mut self, line: &str) -> Result<String> {
        let stdin = self.stdin.as_mut().context("the shell has ended")?;
        writeln!(stdin, "{{ {line}\n}} 2>&1; echo \"{MARK} $?\"")?;
        stdin.flush()?;
        let mut said = String::new();
        loop {
            let mut next = String::new();
            ensure!(self.stdout.read_line(&mut next)? > 0, "the shell ended during: {line}");
            match next.trim_end().rsplit_once(MARK) {
                Some((rest, " 0")) => return Ok(said + rest),
                Some((rest, status)) => bail!("{line}: status{status}: {said}{rest}"),
                None => said.push_str(&next),
            }
        }
    }

    /// Kills the shell; when it is the first process of its namespace, everything in it dies at once.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(self.pid)?) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        self.stdin = None;
        let deadline = Instant::now() + WAIT;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "the shell of a host does not end");
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs a program in the network of a process and waits for it; `input` goes to its standard input.
pub fn network_run(pid: u32, words: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{pid}/ns/net")).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("nsenter cannot be started")?;
    child.stdin.take().context("nsenter has no input")?.write_all(input.as_bytes())?;
    let done = child.wait_with_output()?;
    ensure!(
        done.status.success(),
        "{} failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}
