//! Asking the cloud what would stand in the way of the documents, before anything is done.

use api::{AppCreate, Check, CheckFault, CheckKind, InstanceCreate, WorkloadCreate};
use model::{ErrorKind, Fault};

use super::client_for;
use super::plan::{Act, Plan};
use crate::failure::Result;
use crate::manifest::flaw::Flaw;
use crate::manifest::{Body, Resource};
use crate::session::Session;

/// Most documents that are asked for at once, so that a question has a bounded size.
const ASKED_MAX: usize = 200;

/// What stands in the way: what is refused, and what is taken but waits.
#[derive(Debug, Default)]
pub struct Found {
    pub refused: Vec<Flaw>,
    pub waiting: Vec<Flaw>,
}

/// Asks in each tenant that is there. Of one that is only being made nothing can be asked.
pub async fn all(session: &Session, resources: &[Resource], plans: &[Plan]) -> Result<Found> {
    let fresh = |tenant: &Option<String>| {
        let mut both = resources.iter().zip(plans);
        both.any(|(resource, plan)| {
            matches!(resource.body, Body::Tenant(_))
                && plan.act == Act::Create
                && tenant.as_deref() == Some(resource.name.as_str())
        })
    };
    let orders = resources.iter().zip(plans).filter(|(resource, plan)| {
        let order = matches!(resource.body, Body::Instance(_) | Body::Workload(_) | Body::App(_));
        order && plan.changes() && !fresh(&resource.tenant)
    });
    let mut orders: Vec<&Resource> = orders.map(|(resource, _)| resource).collect();
    orders.sort_by(|a, b| a.tenant.cmp(&b.tenant));
    let mut found = Found::default();
    for group in orders.chunk_by(|a, b| a.tenant == b.tenant) {
        for part in group.chunks(ASKED_MAX) {
            let body = question(resources, part);
            let report = match client_for(session, part[0]).check(&body).await {
                Ok(report) => report,
                // A server that cannot be asked says what it thinks when it is ordered.
                Err(error) if error.kind == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            for fault in report.faults {
                let refused = fault.refused;
                let flaw = flaw(part, fault);
                if refused { found.refused.push(flaw) } else { found.waiting.push(flaw) }
            }
        }
    }
    Ok(found)
}

fn question(resources: &[Resource], orders: &[&Resource]) -> Check {
    let mut body = Check::default();
    for resource in resources {
        if let Body::Image(image) = &resource.body
            && (image.public || resource.tenant == orders[0].tenant)
        {
            body.images.push(resource.name.clone());
        }
    }
    for resource in orders {
        let name = resource.name.clone();
        match &resource.body {
            Body::Instance(spec) => body.instances.push(InstanceCreate { name, spec: (**spec).clone() }),
            Body::Workload(workload) => body.workloads.push(WorkloadCreate {
                name,
                app: workload.app.clone(),
                spec: workload.spec.clone(),
            }),
            Body::App(app) => body.apps.push(AppCreate {
                name,
                description: app.description.clone(),
                workloads: app.workloads.clone(),
            }),
            Body::Tenant(_) | Body::User(_) | Body::Image(_) => {}
        }
    }
    body
}

/// The fault at the document that it is about, by the names that fields have there.
fn flaw(orders: &[&Resource], fault: CheckFault) -> Flaw {
    let kind = match fault.kind {
        CheckKind::Instance => "Instance",
        CheckKind::Workload => "Workload",
        CheckKind::App => "App",
    };
    let field = fault.field.map(|field| match (fault.kind, field.as_str()) {
        (_, "app" | "name") => format!("metadata.{field}"),
        (CheckKind::App, _) => format!("spec.{field}"),
        _ => field,
    });
    let order = orders.iter().find(|order| order.body.kind() == kind && order.name == fault.name);
    Flaw {
        file: order.map_or_else(String::new, |order| order.place.clone()),
        line: None,
        document: Some(format!("{kind} '{}'", fault.name)),
        fault: Fault { field, message: fault.message, hint: fault.hint },
    }
}
