//! What the API needs of the tree: questions carried down to a zone, and tokens for newcomers.

use std::sync::PoisonError;

use futures::future::BoxFuture;
use link::{ByteStream, EnrollToken, Kind, TokenBook};
use model::exchange::{Ask, Doorway, NodeReport};
use model::{ChildId, Error, InstanceId, Name, Result, Timestamp, ZoneId};

use super::{StoreBook, TreeService};
use crate::peer::ZoneLife;
use crate::port::{Enrolled, Join, Tree};

/// A zone answers with where its nodes come to.
const ANSWER_MAX: usize = 64 << 10;
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
            Some(_) => self.core().zone_connected(&ChildId::from(zone)),
            None => self.life_told(zone).is_some_and(|life| life.live),
        }
    }

    fn zone_lapsed(&self, zone: &ZoneId) -> bool {
        match self.seat() {
            Some(_) => !self.core().zone_alive(&ChildId::from(zone)),
            None => {
                let leased = |life: ZoneLife| life.live || life.report.is_some_and(|report| report.alive);
                !self.life_told(zone).is_some_and(leased)
            }
        }
    }

    fn zone_twins(&self, zone: &ZoneId) -> bool {
        self.vitals().twins(&ChildId::from(zone), self.now())
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

    fn certificates(&self) -> Vec<(String, (Timestamp, Timestamp))> {
        self.0.certificates.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    fn enroll(&self, join: Join) -> BoxFuture<'_, Result<Enrolled>> {
        Box::pin(async move {
            match join {
                Join::Zone { hosts } => self.zone_token(None, hosts).await,
                Join::Node { zone } => self.node_token(&zone).await,
                Join::Provisioner => self.provisioner_token(None).await,
            }
        })
    }
}

impl TreeService {
    /// A one-time token with which a zone, of this name if one is given, may join.
    pub async fn zone_token(&self, name: Option<Name>, hosts: Vec<String>) -> Result<Enrolled> {
        self.token(Kind::Zone, name, hosts).await
    }

    /// A one-time token with which a provisioner, of this name if one is given, may join.
    pub async fn provisioner_token(&self, name: Option<Name>) -> Result<Enrolled> {
        self.token(Kind::Provisioner, name, Vec::new()).await
    }

    async fn token(&self, kind: Kind, name: Option<Name>, hosts: Vec<String>) -> Result<Enrolled> {
        let ca = self.0.ca.get().ok_or_else(|| Error::unavailable("this root lets nobody join"))?;
        let expires_at = self.now().plus_ms(TOKEN_VALID_MS);
        let (token, mut record) = EnrollToken::make(*ca, kind, name, expires_at);
        record.hosts = hosts;
        StoreBook::new(self.clone()).add(record).await?;
        let doorway = Doorway { urls: self.link_urls(), broker: None };
        Ok(Enrolled { token: token.to_string(), expires_at, doorway })
    }

    /// A one-time token with which a node may join a zone: made here, where the CA is, and told to the zone.
    async fn node_token(&self, zone: &ZoneId) -> Result<Enrolled> {
        let ca = self.0.ca.get().ok_or_else(|| Error::unavailable("this root takes no nodes"))?;
        let expires_at = self.now().plus_ms(TOKEN_VALID_MS);
        let (token, record) = EnrollToken::make(*ca, Kind::Node, None, expires_at);
        let ask = Ask::Admit { digest: record.digest, expires_at };
        let mut answer = self.ask_anywhere(&ChildId::from(zone), ask).await?;
        let doorway = serde_json::from_slice(&answer.read_all(ANSWER_MAX).await?)
            .map_err(|error| Error::unavailable("the zone's answer cannot be read").because(error))?;
        Ok(Enrolled { token: token.to_string(), expires_at, doorway })
    }
}
