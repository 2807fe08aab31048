//! `banyan workload logs`: what all instances wrote, line by line, with the instance's name in front.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{Client, Instance, LogsOptions, Workload};
use clap::Args;
use futures::StreamExt;
use model::WorkloadPhase;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::find;
use crate::cli::instance::logs::{self, Memory, REPLAY_LINES, replay_new};
use crate::failure::Result;
use crate::output::{data, note};
use crate::session::Session;
use crate::wait::workload::instances;

/// Instances that are read, and how many of them at the same time when not following.
const INSTANCES_MAX: usize = 100;
const READERS: usize = 8;
const TAIL_DEFAULT: u64 = 100;
/// Most that is read of one instance when not following.
const BYTES_MAX: usize = 1 << 20;
/// A longer line is shown in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Lines that wait to be shown.
const QUEUE: usize = 1024;
/// While following, how often new instances are looked for, and a broken stream is opened again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When nothing more is written, how long the rest is waited for.
const REST_WAIT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Arguments {
    /// Name, id, or the beginning of an id.
    workload: String,
    /// Go on as more is written and as instances come and go, until you press Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// The last lines of each instance.
    #[arg(long, value_name = "LINES", default_value_t = TAIL_DEFAULT)]
    tail: u64,
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let workload = find(session, &args.workload).await?;
    if args.follow {
        return follow(&session.client, workload, args.tail).await;
    }
    let found = instances(&session.client, workload.name.as_str(), INSTANCES_MAX).await?;
    if found.is_empty() {
        note(format!("workload {} has no instances now", workload.name));
    }
    let width = found.iter().map(|instance| instance.name.as_str().len()).max().unwrap_or(0);
    let reads = found.iter().map(|instance| read(&session.client, instance, args.tail, width));
    let mut texts = futures::stream::iter(reads).buffered(READERS);
    while let Some(text) = texts.next().await {
        data(&text)?;
    }
    if workload.status.instances as usize > found.len() {
        note(format!("{} of {} instances are shown", found.len(), workload.status.instances));
    }
    Ok(())
}

/// What one instance wrote. One that cannot be read does not keep the others from being shown.
async fn read(client: &Client, instance: &Instance, tail: u64, width: usize) -> String {
    let options = LogsOptions { follow: false, tail_lines: Some(tail) };
    let mut lines = Lines::new(instance, width);
    let mut text = String::new();
    match client.instance_logs(instance.id.as_str(), options).await {
        Ok(mut stream) => {
            while let Some(chunk) = stream.next().await {
                match chunk {
                    Ok(chunk) => lines.add(&chunk).into_iter().for_each(|line| text += &line),
                    Err(error) => note(format!("instance {}: {}", instance.name, error.message)),
                }
                if text.len() > BYTES_MAX {
                    note(format!(
                        "instance {}: only the first {} KiB are shown",
                        instance.name,
                        BYTES_MAX >> 10
                    ));
                    break;
                }
            }
        }
        Err(error) => note(format!("instance {}: {}", instance.name, error.message)),
    }
    text + &lines.rest().unwrap_or_default()
}

/// Cuts bytes into lines with the name of their instance in front.
struct Lines {
    prefix: String,
    open: Vec<u8>,
}

impl Lines {
    fn new(instance: &Instance, width: usize) -> Self {
        Self { prefix: format!("{:<width$} | ", instance.name.as_str()), open: Vec::new() }
    }

    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.open.push(*byte);
            }
            if *byte == b'\n' || self.open.len() >= LINE_BYTES_MAX {
                lines.push(self.take());
            }
        }
        lines
    }

    /// A last line that was not ended.
    fn rest(&mut self) -> Option<String> {
        (!self.open.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = format!("{}{}\n", self.prefix, String::from_utf8_lossy(&self.open));
        self.open.clear();
        line
    }
}

async fn follow(client: &Client, workload: Workload, tail: u64) -> Result<()> {
    let (sender, mut receiver) = mpsc::channel::<String>(QUEUE);
    let mut readers: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut tail = Some(tail);
    let mut many_said = false;
    loop {
        tokio::select! {
            Some(line) = receiver.recv() => data(&line)?,
            _ = look.tick() => {
                // Asked for first, so that what began and ended since the last look is read too.
                let over = ended(client, &workload).await;
                let found = instances(client, workload.name.as_str(), INSTANCES_MAX).await.unwrap_or_default();
                if found.len() >= INSTANCES_MAX && !std::mem::replace(&mut many_said, true) {
                    note(format!("the first {INSTANCES_MAX} instances are followed; there may be more"));
                }
                for instance in found {
                    let (client, sender) = (client.clone(), sender.clone());
                    let entry = readers.entry(instance.id.to_string());
                    entry.or_insert_with(|| tokio::spawn(pass_on(client, instance, tail, sender)));
                }
                // Those that come later are read from their beginning.
                tail = None;
                if over {
                    break;
                }
            }
        }
    }
    // Each reader ends with its instance; what it still has is shown.
    drop(sender);
    let until = tokio::time::Instant::now() + REST_WAIT;
    while let Ok(Some(line)) = tokio::time::timeout_at(until, receiver.recv()).await {
        data(&line)?;
    }
    readers.values().for_each(JoinHandle::abort);
    Ok(())
}

/// Whether nothing more will be written: it is gone, or its run has ended.
async fn ended(client: &Client, workload: &Workload) -> bool {
    match client.workload_get(workload.name.as_str()).await {
        Ok(now) => {
            let over = matches!(now.status.phase, WorkloadPhase::Done | WorkloadPhase::Failed);
            over && now.spec.mode.run().is_some()
        }
        Err(error) => error.kind == model::ErrorKind::NotFound,
    }
}

/// Follows one instance until it writes no more. After a break the last lines are asked for again, and those that were
/// passed on already are left out.
async fn pass_on(client: Client, instance: Instance, tail: Option<u64>, sender: mpsc::Sender<String>) {
    let mut lines = Lines::new(&instance, 0);
    let mut memory = Memory::default();
    let id = instance.id.as_str();
    loop {
        let known = !memory.is_empty();
        let options = LogsOptions { follow: true, tail_lines: if known { Some(REPLAY_LINES) } else { tail } };
        if let Ok(mut stream) = client.instance_logs(id, options).await {
            if known {
                let (new, _) = replay_new(&mut stream, &memory).await;
                memory.add(&new);
                if !pass(&sender, lines.add(&new)).await {
                    return;
                }
            }
            while let Some(Ok(chunk)) = stream.next().await {
                memory.add(&chunk);
                if !pass(&sender, lines.add(&chunk)).await {
                    return;
                }
            }
        }
        if logs::ended(&client, id).await.unwrap_or(false) {
            pass(&sender, lines.rest().into_iter().collect()).await;
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// False when nobody shows them any more.
async fn pass(sender: &mpsc::Sender<String>, lines: Vec<String>) -> bool {
    for line in lines {
        if sender.send(line).await.is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_the_name_of_their_instance() {
        let mut lines = Lines { prefix: "web-1 | ".into(), open: Vec::new() };
        assert_eq!(lines.add(b"one\ntw"), ["web-1 | one\n"]);
        assert_eq!(lines.add(b"o\n\n"), ["web-1 | two\n", "web-1 | \n"]);
        assert_eq!(lines.rest(), None);
        assert!(lines.add(b"end").is_empty());
        assert_eq!(lines.rest().as_deref(), Some("web-1 | end\n"));
        assert_eq!(lines.add(&vec![b'x'; LINE_BYTES_MAX + 5]).len(), 1, "a line without an end is cut");
    }
}
