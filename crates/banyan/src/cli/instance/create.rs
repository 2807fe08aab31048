//! `banyan instance create`: options become a spec, the spec an instance.

use std::collections::BTreeMap;

use api::InstanceCreate;
use clap::{Args, ValueEnum};
use model::{
    Affinity, Arch, Bytes, Constraints, Cpu, ErrorKind, GpuAsk, HealthCheck, HealthProbe, InstanceSpec, Name,
    RestartPolicy, Spread,
};

use super::get;
use crate::cli::{Waiting, parse};
use crate::failure::{Failure, Result};
use crate::output::{self, note};
use crate::session::Session;
use crate::wait::{Goal, wait};

const AFTER_HELP: &str = "\
Examples:
  banyan instance create hello --image busybox --restart never -- echo hello
  banyan instance create web --image busybox --cpu 0.5 --memory 64MiB --health-tcp 80 -- httpd -f -p 80
  banyan instance create db --image busybox --label app=db --away app=db -- sleep 1000
  banyan instance create big --image busybox --cpu 64 --dry-run -- sleep 1000";

/// A create is repeated with the same idempotency key while the cloud cannot be reached.
const ATTEMPTS_MAX: usize = 3;

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Arguments {
    /// Name of the new instance, unique in the tenant.
    name: Name,
    #[command(flatten)]
    options: InstanceOptions,
    #[command(flatten)]
    waiting: Waiting,
    /// Check everything and show what would be asked for, without asking.
    #[arg(long)]
    dry_run: bool,
    /// Command and its arguments; the image's own when absent.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Restart {
    Never,
    OnFailure,
    Always,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArchOption {
    Amd64,
    Arm64,
    Riscv64,
}

/// Everything of a spec that options can say.
#[derive(Debug, Args)]
pub struct InstanceOptions {
    /// Image to boot: a name or an id.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Cores, such as 0.5 or 500m [default: 0.25].
    #[arg(long, value_name = "CORES", value_parser = parse::quantity::<Cpu>, help_heading = "Resources")]
    cpu: Option<Cpu>,
    /// Memory, such as 64MiB [default: 128MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse::quantity::<Bytes>, help_heading = "Resources")]
    memory: Option<Bytes>,
    /// Disk space to reserve, such as 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = parse::quantity::<Bytes>, help_heading = "Resources")]
    disk: Option<Bytes>,
    /// Most processes and threads [default: 512].
    #[arg(long, value_name = "COUNT", help_heading = "Resources")]
    pids: Option<u32>,
    /// Whole GPUs.
    #[arg(long, value_name = "COUNT", help_heading = "Resources")]
    gpus: Option<u32>,
    /// Thousandths of one GPU, instead of whole ones.
    #[arg(long, value_name = "MILLI", conflicts_with = "gpus", help_heading = "Resources")]
    gpu_share: Option<u32>,
    /// Model of GPU that will do; may be repeated.
    #[arg(long, value_name = "MODEL", help_heading = "Resources")]
    gpu_model: Vec<String>,
    /// Environment variable KEY=VALUE, or KEY to pass on ours; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse::variable, help_heading = "Process")]
    env: Vec<(String, String)>,
    /// User, uid, user:group or uid:gid to run as.
    #[arg(short, long, value_name = "USER", help_heading = "Process")]
    user: Option<String>,
    /// Folder to start in.
    #[arg(short, long, value_name = "PATH", help_heading = "Process")]
    workdir: Option<String>,
    /// What follows when the process ends [default: always].
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Process")]
    restart: Option<Restart>,
    /// Command that must exit with 0 while it is healthy, run by sh.
    #[arg(long, value_name = "COMMAND", group = "probe", help_heading = "Health")]
    health_cmd: Option<String>,
    /// Port that must accept while it is healthy.
    #[arg(long, value_name = "PORT", group = "probe", help_heading = "Health")]
    health_tcp: Option<u16>,
    /// PORT/PATH that must answer 2xx or 3xx while it is healthy.
    #[arg(long, value_name = "PORT/PATH", group = "probe", help_heading = "Health")]
    health_http: Option<String>,
    /// Time between checks [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "probe", help_heading = "Health")]
    health_interval: Option<std::time::Duration>,
    /// Failures in this time after the start do not count.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "probe", help_heading = "Health")]
    health_grace: Option<std::time::Duration>,
    /// Label KEY=VALUE of the instance; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse::pair, help_heading = "Place")]
    label: Vec<(String, String)>,
    /// The only zone that will do.
    #[arg(long, value_name = "NAME", help_heading = "Place")]
    zone: Option<String>,
    /// Label KEY=VALUE the node must carry; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::pair, help_heading = "Place")]
    node_label: Vec<(String, String)>,
    /// Architecture the node must have.
    #[arg(long, value_enum, value_name = "ARCH", help_heading = "Place")]
    arch: Option<ArchOption>,
    /// Keep instances of this group apart.
    #[arg(long, value_name = "GROUP", help_heading = "Place")]
    spread: Option<String>,
    /// Node label whose values the group is spread over, instead of nodes.
    #[arg(long, value_name = "LABEL", requires = "spread", help_heading = "Place")]
    spread_by: Option<String>,
    /// Prefer nodes with instances that carry KEY=VALUE; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::pair, help_heading = "Place")]
    near: Vec<(String, String)>,
    /// Never share a node with instances that carry KEY=VALUE; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::pair, help_heading = "Place")]
    away: Vec<(String, String)>,
}

impl InstanceOptions {
    /// The spec these options ask for, not checked yet.
    pub fn into_spec(self, command: Vec<String>) -> Result<InstanceSpec> {
        let defaults = InstanceSpec::new(self.image.clone());
        Ok(InstanceSpec {
            command,
            cpu: self.cpu.unwrap_or(defaults.cpu),
            memory: self.memory.unwrap_or(defaults.memory),
            disk: self.disk.unwrap_or(defaults.disk),
            pids: self.pids.unwrap_or(defaults.pids),
            gpu: self.gpu(),
            health: self.health()?,
            constraints: self.constraints(),
            restart: match self.restart {
                Some(Restart::Never) => RestartPolicy::Never,
                Some(Restart::OnFailure) => RestartPolicy::OnFailure,
                Some(Restart::Always) => RestartPolicy::Always,
                None => defaults.restart,
            },
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            labels: self.label.into_iter().collect(),
            user: self.user,
            workdir: self.workdir,
            ..defaults
        })
    }

    fn gpu(&self) -> Option<GpuAsk> {
        let models = self.gpu_model.clone();
        match (self.gpus, self.gpu_share) {
            (_, Some(milli)) => Some(GpuAsk { count: 1, milli, models }),
            (Some(count), None) => Some(GpuAsk { count, milli: model::resources::GPU_WHOLE_MILLI, models }),
            (None, None) if models.is_empty() => None,
            (None, None) => Some(GpuAsk { count: 1, milli: model::resources::GPU_WHOLE_MILLI, models }),
        }
    }

    fn health(&self) -> Result<Option<HealthCheck>> {
        let probe = if let Some(command) = &self.health_cmd {
            HealthProbe::Command(vec!["sh".into(), "-c".into(), command.clone()])
        } else if let Some(port) = self.health_tcp {
            HealthProbe::Tcp { port }
        } else if let Some(text) = &self.health_http {
            let (port, path) = text.split_once('/').unwrap_or((text, ""));
            let port = port.trim_start_matches(':').parse().map_err(|_| {
                Failure::new(format!("'{text}' is not PORT/PATH, such as 8080/health")).at("--health-http")
            })?;
            HealthProbe::Http { port, path: format!("/{path}") }
        } else {
            return Ok(None);
        };
        let mut check = serde_json::json!({ "probe": probe });
        let mut set = |field: &str, time: Option<std::time::Duration>| {
            if let Some(time) = time {
                check[field] = (time.as_millis() as u64).into();
            }
        };
        set("interval_ms", self.health_interval);
        set("grace_ms", self.health_grace);
        Ok(Some(serde_json::from_value(check).expect("the fields are those of a health check")))
    }

    fn constraints(&self) -> Constraints {
        let term = |anti: bool| {
            move |(label, value): &(String, String)| Affinity {
                label: label.clone(),
                value: value.clone(),
                anti,
                required: anti,
            }
        };
        Constraints {
            zone: self.zone.clone(),
            node_labels: self.node_label.iter().cloned().collect(),
            arch: self.arch.map(|arch| match arch {
                ArchOption::Amd64 => Arch::Amd64,
                ArchOption::Arm64 => Arch::Arm64,
                ArchOption::Riscv64 => Arch::Riscv64,
            }),
            spread: self.spread.clone().map(|group| Spread {
                group,
                by: self.spread_by.clone(),
                max_skew: None,
            }),
            affinity: self.near.iter().map(term(false)).chain(self.away.iter().map(term(true))).collect(),
            ..Constraints::default()
        }
    }
}

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let spec = args.options.into_spec(args.command)?;
    spec.validate()?;
    let request = InstanceCreate { name: args.name, spec };
    if args.dry_run {
        return dry_run(session, &request).await;
    }
    let instance = create(session, &request).await?;
    let instance = match args.waiting.limit() {
        None => {
            note(format!("instance {}: asked for; see: banyan instance get {0}", instance.name));
            instance
        }
        Some(timeout) => {
            let goal = Goal::Running { after: None };
            wait(&session.client, instance.id.as_str(), instance.name.as_str(), goal, timeout)
                .await?
                .unwrap_or(instance)
        }
    };
    let name = instance.name.to_string();
    output::item(session.format, &instance, &name, get::describe)
}

