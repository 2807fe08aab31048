//! Which OCI runtime this node uses: the first that really runs a container here.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use model::exchange::{Assignment, Run};
use model::{
    Arch, Bytes, Error, ErrorKind, Generation, ImageId, ImageManifest, InstanceId, InstanceSpec, Platform,
    Result, TenantId,
};
use serde_json::{Value, json};

use crate::bundle;
use crate::cgroup::Cgroups;
use crate::config::EngineConfig;
use crate::dir::InstanceDir;
use crate::network::{Attachment, Netns};
use crate::shim::{Plan, RuntimeCall};
use crate::supervise::{PATH, Shim, sweep};

/// In order of preference: crun starts in half the time.
const CANDIDATES: [&str; 2] = ["crun", "runc"];
/// What old versions of crun say on machines that use both versions of cgroups.
const HYBRID_COMPLAINT: &str = "hybrid mode not supported";
const PROBE_LOG_BYTES: u64 = 64 * 1024;

/// Finds a runtime by running a trivial container with each candidate.
pub async fn probe(config: &EngineConfig, cgroups: &Cgroups) -> Result<RuntimeCall> {
    let wanted: Vec<PathBuf> = match &config.oci_runtime {
        Some(path) => vec![path.clone()],
        None => CANDIDATES.iter().map(PathBuf::from).collect(),
    };
    let mut complaints = Vec::new();
    for name in &wanted {
        let Some(program) = program_find(name) else {
            complaints.push(format!("{} is not installed", name.display()));
            continue;
        };
        match program_probe(config, cgroups, program).await {
            Ok(call) => {
                tracing::info!(runtime = %call.program.display(), hides_cgroup2 = call.hide.is_some(), "OCI runtime found");
                return Ok(call);
            }
            Err(error) if error.kind == ErrorKind::OutOfSpace => {
                let folder = config.data.display();
                return Err(Error::new(
                    error.kind,
                    format!("the disk of {folder} is full: no container can start"),
                )
                .hint("make room on it, and start again")
                .because(error));
            }
            Err(error) => complaints.push(format!("{}: {error}", name.display())),
        }
    }
    Err(Error::unavailable(format!("no OCI runtime can run containers here ({})", complaints.join("; ")))
        .hint("install one with: apt-get install crun"))
}

fn program_find(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    PATH.split(':').map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())
}

async fn program_probe(config: &EngineConfig, cgroups: &Cgroups, program: PathBuf) -> Result<RuntimeCall> {
    let mut call = RuntimeCall { program, root: config.data.join("runtime"), hide: None };
    match container_probe(config, cgroups, &call).await {
        Err(error) if error.message.contains(HYBRID_COMPLAINT) && cgroups.v2_beside_v1().is_some() => {
            call.hide = cgroups.v2_beside_v1();
            container_probe(config, cgroups, &call).await?;
        }
        other => other?,
    }
    Ok(call)
}

/// Runs `/bin/true` of the host with every limit and filter that instances get.
async fn container_probe(config: &EngineConfig, cgroups: &Cgroups, call: &RuntimeCall) -> Result<()> {
    let dir = InstanceDir::new(config.data.join("probe"));
    let assignment = probe_assignment();
    let id = assignment.id.as_str();
    let clear = async || -> Result<()> {
        sweep(&config.shim, call, &dir, id).await?;
        cgroups.clear(id)?;
        match std::fs::remove_dir_all(dir.path()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    };
    clear().await?;
    std::fs::create_dir_all(dir.file("empty"))?;
    std::fs::create_dir_all(&call.root)?;
    let net = Attachment { netns: Netns::Private, address: None, nameservers: Vec::new() };
    bundle::etc_write(&assignment, &dir, &net)?;
    let mut settings = bundle::config(&assignment, &dir, cgroups, &net)?;
    host_programs_bind(&mut settings);
    let plan = Plan {
        id: id.to_owned(),
        runtime: call.clone(),
        layers: vec![dir.file("empty")],
        oom_files: Vec::new(),
        user: None,
        log_bytes_max: PROBE_LOG_BYTES,
        config: settings,
    };
    let result = match Shim::start(&config.shim, &dir, &plan).await {
        Ok(shim) => {
            shim.ended().await;
            shim.finish().await
        }
        Err(error) => {
            clear().await?;
            return Err(error);
        }
    };
    let said = [dir.log(), dir.file("shim.err")]
        .map(|path| std::fs::read_to_string(path).unwrap_or_default())
        .concat();
    clear().await?;
    match result {
        Some(exit) if exit.code == 0 => Ok(()),
        Some(exit) => {
            Err(Error::unavailable(format!("a trial container exited with {}: {}", exit.code, said.trim())))
        }
        None => Err(Error::unavailable(format!("the shim of a trial container was lost: {}", said.trim()))),
    }
}

fn host_programs_bind(settings: &mut Value) {
    let Some(mounts) = settings.get_mut("mounts").and_then(Value::as_array_mut) else { return };
    for path in ["/usr", "/bin", "/lib", "/lib32", "/lib64"].iter().filter(|path| Path::new(path).exists()) {
        mounts
            .push(json!({ "destination": path, "type": "bind", "source": path, "options": ["bind", "ro"] }));
    }
}

/// The instance that trial containers are of; no other has this id.
pub(crate) static PROBE_ID: LazyLock<InstanceId> = LazyLock::new(|| InstanceId::from_random(0));

pub(crate) fn probe_assignment() -> Assignment {
    let mut spec = InstanceSpec::new("probe");
    spec.command = vec!["/bin/true".to_owned()];
    spec.memory = Bytes::mib(64);
    Assignment {
        id: PROBE_ID.clone(),
        tenant: TenantId::from_random(0),
        name: "probe".parse().expect("a legal name"),
        generation: Generation::default(),
        run: Run::Running,
        restart_count: 0,
        spec: spec.into(),
        group: None,
        image: std::sync::Arc::new(ImageManifest {
            id: ImageId::from_random(0),
            platform: Platform { arch: Arch::HOST },
            layers: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: std::collections::BTreeMap::new(),
            user: None,
            workdir: None,
        }),
    }
}
