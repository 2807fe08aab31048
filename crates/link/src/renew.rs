//! Renewal: a certificate of which a third is left is replaced by a new one, with a new key.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::{Error, ErrorKind, Result, Timestamp};
use work::{Clock, SystemClock};

use crate::ca::Issuer;
use crate::enroll::certify;
use crate::limits::{RENEW_EXPIRED, RENEW_LEFT_PART, RENEW_LOOK_MAX, RENEW_LOOK_MIN, RENEW_RETRY_PART};
use crate::wallet::Wallet;

/// Keeps one wallet fresh.
pub struct Renewal {
    pub wallet: Wallet,
    pub issuer: Arc<dyn Issuer>,
    /// Names and addresses of a listener's certificate.
    pub names: Vec<String>,
    /// Where a child keeps its credentials; a listener's are made anew with every start.
    pub dir: Option<PathBuf>,
}

impl Renewal {
    /// Looks now and then, until dropped.
    pub async fn run(self) {
        loop {
            let pause = match self.step(SystemClock.now()).await {
                Ok(pause) => pause,
                Err(error) => {
                    let now = SystemClock.now();
                    let over = self.wallet.until().is_ok_and(|until| until <= now);
                    let identity = self.wallet.identity();
                    if over {
                        tracing::error!(%identity, %error, "the certificate has expired: join again with a new token");
                    } else {
                        tracing::warn!(%identity, %error, "a certificate was not renewed");
                    }
                    retry_in(self.wallet.until(), now)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews when it is time; says when to look again.
    async fn step(&self, now: Timestamp) -> Result<Duration> {
        let (from, until) = self.wallet.credentials().validity()?;
        let due = due_at(from, until);
        // One that only begins in the future was made under a wrong clock, and nobody believes it now.
        if from <= now && now < due {
            return Ok(look_in(due, now));
        }
        self.renew().await?;
        let (from, until) = self.wallet.credentials().validity()?;
        tracing::info!(identity = %self.wallet.identity(), %until, "certificate renewed");
        Ok(look_in(due_at(from, until), now))
    }

    /// The new credentials are on disk before they are used.
    async fn renew(&self) -> Result<()> {
        let old = self.wallet.credentials();
        let mut new = certify(self.issuer.as_ref(), old.identity.clone(), self.names.clone()).await?;
        new.parents.clone_from(&old.parents);
        if new.ca != old.ca {
            return Err(Error::new(ErrorKind::Unauthenticated, "the new certificate is of another CA"));
        }
        if let Some(dir) = &self.dir {
            new.save(dir)?;
        }
        self.wallet.replace(new)
    }
}

fn due_at(from: Timestamp, until: Timestamp) -> Timestamp {
    until.plus_ms(-(until.ms_since(from).max(0) / RENEW_LEFT_PART))
}

fn look_in(due: Timestamp, now: Timestamp) -> Duration {
    let ms = u64::try_from(due.ms_since(now)).unwrap_or(0);
    Duration::from_millis(ms).clamp(RENEW_LOOK_MIN, RENEW_LOOK_MAX)
}

/// The nearer the end, the sooner it is tried again. After it only a clock that is put right can help.
fn retry_in(until: Result<Timestamp>, now: Timestamp) -> Duration {
    let left = until.map_or(0, |until| until.ms_since(now));
    if left <= 0 {
        return RENEW_EXPIRED;
    }
    let ms = u64::try_from(left / RENEW_RETRY_PART).unwrap_or(0);
    Duration::from_millis(ms).clamp(RENEW_LOOK_MIN, RENEW_LOOK_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that begins in an hour was made under a clock that was ahead, and is replaced at once.
    #[tokio::test]
    async fn one_that_is_not_good_yet_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let ca = Arc::new(crate::Ca::create_or_load(dir.path()).expect("a CA"));
        let identity = crate::Identity::new(crate::Kind::Node, "n-1").under("z-1");
        let old = ca.issue_fresh(identity, &[], crate::limits::CERT_VALID).expect("issued");
        let (from, _) = old.validity().expect("read");
        let (wallet, issuer) = (Wallet::from(&old), ca.clone());
        let renewal = Renewal { wallet: wallet.clone(), issuer, names: Vec::new(), dir: None };
        renewal.step(from.plus_ms(1_000)).await.expect("looks");
        assert_eq!(wallet.credentials().cert, old.cert, "it is good");
        renewal.step(from.plus_ms(-1_000)).await.expect("renews");
        assert_ne!(wallet.credentials().cert, old.cert);
    }

    #[test]
    fn a_third_before_the_end_it_is_time() {
        let (from, until) = (Timestamp(0), Timestamp(0).plus_ms(90_000_000));
        let due = due_at(from, until);
        assert_eq!(due, Timestamp(0).plus_ms(60_000_000));
        assert_eq!(look_in(due, Timestamp(0)), RENEW_LOOK_MAX);
        assert_eq!(look_in(due, due.plus_ms(-5_000)), Duration::from_secs(5));
        assert_eq!(look_in(due, until), RENEW_LOOK_MIN, "a clock that jumped ahead");
        assert_eq!(retry_in(Ok(until), until.plus_ms(-100_000)), Duration::from_secs(10));
        assert_eq!(retry_in(Ok(until), until.plus_ms(-1)), RENEW_LOOK_MIN);
        assert_eq!(retry_in(Ok(until), until.plus_ms(1)), RENEW_EXPIRED);
    }
}
