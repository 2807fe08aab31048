//! Addresses that machines are reached by from elsewhere. They are Neutron's, and live on when their server is
//! gone, so each says in its description whose it is.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::cloud::{Ask, Cloud, read};
use super::identity::field;
use super::server::Server;
use crate::task::{Fault, Task};

const SERVICE: &str = "network";
const PATH: [&str; 2] = ["v2.0", "floatingips"];

pub(super) fn is_wanted(task: &Task) -> bool {
    field(task, "floating_ip").is_some_and(|text| text == "true")
}

#[derive(Deserialize)]
struct Floating {
    id: String,
    #[serde(default)]
    description: String,
    floating_ip_address: String,
    port_id: Option<String>,
}

fn mark(task: &Task) -> String {
    format!("banyan {}/{}", task.cluster_id, task.node_id)
}

/// Those of the task.
async fn all(cloud: &Cloud<'_>, task: &Task) -> Result<Vec<Floating>, Fault> {
    let mark = mark(task);
    let mut answer = cloud.get(SERVICE, &PATH, &[("description", &mark)]).await?;
    let all: Vec<Floating> = read(answer["floatingips"].take())?;
    // A cloud that does not know the filter gives all.
    Ok(all.into_iter().filter(|one| one.description == mark).collect())
}

/// Gives the server an address, unless it has one. Nova learns of it later than we do.
pub(super) async fn give(cloud: &Cloud<'_>, task: &Task, server: &Server) -> Result<String, Fault> {
    let ports = cloud.get(SERVICE, &["v2.0", "ports"], &[("device_id", &server.id)]).await?;
    let Some(port) = ports["ports"][0]["id"].as_str() else {
        return Err(Fault::failed("the server has no port for a floating address"));
    };
    let there = all(cloud, task).await?;
    if let Some(one) = there.iter().find(|one| one.port_id.as_deref() == Some(port)) {
        return Ok(one.floating_ip_address.clone());
    }
    let (method, path, body) = match there.first() {
        // Made for an earlier server of the node.
        Some(one) => (Method::PUT, vec![PATH[0], PATH[1], &one.id], json!({"floatingip": {"port_id": port}})),
        None => {
            let network = network(cloud, task).await?;
            let body = json!({"floatingip": {
                "floating_network_id": network, "port_id": port, "description": mark(task)
            }});
            (Method::POST, PATH.to_vec(), body)
        }
    };
    let ask = Ask { method, kind: SERVICE, path: &path, query: &[], body: Some(&body) };
    let mut answer = cloud.ask(ask).await?;
    let given: Floating = read(answer["floatingip"].take())?;
    Ok(given.floating_ip_address)
}

/// Where addresses come from: what is named, or the only network to the outside.
async fn network(cloud: &Cloud<'_>, task: &Task) -> Result<String, Fault> {
    let path = ["v2.0", "networks"];
    if let Some(name) = field(task, "floating_network") {
        return cloud.named(SERVICE, &path, "networks", &name).await;
    }
    let found = cloud.get(SERVICE, &path, &[("router:external", "true")]).await?;
    match found["networks"].as_array().map(Vec::as_slice) {
        Some([one]) => Ok(one["id"].as_str().unwrap_or_default().to_owned()),
        Some([]) | None => Err(Fault::invalid("the cloud has no network to the outside for 'floating_ip'")),
        Some(_) => Err(Fault::invalid(
            "fill in 'floating_network': the cloud has more than one network to the outside",
        )),
    }
}

/// Gives all addresses of the task back.
pub(super) async fn release(cloud: &Cloud<'_>, task: &Task) -> Result<(), Fault> {
    for one in all(cloud, task).await? {
        cloud.delete(SERVICE, &[PATH[0], PATH[1], &one.id]).await?;
    }
    Ok(())
}
