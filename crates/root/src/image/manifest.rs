//! The documents of an image: index, manifest and config, and which of them we take.

use std::collections::BTreeMap;

use model::image::LayerFormat;
use model::{Arch, Digest, Error, ImageId, ImageManifest, Platform, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ImageLimits, Imported, too_large};

pub const MEDIA_OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const MEDIA_OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const MEDIA_DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub const MEDIA_DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const MEDIA_CONFIGS: &[&str] =
    &["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
const MEDIA_LAYERS: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
/// An index may point to an index, but not for ever.
pub const INDEX_DEPTH_MAX: usize = 3;
/// How many choices a refusal lists.
const CHOICES_SHOWN: usize = 8;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    pub platform: Option<PlatformName>,
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct PlatformName {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
}

/// An index or a manifest; which one is told by what it holds, because old files have no media type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub manifests: Option<Vec<Descriptor>>,
    pub config: Option<Descriptor>,
    pub layers: Option<Vec<Descriptor>>,
}

/// One image of a docker archive's `manifest.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerImage {
    pub config: String,
    pub repo_tags: Option<Vec<String>>,
    pub layers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct Config {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    config: Option<Start>,
    #[serde(default)]
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Start {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
}

/// A layer that was read and checked.
#[derive(Debug, Clone)]
pub struct LayerRead {
    pub digest: Digest,
    pub size: u64,
    pub format: LayerFormat,
    /// Of the tar inside.
    pub diff_id: Digest,
}

impl Config {
    /// A root file system says nothing about itself, so it is for this machine and starts its shell, if any.
    pub fn of_rootfs(diff_id: &Digest, shell: bool) -> Self {
        Self {
            architecture: Arch::HOST.to_string(),
            os: "linux".into(),
            config: Some(Start { cmd: shell.then(|| vec!["/bin/sh".into()]), ..Start::default() }),
            rootfs: RootFs { diff_ids: vec![diff_id.to_string()] },
        }
    }
}

pub fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::invalid(format!("{what} is not what it should be: {error}")).because(error))
}

impl Descriptor {
    pub fn digest(&self) -> Result<Digest> {
        self.digest.parse()
    }

    fn arch(&self) -> Option<Arch> {
        self.platform
            .as_ref()
            .filter(|platform| platform.os == "linux")
            .and_then(|p| arch_of(&p.architecture))
    }

    /// Signatures and attestations stand in indexes beside the images they speak of.
    fn is_image(&self) -> bool {
        let unknown = self.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
        let media = self.media_type.as_str();
        let known = [MEDIA_OCI_INDEX, MEDIA_OCI_MANIFEST, MEDIA_DOCKER_LIST, MEDIA_DOCKER_MANIFEST, ""];
        !unknown && known.contains(&media)
    }

    fn shown(&self) -> String {
        let name = |key: &str| self.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        name("org.opencontainers.image.ref.name")
            .or_else(|| name("io.containerd.image.name"))
            .or_else(|| self.platform.as_ref().map(|p| format!("{}/{}", p.os, p.architecture)))
            .unwrap_or_else(|| self.digest.clone())
    }
}

fn arch_of(text: &str) -> Option<Arch> {
    match text {
        "amd64" | "x86_64" => Some(Arch::Amd64),
        "arm64" | "aarch64" => Some(Arch::Arm64),
        "riscv64" => Some(Arch::Riscv64),
        _ => None,
    }
}

/// Picks one image of an index: the host's architecture, or the only one there is.
pub fn choose<'a>(manifests: &'a [Descriptor], what: &str) -> Result<&'a Descriptor> {
    let images: Vec<&Descriptor> = manifests.iter().filter(|entry| entry.is_image()).collect();
    let distinct = |entries: Vec<&'a Descriptor>| {
        let mut kept: Vec<&Descriptor> = Vec::new();
        for entry in entries {
            if !kept.iter().any(|other| other.digest == entry.digest) {
                kept.push(entry);
            }
        }
        kept
    };
    let host = distinct(images.iter().copied().filter(|entry| entry.arch() == Some(Arch::HOST)).collect());
    let all = distinct(images);
    let candidates = if host.is_empty() { &all } else { &host };
    match candidates.as_slice() {
        [] => Err(Error::invalid(format!("{what} lists no image"))),
        [one] => Ok(one),
        // Builds of one architecture for newer processors follow the plain one.
        [first, ..] if !host.is_empty() && all_named_platforms(candidates) => Ok(first),
        several => {
            let shown: Vec<String> = several.iter().take(CHOICES_SHOWN).map(|entry| entry.shown()).collect();
            let shown = shown.join(", ");
            let message = if host.is_empty() {
                format!("{what} holds no image for linux/{}, only: {shown}", Arch::HOST)
            } else {
                format!("{what} holds several images ({shown})")
            };
            Err(Error::invalid(message).hint("export one image alone"))
        }
    }
}

