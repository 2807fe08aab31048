//! What goes wrong between us and a machine.

use std::time::Duration;

use super::key::HostKey;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    #[error("{address} cannot be reached: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("{address} shows the host key {} instead of {}", found.fingerprint(), names(expected))]
    HostKey { address: String, found: HostKey, expected: Vec<HostKey> },
    #[error("{address} does not let '{user}' in: {reason}")]
    Denied { address: String, user: String, reason: String },
    #[error("{what} took longer than {}", seconds(*.limit))]
    Late { what: String, limit: Duration },
    #[error("the connection to {address} broke: {reason}")]
    Broken { address: String, reason: String },
    #[error("it was stopped")]
    Stopped,
    #[error("{0}")]
    Key(String),
    #[error("{path} could not be written on {address}: {reason}")]
    Put { address: String, path: String, reason: String },
}

impl SshError {
    /// Whether the same may go well in a moment. A machine that refuses us stays a machine that refuses us.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Late { .. } | Self::Broken { .. } | Self::Stopped)
    }
}

fn names(keys: &[HostKey]) -> String {
    keys.iter().map(HostKey::fingerprint).collect::<Vec<_>>().join(" or ")
}

fn seconds(limit: Duration) -> String {
    if limit.subsec_millis() == 0 || limit.as_secs() >= 10 {
        format!("{} s", limit.as_secs())
    } else {
        format!("{:.1} s", limit.as_secs_f64())
    }
}
