//! A node on the real links: keeps the desired set, hands it to the engine,
//! reports what the engine sees, and answers questions about its instances.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use link::ByteStream;
use model::exchange::{Ask, Revision};
use model::{Desired, Digest, Error, Facts, Observed, Pulse, Result, Timestamp, Usage};
use tier::inbox::{Changed, Refused};
use tier::ledger::Ledger;
use tier::sync::ChildOwner;
use tier::{Child, kept};
use work::{Clock, SystemClock, Wake};

use crate::answer;
use crate::engine::Engine;

const LEDGER_FILE: &str = "ledger.redb";

/// A handle; cheap to clone.
#[derive(Clone)]
pub struct NodeService(Arc<Inner>);

struct Inner {
    child: Mutex<Child>,
    engine: Arc<Engine>,
    ledger: Ledger,
    /// Keeps desired sets in the order they came in.
    taking: tokio::sync::Mutex<()>,
    meter: sal::UsageMeter,
    data: PathBuf,
    news: Wake,
}

impl NodeService {
    /// Reads the ledger and sets the engine on what it says. [`NodeService::run`] sets it going.
    pub fn open(data: &std::path::Path, facts: Facts, engine: Engine) -> Result<Self> {
        std::fs::create_dir_all(data)?;
        let ledger = Ledger::open(&data.join(LEDGER_FILE))?;
        let epoch = ledger.epoch_next(SystemClock.now())?;
        let mut child = Child::new(epoch, facts, kept::read(&ledger)?);
        let unknown = engine.resume(child.assignments().cloned().collect());
        if unknown > 0 {
            tracing::warn!(
                unknown,
                "the ledger does not know of what is here; it goes on until the zone has spoken"
            );
            child.desired_ask_whole();
        }
        let inner = Inner {
            child: Mutex::new(child),
            engine: Arc::new(engine),
            ledger,
            taking: tokio::sync::Mutex::new(()),
            meter: sal::UsageMeter::default(),
            data: data.to_owned(),
            news: Wake::new(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The layers of all images that instances here are made from.
    pub fn digests(&self) -> HashSet<Digest> {
        let child = self.child();
        child
            .assignments()
            .flat_map(|held| held.image.layers.iter().map(|layer| layer.digest.clone()))
            .collect()
    }

    /// What goes up with a sign of life; whoever holds the certificate adds from when and until when it is good.
    pub fn pulse(&self, certificate: Option<(Timestamp, Timestamp)>) -> Pulse {
        let usage = self.0.meter.machine_usage(&self.0.data);
        let instances = self.0.engine.running_count();
        let (network_mended, network_trouble) = self.0.engine.network_care();
        Pulse {
            at: self.0.engine.now(),
            usage: usage.ok().map(|usage| Usage { instances, ..usage }),
            certificate_until: certificate.map(|(_, until)| until),
            certificate_from: certificate.map(|(from, _)| from),
            orphans_removed: self.0.engine.orphans_removed(),
            network_mended,
            network_trouble,
            ..Pulse::default()
        }
    }

    /// Changes what the node says of itself; the zone hears of it when it is news.
    pub fn facts_change(&self, change: impl FnOnce(&mut Facts)) {
        let mut child = self.child();
        let mut facts = child.facts().clone();
        change(&mut facts);
        if facts != *child.facts() {
            child.facts_set(facts);
            drop(child);
            self.0.news.wake();
        }
    }

    /// Follows and tends the engine, until dropped.
    pub async fn run(&self) {
        tokio::join!(self.follow(), self.0.engine.tend());
    }

    async fn follow(&self) {
        let mut changed = self.0.engine.changed();
        loop {
            changed.borrow_and_update();
            self.observe();
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn observe(&self) {
        let observed = self.0.engine.observed();
        let mut child = self.child();
        let mut news = false;
        for id in child.observed_ids() {
            if !observed.iter().any(|instance| instance.id == id) {
                news |= child.forget(&id);
            }
        }
        for instance in observed {
            news |= child.observe(instance);
        }
        drop(child);
        if news {
            self.0.news.wake();
        }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.0.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn desired_take(&self, desired: Desired) -> Result<()> {
        self.desired_change(|child| match child.desired(desired) {
            Ok(changed) => Ok(Some(changed)),
            Err(Refused::Past) => Ok(None),
            Err(Refused::NeedWhole) => Err(Error::conflict("the whole desired set is needed")),
        })
        .await
    }

    /// The zone gave away what ran here: it ends, so that nothing runs twice.
    async fn desired_drop(&self) -> Result<()> {
        let count = self.child().assignments().count();
        self.desired_change(|child| Ok(Some(child.desired_clear()))).await?;
        tracing::error!(
            count,
            "this node was removed from its zone; its instances end here. To join again: stop it, delete {}, and \
             start it with a new token from 'banyan enroll node'; the node of 'banyan up' joins anew with its next start",
            self.0.data.join("identity").display()
        );
        Ok(())
    }

    /// The set is on the disk before anything is done about it.
    async fn desired_change(&self, change: impl FnOnce(&mut Child) -> Result<Option<Changed>>) -> Result<()> {
        let _in_order = self.0.taking.lock().await;
        let writes = {
            let mut child = self.child();
            let Some(changed) = change(&mut child)? else { return Ok(()) };
            kept::writes(&child, &changed)
        };
        if let Err(error) = self.0.ledger.commit_async(writes).await {
            self.child().desired_restore(kept::read(&self.0.ledger)?);
            return Err(error);
        }
        let assignments = self.child().assignments().cloned().collect();
        self.0.engine.apply(assignments);
        Ok(())
    }
}

impl ChildOwner for NodeService {
    fn have(&self) -> Option<Revision> {
        self.child().have()
    }

    fn take(&self, desired: Desired) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.desired_take(desired))
    }

    fn removed(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.desired_drop())
    }

    fn report(&self, acked: Option<Revision>) -> Option<Observed> {
        self.child().report(acked)
    }

    fn told(&self, facts: Facts) {
        self.child().told(facts);
    }

    fn page_halve(&self) -> Option<usize> {
        self.child().page_halve()
    }

    fn page_restore(&self) {
        self.child().page_restore();
    }

    fn news(&self) -> Wake {
        self.0.news.clone()
    }

    fn answer(&self, ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()> {
        let engine = self.0.engine.clone();
        Box::pin(async move { answer::answer(&engine, ask, stream).await })
    }
}
