//! `puppet`: manifests that are applied on the machine, without a master.
//!
//! Fields: `manifest`, the name of a staged manifest, or `code`, its text; `modules`, names of staged archives that
//! hold one module each; `timeout` in seconds. The fact `banyan` has `action`, `service`, `hostname`, `cluster`,
//! `node`, `config` (the cluster's configuration) and `settings` (the same, one text a path).

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::place::{self, Bundle, Place, words};
use super::{Automator, Job};
use crate::task::{Action, Fault, Report};

/// With detailed codes, 2 means that something was changed and nothing failed.
const APPLY: &str = "mkdir -p modules && { \
    puppet apply --detailed-exitcodes --color=false --pluginfactdest \"$PWD/facts\" \
    --modulepath \"$PWD/modules:/etc/puppet/code/modules:/usr/share/puppet/modules\" manifest.pp; \
    end=$?; [ $end = 2 ] && end=0; exit $end; }";

pub struct Puppet;

impl Automator for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        place::ready_program(job, "puppet", "puppet").boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            let manifest = place::source(job, &action, "manifest", "manifests")?;
            let place = Place::new(job);
            let done = apply(&place, job, &action, manifest).await;
            place.leave().await;
            done
        }
        .boxed()
    }
}

async fn apply(
    place: &Place<'_>,
    job: &Job<'_>,
    action: &Action<'_>,
    manifest: Bytes,
) -> Result<Report, Fault> {
    let mut bundle = Bundle::new(job.task)?;
    bundle.add("manifest.pp", 0o600, &manifest)?;
    bundle.add("facts/banyan.json", 0o600, json!({"banyan": facts(job, action)}).to_string().as_bytes())?;
    place.fill(bundle).await?;
    for module in action.list("modules") {
        place.unpack("modules", &module, "modules").await?;
    }
    place.run(action, APPLY).await
}

fn facts(job: &Job<'_>, action: &Action<'_>) -> Map<String, Value> {
    let mut facts = Map::new();
    for (name, value) in words(job.task, action) {
        facts.insert(name.to_owned(), json!(value));
    }
    facts.insert("config".to_owned(), job.task.config.get("cluster").cloned().unwrap_or_else(|| json!({})));
    facts.insert("settings".to_owned(), json!(job.task.settings()));
    facts
}
