//! Measures S3 servers beside each other and beside plain files; `scripts/bench-buckets.sh` starts them and calls this.
//!
//! ```text
//! object_bench matrix SERVERS FOLDER SECONDS CLIENTS...   PUT and GET by several clients, pages of names
//! object_bench case SERVERS put|get SIZE CLIENTS SECONDS  one of these cases, of the first server
//! object_bench names SERVERS                              how fast the first server lists its whole bucket
//! object_bench memory SERVERS CLIENTS                     what the first server takes
//! object_bench fill COUNT DATA                            many names, into a store that does not run
//! ```
//! The servers take turns at each case, so that whatever else the machine does falls on all of them.
#![allow(clippy::print_stdout)]

mod fill;
mod load;
mod pages;
mod plain;
mod process;
mod times;
mod wire;

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use load::{Case, Outcome, Stock};
use plain::Floors;
use wire::{Connection, Server};

const SIZES: [(usize, &str); 3] = [(4 << 10, "4 KiB"), (1 << 20, "1 MiB"), (64 << 20, "64 MiB")];
const LARGE: usize = 64 << 20;
/// Keys that peers are filled with for a listing.
const NAMES: usize = 10_000;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["matrix", servers, folder, seconds, ref levels @ ..] => {
            let levels = levels.iter().map(|level| level.parse()).collect::<Result<Vec<_>, _>>()?;
            on_one_thread(matrix(Path::new(servers), Path::new(folder), seconds.parse()?, &levels))
        }
        ["case", servers, what, size, clients, seconds] => {
            let (size, clients, seconds) = (size.parse()?, clients.parse()?, seconds.parse()?);
            let case = Case { put: what == "put", size, clients, seconds, cold: what == "cold" };
            on_one_thread(one(Path::new(servers), case))
        }
        ["names", servers] => on_one_thread(names(Path::new(servers))),
        ["memory", servers, clients] => on_one_thread(memory(Path::new(servers), clients.parse()?)),
        ["fill", count, data] => on_one_thread(fill::fill(count.parse()?, Path::new(data))),
        _ => bail!("usage: object_bench matrix|case|names|memory|fill ..."),
    }
}

/// The matrix. `servers` has one server a line, ours first; `seconds` is how long a case lasts at least.
async fn matrix(servers: &Path, folder: &Path, seconds: f64, levels: &[usize]) -> Result<()> {
    let servers = read(servers)?;
    let floors = Floors::measure(folder)?;
    floors.print();
    for server in &servers {
        Connection::bucket(server).await.with_context(|| server.name.clone())?;
    }
    let mut stocks: Vec<Stock<'_>> = servers.iter().map(Stock::new).collect();
    let mut seen = Seen::default();
    for (size, label) in SIZES {
        head(label);
        for &clients in levels {
            for put in [true, false] {
                for stock in &mut stocks {
                    let case = Case { put, size, clients, seconds, cold: false };
                    let outcome = row(stock, &case).await;
                    seen.note(stock, &case, outcome);
                }
            }
        }
        if size == LARGE {
            for stock in &mut stocks {
                let case = Case { put: false, size, clients: 1, seconds, cold: true };
                let outcome = row(stock, &case).await;
                seen.note(stock, &case, outcome);
            }
        }
        for stock in &mut stocks {
            stock.empty().await;
        }
    }
    seen.verdicts(&floors, levels);
    println!("\npages of 1,000 names, one client, {NAMES} names");
    for stock in &mut stocks {
        let name = stock.server.name.clone();
        match stock.names(NAMES).await {
            Ok(()) => match pages::walk(stock.server).await {
                Ok(walked) => println!("{name:<18} {}", walked.words()),
                Err(error) => println!("{name:<18} fails: {error:#}"),
            },
            Err(error) => println!("{name:<18} fails: {error:#}"),
        }
        stock.empty().await;
    }
    Ok(())
}

/// How fast all names of the first server's bucket are listed.
async fn names(servers: &Path) -> Result<()> {
    let servers = read(servers)?;
    for round in ["first", "again"] {
        let walked = pages::walk(&servers[0]).await?;
        let peak = process::peak_mb(servers[0].pid)?;
        println!("{:<18} {round:<6} {}, {peak:.0} MB at most (aim 200000)", servers[0].name, walked.words());
    }
    Ok(())
}

/// What the first server takes: idle, and while many clients move large objects.
async fn memory(servers: &Path, clients: usize) -> Result<()> {
    let servers = read(servers)?;
    let server = &servers[0];
    Connection::bucket(server).await?;
    println!("{:<18} idle: {} (aim 30)", server.name, process::memory_words(server.pid)?);
    let mut stock = Stock::new(server);
    for put in [true, false] {
        let case = Case { put, size: LARGE, clients, seconds: 1.0, cold: false };
        let outcome = stock.run(&case).await?;
        let what = if put { "PUT" } else { "GET" };
        println!(
            "{:<18} {clients} clients, {what} of 64 MiB: {:.0} MB at most (aim 150), {:.0} MB/s",
            server.name,
            outcome.peak_mb,
            outcome.megabytes()
        );
    }
    stock.empty().await;
    Ok(())
}

