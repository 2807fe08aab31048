//! The catalogue that clusters are made from: definitions per tenant, versioned, and always sound.
//!
//! A write takes many definitions at once. The catalogue as it would be is checked as a whole, and a write
//! that brings in something that dangles or contradicts itself is refused with all of it named. Plugin types
//! are operators' and serve every tenant; some come with the software.

mod builtin;
mod secret;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use api::{CatalogueChange, CatalogueWrite, Definition, Entities, Page};
use model::{Error, ErrorKind, Fault, Faults, Result, TenantId, shown};
use serde_json::Value;
use store::Txn;
use template::check::{Finding, Level, check_while};
use template::entity::PluginType;
use template::{Catalogue, Kind};

use self::builtin::builtin;
pub(crate) use self::secret::{
    has_secret, is_secret, open as secret_open, text as secret_text, value as secret_value,
};
use super::instance::{busy, race_wait};
use super::page::{Query, cut, glob};
use super::{DECISIONS_MAX, resource, turn, version_check};
use crate::cloud::{Caller, Cloud};
use crate::history::{self, Line};
use crate::state::{Row, Snapshot};
use crate::tables::{DefinitionRecord, decode, encode, kind};

pub const FILTERS: &[&str] = &["kind", "name"];
/// Earlier numbers of a definition that are kept.
const PAST_KEPT: u64 = 50;
/// How long templates of a catalogue are laid out on trial; what is not known then is not told.
const CHECK_MAX: Duration = Duration::from_secs(1);
/// Definitions of one tenant.
const DEFINITIONS_MAX: usize = 5_000;
/// Definitions that one write changes.
const CHANGES_MAX: usize = 1_000;
/// Faults that one answer names.
const FAULTS_MAX: usize = 100;

/// Kind and name.
type Key = (Kind, String);

fn kind_parse(folder: &str) -> Result<Kind> {
    let known = || Kind::ALL.map(Kind::folder).join(", ");
    let found = Kind::ALL.into_iter().find(|kind| kind.folder() == folder);
    found.ok_or_else(|| {
        Error::not_found(format!("kind '{}'", shown(folder)))
            .at("kind")
            .hint(format!("there are: {}", known()))
    })
}

/// Plugin types serve every tenant.
fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::ProviderType | Kind::AutomatorType)
}

fn owner(kind: Kind, tenant: &TenantId) -> Option<TenantId> {
    (!is_shared(kind)).then(|| tenant.clone())
}

fn record_id(owner: Option<&TenantId>, folder: &str, name: &str) -> String {
    format!("{}/{folder}/{name}", fence_id(owner))
}

/// The fence of a tenant's catalogue, or of what serves all.
fn fence_id(owner: Option<&TenantId>) -> &str {
    owner.map_or("-", TenantId::as_str)
}

fn rows<'a>(snapshot: &'a Snapshot, tenant: &TenantId) -> BTreeMap<Key, &'a Row<DefinitionRecord>> {
    let shared = snapshot.definitions.get(&None).into_iter().flatten();
    let own = snapshot.definitions.get(&Some(tenant.clone())).into_iter().flatten();
    let keyed = |((folder, name), row): (&'a (String, String), &'a Row<DefinitionRecord>)| {
        Some(((kind_parse(folder).ok()?, name.clone()), row))
    };
    shared.chain(own).filter_map(keyed).collect()
}

/// Everything a tenant may use, by kind and name. What was written hides what is built in.
fn entities(snapshot: &Snapshot, tenant: &TenantId) -> BTreeMap<Key, Value> {
    let named = |(kind, entity): (Kind, Value)| {
        let name = entity.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        ((kind, name), entity)
    };
    let mut all: BTreeMap<Key, Value> = builtin().into_iter().map(named).collect();
    all.extend(rows(snapshot, tenant).into_iter().map(|(key, row)| (key, secret::masked(row))));
    all
}

