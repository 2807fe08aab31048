//! The child's side of the exchange: take desired sets as they come, report
//! what is as soon as it changes, answer what the parent asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use link::uplink::Rarely;
use link::{ByteStream, Down, Uplink};
use model::exchange::{Ask, Call, Revision};
use model::{Desired, ErrorKind, Facts, Observed, Result};
use tokio::sync::Semaphore;
use work::Wake;

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// The longest pause after a set that could not be kept, as on a full disk; questions wait for it.
const TAKE_RETRY_MAX: Duration = Duration::from_secs(1);
/// The pause after a report for each instance in it: those that change meanwhile go together. A few need none.
const REPORT_PAUSE: Duration = Duration::from_micros(100);
const REPORT_PAUSE_MIN: Duration = Duration::from_millis(1);
const REPORT_PAUSE_MAX: Duration = Duration::from_millis(50);
/// That a report is too large is said once, and then this often.
const TOO_LARGE_SAID_EVERY: Duration = Duration::from_secs(60);
/// Questions answered at once; more wait.
const ANSWERS_MAX: usize = 256;

/// What the loop needs of whoever is the child: a zone or a node.
pub trait ChildOwner: Send + Sync + 'static {
    fn have(&self) -> Option<Revision>;
    /// Keeps the set on disk and makes it known; an error means it was not taken.
    fn take(&self, desired: Desired) -> BoxFuture<'_, Result<()>>;
    /// The parent removed this child and gave away what it held: drops all of it, kept on disk.
    fn removed(&self) -> BoxFuture<'_, Result<()>>;
    /// What the parent, which acknowledged `acked`, does not know: one page of it.
    fn report(&self, acked: Option<Revision>) -> Option<Observed>;
    /// The parent acknowledged a report with these facts.
    fn told(&self, facts: Facts);
    /// The parent, or the way to it, does not take pages of this size: halves them and says how large they are now;
    /// nothing when they cannot be smaller.
    fn page_halve(&self) -> Option<usize>;
    /// All there was to report got through: pages are as large as usual again.
    fn page_restore(&self);
    /// Woken when there may be something to report.
    fn news(&self) -> Wake;
    fn answer(&self, ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()>;
}

/// Runs until dropped.
pub async fn run(owner: Arc<dyn ChildOwner>, uplink: Arc<dyn Uplink>) {
    uplink.set_have(owner.have());
    let resend = Arc::new(AtomicBool::new(false));
    tokio::join!(receive(owner.clone(), uplink.clone(), resend.clone()), send(owner, uplink, resend));
}

async fn receive(owner: Arc<dyn ChildOwner>, uplink: Arc<dyn Uplink>, resend: Arc<AtomicBool>) {
    let answers = Arc::new(Semaphore::new(ANSWERS_MAX));
    let mut epoch = None;
    let mut retry = RETRY_FIRST;
    loop {
        match uplink.next().await {
            Down::Desired(desired) => {
                // A new life of the parent knows only what was kept before the last one ended.
                if epoch.replace(desired.at.epoch) != Some(desired.at.epoch) {
                    resend.store(true, Ordering::SeqCst);
                    owner.news().wake();
                }
                match owner.take(desired).await {
                    Ok(()) => retry = RETRY_FIRST,
                    Err(error) => {
                        tracing::warn!(%error, "a desired set was not taken");
                        tokio::time::sleep(retry).await;
                        retry = (retry * 2).min(TAKE_RETRY_MAX);
                    }
                }
                uplink.set_have(owner.have());
            }
            Down::Call(call) => answer(&owner, &uplink, &answers, call),
            Down::Up => {
                // The other end may have lost what it knew of us.
                resend.store(true, Ordering::SeqCst);
                owner.news().wake();
            }
            Down::Removed => {
                while let Err(error) = owner.removed().await {
                    tracing::error!(%error, "what was given away could not be dropped yet");
                    tokio::time::sleep(RETRY_MAX).await;
                }
                uplink.set_have(owner.have());
            }
            Down::Lost => tracing::info!("the parent is out of reach; what runs goes on"),
        }
    }
}

fn answer(owner: &Arc<dyn ChildOwner>, uplink: &Arc<dyn Uplink>, answers: &Arc<Semaphore>, call: Call) {
    let (owner, uplink, answers) = (owner.clone(), uplink.clone(), answers.clone());
    tokio::spawn(async move {
        let _permit = answers.acquire_owned().await;
        match uplink.open_stream(&call.stream).await {
            Ok(stream) => owner.answer(call.ask, stream).await,
            Err(error) => tracing::warn!(%error, "a question of the parent could not be answered"),
        }
    });
}

