//! A new cluster: its definitions are copied, its layout solved, its key made, its first job placed.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Cluster, ClusterCreate, ClusterStatus, ClusterWebhooks};
use model::{ClusterId, Error, Result, shown};
use serde_json::{Map, Value};
use store::Txn;
use template::entity::{ClusterTemplate, PluginType};
use template::{Catalogue, expand};

use super::order::{fits, gate_pass, job_insert, planned, quota_check};
use super::possible::possible;
use super::{SOLVE_MAX, journal, view};
use crate::cloud::{Caller, Cloud};
use crate::cluster::definition::{Definition, service_links};
use crate::cluster::key::Key;
use crate::cluster::pages::Packed;
use crate::cluster::plan::{Planned, Wish};
use crate::cluster::record::{ClusterRecord, Shape, definition_part};
use crate::cluster::{field_context, key_context};
use crate::ops::catalogue::{self, has_secret, is_secret, secret_text};
use crate::ops::instance::{busy, race_wait};
use crate::ops::once::{Once, once};
use crate::ops::{DECISIONS_MAX, raced};
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{encode, kind};

/// The number of the first node.
const NODE_FIRST: u32 = template::plan::NODENUM_FIRST;
/// Deepest nesting of a configuration.
const DEPTH_MAX: usize = 64;
/// Bytes of a webhook's address.
const URL_MAX: usize = 2_000;
/// The counter that gives clusters their numbers.
const NUMBER: &str = "cluster.number";

pub async fn create(
    cloud: &Cloud,
    caller: &Caller,
    body: ClusterCreate,
    key: Option<&Once>,
) -> Result<Cluster> {
    if let Some(config) = &body.config {
        config_check(config)?;
    }
    if let Some(hooks) = &body.webhooks {
        webhooks_check(cloud, hooks)?;
    }
    once(cloud, key, async || {
        let mut number = None;
        for _ in 0..DECISIONS_MAX {
            match create_now(cloud, caller, &body, key, &mut number).await {
                Err(Tried::Raced) => race_wait(cloud).await,
                Err(Tried::Refused(error)) => return Err(error),
                Ok(made) => return Ok(made),
            }
        }
        Err(busy())
    })
    .await
}

enum Tried {
    Raced,
    Refused(Error),
}

