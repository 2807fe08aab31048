//! How long the ways from this node take: to its zone, and to the places its configuration names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use link::Uplink;
use model::{Error, Leg, Result};
use tier::Way;
use tokio::net::TcpStream;

use crate::service::NodeService;

/// The name of the way to the zone, which is measured without being asked for.
pub const LEG_ZONE: &str = "zone";
const LEG_ROOT: &str = "root";
pub const PLACES_MAX: usize = 32;
const PLACE_NAME_MAX: usize = 63;
/// How often, give or take a quarter, so that the nodes of a zone do not all call at once.
const MEASURE_EVERY: Duration = Duration::from_secs(30);
/// The first ones come sooner: the link has measured nothing yet when a node starts.
const MEASURE_FIRST: Duration = Duration::from_secs(2);
const CONNECT_WAIT: Duration = Duration::from_secs(3);

/// Places by name, each as `host:port` of something that takes TCP connections.
pub type Places = BTreeMap<String, String>;

/// Says what is wrong with places before a node starts with them.
pub fn places_validate(places: &Places) -> Result<()> {
    if places.len() > PLACES_MAX {
        return Err(Error::invalid(format!("at most {PLACES_MAX} places can be measured")).at("places"));
    }
    for (name, address) in places {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > PLACE_NAME_MAX || !name.bytes().all(legal) {
            let message = format!(
                "'{}' cannot name a place: use lower-case letters, digits and '-'",
                name.escape_debug()
            );
            return Err(Error::invalid(message).at("places"));
        }
        if name == LEG_ZONE || name == LEG_ROOT {
            return Err(Error::invalid(format!(
                "'{name}' is measured already; call the place something else"
            ))
            .at("places"));
        }
        let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
        if !port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            let message = format!("'{}' is not host:port", address.escape_debug());
            return Err(Error::invalid(message).at(name).at("places"));
        }
    }
    Ok(())
}

/// Measures and tells, until dropped.
pub async fn measure(service: NodeService, uplink: Arc<dyn Uplink>, places: Places) {
    let mut ways: BTreeMap<String, Way> = BTreeMap::new();
    let mut pause = MEASURE_FIRST;
    loop {
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.75..=1.25))).await;
        let trips =
            join_all(places.iter().map(|(name, address)| async { (name.clone(), trip(address).await) }));
        let zone = uplink.rtt();
        pause = if zone.is_some() { MEASURE_EVERY } else { MEASURE_FIRST };
        for (name, took) in trips.await.into_iter().chain([(LEG_ZONE.to_owned(), zone)]) {
            let way = ways.entry(name).or_default();
            match took {
                Some(took) => way.reached(took),
                None => way.missed(),
            }
        }
        let known = |(name, way): (&String, &Way)| Some((name.clone(), Leg::of(way.us()?)));
        let legs = ways.iter().filter_map(known).collect();
        service.facts_change(|facts| facts.legs = legs);
    }
}

/// How long a connection takes, without the look-up of its name.
async fn trip(address: &str) -> Option<Duration> {
    let connect = async {
        let at = tokio::net::lookup_host(address).await.ok()?.next()?;
        let began = Instant::now();
        TcpStream::connect(at).await.ok()?;
        Some(began.elapsed())
    };
    tokio::time::timeout(CONNECT_WAIT, connect).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_checked_by_name_and_address() {
        let check = |name: &str, address: &str, legal: bool| {
            let places = Places::from([(name.to_owned(), address.to_owned())]);
            assert_eq!(places_validate(&places).is_ok(), legal, "{name} {address}");
        };
        check("munich", "198.51.100.7:443", true);
        check("ix-2", "[2001:db8::1]:80", true);
        check("munich", "198.51.100.7", false);
        check("munich", ":443", false);
        check("munich", "host:0", false);
        check("Munich", "host:1", false);
        check("", "host:1", false);
        check("zone", "host:1", false);
        check("root", "host:1", false);
    }

    #[tokio::test]
    async fn a_trip_is_measured_where_somebody_listens_and_nowhere_else() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
        let address = listener.local_addr().expect("an address").to_string();
        assert!(trip(&address).await.is_some());
        drop(listener);
        assert!(trip(&address).await.is_none());
    }
}