async fn send(owner: Arc<dyn ChildOwner>, uplink: Arc<dyn Uplink>, resend: Arc<AtomicBool>) {
    let news = owner.news();
    let mut acked = None;
    let mut retry = RETRY_FIRST;
    let mut said = Rarely::new(TOO_LARGE_SAID_EVERY);
    let mut halved = false;
    loop {
        if resend.swap(false, Ordering::SeqCst) {
            acked = None;
        }
        let Some(observed) = owner.report(acked) else {
            news.wait().await;
            continue;
        };
        let facts = observed.facts.clone();
        let pause = REPORT_PAUSE * u32::try_from(observed.set.upserts.len()).unwrap_or(u32::MAX);
        let more = observed.set.more;
        match uplink.push(observed).await {
            Ok(ack) => {
                acked = ack.have;
                owner.told(facts);
                retry = RETRY_FIRST;
                if halved && !more {
                    owner.page_restore();
                    halved = false;
                }
                if pause >= REPORT_PAUSE_MIN && !more {
                    tokio::time::sleep(pause.min(REPORT_PAUSE_MAX)).await;
                }
            }
            Err(error) if error.kind == ErrorKind::TooLarge => {
                halved = true;
                let smaller = owner.page_halve();
                if said.due() {
                    match smaller {
                        Some(bytes) => {
                            tracing::warn!(%error, bytes, "a report is too large; pages are smaller now")
                        }
                        None => {
                            tracing::warn!(%error, "a report is too large, and cannot be cut into smaller ones")
                        }
                    }
                }
                if smaller.is_none() {
                    tokio::time::sleep(RETRY_MAX).await;
                }
            }
            Err(error) => {
                // Refused for what it says, not for the way: somebody must do something about it.
                match error.kind == ErrorKind::Conflict && said.due() {
                    true => tracing::error!(%error, "the parent refuses what is reported"),
                    false => tracing::debug!(%error, "the report did not get through"),
                }
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use model::exchange::Ack;
    use model::{Digest, Error, Generation, InstanceId, ObservedInstance, Phase};
    use tokio::io::AsyncWrite;

    use super::*;
    use crate::{Child, Inbox};

    /// A way that takes so many instances at once and no more.
    struct Narrow {
        most: usize,
        taken: Mutex<Inbox<ObservedInstance>>,
        refused: Mutex<usize>,
    }

    impl Uplink for Narrow {
        fn push(&self, observed: Observed) -> BoxFuture<'_, Result<Ack>> {
            let answer = if observed.set.upserts.len() > self.most {
                *self.refused.lock().expect("not poisoned") += 1;
                Err(Error::new(ErrorKind::TooLarge, "the message is larger than it may be"))
            } else {
                let mut taken = self.taken.lock().expect("not poisoned");
                let applied = taken.apply(observed.set);
                applied.map(|_| Ack { have: taken.have() }).map_err(|_| Error::conflict("not understood"))
            };
            async { answer }.boxed()
        }
        fn set_have(&self, _: Option<Revision>) {}
        fn next(&self) -> BoxFuture<'_, Down> {
            std::future::pending().boxed()
        }
        fn pulse_from(&self, _: link::PulseSource) {}
        fn rtt(&self) -> Option<Duration> {
            None
        }
        fn open_stream<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ByteStream>> {
            async { Err(Error::unavailable("there are none")) }.boxed()
        }
        fn blob<'a>(
            &'a self,
            _: &'a Digest,
            _: &'a mut (dyn AsyncWrite + Send + Unpin),
        ) -> BoxFuture<'a, Result<u64>> {
            async { Err(Error::unavailable("there are none")) }.boxed()
        }
    }

    struct Owner(Mutex<Child>, Wake);

    impl Owner {
        fn child(&self) -> std::sync::MutexGuard<'_, Child> {
            self.0.lock().expect("not poisoned")
        }
    }

    impl ChildOwner for Owner {
        fn have(&self) -> Option<Revision> {
            None
        }
        fn take(&self, _: Desired) -> BoxFuture<'_, Result<()>> {
            async { Ok(()) }.boxed()
        }
        fn removed(&self) -> BoxFuture<'_, Result<()>> {
            async { Ok(()) }.boxed()
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
            self.1.clone()
        }
        fn answer(&self, _: Ask, _: ByteStream) -> BoxFuture<'static, ()> {
            async {}.boxed()
        }
    }

    #[tokio::test]
    async fn a_report_that_is_too_large_goes_in_smaller_pages() {
        const INSTANCES: usize = 1_000;
        let mut child = Child::new(1, Facts::new("n1".parse().expect("a name"), "1"), Inbox::default());
        for number in 0..INSTANCES {
            let id = InstanceId::from_random(number as u128);
            child.observe(ObservedInstance::new(id, Generation::default(), Phase::Running));
        }
        let owner = Arc::new(Owner(Mutex::new(child), Wake::new()));
        let way = Arc::new(Narrow { most: 60, taken: Mutex::default(), refused: Mutex::default() });
        let sending = tokio::spawn(run(owner, way.clone()));
        let taken = || way.taken.lock().expect("not poisoned").iter().count();
        for _ in 0..500 {
            if taken() == INSTANCES {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        sending.abort();
        assert_eq!(taken(), INSTANCES);
        assert!(*way.refused.lock().expect("not poisoned") > 0, "it was too large at first");
    }
}
