//! `docker`: containers of the machine's Docker (or Podman under its name).
//!
//! One container, named as the service unless `name` says otherwise: `image_name`; `environment_variables`,
//! `volumes`, `publish_ports`, `links` (lists); `options`, more words for `docker run`; `command`, words for the image.
//! Or a project: `compose`, the name of a staged Compose file, or `code`, its text; the cluster's configuration is in variables
//! such as `WEB_PORT` for `web.port`.
//!
//! | verb | container | project |
//! |---|---|---|
//! | install | pull | pull |
//! | configure, initialize | made anew if it differs | checked |
//! | start | made if it differs, started | up |
//! | stop, remove | stopped, removed; neither needs an image | stopped, down |

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};

use super::place::{self, Bundle, Place};
use super::{Automator, Job};
use crate::ssh::quote;
use crate::task::{Action, Fault, Report, Task, Verb};

/// Where the files of projects stay.
const PROJECTS: &str = "/var/lib/banyan/compose";
/// Says which wishes a container was made by.
const LABEL: &str = "banyan.wish";
/// Docker's client alone is not enough.
const LOOK: &str = "docker info >/dev/null 2>&1 || service docker start >/dev/null 2>&1; \
    for wait in 1 2 3 4 5 6 7 8 9 10; do docker info >/dev/null 2>&1 && exit 0; sleep 1; done; docker info";

pub struct Docker;

impl Automator for Docker {
    fn name(&self) -> &str {
        "docker"
    }

    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            place::ready_program(job, "docker", "docker.io").await?;
            job.machine.must("starting Docker", LOOK, place::INSTALL_MAX).await
        }
        .boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            let name = container(&action)?;
            let is_ending = matches!(job.task.task_name, Verb::Stop | Verb::Remove);
            let project = match action.text("compose").or_else(|| action.text("code")) {
                Some(_) => Some(place::source(job, &action, "compose", "compose")?),
                None => None,
            };
            let line = match (&project, is_ending) {
                (Some(_), _) => project_line(job.task, &name),
                (None, true) => ending_line(job.task.task_name, &name),
                (None, false) => container_line(job.task.task_name, &action, &name)?,
            };
            let place = Place::new(job);
            let done = run(&place, job, &action, &line, project).await;
            place.leave().await;
            done
        }
        .boxed()
    }
}

async fn run(
    place: &Place<'_>,
    job: &Job<'_>,
    action: &Action<'_>,
    line: &str,
    project: Option<Bytes>,
) -> Result<Report, Fault> {
    let mut bundle = Bundle::new(job.task)?;
    if let Some(project) = project {
        bundle.add("compose.yaml", 0o600, &project)?;
        bundle.add("variables", 0o600, variables(job.task).as_bytes())?;
    }
    bundle.add("act", 0o700, line.as_bytes())?;
    place.fill(bundle).await?;
    place.run(action, "sh ./act").await
}

/// The name of the container or project.
fn container(action: &Action<'_>) -> Result<String, Fault> {
    let name = action.text("name").unwrap_or_else(|| action.service.to_owned()).to_ascii_lowercase();
    let is_right = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    match is_right {
        true => Ok(name),
        false => Err(Fault::invalid(format!("'{}' is no name of a container", model::shown(&name)))),
    }
}

