//! Healing: a loop that looks at what does not get on or belongs to nothing, and does something
//! about it. Every act is a line of the history.
//!
//! [`stuck`], [`orphan`] and [`place`] decide without I/O; this file performs. How the platform is shows `ops::health`.

pub mod orphan;
pub mod place;
pub mod stuck;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Phase, Result, Timestamp};
use store::Txn;

use self::orphan::Orphans;
use self::place::{Now, Places};
use self::stuck::{Act, Heal, Stuck, Watcher};
use crate::cloud::{Cloud, Shared};
use crate::duty;
use crate::history::{self, Actor, Line};
use crate::ops::health;
use crate::state::Snapshot;
use crate::tables::kind;

const HEAL_EVERY: Duration = Duration::from_secs(5);
/// The lights of the metrics are looked at this often.
const LIGHTS_EVERY: Duration = Duration::from_secs(30);

/// What the loop remembers from one round to the next.
#[derive(Default)]
pub struct Healer {
    watcher: Mutex<Watcher>,
    orphans: Mutex<Orphans>,
    places: Mutex<Places>,
    healed: AtomicU64,
    orphans_removed: AtomicU64,
    /// When there were some last; 0 if never.
    orphaned_at: AtomicI64,
}

impl Healer {
    /// What is stuck, as of the last round; `now` is of the steady clock.
    pub fn stuck(&self, now: Timestamp) -> Vec<Stuck> {
        locked(&self.watcher).stuck(now)
    }

    /// When orphans were last removed, by the wall clock.
    pub fn orphaned_at(&self) -> Option<Timestamp> {
        Some(self.orphaned_at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Timestamp)
    }

    /// How many acts there were since the start, and how many orphans went.
    pub fn counts(&self) -> (u64, u64) {
        (self.healed.load(Ordering::Relaxed), self.orphans_removed.load(Ordering::Relaxed))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs for ever.
pub async fn run(cloud: Shared) {
    let wake = work::Wake::new();
    let lights = async {
        loop {
            tokio::time::sleep(LIGHTS_EVERY).await;
            cloud.metrics.platform_set(&health::report(&cloud).await);
        }
    };
    let healing = work::drive("heal", wake, HEAL_EVERY, || async { heal(&cloud, cloud.steady()).await });
    tokio::join!(lights, healing);
}

/// One round; `now` is of the steady clock.
pub async fn heal(cloud: &Cloud, now: Timestamp) -> Result<()> {
    let snapshot = cloud.state.snapshot();
    let heals = locked(&cloud.healer.watcher).look(&snapshot, now, |zone| cloud.tree.zone_live(zone));
    // Every server sees what is stuck; the one that holds the tree does something about it.
    if cloud.duties.held(duty::TREE).is_none() {
        *locked(&cloud.healer.places) = Places::default();
        return Ok(());
    }
    places_tell(cloud, &snapshot).await?;
    for heal in heals {
        heal_one(cloud, &snapshot, heal).await?;
    }
    orphans_remove(cloud, &snapshot).await
}

/// Leaves lines in the history for zones that came and went.
async fn places_tell(cloud: &Cloud, snapshot: &Snapshot) -> Result<()> {
    let zones = snapshot.zones.iter().map(|(id, zone)| {
        let nodes = zone.facts.as_ref().map(|facts| facts.nodes);
        (id.clone(), Now { live: cloud.tree.zone_live(id), nodes })
    });
    let lines = locked(&cloud.healer.places).look(zones);
    if lines.is_empty() {
        return Ok(());
    }
    let tenant = snapshot.operators();
    let mut txn = Txn::new();
    for (id, what, message) in lines {
        let name = snapshot.zone_name(&id).map(|name| name.to_string()).unwrap_or_default();
        let line =
            Line { tenant: tenant.as_ref(), what, kind: "zone", id: id.as_str(), name: &name, message };
        txn = history::journal(txn, cloud.now(), &Actor::root(), line);
    }
    cloud.state.commit(txn).await.map(drop)
}

async fn heal_one(cloud: &Cloud, snapshot: &Snapshot, heal: Heal) -> Result<()> {
    let Some(record) = snapshot.instances.get(&heal.id) else { return Ok(()) };
    let message = sentence(&heal);
    let done = match heal.act {
        Act::Tell => cloud.tree.tell_again(&heal.id),
        Act::TakeOff => cloud.tree.take_off(&heal.id, &message),
    };
    if !done {
        return Ok(());
    }
    cloud.healer.healed.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(instance = %record.name, id = %heal.id, "{message}");
    let line = Line {
        tenant: Some(&record.tenant),
        what: "instance.heal",
        kind: "instance",
        id: record.id.as_str(),
        name: record.name.as_str(),
        message,
    };
    cloud.state.commit(history::journal(Txn::new(), cloud.now(), &Actor::root(), line)).await.map(drop)
}

fn sentence(heal: &Heal) -> String {
    let (phase, seconds) = (heal.phase, heal.for_ms / 1_000);
    match (heal.act, phase) {
        (Act::Tell, _) => format!("{phase} for {seconds} s; its zone is told again"),
        (Act::TakeOff, Phase::Deleting) => {
            format!("{phase} for {seconds} s; taken off its zone, which drops what is not its own")
        }
        (Act::TakeOff, _) => format!("{phase} for {seconds} s; taken off its zone and placed again"),
    }
}

/// Removes what is said of instances that are no longer there.
async fn orphans_remove(cloud: &Cloud, snapshot: &Snapshot) -> Result<()> {
    let orphans = locked(&cloud.healer.orphans).look(snapshot);
    if orphans.is_empty() {
        return Ok(());
    }
    let mut txn = Txn::new();
    for id in &orphans {
        let line = Line {
            tenant: None,
            what: "instance.heal",
            kind: "instance",
            id: id.as_str(),
            name: id.as_str(),
            message: "its status was left without an instance; removed".to_owned(),
        };
        txn = txn.delete(kind::STATUS, id, None);
        txn = history::journal(txn, cloud.now(), &Actor::root(), line);
    }
    cloud.state.commit(txn).await?;
    cloud.healer.orphans_removed.fetch_add(orphans.len() as u64, Ordering::Relaxed);
    cloud.healer.orphaned_at.store(cloud.now().0, Ordering::Relaxed);
    Ok(())
}