fn built(entities: &BTreeMap<Key, Value>) -> Result<Catalogue> {
    let mut catalogue = Catalogue::default();
    let mut faults = Faults::default();
    for ((kind, name), entity) in entities {
        let place = format!("{}/{name}", kind.folder());
        faults.inside(&place, catalogue.add(*kind, entity.clone()).map(drop));
    }
    faults.done()?;
    Ok(catalogue)
}

/// The tenant's catalogue, for the solver and the planner.
pub fn catalogue(snapshot: &Snapshot, tenant: &TenantId) -> Result<Catalogue> {
    built(&entities(snapshot, tenant))
}

/// What is known of a plugin: as it was written, or as it comes with the software.
pub(super) fn plugin_type(snapshot: &Snapshot, kind: Kind, name: &str) -> Result<Option<PluginType>> {
    let written = snapshot.definitions.get(&None).and_then(|all| {
        let row = all.get(&(kind.folder().to_owned(), name.to_owned()))?;
        Some(row.entity.clone())
    });
    let is_it = |(of, entity): &(Kind, Value)| *of == kind && entity["name"] == name;
    let found = written.or_else(|| builtin().into_iter().find(is_it).map(|(_, entity)| entity));
    found.map(template::entity::read).transpose()
}

/// Makes a transaction fail when the tenant, its catalogue or the plugin types changed meanwhile, and others fail
/// after it.
pub(super) fn fenced(txn: Txn, snapshot: &Snapshot, tenant: &TenantId) -> Result<Txn> {
    let row = snapshot.tenants.get(tenant).ok_or_else(|| Error::not_found("such tenant"))?;
    let txn = txn.check(kind::TENANT, tenant, Some(row.version));
    let shared = fence_id(None);
    let txn = match snapshot.catalogues.get(shared) {
        Some(version) => txn.check(kind::CATALOGUE, shared, Some(*version)),
        None => txn,
    };
    Ok(fence(txn, snapshot, Some(tenant)))
}

/// The sealed secrets of a provider.
pub(crate) fn secrets_of(snapshot: &Snapshot, tenant: &TenantId, provider: &str) -> BTreeMap<String, String> {
    let rows = rows(snapshot, tenant);
    rows.get(&(Kind::Provider, provider.to_owned())).map(|row| row.secrets.clone()).unwrap_or_default()
}

/// What was written. What comes with the software is everywhere, and written elsewhere it would hide a newer one.
pub fn export(cloud: &Cloud, caller: &Caller) -> Entities {
    let snapshot = cloud.state.snapshot();
    let mut out: BTreeMap<String, Vec<Value>> =
        Kind::ALL.iter().map(|kind| (kind.folder().to_owned(), Vec::new())).collect();
    for ((kind, _), row) in rows(&snapshot, &caller.tenant) {
        out.entry(kind.folder().to_owned()).or_default().push(secret::masked(row));
    }
    Entities(out)
}

fn view(row: &Row<DefinitionRecord>) -> Definition {
    Definition { version: row.version, ..view_of(row) }
}

fn view_of(record: &DefinitionRecord) -> Definition {
    Definition {
        kind: record.kind.clone(),
        name: record.name.clone(),
        number: record.number,
        version: 0,
        entity: secret::masked(record),
        changed_at: Some(record.changed_at),
        changed_by: Some(record.changed_by.clone()),
    }
}

fn view_built_in(kind: Kind, name: &str, entity: Value) -> Definition {
    let (kind, name) = (kind.folder().to_owned(), name.to_owned());
    Definition { kind, name, number: 0, version: 0, entity, changed_at: None, changed_by: None }
}

fn all(snapshot: &Snapshot, tenant: &TenantId) -> BTreeMap<Key, Definition> {
    let rows = rows(snapshot, tenant);
    let entities = entities(snapshot, tenant).into_iter();
    entities
        .map(|((kind, name), entity)| {
            let key = (kind, name);
            let found = match rows.get(&key) {
                Some(row) => view(row),
                None => view_built_in(kind, &key.1, entity),
            };
            (key, found)
        })
        .collect()
}

