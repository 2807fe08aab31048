//! What a user asks for when asking for an instance.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::constraint::{Constraints, Labels, labels_validate};
use crate::error::{Faults, Result, shown};
use crate::quantity::{Bytes, Cpu};
use crate::resources::{GPU_WHOLE_MILLI, GpuAsk, Resources, RuntimeKind};

pub const COMMAND_WORDS_MAX: usize = 256;
pub const COMMAND_BYTES_MAX: usize = 64 * 1024;
pub const ENV_MAX: usize = 256;
pub const ENV_BYTES_MAX: usize = 64 * 1024;
pub const GPUS_MAX: u32 = 16;
pub const PIDS_DEFAULT: u32 = 512;
pub const PIDS_MAX: u32 = 32_768;
const CPU_DEFAULT: Cpu = Cpu(250);
const MEMORY_DEFAULT: Bytes = Bytes::mib(128);
/// Less than this and an OCI runtime itself does not fit.
const MEMORY_MIN: Bytes = Bytes::mib(6);
const CPU_MIN: Cpu = Cpu(10);
pub const PRIORITY_MAX: i32 = 1000;

/// Which of two holders of an instance is the newer one. `major` counts root's
/// decisions, `minor` the zone's.
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
pub struct Generation {
    pub major: u64,
    pub minor: u64,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstanceSpec {
    /// Name or id of an image of this cloud.
    pub image: String,
    #[serde(default)]
    pub runtime: RuntimeKind,
    /// Replaces the image's entry point and command; empty keeps the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// `user`, `uid`, `user:group` or `uid:gid`; the image's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default = "cpu_default")]
    pub cpu: Cpu,
    #[serde(default = "memory_default")]
    pub memory: Bytes,
    #[serde(default)]
    pub disk: Bytes,
    /// Most processes and threads at once.
    #[serde(default = "pids_default")]
    pub pids: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuAsk>,
    #[serde(default)]
    pub restart: RestartPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheck>,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    #[serde(default)]
    pub constraints: Constraints,
    /// Where there is no room, instances of a lower priority give way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// What follows when its node or zone is lost.
    #[serde(default, skip_serializing_if = "LossPolicy::is_default")]
    pub lost: LossPolicy,
}

/// What follows when the node or the zone of an instance is lost, or is being emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossPolicy {
    /// It starts again elsewhere.
    #[default]
    Replace,
    /// It waits for its node to come back: what it keeps there is worth more than the time.
    Wait,
}

