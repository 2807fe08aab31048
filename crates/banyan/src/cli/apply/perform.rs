//! Doing what the plan says, and waiting for what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use api::{
    AppCreate, AppUpdate, Client, InstanceCreate, TenantCreate, UserCreate, UserUpdate, WorkloadCreate,
    WorkloadUpdate,
};
use model::Name;

use super::plan::{Act, Plan, found, members, password};
use super::{client_for, placed};
use crate::cli::{Waiting, image, instance};
use crate::failure::Result;
use crate::manifest::{AppSpec, Body, ImageSpec, Resource, WorkloadManifest};
use crate::output::note;
use crate::session::Session;
use crate::wait::workload::{self as rollout, Goal as Rollout};
use crate::wait::{Goal, wait};

/// Longest that the removal of what is made anew may take.
const REMOVAL_LIMIT: Duration = Duration::from_secs(120);

/// Something that was begun and is to be waited for.
enum Begun {
    Instance(Box<api::Instance>),
    Workload(Name, Rollout),
}

pub async fn all(session: &Session, resources: &[Resource], plans: &[Plan], waiting: &Waiting) -> Result<()> {
    let mut begun = Vec::new();
    for (resource, plan) in resources.iter().zip(plans) {
        let client = client_for(session, resource);
        if !plan.changes() {
            let under_way = under_way(&client, resource).await?;
            begun.extend(under_way.into_iter().map(|thing| (client.clone(), thing)));
            continue;
        }
        let made = execute(session, &client, resource, plan.act).await;
        let made = made.map_err(|failure| placed(failure, resource))?;
        begun.extend(made.into_iter().map(|thing| (client.clone(), thing)));
        note(format!("{} {}: {}", resource.body.kind(), resource.name, plan.act.done()));
    }
    let Some(limit) = waiting.limit() else { return Ok(()) };
    for (client, thing) in begun {
        match thing {
            Begun::Instance(instance) => {
                let goal = Goal::Running { after: None };
                wait(&client, instance.id.as_str(), instance.name.as_str(), goal, limit).await?;
            }
            Begun::Workload(name, goal) => {
                rollout::wait(&client, name.as_str(), goal, limit).await?;
            }
        }
    }
    Ok(())
}

/// What an earlier order began: a file that is applied again is not done before it is.
async fn under_way(client: &Client, resource: &Resource) -> Result<Vec<Begun>> {
    use model::WorkloadPhase as P;
    let names: Vec<&Name> = match &resource.body {
        Body::Workload(_) => vec![&resource.name],
        Body::App(app) => app.workloads.iter().map(|workload| &workload.name).collect(),
        _ => Vec::new(),
    };
    let mut begun = Vec::new();
    for name in names {
        let Some(now) = found(client.workload_get(name.as_str()).await)? else { continue };
        if matches!(now.status.phase, P::Progressing | P::Updating | P::RollingBack) {
            begun.push(Begun::Workload(name.clone(), Rollout::settled(&now)));
        }
    }
    Ok(begun)
}

/// Does what one document needs; returns what is to be waited for.
async fn execute(session: &Session, client: &Client, resource: &Resource, act: Act) -> Result<Vec<Begun>> {
    let name = resource.name.as_str();
    let exists = act != Act::Create;
    match &resource.body {
        Body::Tenant(spec) if exists => drop(client.quota_set(name, &spec.quota, None).await?),
        Body::Tenant(spec) => {
            let body = TenantCreate { name: resource.name.clone(), quota: spec.quota };
            client.tenant_create(&body).await?;
        }
        Body::User(spec) if exists => {
            let body = UserUpdate { role: Some(spec.role), password: None, email: None };
            client.user_update(name, &body, None).await?;
        }
        Body::User(spec) => {
            let body = UserCreate {
                name: resource.name.clone(),
                role: spec.role,
                password: password(spec)?,
                email: None,
            };
            client.user_create(&body).await?;
        }
        Body::Image(spec) => make_image(client, name, spec, exists).await?,
        Body::Instance(spec) => {
            if exists {
                remove(client, name).await?;
            }
            let body = InstanceCreate { name: resource.name.clone(), spec: (**spec).clone() };
            let session = Session { client: client.clone(), format: session.format };
            let instance = instance::create(&session, &body).await?;
            return Ok(vec![Begun::Instance(Box::new(instance))]);
        }
        Body::Workload(workload) => return make_workload(client, &resource.name, workload, exists).await,
        Body::App(spec) => return make_app(client, &resource.name, spec).await,
    }
    Ok(Vec::new())
}

async fn make_image(client: &Client, name: &str, spec: &ImageSpec, exists: bool) -> Result<()> {
    if exists {
        client.image_delete(name, None).await?;
    }
    match (&spec.file, &spec.reference) {
        (Some(file), _) => drop(image::import(client, name, file, spec.public).await?),
        (None, Some(reference)) => drop(image::pull(client, name, reference.clone(), spec.public).await?),
        (None, None) => {}
    }
    Ok(())
}

async fn make_workload(
    client: &Client,
    name: &Name,
    asked: &WorkloadManifest,
    exists: bool,
) -> Result<Vec<Begun>> {
    let spec = asked.spec.clone();
    let goal = match exists {
        true => {
            let before = client.workload_get(name.as_str()).await?;
            let after = client.workload_update(name.as_str(), &WorkloadUpdate { spec }, None).await?;
            Rollout::changed(&before, &after)
        }
        false => {
            let body = WorkloadCreate { name: name.clone(), app: asked.app.clone(), spec };
            Rollout::settled(&client.workload_create(&body).await?)
        }
    };
    Ok(vec![Begun::Workload(name.clone(), goal)])
}

/// Makes or changes an app in one order; its workloads are waited for one by one.
async fn make_app(client: &Client, name: &Name, asked: &AppSpec) -> Result<Vec<Begun>> {
    let workloads = asked.workloads.clone();
    let description = asked.description.clone();
    let mut begun = Vec::new();
    let mut before = BTreeMap::new();
    match found(client.app_get(name.as_str()).await)? {
        None => drop(client.app_create(&AppCreate { name: name.clone(), description, workloads }).await?),
        Some(app) => {
            let there = members(client, &app).await?;
            let dropped = there.keys().filter(|old| !workloads.iter().any(|new| new.name == **old));
            begun.extend(dropped.map(|old| Begun::Workload(old.clone(), Rollout::Gone)));
            client
                .app_update(name.as_str(), &AppUpdate { description, workloads }, Some(app.version))
                .await?;
            before = there;
        }
    }
    for workload in &asked.workloads {
        let now = client.workload_get(workload.name.as_str()).await?;
        let old = before.get(&workload.name);
        let goal = old.map_or_else(|| Rollout::settled(&now), |old| Rollout::changed(old, &now));
        begun.push(Begun::Workload(now.name.clone(), goal));
    }
    Ok(begun)
}

/// Deletes an instance and waits until its name is free.
async fn remove(client: &Client, name: &str) -> Result<()> {
    let instance = client.instance_delete(name, None).await?;
    wait(client, instance.id.as_str(), name, Goal::Gone, REMOVAL_LIMIT).await.map(drop)
}
