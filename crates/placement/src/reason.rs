//! Why a candidate cannot hold a want, as sentences for people.

use std::fmt;

use model::{Arch, Bytes, Cpu, GpuAsk, RuntimeKind};

use crate::shape::{ShapeKey, is_called};
use crate::slot::Slot;
use crate::want::Want;

/// Why a candidate was left out. `to_string` is about one candidate, [`Reason::kind`] about many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    Unknown,
    Silent,
    Cordoned,
    /// An aggregate without a node to run anything on.
    NoNode,
    Arch {
        has: Vec<Arch>,
        needs: Arch,
    },
    Runtime(RuntimeKind),
    Zone(String),
    Label {
        key: String,
        value: String,
    },
    Cpu {
        needs: Cpu,
        free: Cpu,
    },
    Memory {
        needs: Bytes,
        free: Bytes,
    },
    Disk {
        needs: Bytes,
        free: Bytes,
    },
    /// An aggregate has the room, but no single node in it does.
    Largest(Box<Reason>),
    Gpu {
        ask: GpuAsk,
        free: u32,
    },
    Refused(String),
    Near {
        label: String,
        value: String,
    },
    Away {
        label: String,
        value: String,
    },
    Repelled {
        label: String,
        value: String,
    },
    Skew {
        count: u32,
        emptiest: u32,
        max: u32,
    },
    NoDomain(String),
    /// It is not the node that was named.
    Node(String),
    PlaceUnknown,
    Outside {
        km: u32,
        radius_km: u32,
    },
    /// The way to a place or a workload is too long.
    Far {
        from: String,
        us: u32,
        max_us: u32,
    },
    /// The way to a place or a workload is not known.
    Unmeasured(String),
    /// No instance of a workload is placed that it could be near to.
    NoneOf(String),
}

impl Reason {
    /// What is wrong with a slot whatever room it has.
    pub(crate) fn unsuited(key: &ShapeKey, slot: &Slot) -> Option<Self> {
        let Some(facts) = &slot.facts else { return Some(Self::Unknown) };
        if !slot.alive {
            return Some(Self::Silent);
        }
        if facts.cordoned {
            return Some(Self::Cordoned);
        }
        if facts.runtimes.is_empty() {
            return Some(Self::NoNode);
        }
        if let Some(zone) = key.zone.as_ref().filter(|zone| !is_called(slot, zone)) {
            return Some(Self::Zone(zone.clone()));
        }
        if let Some(needs) = key.arch.filter(|arch| !facts.archs.contains(arch)) {
            return Some(Self::Arch { has: facts.archs.clone(), needs });
        }
        if !facts.runtimes.contains(&key.runtime) {
            return Some(Self::Runtime(key.runtime));
        }
        let missing = key.labels.iter().find(|(label, value)| !slot.has_label(label, value));
        let label = missing.map(|(key, value)| Self::Label { key: key.clone(), value: value.clone() });
        label.or_else(|| key.near.as_ref()?.reason(slot))
    }

    /// What there is too little of on a slot.
    pub(crate) fn room(key: &ShapeKey, want: &Want, slot: &Slot) -> Option<Self> {
        if let Some(reason) = Self::short(key, &slot.free()) {
            return Some(reason);
        }
        if let Some(reason) = slot.largest.and_then(|largest| Self::short(key, &largest)) {
            return Some(Self::Largest(Box::new(reason)));
        }
        let (ask, compiled) = (want.gpu.as_ref()?, key.ask?);
        let free = compiled.available(&slot.gpus);
        (free < compiled.count).then(|| Self::Gpu { ask: ask.clone(), free })
    }

    fn short(key: &ShapeKey, room: &[i64; 3]) -> Option<Self> {
        let [cpu, memory, disk] = room.map(|amount| u64::try_from(amount).unwrap_or(0));
        let [cpu_need, memory_need, disk_need] = key.need.map(|amount| u64::try_from(amount).unwrap_or(0));
        if key.need[0] > room[0] {
            Some(Self::Cpu { needs: Cpu(cpu_need), free: Cpu(cpu) })
        } else if key.need[1] > room[1] {
            Some(Self::Memory { needs: Bytes(memory_need), free: Bytes(memory) })
        } else if key.need[2] > room[2] {
            Some(Self::Disk { needs: Bytes(disk_need), free: Bytes(disk) })
        } else {
            None
        }
    }