impl LossPolicy {
    fn is_default(&self) -> bool {
        *self == Self::Replace
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

const fn cpu_default() -> Cpu {
    CPU_DEFAULT
}
const fn memory_default() -> Bytes {
    MEMORY_DEFAULT
}
const fn pids_default() -> u32 {
    PIDS_DEFAULT
}

/// What follows when the process of an instance ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    Never,
    /// Again when the exit code is not 0, with back-off.
    OnFailure,
    /// Again whatever the exit code, with back-off.
    #[default]
    Always,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HealthCheck {
    pub probe: HealthProbe,
    #[serde(default = "HealthCheck::interval_default")]
    pub interval_ms: u64,
    #[serde(default = "HealthCheck::timeout_default")]
    pub timeout_ms: u64,
    /// Failures in a row before it counts as unhealthy, and is restarted if its policy allows.
    #[serde(default = "HealthCheck::retries_default")]
    pub retries: u32,
    /// Failures in this time after the start do not count.
    #[serde(default)]
    pub grace_ms: u64,
}

impl HealthCheck {
    const fn interval_default() -> u64 {
        10_000
    }
    const fn timeout_default() -> u64 {
        2_000
    }
    const fn retries_default() -> u32 {
        3
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum HealthProbe {
    /// A command inside the instance that must exit with 0.
    Command(Vec<String>),
    /// A port of the instance that must accept.
    Tcp { port: u16 },
    /// A GET that must answer 2xx or 3xx.
    Http { port: u16, path: String },
}

impl InstanceSpec {
    /// A spec with every default, for `image`.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            runtime: RuntimeKind::Container,
            command: Vec::new(),
            env: BTreeMap::new(),
            user: None,
            workdir: None,
            cpu: CPU_DEFAULT,
            memory: MEMORY_DEFAULT,
            disk: Bytes(0),
            pids: PIDS_DEFAULT,
            gpu: None,
            restart: RestartPolicy::default(),
            health: None,
            labels: Labels::new(),
            constraints: Constraints::default(),
            priority: 0,
            lost: LossPolicy::Replace,
        }
    }

    pub const fn resources(&self) -> Resources {
        Resources { cpu: self.cpu, memory: self.memory, disk: self.disk }
    }

    /// Checks everything that can be checked without looking anything up.
    pub fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if self.image.is_empty() || self.image.len() > 255 {
            faults.add("image", "the image must be named, with at most 255 bytes");
        }
        self.validate_process(&mut faults);
        self.validate_amounts(&mut faults);
        if let Some(gpu) = &self.gpu {
            faults.inside("gpu", gpu.validate());
        }
        if let Some(health) = &self.health {
            faults.inside("health", health.validate());
        }
        faults.inside("labels", labels_validate(&self.labels));
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            faults.add("priority", format!("the priority must be -{PRIORITY_MAX} to {PRIORITY_MAX}"));
        }
        faults.inside("constraints", self.constraints.validate());
        faults.done()
    }

    fn validate_process(&self, faults: &mut Faults) {
        let bytes: usize = self.command.iter().map(String::len).sum();
        if self.command.len() > COMMAND_WORDS_MAX || bytes > COMMAND_BYTES_MAX {
            let sentence = format!(
                "the command may have {COMMAND_WORDS_MAX} words and {COMMAND_BYTES_MAX} bytes at most"
            );
            faults.add("command", sentence);
        }
        if self.command.iter().any(|word| word.contains('\0'))
            || self.command.first().is_some_and(String::is_empty)
        {
            faults.add("command", "the command has an empty first word or a NUL byte in it");
        }
        let bytes: usize = self.env.iter().map(|(k, v)| k.len() + v.len()).sum();
        if self.env.len() > ENV_MAX || bytes > ENV_BYTES_MAX {
            let sentence =
                format!("the environment may have {ENV_MAX} variables and {ENV_BYTES_MAX} bytes at most");
            faults.add("env", sentence);
        }
        for (key, value) in &self.env {
            if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
                let sentence = format!(
                    "'{}' is not usable as an environment variable: the name must not be empty nor hold '=' or NUL",
                    shown(key)
                );
                faults.add("env", sentence);
            }
        }
        for (field, text) in [("user", &self.user), ("workdir", &self.workdir)] {
            if text.as_ref().is_some_and(|t| t.is_empty() || t.len() > 4096 || t.contains('\0')) {
                faults.add(field, format!("{field} must be 1 to 4096 bytes without NUL"));
            }
        }
        let workdir = self.workdir.as_deref().filter(|dir| !dir.is_empty());
        if workdir.is_some_and(|dir| !dir.starts_with('/')) {
            faults.add("workdir", "workdir must be an absolute path");
        }
        if workdir.is_some_and(|dir| dir.split('/').any(|part| part == "..")) {
            faults.add("workdir", "workdir must not have '..' in it");
        }
    }

    fn validate_amounts(&self, faults: &mut Faults) {
        if self.cpu < CPU_MIN {
            faults.add("cpu", format!("cpu must be {CPU_MIN} or more"));
        }
        if self.memory < MEMORY_MIN {
            faults.add("memory", format!("memory must be {MEMORY_MIN} or more"));
        }
        if self.pids == 0 || self.pids > PIDS_MAX {
            faults.add("pids", format!("pids must be 1 to {PIDS_MAX}"));
        }
    }
}

