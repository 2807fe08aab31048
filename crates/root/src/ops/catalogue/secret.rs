//! Secrets in providers: sealed where they are kept, never shown.

use std::collections::BTreeMap;

use api::catalogue::SECRET_KEPT;
use model::{Error, Result, TenantId};
use serde_json::{Map, Value};
use template::Kind;
use template::entity::PluginType;

use super::Key;
use crate::cloud::{Caller, Cloud};
use crate::state::Row;
use crate::tables::DefinitionRecord;

/// Where a provider's fields are.
const FIELDS: &str = "provisioner";
/// Fields of these names are secret whatever a type says.
const ALWAYS: [&str; 6] = ["api_password", "api_secret", "password", "secret", "ssh_key", "ssh_password"];
/// A field that nobody described is secret when its name has one of these in it, or ends like a key.
const TELLING: [&str; 8] =
    ["password", "passwd", "secret", "token", "credential", "private", "apikey", "api_key"];
const KEY: &str = "key";
const PUBLIC: &str = "public";

fn context(tenant: Option<&TenantId>, name: &str, field: &str) -> String {
    format!("provider {} {name} {field}", tenant.map_or("-", TenantId::as_str))
}

/// A secret of a provider of this tenant.
pub fn open(
    cloud: &Cloud,
    tenant: &TenantId,
    name: &str,
    field: &str,
    sealed: &str,
) -> Result<zeroize::Zeroizing<Vec<u8>>> {
    cloud.master.unseal(&context(Some(tenant), name, field), sealed)
}

/// Whether a field is secret; `kind` is the provider's type, where somebody described it.
pub fn is_secret(kind: Option<&PluginType>, field: &str) -> bool {
    if ALWAYS.contains(&field) || kind.is_some_and(|kind| kind.is_secret(field)) {
        return true;
    }
    let name = field.to_ascii_lowercase();
    let is_telling = TELLING.iter().any(|word| name.contains(word));
    let is_key = name.ends_with(KEY) && !name.contains(PUBLIC);
    (is_telling || is_key) && !kind.is_some_and(|kind| kind.describes(field))
}

/// The entity without its secrets, and those sealed. `known` is the catalogue as it is meant to be.
pub fn sealed(
    cloud: &Cloud,
    caller: &Caller,
    known: &BTreeMap<Key, Value>,
    key: &Key,
    mut entity: Value,
    before: Option<&Row<DefinitionRecord>>,
) -> Result<(Value, BTreeMap<String, String>)> {
    let mut secrets = BTreeMap::new();
    if key.0 != Kind::Provider {
        return Ok((entity, secrets));
    }
    let kind = entity.get("providertype").and_then(Value::as_str).unwrap_or_default().to_owned();
    let kind = known.get(&(Kind::ProviderType, kind)).cloned().map(template::entity::read).transpose()?;
    let Some(fields) = entity.get_mut(FIELDS).and_then(Value::as_object_mut) else {
        return Ok((entity, secrets));
    };
    let names: Vec<String> = fields.keys().filter(|field| is_secret(kind.as_ref(), field)).cloned().collect();
    for field in names {
        let Some(value) = fields.remove(&field).and_then(text) else { continue };
        let place = format!("providers/{}.{FIELDS}.{field}", key.1);
        let sealed = match value.as_str() {
            SECRET_KEPT => before.and_then(|row| row.secrets.get(&field)).cloned().ok_or_else(|| {
                Error::invalid(format!("there is no secret that could be kept as '{field}'")).at(&place)
            })?,
            value => cloud.master.seal(&context(Some(&caller.tenant), &key.1, &field), value.as_bytes()),
        };
        secrets.insert(field, sealed);
    }
    Ok((entity, secrets))
}

/// A secret as it is sealed.
pub fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text).filter(|text| !text.is_empty()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// Whether the same secrets are kept already.
pub fn is_same(cloud: &Cloud, row: &DefinitionRecord, new: &BTreeMap<String, String>) -> bool {
    let open = |field: &str, sealed: &str| {
        cloud.master.unseal(&context(row.tenant.as_ref(), &row.name, field), sealed).ok()
    };
    row.secrets.len() == new.len()
        && new.iter().all(|(field, sealed)| {
            let kept = row.secrets.get(field);
            kept == Some(sealed)
                || kept
                    .and_then(|kept| open(field, kept))
                    .is_some_and(|kept| Some(kept) == open(field, sealed))
        })
}

/// As users see it.
pub fn masked(record: &DefinitionRecord) -> Value {
    mask(record.entity.clone(), record.secrets.keys())
}

pub fn mask<'a>(mut entity: Value, secrets: impl Iterator<Item = &'a String>) -> Value {
    for field in secrets {
        if let Some(entity) = entity.as_object_mut() {
            let fields = entity.entry(FIELDS).or_insert_with(|| Value::Object(Map::new()));
            if let Some(fields) = fields.as_object_mut() {
                fields.insert(field.clone(), SECRET_KEPT.into());
            }
        }
    }
    entity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_nobody_described_are_judged_by_their_names() {
        for field in [
            "api_key",
            "apiKeyId",
            "Passwd",
            "accessToken",
            "client_secret",
            "credentials",
            "private_pem",
            "ssh_key",
        ] {
            assert!(is_secret(None, field), "{field}");
        }
        for field in ["region", "ssh_public_key", "ssh_keypair", "keystone_url", "image"] {
            assert!(!is_secret(None, field), "{field}");
        }
        let described = serde_json::json!({
            "name": "x", "parameters": {"admin": {"fields": {
                "access_key": {"label": "a", "type": "text"}, "pin": {"label": "p", "type": "password"}
            }}}
        });
        let kind: PluginType = template::entity::read(described).expect("a type");
        assert!(!is_secret(Some(&kind), "access_key") && is_secret(Some(&kind), "pin"));
        assert!(is_secret(Some(&kind), "password"));
    }
}
