//! `banyan`: machines that are instances of this cloud. Nothing has to be configured.
//!
//! Root puts an address and a credential of a short life for the owner's tenant into the task
//! (`banyan-endpoint`, `banyan-token`). The name of an instance is the first part of the host name, and its labels say
//! whose it is, so a machine that was made before is found again.
//!
//! An image needs a shell and an sshd. The instance gets the cluster's public key in `BANYAN_AUTHORIZED_KEY`
//! and is started with a script that writes it where sshd looks and runs sshd; with the provider field
//! `start` = `image` the image's own entry point does that. A flavor is `small`, `medium`, … or
//! `CPU/MEMORY`, such as `500m/256MiB`.

use std::time::Duration;

use api::{Client, Instance, InstanceCreate};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Error, ErrorKind, InstanceSpec, LossPolicy, Name, Phase};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Provider, Setting, confirm, patience};
use crate::machine::Machine;
use crate::task::{Fault, Report, Task, Verb};

/// How long an instance may take to run, and to be gone.
const RUN_MAX: Duration = Duration::from_secs(600);
const GONE_MAX: Duration = Duration::from_secs(300);
const SSHD_MAX: Duration = Duration::from_secs(120);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long one that failed is waited for: an image may be on its way.
const FAILED_MAX: Duration = Duration::from_secs(20);
/// How long one that no place can hold is waited for.
const PLACELESS_MAX: Duration = Duration::from_secs(60);
/// Processes of a machine: it runs more than one program.
const PIDS: u32 = 8192;

const LABEL_CLUSTER: &str = "banyan/cluster";
const LABEL_NODE: &str = "banyan/node";

/// Lets the cluster's key in and becomes sshd.
const START: &str = r#"set -e
umask 077
user="${BANYAN_SSH_USER:-root}"
home=$(awk -F: -v user="$user" '$1 == user { print $6 }' /etc/passwd)
[ -n "$home" ] || { echo "the image has no user '$user'" >&2; exit 1; }
mkdir -p "$home/.ssh"
printf '%s\n' "$BANYAN_AUTHORIZED_KEY" > "$home/.ssh/authorized_keys"
[ "$user" = root ] || chown -R "$user" "$home/.ssh"
for sshd in /usr/sbin/sshd /usr/bin/sshd /usr/local/sbin/sshd ''; do [ -n "$sshd" ] && [ -x "$sshd" ] && break; done
[ -n "$sshd" ] || { echo "the image has no sshd" >&2; exit 1; }
mkdir -p -m 755 /run/sshd
# A key that came with the image is known to whoever has the image.
key=/etc/ssh/banyan_host_ed25519_key
[ -f "$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$key"
umask 022
exec "$sshd" -D -e -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o UsePAM=no \
  -o HostKey="$key"
"#;

pub struct Banyan;

impl Provider for Banyan {
    fn name(&self) -> &str {
        "banyan"
    }

    fn act<'a>(&'a self, setting: &'a Setting<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        match setting.task.task_name {
            Verb::Create => create(setting.task).boxed(),
            Verb::Confirm => ready(setting).boxed(),
            _ => delete(setting.task).boxed(),
        }
    }
}

fn client(task: &Task) -> Result<Client, Fault> {
    let field = |name: &str| {
        task.provider_field(name).ok_or_else(|| {
            Fault::credentials(format!("root did not say '{name}': the cloud cannot be reached"))
        })
    };
    Client::new(&field("banyan-endpoint")?, Some(field("banyan-token")?)).map_err(fault)
}

/// What the cloud says, as a fault of a task.
fn fault(error: Error) -> Fault {
    let text = match &error.hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    };
    match error.kind {
        ErrorKind::Unauthenticated | ErrorKind::Forbidden => Fault::credentials(text),
        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::TooLarge => Fault::invalid(text),
        ErrorKind::QuotaExceeded => Fault { is_passing: false, ..Fault::failed(text) },
        _ => Fault::failed(text),
    }
}

fn name(task: &Task) -> Result<Name, Fault> {
    let hostname = task.hostname();
    let first = hostname.split('.').next().unwrap_or_default();
    first.parse().map_err(|error: Error| Fault::invalid(format!("the host name '{hostname}': {error}")))
}