/// By kind and name.
pub fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Definition>> {
    let snapshot = cloud.state.snapshot();
    let wanted = query.get("kind").map(kind_parse).transpose()?;
    let cursor = |found: &Definition| format!("{}/{}", found.kind, found.name);
    let after = query.after.as_deref().unwrap_or_default();
    let mut items: Vec<Definition> = all(&snapshot, &caller.tenant)
        .into_iter()
        .filter(|((kind, name), _)| {
            wanted.is_none_or(|wanted| wanted == *kind)
                && query.get("name").is_none_or(|pattern| glob(pattern, name))
        })
        .map(|(_, found)| found)
        .collect();
    items.sort_by_key(cursor);
    items.retain(|found| cursor(found).as_str() > after);
    items.truncate(query.limit + 1);
    let next = cut(&mut items, query.limit, cursor);
    Ok(Page { items, next, seq: snapshot.seq })
}

pub async fn get(
    cloud: &Cloud,
    caller: &Caller,
    kind: &str,
    name: &str,
    number: Option<u64>,
) -> Result<Definition> {
    let kind = kind_parse(kind)?;
    let missing = || Error::not_found(format!("{kind} '{}'", shown(name)));
    let snapshot = cloud.state.snapshot();
    let found = all(&snapshot, &caller.tenant).remove(&(kind, name.to_owned())).ok_or_else(missing)?;
    let Some(number) = number.filter(|number| *number != found.number) else { return Ok(found) };
    let id = format!("{}@{number}", record_id(owner(kind, &caller.tenant).as_ref(), kind.folder(), name));
    let past = cloud.state.store().get(kind::DEFINITION_PAST, &id).await?;
    let missing = || Error::not_found(format!("number {number} of {kind} '{}'", shown(name)));
    let past: DefinitionRecord = decode(&past.ok_or_else(missing)?.body)?;
    Ok(view_of(&past))
}

/// A definition to be written.
struct New {
    key: Key,
    entity: Value,
    /// Where it stands in the request, such as `services[3]`.
    place: String,
}

fn read(body: &CatalogueWrite) -> Result<Vec<New>> {
    let mut faults = Faults::default();
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for (folder, entities) in &body.entities.0 {
        let kind = match kind_parse(folder) {
            Ok(kind) => kind,
            Err(error) => {
                faults.add(folder, error.message);
                continue;
            }
        };
        for (place, entity) in entities.iter().enumerate() {
            let mut alone = Catalogue::default();
            match alone.add(kind, entity.clone()) {
                Ok(name) if seen.insert((kind, name.clone())) => {
                    let place = format!("{folder}[{place}]");
                    all.push(New { key: (kind, name), entity: entity.clone(), place });
                }
                Ok(name) => {
                    faults.add(&format!("{folder}[{place}]"), format!("{kind} '{name}' is there twice"))
                }
                Err(error) => faults.inside(&format!("{folder}[{place}]"), Err(error)),
            }
        }
    }
    faults.done().map_err(|error| error.at("entities"))?;
    if all.len() > CHANGES_MAX {
        return Err(
            Error::invalid(format!("one write changes at most {CHANGES_MAX} definitions")).at("entities")
        );
    }
    Ok(all)
}

/// Names a plugin that no operator described. It can be written; whether a provisioner knows it shows later.
fn is_plugin_unknown(finding: &Finding) -> bool {
    finding.path == "providertype" || finding.path.ends_with(".type")
}

fn is_bad(finding: &Finding) -> bool {
    finding.level == Level::Error && !is_plugin_unknown(finding)
}

/// Where the definitions of a write stand in its request.
type Places = BTreeMap<Key, String>;

/// A finding as a fault of the request: at its place there, or else by kind and name.
fn fault(finding: &Finding, places: &Places) -> Fault {
    let written = places.get(&(finding.of, finding.name.clone()));
    let place = match written {
        Some(place) => format!("entities.{place}"),
        None => format!("{}/{}", finding.of.folder(), finding.name),
    };
    let message = format!("{} {}: {}", finding.kind, finding.name, finding.message);
    let error = Error::invalid(message);
    let error = if finding.path.is_empty() { error } else { error.at(&finding.path) };
    error.at(&place).faults().remove(0)
}

