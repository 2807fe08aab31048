//! The options that say what an instance is. An instance and a workload are made with them, and a
//! workload is changed with them: what is not given stays as it was.

use std::time::Duration;

use clap::{Args, ValueEnum};
use model::geo::Degrees;
use model::{
    Affinity, Arch, AreaTerm, Bytes, Cpu, GpuAsk, HealthCheck, HealthProbe, InstanceSpec, LatencyTerm,
    LossPolicy, Preference, RestartPolicy, Spread,
};

use crate::cli::parse;
use crate::failure::{Failure, Result};

/// The weight of a preference that is given without one.
const WEIGHT_DEFAULT: u32 = 50;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Restart {
    Never,
    OnFailure,
    Always,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Lost {
    Replace,
    Wait,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ArchOption {
    Amd64,
    Arm64,
    Riscv64,
}

/// Everything of a spec that options can say, except the image and the command.
#[derive(Debug, Args)]
pub struct InstanceOptions {
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
    /// Where there is no room, instances of a lower priority give way [default: 0].
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, help_heading = "Resources")]
    priority: Option<i32>,
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
    /// What follows when its node or zone is lost: begin anew elsewhere, or wait for it [default: replace].
    #[arg(long, value_enum, value_name = "POLICY", help_heading = "Process")]
    lost: Option<Lost>,
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
    health_interval: Option<Duration>,
    /// Failures in this time after the start do not count.
    #[arg(long, value_name = "TIME", value_parser = parse::duration, requires = "probe", help_heading = "Health")]
    health_grace: Option<Duration>,
    /// Environment variable to take away; may be repeated.
    #[arg(long, value_name = "KEY", help_heading = "Process")]
    unset_env: Vec<String>,
    /// Label to take away; may be repeated.
    #[arg(long, value_name = "KEY", help_heading = "Place")]
    unlabel: Vec<String>,
    /// Label KEY=VALUE of the instance; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse::pair, help_heading = "Place")]
    label: Vec<(String, String)>,
    /// The only zone that will do.
    #[arg(long, value_name = "NAME", help_heading = "Place")]
    zone: Option<String>,
    /// The only node that will do.
    #[arg(long, value_name = "NAME", help_heading = "Place")]
    node: Option<String>,
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
    /// Circle on the earth to be in: latitude, longitude and kilometres.
    #[arg(long, value_name = "LAT,LON,KM", value_parser = area, allow_hyphen_values = true, help_heading = "Place")]
    area: Option<AreaTerm>,
    /// Longest measured way, there and back, to a place that nodes measure; may be repeated.
    #[arg(long, value_name = "PLACE=TIME", value_parser = way, help_heading = "Place")]
    latency: Vec<(String, u32)>,
    /// Longest measured way, there and back, to an instance of a workload; may be repeated.
    #[arg(long, value_name = "WORKLOAD=TIME", value_parser = way, help_heading = "Place")]
    latency_to: Vec<(String, u32)>,
    /// Rather there: zone=NAME, node=NAME or a node label, and a weight of 1 to 100 [default: 50]; may be repeated.
    #[arg(long, value_name = "KEY=VALUE[:WEIGHT]", value_parser = preference, help_heading = "Place")]
    prefer: Vec<Preference>,
}

fn area(text: &str) -> Result<AreaTerm, String> {
    let wrong = || format!("'{text}' is not LATITUDE,LONGITUDE,KILOMETRES, such as 48.1,11.6,50");
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [latitude, longitude, radius] = parts[..] else { return Err(wrong()) };
    let degrees = |text: &str| {
        text.parse::<f64>().ok().filter(|degrees| degrees.abs() <= 360.0).map(Degrees::new).ok_or_else(wrong)
    };
    Ok(AreaTerm {
        latitude: degrees(latitude)?,
        longitude: degrees(longitude)?,
        radius_km: radius.parse().map_err(|_| wrong())?,
        required: true,
    })
}

/// `NAME=TIME`, as a name and milliseconds.
fn way(text: &str) -> Result<(String, u32), String> {
    let (name, time) = parse::pair(text)?;
    let ms = parse::duration(&time)?.as_millis();
    let ms = u32::try_from(ms).map_err(|_| format!("'{time}' is too long"))?;
    Ok((name, ms))
}

