//! `banyan instance exec`: a command in a running instance, with our terminal
//! when it wants one. Its exit code becomes ours.

use std::io::Write;

use api::{ExecFrame, ExecOptions, ExecReceiver, ExecSender};
use bytes::Bytes;
use clap::Args;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::find;
use crate::failure::{Failure, Result};
use crate::session::Session;
use crate::terminal::{RawMode, interactive, size};

const CHUNK_BYTES: usize = 16 * 1024;
/// What shells answer for a command that a signal of this number ended.
const SIGNAL_BASE: u8 = 128;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  banyan instance exec -it web -- sh\n  echo hello | banyan instance exec -i web -- cat"
)]
pub struct Arguments {
    /// Pass our standard input on.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal.
    #[arg(short = 't', long)]
    tty: bool,
    /// Name, id, or the beginning of an id.
    instance: String,
    /// Command and its arguments [default: sh].
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub async fn run(session: &Session, args: Arguments) -> Result<u8> {
    if args.tty && !interactive() {
        return Err(Failure::new(
            "a terminal was asked for with -t, but standard input or output is not one",
        )
        .hint("leave -t out"));
    }
    let instance = find(session, &args.instance).await?;
    let (rows, cols) = size();
    let command = if args.command.is_empty() { vec!["sh".to_owned()] } else { args.command };
    let options = ExecOptions { command, tty: args.tty, stdin: args.stdin, rows, cols };
    let stream = session.client.instance_exec(instance.id.as_str(), &options).await.map_err(|error| {
        Failure::from(error)
            .or_hint(format!("see whether it runs with: banyan instance get {}", instance.name))
    })?;
    let (sender, receiver) = stream.split();
    // From here to the end of this function the terminal is raw; every way out drops this.
    let raw = if args.tty { Some(RawMode::enter()?) } else { None };
    let outcome = converse(sender, receiver, args.stdin, args.tty).await;
    drop(raw);
    outcome
}

/// The signals that concern us while the command runs.
struct Signals {
    resize: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self {
            resize: signal(SignalKind::window_change())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

async fn converse(mut sender: ExecSender, mut receiver: ExecReceiver, stdin: bool, tty: bool) -> Result<u8> {
    let mut signals = Signals::new()?;
    let mut input = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut reading = stdin;
    loop {
        tokio::select! {
            frame = receiver.recv() => match frame? {
                Some(ExecFrame::Stdout(bytes)) => write(&mut std::io::stdout().lock(), &bytes)?,
                Some(ExecFrame::Stderr(bytes)) => write(&mut std::io::stderr().lock(), &bytes)?,
                Some(ExecFrame::Exit(code)) => return Ok(exit_code(code)),
                Some(_) => {}
                None => return Err(Failure::new("the connection ended before the command did")),
            },
            read = input.read(&mut buffer), if reading => {
                // A command may end without reading its input, so a send that fails is told by the other direction.
                let frame = match read? {
                    0 => ExecFrame::StdinEnd,
                    count => ExecFrame::Stdin(Bytes::copy_from_slice(&buffer[..count])),
                };
                let end = frame == ExecFrame::StdinEnd;
                reading = sender.send(frame).await.is_ok() && !end;
            }
            _ = signals.resize.recv(), if tty => {
                let (rows, cols) = size();
                let _ = sender.send(ExecFrame::Resize { rows, cols }).await;
            }
            _ = signals.terminate.recv() => return Ok(SIGNAL_BASE + 15),
            _ = signals.hang_up.recv() => return Ok(SIGNAL_BASE + 1),
        }
    }
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::from)
}

/// Codes that do not fit a process's exit code become 255.
fn exit_code(code: i32) -> u8 {
    match code {
        0..=255 => code as u8,
        _ => u8::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_never_taken_for_success_by_cutting_it_off() {
        assert_eq!([exit_code(0), exit_code(7), exit_code(256), exit_code(-9)], [0, 7, 255, 255]);
    }
}