/// Errors that the new catalogue has and the old one did not.
fn fresh_errors(old: &[Finding], new: &[Finding], places: &Places) -> Result<()> {
    let mut faults = Faults::default();
    let bad: Vec<&Finding> = new.iter().filter(|one| is_bad(one) && !old.contains(one)).collect();
    bad.iter().take(FAULTS_MAX).for_each(|finding| faults.push(fault(finding, places)));
    if bad.len() > FAULTS_MAX {
        faults.add("entities", format!("{} more things are wrong", bad.len() - FAULTS_MAX));
    }
    faults.done()
}

/// What is not refused; first what is said of this write.
fn warnings(found: &[Finding], places: &Places) -> Vec<Fault> {
    let is_of_others = |one: &&Finding| !places.contains_key(&(one.of, one.name.clone()));
    let mut all: Vec<&Finding> = found.iter().filter(|one| !is_bad(one)).collect();
    all.sort_by_key(is_of_others);
    all.into_iter().take(FAULTS_MAX).map(|one| fault(one, places)).collect()
}

/// Writes definitions. Nobody says which ones were seen before, so that what others write meanwhile is no reason to refuse.
pub async fn write(cloud: &Cloud, caller: &Caller, body: CatalogueWrite) -> Result<CatalogueChange> {
    for _ in 0..DECISIONS_MAX {
        match write_once(cloud, caller, &body).await {
            Err(error) if error.kind == ErrorKind::VersionMismatch => race_wait(cloud).await,
            answer => return answer,
        }
    }
    Err(busy())
}

async fn write_once(cloud: &Cloud, caller: &Caller, body: &CatalogueWrite) -> Result<CatalogueChange> {
    let new = read(body)?;
    let snapshot = cloud.state.snapshot();
    let rows = rows(&snapshot, &caller.tenant);
    let before = entities(&snapshot, &caller.tenant);
    // What the same write says of a plugin counts, too.
    let mut after = before.clone();
    after.extend(new.iter().map(|one| (one.key.clone(), one.entity.clone())));
    let known = after.clone();
    let places: Places = new.iter().map(|one| (one.key.clone(), one.place.clone())).collect();
    let mut faults = Faults::default();
    let mut change = CatalogueChange::default();
    let mut kept = BTreeSet::new();
    let mut writes = Vec::new();
    for one in new {
        kept.insert(one.key.clone());
        let row = rows.get(&one.key).copied();
        let sealed = secret::sealed(cloud, caller, &known, &one.key, one.entity, row);
        let sealed = sealed.map_err(|error| error.at(&one.place).at("entities"));
        let Some((entity, secrets)) = faults.keep(sealed) else { continue };
        after.insert(one.key.clone(), secret::mask(entity.clone(), secrets.keys()));
        let named = format!("{}/{}", one.key.0.folder(), one.key.1);
        let is_same = match row {
            Some(row) => row.entity == entity && secret::is_same(cloud, row, &secrets),
            None => before.get(&one.key) == Some(&entity),
        };
        if is_same {
            change.unchanged += 1;
            continue;
        }
        if row.is_some() {
            change.changed.push(named)
        } else {
            change.created.push(named)
        }
        writes.push((one.key, entity, secrets));
    }
    operators_only(caller, writes.iter().map(|write| &write.0))?;
    faults.done()?;
    let gone: Vec<Key> = match body.replace {
        true => rows.keys().filter(|key| !is_shared(key.0) && !kept.contains(*key)).cloned().collect(),
        false => Vec::new(),
    };
    for key in &gone {
        after.remove(key);
        change.deleted.push(format!("{}/{}", key.0.folder(), key.1));
    }
    let found = sound(&caller.tenant, before, after, places.clone()).await?;
    for ((kind, name), entity, _) in writes.iter().filter(|write| is_shared(write.0.0)) {
        resource::plugin_check(&snapshot, *kind, name, Some(&template::entity::read(entity.clone())?))?;
    }
    change.warnings = warnings(&found, &places);
    if body.dry_run || (writes.is_empty() && gone.is_empty()) {
        return Ok(change);
    }
    let mut txn = fences(&snapshot, writes.iter().map(|write| &write.0).chain(&gone), &caller.tenant);
    for (key, entity, secrets) in writes {
        let row = rows.get(&key).copied();
        let record = DefinitionRecord {
            tenant: owner(key.0, &caller.tenant),
            kind: key.0.folder().to_owned(),
            name: key.1,
            number: row.map_or(1, |row| row.number + 1),
            entity,
            secrets,
            changed_at: cloud.now(),
            changed_by: caller.principal.user_name.to_string(),
        };
        txn = put(txn, &record, row);
    }
    for key in &gone {
        if let Some(row) = rows.get(key) {
            txn = remove(txn, row);
        }
    }
    let said = said(&change);
    cloud.state.commit(journal(txn, cloud, caller, said)).await?;
    Ok(change)
}

