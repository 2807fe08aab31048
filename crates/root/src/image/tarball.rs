//! Reading tar streams that a stranger packed: formats told apart by content, everything bounded, and names that
//! would leave the layer refused.
//!
//! A node checks again while it unpacks, against the kernel; here the user gets the answer at once.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use model::image::LayerFormat;
use model::{Digest, Error, Result};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use super::{ImageLimits, disk, too_large};

/// A tar header, which is also what we look at to tell formats apart.
const HEAD_BYTES: usize = 512;
/// What may lie between two entries: headers, long names, extended attributes.
const HEADERS_BYTES_MAX: u64 = 1 << 20;
/// How much of a name is repeated in a refusal.
const NAME_SHOWN_MAX: usize = 200;
/// Names of symbolic links that we remember to see whether a later entry goes through one.
const LINK_NAMES_BYTES_MAX: usize = 64 << 20;

/// One entry, as the visitor of a scan sees it.
pub struct Seen<'a> {
    /// Clean and relative: `etc/passwd`. Empty for the root itself.
    pub name: &'a [u8],
    pub kind: EntryType,
    /// Where its content begins in the unpacked tar, and how long it is.
    pub offset: u64,
    pub size: u64,
    pub link: Option<&'a [u8]>,
}

/// What a whole scan found.
pub struct Summary {
    pub files: u64,
    /// Of the tar stream after decompression, what OCI calls the layer's diff id.
    pub diff_id: Digest,
}

/// How the content that begins with `head` is packed; nothing when it is no tar at all.
pub fn format_of(head: &[u8]) -> Option<LayerFormat> {
    match head {
        [0x1f, 0x8b, ..] => Some(LayerFormat::TarGzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(LayerFormat::TarZstd),
        _ if head.len() == HEAD_BYTES && header_plausible(head) => Some(LayerFormat::Tar),
        _ => None,
    }
}

/// How a file begins, as far as [`format_of`] looks.
pub fn head_read(path: &Path) -> Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    File::open(path).and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut head)).map_err(disk)?;
    Ok(head)
}

/// A header whose checksum is right, or the zeros of an empty archive.
fn header_plausible(head: &[u8]) -> bool {
    let mut header = tar::Header::new_old();
    header.as_mut_bytes().copy_from_slice(head);
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let expected = sum(&head[..148]) + sum(&head[156..]) + 8 * u32::from(b' ');
    head.iter().all(|byte| *byte == 0) || header.cksum().is_ok_and(|found| found == expected)
}

/// The tar stream inside `file`.
pub fn decoder(file: File, format: LayerFormat) -> io::Result<Box<dyn Read>> {
    let file = BufReader::with_capacity(super::blob::CHUNK_BYTES, file);
    Ok(match format {
        LayerFormat::Tar => Box::new(file),
        LayerFormat::TarGzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        // The decoder refuses windows over 128 MiB by itself, which bounds its memory.
        LayerFormat::TarZstd => Box::new(zstd::stream::read::Decoder::with_buffer(file)?),
    })
}

/// What is left of the bounds, shared with the reader that the tar iterator owns.
#[derive(Default)]
struct Budget {
    /// Of the whole stream.
    stream: Cell<u64>,
    /// Before the next entry must be there. The tar crate keeps long names and attributes in memory.
    headers: Cell<Option<u64>>,
    exceeded: Cell<bool>,
}

struct Metered {
    inner: Box<dyn Read>,
    hasher: Sha256,
    budget: Rc<Budget>,
}

impl Read for Metered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let stream = self.budget.stream.get().checked_sub(read as u64);
        let headers = self.budget.headers.get().map(|left| left.checked_sub(read as u64));
        if stream.is_none() || headers == Some(None) {
            self.budget.exceeded.set(true);
            return Err(io::Error::other("over the limit"));
        }
        self.budget.stream.set(stream.unwrap_or(0));
        self.budget.headers.set(headers.flatten());
        self.hasher.update(&into[..read]);
        Ok(read)
    }
}

/// Reads a tar to its end and shows every entry to `visit`. `what` names the tar in refusals.
pub fn scan(
    file: File,
    format: LayerFormat,
    what: &str,
    limits: &ImageLimits,
    visit: &mut dyn FnMut(&Seen<'_>),
) -> Result<Summary> {
    let budget = Rc::new(Budget::default());
    budget.stream.set(limits.layer_unpacked_bytes_max);
    let bad = |error: io::Error| damaged(error, &budget, what, limits);
    let inner = decoder(file, format).map_err(bad)?;
    let mut archive = tar::Archive::new(Metered { inner, hasher: Sha256::new(), budget: budget.clone() });
    let mut scan = Scan { budget: &budget, what, limits, names: Names::default(), files: 0, unpacked: 0 };
    scan.entries(&mut archive, visit)?;
    let files = scan.files;
    // What follows the end mark is padding, but it counts for the digest and must be whole.
    let mut metered = archive.into_inner();
    io::copy(&mut metered, &mut io::sink()).map_err(bad)?;
    Ok(Summary { files, diff_id: Digest::from_sha256(&metered.hasher.finalize()) })
}

/// A scan under way.
struct Scan<'a> {
    budget: &'a Budget,
    what: &'a str,
    limits: &'a ImageLimits,
    names: Names,
    files: u64,
    unpacked: u64,
}

