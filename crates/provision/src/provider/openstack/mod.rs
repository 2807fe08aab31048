//! `openstack`: servers of Nova, with Keystone's tokens.
//!
//! Fields: `openstack_auth_url`, Keystone's address; `openstack_username`, `openstack_api_key` (the password) and
//! `openstack_tenant`, or `openstack_application_credential_id` and `…_secret`; `openstack_user_domain` and
//! `openstack_project_domain`; `openstack_region`; `openstack_interface`, `public` or `internal`; `network_ids`,
//! `security_groups`, `availability_zone`, `ssh_keypair`; `floating_ip` and `floating_network`; `address`; `ssh_wait`.
//! Flavor and image are of hardware and image types, by id or name.
//!
//! ```text
//!   identity   accounts, tokens, the catalogue
//!      │
//!   cloud      one question, with a token that is fresh
//!      ├─▶ server     what Nova is asked and what it shows
//!      └─▶ floating   addresses of Neutron
//! ```
//! Nova takes no token that would make a question safe to repeat. So a server has its cluster and node in its metadata and
//! is looked for before it is made, and once more after that: of two that were made at the same time one is deleted.

mod cloud;
mod floating;
mod identity;
mod server;

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::cloud::{Ask, Cloud, read};
use self::identity::{Sessions, field};
use self::server::{Server, Way, wish};
use super::{Provider, Setting, confirm, patience};
use crate::machine::Machine;
use crate::task::{Fault, Report, Task, Verb};

/// How long a server may take to run, and to be gone.
const RUN_MAX: Duration = Duration::from_secs(600);
const GONE_MAX: Duration = Duration::from_secs(600);
/// How long the deletion of a second server is watched.
const TWINS_MAX: Duration = Duration::from_secs(60);
/// How long sshd may take, unless the provider says otherwise.
const SSHD_MAX: Duration = Duration::from_secs(300);
/// How long Nova may take to say why a server is in error.
const WHY_MAX: Duration = Duration::from_secs(5);
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Keeps its tokens for the next task.
#[derive(Default)]
pub struct OpenStack {
    sessions: Sessions,
}

impl Provider for OpenStack {
    fn name(&self) -> &str {
        "openstack"
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        match setting.task.task_name {
            Verb::Create => self.create(setting.task).boxed(),
            Verb::Confirm => self.ready(setting).boxed(),
            _ => self.delete(setting.task).boxed(),
        }
    }
}

/// The servers of the task that are not gone, oldest first: by their name and metadata, and by the id.
async fn find(cloud: &Cloud<'_>, task: &Task) -> Result<Vec<Server>, Fault> {
    let name = task.hostname();
    if name.is_empty() {
        return Err(Fault::invalid("the task does not say the host name of the machine"));
    }
    let mut all: Vec<Server> = cloud.pages(&["servers", "detail"], "servers", &[("name", name)]).await?;
    all.retain(|server| server.is_of(task));
    let known = task.provider_id().filter(|id| all.iter().all(|server| server.id != *id));
    if let Some(id) = known {
        match cloud.get("compute", &["servers", id], &[]).await {
            Ok(mut found) => all.push(read(found["server"].take())?),
            Err(denied) if denied.status == 404 => {}
            Err(denied) => return Err(denied.into()),
        }
    }
    all.retain(|server| !server.is_gone());
    all.sort_by(|one, other| (&one.created, &one.id).cmp(&(&other.created, &other.id)));
    Ok(all)
}

async fn server_delete(cloud: &Cloud<'_>, id: &str) -> Result<(), Fault> {
    cloud.delete("compute", &["servers", id]).await
}

impl OpenStack {
    async fn create(&self, task: &Task) -> Result<Report, Fault> {
        let cloud = Cloud::of(task, &self.sessions)?;
        let there = find(&cloud, task).await?.into_iter().find(|server| !server.is_going());
        let id = match there {
            Some(there) => there.id,
            None => make(&cloud, task).await?,
        };
        let mut report = Report { hostname: Some(task.hostname().to_owned()), ..Report::default() };
        report.result.insert("providerid".to_owned(), json!(id));
        Ok(report)
    }

    /// Waits until it runs and lets us in.
    async fn ready(&self, setting: &Setting<'_>) -> Result<Report, Fault> {
        let task = setting.task;
        let (access, bind) = self.running(task).await?;
        let mut reached = task.clone();
        reached.config.insert("ipaddresses".to_owned(), json!({"access_v4": access}));
        let machine = Machine::of(&reached, setting.pool)?;
        let wait = field(task, "ssh_wait").and_then(|text| text.parse().ok());
        let wait = wait.map_or(SSHD_MAX, Duration::from_secs).min(RUN_MAX);
        let mut report = confirm(&machine, patience(task, wait)).await?;
        report.ipaddresses = [("access_v4".to_owned(), access), ("bind_v4".to_owned(), bind)].into();
        Ok(report)
    }

