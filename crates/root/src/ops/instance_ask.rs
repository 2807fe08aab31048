//! Questions about an instance that only its holder can answer: output, commands, statistics.

use std::time::Duration;

use link::ByteStream;
use model::exchange::{Ask, InstanceStats};
use model::instance::{COMMAND_BYTES_MAX, COMMAND_WORDS_MAX};
use model::{Error, InstanceId, Phase, Result, ZoneId};

use super::instance::find;
use crate::cloud::{Caller, Cloud};
use crate::state::Entry;

/// Longest wait until a zone begins to answer.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest statistics answer.
const STATS_MAX: usize = 64 * 1024;

pub struct ExecAsk {
    pub command: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub rows: u16,
    pub cols: u16,
}

pub async fn logs(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    follow: bool,
    tail_lines: Option<u64>,
) -> Result<ByteStream> {
    ask(cloud, caller, name, |instance, _| Ok(Ask::Logs { instance, follow, tail_lines })).await
}

/// Whether a command could be run now; starts nothing.
pub fn exec_check(cloud: &Cloud, caller: &Caller, name: &str, exec: &ExecAsk) -> Result<()> {
    let bytes: usize = exec.command.iter().map(String::len).sum();
    if exec.command.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("the command to run must be given").at("command"));
    }
    if exec.command.iter().any(|word| word.contains('\0')) {
        return Err(Error::invalid("the command has a NUL byte in it").at("command"));
    }
    if exec.command.len() > COMMAND_WORDS_MAX || bytes > COMMAND_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the command may have {COMMAND_WORDS_MAX} words and {COMMAND_BYTES_MAX} bytes at most"
        ))
        .at("command"));
    }
    let snapshot = cloud.state.snapshot();
    let entry = find(&snapshot, caller, name)?;
    zone_of(entry, name)?;
    running(entry.phase(), name)
}

fn running(phase: Phase, name: &str) -> Result<()> {
    match phase {
        Phase::Running => Ok(()),
        other => {
            Err(Error::conflict(format!("the instance '{name}' is {other}; commands run in running ones"))
                .hint(format!("'banyan why instance {name}' says more")))
        }
    }
}

pub async fn exec(cloud: &Cloud, caller: &Caller, name: &str, exec: ExecAsk) -> Result<ByteStream> {
    exec_check(cloud, caller, name, &exec)?;
    let ExecAsk { command, tty, stdin, rows, cols } = exec;
    ask(cloud, caller, name, |instance, phase| {
        running(phase, name)?;
        Ok(Ask::Exec { instance, command, tty, stdin, rows, cols })
    })
    .await
}

pub async fn stats(cloud: &Cloud, caller: &Caller, name: &str) -> Result<InstanceStats> {
    let mut stream = ask(cloud, caller, name, |instance, _| Ok(Ask::Stats { instance })).await?;
    let body = read(&mut stream, STATS_MAX).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Error::internal("the zone's statistics cannot be read").because(error))
}

/// Reads a whole answer within the usual time.
pub(crate) async fn read(stream: &mut ByteStream, max: usize) -> Result<bytes::Bytes> {
    tokio::time::timeout(ASK_TIMEOUT, stream.read_all(max)).await.unwrap_or_else(|_| Err(late()))
}

pub(crate) fn late() -> Error {
    Error::unavailable("the zone does not answer in time")
}

fn zone_of(entry: &Entry, name: &str) -> Result<ZoneId> {
    entry.status.as_ref().and_then(|status| status.zone.clone()).ok_or_else(|| {
        Error::conflict(format!("the instance '{name}' is not placed yet"))
            .hint(format!("'banyan why instance {name}' says why"))
    })
}

async fn ask(
    cloud: &Cloud,
    caller: &Caller,
    name: &str,
    make: impl FnOnce(InstanceId, Phase) -> Result<Ask>,
) -> Result<ByteStream> {
    let (zone, ask) = {
        let snapshot = cloud.state.snapshot();
        let entry = find(&snapshot, caller, name)?;
        (zone_of(entry, name)?, make(entry.instance.id.clone(), entry.phase())?)
    };
    tokio::time::timeout(ASK_TIMEOUT, cloud.tree.ask(&zone, ask)).await.unwrap_or_else(|_| Err(late()))
}
