//! Requests under way, counted by who asks, so that nobody holds the places of all.
//!
//! A request counts for the address it comes from until the gate knows its account, and for that from then on. It counts
//! until its answer is sent.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use s3s::S3ErrorCode;

use crate::fault::{Fault, Result};

/// The bits of an IPv6 address that tell one network from another; whoever has one has all addresses in it.
const NETWORK: u128 = !0 << 64;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Account(Arc<str>),
    Address(IpAddr),
}

/// How many requests of everyone are under way.
#[derive(Debug, Clone)]
pub struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    counts: Mutex<HashMap<Who, usize>>,
}

/// What a request counts for.
#[derive(Debug, Clone)]
pub struct Share(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    shares: Shares,
    who: Mutex<Option<Who>>,
}

impl Shares {
    /// Everyone may have `most` of them under way.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most: most.max(1), counts: Mutex::default() }))
    }

    /// Counts a request for its address; `SlowDown` if that has too many under way.
    pub fn enter(&self, address: IpAddr) -> Result<Share> {
        let who = Who::Address(match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
            address => address,
        });
        self.add(&who)?;
        Ok(Share(Arc::new(Counted { shares: self.clone(), who: Mutex::new(Some(who)) })))
    }

    fn add(&self, who: &Who) -> Result<()> {
        let mut counts = lock(&self.0.counts);
        let count = counts.entry(who.clone()).or_default();
        if *count >= self.0.most {
            return Err(Fault::new(S3ErrorCode::SlowDown, "Please reduce your request rate."));
        }
        *count += 1;
        Ok(())
    }

    fn take(&self, who: &Who) {
        let mut counts = lock(&self.0.counts);
        if let Some(count) = counts.get_mut(who) {
            *count -= 1;
            if *count == 0 {
                counts.remove(who);
            }
        }
    }
}

impl Share {
    /// Counts the request for its account from now on; `SlowDown` if that has too many under way.
    pub fn is_of(&self, account: &Arc<str>) -> Result<()> {
        let mut who = lock(&self.0.who);
        // It has ended already.
        let Some(before) = &mut *who else { return Ok(()) };
        let account = Who::Account(account.clone());
        if *before != account {
            self.0.shares.add(&account)?;
            self.0.shares.take(&std::mem::replace(before, account));
        }
        Ok(())
    }

    /// The request is not under way any more.
    pub fn leave(&self) {
        self.0.leave();
    }
}

impl Counted {
    fn leave(&self) {
        if let Some(who) = lock(&self.who).take() {
            self.shares.take(&who);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.leave();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn everyone_has_a_share() {
        let shares = Shares::new(2);
        let (here, there): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let (first, second) = (shares.enter(here).unwrap(), shares.enter(here).unwrap());
        assert!(shares.enter(here).is_err() && shares.enter(there).is_ok());
        let account: Arc<str> = "a".into();
        first.is_of(&account).unwrap();
        first.is_of(&account).unwrap();
        second.is_of(&account).unwrap();
        let third = shares.enter(here).unwrap();
        assert!(third.is_of(&account).is_err());
        assert!(third.is_of(&"b".into()).is_ok(), "it counts for its address still");
        first.leave();
        first.leave();
        drop(first);
        let fourth = shares.enter(here).unwrap();
        fourth.is_of(&account).unwrap();
        assert!(shares.enter(here).unwrap().is_of(&account).is_err());
        drop((second, third, fourth));
        assert!(shares.0.counts.lock().unwrap().is_empty());
    }

    #[test]
    fn a_network_is_one_address() {
        let shares = Shares::new(1);
        let _held = shares.enter("2001:db8:1:1::1".parse().unwrap()).unwrap();
        assert!(shares.enter("2001:db8:1:1:2:3:4:5".parse().unwrap()).is_err());
        assert!(shares.enter("2001:db8:1:2::1".parse().unwrap()).is_ok());
    }
}
