//! Keeps a setting as the XML that S3 speaks, where its type knows no other form.

use s3s::xml;
use serde::{Deserialize, Deserializer, Serializer, de, ser};

pub fn serialize<T: xml::Serialize, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
    let Some(value) = value else { return to.serialize_none() };
    let mut text = Vec::new();
    value.serialize(&mut xml::Serializer::new(&mut text)).map_err(ser::Error::custom)?;
    to.serialize_some(&String::from_utf8(text).map_err(ser::Error::custom)?)
}

pub fn deserialize<'de, T: for<'x> xml::Deserialize<'x>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let mut reader = xml::Deserializer::new(text.as_bytes());
    T::deserialize(&mut reader).map(Some).map_err(de::Error::custom)
}