impl From<Error> for Tried {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

async fn create_now(
    cloud: &Cloud,
    caller: &Caller,
    body: &ClusterCreate,
    key: Option<&Once>,
    number: &mut Option<u64>,
) -> Result<Cluster, Tried> {
    let snapshot = cloud.state.snapshot();
    let tenant = snapshot.tenants.get(&caller.tenant).ok_or_else(|| Error::not_found("such tenant"))?;
    if snapshot.cluster(&caller.tenant, body.name.as_str()).is_some() {
        let why = format!("there is already a cluster named '{}'", body.name);
        return Err(Error::conflict(why).at("name").hint("choose another name or delete the old one").into());
    }
    quota_check(&snapshot, &caller.tenant, None, body.size)?;
    let catalogue = catalogue::catalogue(&snapshot, &caller.tenant)?;
    let (mut record, definition) = record(cloud, caller, &snapshot, &catalogue, body)?;
    let plan = planned(
        Arc::new(record.clone()),
        definition.clone(),
        Vec::new(),
        Wish::Create { size: body.size },
        SOLVE_MAX,
    )
    .await?;
    fits(&record, &plan.target, None)?;
    possible(&snapshot, &caller.tenant, &record.provider, &definition, &plan)?;
    if number.is_none() {
        *number = Some(cloud.state.store().counter_next(NUMBER).await.map_err(commit_error)?);
    }
    record.number = number.unwrap_or_default();
    record.shape.layout.clone_from(&plan.target.layout);
    record.cost = plan.cost;
    record.machines = plan.machines;
    record.node_next = plan.node_next;
    let row = Row { version: 0, value: Arc::new(record) };
    let mut answer = view::cluster(&snapshot, &row);
    let id = Some(row.tenant.as_str());
    let mut txn =
        Txn::new().insert(kind::CLUSTER, &row.id, id, Some(row.name.as_str()), encode(row.as_ref()));
    if let Some(key) = key {
        txn = key.record(txn, cloud, caller, &answer);
    }
    txn = Packed::of(&definition)?.put(txn, &definition_part(&row.id, 1), row.tenant.as_str());
    txn = job_insert(txn, cloud, &row, (ClusterStatus::Pending, false), plan, &caller.actor())?;
    txn = txn.check(kind::TENANT, &caller.tenant, Some(tenant.version));
    txn = gate_pass(&snapshot, &caller.tenant, txn);
    let told = format!("{} machines from template {}", body.size, row.template);
    txn = journal(txn, cloud.now(), &caller.actor(), &row, "create", told);
    match cloud.state.try_commit(txn).await {
        Ok(committed) => {
            answer.version = committed.versions[0];
            Ok(answer)
        }
        Err(error) if raced(&error) => Err(Tried::Raced),
        Err(store::CommitError::AlreadyExists { kind, .. }) if kind == kind::GATE => Err(Tried::Raced),
        Err(error) => Err(commit_error(error).into()),
    }
}

fn record(
    cloud: &Cloud,
    caller: &Caller,
    snapshot: &Snapshot,
    catalogue: &Catalogue,
    body: &ClusterCreate,
) -> Result<(ClusterRecord, Definition)> {
    let stored = catalogue.template(&body.template).map_err(|error| error.at("template"))?;
    let whole = template::compose::resolve(catalogue, stored)?;
    let provider = body.provider.clone().or_else(|| whole.defaults.provider.clone()).ok_or_else(|| {
        Error::invalid(format!("neither the request nor template {} names a provider", whole.name))
            .at("provider")
    })?;
    let (mut definition, template) = Definition::of(catalogue, &body.template, &provider)?;
    definition.secrets = catalogue::secrets_of(snapshot, &caller.tenant, &provider);
    let id = ClusterId::from_random(rand::random());
    let (fields, secrets) = fields(cloud, catalogue, &definition, &provider, &id, &body.provider_fields)?;
    let lease = template.administration.leaseduration.unwrap_or_default();
    let now = cloud.now();
    let granted = lease.granted(body.lease_ms).map_err(|error| error.at("lease_ms"))?;
    let dns_suffix = body.dns_suffix.clone().or_else(|| template.defaults.dns_suffix.clone());
    if let Some(suffix) =
        dns_suffix.as_deref().filter(|suffix| !template::compose::dns_suffix_is_good(suffix))
    {
        return Err(Error::invalid(format!("'{}' is no DNS suffix such as example.com", shown(suffix)))
            .at("dns_suffix"));
    }
    let key = Key::from_seed(&zeroize::Zeroizing::new(rand::random::<[u8; 32]>()), body.name.as_str())?;
    let private_key = cloud.master.seal(&key_context(&id), key.private.as_bytes());
    let shape = shape(&template, body)?;
    let record = ClusterRecord {
        tenant: caller.tenant.clone(),
        name: body.name.clone(),
        number: 0,
        description: body.description.clone(),
        template: body.template.clone(),
        provider,
        hardwaretype: body.hardwaretype.clone(),
        imagetype: body.imagetype.clone(),
        dns_suffix,
        shape,
        before: None,
        machines: body.size,
        cost: None,
        provider_fields: fields,
        provider_secrets: secrets,
        public_key: key.public.clone(),
        private_key,
        webhooks: webhooks(cloud, &template, body)?,
        status: ClusterStatus::Pending,
        message: None,
        links: template.links.clone(),
        service_links: service_links(&definition.catalogue()?),
        job: 1,
        paused: false,
        aborted_by: None,
        node_next: NODE_FIRST,
        lease,
        expires_at: lease_end(granted, now),
        warned_of: None,
        created_at: now,
        created_by: caller.principal.user_name.to_string(),
        owner: caller.principal.user.clone(),
        id,
    };
    Ok((record, definition))
}

/// What a cluster would be like.
pub async fn preview(cloud: &Cloud, caller: &Caller, ask: &api::ClusterAsk) -> Result<Planned> {
    let snapshot = cloud.state.snapshot();
    let catalogue = catalogue::catalogue(&snapshot, &caller.tenant)?;
    let body = ClusterCreate {
        name: caller.tenant_name.clone(),
        template: ask.template.clone(),
        size: ask.size,
        description: String::new(),
        provider: ask.provider.clone(),
        provider_fields: Map::new(),
        services: ask.services.clone(),
        hardwaretype: ask.hardwaretype.clone(),
        imagetype: ask.imagetype.clone(),
        lease_ms: None,
        dns_suffix: None,
        config: None,
        set: Map::new(),
        webhooks: None,
    };
    let (record, definition) = record(cloud, caller, &snapshot, &catalogue, &body)?;
    let (provider, wish) = (record.provider.clone(), Wish::Create { size: ask.size });
    let plan = planned(Arc::new(record), definition.clone(), Vec::new(), wish, SOLVE_MAX).await?;
    possible(&snapshot, &caller.tenant, &provider, &definition, &plan)?;
    Ok(plan)
}

fn lease_end(granted: u64, now: model::Timestamp) -> Option<model::Timestamp> {
    let ms = i64::try_from(granted).ok().filter(|ms| *ms > 0 && *ms < i64::MAX / 4_000)?;
    Some(now.plus_ms(ms))
}

fn shape(template: &ClusterTemplate, body: &ClusterCreate) -> Result<Shape> {
    let services = if body.services.is_empty() { &template.defaults.services } else { &body.services };
    let mut services: Vec<String> = services.clone();
    services.sort();
    services.dedup();
    let mut config = body.config.clone().unwrap_or_else(|| template.defaults.config.clone());
    for (path, value) in &body.set {
        config_set(&mut config, path, value)?;
    }
    if !body.set.is_empty() {
        config_check(&config)?;
    }
    Ok(Shape { definition: 1, services, config, layout: Default::default() })
}

/// Sets one value by its path; objects on the way are made where they are missing.
fn config_set(config: &mut Map<String, Value>, path: &str, value: &Value) -> Result<()> {
    let wrong = |why: &str| Error::invalid(format!("'{}' {why}", shown(path))).at("set");
    let parts: Vec<&str> = path.split('.').collect();
    if parts.len() > DEPTH_MAX || parts.iter().any(|part| part.is_empty()) {
        return Err(wrong("is no path of names with dots between them"));
    }
    let (last, way) = parts.split_last().expect("a text has a first part");
    let mut inner = config;
    for part in way {
        let next = inner.entry(*part).or_insert_with(|| Value::Object(Map::new()));
        inner = next.as_object_mut().ok_or_else(|| wrong("leads through a value that is no object"))?;
    }
    inner.insert((*last).to_owned(), value.clone());
    Ok(())
}

/// What the user set of the provider, plain and sealed. A field that is not the user's to set is refused.
fn fields(
    cloud: &Cloud,
    catalogue: &Catalogue,
    definition: &Definition,
    provider: &str,
    id: &ClusterId,
    given: &Map<String, Value>,
) -> Result<(Map<String, Value>, BTreeMap<String, String>)> {
    let account = catalogue.provider(provider).map_err(|error| error.at("provider"))?;
    let described = catalogue.providertypes.get(&account.providertype);
    // One that could say where the machines are made would be told the account's secrets there.
    if described.is_none() && !given.is_empty() {
        let kind = shown(&account.providertype);
        return Err(Error::invalid(format!(
            "nobody described the provider type '{kind}', so users set none of its fields"
        ))
        .at("provider_fields")
        .hint("operators describe provider types in the catalogue"));
    }
    if let Some(kind) = described {
        let (plain, sensitive) = kind.fields_grouped(given);
        if let Some(foreign) =
            given.keys().find(|name| !plain.contains_key(*name) && !sensitive.contains_key(*name))
        {
            return Err(Error::invalid(format!("the provider has no field '{}' for users", shown(foreign)))
                .at("provider_fields"));
        }
        let has = |field: &str| {
            given.contains_key(field)
                || account.provisioner.contains_key(field)
                || definition.secrets.contains_key(field)
        };
        missing(kind, &has)?;
    }
    let (mut plain, mut sealed) = (Map::new(), BTreeMap::new());
    for (field, value) in given {
        if !is_secret(described, field) && !has_secret(value) {
            plain.insert(field.clone(), value.clone());
        } else if let Some(text) = secret_text(value.clone()) {
            sealed.insert(field.clone(), cloud.master.seal(&field_context(id, field), text.as_bytes()));
        }
    }
    Ok((plain, sealed))
}

fn missing(kind: &PluginType, has: &dyn Fn(&str) -> bool) -> Result<()> {
    for side in [&kind.parameters.admin, &kind.parameters.user] {
        let missing = side.missing(has);
        if !missing.is_empty() {
            let sets: Vec<String> = missing.iter().map(|set| set.join(" and ")).collect();
            let why = format!("the provider needs {}", sets.join(", or "));
            return Err(Error::invalid(why).at("provider_fields"));
        }
    }
    Ok(())
}

/// The request's webhooks, or those of the template's administration.
fn webhooks(
    cloud: &Cloud,
    template: &ClusterTemplate,
    body: &ClusterCreate,
) -> Result<Option<ClusterWebhooks>> {
    if body.webhooks.is_some() {
        return Ok(body.webhooks.clone());
    }
    let Some(written) = template.administration.other.get("webhooks") else { return Ok(None) };
    let read: ClusterWebhooks = serde_json::from_value(written.clone())
        .map_err(|error| Error::invalid(format!("the webhooks of template {}: {error}", template.name)))?;
    webhooks_check(cloud, &read)?;
    Ok(Some(read))
}

fn webhooks_check(cloud: &Cloud, hooks: &ClusterWebhooks) -> Result<()> {
    for (field, url) in [("start", &hooks.start), ("success", &hooks.success), ("failure", &hooks.failure)] {
        let Some(url) = url else { continue };
        let parsed = reqwest::Url::parse(url).ok();
        let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let wrong = |why: String| Error::invalid(why).at(&format!("webhooks.{field}"));
        match parsed.filter(|_| url.len() <= URL_MAX) {
            None => return Err(wrong(format!("'{}' is no address with http:// or https://", shown(url)))),
            Some(parsed) if !object::hook::allows(&parsed, cloud.config.listen.ip()) => {
                return Err(wrong(format!("'{}' is an address that webhooks may not have", shown(url)))
                    .hint(
                        "link-local addresses, and those of root's own machine unless it listens there only",
                    ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Refuses macros that are none, before anything is made.
pub fn config_check(config: &Map<String, Value>) -> Result<()> {
    config.iter().try_for_each(|(name, value)| {
        value_check(value, 0).map_err(|error| error.at(&format!("config.{name}")))
    })
}

fn value_check(value: &Value, depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid(format!("it is nested deeper than {DEPTH_MAX}")));
    }
    match value {
        Value::String(text) if text.contains('\0') => {
            Err(Error::invalid("a text has a NUL, which no program can be given"))
        }
        Value::String(text) => expand::check(text),
        Value::Array(all) => all.iter().try_for_each(|one| value_check(one, depth + 1)),
        Value::Object(all) => all.values().try_for_each(|one| value_check(one, depth + 1)),
        _ => Ok(()),
    }
}
