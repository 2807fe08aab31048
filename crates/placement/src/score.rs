//! How good a slot is for a shape, as one integer: higher is better.

use crate::gpu::{Ask, Gpu};
use crate::mix::{Mix, WEIGHTS_SUM};
use crate::slot::{Amounts, Slot};

/// The best base score. Preferences count in multiples of it; 33 of them stay far from overflow.
pub(crate) const ONE: i32 = 1 << 24;
/// The slot fits by kind but has no room.
pub(crate) const NO_ROOM: i32 = -(1 << 30);
/// The slot will not do whatever room it has.
pub(crate) const NEVER: i32 = i32::MIN;
/// Scores above this are of slots that can hold the instance.
pub(crate) const FEASIBLE: i32 = -(1 << 29) - (1 << 28);

/// How dear CPU, memory and disk are to best fit.
const WEIGHTS: [f64; 3] = [1.0, 0.5, 0.5];
/// GPUs are what a fleet has fewest of.
const GPU_WEIGHT: f64 = 3.0;

/// The largest capacity in the fleet, against which what would be left is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scale {
    pub most: Amounts,
    pub gpu: i64,
}

impl Scale {
    pub fn of<'a>(slots: impl Iterator<Item = &'a Slot>) -> Self {
        let mut scale = Self::default();
        for slot in slots {
            for (most, capacity) in scale.most.iter_mut().zip(slot.capacity) {
                *most = (*most).max(capacity);
            }
            scale.gpu = scale.gpu.max(1000 * slot.gpus.len() as i64);
        }
        scale
    }

    /// One minus the weighted mean share of every resource that would be left: the fuller the better.
    fn tightness(&self, left: &Amounts, gpu_left: i64) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        let amounts = left.iter().zip(self.most).zip(WEIGHTS);
        for ((left, most), weight) in amounts.chain(std::iter::once(((&gpu_left, self.gpu), GPU_WEIGHT))) {
            if most > 0 {
                sum += weight * (*left).max(0) as f64 / most as f64;
                weights += weight;
            }
        }
        if weights == 0.0 { 1.0 } else { 1.0 - sum / weights }
    }
}

/// The waste of GPUs orders slots; tightness only parts those of nearly equal waste.
const TIGHTNESS_WEIGHT: f64 = 0.03;

/// What scoring looks at beside the slot.
#[derive(Clone, Copy)]
pub(crate) struct Judge<'a> {
    pub scale: &'a Scale,
    /// Absent when waste plays no part.
    pub mix: Option<&'a Mix>,
}

impl Judge<'_> {
    /// The score of a slot that has room, and with `devices` the GPUs that give it.
    pub fn score(
        &self,
        slot: &Slot,
        need: &Amounts,
        ask: Option<&Ask>,
        devices: Option<&mut Vec<usize>>,
    ) -> i32 {
        let free = slot.free();
        let left: Amounts = std::array::from_fn(|at| free[at] - need[at]);
        let gpu_left = slot.gpu_free() - ask.map_or(0, Ask::total_milli);
        let tightness = self.scale.tightness(&left, gpu_left).clamp(0.0, 1.0);
        let Some(mix) = self.mix.filter(|_| !slot.gpus.is_empty()) else {
            if let (Some(devices), Some(ask)) = (devices, ask) {
                *devices = ask.tightest(&slot.gpus).unwrap_or_default();
            }
            let score = match self.mix {
                // Without GPUs there is nothing to waste.
                Some(_) => TIGHTNESS_WEIGHT * tightness + (1.0 - TIGHTNESS_WEIGHT) * calm(0),
                None => tightness,
            };
            return (score * f64::from(ONE)) as i32;
        };
        let growth = waste_after(mix, slot, &left, ask, devices) - slot.waste;
        let score = TIGHTNESS_WEIGHT * tightness + (1.0 - TIGHTNESS_WEIGHT) * calm(growth);
        (score * f64::from(ONE)) as i32
    }
}

/// Maps a growth of waste to 0..1, finest around nought.
fn calm(growth: i64) -> f64 {
    let growth = growth as f64 / (1000.0 * WEIGHTS_SUM);
    0.5 - 0.5 * growth / (1.0 + growth.abs())
}

/// The least waste that is possible with `ask` taken off the slot, and which devices give it.
fn waste_after(
    mix: &Mix,
    slot: &Slot,
    left: &Amounts,
    ask: Option<&Ask>,
    mut devices: Option<&mut Vec<usize>>,
) -> i64 {
    let Some(ask) = ask else { return mix.waste(left, &slot.gpus) };
    let mut gpus: Vec<Gpu> = slot.gpus.clone();
    if ask.count > 1 {
        let chosen = ask.tightest(&slot.gpus).unwrap_or_default();
        chosen.iter().for_each(|&at| gpus[at].free_milli -= ask.milli);
        if let Some(devices) = devices {
            *devices = chosen;
        }
        return mix.waste(left, &gpus);
    }
    let mut least = i64::MAX;
    for at in ask.distinct(&slot.gpus) {
        gpus[at].free_milli -= ask.milli;
        let waste = mix.waste(left, &gpus);
        gpus[at].free_milli += ask.milli;
        if waste < least {
            least = waste;
            if let Some(devices) = devices.as_deref_mut() {
                devices.clear();
                devices.push(at);
            }
        }
    }
    least
}
