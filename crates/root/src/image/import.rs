//! Uploads: spool the body, tell what it is by its content, stage the layers, commit.

use std::fs::File;
use std::io::Write;

use model::image::LayerFormat;
use model::{Digest, Error, ImageId, Result};
use sha2::{Digest as _, Sha256};
use tempfile::{NamedTempFile, TempPath};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::archive::{Index, Kind};
use super::blob::{CHUNK_BYTES, Staged};
use super::manifest::{self, Config, Descriptor, DockerImage, Document, LayerRead};
use super::tarball;
use super::{ImageStore, Imported, disk, found, too_large};

/// The uploaded bytes, whole and on disk.
pub(super) struct Spool {
    pub file: TempPath,
    pub size: u64,
    pub digest: Digest,
}

/// The tar of an image archive, open for reading at any place.
struct Opened {
    tar: File,
    index: Index,
}

impl ImageStore {
    /// Takes an image in whatever form it comes. `limit` bounds the body.
    pub async fn import(&self, id: ImageId, body: impl AsyncRead + Send, limit: u64) -> Result<Imported> {
        let spool = self.spool(body, limit).await?;
        self.blocking(move |store| store.import_spooled(id, spool)).await
    }

    pub(super) async fn spool(&self, body: impl AsyncRead + Send, limit: u64) -> Result<Spool> {
        tokio::pin!(body);
        let (file, path) = self.blobs.temp()?.into_parts();
        let mut file = tokio::fs::File::from_std(file);
        let mut hasher = Sha256::new();
        let mut size = 0;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = body.read(&mut chunk).await.map_err(|error| {
                Error::invalid(format!("the upload broke off after {size} bytes")).because(error)
            })?;
            if read == 0 {
                break;
            }
            size += read as u64;
            if size > limit {
                return Err(too_large(format!(
                    "the upload is larger than the {limit} bytes that are accepted"
                )));
            }
            hasher.update(&chunk[..read]);
            file.write_all(&chunk[..read]).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        file.sync_all().await.map_err(disk)?;
        Ok(Spool { file: path, size, digest: Digest::from_sha256(&hasher.finalize()) })
    }

    fn import_spooled(&self, id: ImageId, spool: Spool) -> Result<Imported> {
        let format = self.format_read(&spool.file)?;
        let mut index = Index::default();
        let file = File::open(&spool.file).map_err(disk)?;
        let summary = tarball::scan(file, format, "the archive", &self.limits, &mut |seen| index.note(seen))?;
        let (mut tar, _unpacked) = self.tar_open(&spool, format, &index)?;
        match index.kind(&mut tar, &self.limits)? {
            Kind::Layout { prefix } => self.layout_import(id, &prefix, Opened { tar, index }),
            Kind::Docker { prefix, images } => self.docker_import(id, &prefix, images, Opened { tar, index }),
            Kind::RootFs if summary.files == 0 => {
                Err(found::refused("an archive without any file was found"))
            }
            Kind::RootFs => self.rootfs_commit(id, spool, format, summary.diff_id, index.shell),
        }
    }

    fn format_read(&self, path: &std::path::Path) -> Result<LayerFormat> {
        let head = tarball::head_read(path)?;
        tarball::format_of(&head).ok_or_else(|| found::not_an_image(&head))
    }

    /// The tar where it can be read at any place: the upload itself, or an unpacked copy when an image archive
    /// came compressed. The second value keeps the copy's file.
    fn tar_open(
        &self,
        spool: &Spool,
        format: LayerFormat,
        index: &Index,
    ) -> Result<(File, Option<NamedTempFile>)> {
        let upload = File::open(&spool.file).map_err(disk)?;
        if format == LayerFormat::Tar || !index.has_marker() {
            return Ok((upload, None));
        }
        let mut copy = self.blobs.temp()?;
        // The scan has just read the same stream within its bounds.
        let mut tar = tarball::decoder(upload, format).map_err(disk)?;
        std::io::copy(&mut tar, copy.as_file_mut()).map_err(disk)?;
        copy.flush().map_err(disk)?;
        Ok((copy.reopen().map_err(disk)?, Some(copy)))
    }

