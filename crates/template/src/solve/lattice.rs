//! How often each class may occur.
//!
//! Bounds, steps and ratios have one thing in common: of two vectors of counts that are allowed, the
//! smaller count of each class, taken for every class, is allowed too, and so is the larger. Such a set has a
//! least and a greatest member above and below given counts, and both are found by raising or
//! lowering one count after the other until nothing moves.

use crate::entity::Ratio;

#[derive(Debug, Clone)]
pub struct Lattice {
    pub min: Vec<u32>,
    pub max: Vec<u32>,
    pub laws: Vec<Law>,
}

/// What ties a count to others or to a grid.
#[derive(Debug, Clone)]
pub enum Law {
    /// The count is `base`, `base + step`, `base + 2 · step` …
    Step { class: usize, base: u32, step: u32 },
    /// The count is what the ratio gives for another one, on the grid and within the limits.
    Ratio { class: usize, of: Of, ratio: Ratio, low: u32, high: u32, step: u32 },
}

#[derive(Debug, Clone, Copy)]
pub enum Of {
    Class(usize),
    Fixed(u32),
}

/// Least grid point that is `count` or more.
fn up(count: u32, base: u32, step: u32) -> u32 {
    if count <= base { base } else { base.saturating_add((count - base).div_ceil(step).saturating_mul(step)) }
}

/// Greatest grid point that is `count` or less.
fn down(count: u32, base: u32, step: u32) -> Option<u32> {
    count.checked_sub(base).map(|over| base + over / step * step)
}

impl Law {
    /// What a ratio gives for `of`. It never falls when `of` grows.
    fn given(ratio: Ratio, low: u32, high: u32, step: u32, of: u32) -> u32 {
        let top = down(high, low, step).unwrap_or(low);
        up(ratio.apply(of), low, step).min(top)
    }

    /// The classes whose counts it ties.
    fn classes(&self) -> impl Iterator<Item = usize> {
        let (class, of) = match self {
            Self::Step { class, .. } => (*class, None),
            Self::Ratio { class, of: Of::Class(of), .. } => (*class, Some(*of)),
            Self::Ratio { class, .. } => (*class, None),
        };
        std::iter::once(class).chain(of)
    }

    /// Raises counts as far as this law alone asks for. None when that passes a limit.
    fn raise(&self, counts: &mut [u32], cap: &[u32]) -> Option<()> {
        match *self {
            Self::Step { class, base, step } => counts[class] = up(counts[class], base, step),
            Self::Ratio { class, of, ratio, low, high, step } => {
                let given = |of| Self::given(ratio, low, high, step, of);
                let current = match of {
                    Of::Class(of) => counts[of],
                    Of::Fixed(of) => of,
                };
                counts[class] = counts[class].max(given(current));
                if counts[class] > given(current) {
                    // The other one must grow until the ratio gives as much.
                    let Of::Class(of) = of else { return None };
                    let (mut below, mut enough) = (current, cap[of]);
                    if given(enough) < counts[class] {
                        return None;
                    }
                    while enough - below > 1 {
                        let middle = below + (enough - below) / 2;
                        if given(middle) >= counts[class] { enough = middle } else { below = middle }
                    }
                    counts[of] = enough;
                }
            }
        }
        Some(())
    }

    /// Lowers counts as far as this law alone asks for.
    fn lower(&self, counts: &mut [u32]) -> Option<()> {
        match *self {
            Self::Step { class, base, step } => counts[class] = down(counts[class], base, step)?,
            Self::Ratio { class, of, ratio, low, high, step } => {
                let given = |of| Self::given(ratio, low, high, step, of);
                let current = match of {
                    Of::Class(of) => counts[of],
                    Of::Fixed(of) => of,
                };
                counts[class] = counts[class].min(given(current));
                if counts[class] < given(current) {
                    let Of::Class(of) = of else { return None };
                    if given(0) > counts[class] {
                        return None;
                    }
                    let (mut good, mut above) = (0, current);
                    while above - good > 1 {
                        let middle = good + (above - good) / 2;
                        if given(middle) <= counts[class] { good = middle } else { above = middle }
                    }
                    counts[of] = good;
                }
            }
        }
        Some(())
    }
}