impl Scan<'_> {
    fn entries(
        &mut self,
        archive: &mut tar::Archive<Metered>,
        visit: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<()> {
        let mut entries = archive.entries().map_err(|error| self.bad(error))?;
        for count in 1.. {
            self.budget.headers.set(Some(HEADERS_BYTES_MAX));
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(|error| self.bad(error))?;
            self.budget.headers.set(None);
            let max = self.limits.layer_entries_max;
            if count > max {
                return Err(too_large(format!("{} holds more than {max} entries", self.what)));
            }
            let (kind, size) = (entry.header().entry_type(), entry.size());
            let link = entry.link_name_bytes().map(|link| link.into_owned());
            let link = link.as_deref();
            let name = self.names.admit(&entry.path_bytes(), kind, link, self.what)?;
            self.files += u64::from(kind.is_file() || kind.is_gnu_sparse());
            visit(&Seen { name: &name, kind, offset: entry.raw_file_position(), size, link });
            self.content(&mut entry, size)?;
        }
        self.budget.headers.set(None);
        Ok(())
    }

    /// Reads an entry to its end. A sparse file can claim far more than the stream holds, so what comes out is
    /// counted too.
    fn content(&mut self, entry: &mut impl Read, size: u64) -> Result<()> {
        let left = self.limits.layer_unpacked_bytes_max - self.unpacked;
        let read = io::copy(&mut entry.take(left + 1), &mut io::sink()).map_err(|error| self.bad(error))?;
        if read > left {
            self.budget.exceeded.set(true);
            return Err(self.bad(io::Error::other("over the limit")));
        }
        if read < size {
            return Err(self.bad(io::ErrorKind::UnexpectedEof.into()));
        }
        self.unpacked += read;
        Ok(())
    }

    fn bad(&self, error: io::Error) -> Error {
        damaged(error, self.budget, self.what, self.limits)
    }
}

/// What an error of reading means: a bound, our disk, or a damaged archive.
fn damaged(error: io::Error, budget: &Budget, what: &str, limits: &ImageLimits) -> Error {
    if budget.exceeded.get() {
        let max = limits.layer_unpacked_bytes_max;
        return too_large(format!(
            "{what} is larger than {max} bytes once unpacked, or its headers are too long"
        ));
    }
    if error.raw_os_error().is_some() {
        return disk(error);
    }
    let how = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends in the middle".to_owned(),
        _ => error.to_string(),
    };
    Error::invalid(format!("{what} is damaged: {how}")).because(error)
}

/// The names of one layer: cleans them, and remembers its symbolic links.
#[derive(Default)]
struct Names {
    links: HashSet<Box<[u8]>>,
    bytes: usize,
}

impl Names {
    fn admit(&mut self, raw: &[u8], kind: EntryType, link: Option<&[u8]>, what: &str) -> Result<Vec<u8>> {
        let refuse = |why: &str| {
            let shown = String::from_utf8_lossy(&raw[..raw.len().min(NAME_SHOWN_MAX)]);
            Error::invalid(format!("{what} is refused: its entry '{}' {why}", shown.escape_debug()))
        };
        if kind == EntryType::XGlobalHeader {
            return Ok(Vec::new());
        }
        let name = name_clean(raw).map_err(refuse)?;
        if self.through_link(&name) {
            return Err(refuse("goes through a symbolic link"));
        }
        if kind.is_hard_link() {
            let target =
                name_clean(link.unwrap_or_default()).map_err(|_| refuse("is a hard link out of it"))?;
            if target.is_empty() || self.through_link(&target) {
                return Err(refuse("is a hard link out of it"));
            }
        }
        if kind.is_symlink() {
            self.bytes += name.len();
            if self.bytes > LINK_NAMES_BYTES_MAX {
                return Err(too_large(format!("{what} holds too many symbolic links")));
            }
            self.links.insert(name.clone().into());
        } else {
            self.links.remove(name.as_slice());
        }
        Ok(name)
    }

    /// Whether a folder on the way to `name` is a symbolic link.
    fn through_link(&self, name: &[u8]) -> bool {
        !self.links.is_empty()
            && name.iter().enumerate().any(|(at, byte)| *byte == b'/' && self.links.contains(&name[..at]))
    }
}

/// `./a//b/` becomes `a/b`; what points elsewhere is an error that says why.
pub fn name_clean(raw: &[u8]) -> Result<Vec<u8>, &'static str> {
    if raw.starts_with(b"/") {
        return Err("has an absolute name");
    }
    if raw.contains(&0) {
        return Err("has a zero byte in its name");
    }
    let mut clean = Vec::with_capacity(raw.len());
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("has '..' in its name"),
            _ => {}
        }
        if !clean.is_empty() {
            clean.push(b'/');
        }
        clean.extend_from_slice(part);
    }
    Ok(clean)
}
