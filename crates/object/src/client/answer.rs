//! The answers that are read. Unknown elements are passed over.

use s3s::dto::{CommonPrefix, DeleteMarkerEntry, Object, ObjectVersion};
use s3s::xml::{DeResult, Deserialize, Deserializer};

/// One page of names.
#[derive(Debug, Default)]
pub struct Listing {
    pub objects: Vec<Object>,
    pub folders: Vec<CommonPrefix>,
    /// Where the next page begins.
    pub next: Option<String>,
}

impl<'xml> Deserialize<'xml> for Listing {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut page = Self::default();
        d.named_element("ListBucketResult", |d| {
            d.for_each_element(|d, name| {
                match name {
                    b"Contents" => page.objects.push(d.content()?),
                    b"CommonPrefixes" => page.folders.push(d.content()?),
                    b"NextContinuationToken" => page.next = Some(d.content()?),
                    _ => skip(d)?,
                }
                Ok(())
            })
        })?;
        Ok(page)
    }
}

/// One page of versions.
#[derive(Debug, Default)]
pub struct Versions {
    pub versions: Vec<ObjectVersion>,
    pub markers: Vec<DeleteMarkerEntry>,
}

impl<'xml> Deserialize<'xml> for Versions {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut page = Self::default();
        d.named_element("ListVersionsResult", |d| {
            d.for_each_element(|d, name| {
                match name {
                    b"Version" => page.versions.push(d.content()?),
                    b"DeleteMarker" => page.markers.push(d.content()?),
                    _ => skip(d)?,
                }
                Ok(())
            })
        })?;
        Ok(page)
    }
}

/// What a multi-delete left.
#[derive(Debug, Default)]
pub struct Left(pub Vec<s3s::dto::Error>);

impl<'xml> Deserialize<'xml> for Left {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut left = Self::default();
        d.named_element("DeleteResult", |d| {
            d.for_each_element(|d, name| {
                match name {
                    b"Error" => left.0.push(d.content()?),
                    _ => skip(d)?,
                }
                Ok(())
            })
        })?;
        Ok(left)
    }
}

/// A multipart upload that was begun.
#[derive(Debug, Default)]
pub struct Begun {
    pub upload: Option<String>,
}

impl<'xml> Deserialize<'xml> for Begun {
    fn deserialize(d: &mut Deserializer<'xml>) -> DeResult<Self> {
        let mut begun = Self::default();
        d.named_element("InitiateMultipartUploadResult", |d| {
            d.for_each_element(|d, name| {
                match name {
                    b"UploadId" => begun.upload = Some(d.content()?),
                    _ => skip(d)?,
                }
                Ok(())
            })
        })?;
        Ok(begun)
    }
}

/// Passes over an element, its text and whatever is in it.
fn skip(d: &mut Deserializer<'_>) -> DeResult {
    d.for_each_element(|d, _| skip(d))
}
