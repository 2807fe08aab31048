//! Images made in code: tars, OCI layouts and docker archives, good and evil.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Write;

use model::{Digest, ImageId};
use root::image::{ImageLimits, ImageStore};
use serde_json::{Value, json};
use sha2::Digest as _;
use tar::{EntryType, Header};

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub fn id() -> ImageId {
    ImageId::from_random(7)
}

pub fn sha(bytes: &[u8]) -> Digest {
    Digest::from_sha256(&sha2::Sha256::digest(bytes))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A tar whose names are written as they are, however evil.
#[derive(Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn entry(mut self, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        self.header(kind, name, link, data.len() as u64);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// A header that claims `size`, without content.
    pub fn header(&mut self, kind: EntryType, name: &str, link: &str, size: u64) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(size);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
    }

    pub fn file(self, name: &str, data: impl AsRef<[u8]>) -> Self {
        self.entry(EntryType::Regular, name, "", data.as_ref())
    }

    pub fn folder(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", b"")
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"")
    }

    pub fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"")
    }

    pub fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }

    pub fn cut(self) -> Vec<u8> {
        self.0
    }
}

/// The blobs of an image by digest, as a layout or a registry holds them.
#[derive(Default, Clone)]
pub struct Blobs(pub BTreeMap<String, Vec<u8>>);

impl Blobs {
    pub fn put(&mut self, media: &str, bytes: Vec<u8>) -> Value {
        let descriptor = json!({ "mediaType": media, "digest": sha(&bytes).as_str(), "size": bytes.len() });
        self.0.insert(sha(&bytes).as_str().to_owned(), bytes);
        descriptor
    }

    pub fn put_json(&mut self, media: &str, value: &Value) -> Value {
        self.put(media, serde_json::to_vec(value).unwrap())
    }

    /// An image of layers given as (media type, blob, tar inside); returns the manifest's descriptor.
    pub fn image(&mut self, arch: &str, layers: &[(&str, Vec<u8>, Vec<u8>)]) -> Value {
        let diff_ids: Vec<_> = layers.iter().map(|(_, _, tar)| sha(tar).as_str().to_owned()).collect();
        let config = self.put_json(OCI_CONFIG, &config(arch, &diff_ids));
        let layers: Vec<_> = layers.iter().map(|(media, blob, _)| self.put(media, blob.clone())).collect();
        let manifest =
            json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers });
        let mut descriptor = self.put_json(OCI_MANIFEST, &manifest);
        descriptor["platform"] = json!({ "os": "linux", "architecture": arch });
        descriptor
    }

    /// A tar of an OCI layout whose index lists `manifests`.
    pub fn layout(&self, prefix: &str, manifests: &[Value]) -> Vec<u8> {
        let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests });
        let mut tar = Tar::default()
            .file(&format!("{prefix}oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .file(&format!("{prefix}index.json"), serde_json::to_vec(&index).unwrap());
        for (digest, bytes) in &self.0 {
            tar = tar.file(&format!("{prefix}blobs/{}", digest.replace(':', "/")), bytes);
        }
        tar.end()
    }
}

pub fn config(arch: &str, diff_ids: &[String]) -> Value {
    json!({
        "architecture": arch, "os": "linux",
        "config": {
            "Entrypoint": ["/bin/app"], "Cmd": ["--serve", "80"], "Env": ["PATH=/bin", "EMPTY=", "A=b=c"],
            "User": "1000:1000", "WorkingDir": "/srv",
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
}

/// An image of one plain layer as an OCI archive.
pub fn archive_of(layer: Vec<u8>) -> Vec<u8> {
    let mut blobs = Blobs::default();
    let manifest = blobs.image(host_arch(), &[(OCI_LAYER, layer.clone(), layer)]);
    blobs.layout("", &[manifest])
}

pub fn host_arch() -> &'static str {
    Box::leak(model::Arch::HOST.to_string().into_boxed_str())
}

pub struct Home {
    pub dir: tempfile::TempDir,
    pub store: ImageStore,
}

impl Home {
    pub fn new() -> Self {
        Self::with(ImageLimits::default())
    }

    pub fn with(limits: ImageLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open_with(dir.path(), limits).unwrap();
        Self { dir, store }
    }

    pub async fn import(&self, bytes: &[u8]) -> model::Result<root::image::Imported> {
        self.store.import(id(), bytes, 1 << 30).await
    }

    /// How many files lie in a folder of the store.
    pub fn count(&self, folder: &str) -> usize {
        std::fs::read_dir(self.dir.path().join(folder)).unwrap().count()
    }

    pub fn blob(&self, digest: &Digest) -> Vec<u8> {
        std::fs::read(self.store.blob_path(digest).unwrap()).unwrap()
    }
}