impl GpuAsk {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        if self.count == 0 || self.count > GPUS_MAX {
            faults.add("count", format!("count must be 1 to {GPUS_MAX}"));
        }
        let share = (1..GPU_WHOLE_MILLI).contains(&self.milli);
        if self.milli != GPU_WHOLE_MILLI && !(share && self.count == 1) {
            let sentence =
                "milli must be 1000 for whole GPUs, or 1 to 999 with a count of 1 for a share of one";
            faults.add("milli", sentence);
        }
        faults.done()
    }
}

impl HealthCheck {
    fn validate(&self) -> Result<()> {
        let mut faults = Faults::default();
        for (field, number, min, max) in [
            ("interval_ms", self.interval_ms, 100, 3_600_000),
            ("timeout_ms", self.timeout_ms, 10, 600_000),
            ("retries", u64::from(self.retries), 1, 100),
            ("grace_ms", self.grace_ms, 0, 3_600_000),
        ] {
            if !(min..=max).contains(&number) {
                faults.add(field, format!("{field} must be {min} to {max}"));
            }
        }
        self.validate_probe(&mut faults);
        faults.done()
    }

    fn validate_probe(&self, faults: &mut Faults) {
        match &self.probe {
            HealthProbe::Command(words)
                if words.is_empty()
                    || words.len() > COMMAND_WORDS_MAX
                    || words.iter().map(String::len).sum::<usize>() > COMMAND_BYTES_MAX =>
            {
                let sentence = format!(
                    "the health command must have 1 to {COMMAND_WORDS_MAX} words and {COMMAND_BYTES_MAX} bytes at most"
                );
                faults.add("probe.command", sentence);
            }
            HealthProbe::Tcp { port: 0 } => faults.add("probe.tcp.port", "the port must be 1 to 65535"),
            HealthProbe::Http { port, path } => {
                if *port == 0 {
                    faults.add("probe.http.port", "the port must be 1 to 65535");
                }
                let odd = |c: char| c.is_control() || c == ' ';
                if !path.starts_with('/') || path.len() > 2048 || path.chars().any(odd) {
                    let sentence = "the path must begin with '/' and hold no space or control character";
                    faults.add("probe.http.path", sentence);
                }
            }
            HealthProbe::Command(_) | HealthProbe::Tcp { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut InstanceSpec), field: Option<&str>) {
        let mut spec = InstanceSpec::new("busybox");
        change(&mut spec);
        let found = spec.validate().err().map(|e| e.field.expect("a field is named"));
        assert_eq!(found.as_deref(), field);
    }

    #[test]
    fn a_spec_is_checked_field_by_field() {
        check(|_| {}, None);
        check(|s| s.image.clear(), Some("image"));
        check(|s| s.command = vec![String::new()], Some("command"));
        check(|s| s.command = vec!["x".into(); 257], Some("command"));
        check(|s| drop(s.env.insert("A=B".into(), "x".into())), Some("env"));
        check(|s| s.workdir = Some("tmp".into()), Some("workdir"));
        check(|s| s.workdir = Some("/a/../proc/self/fd/7".into()), Some("workdir"));
        check(|s| s.memory = Bytes(1), Some("memory"));
        check(|s| s.cpu = Cpu(0), Some("cpu"));
        check(|s| s.pids = 0, Some("pids"));
        check(|s| s.gpu = Some(GpuAsk { count: 2, milli: 500, models: vec![] }), Some("gpu.milli"));
        check(|s| s.gpu = Some(GpuAsk { count: 1, milli: 500, models: vec![] }), None);
        check(|s| drop(s.labels.insert("bad key".into(), "x".into())), Some("labels"));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = serde_json::from_str::<InstanceSpec>(r#"{"image":"busybox","memroy":"64MiB"}"#);
        assert!(error.expect_err("refused").to_string().contains("memroy"));
    }
}