fn container_line(verb: Verb, action: &Action<'_>, name: &str) -> Result<String, Fault> {
    let Some(image) = action.text("image_name").or_else(|| action.text("image")) else {
        // One that was made before may be started without saying again what it is.
        return match verb {
            Verb::Start => Ok(format!("docker start {name}\n")),
            _ => Err(Fault::invalid("a docker action needs 'image_name', 'compose' or 'code'")),
        };
    };
    if image.starts_with('-') {
        return Err(Fault::invalid(format!("'{}' is no image", model::shown(&image))));
    }
    let image = quote(&image);
    if verb == Verb::Install {
        return Ok(format!("docker pull {image}\n"));
    }
    let mut words = Vec::new();
    for (field, option) in [
        ("environment_variables", "--env"),
        ("volumes", "--volume"),
        ("publish_ports", "--publish"),
        ("links", "--link"),
    ] {
        words.extend(action.list(field).iter().map(|value| format!("{option} {}", quote(value))));
    }
    // As a user wrote them: words for the shell.
    words.push(action.text("options").unwrap_or_else(|| "--restart unless-stopped".to_owned()));
    words.push(image);
    words.push(action.text("command").unwrap_or_default());
    let words = words.join(" ");
    let wish: String = Sha256::digest(&words)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut line = format!(
        "set -e\nhas=$(docker inspect --type container --format '{{{{index .Config.Labels \"{LABEL}\"}}}}' {name} 2>/dev/null || true)\n\
         if [ \"$has\" != {wish} ]; then\n  docker rm -f {name} >/dev/null 2>&1 || true\n  \
         docker create --name {name} --label {LABEL}={wish} {words}\nfi\n"
    );
    if verb == Verb::Start {
        line.push_str(&format!("docker start {name}\n"));
    }
    Ok(line)
}

/// Also right when there is nothing, and for a project whose file is here from before.
fn ending_line(verb: Verb, name: &str) -> String {
    let (one, all, after) = match verb {
        Verb::Stop => ("stop", "stop", "true"),
        _ => ("rm -f", "down", "rm -rf \"$at\""),
    };
    format!(
        "set -e\nat={PROJECTS}/{name}\nif [ -f \"$at/compose.yaml\" ]; then\n  \
         docker compose -p {name} --project-directory \"$at\" --env-file \"$at/variables\" -f \"$at/compose.yaml\" {all}\n  {after}\n\
         elif docker inspect --type container {name} >/dev/null 2>&1; then docker {one} {name}; fi\n"
    )
}

fn project_line(task: &Task, name: &str) -> String {
    let verb = task.task_name;
    let keep = format!(
        "set -e\nat={PROJECTS}/{name}\numask 077\nmkdir -p \"$at\"\ncp compose.yaml variables \"$at/\"\n"
    );
    let act = match verb {
        Verb::Install => "pull",
        Verb::Start => "up -d --remove-orphans",
        Verb::Stop | Verb::Remove => return format!("{keep}{}", ending_line(verb, name)),
        _ => "config --quiet",
    };
    format!(
        "{keep}docker compose -p {name} --project-directory \"$at\" --env-file \"$at/variables\" -f \"$at/compose.yaml\" {act}\n"
    )
}

/// The configuration as a file of variables; texts of more than a line cannot be in it.
fn variables(task: &Task) -> String {
    let name = |key: &str| place::name(key).replace('-', "_").to_ascii_uppercase();
    let settings = task.settings();
    let plain = settings.iter().filter(|(_, value)| !value.contains(['\n', '\r', '\'']));
    plain.map(|(key, value)| format!("{}='{value}'\n", name(key))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(verb: Verb, fields: Value) -> Result<String, Fault> {
        let fields = fields.as_object().unwrap();
        container_line(verb, &Action { service: "web", by: "docker", fields }, "web")
    }

    #[test]
    fn a_container_is_made_again_only_if_its_wishes_differ() {
        let fields = json!({"image_name": "nginx:1", "publish_ports": "80:80, 443:443", "environment_variables": ["A=b c"]});
        let start = line(Verb::Start, fields.clone()).unwrap();
        assert!(
            start
                .contains("--env 'A=b c' --publish 80:80 --publish 443:443 --restart unless-stopped nginx:1")
        );
        assert!(start.ends_with("docker start web\n"));
        let wish = |text: &str| text.split_once("!= ").map(|(_, rest)| rest[..16].to_owned());
        assert_eq!(wish(&start), wish(&line(Verb::Configure, fields).unwrap()));
        assert_ne!(wish(&start), wish(&line(Verb::Start, json!({"image_name": "nginx:2"})).unwrap()));
        assert!(line(Verb::Install, json!({})).is_err());
        assert!(line(Verb::Install, json!({"image_name": "--privileged"})).is_err());
        assert_eq!(line(Verb::Start, json!({})).unwrap(), "docker start web\n");
    }
}
