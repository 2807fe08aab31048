//! The order of the crates: who may use whom.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::Finding;

/// A crate uses crates of lower layers and, inside its layer, those to its left.
const LAYERS: &[&[&str]] = &[
    &["model"],
    &["md5lanes", "sal", "store", "work", "link", "api"],
    &["placement", "template", "tier"],
    &["net", "volume", "object", "node", "zone", "root", "provision", "ec2", "portal"],
    &["banyan", "sim", "bed", "xtask"],
];

/// Crates that decide and do nothing else, so that they can be tested with data alone.
const PURE: &[&str] = &["model", "md5lanes", "placement", "template"];
const IMPURE_DEPENDENCIES: &[&str] =
    &["tokio", "axum", "sqlx", "reqwest", "hyper", "redb", "rumqttc-next", "rmqtt", "rustix", "libc"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Absent for an ordinary dependency, else `dev` or `build`.
    kind: Option<String>,
    /// Present for a crate of this repository.
    path: Option<String>,
}

pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let output = Command::new(std::env::var("CARGO").as_deref().unwrap_or("cargo"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata could not be started")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cargo metadata wrote something else")?;
    Ok(findings(&metadata))
}

fn findings(metadata: &Metadata) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let Some(user) = position(&package.name) else {
            findings.push(format!(
                "crates/{0}: crate '{0}' has no layer; add it to LAYERS in crates/xtask/src/layer.rs and to the map in ARCHITECTURE.md",
                package.name
            ));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev")) {
            findings.extend(judge(&package.name, user, dependency));
        }
    }
    findings
}

/// Layer and place inside it.
fn position(name: &str) -> Option<(usize, usize)> {
    LAYERS
        .iter()
        .enumerate()
        .find_map(|(layer, names)| names.iter().position(|n| *n == name).map(|place| (layer, place)))
}

fn judge(user: &str, at: (usize, usize), dependency: &Dependency) -> Option<Finding> {
    let used = dependency.name.as_str();
    if PURE.contains(&user) && IMPURE_DEPENDENCIES.contains(&used) {
        return Some(format!(
            "crates/{user}: a pure crate must not depend on '{used}'; do the I/O in its caller"
        ));
    }
    dependency.path.as_ref()?;
    // An unknown crate is reported where it is defined.
    let below = position(used)?;
    (below >= at).then(|| {
        format!(
            "crates/{user}: '{user}' (layer {}) must not use '{used}' (layer {}); a crate uses lower layers and what stands to its left",
            at.0, below.0
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(json: &str, expect: &[&str]) {
        let found = findings(&serde_json::from_str(json).unwrap());
        assert_eq!(found.len(), expect.len(), "{found:?}");
        for (finding, part) in found.iter().zip(expect) {
            assert!(finding.contains(part), "{finding} does not say {part}");
        }
    }

    fn one(user: &str, used: &str, kind: &str) -> String {
        format!(
            r#"{{"packages":[{{"name":"{user}","dependencies":[{{"name":"{used}","kind":{kind},"path":"/x"}}]}}]}}"#
        )
    }

    #[test]
    fn lower_layers_and_the_left_may_be_used() {
        check(&one("root", "store", "null"), &[]);
        check(&one("link", "work", "null"), &[]);
        check(&one("zone", "node", "null"), &[]);
        check(&one("store", "root", "\"dev\""), &[]);
    }

    #[test]
    fn higher_layers_and_the_right_may_not() {
        check(&one("store", "root", "null"), &["'store' (layer 1) must not use 'root' (layer 3)"]);
        check(&one("work", "link", "null"), &["must not use 'link'"]);
        check(&one("node", "zone", "\"build\""), &["must not use 'zone'"]);
    }

    #[test]
    fn a_crate_without_a_layer_is_named_with_the_place_to_add_it() {
        check(&one("shiny", "model", "null"), &["add it to LAYERS"]);
    }

    #[test]
    fn pure_crates_stay_pure() {
        let json = r#"{"packages":[{"name":"placement","dependencies":[
            {"name":"tokio","kind":null,"path":null},{"name":"tokio","kind":"dev","path":null}]}]}"#;
        check(json, &["must not depend on 'tokio'"]);
    }
}