fn preference(text: &str) -> Result<Preference, String> {
    let (key, value) = parse::pair(text)?;
    let weighted = value.rsplit_once(':').and_then(|(value, weight)| Some((value, weight.parse().ok()?)));
    let (value, weight) = weighted.unwrap_or((value.as_str(), WEIGHT_DEFAULT));
    let (value, mut wish) =
        (value.to_owned(), Preference { zone: None, node: None, label: None, value: None, weight });
    match key.as_str() {
        "zone" => wish.zone = Some(value),
        "node" => wish.node = Some(value),
        _ => (wish.label, wish.value) = (Some(key), Some(value)),
    }
    Ok(wish)
}

/// Sets what was given.
fn set<T>(field: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *field = value;
    }
}

/// Sets what was given, in a field that may be empty.
fn set_some<T>(field: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *field = given;
    }
}

/// Of two values for one key the last would win by accident.
fn once(option: &str, pairs: &[(String, String)]) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for (key, value) in pairs {
        if seen.insert(key, value).is_some_and(|before| before != value) {
            return Err(Failure::new(format!("'{key}' is given two values")).at(option));
        }
    }
    Ok(())
}

fn take_away(
    option: &str,
    what: &str,
    from: &mut std::collections::BTreeMap<String, String>,
    keys: &[String],
) -> Result<()> {
    for key in keys {
        if from.remove(key).is_none() {
            return Err(Failure::new(format!("there is no {what} '{key}' to take away")).at(option));
        }
    }
    Ok(())
}

impl InstanceOptions {
    /// Whether the restart policy is given, and so is not for others to choose.
    pub const fn restart_given(&self) -> bool {
        self.restart.is_some()
    }

    /// Puts what is given into the spec; it is not checked yet. Variables and labels are added to
    /// those there are; of a list, such as affinity, what is given takes the place of the old.
    pub fn change(self, spec: &mut InstanceSpec) -> Result<()> {
        set_some(&mut spec.gpu, self.gpu());
        set_some(&mut spec.health, self.health()?);
        set(&mut spec.cpu, self.cpu);
        set(&mut spec.memory, self.memory);
        set(&mut spec.disk, self.disk);
        set(&mut spec.pids, self.pids);
        set(&mut spec.priority, self.priority);
        set(&mut spec.restart, self.restart.map(RestartPolicy::from));
        set(&mut spec.lost, self.lost.map(LossPolicy::from));
        set_some(&mut spec.user, self.user.clone());
        set_some(&mut spec.workdir, self.workdir.clone());
        once("--env", &self.env)?;
        once("--label", &self.label)?;
        once("--node-label", &self.node_label)?;
        take_away("--unset-env", "environment variable", &mut spec.env, &self.unset_env)?;
        take_away("--unlabel", "label", &mut spec.labels, &self.unlabel)?;
        spec.env.extend(self.env.iter().cloned());
        spec.labels.extend(self.label.iter().cloned());
        self.place(spec);
        Ok(())
    }

    fn place(self, spec: &mut InstanceSpec) {
        let place = &mut spec.constraints;
        set_some(&mut place.zone, self.zone);
        set_some(&mut place.node, self.node);
        place.node_labels.extend(self.node_label);
        set_some(&mut place.arch, self.arch.map(Arch::from));
        let by = self.spread_by;
        set_some(&mut place.spread, self.spread.map(|group| Spread { group, by, max_skew: None }));
        set_some(&mut place.area, self.area);
        let term = |anti: bool| {
            move |(label, value): (String, String)| Affinity { label, value, anti, required: anti }
        };
        let affinity: Vec<_> = self.near.into_iter().map(term(false)).collect();
        let affinity: Vec<_> = affinity.into_iter().chain(self.away.into_iter().map(term(true))).collect();
        let place_way =
            |(name, max_ms)| LatencyTerm { place: Some(name), workload: None, max_ms, required: true };
        let workload_way =
            |(name, max_ms)| LatencyTerm { place: None, workload: Some(name), max_ms, required: true };
        let latency: Vec<_> = self.latency.into_iter().map(place_way).collect();
        let latency: Vec<_> =
            latency.into_iter().chain(self.latency_to.into_iter().map(workload_way)).collect();
        set(&mut place.affinity, Some(affinity).filter(|terms| !terms.is_empty()));
        set(&mut place.latency, Some(latency).filter(|terms| !terms.is_empty()));
        set(&mut place.prefer, Some(self.prefer).filter(|terms| !terms.is_empty()));
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
        let mut set = |field: &str, time: Option<Duration>| {
            if let Some(time) = time {
                check[field] = (time.as_millis() as u64).into();
            }
        };
        set("interval_ms", self.health_interval);
        set("grace_ms", self.health_grace);
        Ok(Some(serde_json::from_value(check).expect("the fields are those of a health check")))
    }
}

