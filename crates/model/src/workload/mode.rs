//! Reading a mode. Its fields stand beside its kind, and each is read and refused under its own name.

use serde::{Deserialize, Deserializer};

use super::{Mode, Overlap, RunPolicy, keep_default, one, retries_default};

/// A mode as it is written: one object with the fields of all kinds, so that each is read under its own name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeFields {
    kind: ModeKind,
    replicas: Option<u32>,
    schedule: Option<String>,
    time_zone: Option<String>,
    overlap: Option<Overlap>,
    keep: Option<u32>,
    completions: Option<u32>,
    parallelism: Option<u32>,
    retries: Option<u32>,
    deadline_ms: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ModeKind {
    Service,
    Daemon,
    Once,
    Cron,
}

impl ModeKind {
    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Service => &["kind", "replicas"],
            Self::Daemon => &["kind"],
            Self::Once => &["kind", "completions", "parallelism", "retries", "deadline_ms"],
            Self::Cron => &[
                "kind",
                "schedule",
                "time_zone",
                "overlap",
                "keep",
                "completions",
                "parallelism",
                "retries",
                "deadline_ms",
            ],
        }
    }
}

impl ModeFields {
    /// The first field that is given and is not of this kind.
    fn foreign(&self) -> Option<&'static str> {
        let given = [
            ("replicas", self.replicas.is_some()),
            ("schedule", self.schedule.is_some()),
            ("time_zone", self.time_zone.is_some()),
            ("overlap", self.overlap.is_some()),
            ("keep", self.keep.is_some()),
            ("completions", self.completions.is_some()),
            ("parallelism", self.parallelism.is_some()),
            ("retries", self.retries.is_some()),
            ("deadline_ms", self.deadline_ms.is_some()),
        ];
        given
            .into_iter()
            .find(|(name, given)| *given && !self.kind.fields().contains(name))
            .map(|(name, _)| name)
    }

    fn run(&self) -> RunPolicy {
        RunPolicy {
            completions: self.completions.unwrap_or_else(one),
            parallelism: self.parallelism.unwrap_or_else(one),
            retries: self.retries.unwrap_or_else(retries_default),
            deadline_ms: self.deadline_ms,
        }
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        use serde::de::Error as _;
        let fields = ModeFields::deserialize(deserializer)?;
        if let Some(field) = fields.foreign() {
            return Err(D::Error::unknown_field(field, fields.kind.fields()));
        }
        Ok(match fields.kind {
            ModeKind::Service => Self::Service { replicas: fields.replicas.unwrap_or_else(one) },
            ModeKind::Daemon => Self::Daemon,
            ModeKind::Once => Self::Once { run: fields.run() },
            ModeKind::Cron => Self::Cron {
                run: fields.run(),
                schedule: fields.schedule.ok_or_else(|| D::Error::missing_field("schedule"))?,
                time_zone: fields.time_zone,
                overlap: fields.overlap.unwrap_or_default(),
                keep: fields.keep.unwrap_or_else(keep_default),
            },
        })
    }
}
