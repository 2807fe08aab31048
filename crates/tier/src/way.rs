//! A measured way, made calm: facts must not change for noise.

use std::collections::VecDeque;
use std::time::Duration;

/// The shortest of so many measurements counts: what took longer waited for something else than the way.
const TRIPS_MAX: usize = 8;
/// After so many misses in a row the way is gone.
const MISSES_MAX: u32 = 4;
/// What is told stays while the measured differs by less than this share, or by less than this time.
const STAYS_PERCENT: u32 = 20;
const STAYS_US: u32 = 300;

#[derive(Debug, Clone, Default)]
pub struct Way {
    trips: VecDeque<u32>,
    misses: u32,
    told: Option<u32>,
}

impl Way {
    pub fn reached(&mut self, took: Duration) {
        self.misses = 0;
        if self.trips.len() >= TRIPS_MAX {
            self.trips.pop_front();
        }
        self.trips.push_back(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        let Some(shortest) = self.trips.iter().min().copied() else { return };
        let stays = |told: u32| {
            let differs = told.abs_diff(shortest);
            differs <= STAYS_US || differs <= told / 100 * STAYS_PERCENT
        };
        if !self.told.is_some_and(stays) {
            self.told = Some(rounded_up(shortest));
        }
    }

    pub fn missed(&mut self) {
        self.misses = self.misses.saturating_add(1);
        if self.misses >= MISSES_MAX {
            *self = Self::default();
        }
    }

    /// There and back, in microseconds; nothing when it is not known.
    pub fn us(&self) -> Option<u32> {
        self.told
    }
}

/// To two digits.
fn rounded_up(us: u32) -> u32 {
    let mut unit = 1;
    while us / unit >= 100 {
        unit *= 10;
    }
    us.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_are_told_and_never_too_few() {
        for (us, told) in
            [(0, 0), (99, 99), (100, 100), (101, 110), (1234, 1300), (9_990, 10_000), (54_321, 55_000)]
        {
            assert_eq!(rounded_up(us), told);
        }
    }

    #[test]
    fn noise_is_not_told_and_a_change_is() {
        let mut way = Way::default();
        assert_eq!(way.us(), None);
        for ms in [20, 25, 400, 19, 22, 21] {
            way.reached(Duration::from_millis(ms));
            assert_eq!(way.us(), Some(20_000), "{ms}");
        }
        for _ in 0..TRIPS_MAX {
            way.reached(Duration::from_millis(80));
        }
        assert_eq!(way.us(), Some(80_000));
        way.reached(Duration::from_millis(5));
        assert_eq!(way.us(), Some(5_000), "a shorter way is told at once");
        (1..MISSES_MAX).for_each(|_| way.missed());
        assert_eq!(way.us(), Some(5_000));
        way.missed();
        assert_eq!(way.us(), None);
    }
}
