//! Secrets in providers: sealed where they are kept, never shown.

use std::collections::{BTreeMap, BTreeSet};

use api::catalogue::SECRET_KEPT;
use model::{Error, Faults, Result, TenantId};
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
/// In front of a secret that is more than a text. No text of a provider begins with it.
const JSON: &str = "\0json:";
/// Fields with one of these in their names say where secrets go; so does every field with an address in it.
const LEADING: [&str; 8] = ["endpoint", "url", "uri", "host", "server", "region", "proxy", "domain"];
const ADDRESS: &str = "://";

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

/// Whether a value has a secret somewhere inside. Nobody describes what is in there, so names tell.
pub fn has_secret(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(name, value)| is_secret(None, name) && !value.is_null() || has_secret(value))
        }
        Value::Array(items) => items.iter().any(has_secret),
        _ => false,
    }
}

/// The field that would bring a kept secret to another place than it was given for, if there is one. What a plugin
/// that nobody described does with its fields is not known, so any of them may.
fn led_elsewhere(
    kind: Option<&PluginType>,
    before: &Value,
    after: &Value,
    kept: &BTreeSet<String>,
) -> Option<String> {
    if before.get("providertype") != after.get("providertype") {
        return Some("providertype".to_owned());
    }
    let fields = |entity: &Value| entity.get(FIELDS).and_then(Value::as_object).cloned().unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    let leads = |name: &str| {
        let lower = name.to_ascii_lowercase();
        let is_address =
            |value: Option<&Value>| value.is_some_and(|value| value.to_string().contains(ADDRESS));
        kind.is_none()
            || LEADING.iter().any(|word| lower.contains(word))
            || is_address(before.get(name))
            || is_address(after.get(name))
    };
    // A key stays here when we log in with it, so a pool may grow with the key that is kept.
    let is_pool = |name: &str| name == "hosts" && kept.iter().all(|field| field == "ssh_key");
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let moved = |name: &&String| before.get(*name) != after.get(*name) && leads(name) && !is_pool(name);
    names.into_iter().find(moved).cloned()
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
    let was_secret = |field: &str, value: &Value| {
        *value == SECRET_KEPT && before.is_some_and(|row| row.secrets.contains_key(field))
    };
    let is_one = |(field, value): &(&String, &Value)| {
        is_secret(kind.as_ref(), field) || has_secret(value) || was_secret(field, value)
    };
    let names: Vec<String> = fields.iter().filter(is_one).map(|(field, _)| field.clone()).collect();
    let mut kept = BTreeSet::new();
    let mut faults = Faults::default();
    for field in names {
        let Some(value) = fields.remove(&field).and_then(text) else { continue };
        let sealed = match value.as_str() {
            SECRET_KEPT => {
                kept.insert(field.clone());
                let found = before.and_then(|row| row.secrets.get(&field)).cloned();
                if found.is_none() {
                    let why = format!("there is no secret that could be kept as '{field}'");
                    faults.add(&format!("{FIELDS}.{field}"), why);
                }
                found.unwrap_or_default()
            }
            value => cloud.master.seal(&context(Some(&caller.tenant), &key.1, &field), value.as_bytes()),
        };
        secrets.insert(field, sealed);
    }
    faults.done()?;
    let moved = before.filter(|_| !kept.is_empty()).and_then(|row| {
        let is_known = kind.as_ref().filter(|kind| kept.iter().all(|field| kind.describes(field)));
        led_elsewhere(is_known, &row.entity, &entity, &kept)
    });
    if let Some(moved) = moved {
        let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
        let why = format!("'{moved}' changes, so that what is kept may go elsewhere: {}", kept.join(", "));
        return Err(Error::invalid(why).at(FIELDS).hint("write the secrets anew together with it"));
    }
    Ok((entity, secrets))
}

/// A secret as it is sealed.
pub fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text).filter(|text| !text.is_empty()),
        Value::Null => None,
        other @ (Value::Object(_) | Value::Array(_)) => Some(format!("{JSON}{other}")),
        other => Some(other.to_string()),
    }
}

/// A secret that was opened, as it was written.
pub fn value(plain: &[u8]) -> Value {
    let text = String::from_utf8_lossy(plain);
    let json = text.strip_prefix(JSON).and_then(|json| serde_json::from_str(json).ok());
    json.unwrap_or_else(|| text.into_owned().into())
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

    #[test]
    fn secrets_inside_are_found_and_come_back_as_they_were() {
        let nested = serde_json::json!({"auth": [{"user": "u", "password": "very secret"}]});
        assert!(has_secret(&nested) && !has_secret(&serde_json::json!({"tags": ["password"]})));
        let text_of = |value: &Value| text(value.clone()).expect("it is no empty text");
        assert_eq!(value(text_of(&nested).as_bytes()), nested);
        let json_as_text = Value::from("{\"private_key\": 1}");
        assert_eq!(value(text_of(&json_as_text).as_bytes()), json_as_text);
    }
}
