//! `multipart/form-data`, read as it comes: small fields first, then one file that streams.

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use s3s::{S3ErrorCode, StdError};

use crate::fault::{Fault, Result};

/// The most bytes of a form before its file.
const FIELDS_MAX: usize = 64 * 1024;
/// The most bytes of one part's headers.
const HEADERS_MAX: usize = 8 * 1024;
/// The most bytes of a boundary, as its standard has it.
const BOUNDARY_MAX: usize = 70;
/// What may follow the file and is not looked at.
const REST_MAX: usize = 64 * 1024;

/// The fields of a form, names in lower case, and the file after them.
pub struct Form<S> {
    pub fields: Vec<(String, String)>,
    /// The name that the client gave the file, without folders.
    pub filename: String,
    file: Reader<S>,
}

struct Reader<S> {
    body: S,
    buffer: BytesMut,
    /// A line end, two dashes and the boundary.
    delimiter: Vec<u8>,
}

/// Of a `Content-Type`; `None` if it is not that of a form.
pub fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    (1..=BOUNDARY_MAX).contains(&boundary.len()).then_some(boundary)
}

/// A parameter of a header such as `form-data; name="file"; filename="a.txt"`.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_start_matches(|char: char| char == ';' || char.is_whitespace()).trim_end();
        let (value, after) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = quoted.split_once('"')?;
                (value, after)
            }
            None => after.split_once(';').map_or((after, ""), |(value, after)| (value, after)),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value.trim().to_owned());
        }
        rest = after;
    }
}

impl<S> Form<S>
where
    S: Stream<Item = Result<Bytes, StdError>> + Unpin + Send + 'static,
{
    /// Reads up to the first byte of the file.
    pub async fn read(body: S, boundary: &str) -> Result<Self> {
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // The first boundary may stand at the very start; with a line end before it, it is like the others.
        let mut reader = Reader { body, buffer: BytesMut::from(&b"\r\n"[..]), delimiter };
        reader.value(FIELDS_MAX).await?;
        let mut fields = Vec::new();
        let mut size = 0;
        loop {
            let Some(head) = reader.head().await? else {
                return Err(argument("POST requires exactly one file upload per request."));
            };
            let name = disposition(&head, "name").ok_or_else(malformed)?.to_ascii_lowercase();
            if name == "file" {
                let filename = disposition(&head, "filename").unwrap_or_default();
                let filename = filename.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
                return Ok(Self { fields, filename, file: reader });
            }
            let value = reader.value(FIELDS_MAX - size).await?;
            let value = String::from_utf8(value.to_vec()).map_err(|_| malformed())?;
            size += name.len() + value.len();
            if size > FIELDS_MAX {
                return Err(too_long());
            }
            fields.push((name, value));
        }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The bytes of the file; an error if there are fewer or more than allowed.
    pub fn file(self, min: u64, max: u64) -> impl Stream<Item = Result<Bytes, StdError>> + Send + 'static {
        let start = (self.file, 0_u64, false);
        stream::try_unfold(start, move |(mut reader, mut size, done)| async move {
            if done {
                return Ok(None);
            }
            let (piece, last) = reader.piece().await?;
            size += piece.len() as u64;
            if size > max {
                let message = "Your proposed upload exceeds the maximum allowed size";
                return Err(StdError::from(Fault::new(S3ErrorCode::EntityTooLarge, message)));
            }
            if last && size < min {
                let message = "Your proposed upload is smaller than the minimum allowed size";
                return Err(StdError::from(Fault::new(S3ErrorCode::EntityTooSmall, message)));
            }
            if last {
                reader.drain().await;
            }
            Ok(Some((piece, (reader, size, last))))
        })
    }
}

/// A parameter of `Content-Disposition` among a part's headers.
fn disposition(head: &str, parameter_name: &str) -> Option<String> {
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (kind, parameters) = line.split_once(';')?;
    kind.trim().eq_ignore_ascii_case("form-data").then(|| parameter(parameters, parameter_name)).flatten()
}

impl<S> Reader<S>
where
    S: Stream<Item = Result<Bytes, StdError>> + Unpin,
{
    /// Adds bytes to the buffer; there must be more.
    async fn fill(&mut self) -> Result<()> {
        match self.body.next().await {
            Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
            Some(Err(error)) => {
                tracing::debug!(%error, "a form broke off");
                return Err(incomplete());
            }
            None => return Err(incomplete()),
        }
        Ok(())
    }

    /// What follows a boundary: headers of a part, or `None` at the end of the form.
    async fn head(&mut self) -> Result<Option<String>> {
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.buffer.len() > HEADERS_MAX {
                return Err(too_long());
            }
            self.fill().await?;
        };
        let head = String::from_utf8(self.buffer[..end].to_vec()).map_err(|_| malformed())?;
        self.buffer.advance(end + 4);
        Ok(Some(head))
    }

    /// A small value up to the next boundary.
    async fn value(&mut self, max: usize) -> Result<Bytes> {
        loop {
            if let Some(end) = find(&self.buffer, &self.delimiter) {
                let value = self.buffer.split_to(end).freeze();
                self.buffer.advance(self.delimiter.len());
                return Ok(value);
            }
            if self.buffer.len() > max + self.delimiter.len() {
                return Err(too_long());
            }
            self.fill().await?;
        }
    }

    /// The next bytes of the file, and whether they are its last.
    async fn piece(&mut self) -> Result<(Bytes, bool)> {
        loop {
            if let Some(end) = find(&self.buffer, &self.delimiter) {
                return Ok((self.buffer.split_to(end).freeze(), true));
            }
            // The end of the buffer may be the beginning of a boundary.
            let safe = (self.buffer.len() + 1).saturating_sub(self.delimiter.len());
            if safe > 0 {
                return Ok((self.buffer.split_to(safe).freeze(), false));
            }
            self.fill().await?;
        }
    }

    /// Reads what follows the file, so that the connection can be used again.
    async fn drain(&mut self) {
        let mut left = REST_MAX;
        while let Ok(Some(bytes)) = self.body.try_next().await {
            left = left.saturating_sub(bytes.len());
            if left == 0 {
                return;
            }
        }
    }
}