    async fn running(&self, task: &Task) -> Result<(String, String), Fault> {
        let cloud = Cloud::of(task, &self.sessions)?;
        let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
        let mut failed_at = None;
        let ended = |text: String| Fault { is_passing: false, ..Fault::failed(text) };
        loop {
            let all = find(&cloud, task).await?;
            let known = |server: &&Server| task.provider_id().is_none_or(|id| server.id == id);
            let Some(server) = all.iter().find(known).filter(|server| !server.is_going()) else {
                return Err(Fault::gone("the server is gone: the cloud does not know it"));
            };
            // A twin that Nova did not let go while it was being made.
            for twin in all.iter().filter(|other| other.id != server.id && !other.is_going()) {
                server_delete(&cloud, &twin.id).await?;
            }
            match server.status.as_str() {
                "ACTIVE" => {
                    if let Some(addresses) = addresses(&cloud, task, server).await? {
                        return Ok(addresses);
                    }
                }
                "ERROR" => {
                    let since: &mut Instant = failed_at.get_or_insert_with(Instant::now);
                    let why = server.why();
                    if why.is_some() || since.elapsed() > WHY_MAX {
                        let why = why.unwrap_or_else(|| "Nova does not say why".to_owned());
                        return Err(ended(format!("the server could not be made: {why}")));
                    }
                }
                "BUILD" | "REBUILD" | "REBOOT" | "HARD_REBOOT" | "UNKNOWN" => {}
                other => {
                    return Err(ended(format!("the server does not run: it is {}", model::shown(other))));
                }
            }
            if began.elapsed() > RUN_MAX {
                let (seconds, status) = (RUN_MAX.as_secs(), model::shown(&server.status));
                return Err(Fault::failed(format!(
                    "the server is {status} and without an address to reach it after {seconds} s"
                )));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Deletes it and waits until it is gone; one that never was is gone already.
    async fn delete(&self, task: &Task) -> Result<Report, Fault> {
        let cloud = Cloud::of(task, &self.sessions)?;
        if floating::is_wanted(task) {
            floating::release(&cloud, task).await?;
        }
        let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
        loop {
            let all = find(&cloud, task).await?;
            let Some(first) = all.first() else { return Ok(Report::default()) };
            for server in all.iter().filter(|server| !server.is_going()) {
                server_delete(&cloud, &server.id).await?;
            }
            if began.elapsed() > GONE_MAX {
                let (id, seconds) = (model::shown(&first.id), GONE_MAX.as_secs());
                return Err(Fault::failed(format!("'{id}' is not gone after {seconds} s")));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Where it is reached, and where its neighbours reach it, as soon as it has such addresses.
async fn addresses(
    cloud: &Cloud<'_>,
    task: &Task,
    server: &Server,
) -> Result<Option<(String, String)>, Fault> {
    let way = Way::of(task);
    if !floating::is_wanted(task) {
        return Ok(server.addresses(&way));
    }
    let Some((fixed, bind)) = server.addresses(&Way::Fixed(None)) else { return Ok(None) };
    let given = floating::give(cloud, task, server).await?;
    Ok(Some(if way == Way::Floating { (given, bind) } else { (fixed, bind) }))
}

/// Makes a server; its id.
async fn make(cloud: &Cloud<'_>, task: &Task) -> Result<String, Fault> {
    let body = wish(cloud, task).await?;
    let ask =
        Ask { method: Method::POST, kind: "compute", path: &["servers"], query: &[], body: Some(&body) };
    let made = match cloud.ask(ask).await {
        Ok(made) => made["server"]["id"].as_str().map(str::to_owned),
        // It may have been made all the same.
        Err(denied) if denied.status == 0 && denied.fault.is_passing => {
            let there = find(cloud, task).await?.into_iter().find(|server| !server.is_going());
            return there.map(|server| server.id).ok_or(denied.fault);
        }
        Err(denied) => return Err(denied.into()),
    };
    let made = made.ok_or_else(|| Fault::failed("the cloud does not say what it made"))?;
    let all = find(cloud, task).await?;
    let Some(first) = all.iter().find(|server| !server.is_going()) else { return Ok(made) };
    if all.len() > 1 {
        twins_delete(cloud, task, &first.id).await?;
    }
    Ok(first.id.clone())
}

/// Deletes all servers of the task but this one, until they are gone: Nova forgets the wish for one that it just builds.
async fn twins_delete(cloud: &Cloud<'_>, task: &Task, kept: &str) -> Result<(), Fault> {
    let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
    loop {
        let mut twins = find(cloud, task).await?;
        twins.retain(|server| server.id != kept);
        for twin in twins.iter().filter(|server| !server.is_going()) {
            server_delete(cloud, &twin.id).await?;
        }
        // One that takes longer is looked at again when the other is confirmed, and goes with it at the end.
        if twins.is_empty() || began.elapsed() > TWINS_MAX {
            return Ok(());
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