fn spec(task: &Task) -> Result<InstanceSpec, Fault> {
    let missing = |what: &str| Fault::invalid(format!("the task does not say the {what} of the machine"));
    let image = task.text("image").ok_or_else(|| missing("image"))?;
    let flavor = task.text("flavor").ok_or_else(|| missing("flavor"))?;
    let (cpu, memory) = model::flavor(&flavor).map_err(|error| Fault::invalid(error.message))?;
    let key = task.cluster_key()?.public_text();
    let mut spec: InstanceSpec = serde_json::from_value(json!({"image": image}))
        .map_err(|error| Fault::invalid(format!("the image '{}': {error}", model::shown(&image))))?;
    (spec.cpu, spec.memory, spec.pids) = (cpu, memory, PIDS);
    spec.env.insert("BANYAN_AUTHORIZED_KEY".to_owned(), key);
    spec.env.insert("BANYAN_SSH_USER".to_owned(), task.ssh_user().to_owned());
    spec.labels.insert(LABEL_CLUSTER.to_owned(), task.cluster_id.clone());
    spec.labels.insert(LABEL_NODE.to_owned(), task.node_id.clone());
    // What services keep lies on the machine, and a new one would not have it.
    spec.lost = LossPolicy::Wait;
    match task.provider_field("start").as_deref() {
        None | Some("" | "sshd") => {
            spec.command = ["/bin/sh", "-c", START].map(str::to_owned).to_vec();
        }
        Some("image") => {}
        Some(other) => {
            let other = model::shown(other);
            return Err(Fault::invalid(format!("'start' is '{other}': write sshd or image")));
        }
    }
    Ok(spec)
}

fn is_ours(instance: &Instance, task: &Task) -> bool {
    let is = |label: &str, value: &str| instance.spec.labels.get(label).is_some_and(|found| found == value);
    is(LABEL_CLUSTER, &task.cluster_id) && is(LABEL_NODE, &task.node_id)
}

/// The machine of the task, if it was made.
async fn find(client: &Client, task: &Task) -> Result<Option<Instance>, Fault> {
    let name = name(task)?;
    match client.instance_get(task.provider_id().unwrap_or(name.as_str())).await {
        Ok(instance) => Ok(Some(instance).filter(|instance| is_ours(instance, task))),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault(error)),
    }
}

async fn create(task: &Task) -> Result<Report, Fault> {
    let client = client(task)?;
    let name = name(task)?;
    let body = InstanceCreate { name: name.clone(), spec: spec(task)? };
    let instance = match client.instance_create(&body).await {
        Ok(made) => made,
        Err(error) if error.kind == ErrorKind::Conflict => match find(&client, task).await? {
            Some(there) if there.phase != Phase::Deleting => there,
            Some(_) => return Err(Fault::failed(format!("the instance '{name}' is still being deleted"))),
            None => return Err(Fault::invalid(format!("another instance has the name '{name}'"))),
        },
        Err(error) => return Err(fault(error)),
    };
    let mut report = Report { hostname: Some(task.hostname().to_owned()), ..Report::default() };
    report.result.insert("providerid".to_owned(), json!(instance.id));
    Ok(report)
}

/// Waits until it runs and lets us in.
async fn ready(setting: &Setting<'_>) -> Result<Report, Fault> {
    let task = setting.task;
    let address = running(task).await?;
    let addresses = ["access_v4", "bind_v4"].map(|kind| (kind.to_owned(), address.clone()));
    let mut reached = task.clone();
    reached.config.insert("ipaddresses".to_owned(), json!({"access_v4": address}));
    let machine = Machine::of(&reached, setting.pool)?;
    let mut report = confirm(&machine, patience(task, SSHD_MAX)).await?;
    report.ipaddresses = addresses.into();
    Ok(report)
}

