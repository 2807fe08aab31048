//! The S3 store behind the object store, as a file names it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use object::config::Gateway;
use serde::Deserialize;

/// Shorter and longer waits for one request make no sense.
const TIMEOUT_S: std::ops::RangeInclusive<u64> = 1..=600;

/// `[object.gateway]` of a root's file, and the file of `banyan up --s3-gateway`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayFile {
    /// Such as https://s3.example.org.
    endpoint: String,
    bucket: String,
    /// What the names of our objects there begin with [default: banyan].
    prefix: Option<String>,
    /// The name of its region [default: us-east-1].
    region: Option<String>,
    access_key: String,
    /// The file that holds the secret key.
    secret_key_file: PathBuf,
    #[serde(default)]
    style: Style,
    /// A file of certificates (PEM) to trust beside the usual ones.
    ca_file: Option<PathBuf>,
    /// Whether new objects go there; if not, what is there is still read.
    #[serde(default = "yes")]
    write: bool,
    /// For how many seconds a request may take [default: 30].
    timeout_s: Option<u64>,
}

/// Where the name of the bucket stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Style {
    #[default]
    Path,
    Virtual,
}

const fn yes() -> bool {
    true
}

impl GatewayFile {
    pub fn gateway(self) -> anyhow::Result<Gateway> {
        let secret = std::fs::read_to_string(&self.secret_key_file)
            .with_context(|| format!("cannot read secret_key_file {}", self.secret_key_file.display()))?;
        let ca = self.ca_file.as_ref().map(|path| {
            std::fs::read(path).with_context(|| format!("cannot read ca_file {}", path.display()))
        });
        let mut gateway = Gateway::new(&self.endpoint, &self.bucket, &self.access_key, secret.trim());
        gateway.prefix = self.prefix.unwrap_or(gateway.prefix);
        gateway.region = self.region.unwrap_or(gateway.region);
        gateway.virtual_host = self.style == Style::Virtual;
        gateway.ca = ca.transpose()?;
        gateway.write = self.write;
        if let Some(seconds) = self.timeout_s {
            anyhow::ensure!(
                TIMEOUT_S.contains(&seconds),
                "timeout_s must lie between {} and {}",
                TIMEOUT_S.start(),
                TIMEOUT_S.end()
            );
            gateway.timeout = Duration::from_secs(seconds);
        }
        Ok(gateway)
    }
}

/// The gateway that a file names.
pub fn gateway(path: &Path) -> anyhow::Result<Gateway> {
    super::config::read::<GatewayFile>(path)?.gateway()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_taken() {
        let text = include_str!("../../../../docs/buckets.md");
        let (_, rest) = text.split_once("[object.gateway]\n").expect("an example of the section");
        let example = rest.split_once("```").expect("the end of the example").0;
        let file: GatewayFile = toml::from_str(example).unwrap();
        assert!(file.write && file.style == Style::Path && file.timeout_s == Some(30), "{file:?}");
        let unknown = toml::from_str::<GatewayFile>("no_such_key = 1").unwrap_err().to_string();
        let (_, expected) = unknown.split_once("expected one of").expect("it says which are");
        for key in expected.split('`').skip(1).step_by(2) {
            assert!(
                example.contains(&format!("\n{key} =")) || example.starts_with(&format!("{key} =")),
                "{key}"
            );
        }
    }

    #[test]
    fn the_secret_comes_from_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (file, secret) = (folder.path().join("gateway.toml"), folder.path().join("secret"));
        let text = format!(
            "endpoint = 'https://s3.example.org'\nbucket = 'b'\naccess_key = 'a'\nsecret_key_file = '{}'\n",
            secret.display()
        );
        std::fs::write(&file, &text).unwrap();
        let missing = gateway(&file).unwrap_err();
        assert!(format!("{missing:#}").contains("secret_key_file"), "{missing:#}");
        std::fs::write(&secret, "hidden\n").unwrap();
        let read = gateway(&file).unwrap();
        assert_eq!((read.secret_key.as_str(), read.prefix.as_str()), ("hidden", "banyan"));
        assert!(!format!("{read:?}").contains("hidden"));
        for wrong in ["secret_key = 'x'", "timeout_s = 0", "style = 'guess'"] {
            std::fs::write(&file, format!("{text}{wrong}\n")).unwrap();
            assert!(gateway(&file).is_err(), "{wrong}");
        }
    }
}
