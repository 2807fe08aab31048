//! Checksums that clients give, ask for and get back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use http::HeaderMap;
use md5::Md5;
use s3s::S3ErrorCode;
use s3s::dto;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::fault::{Fault, Result};
use crate::record;

/// Characters of an unknown name that are told back.
const NAME_SHOWN: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As in `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// The header that carries the value.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Fault::new(
                S3ErrorCode::InvalidRequest,
                "Checksum algorithm provided is unsupported. Please try again with any of the valid types: \
                 [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
            )
        })
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    fn crc_bytes(self, value: u64) -> Vec<u8> {
        let all = value.to_be_bytes();
        if self == Self::Crc64Nvme { all.to_vec() } else { all[4..].to_vec() }
    }
}

/// Takes bytes one after the other.
pub enum Hasher {
    Crc(Algorithm, crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Hasher {
    pub fn new(algorithm: Algorithm) -> Self {
        match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => Self::Crc(algorithm, crc_fast::Digest::new(crc)),
            (Algorithm::Sha1, None) => Self::Sha1(Sha1::new()),
            (_, None) => Self::Sha256(Sha256::new()),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The value in base64.
    pub fn finish(self) -> String {
        STANDARD.encode(match self {
            Self::Crc(algorithm, digest) => algorithm.crc_bytes(digest.finalize()),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
        })
    }
}

pub fn of(algorithm: Algorithm, bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

/// The checksum of the parts' checksums, as composite uploads have it. `None` if a value is not base64.
pub fn composite<'a>(algorithm: Algorithm, parts: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut hasher = Hasher::new(algorithm);
    let mut count = 0;
    for part in parts {
        hasher.update(&STANDARD.decode(part).ok()?);
        count += 1;
    }
    Some(format!("{}-{count}", hasher.finish()))
}

/// The checksum of the whole from those of its parts and their sizes; CRCs alone can do that.
pub fn combined<'a>(algorithm: Algorithm, parts: impl IntoIterator<Item = (&'a str, u64)>) -> Option<String> {
    let crc = algorithm.crc()?;
    let mut whole: Option<u64> = None;
    for (part, size) in parts {
        let bytes = STANDARD.decode(part).ok()?;
        let value = bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        whole = Some(match whole {
            None => value,
            Some(before) => crc_fast::checksum_combine(crc, before, value, size),
        });
    }
    Some(STANDARD.encode(algorithm.crc_bytes(whole?)))
}

/// What a request says about the checksum of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub algorithm: Algorithm,
    /// Base64; `None` if it comes in a trailer or the store is to compute it.
    pub value: Option<String>,
    /// Whether the value must come in a trailer.
    pub trailer: bool,
}

/// What the names of headers with checksums begin with.
const PREFIX: &str = "x-amz-checksum-";
/// Headers that are called so and hold no checksum.
const NO_SUMS: [&str; 3] = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

/// Refuses checksums that would not be verified, in headers and announced for a trailer.
pub fn check(headers: &HeaderMap) -> Result<()> {
    let given = headers.keys().map(|name| name.as_str().to_owned());
    let trailers = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
    let trailers = trailers.flat_map(|names| names.split(',')).map(|name| name.trim().to_ascii_lowercase());
    let known =
        |name: &str| NO_SUMS.contains(&name) || Algorithm::ALL.into_iter().any(|one| one.header() == name);
    match given.chain(trailers).find(|name| name.starts_with(PREFIX) && !known(name)) {
        None => Ok(()),
        Some(name) => {
            let name: String = name.chars().take(NAME_SHOWN).collect();
            let why = format!(
                "This store does not verify the checksum '{name}'. Please use one of [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]."
            );
            Err(Fault::new(S3ErrorCode::InvalidRequest, why))
        }
    }
}

impl Asked {
    /// Of a request with a body. `None` if it says nothing.
    pub fn from(headers: &HeaderMap) -> Result<Option<Self>> {
        check(headers)?;
        let mut found: Option<Self> = None;
        let mut note = |algorithm, value, trailer| {
            if found.is_some() {
                return Err(Fault::new(
                    S3ErrorCode::InvalidRequest,
                    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
                ));
            }
            found = Some(Self { algorithm, value, trailer });
            Ok(())
        };
        for algorithm in Algorithm::ALL {
            if let Some(value) = text(headers, algorithm.header()) {
                note(algorithm, Some(value.to_owned()), false)?;
            }
        }
        let trailers = text(headers, "x-amz-trailer").unwrap_or_default();
        for name in trailers.split(',').map(str::trim) {
            if let Some(algorithm) =
                Algorithm::ALL.into_iter().find(|one| one.header().eq_ignore_ascii_case(name))
            {
                note(algorithm, None, true)?;
            }
        }
        let named =
            text(headers, "x-amz-sdk-checksum-algorithm").or(text(headers, "x-amz-checksum-algorithm"));
        match (&found, named.map(Algorithm::parse).transpose()?) {
            (Some(asked), Some(named)) if asked.algorithm != named => Err(Fault::new(
                S3ErrorCode::InvalidRequest,
                "Value for x-amz-sdk-checksum-algorithm header is invalid.",
            )),
            (None, Some(algorithm)) => Ok(Some(Self { algorithm, value: None, trailer: false })),
            _ => Ok(found),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// The 16 bytes of a `Content-MD5` header.
pub fn content_md5(value: &str) -> Result<[u8; 16]> {
    let bytes = STANDARD.decode(value.trim()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Fault::new(S3ErrorCode::InvalidDigest, "The Content-MD5 you specified is not valid."))
}

pub fn md5_base64(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

/// For answers: the field of its algorithm filled in.
pub fn shown(checksum: Option<&record::Checksum>) -> dto::Checksum {
    let mut shown = dto::Checksum::default();
    let Some(checksum) = checksum else { return shown };
    shown.checksum_type = Some(kind(checksum.full));
    let value = Some(checksum.value.clone());
    match Algorithm::parse(&checksum.algorithm) {
        Ok(Algorithm::Crc32) => shown.checksum_crc32 = value,
        Ok(Algorithm::Crc32c) => shown.checksum_crc32c = value,
        Ok(Algorithm::Crc64Nvme) => shown.checksum_crc64nvme = value,
        Ok(Algorithm::Sha1) => shown.checksum_sha1 = value,
        Ok(Algorithm::Sha256) => shown.checksum_sha256 = value,
        Err(_) => {}
    }
    shown
}

/// That of one part, by the algorithm of the whole.
pub fn of_part(whole: Option<&record::Checksum>, value: Option<&str>) -> dto::Checksum {
    let part = whole.zip(value).map(|(whole, value)| record::Checksum {
        algorithm: whole.algorithm.clone(),
        value: value.to_owned(),
        full: whole.full,
    });
    shown(part.as_ref())
}

pub fn kind(full: bool) -> dto::ChecksumType {
    let name = if full { dto::ChecksumType::FULL_OBJECT } else { dto::ChecksumType::COMPOSITE };
    dto::ChecksumType::from_static(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn values_are_those_of_the_standards() {
        let check = |algorithm, expected: &str| assert_eq!(of(algorithm, b"123456789"), expected);
        check(Algorithm::Crc32, &STANDARD.encode(0xcbf4_3926_u32.to_be_bytes()));
        check(Algorithm::Crc32c, &STANDARD.encode(0xe306_9283_u32.to_be_bytes()));
        check(Algorithm::Crc64Nvme, &STANDARD.encode(0xae8b_1486_0a79_9888_u64.to_be_bytes()));
        check(Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE=");
        check(Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=");
    }

    #[test]
    fn crcs_of_parts_combine_to_that_of_the_whole() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let (a, b) = (of(algorithm, b"1234"), of(algorithm, b"56789"));
            let whole = combined(algorithm, [(a.as_str(), 4), (b.as_str(), 5)]);
            assert_eq!(whole, Some(of(algorithm, b"123456789")));
        }
        assert_eq!(combined(Algorithm::Sha1, [("98O8HYCOBHMq32eZZczDTKeuNEE=", 9)]), None);
    }

    #[test]
    fn a_request_gives_one_checksum() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        assert_eq!(Asked::from(&headers(&[])).unwrap(), None);
        let asked = Asked::from(&headers(&[("x-amz-trailer", "x-amz-checksum-crc32c")])).unwrap().unwrap();
        assert_eq!(asked, Asked { algorithm: Algorithm::Crc32c, value: None, trailer: true });
        let two = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-sha1", "AAAA")];
        assert!(Asked::from(&headers(&two)).is_err());
        let odd = [("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-sdk-checksum-algorithm", "SHA1")];
        assert!(Asked::from(&headers(&odd)).is_err());
        assert!(Asked::from(&headers(&[("x-amz-sdk-checksum-algorithm", "CRC31")])).is_err());
        for other in ["sha512", "md5", "xxhash64", "xxhash3", "xxhash128", "new"] {
            let header: HeaderMap =
                [(format!("x-amz-checksum-{other}").parse().unwrap(), "AAAA".parse().unwrap())]
                    .into_iter()
                    .collect();
            assert!(Asked::from(&header).is_err(), "{other}");
            let trailer: HeaderMap =
                [("x-amz-trailer".parse().unwrap(), format!("a, X-Amz-Checksum-{other}").parse().unwrap())]
                    .into_iter()
                    .collect();
            assert!(Asked::from(&trailer).is_err(), "{other}");
        }
        let said = [
            ("x-amz-checksum-algorithm", "CRC32"),
            ("x-amz-checksum-type", "FULL_OBJECT"),
            ("x-amz-checksum-mode", "ENABLED"),
        ];
        assert!(Asked::from(&headers(&said)).is_ok());
    }
}
