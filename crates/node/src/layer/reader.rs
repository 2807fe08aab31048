//! The bytes of a layer: the blob held against its digest, and the tar inside read within bounds.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use model::image::{Layer, LayerFormat};
use model::{Digest, Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};

use super::disk;

/// How much is read at a time.
pub const CHUNK_BYTES: usize = 256 << 10;
/// What may lie between two entries: headers, long names, extended attributes. The tar crate keeps it in memory.
const HEADERS_BYTES_MAX: u64 = 1 << 20;

/// Refuses a blob that is not the one the manifest names.
pub fn blob_check(path: &Path, layer: &Layer) -> Result<()> {
    let mut file = File::open(path).map_err(disk)?;
    let size = file.metadata().map_err(disk)?.len();
    let mismatch = |why: String| {
        Error::invalid(format!("layer {} is refused: {why}", layer.digest))
            .hint("the image is damaged or was tampered with; import it again")
    };
    if size != layer.size {
        return Err(mismatch(format!("it has {size} bytes, and its manifest names {}", layer.size)));
    }
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).map_err(disk)? {
            0 => break,
            read => hasher.update(&chunk[..read]),
        }
    }
    let found = Digest::from_sha256(&hasher.finalize());
    if found != layer.digest {
        return Err(mismatch(format!("its content has the digest {found}")));
    }
    Ok(())
}

/// What is left of a layer's bounds, shared with the reader that the tar iterator owns.
pub struct Budget {
    /// Of the tar stream.
    stream: Cell<u64>,
    /// Of what comes out. A sparse file can claim far more than the stream holds.
    unpacked: Cell<u64>,
    /// Before the next entry must be there.
    headers: Cell<Option<u64>>,
    exceeded: Cell<bool>,
    max: u64,
}

impl Budget {
    pub fn new(max: u64) -> Rc<Self> {
        Rc::new(Self {
            stream: Cell::new(max),
            unpacked: Cell::new(max),
            headers: Cell::new(None),
            exceeded: Cell::new(false),
            max,
        })
    }

    pub fn headers_begin(&self) {
        self.headers.set(Some(HEADERS_BYTES_MAX));
    }

    pub fn headers_end(&self) {
        self.headers.set(None);
    }

    /// Counts content that is about to be written.
    pub fn unpacked_take(&self, bytes: u64) -> io::Result<()> {
        match self.unpacked.get().checked_sub(bytes) {
            Some(left) => self.unpacked.set(left),
            None => return Err(self.exceed()),
        }
        Ok(())
    }

    fn stream_take(&self, bytes: u64) -> io::Result<()> {
        let stream = self.stream.get().checked_sub(bytes);
        let headers = self.headers.get().map(|left| left.checked_sub(bytes));
        match (stream, headers) {
            (None, _) | (_, Some(None)) => Err(self.exceed()),
            (Some(stream), headers) => {
                self.stream.set(stream);
                self.headers.set(headers.flatten());
                Ok(())
            }
        }
    }

    fn exceed(&self) -> io::Error {
        self.exceeded.set(true);
        io::Error::other("over the limit")
    }

    /// What an error of reading means: a bound, our disk, or a damaged layer.
    pub fn explain(&self, error: io::Error, what: &str) -> Error {
        if self.exceeded.get() {
            let max = self.max;
            return Error::new(
                ErrorKind::TooLarge,
                format!("{what} is larger than {max} bytes once unpacked, or its headers are too long"),
            );
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
}

/// A tar stream that counts itself against a budget.
pub struct Metered {
    inner: Box<dyn Read>,
    budget: Rc<Budget>,
}

impl Metered {
    pub fn new(file: File, format: LayerFormat, budget: Rc<Budget>) -> io::Result<Self> {
        let file = BufReader::with_capacity(CHUNK_BYTES, file);
        let inner: Box<dyn Read> = match format {
            LayerFormat::Tar => Box::new(file),
            LayerFormat::TarGzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
            // The decoder refuses windows over 128 MiB by itself, which bounds its memory.
            LayerFormat::TarZstd => Box::new(zstd::stream::read::Decoder::with_buffer(file)?),
        };
        Ok(Self { inner, budget })
    }
}

impl Read for Metered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.budget.stream_take(read as u64)?;
        Ok(read)
    }
}
