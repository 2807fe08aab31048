//! Sizes of machines that are instances of this cloud.

use crate::{Bytes, Cpu, Error, Result, shown};

/// What flavors with a name are: thousandths of a CPU, and MiB.
const NAMED: [(&str, u64, u64); 5] = [
    ("tiny", 250, 128),
    ("small", 500, 512),
    ("medium", 1_000, 1_024),
    ("large", 2_000, 4_096),
    ("xlarge", 4_000, 8_192),
];

/// A size by its name, or as `CPU/MEMORY`.
pub fn flavor(text: &str) -> Result<(Cpu, Bytes)> {
    if let Some((_, cpu, memory)) = NAMED.iter().find(|(name, ..)| *name == text) {
        return Ok((Cpu(*cpu), Bytes::mib(*memory)));
    }
    let names: Vec<&str> = NAMED.iter().map(|(name, ..)| *name).collect();
    let wrong = || {
        let (text, names) = (shown(text), names.join(", "));
        Error::invalid(format!(
            "'{text}' is no flavor here: write {names}, or CPU/MEMORY such as 500m/256MiB"
        ))
    };
    let (cpu, memory) = text.split_once('/').ok_or_else(wrong)?;
    match (cpu.trim().parse(), memory.trim().parse()) {
        (Ok(cpu), Ok(memory)) => Ok((cpu, memory)),
        _ => Err(wrong()),
    }
}
