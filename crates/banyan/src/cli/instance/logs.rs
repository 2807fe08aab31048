//! `banyan instance logs`. Following survives a broken stream: it connects
//! again, asks for the last lines and leaves out those already shown.

use std::io::Write;
use std::time::Duration;

use api::{Client, LogsOptions};
use clap::Args;
use futures::{Stream, StreamExt};
use model::{ErrorKind, Phase, RestartPolicy};

use super::find;
use crate::failure::{Failure, Result};
use crate::output::note;
use crate::session::Session;

/// Tries in a row without a byte before giving up.
const RECONNECTS_MAX: u32 = 60;
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// How much of what was shown is remembered, to find the place again.
const MEMORY_BYTES: usize = 2048;
/// What is asked for again after a break.
pub(in crate::cli) const REPLAY_LINES: u64 = 2000;
const REPLAY_BYTES_MAX: usize = 1 << 20;
/// A replay has ended when nothing comes for so long.
const REPLAY_IDLE: Duration = Duration::from_millis(300);

#[derive(Args)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    instance: String,
    /// Go on as more is written, until the instance ends or you press Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines.
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,
}

/// What was shown last.
#[derive(Default)]
pub(in crate::cli) struct Memory(Vec<u8>);

impl Memory {
    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::cli) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(MEMORY_BYTES);
        self.0.drain(..excess);
    }

    /// Where in a replay the new part begins; none when the place is not in it.
    fn resume(&self, replay: &[u8]) -> Option<usize> {
        if self.0.is_empty() {
            return Some(0);
        }
        let last = replay.windows(self.0.len()).rposition(|window| window == self.0.as_slice())?;
        Some(last + self.0.len())
    }
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let instance = find(session, &args.instance).await?;
    let id = instance.id.as_str();
    if !args.follow {
        let options = LogsOptions { follow: false, tail_lines: args.tail };
        let mut stream = session.client.instance_logs(id, options).await?;
        while let Some(chunk) = stream.next().await {
            show(&chunk?, &mut Memory::default())?;
        }
        return Ok(());
    }
    follow(session, id, args.tail).await
}

async fn follow(session: &Session, id: &str, tail: Option<u64>) -> Result<()> {
    let mut memory = Memory::default();
    let mut tries = 0;
    let mut first = true;
    loop {
        let tail_lines = if first { tail } else { Some(REPLAY_LINES) };
        let broke = match session.client.instance_logs(id, LogsOptions { follow: true, tail_lines }).await {
            Ok(stream) => {
                let before = memory.0.clone();
                let broke = copy(stream, &mut memory, !first).await?;
                first = false;
                if memory.0 != before {
                    tries = 0;
                }
                broke
            }
            Err(error) if first || error.kind != ErrorKind::Unavailable => return Err(error.into()),
            Err(error) => Some(error.message),
        };
        if ended(&session.client, id).await? {
            return Ok(());
        }
        tries += 1;
        if tries > RECONNECTS_MAX {
            return Err(Failure::new("the output broke off and cannot be reached again")
                .hint(format!("try again with: banyan instance logs -f {id}")));
        }
        if let Some(reason) = broke {
            note(format!("{reason}; connecting again"));
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Copies a stream to stdout until it ends; says why when it broke.
async fn copy<S>(mut stream: S, memory: &mut Memory, replaying: bool) -> Result<Option<String>>
where
    S: Stream<Item = model::Result<bytes::Bytes>> + Unpin,
{
    if replaying && let Some(broke) = skip_shown(&mut stream, memory).await? {
        return Ok(Some(broke));
    }
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => show(&chunk, memory)?,
            Err(error) => return Ok(Some(error.message)),
        }
    }
    Ok(None)
}

/// Reads the replay and shows only what is new in it.
async fn skip_shown<S>(stream: &mut S, memory: &mut Memory) -> Result<Option<String>>
where
    S: Stream<Item = model::Result<bytes::Bytes>> + Unpin,
{
    let (new, broke) = replay_new(stream, memory).await;
    show(&new, memory)?;
    Ok(broke)
}

/// Reads the replay: what is new in it, and why it broke.
pub(in crate::cli) async fn replay_new<S>(stream: &mut S, memory: &Memory) -> (Vec<u8>, Option<String>)
where
    S: Stream<Item = model::Result<bytes::Bytes>> + Unpin,
{
    let mut replay = Vec::new();
    let mut broke = None;
    while replay.len() < REPLAY_BYTES_MAX {
        match tokio::time::timeout(REPLAY_IDLE, stream.next()).await {
            Ok(Some(Ok(chunk))) => replay.extend_from_slice(&chunk),
            Ok(Some(Err(error))) => {
                broke = Some(error.message);
                break;
            }
            Ok(None) | Err(_) => break,
        }
    }
    let from = memory.resume(&replay).unwrap_or(0);
    (replay.split_off(from), broke)
}

/// Writes bytes as they are; a reader that went away ends the program.
fn show(bytes: &[u8], memory: &mut Memory) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => return Err(error.into()),
        Ok(()) => memory.add(bytes),
    }
    Ok(())
}

/// Whether nothing more will be written: it is stopped, gone, or ended for good.
pub(in crate::cli) async fn ended(client: &Client, id: &str) -> Result<bool> {
    match client.instance_get(id).await {
        Ok(instance) => Ok(match instance.phase {
            Phase::Stopped | Phase::Gone | Phase::Deleting => true,
            Phase::Exited => match instance.spec.restart {
                RestartPolicy::Never => true,
                RestartPolicy::OnFailure => instance.exit_code == Some(0),
                RestartPolicy::Always => false,
            },
            _ => false,
        }),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind == ErrorKind::Unavailable => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_break_only_the_new_part_is_shown() {
        let mut memory = Memory::default();
        assert_eq!(memory.resume(b"abc"), Some(0));
        memory.add(b"one\ntwo\n");
        assert_eq!(memory.resume(b"zero\none\ntwo\nthree\n"), Some(13));
        assert_eq!(memory.resume(b"one\ntwo\n"), Some(8));
        assert_eq!(memory.resume(b"other\n"), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::default();
        memory.add(&vec![b'x'; 3 * MEMORY_BYTES]);
        memory.add(b"end");
        assert_eq!(memory.0.len(), MEMORY_BYTES);
        assert!(memory.0.ends_with(b"end"));
    }
}
