//! What the API needs of the tree: questions carried down to a zone, and tokens for newcomers.

use futures::future::BoxFuture;
use link::{ByteStream, EnrollToken, Kind, TokenBook};
use model::exchange::{Ask, NodeReport};
use model::{ChildId, Error, InstanceId, Result, Timestamp, ZoneId};

use super::{StoreBook, TreeService};
use crate::port::{Enrolled, Tree};

/// The answer to an order is an empty object.
const ANSWER_MAX: usize = 1024;
/// How long a token for joining can be used.
const TOKEN_VALID_MS: i64 = 60 * 60 * 1000;

impl Tree for TreeService {
    fn ask(&self, zone: &ZoneId, ask: Ask) -> BoxFuture<'_, Result<ByteStream>> {
        let child = ChildId::from(zone);
        Box::pin(async move { self.ask_anywhere(&child, ask).await })
    }

    fn wake(&self) {
        self.0.wake.wake();
    }

    fn zone_live(&self, zone: &ZoneId) -> bool {
        match self.seat() {
            Some(_) => self.core().zone_alive(&ChildId::from(zone)),
            None => self.life_told(zone).is_some_and(|life| life.live),
        }
    }

    fn zone_last_seen(&self, zone: &ZoneId) -> Option<Timestamp> {
        match self.seat() {
            Some(_) => self.core().zone_last_seen(&ChildId::from(zone)).map(|at| self.wall(at)),
            None => self.life_told(zone)?.last_seen,
        }
    }

    fn zone_report(&self, zone: &ZoneId) -> Option<NodeReport> {
        match self.seat() {
            Some(_) => {
                let mut report = self.core().zones().into_iter().find(|report| report.id == zone.as_str())?;
                report.last_seen = self.wall(report.last_seen);
                self.vitals().fill(&mut report);
                Some(report)
            }
            None => self.life_told(zone)?.report,
        }
    }

    fn lease_ms(&self) -> i64 {
        self.0.config.leases.lease_ms
    }

    fn certificates(&self) -> Vec<(String, Timestamp)> {
        self.0.certificates.get().cloned().unwrap_or_default()
    }

    fn tell_again(&self, instance: &InstanceId) -> bool {
        let told = self.core().tell_again(instance, self.steady());
        self.0.wake.wake();
        told
    }

    fn take_off(&self, instance: &InstanceId, why: &str) -> bool {
        let taken = self.core().take_off(instance, why, self.steady());
        self.0.wake.wake();
        taken
    }

    fn enroll(&self, role: api::EnrolRole, zone: Option<ZoneId>) -> BoxFuture<'_, Result<Enrolled>> {
        Box::pin(async move {
            match (role, zone) {
                (api::EnrolRole::Zone, _) => self.zone_token(None).await,
                (api::EnrolRole::Node, Some(zone)) => self.node_token(&zone).await,
                _ => Err(Error::unavailable("this root takes no newcomers of that kind yet")),
            }
        })
    }
}

impl TreeService {
    /// A one-time token with which a zone, of this name if one is given, may join.
    pub async fn zone_token(&self, name: Option<model::Name>) -> Result<Enrolled> {
        let ca = self.0.ca.get().ok_or_else(|| Error::unavailable("this root takes no zones"))?;
        let expires_at = self.now().plus_ms(TOKEN_VALID_MS);
        let (token, record) = EnrollToken::make(*ca, Kind::Zone, name, expires_at);
        StoreBook::new(self.clone()).add(record).await?;
        Ok(Enrolled { token: token.to_string(), expires_at })
    }

    /// A one-time token with which a node may join a zone: made here, where the CA is, and told to the zone.
    async fn node_token(&self, zone: &ZoneId) -> Result<Enrolled> {
        let ca = self.0.ca.get().ok_or_else(|| Error::unavailable("this root takes no nodes"))?;
        let expires_at = self.now().plus_ms(TOKEN_VALID_MS);
        let (token, record) = EnrollToken::make(*ca, Kind::Node, None, expires_at);
        let ask = Ask::Admit { digest: record.digest, expires_at };
        let mut answer = self.ask_anywhere(&ChildId::from(zone), ask).await?;
        answer.read_all(ANSWER_MAX).await?;
        Ok(Enrolled { token: token.to_string(), expires_at })
    }
}