/// Whether the entries differ in platform alone, and not in name.
fn all_named_platforms(entries: &[&Descriptor]) -> bool {
    let name = |entry: &Descriptor| {
        entry.annotations.as_ref().and_then(|all| all.get("org.opencontainers.image.ref.name").cloned())
    };
    entries.iter().all(|entry| name(entry) == name(entries[0]))
}

/// The config and layers of a manifest, after everything about them that we do not run has been refused.
pub fn admit(document: Document, limits: &ImageLimits) -> Result<(Descriptor, Vec<Descriptor>)> {
    let (Some(config), Some(layers)) = (document.config, document.layers) else {
        return Err(Error::invalid("the image's manifest names no config or no layers"));
    };
    if !config.media_type.is_empty() && !MEDIA_CONFIGS.contains(&config.media_type.as_str()) {
        let media = config.media_type.escape_debug().to_string();
        return Err(Error::invalid(format!("this is an artifact of type '{media}', not a container image")));
    }
    layer_count_check(layers.len(), limits)?;
    let mut total: u64 = 0;
    for layer in &layers {
        layer_media_check(&layer.media_type)?;
        layer.digest()?;
        total = total.saturating_add(layer.size);
    }
    if total > limits.image_bytes_max {
        return Err(too_large(format!(
            "the image is {total} bytes; up to {} are accepted",
            limits.image_bytes_max
        )));
    }
    Ok((config, layers))
}

pub fn layer_count_check(count: usize, limits: &ImageLimits) -> Result<()> {
    match count {
        0 => Err(Error::invalid("the image has no layers, so there is nothing to run")),
        _ if count > limits.layers_max => {
            Err(too_large(format!("the image has {count} layers; up to {} are accepted", limits.layers_max)))
        }
        _ => Ok(()),
    }
}

fn layer_media_check(media: &str) -> Result<()> {
    if MEDIA_LAYERS.contains(&media) {
        return Ok(());
    }
    let why = if media.contains("encrypted") {
        "encrypted layers are not supported"
    } else if media.contains("foreign") || media.contains("nondistributable") {
        "layers that lie elsewhere than in the image are not supported"
    } else {
        "only tar layers, plain or packed with gzip or zstd, are supported"
    };
    Err(Error::invalid(format!("the image has a layer of type '{}': {why}", media.escape_debug())))
}

/// Puts the manifest together that nodes work from.
pub fn assemble(id: ImageId, config: Config, layers: &[LayerRead]) -> Result<Imported> {
    if !config.os.is_empty() && config.os != "linux" {
        return Err(Error::invalid(format!("the image is for {}, not for linux", config.os.escape_debug())));
    }
    let arch = arch_of(&config.architecture).ok_or_else(|| {
        let shown = config.architecture.escape_debug();
        Error::invalid(format!("the image is for the architecture '{shown}', which no node here can have"))
    })?;
    diff_ids_check(&config.rootfs.diff_ids, layers)?;
    let start = config.config.unwrap_or_default();
    let manifest = ImageManifest {
        id,
        platform: Platform { arch },
        layers: layers
            .iter()
            .map(|l| model::image::Layer { digest: l.digest.clone(), size: l.size, format: l.format })
            .collect(),
        entrypoint: start.entrypoint.unwrap_or_default(),
        command: start.cmd.unwrap_or_default(),
        env: start.env.unwrap_or_default().iter().filter_map(|pair| env_pair(pair)).collect(),
        user: start.user.filter(|user| !user.is_empty()),
        workdir: start.working_dir.filter(|dir| !dir.is_empty()),
    };
    strings_check(&manifest)?;
    Ok(Imported { manifest, size: layers.iter().map(|layer| layer.size).sum() })
}

fn diff_ids_check(expected: &[String], layers: &[LayerRead]) -> Result<()> {
    if expected.len() != layers.len() {
        let (config, manifest) = (expected.len(), layers.len());
        return Err(Error::invalid(format!(
            "the image's config speaks of {config} layers and its manifest of {manifest}"
        )));
    }
    for (number, (expected, layer)) in expected.iter().zip(layers).enumerate() {
        if layer.diff_id.as_str() != expected {
            return Err(Error::invalid(format!(
                "layer {} of the image does not have the content that its config names ({})",
                number + 1,
                expected.escape_debug()
            )));
        }
    }
    Ok(())
}

fn env_pair(pair: &str) -> Option<(String, String)> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}

/// No runtime can pass a zero byte on.
fn strings_check(manifest: &ImageManifest) -> Result<()> {
    let mut all = manifest
        .entrypoint
        .iter()
        .chain(&manifest.command)
        .chain(manifest.env.iter().flat_map(|(key, value)| [key, value]))
        .chain(&manifest.user)
        .chain(&manifest.workdir);
    match all.any(|text| text.contains('\0')) {
        true => Err(Error::invalid("the image's config has a zero byte in one of its settings")),
        false => Ok(()),
    }
}
