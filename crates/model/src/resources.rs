//! What an instance asks for and what a node has.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::quantity::{Bytes, Cpu};

/// A whole GPU in thousandths.
pub const GPU_WHOLE_MILLI: u32 = 1000;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    Amd64,
    Arm64,
    Riscv64,
}

impl Arch {
    /// The architecture this binary was built for.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm64
    } else if cfg!(target_arch = "riscv64") {
        Self::Riscv64
    } else {
        Self::Amd64
    };
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
            Self::Riscv64 => "riscv64",
        })
    }
}

/// How an instance is run.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    #[default]
    Container,
    Vm,
    Unikernel,
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Vm => "vm",
            Self::Unikernel => "unikernel",
        })
    }
}

/// GPUs asked for: `count` devices of one of `models` (any when empty), each
/// whole, or `milli` thousandths of one device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuAsk {
    pub count: u32,
    /// Thousandths of each device; 1000 is a whole one. A share is only possible of one device.
    #[serde(default = "GpuAsk::whole")]
    pub milli: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

impl GpuAsk {
    const fn whole() -> u32 {
        GPU_WHOLE_MILLI
    }
}

/// One GPU of a node and how much of it is not given away.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GpuDevice {
    pub model: String,
    pub free_milli: u32,
}

/// Many GPUs in few words: equal neighbours as one with their number.
pub(crate) mod gpus_counted {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::GpuDevice;

    /// A child that claims more than this says nonsense.
    const GPUS_MAX: usize = 1 << 16;
    /// Bytes of a model's name: it is repeated for every device.
    const MODEL_MAX: usize = 128;

    #[derive(Serialize, Deserialize)]
    struct Counted {
        #[serde(flatten)]
        device: GpuDevice,
        #[serde(default = "one", skip_serializing_if = "is_one")]
        count: u32,
    }

    const fn one() -> u32 {
        1
    }

    const fn is_one(count: &u32) -> bool {
        *count == 1
    }

    pub fn serialize<S: Serializer>(gpus: &[GpuDevice], to: S) -> Result<S::Ok, S::Error> {
        let runs = gpus.chunk_by(|a, b| a == b);
        to.collect_seq(runs.map(|run| Counted { device: run[0].clone(), count: run.len() as u32 }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<GpuDevice>, D::Error> {
        let runs = Vec::<Counted>::deserialize(from)?;
        if runs.iter().any(|run| run.device.model.len() > MODEL_MAX) {
            return Err(D::Error::custom(format!("the model of a GPU has {MODEL_MAX} bytes at most")));
        }
        let devices = runs.into_iter().flat_map(|run| std::iter::repeat_n(run.device, run.count as usize));
        Ok(devices.take(GPUS_MAX).collect())
    }
}

/// Amounts of the resources that are counted as plain sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Resources {
    pub cpu: Cpu,
    pub memory: Bytes,
    pub disk: Bytes,
}

impl Resources {
    pub const ZERO: Self = Self { cpu: Cpu(0), memory: Bytes(0), disk: Bytes(0) };

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            cpu: Cpu(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
            disk: Bytes(self.disk.0.saturating_add(other.disk.0)),
        }
    }

    /// What is left of `self` without `other`; never below zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            cpu: Cpu(self.cpu.0.saturating_sub(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_sub(other.memory.0)),
            disk: Bytes(self.disk.0.saturating_sub(other.disk.0)),
        }
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            disk: self.disk.max(other.disk),
        }
    }

    pub const fn fits_in(&self, room: &Self) -> bool {
        self.cpu.0 <= room.cpu.0 && self.memory.0 <= room.memory.0 && self.disk.0 <= room.disk.0
    }
}
