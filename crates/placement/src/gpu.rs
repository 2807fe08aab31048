//! The GPUs of one slot: which of them an ask can have.

use model::GpuAsk;

/// Stands for any model in an ask.
pub(crate) const MODELS_ANY: u64 = u64::MAX;
/// Models are kept as bits of one word. Models beyond that share the last bit, which only asks for any model take.
const MODELS_MAX: usize = 63;

/// One device. `free_milli` falls below zero only when a child shrinks under what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub model: u64,
    pub free_milli: i32,
}

/// Names of GPU models as bits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Models(Vec<String>);

impl Models {
    fn known(&self, model: &str) -> Option<u64> {
        self.0.iter().position(|known| known == model).map(|position| 1 << position)
    }

    /// The bit of a device's model. Asks add nothing here, so that nobody can use the bits up.
    pub fn bit(&mut self, model: &str) -> u64 {
        if let Some(bit) = self.known(model) {
            return bit;
        }
        if self.0.len() < MODELS_MAX {
            self.0.push(model.to_owned());
            return 1 << (self.0.len() - 1);
        }
        1 << MODELS_MAX
    }
}

/// A compiled [`GpuAsk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ask {
    pub count: u32,
    pub milli: i32,
    pub models: u64,
}

impl Ask {
    pub fn new(ask: &GpuAsk, models: &Models) -> Option<Self> {
        let allowed =
            ask.models.iter().filter_map(|model| models.known(model)).fold(0, |bits, bit| bits | bit);
        let allowed = if ask.models.is_empty() { MODELS_ANY } else { allowed };
        let milli = i32::try_from(ask.milli).unwrap_or(i32::MAX);
        (ask.count > 0 && milli > 0).then_some(Self { count: ask.count, milli, models: allowed })
    }

    pub const fn total_milli(&self) -> i64 {
        self.count as i64 * self.milli as i64
    }

    pub const fn takes(&self, gpu: &Gpu) -> bool {
        gpu.free_milli >= self.milli && gpu.model & self.models != 0
    }

    pub fn available(&self, gpus: &[Gpu]) -> u32 {
        gpus.iter().filter(|gpu| self.takes(gpu)).count() as u32
    }

    /// The devices that are left with least: the tightest fit, the first of equals.
    pub fn tightest(&self, gpus: &[Gpu]) -> Option<Vec<usize>> {
        let mut usable: Vec<usize> = (0..gpus.len()).filter(|&at| self.takes(&gpus[at])).collect();
        if usable.len() < self.count as usize {
            return None;
        }
        usable.sort_by_key(|&at| (gpus[at].free_milli, at));
        usable.truncate(self.count as usize);
        Some(usable)
    }

    /// For an ask of one device: one device of each distinct kind and free amount.
    pub fn distinct(&self, gpus: &[Gpu]) -> impl Iterator<Item = usize> {
        (0..gpus.len()).filter(move |&at| self.takes(&gpus[at]) && !gpus[..at].contains(&gpus[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_models_than_bits_are_only_found_by_asks_for_any() {
        let mut models = Models::default();
        let gpus: Vec<Gpu> = (0..70)
            .map(|number| Gpu { model: models.bit(&format!("m{number}")), free_milli: 1000 })
            .collect();
        let ask = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Ask::new(&GpuAsk { count: 1, milli: 1000, models: names }, &models).expect("an ask")
        };
        assert_eq!(ask(&[]).available(&gpus), 70);
        assert_eq!(ask(&["m0", "m62"]).available(&gpus), 2);
        assert_eq!(ask(&["m63", "unheard-of"]).available(&gpus), 0);
    }
}
