//! Whose turn it is to take a processor for seconds: laying out clusters and checking catalogues.
//!
//! A tenant has one turn at a time, so that however much it asks for, another one is left to the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::{Error, Result, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns at the same time; each may take a processor and much memory.
const TURNS: usize = 2;
/// Those of one tenant that wait.
const WAITING_MAX: usize = 16;

static ALL: Semaphore = Semaphore::const_new(TURNS);
static OWN: Mutex<BTreeMap<TenantId, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

/// The turn of a tenant, and one of those that may wait for it.
async fn own(tenant: &TenantId) -> Result<OwnedSemaphorePermit> {
    let gate = {
        let mut all = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Whom nobody waits for any more has a turn again when it asks.
        all.retain(|_, gate| Arc::strong_count(gate) > 1);
        Arc::clone(all.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
    };
    // Each that waits or works holds the gate, and the map does.
    if Arc::strong_count(&gate) > WAITING_MAX + 2 {
        return Err(Error::unavailable("this tenant asks for more layouts and checks than can be made")
            .hint("try again when some of them are done"));
    }
    gate.acquire_owned().await.map_err(|_| Error::unavailable("plans are no longer made"))
}

/// Does it in a thread of its own when it is its tenant's turn. Who asked may leave; the turn ends with the work.
pub async fn take<T: Send + 'static>(
    tenant: &TenantId,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let own = own(tenant).await?;
    let turn = ALL.acquire().await.map_err(|_| Error::unavailable("plans are no longer made"))?;
    tokio::task::spawn_blocking(move || (work(), drop((own, turn))).0)
        .await
        .map_err(|error| Error::internal("the planner ended early").because(error))?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tenant_that_asks_for_much_waits_for_itself() {
        let tenant = |number| TenantId::from_random(number);
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let mut greedy = tokio::task::JoinSet::new();
        for _ in 0..=WAITING_MAX {
            let wait = Arc::clone(&wait);
            let work = move || {
                let told = wait.lock().unwrap_or_else(PoisonError::into_inner);
                told.recv_timeout(Duration::from_secs(60)).map_err(|_| Error::internal("nobody said go"))
            };
            greedy.spawn(async move { take(&tenant(1), work).await });
        }
        let held =
            || OWN.lock().unwrap_or_else(PoisonError::into_inner).get(&tenant(1)).map(Arc::strong_count);
        while held() != Some(WAITING_MAX + 2) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // One works and the others wait for it; one more is too much, and another tenant goes on.
        let too_many = take(&tenant(1), || Ok(())).await.expect_err("as many wait as may");
        assert!(too_many.message.contains("more layouts"), "{too_many}");
        assert_eq!(take(&tenant(2), || Ok(7)).await.ok(), Some(7));
        (0..=WAITING_MAX).for_each(|_| go.send(()).expect("they wait"));
        while let Some(done) = greedy.join_next().await {
            done.expect("no panic").expect("its turn came");
        }
        assert_eq!(take(&tenant(1), || Ok(8)).await.ok(), Some(8));
    }
}
