//! Enrolment tokens in the store: each is used by one, and the zone or provisioner that used it
//! is known in the same transaction.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use link::enroll::token_refused;
use link::{Joiner, Kind, TokenBook, TokenRecord};
use model::{Error, ErrorKind, ProvisionerId, Result, Timestamp, ZoneId};
use store::{Body, CommitError, Txn};

use super::TreeService;
use crate::history::{Actor, Line, journal};
use crate::tables::{ProvisionerRecord, ZoneRecord, encode, kind};

/// Refused newcomers are told of in the history this often, so that nobody fills it by trying.
const REFUSED_TOLD_EVERY_MS: i64 = 60_000;

/// Newcomers that were refused and not told of yet.
#[derive(Default)]
struct Refusals {
    told_at: Option<Timestamp>,
    untold: u64,
}

impl Refusals {
    /// How many others are told of together with this one; nothing while the last line is too young.
    fn tell(&mut self, now: Timestamp) -> Option<u64> {
        if self.told_at.is_some_and(|at| now.ms_since(at) < REFUSED_TOLD_EVERY_MS) {
            self.untold += 1;
            return None;
        }
        self.told_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[derive(Clone)]
pub struct StoreBook(TreeService, Arc<Mutex<Refusals>>);

impl StoreBook {
    pub fn new(tree: TreeService) -> Self {
        Self(tree, Arc::default())
    }

    /// Leaves a line of the history for a newcomer that was refused.
    async fn refused(&self, joiner: &Joiner, error: &Error) {
        if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Internal) {
            return;
        }
        let told = self.1.lock().unwrap_or_else(PoisonError::into_inner).tell(self.0.steady());
        let Some(others) = told else { return };
        let others = match others {
            0 => String::new(),
            others => format!("; {} before it", model::counted(others, "other")),
        };
        let (kind, name) = (joiner.identity.kind, &joiner.name);
        let tenant = self.0.0.state.snapshot().operators();
        let line = Line {
            tenant: tenant.as_ref(),
            what: "enrolment.refused",
            kind: "enrolment",
            id: &joiner.identity.id,
            name: name.as_str(),
            message: format!("a {kind} that calls itself '{name}': {}{others}", error.message),
        };
        let txn = journal(Txn::new(), joiner.at, &Actor::root(), line);
        if let Err(error) = self.0.0.state.commit(txn).await {
            tracing::debug!(%error, "a refused newcomer is not in the history");
        }
    }

    /// The token of this digest with its version, if it lets the joiner in.
    async fn look(&self, digest: &str, joiner: &Joiner) -> Result<(TokenRecord, i64)> {
        let state = &self.0.0.state;
        let record = state.store().get(kind::ENROLMENT, digest).await.map_err(Error::from)?;
        let record = record.ok_or_else(token_refused)?;
        let token: TokenRecord = record
            .body
            .read()
            .map_err(|e| Error::internal("an enrolment token cannot be read").because(e))?;
        token.check(joiner)?;
        let snapshot = state.snapshot();
        let kind = joiner.identity.kind;
        if snapshot.removed.contains_key(&joiner.identity.child_id()) {
            let text = format!("this {kind} was removed and cannot join again under its old identity");
            return Err(Error::conflict(text).hint("empty its data folder, then join with a new token"));
        }
        if token.used_by.is_none() {
            let taken = match kind {
                Kind::Zone => snapshot.zone_names.contains_key(&joiner.name),
                _ => snapshot.provisioners.values().any(|other| other.name == joiner.name),
            };
            if taken {
                return Err(name_taken(joiner));
            }
            if kind == Kind::Zone {
                self.0.hosts_join(&token, joiner)?;
            }
        }
        Ok((token, record.version))
    }

    async fn redeem_once(&self, digest: String, joiner: Joiner) -> Result<()> {
        let (token, version) = self.look(&digest, &joiner).await?;
        if token.used_by.is_some() {
            // The answer was lost; all of it is kept already.
            return Ok(());
        }
        let used = Body::of(&token.clone().used(&joiner));
        let txn = Txn::new().update(kind::ENROLMENT, &digest, version, used);
        if joiner.identity.kind == Kind::Provisioner {
            return self.provisioner_add(txn, &joiner).await;
        }
        let id: ZoneId = joiner.identity.id.parse()?;
        let (hosts, granted) = self.0.hosts_join(&token, &joiner)?;
        let zone = ZoneRecord {
            hosts,
            granted,
            id: id.clone(),
            name: joiner.name.clone(),
            enrolled_at: joiner.at,
            facts: None,
            mode: model::PlaceMode::Open,
            forced: false,
        };
        let tenant = self.0.0.state.snapshot().operators();
        let line = Line {
            tenant: tenant.as_ref(),
            what: "zone.enrol",
            kind: "zone",
            id: id.as_str(),
            name: joiner.name.as_str(),
            message: "joined with a token".to_owned(),
        };
        let txn = txn.insert(kind::ZONE, &id, None, Some(joiner.name.as_str()), encode(&zone));
        self.commit(journal(txn, joiner.at, &Actor::root(), line), &joiner).await?;
        if self.0.seat().is_some() {
            self.0.core().zone_add(&id, None, joiner.at);
        }
        Ok(())
    }

    async fn provisioner_add(&self, txn: Txn, joiner: &Joiner) -> Result<()> {
        let id: ProvisionerId = joiner.identity.id.parse()?;
        let name = joiner.name.clone();
        let tenant = self.0.0.state.snapshot().operators();
        let line = Line {
            tenant: tenant.as_ref(),
            what: "provisioner.enrol",
            kind: "provisioner",
            id: id.as_str(),
            name: name.as_str(),
            message: "joined with a token".to_owned(),
        };
        let row = ProvisionerRecord { id: id.clone(), name: name.clone(), enrolled_at: joiner.at };
        let txn = txn.insert(kind::PROVISIONER, &id, None, Some(name.as_str()), encode(&row));
        self.commit(journal(txn, joiner.at, &Actor::root(), line), joiner).await
    }

    async fn commit(&self, txn: Txn, joiner: &Joiner) -> Result<()> {
        match self.0.0.state.try_commit(txn).await {
            Ok(_) => Ok(()),
            Err(CommitError::NameTaken { .. }) => Err(name_taken(joiner)),
            // Somebody else used the token in the meantime.
            Err(CommitError::VersionMismatch { .. } | CommitError::Missing { .. }) => Err(token_refused()),
            Err(other) => Err(other.into()),
        }
    }
}

fn name_taken(joiner: &Joiner) -> Error {
    let (kind, name) = (joiner.identity.kind, &joiner.name);
    Error::conflict(format!("there is already a {kind} named '{name}'"))
}

impl TokenBook for StoreBook {
    fn add(&self, record: TokenRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let txn = Txn::new().insert(kind::ENROLMENT, &record.digest, None, None, Body::of(&record));
            self.0.0.state.commit(txn).await.map(drop)
        })
    }

    fn check(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let digest = digest.to_owned();
        Box::pin(async move {
            let looked = self.look(&digest, &joiner).await.map(drop);
            if let Err(error) = &looked {
                self.refused(&joiner, error).await;
            }
            looked
        })
    }

    fn redeem(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let digest = digest.to_owned();
        Box::pin(async move {
            let redeemed = self.redeem_once(digest, joiner.clone()).await;
            if let Err(error) = &redeemed {
                self.refused(&joiner, error).await;
            }
            redeemed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_newcomers_are_told_of_once_a_minute_with_their_number() {
        let (mut refusals, start) = (Refusals::default(), Timestamp(0));
        assert_eq!(refusals.tell(start), Some(0));
        for second in 1..60 {
            assert_eq!(refusals.tell(start.plus_ms(second * 1_000)), None);
        }
        assert_eq!(refusals.tell(start.plus_ms(60_000)), Some(59));
        assert_eq!(refusals.tell(start.plus_ms(120_000)), Some(0));
    }
}