/// Asks for it, again with the same key when the answer was lost, so that it is made once.
pub async fn create(session: &Session, request: &InstanceCreate) -> Result<api::Instance> {
    let key = hex::encode(rand::random::<[u8; 16]>());
    let mut attempt = 1;
    loop {
        match session.client.instance_create_once(request, &key).await {
            Err(error) if error.kind == ErrorKind::Unavailable && attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(std::time::Duration::from_millis(200 * attempt as u64)).await;
                attempt += 1;
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                return Err(Failure::from(error).or_hint("see the images with: banyan image list"));
            }
            Err(error) => return Err(error.into()),
            Ok(instance) => return Ok(instance),
        }
    }
}

/// Checks what can be checked from here: the image is there, the name is free, the quota holds.
async fn dry_run(session: &Session, request: &InstanceCreate) -> Result<()> {
    let client = &session.client;
    client.image_get(&request.spec.image).await.map_err(|error| {
        Failure::from(error).at("image").or_hint("see the images with: banyan image list")
    })?;
    match client.instance_get(request.name.as_str()).await {
        Ok(_) => {
            return Err(Failure::new(format!("there is already an instance '{}'", request.name)).at("name"));
        }
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let report = client.quota().await?;
    let (quota, usage) = (report.quota, report.usage);
    let over = [
        ("instances", quota.instances.is_some_and(|most| usage.instances + 1 > most)),
        ("cpu", quota.cpu.is_some_and(|most| usage.cpu.0 + request.spec.cpu.0 > most.0)),
        ("memory", quota.memory.is_some_and(|most| usage.memory.0 + request.spec.memory.0 > most.0)),
    ];
    if let Some((what, _)) = over.iter().find(|(_, over)| *over) {
        return Err(Failure::new(format!(
            "the quota of {what} of tenant '{}' would be exceeded",
            report.tenant
        ))
        .hint("see what is used with: banyan quota get"));
    }
    note(format!("instance {}: would be created (nothing was changed)", request.name));
    let name = request.name.to_string();
    output::item(session.format, request, &name, |request, _| {
        let spec = yaml_serde::to_string(&request.spec).unwrap_or_default();
        vec![("name".into(), request.name.to_string()), ("spec".into(), spec)]
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::FromArgMatches;

    fn spec(words: &[&str]) -> InstanceSpec {
        let command = InstanceOptions::augment_args(clap::Command::new("x"));
        let all = ["x", "--image", "busybox"].iter().chain(words);
        let matches = command.try_get_matches_from(all).unwrap();
        InstanceOptions::from_arg_matches(&matches).unwrap().into_spec(vec!["sh".into()]).unwrap()
    }

    #[test]
    fn no_options_give_the_defaults_of_the_model() {
        let mut expect = InstanceSpec::new("busybox");
        expect.command = vec!["sh".into()];
        assert_eq!(spec(&[]), expect);
    }

    #[test]
    fn options_reach_the_spec_and_it_is_valid() {
        let spec = spec(&[
            "--cpu",
            "500m",
            "--memory",
            "64MiB",
            "-e",
            "A=b",
            "--label",
            "app=db",
            "--away",
            "app=db",
            "--near",
            "a=b",
            "--restart",
            "on-failure",
            "--health-http",
            "8080/ok",
            "--health-interval",
            "1s",
            "--gpu-share",
            "500",
            "--spread",
            "db",
            "--zone",
            "here",
            "--arch",
            "arm64",
        ]);
        spec.validate().unwrap();
        assert_eq!((spec.cpu, spec.memory), (Cpu(500), Bytes::mib(64)));
        assert_eq!(spec.restart, RestartPolicy::OnFailure);
        assert_eq!(spec.gpu.unwrap().milli, 500);
        let health = spec.health.unwrap();
        assert_eq!(health.probe, HealthProbe::Http { port: 8080, path: "/ok".into() });
        assert_eq!((health.interval_ms, health.retries), (1_000, 3));
        let terms: Vec<_> = spec.constraints.affinity.iter().map(|term| (term.anti, term.required)).collect();
        assert_eq!(terms, [(false, false), (true, true)]);
    }
}
