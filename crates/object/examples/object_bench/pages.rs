//! Pages of names, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process;
use crate::times::Times;
use crate::wire::{Connection, Server};

/// The most names of a page.
const PAGE: usize = 1000;

pub struct Walked {
    names: usize,
    elapsed: Duration,
    cpu: f64,
    times: Times,
}

impl Walked {
    pub fn words(&self) -> String {
        format!(
            "{} names, {:.0} a second, a page p50 {:.2} ms, p99 {:.2} ms, {:.0} names a CPU second",
            self.names,
            self.names as f64 / self.elapsed.as_secs_f64(),
            self.times.at(0.5),
            self.times.at(0.99),
            self.names as f64 / self.cpu.max(0.01),
        )
    }
}

/// Lists the whole bucket.
pub async fn walk(server: &Server) -> Result<Walked> {
    let mut connection = Connection::open(server).await?;
    process::peak_reset(server.pid)?;
    let before = process::cpu(server.pid)?;
    let (mut names, mut times, mut after) = (0, Vec::new(), None::<String>);
    let begun = Instant::now();
    loop {
        let mut query = vec![("list-type".to_owned(), "2".to_owned())];
        query.push(("max-keys".to_owned(), PAGE.to_string()));
        query.extend(after.take().map(|token| ("continuation-token".to_owned(), token)));
        let head = server.head("GET", "", &query, None);
        let mut page = Vec::new();
        let since = Instant::now();
        connection.exchange(&head, None, Some(&mut page)).await?;
        times.push(since.elapsed());
        let page = String::from_utf8(page)?;
        let count = page.matches("<Key>").count();
        names += count;
        let token = page.split_once("<NextContinuationToken>");
        let token = token.and_then(|(_, rest)| rest.split_once('<')).map(|(token, _)| token.to_owned());
        let Some(token) = token else { break };
        ensure!(count > 0, "an empty page says that more follows");
        after = Some(token);
    }
    let elapsed = begun.elapsed();
    let cpu = process::cpu(server.pid)? - before;
    ensure!(names > 0, "nothing was listed");
    Ok(Walked { names, elapsed, cpu, times: Times::new(times) })
}