/// Refuses a change of what serves every tenant. To write it as it is changes nothing.
fn operators_only<'a>(caller: &Caller, keys: impl Iterator<Item = &'a Key>) -> Result<()> {
    let shared = keys.filter(|key| is_shared(key.0)).take(FAULTS_MAX);
    let names: Vec<String> = shared.map(|(kind, name)| format!("{kind} '{}'", shown(name))).collect();
    if names.is_empty() || caller.principal.is_operator() {
        return Ok(());
    }
    let names = names.join(", ");
    let why = format!("plugin types serve every tenant, and only operators write them: {names}");
    Err(Error::new(ErrorKind::Forbidden, why).at("entities"))
}

/// What is wrong with the catalogue as it would be; new errors are refused.
async fn sound(
    tenant: &TenantId,
    before: BTreeMap<Key, Value>,
    after: BTreeMap<Key, Value>,
    places: Places,
) -> Result<Vec<Finding>> {
    if after.len() > DEFINITIONS_MAX {
        return Err(
            Error::invalid(format!("a catalogue has at most {DEFINITIONS_MAX} definitions")).at("entities")
        );
    }
    turn::take(tenant, move || {
        let timed = |catalogue: &Catalogue| {
            let until = Instant::now() + CHECK_MAX;
            check_while(catalogue, &mut || Instant::now() < until)
        };
        let old = built(&before).map(|catalogue| timed(&catalogue)).unwrap_or_default();
        let new = timed(&built(&after)?);
        fresh_errors(&old, &new, &places)?;
        Ok(new)
    })
    .await
}

fn said(change: &CatalogueChange) -> String {
    let parts = [("created", &change.created), ("changed", &change.changed), ("deleted", &change.deleted)];
    let told = |(word, names): &(&str, &Vec<String>)| match names.as_slice() {
        [] => None,
        [one] => Some(format!("{one} {word}")),
        many => Some(format!("{} {word}", many.len())),
    };
    parts.iter().filter_map(told).collect::<Vec<_>>().join(", ")
}

/// Makes the transaction fail when another changed the same catalogue, and others fail after it.
fn fences<'a>(snapshot: &Snapshot, keys: impl Iterator<Item = &'a Key>, tenant: &TenantId) -> Txn {
    let owners: BTreeSet<Option<TenantId>> = keys.map(|key| owner(key.0, tenant)).collect();
    owners.iter().fold(Txn::new(), |txn, owner| fence(txn, snapshot, owner.as_ref()))
}

fn fence(txn: Txn, snapshot: &Snapshot, owner: Option<&TenantId>) -> Txn {
    let id = fence_id(owner);
    let body = encode(&crate::tables::CatalogueRecord::default());
    match snapshot.catalogues.get(id) {
        Some(version) => {
            txn.check(kind::CATALOGUE, id, Some(*version)).put(kind::CATALOGUE, id, None, None, body)
        }
        None => txn.insert(kind::CATALOGUE, id, None, None, body),
    }
}

