//! What lies where in an uploaded archive, and which kind of archive it is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Take};

use model::{Error, Result};

use super::manifest::{self, DockerImage};
use super::tarball::{Seen, name_clean};
use super::{ImageLimits, disk, too_large};

/// An image archive holds some documents and layers; a root file system holds far more files than this.
const ENTRIES_KEPT_MAX: usize = 10_000;
/// `folder/blobs/sha256/<hex>` is the deepest name of an image archive.
const DEPTH_MAX: usize = 4;
/// Old docker archives name a layer twice through a link, never through a chain of them.
const LINKS_FOLLOWED_MAX: usize = 2;

/// Where a file's content lies in the unpacked tar.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    offset: u64,
    pub size: u64,
}

/// The files of an upload that may matter.
#[derive(Debug, Default)]
pub struct Index {
    files: BTreeMap<String, Slot>,
    links: BTreeMap<String, String>,
    /// There were more files than an image archive has.
    overflow: bool,
    /// A shell was seen where root file systems have one.
    pub shell: bool,
}

#[derive(Debug)]
pub enum Kind {
    /// An OCI layout whose files begin with this prefix.
    Layout {
        prefix: String,
    },
    Docker {
        prefix: String,
        images: Vec<DockerImage>,
    },
    RootFs,
}

impl Index {
    pub fn note(&mut self, seen: &Seen<'_>) {
        let Ok(name) = std::str::from_utf8(seen.name) else { return };
        self.shell |= matches!(name, "bin/sh" | "usr/bin/sh");
        if name.is_empty() || name.split('/').count() > DEPTH_MAX {
            return;
        }
        if self.files.len() + self.links.len() >= ENTRIES_KEPT_MAX {
            self.overflow = true;
        } else if seen.kind.is_file() {
            self.files.insert(name.to_owned(), Slot { offset: seen.offset, size: seen.size });
        } else if let Some(Ok(link)) = seen.link.map(std::str::from_utf8) {
            self.links.insert(name.to_owned(), link_resolved(name, link, seen.kind.is_hard_link()));
        }
    }

    /// Whether this looks like an image archive rather than a root file system.
    pub fn has_marker(&self) -> bool {
        self.prefix_of(&["oci-layout", "index.json"]).or_else(|| self.prefix_of(&["manifest.json"])).is_some()
    }

    /// Tells the kinds apart by their marker files, at the top or in the one folder that was packed.
    pub fn kind(&self, tar: &mut File, limits: &ImageLimits) -> Result<Kind> {
        if let Some(prefix) = self.prefix_of(&["oci-layout", "index.json"]) {
            self.overflow_check()?;
            return Ok(Kind::Layout { prefix });
        }
        if let Some(prefix) = self.prefix_of(&["manifest.json"]) {
            let document = self.document(tar, &format!("{prefix}manifest.json"), limits);
            // A file system may have a manifest.json of its own that has nothing to do with images.
            if let Some(images) =
                document.ok().and_then(|bytes| manifest::parse(&bytes, "manifest.json").ok())
            {
                self.overflow_check()?;
                return Ok(Kind::Docker { prefix, images });
            }
        }
        Ok(Kind::RootFs)
    }

    fn overflow_check(&self) -> Result<()> {
        match self.overflow {
            true => Err(too_large(format!("the image archive holds more than {ENTRIES_KEPT_MAX} files"))),
            false => Ok(()),
        }
    }

    fn prefix_of(&self, markers: &[&str]) -> Option<String> {
        let last = markers.last()?;
        let prefixes = self.files.keys().filter_map(|name| name.strip_suffix(last));
        let shallow = prefixes.filter(|p| p.is_empty() || p.find('/') == Some(p.len() - 1));
        let mut whole =
            shallow.filter(|prefix| markers.iter().all(|m| self.files.contains_key(&format!("{prefix}{m}"))));
        whole.next().map(str::to_owned)
    }

    /// Finds a file by name, through the links that docker archives have.
    pub fn slot(&self, name: &str) -> Result<Slot> {
        let mut name = name.to_owned();
        for _ in 0..=LINKS_FOLLOWED_MAX {
            if let Some(slot) = self.files.get(&name) {
                return Ok(*slot);
            }
            match self.links.get(&name) {
                Some(target) => name = target.clone(),
                None => break,
            }
        }
        Err(Error::invalid(format!("the image archive lacks '{}', which it speaks of", name.escape_debug())))
    }

    /// Reads a whole JSON document.
    pub fn document(&self, tar: &mut File, name: &str, limits: &ImageLimits) -> Result<Vec<u8>> {
        let slot = self.slot(name)?;
        if slot.size > limits.document_bytes_max {
            let max = limits.document_bytes_max;
            return Err(too_large(format!("'{}' is larger than {max} bytes", name.escape_debug())));
        }
        let mut bytes = Vec::new();
        slot.reader(tar)?.read_to_end(&mut bytes).map_err(disk)?;
        Ok(bytes)
    }
}

impl Slot {
    pub fn reader<'a>(&self, tar: &'a mut File) -> Result<Take<&'a mut File>> {
        tar.seek(SeekFrom::Start(self.offset)).map_err(disk)?;
        Ok(tar.take(self.size))
    }
}

/// What a link names, from the top of the archive. A target outside becomes a name that no file has.
fn link_resolved(name: &str, link: &str, hard: bool) -> String {
    let mut parts: Vec<&str> = if hard { Vec::new() } else { name.split('/').collect() };
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "" | "." => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    name_clean(joined.as_bytes()).map(|_| joined).unwrap_or_default()
}
