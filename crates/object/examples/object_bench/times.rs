//! Measured times.

use std::time::Duration;

pub struct Times(Vec<Duration>);

impl Times {
    pub fn new(mut times: Vec<Duration>) -> Self {
        assert!(!times.is_empty(), "something was measured");
        times.sort();
        Self(times)
    }

    /// In milliseconds: the time that so large a share of the runs did not exceed.
    pub fn at(&self, share: f64) -> f64 {
        let index = ((self.0.len() as f64 * share).ceil() as usize).clamp(1, self.0.len()) - 1;
        self.0[index].as_secs_f64() * 1e3
    }
}