    /// Whether two reasons of one decision are of one [`Reason::kind`]: they differ in what there is,
    /// not in what is needed.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu { .. }, Self::Cpu { .. })
            | (Self::Memory { .. }, Self::Memory { .. })
            | (Self::Disk { .. }, Self::Disk { .. })
            | (Self::Gpu { .. }, Self::Gpu { .. })
            | (Self::Arch { .. }, Self::Arch { .. })
            | (Self::Refused(_), Self::Refused(_))
            | (Self::Skew { .. }, Self::Skew { .. })
            | (Self::Outside { .. }, Self::Outside { .. }) => true,
            (Self::Far { from: a, .. }, Self::Far { from: b, .. }) => a == b,
            (Self::Largest(a), Self::Largest(b)) => a.is_like(b),
            (a, b) => a == b,
        }
    }

    /// The reason without what differs from one candidate to the next, for counting.
    pub fn kind(&self) -> String {
        match self {
            Self::Cpu { needs, .. } => format!("has less than {needs} CPU free"),
            Self::Memory { needs, .. } => format!("has less than {} memory free", size(*needs)),
            Self::Disk { needs, .. } => format!("has less than {} disk free", size(*needs)),
            Self::Largest(reason) => format!("{} on any one node", reason.kind()),
            Self::Gpu { ask, .. } => format!("has less than {} free", gpus(ask)),
            Self::Arch { needs, .. } => format!("is not {needs}"),
            Self::Skew { max, .. } => format!("would exceed the skew of {max}"),
            Self::Outside { radius_km, .. } => format!("is not within {radius_km} km"),
            Self::Far { from, max_us, .. } => format!("is more than {} from {from}", ms(*max_us)),
            Self::Refused(_) => "refused it".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("has not said what it offers"),
            Self::Silent => f.write_str("does not answer"),
            Self::Cordoned => f.write_str("is cordoned"),
            Self::NoNode => f.write_str("has no node that answers"),
            Self::Arch { has, needs } => {
                let has: Vec<String> = has.iter().map(Arch::to_string).collect();
                write!(
                    f,
                    "arch {}, needs {needs}",
                    if has.is_empty() { "unknown".into() } else { has.join(" ") }
                )
            }
            Self::Runtime(runtime) => write!(f, "does not run {runtime}"),
            Self::Zone(zone) => write!(f, "is not zone {zone}"),
            Self::Label { key, value } => write!(f, "has no label {key}={value}"),
            Self::Cpu { needs, free } => write!(f, "needs {needs} CPU, {free} free"),
            Self::Memory { needs, free } => write!(f, "needs {} memory, {} free", size(*needs), size(*free)),
            Self::Disk { needs, free } => write!(f, "needs {} disk, {} free", size(*needs), size(*free)),
            Self::Largest(reason) => write!(f, "{reason} on its emptiest node"),
            Self::Gpu { ask, free } => write!(f, "needs {}, {free} free", gpus(ask)),
            Self::Refused(why) if why.is_empty() => f.write_str("refused it before"),
            Self::Refused(why) => write!(f, "refused it: {why}"),
            Self::Near { label, value } => write!(f, "holds no instance with {label}={value}"),
            Self::Away { label, value } => write!(f, "keeps away from instances with {label}={value}"),
            Self::Repelled { label, value } => {
                write!(f, "holds an instance that keeps away from {label}={value}")
            }
            Self::Skew { count, emptiest, max } => write!(
                f,
                "its domain has {count} of the group, the emptiest {emptiest}; one more exceeds the skew of {max}"
            ),
            Self::NoDomain(label) => write!(f, "has no label {label} to spread by"),
            Self::Node(node) => write!(f, "is not node {node}"),
            Self::PlaceUnknown => f.write_str("has not said where on the earth it is"),
            Self::Outside { km, radius_km } => {
                write!(f, "is {km} km from the centre, at most {radius_km} km are asked for")
            }
            Self::Far { from, us, max_us } => {
                write!(f, "is {} from {from}, at most {} are asked for", ms(*us), ms(*max_us))
            }
            Self::Unmeasured(place) => write!(f, "has not measured the way to {place}"),
            Self::NoneOf(workload) => write!(f, "workload {workload} has no instance yet to be near to"),
        }
    }
}

/// A round trip as people say it.
fn ms(us: u32) -> String {
    match us % 1000 / 100 {
        0 => format!("{} ms", us / 1000),
        tenth => format!("{}.{tenth} ms", us / 1000),
    }
}

/// A size as people say it, with one decimal at most.
fn size(bytes: Bytes) -> String {
    for (unit, name) in [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes.0 >= unit {
            let tenths = u128::from(bytes.0) * 10 / u128::from(unit);
            return match tenths % 10 {
                0 => format!("{} {name}", tenths / 10),
                tenth => format!("{}.{tenth} {name}", tenths / 10),
            };
        }
    }
    format!("{} B", bytes.0)
}

fn gpus(ask: &GpuAsk) -> String {
    let of = if ask.models.is_empty() { String::new() } else { format!(" {}", ask.models.join(" or ")) };
    match (ask.count, ask.milli) {
        (1, milli) if milli < 1000 => format!("{}.{milli:03}{of} GPU", 0),
        (1, _) => format!("1{of} GPU"),
        (count, _) => format!("{count}{of} GPUs"),
    }
}
