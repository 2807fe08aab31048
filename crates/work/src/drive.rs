//! The reconcile driver: run when woken, run on a tick, back off after errors.

use std::future::Future;
use std::time::Duration;

use crate::wake::Wake;

/// The longest pause after errors in a row.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Runs `step` for ever: at once, then whenever `wake` is woken and at least
/// every `tick`. After an error the next run waits, twice as long each time.
pub async fn drive<F, Fut>(name: &'static str, wake: Wake, tick: Duration, mut step: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = model::Result<()>>,
{
    let mut backoff = BACKOFF_FIRST;
    loop {
        match step().await {
            Ok(()) => {
                backoff = BACKOFF_FIRST;
                let _ = tokio::time::timeout(tick, wake.wait()).await;
            }
            Err(error) => {
                tracing::warn!(reconciler = name, %error, retry_in_ms = backoff.as_millis() as u64, "failed");
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_failed_step_is_run_again_and_a_wake_runs_it_at_once() {
        let runs = Arc::new(AtomicU32::new(0));
        let wake = Wake::new();
        let counted = runs.clone();
        let loop_task = tokio::spawn(drive("test", wake.clone(), Duration::from_secs(3600), move || {
            let run = counted.fetch_add(1, Ordering::SeqCst);
            async move { if run < 3 { Err(model::Error::internal("not yet")) } else { Ok(()) } }
        }));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 4, "three failures and one success");
        wake.wake();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 5);
        loop_task.abort();
    }
}
