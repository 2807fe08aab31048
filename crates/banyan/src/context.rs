//! Which cloud a command speaks to: a file of named contexts, as kubeconfig
//! has, and the rule that a flag beats the environment and both beat the file.
//!
//! The file is `BANYAN_CONFIG`, else `banyan/config.yaml` in the user's config
//! folder. It holds tokens, so only its owner may read it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The environment variable that names the file.
pub const CONFIG_VARIABLE: &str = "BANYAN_CONFIG";

/// One cloud and who we are there.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Context {
    pub endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ec2_endpoint: Option<String>,
}

impl fmt::Debug for Context {
    /// Without the token, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("endpoint", &self.endpoint)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    pub contexts: BTreeMap<String, Context>,
}

/// Where the file is.
pub fn config_path() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(CONFIG_VARIABLE) {
        return Ok(path);
    }
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("banyan/config.yaml")).ok_or_else(|| {
        Failure::new("neither HOME nor XDG_CONFIG_HOME is set, so there is no place for the contexts")
            .hint(format!("name a file in {CONFIG_VARIABLE}"))
    })
}

impl Config {
    /// Reads the file; a missing one is an empty one.
    pub fn load(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::new(format!("cannot read {}: {error}", path.display()))),
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        yaml_serde::from_str(&text).map_err(|error| {
            Failure::new(format!("the contexts in {} cannot be read: {error}", path.display()))
                .hint("correct the file, or move it away and log in again with: banyan login")
        })
    }

    /// Writes the file as a whole, readable by its owner alone; a crash leaves the old one or the new one.
    pub fn save(&self, path: &Path) -> Result<()> {
        self.write(path).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = yaml_serde::to_string(self).map_err(std::io::Error::other)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let fresh = folder.join(name);
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&fresh, path));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written
    }

    /// Adds or replaces a context and makes it the current one.
    pub fn put(&mut self, name: &str, context: Context) {
        self.contexts.insert(name.to_owned(), context);
        self.current = Some(name.to_owned());
    }

    pub fn get(&self, name: &str) -> Result<&Context> {
        self.contexts.get(name).ok_or_else(|| {
            let known = self.contexts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known =
                if known.is_empty() { "there are none yet".into() } else { format!("known are {known}") };
            Failure::new(format!("there is no context '{name}'; {known}"))
                .hint("make one with: banyan login ENDPOINT --context NAME")
        })
    }
}

/// Saves a context under `name` in the user's file and makes it the current one.
pub fn context_save(name: &str, context: Context) -> Result<PathBuf> {
    let path = config_path()?;
    let mut config = Config::load(&path)?;
    config.put(name, context);
    config.save(&path)?;
    Ok(path)
}

/// What flags and the environment say; clap has already let flags win.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub context: Option<String>,
    pub endpoint: Option<String>,
    pub token: Option<String>,
    pub tenant: Option<String>,
}

/// The cloud to speak to.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Target {
    pub endpoint: String,
    pub token: Option<String>,
    pub tenant: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Flag and environment beat the context. A token is never sent to an endpoint
/// that it was not given for.
pub fn resolve(config: &Config, overrides: &Overrides) -> Result<Target> {
    let context = match overrides.context.as_ref().or(config.current.as_ref()) {
        Some(name) if overrides.context.is_some() || config.contexts.contains_key(name) => {
            Some(config.get(name)?)
        }
        _ => None,
    };
    let Some(endpoint) = overrides.endpoint.clone().or_else(|| context.map(|c| c.endpoint.clone())) else {
        return Err(Failure::new("no cloud is chosen")
            .hint("start one here with: banyan up   or log in to one with: banyan login ENDPOINT"));
    };
    let endpoint = endpoint.trim_end_matches('/').to_owned();
    let same = context.filter(|c| c.endpoint.trim_end_matches('/') == endpoint);
    Ok(Target {
        token: overrides.token.clone().or_else(|| same.and_then(|c| c.token.clone())),
        tenant: overrides.tenant.clone(),
        endpoint,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        for name in ["far", "near"] {
            let endpoint = format!("http://{name}:7700");
            config
                .put(name, Context { endpoint, token: Some(format!("{name}-token")), ..Context::default() });
        }
        config
    }

    fn check(overrides: Overrides, endpoint: &str, token: Option<&str>) {
        let target = resolve(&config(), &overrides).unwrap();
        assert_eq!((target.endpoint.as_str(), target.token.as_deref()), (endpoint, token));
    }

    #[test]
    fn a_flag_beats_the_context() {
        let text = |s: &str| Some(s.to_owned());
        check(Overrides::default(), "http://near:7700", Some("near-token"));
        check(Overrides { context: text("far"), ..Default::default() }, "http://far:7700", Some("far-token"));
        check(Overrides { token: text("mine"), ..Default::default() }, "http://near:7700", Some("mine"));
        let same = Overrides { endpoint: text("http://near:7700/"), ..Default::default() };
        check(same, "http://near:7700", Some("near-token"));
    }

    #[test]
    fn a_token_does_not_go_to_another_endpoint() {
        let other = Overrides { endpoint: Some("http://evil:1".into()), ..Default::default() };
        check(other, "http://evil:1", None);
    }

    #[test]
    fn without_a_cloud_the_next_command_is_named() {
        let failure = resolve(&Config::default(), &Overrides::default()).unwrap_err();
        assert!(failure.hint.unwrap().contains("banyan up"));
        let named = Overrides { context: Some("moon".into()), ..Default::default() };
        assert!(resolve(&config(), &named).unwrap_err().message.contains("known are far, near"));
    }

    #[test]
    fn the_file_reads_back_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/config.yaml");
        assert_eq!(Config::load(&path).unwrap(), Config::default());
        config().save(&path).unwrap();
        assert_eq!(Config::load(&path).unwrap(), config());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "contexts: [").unwrap();
        assert!(Config::load(&path).unwrap_err().hint.unwrap().contains("banyan login"));
    }

    #[test]
    fn a_token_is_not_shown_in_debug_output() {
        assert!(!format!("{:?}", config()).contains("near-token"));
    }
}
