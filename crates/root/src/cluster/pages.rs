//! What is larger than a record: packed, and cut into pages.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use model::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::{Store, Txn};

use super::record::PartRecord;
use crate::tables::{decode, encode, kind};

/// Bytes of a page before base64.
const PAGE: usize = 600 << 10;
/// Pages of one part.
const PAGES_MAX: usize = 64;
/// Bytes of a part when it is unpacked.
const PLAIN_MAX: u64 = 512 << 20;
const LEVEL: i32 = 3;

fn page_id(part: &str, page: usize) -> String {
    format!("{part}/{page:04}")
}

/// The pages of a part.
pub struct Packed(Vec<PartRecord>);

impl Packed {
    pub fn of<T: Serialize>(value: &T) -> Result<Self> {
        let text = serde_json::to_vec(value)
            .map_err(|error| Error::internal("a part of a cluster cannot be written").because(error))?;
        let packed = zstd::encode_all(text.as_slice(), LEVEL)?;
        let page = |bytes: &[u8]| PartRecord { data: STANDARD_NO_PAD.encode(bytes) };
        let pages: Vec<PartRecord> = packed.chunks(PAGE).map(page).collect();
        match pages.len() > PAGES_MAX {
            true => Err(Error::invalid("the cluster is too large to be kept")),
            false => Ok(Self(pages)),
        }
    }

    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn put(&self, txn: Txn, part: &str, tenant: &str) -> Txn {
        let pages = self.0.iter().enumerate();
        pages.fold(txn, |txn, (page, row)| {
            txn.put(kind::CLUSTER_PART, page_id(part, page), Some(tenant), None, encode(row))
        })
    }
}

/// Reads a part, which must be whole.
pub async fn read<T: DeserializeOwned>(store: &Store, part: &str) -> Result<T> {
    let broken = || Error::internal(format!("the pages '{part}' of a cluster cannot be read"));
    let rows = store.list_under(kind::CLUSTER_PART, &format!("{part}/")).await?;
    let mut packed = Vec::new();
    for row in &rows {
        let page: PartRecord = decode(&row.body)?;
        packed.extend(STANDARD_NO_PAD.decode(page.data).map_err(|_| broken())?);
    }
    let mut text = Vec::new();
    let reader = zstd::Decoder::new(packed.as_slice()).map_err(|error| broken().because(error))?;
    reader.take(PLAIN_MAX).read_to_end(&mut text).map_err(|error| broken().because(error))?;
    serde_json::from_slice(&text).map_err(|error| broken().because(error))
}