fn put(txn: Txn, record: &DefinitionRecord, before: Option<&Row<DefinitionRecord>>) -> Txn {
    let tenant = record.tenant.as_ref().map(TenantId::as_str);
    let id = record_id(record.tenant.as_ref(), &record.kind, &record.name);
    let txn = txn.put(kind::DEFINITION, &id, tenant, None, encode(record));
    let Some(before) = before else { return txn };
    let txn = txn.put(
        kind::DEFINITION_PAST,
        format!("{id}@{}", before.number),
        tenant,
        None,
        encode(before.as_ref()),
    );
    match before.number.checked_sub(PAST_KEPT).filter(|old| *old > 0) {
        Some(old) => txn.delete(kind::DEFINITION_PAST, format!("{id}@{old}"), None),
        None => txn,
    }
}

fn remove(txn: Txn, row: &Row<DefinitionRecord>) -> Txn {
    let id = record_id(row.tenant.as_ref(), &row.kind, &row.name);
    let first = row.number.saturating_sub(PAST_KEPT).max(1);
    let txn = txn.delete(kind::DEFINITION, &id, Some(row.version));
    (first..row.number)
        .fold(txn, |txn, number| txn.delete(kind::DEFINITION_PAST, format!("{id}@{number}"), None))
}

fn journal(txn: Txn, cloud: &Cloud, caller: &Caller, message: String) -> Txn {
    let name = caller.tenant_name.as_str();
    let line = Line {
        tenant: Some(&caller.tenant),
        what: "catalogue.change",
        kind: kind::CATALOGUE,
        id: caller.tenant.as_str(),
        name,
        message,
    };
    history::journal(txn, cloud.now(), &caller.actor(), line)
}

pub async fn delete(cloud: &Cloud, caller: &Caller, kind: &str, name: &str, seen: Option<i64>) -> Result<()> {
    let kind = kind_parse(kind)?;
    if is_shared(kind) && !caller.principal.is_operator() {
        return Err(Error::new(ErrorKind::Forbidden, "only operators delete plugin types"));
    }
    let snapshot = cloud.state.snapshot();
    let key = (kind, name.to_owned());
    let rows = rows(&snapshot, &caller.tenant);
    let before = entities(&snapshot, &caller.tenant);
    let Some(row) = rows.get(&key) else {
        return Err(match before.contains_key(&key) {
            true => Error::conflict(format!("the {kind} '{name}' comes with the software")),
            false => Error::not_found(format!("{kind} '{}'", shown(name))),
        });
    };
    version_check(seen, row.version, "definition")?;
    let mut after = before.clone();
    after.remove(&key);
    sound(&caller.tenant, before, after, Places::new())
        .await
        .map_err(|error| Error::conflict(format!("the {kind} '{name}' is in use: {}", error.message)))?;
    if is_shared(kind) {
        // One that was written may have hidden one that comes with the software.
        let is_it = |(of, entity): &(Kind, Value)| *of == kind && entity["name"] == name;
        let then = builtin().into_iter().find(is_it).map(|(_, entity)| template::entity::read(entity));
        resource::plugin_check(&snapshot, kind, name, then.transpose()?.as_ref())?;
    }
    let txn = remove(fences(&snapshot, [&key].into_iter(), &caller.tenant), row);
    let txn = journal(txn, cloud, caller, format!("{}/{name} deleted", kind.folder()));
    cloud.state.commit(txn).await.map(drop)
}

/// Deletes the catalogue of a tenant with the tenant.
pub(super) fn forget(txn: Txn, snapshot: &Snapshot, tenant: &TenantId) -> Txn {
    let own = snapshot.definitions.get(&Some(tenant.clone())).into_iter().flatten();
    let txn = own.fold(txn, |txn, (_, row)| remove(txn, row));
    match snapshot.catalogues.contains_key(tenant.as_str()) {
        true => txn.delete(kind::CATALOGUE, tenant, None),
        false => txn,
    }
}