/// Where `wanted`, which begins with a line end, first stands.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == wanted[0]) {
        let at = from + at;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

fn argument(message: &'static str) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}

fn malformed() -> Fault {
    let message = "The body of your POST request is not well-formed multipart/form-data.";
    Fault::new(S3ErrorCode::MalformedPOSTRequest, message)
}

fn too_long() -> Fault {
    let message = "Your POST request fields preceding the upload file were too large.";
    Fault::new(S3ErrorCode::MaxPostPreDataLengthExceededError, message)
}

fn incomplete() -> Fault {
    Fault::new(S3ErrorCode::IncompleteBody, "The form broke off before its end.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn body(
        bytes: &[u8],
        cut: usize,
    ) -> impl Stream<Item = Result<Bytes, StdError>> + Unpin + Send + 'static {
        let pieces: Vec<_> =
            bytes.chunks(cut).map(|piece| Ok::<_, StdError>(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces)
    }

    fn encode(fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in fields {
            let part = format!("--b0\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            out.extend_from_slice(part.as_bytes());
        }
        let head = "--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x/y.txt\"\r\nContent-Type: a/b\r\n\r\n";
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(file);
        out.extend_from_slice(b"\r\n--b0--\r\n");
        out
    }

    async fn decode(bytes: &[u8], cut: usize) -> Result<(Vec<(String, String)>, String, Vec<u8>)> {
        let form = Form::read(body(bytes, cut), "b0").await?;
        let (fields, filename) = (form.fields.clone(), form.filename.clone());
        let pieces: Vec<Bytes> = Box::pin(form.file(0, u64::MAX))
            .try_collect()
            .await
            .map_err(|error| *error.downcast::<Fault>().unwrap())?;
        Ok((fields, filename, pieces.concat()))
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_read(
            file in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'b'), any::<u8>()], 0..200),
            value in "[ -~]{0,20}",
            cut in 1_usize..40,
        ) {
            prop_assume!(find(&[file.as_slice(), b"\r\n--b0"].concat(), b"\r\n--b0") == Some(file.len()));
            let bytes = encode(&[("Key", &value), ("acl", "private")], &file);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (fields, filename, read) = runtime.block_on(decode(&bytes, cut)).unwrap();
            let expected = [("key".to_owned(), value), ("acl".to_owned(), "private".to_owned())];
            prop_assert_eq!(fields, expected);
            prop_assert_eq!(filename, "y.txt");
            prop_assert_eq!(read, file);
        }

        #[test]
        fn a_form_that_breaks_off_is_an_error(keep in 0_usize..200, cut in 1_usize..40) {
            let bytes = encode(&[("key", "value")], b"file");
            // The last boundary is whole once its dashes and name are there.
            let end = bytes.len() - b"--\r\n".len();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(decode(&bytes[..keep.min(end - 1)], cut));
            prop_assert!(read.is_err());
        }
    }

    #[test]
    fn boundaries_are_found() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(boundary(text).as_deref(), expected);
        check("multipart/form-data; boundary=abc", Some("abc"));
        check("Multipart/Form-Data; charset=utf-8; boundary=\"a b\"", Some("a b"));
        check("multipart/form-data", None);
        check("multipart/form-data; boundary=", None);
        check("text/plain; boundary=abc", None);
        check(&format!("multipart/form-data; boundary={}", "x".repeat(71)), None);
    }

    #[tokio::test]
    async fn limits_hold() {
        let long = "v".repeat(FIELDS_MAX + 1);
        let bytes = encode(&[("key", &long)], b"");
        assert!(decode(&bytes, 1000).await.is_err());
        let half = "v".repeat(FIELDS_MAX / 2 + 1);
        let bytes = encode(&[("a", &half), ("b", &half)], b"");
        assert!(decode(&bytes, 1000).await.is_err());
        for (min, max) in [(0, 3), (5, 9)] {
            let form = Form::read(body(&encode(&[], b"file"), 7), "b0").await.unwrap();
            assert!(Box::pin(form.file(min, max)).try_collect::<Vec<_>>().await.is_err());
        }
    }
}