/// A case alone. Gets read what it puts before, outside the clock.
async fn one(servers: &Path, case: Case) -> Result<()> {
    let servers = read(servers)?;
    Connection::bucket(&servers[0]).await?;
    let mut stock = Stock::new(&servers[0]);
    if !case.put {
        stock.run(&Case { put: true, seconds: 1.0, clients: case.clients.min(16), ..case }).await?;
    }
    head("");
    row(&mut stock, &case).await;
    stock.empty().await;
    Ok(())
}

fn read(servers: &Path) -> Result<Vec<Server>> {
    let text = std::fs::read_to_string(servers)?;
    let servers = text.lines().map(Server::parse).collect::<Result<Vec<_>>>()?;
    ensure!(!servers.is_empty(), "there is no server to measure");
    Ok(servers)
}

fn on_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn head(label: &str) {
    println!(
        "\n{label:<18} {:<9} {:>7} {:>9} {:>9} {:>10} {:>10} {:>10} {:>8}",
        "", "clients", "ops/s", "MB/s", "p50 ms", "p99 ms", "CPU ms/op", "peak MB"
    );
}

async fn row(stock: &mut Stock<'_>, case: &Case) -> Option<Outcome> {
    let what = match (case.put, case.cold) {
        (true, _) => "PUT",
        (false, false) => "GET",
        (false, true) => "GET cold",
    };
    let (name, clients) = (stock.server.name.clone(), case.clients);
    match stock.run(case).await {
        Ok(outcome) => {
            println!(
                "{name:<18} {what:<9} {clients:>7} {:>9.0} {:>9.0} {:>10.2} {:>10.2} {:>10.3} {:>8.0}",
                outcome.rate(),
                outcome.megabytes(),
                outcome.times.at(0.5),
                outcome.times.at(0.99),
                outcome.cpu_ms(),
                outcome.peak_mb
            );
            Some(outcome)
        }
        Err(error) => {
            println!("{name:<18} {what:<9} {clients:>7} fails: {error:#}");
            None
        }
    }
}

/// What the aims are about.
#[derive(Default)]
struct Seen(Vec<(String, bool, usize, usize, bool, f64, f64)>);

impl Seen {
    fn note(&mut self, stock: &Stock<'_>, case: &Case, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            let name = stock.server.name.clone();
            let (rate, megabytes) = (outcome.rate(), outcome.megabytes());
            self.0.push((name, case.put, case.size, case.clients, case.cold, rate, megabytes));
        }
    }

    fn find(&self, name: &str, put: bool, size: usize, clients: usize, cold: bool) -> Option<(f64, f64)> {
        let mut all = self.0.iter();
        let key = (name, put, size, clients, cold);
        all.find(|seen| (seen.0.as_str(), seen.1, seen.2, seen.3, seen.4) == key).map(|seen| (seen.5, seen.6))
    }

    fn verdicts(&self, floors: &Floors, levels: &[usize]) {
        let ours = self.0.first().map_or("", |seen| seen.0.as_str());
        println!("\naims");
        let least = |what: String, value: Option<f64>, aim: f64| match value {
            Some(value) if value >= aim => println!("  reached  {what}: {value:.2} (aim {aim})"),
            Some(value) => println!("  MISSED   {what}: {value:.2} (aim {aim})"),
            None => println!("  unknown  {what}"),
        };
        for &clients in levels {
            let large = |put, cold| self.find(ours, put, LARGE, clients, cold).map(|seen| seen.1);
            let over = |value: Option<f64>, floor: f64| value.map(|value| value / floor);
            if clients == 1 {
                let read = over(large(false, true), floors.read_cold);
                least("64 MiB GET over a plain read, not in memory, 1 at once".into(), read, 0.8);
            }
            let read = over(large(false, false), floors.read_warm);
            least(format!("64 MiB GET over a plain read, in memory, {clients} at once"), read, 0.8);
            let write = over(large(true, false), floors.write);
            least(format!("64 MiB PUT over write and fsync, {clients} at once"), write, 0.8);
            let small = |name, put| self.find(name, put, 4 << 10, clients, false).map(|seen| seen.0);
            let ratio = |put| small(ours, put).zip(small("garage", put)).map(|(ours, theirs)| ours / theirs);
            least(format!("4 KiB PUT over Garage without fsync, {clients} at once"), ratio(true), 1.0);
            least(format!("4 KiB GET over Garage, {clients} at once"), ratio(false), 2.0);
        }
    }
}
