//! `chef-solo`: recipes that run on the machine, without a server.
//!
//! Fields: `run_list`; `json_attributes`, a JSON text; `cookbooks`, `roles`, `data_bags`, names of staged archives (a
//! role is a file), all that are staged unless said; `timeout` in seconds. Attributes are the cluster's configuration, then
//! `json_attributes`, and `coopr`: `cluster` is the configuration with `nodes`, the nodes of the cluster.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::place::{self, Bundle, Place, words};
use super::{Automator, Job};
use crate::task::{Action, Fault, Report};

/// Where chef keeps what it has fetched.
const CACHE: &str = "/var/cache/banyan/chef";

pub struct Chef;

impl Automator for Chef {
    fn name(&self) -> &str {
        "chef-solo"
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            place::ready(job).await?;
            let looked = job.machine.run("command -v chef-solo", place::INSTALL_MAX).await?;
            match looked.is_good() {
                true => Ok(Report::default()),
                false => Err(Fault::invalid(format!(
                    "chef-solo is not on {}, and Debian has no package of it: use an image with Chef or Cinc",
                    job.machine.target().host
                ))),
            }
        }
        .boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            let attributes = attributes(job, &action)?;
            let place = Place::new(job);
            let done = converge(&place, job, &action, &attributes).await;
            place.leave().await;
            done
        }
        .boxed()
    }
}

async fn converge(
    place: &Place<'_>,
    job: &Job<'_>,
    action: &Action<'_>,
    attributes: &Value,
) -> Result<Report, Fault> {
    let named = |kind: &str| match action.fields.contains_key(kind) {
        true => Ok(action.list(kind)),
        false => job.resources.names(kind),
    };
    let mut bundle = Bundle::new(job.task)?;
    let at = place.path();
    let solo = format!(
        "cookbook_path '{at}/cookbooks'\nrole_path '{at}/roles'\ndata_bag_path '{at}/data_bags'\nfile_cache_path '{CACHE}'\n"
    );
    bundle.add("solo.rb", 0o600, solo.as_bytes())?;
    bundle.add("attributes.json", 0o600, attributes.to_string().as_bytes())?;
    for role in named("roles")? {
        bundle.add(&format!("roles/{role}"), 0o600, &place::small(job, "roles", &role)?)?;
    }
    place.fill(bundle).await?;
    for kind in ["cookbooks", "data_bags"] {
        for archive in named(kind)? {
            place.unpack(kind, &archive, kind).await?;
        }
    }
    place
        .run(
            action,
            "mkdir -p cookbooks roles data_bags && chef-solo --no-color -c solo.rb -j attributes.json",
        )
        .await
}

/// What recipes find in `node`.
fn attributes(job: &Job<'_>, action: &Action<'_>) -> Result<Value, Fault> {
    let run_list = action.list("run_list");
    if run_list.is_empty() {
        return Err(Fault::invalid("a chef-solo action needs 'run_list'"));
    }
    let config = job.task.config.get("cluster").and_then(Value::as_object).cloned().unwrap_or_default();
    let given = match action.fields.get("json_attributes") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map.clone(),
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| Fault::invalid(format!("'json_attributes' is no JSON object: {error}")))?,
        Some(_) => return Err(Fault::invalid("'json_attributes' is no JSON object")),
    };
    let mut cluster = config.clone();
    cluster.insert("nodes".to_owned(), job.task.nodes().cloned().unwrap_or_else(|| json!({})));
    let mut all = Value::Object(config);
    merge(&mut all, Value::Object(given));
    let told: Map<String, Value> =
        words(job.task, action).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    merge(&mut all, json!({"coopr": {"cluster": cluster}, "banyan": told, "run_list": run_list}));
    Ok(all)
}

/// The second over the first, map by map.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_merged_map_by_map() {
        let mut all = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut all, json!({"a": {"c": 3}, "d": [2], "e": null}));
        assert_eq!(all, json!({"a": {"b": 1, "c": 3}, "d": [2], "e": null}));
    }
}