async fn running(task: &Task) -> Result<String, Fault> {
    let client = client(task)?;
    let run_max = patience(task, RUN_MAX);
    let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
    let (mut failed_at, mut placeless_since) = (None, None);
    loop {
        let instance = find(&client, task).await?;
        let Some(instance) = instance else {
            return Err(Fault::gone("the instance is gone"));
        };
        if let (Phase::Running, Some(address)) = (instance.phase, instance.address) {
            return Ok(address.to_string());
        }
        let why = instance.message.unwrap_or_default();
        if matches!(instance.phase, Phase::Exited | Phase::Failed | Phase::Stopped | Phase::Deleting) {
            let since: &mut Instant = failed_at.get_or_insert_with(Instant::now);
            if since.elapsed() > FAILED_MAX {
                let text = format!("the instance '{}' is {}: {why}", instance.name, instance.phase);
                return Err(Fault { is_passing: false, ..Fault::failed(text) });
            }
        }
        let placeless = match instance.phase {
            Phase::Pending | Phase::Placed => client.instance_why(instance.id.as_str()).await.ok(),
            _ => None,
        };
        match placeless.and_then(|why| why.placeless()) {
            None => placeless_since = None,
            Some(why) => {
                let since: &mut Instant = placeless_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PLACELESS_MAX {
                    return Err(no_room(instance.name.as_str(), &why));
                }
            }
        }
        if began.elapsed() > run_max {
            let seconds = run_max.as_secs();
            return Err(Fault::failed(format!("the instance does not run after {seconds} s: {why}")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether there is room is known; a machine made anew would have no more of it.
fn no_room(name: &str, why: &str) -> Fault {
    let seconds = PLACELESS_MAX.as_secs();
    let text = format!("the instance '{name}' has had no place for {seconds} s: {why}");
    Fault { status: Fault::NO_ROOM, is_passing: false, ..Fault::failed(text) }
}

/// Deletes it and waits until it is gone; one that never was is gone already.
async fn delete(task: &Task) -> Result<Report, Fault> {
    let client = client(task)?;
    let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
    let mut is_told = false;
    loop {
        let Some(instance) = find(&client, task).await? else { return Ok(Report::default()) };
        if !is_told {
            match client.instance_delete(instance.id.as_str(), None).await {
                Ok(_) => is_told = true,
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(Report::default()),
                Err(error) => return Err(fault(error)),
            }
        }
        if began.elapsed() > GONE_MAX {
            let seconds = GONE_MAX.as_secs();
            return Err(Fault::failed(format!("'{}' is not gone after {seconds} s", instance.name)));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use model::{Bytes, Cpu};

    use super::*;

    fn task(flavor: &str, start: Option<&str>) -> Task {
        let key = crate::ssh::Identity::from_seed(&[5; 32]).private_text().to_string();
        let mut provisioner = json!({"banyan-endpoint": "http://127.0.0.1:1", "banyan-token": "t"});
        if let Some(start) = start {
            provisioner["start"] = json!(start);
        }
        serde_json::from_value(json!({
            "taskId": "t", "jobId": "j", "clusterId": "c-1", "taskName": "CREATE", "nodeId": "c-1-1000",
            "config": {
                "hostname": "web1-1000.local", "image": "debian", "flavor": flavor, "cluster-key": key,
                "provider": {"providertype": "banyan", "provisioner": provisioner}
            }
        }))
        .unwrap()
    }

    #[test]
    fn a_machine_is_an_instance_that_lets_the_cluster_in() {
        let spec = spec(&task("500m/256MiB", None)).unwrap();
        assert_eq!((spec.cpu, spec.memory, spec.image.as_str()), (Cpu(500), Bytes::mib(256), "debian"));
        assert!(spec.env["BANYAN_AUTHORIZED_KEY"].starts_with("ssh-ed25519 "));
        assert_eq!(spec.labels[LABEL_NODE], "c-1-1000");
        assert!(spec.command[2].contains("exec \"$sshd\""));
        assert!(!spec.command[2].contains("PRIVATE"));
        assert!(super::spec(&task("small", Some("image"))).unwrap().command.is_empty());
        for (flavor, start) in [("huge", None), ("1/x", None), ("", None), ("small", Some("vm"))] {
            let fault = super::spec(&task(flavor, start)).unwrap_err();
            assert!(!fault.is_passing && fault.status == Fault::INVALID, "{flavor} {start:?}");
        }
        assert_eq!(name(&task("small", None)).unwrap().as_str(), "web1-1000");
    }

    #[test]
    fn what_the_cloud_refuses_is_not_asked_again_and_its_absence_is() {
        let of = |kind| {
            let fault = fault(Error::new(kind, "no"));
            (fault.status, fault.is_passing)
        };
        assert_eq!(of(ErrorKind::Unauthenticated), (Fault::CREDENTIALS, false));
        assert_eq!(of(ErrorKind::QuotaExceeded), (Fault::FAILED, false));
        assert_eq!(of(ErrorKind::Unavailable), (Fault::FAILED, true));
        assert_eq!(of(ErrorKind::Invalid), (Fault::INVALID, false));
    }
}
