//! How root is set up.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Largest JSON body.
pub const JSON_BODY_MAX: usize = 2 << 20;
pub const IMAGE_UPLOAD_MAX_DEFAULT: u64 = 16 << 30;
const HEAD_TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// How long an answer is kept for its idempotency key.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3600);
pub const SESSION_LASTS: Duration = Duration::from_secs(12 * 3600);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the REST interface listens.
    #[serde(default = "listen_default")]
    pub listen: SocketAddr,
    /// Holds the master key and uploads on their way.
    pub data: PathBuf,
    /// `sqlite:PATH`, `postgres://…` or `memory:`; a file in `data` when absent.
    #[serde(default)]
    pub database: Option<String>,
    /// The master key, which all root servers of a cloud share; `master.key` in `data` when absent.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    #[serde(default = "upload_default")]
    pub image_upload_max_bytes: u64,
    /// A client must send the head of a request within this, and an idle connection ends after it.
    #[serde(default = "head_timeout_default")]
    pub head_timeout_ms: u64,
}

fn listen_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7700))
}

const fn upload_default() -> u64 {
    IMAGE_UPLOAD_MAX_DEFAULT
}

const fn head_timeout_default() -> u64 {
    HEAD_TIMEOUT_MS_DEFAULT
}

impl Config {
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            listen: listen_default(),
            data: data.into(),
            database: None,
            key_file: None,
            image_upload_max_bytes: IMAGE_UPLOAD_MAX_DEFAULT,
            head_timeout_ms: HEAD_TIMEOUT_MS_DEFAULT,
        }
    }

    pub fn database_url(&self) -> String {
        self.database.clone().unwrap_or_else(|| format!("sqlite:{}", self.data.join("root.db").display()))
    }

    pub fn master_key(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.data.join("master.key"))
    }

    /// Whether other root servers may write to the same store.
    pub fn shared_store(&self) -> bool {
        self.database.as_deref().is_some_and(|url| url.starts_with("postgres"))
    }
}