    fn layout_import(&self, id: ImageId, prefix: &str, mut opened: Opened) -> Result<Imported> {
        let bytes = opened.index.document(&mut opened.tar, &format!("{prefix}index.json"), &self.limits)?;
        let mut document: Document = manifest::parse(&bytes, "index.json")?;
        for _ in 0..manifest::INDEX_DEPTH_MAX {
            let Some(manifests) = &document.manifests else { break };
            let chosen = manifest::choose(manifests, "the image archive")?.clone();
            document = manifest::parse(&self.layout_document(prefix, &chosen, &mut opened)?, "the manifest")?;
        }
        let (config, layers) = manifest::admit(document, &self.limits)?;
        let config: Config =
            manifest::parse(&self.layout_document(prefix, &config, &mut opened)?, "the config")?;
        let mut staged = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let digest = layer.digest()?;
            let slot = opened.index.slot(&blob_name(prefix, &digest))?;
            let blob = self.blobs.stage(&mut slot.reader(&mut opened.tar)?)?;
            if blob.digest != digest || blob.size != layer.size {
                return Err(mismatch(&format!("layer {}", number + 1), &digest));
            }
            staged.push(blob);
        }
        self.staged_commit(id, config, staged)
    }

    /// Reads a document of a layout and holds it against its digest.
    fn layout_document(&self, prefix: &str, descriptor: &Descriptor, opened: &mut Opened) -> Result<Vec<u8>> {
        let digest = descriptor.digest()?;
        let bytes = opened.index.document(&mut opened.tar, &blob_name(prefix, &digest), &self.limits)?;
        match Digest::from_sha256(&Sha256::digest(&bytes)) == digest {
            true => Ok(bytes),
            false => Err(mismatch("a document of the image", &digest)),
        }
    }

    fn docker_import(
        &self,
        id: ImageId,
        prefix: &str,
        images: Vec<DockerImage>,
        mut opened: Opened,
    ) -> Result<Imported> {
        let [image] = images.as_slice() else {
            let tags: Vec<&String> =
                images.iter().flat_map(|image| image.repo_tags.iter().flatten()).collect();
            return Err(Error::invalid(format!("the docker archive holds {} images {tags:?}", images.len()))
                .hint("save one image alone"));
        };
        manifest::layer_count_check(image.layers.len(), &self.limits)?;
        let name = format!("{prefix}{}", image.config);
        let config: Config =
            manifest::parse(&opened.index.document(&mut opened.tar, &name, &self.limits)?, "the config")?;
        let mut staged = Vec::new();
        for layer in &image.layers {
            let slot = opened.index.slot(&format!("{prefix}{layer}"))?;
            // A docker archive names no digest of the blob; the config's diff id is what the layer is held against.
            staged.push(self.blobs.stage(&mut slot.reader(&mut opened.tar)?)?);
        }
        self.staged_commit(id, config, staged)
    }

    /// Reads every staged layer through once, and commits them when all are sound.
    pub(super) fn staged_commit(&self, id: ImageId, config: Config, staged: Vec<Staged>) -> Result<Imported> {
        let mut layers = Vec::with_capacity(staged.len());
        for (number, blob) in staged.iter().enumerate() {
            layers.push(self.layer_read(blob, &format!("layer {} of the image", number + 1))?);
        }
        let imported = manifest::assemble(id, config, &layers)?;
        self.blobs.commit(staged)?;
        Ok(imported)
    }

    fn layer_read(&self, blob: &Staged, what: &str) -> Result<LayerRead> {
        let path = self.blobs.staged_path(blob);
        let format = self.format_read(&path).map_err(|_| Error::invalid(format!("{what} is not a tar")))?;
        let file = File::open(&path).map_err(disk)?;
        let summary = tarball::scan(file, format, what, &self.limits, &mut |_| {})?;
        Ok(LayerRead { digest: blob.digest.clone(), size: blob.size, format, diff_id: summary.diff_id })
    }

    /// A root file system is one layer, and the upload is its blob.
    fn rootfs_commit(
        &self,
        id: ImageId,
        spool: Spool,
        format: LayerFormat,
        diff_id: Digest,
        shell: bool,
    ) -> Result<Imported> {
        if spool.size > self.limits.image_bytes_max {
            return Err(too_large(format!("the image is larger than {} bytes", self.limits.image_bytes_max)));
        }
        let layer = LayerRead { digest: spool.digest.clone(), size: spool.size, format, diff_id };
        let imported = manifest::assemble(id, Config::of_rootfs(&layer.diff_id, shell), &[layer])?;
        self.blobs.commit(vec![Staged::new(spool.digest, spool.size, spool.file)])?;
        Ok(imported)
    }
}

fn blob_name(prefix: &str, digest: &Digest) -> String {
    format!("{prefix}blobs/sha256/{}", digest.hex())
}

pub(super) fn mismatch(what: &str, digest: &Digest) -> Error {
    Error::invalid(format!("{what} does not have the content its digest names ({digest})"))
        .hint("the image is damaged or was tampered with; export or pull it again")
}