impl From<Restart> for RestartPolicy {
    fn from(option: Restart) -> Self {
        match option {
            Restart::Never => Self::Never,
            Restart::OnFailure => Self::OnFailure,
            Restart::Always => Self::Always,
        }
    }
}

impl From<Lost> for LossPolicy {
    fn from(option: Lost) -> Self {
        match option {
            Lost::Replace => Self::Replace,
            Lost::Wait => Self::Wait,
        }
    }
}

impl From<ArchOption> for Arch {
    fn from(option: ArchOption) -> Self {
        match option {
            ArchOption::Amd64 => Self::Amd64,
            ArchOption::Arm64 => Self::Arm64,
            ArchOption::Riscv64 => Self::Riscv64,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::FromArgMatches;

    fn change(spec: &mut InstanceSpec, words: &str) {
        let command = InstanceOptions::augment_args(clap::Command::new("x"));
        let matches =
            command.try_get_matches_from(["x"].into_iter().chain(words.split_whitespace())).unwrap();
        InstanceOptions::from_arg_matches(&matches).unwrap().change(spec).unwrap();
    }

    #[test]
    fn no_options_change_nothing() {
        let mut spec = InstanceSpec::new("busybox");
        change(&mut spec, "");
        assert_eq!(spec, InstanceSpec::new("busybox"));
        change(&mut spec, "--cpu 2 --env A=1 --zone here --away app=db --health-tcp 80");
        let before = spec.clone();
        change(&mut spec, "");
        assert_eq!(spec, before);
        change(&mut spec, "--env B=2 --memory 64MiB");
        assert_eq!((spec.env.len(), spec.cpu, spec.memory), (2, Cpu(2000), Bytes::mib(64)));
    }

    #[test]
    fn options_reach_the_spec_and_it_is_valid() {
        let mut spec = InstanceSpec::new("busybox");
        change(
            &mut spec,
            "--cpu 500m --memory 64MiB -e A=b --label app=db --away app=db --near a=b --restart on-failure \
             --health-http 8080/ok --health-interval 1s --gpu-share 500 --spread db --zone here --arch arm64 \
             --lost wait --priority -5",
        );
        spec.validate().unwrap();
        assert_eq!((spec.cpu, spec.memory), (Cpu(500), Bytes::mib(64)));
        assert_eq!((spec.restart, spec.lost), (RestartPolicy::OnFailure, LossPolicy::Wait));
        assert_eq!((spec.gpu.unwrap().milli, spec.priority), (500, -5));
        let health = spec.health.unwrap();
        assert_eq!(health.probe, HealthProbe::Http { port: 8080, path: "/ok".into() });
        assert_eq!((health.interval_ms, health.retries), (1_000, 3));
        let terms: Vec<_> = spec.constraints.affinity.iter().map(|term| (term.anti, term.required)).collect();
        assert_eq!(terms, [(false, false), (true, true)]);
    }

    #[test]
    fn nearness_is_said_in_places_and_times() {
        let mut spec = InstanceSpec::new("busybox");
        change(
            &mut spec,
            "--area -33.9,151.2,50 --latency office=20ms --latency-to db=5ms --prefer zone=east:80 --prefer disk=ssd",
        );
        spec.validate().unwrap();
        let place = spec.constraints;
        assert_eq!(place.area.unwrap().latitude, Degrees::new(-33.9));
        assert_eq!(place.latency.iter().map(|term| term.max_ms).collect::<Vec<_>>(), [20, 5]);
        assert_eq!(place.latency[1].workload.as_deref(), Some("db"));
        assert_eq!((place.prefer[0].zone.as_deref(), place.prefer[0].weight), (Some("east"), 80));
        assert_eq!(
            (place.prefer[1].label.as_deref(), place.prefer[1].weight),
            (Some("disk"), WEIGHT_DEFAULT)
        );
        assert!(area("1,2").is_err() && area("a,b,c").is_err() && way("x=soon").is_err());
    }
}
