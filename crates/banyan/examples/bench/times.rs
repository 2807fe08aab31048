//! Measured times and the rows they are printed as.

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

    pub fn row(&self, what: &str) {
        println!("{what:<52} {:>6} {:>8.1} ms {:>8.1} ms", self.0.len(), self.at(0.5), self.at(0.99));
    }

    /// A row that also says how far its middle is from that of `floor`.
    pub fn row_over(&self, what: &str, floor: &Self) {
        let (ours, least) = (self.at(0.5), floor.at(0.5));
        let runs = self.0.len();
        println!(
            "{what:<52} {runs:>6} {ours:>8.1} ms {:>8.1} ms {:>+8.1} ms {:>6.1} x",
            self.at(0.99),
            ours - least,
            ours / least
        );
    }
}

pub fn head(what: &str) {
    println!("{what:<52} {:>6} {:>11} {:>11}", "runs", "p50", "p99");
}

pub fn head_over(what: &str) {
    println!("{what:<52} {:>6} {:>11} {:>11} {:>11} {:>8}", "runs", "p50", "p99", "over floor", "ratio");
}
