//! Many creates at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::{Client, InstanceCreate, ListQuery};
use futures::future::BoxFuture;
use model::Cpu;

use crate::spec;
use crate::times::Times;

const CONCURRENCY: usize = 32;
/// A zone that is not there: then the API is measured and not a thousand containers.
const NOWHERE: &str = "nowhere";
/// So that a thousand find room on one machine that gives its cores away a hundred times over.
const SMALL: Cpu = Cpu(100);
const LIMIT: Duration = Duration::from_secs(600);
const PAGE: usize = 1000;

/// Creates that wait for a zone that never comes, and their deletion.
pub async fn burst(client: &Client, count: usize) -> Result<()> {
    create(client, count, Some(NOWHERE)).await?;
    delete(client, count).await
}

/// Creates that are placed and started.
pub async fn fill(client: &Client, count: usize) -> Result<()> {
    let since = Instant::now();
    create(client, count, None).await?;
    while phase_count(client, "running").await? < count {
        ensure!(since.elapsed() < LIMIT, "not all of {count} run after {} s", LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = since.elapsed().as_secs_f64();
    println!("  all {count} observed running after {took:.1} s: {:.0} a second", count as f64 / took);
    let since = Instant::now();
    delete(client, count).await?;
    println!("  all {count} deleted and gone after {:.1} s", since.elapsed().as_secs_f64());
    Ok(())
}

async fn create(client: &Client, count: usize, zone: Option<&'static str>) -> Result<()> {
    let since = Instant::now();
    let times = many(client, count, move |client, number| {
        Box::pin(async move {
            let mut spec = spec();
            spec.cpu = SMALL;
            spec.constraints.zone = zone.map(str::to_owned);
            let body = InstanceCreate { name: format!("burst-{number}").parse()?, spec };
            client.instance_create(&body).await?;
            Ok(())
        })
    });
    let times = Times::new(times.await?);
    let rate = count as f64 / since.elapsed().as_secs_f64();
    println!(
        "{count} creates accepted, {CONCURRENCY} at once: {rate:.0} requests a second, p50 {:.1} ms, p99 {:.1} ms",
        times.at(0.5),
        times.at(0.99)
    );
    Ok(())
}

async fn delete(client: &Client, count: usize) -> Result<()> {
    let deleted = many(client, count, |client, number| {
        Box::pin(async move {
            client.instance_delete(&format!("burst-{number}"), None).await?;
            Ok(())
        })
    });
    deleted.await?;
    let since = Instant::now();
    while !client.instance_list(&ListQuery::new().with("name", "burst-*").limit(1)).await?.items.is_empty() {
        ensure!(since.elapsed() < LIMIT, "not everything was deleted after {} s", LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn phase_count(client: &Client, phase: &str) -> Result<usize> {
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let mut query = ListQuery::new().with("phase", phase).limit(PAGE);
        if let Some(after) = &after {
            query = query.after(after);
        }
        let page = client.instance_list(&query).await?;
        count += page.items.len();
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(count),
        }
    }
}

/// Runs `work` for every number below `count`, some at once, and gives how long each took.
async fn many<F>(client: &Client, count: usize, work: F) -> Result<Vec<Duration>>
where
    F: Fn(Client, usize) -> BoxFuture<'static, Result<()>> + Clone + Send + 'static,
{
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (client, next, work) = (client.clone(), next.clone(), work.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return anyhow::Ok(times);
                }
                let since = Instant::now();
                work(client.clone(), number).await?;
                times.push(since.elapsed());
            }
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    Ok(times)
}