impl Lattice {
    /// Classes whose counts are tied to nothing but their bounds.
    pub fn is_plain(&self, class: usize) -> bool {
        !self.laws.iter().any(|law| law.classes().any(|tied| tied == class))
    }

    /// The least allowed counts that are `from` or more; none when they pass `cap`.
    pub fn least(&self, from: &[u32], cap: &[u32]) -> Option<Vec<u32>> {
        let mut counts: Vec<u32> = from.iter().zip(&self.min).map(|(from, min)| *from.max(min)).collect();
        loop {
            if counts.iter().zip(cap).any(|(count, cap)| count > cap) {
                return None;
            }
            let before = if self.laws.is_empty() { return Some(counts) } else { counts.clone() };
            for law in &self.laws {
                law.raise(&mut counts, cap)?;
            }
            if counts == before {
                return Some(counts);
            }
        }
    }

    /// The greatest allowed counts that are `cap` or less.
    pub fn greatest(&self, cap: &[u32]) -> Option<Vec<u32>> {
        let mut counts: Vec<u32> = cap.iter().zip(&self.max).map(|(cap, max)| *cap.min(max)).collect();
        loop {
            if counts.iter().zip(&self.min).any(|(count, min)| count < min) {
                return None;
            }
            let before = if self.laws.is_empty() { return Some(counts) } else { counts.clone() };
            for law in &self.laws {
                law.lower(&mut counts)?;
            }
            if counts == before {
                return Some(counts);
            }
        }
    }

    /// Whether exactly these counts are allowed.
    #[cfg(test)]
    pub fn holds(&self, counts: &[u32]) -> bool {
        self.least(counts, &self.max).is_some_and(|least| least == counts)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ratio(class: usize, of: usize, part: u32, whole: u32) -> Law {
        Law::Ratio { class, of: Of::Class(of), ratio: Ratio { part, whole }, low: 0, high: 100, step: 1 }
    }

    #[test]
    fn least_and_greatest_obey_every_law() {
        let lattice = Lattice {
            min: vec![0, 1, 0],
            max: vec![100, 100, 100],
            laws: vec![ratio(0, 1, 1, 10), Law::Step { class: 1, base: 1, step: 5 }],
        };
        let cap = [100, 100, 100];
        assert_eq!(lattice.least(&[0, 0, 0], &cap).unwrap(), [1, 1, 0]);
        assert_eq!(lattice.least(&[2, 0, 0], &cap).unwrap(), [2, 11, 0]);
        assert_eq!(lattice.least(&[0, 12, 7], &cap).unwrap(), [2, 16, 7]);
        assert_eq!(lattice.greatest(&[3, 100, 9]).unwrap(), [3, 26, 9]);
        assert_eq!(lattice.least(&[0, 12, 0], &[1, 100, 100]), None);
        assert!(lattice.holds(&[2, 11, 50]) && !lattice.holds(&[1, 11, 50]));
        assert!(lattice.is_plain(2) && !lattice.is_plain(1));
    }

    #[test]
    fn a_ratio_stays_within_the_limits_of_its_service() {
        let law = Law::Ratio {
            class: 0,
            of: Of::Class(1),
            ratio: Ratio { part: 1, whole: 2 },
            low: 3,
            high: 5,
            step: 2,
        };
        let lattice = Lattice { min: vec![3, 0], max: vec![5, 100], laws: vec![law] };
        for (of, count) in [(0, 3), (6, 3), (7, 5), (90, 5)] {
            assert!(lattice.holds(&[count, of]), "{of} {count}");
        }
    }
}
