//! Which names and addresses the listeners of a zone may have.
//!
//! Root keeps those that a zone joined with. Root's own and those of other zones are refused, then and with every
//! certificate, unless an operator allowed them for this zone.

use link::hosts::{host_is_loopback, host_key};
use link::{Joiner, TokenRecord};
use model::{ChildId, Error, ErrorKind, Name, Result, ZoneId};
use store::Txn;

use super::TreeService;
use crate::tables::{ZoneRecord, encode, kind};

impl TreeService {
    /// What a zone that joins is called from now on: what it asks for, and what its token allows.
    pub(super) fn hosts_join(
        &self,
        token: &TokenRecord,
        joiner: &Joiner,
    ) -> Result<(Vec<String>, Vec<String>)> {
        let granted = keys(&token.hosts);
        let asked: Vec<String> =
            keys(&joiner.hosts).into_iter().filter(|host| !host_is_loopback(host)).collect();
        for host in asked.iter().filter(|host| !granted.contains(host)) {
            self.host_free(host, None)?;
        }
        Ok((asked, granted))
    }

    /// Lets the listeners of a zone have these names, whoever else has them.
    pub async fn hosts_grant(&self, zone: &Name, hosts: &[String]) -> Result<()> {
        let snapshot = self.0.state.snapshot();
        let Some(zone) = snapshot.zone_find(zone.as_str()) else { return Ok(()) };
        let mut granted = zone.granted.clone();
        granted.extend(keys(hosts).into_iter().filter(|host| !zone.granted.contains(host)));
        if granted.len() == zone.granted.len() {
            return Ok(());
        }
        let record = ZoneRecord { granted, ..ZoneRecord::clone(zone) };
        let txn = Txn::new().update(kind::ZONE, &zone.id, zone.version, encode(&record));
        self.0.state.commit(txn).await.map(drop)
    }

    /// Whether a zone may have a certificate with these names now.
    pub(super) fn hosts_issue(&self, child: &ChildId, hosts: &[String]) -> Result<()> {
        let snapshot = self.0.state.snapshot();
        let zone = child.as_str().parse::<ZoneId>().ok().and_then(|id| snapshot.zones.get(&id));
        let zone = zone.ok_or_else(|| Error::new(ErrorKind::Forbidden, "this zone is not known here"))?;
        for host in keys(hosts).into_iter().filter(|host| !host_is_loopback(host)) {
            if zone.granted.contains(&host) {
                continue;
            }
            if !zone.hosts.contains(&host) {
                let text = format!("the zone '{}' did not join with the name '{host}'", zone.name);
                return Err(Error::new(ErrorKind::Forbidden, text)
                    .hint(format!("allow it with: banyan zone host {} {host}", zone.name)));
            }
            self.host_free(&host, Some(zone))?;
        }
        Ok(())
    }

    /// Whether nobody else has this name: no root server, and no other zone that had it before.
    fn host_free(&self, host: &str, zone: Option<&ZoneRecord>) -> Result<()> {
        let taken = |by: &str| {
            let way = match zone {
                Some(zone) => format!("allow it with: banyan zone host {} {host}", zone.name),
                None => format!("allow it with: banyan enroll zone --host {host}"),
            };
            Err(Error::new(ErrorKind::Forbidden, format!("the name '{host}' belongs to {by}")).hint(way))
        };
        let others = self.0.peers.duties().others();
        let of_others = others.iter().flat_map(|server| server.names.clone());
        let of_root: Vec<String> =
            self.0.names.get().into_iter().flatten().cloned().chain(of_others).collect();
        if keys(&of_root).iter().any(|name| name == host) {
            return taken("root");
        }
        let snapshot = self.0.state.snapshot();
        let earlier = |other: &ZoneRecord| match zone {
            None => true,
            Some(zone) => (other.enrolled_at, &other.id) < (zone.enrolled_at, &zone.id),
        };
        let has = |other: &ZoneRecord| other.hosts.iter().chain(&other.granted).any(|name| name == host);
        let other = snapshot.zones.values().find(|other| earlier(other) && has(other));
        other.map_or(Ok(()), |other| taken(&format!("the zone '{}'", other.name)))
    }
}

fn keys(hosts: &[String]) -> Vec<String> {
    hosts.iter().map(|host| host_key(host)).collect()
}
