//! An engine on real runtimes in its own data directory and cgroup, and a check that nothing is left.
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use model::exchange::{Assignment, ObservedInstance, Run};
use model::{
    Arch, Bytes, Generation, ImageId, ImageManifest, InstanceId, InstanceSpec, Platform, RestartPolicy,
    TenantId,
};
use node::{Backoff, Engine, EngineConfig, HostNetwork, LayerSource};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Layers(Vec<PathBuf>);

impl LayerSource for Layers {
    fn rootfs_layers<'a>(&'a self, _image: &'a ImageManifest) -> BoxFuture<'a, model::Result<Vec<PathBuf>>> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn release(&self, _image: &ImageManifest) {}
}

pub struct World {
    temp: tempfile::TempDir,
    parent: String,
    runtime: PathBuf,
    pub stop_grace: Duration,
    pub log_bytes_max: u64,
    pub backoff: Backoff,
}

impl World {
    pub fn new(runtime: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let runtime = PathBuf::from("/usr/bin").join(runtime);
        let runtime = if runtime.exists() {
            runtime
        } else {
            Path::new("/usr/sbin").join(runtime.file_name().unwrap())
        };
        assert!(runtime.exists(), "{} is missing: apt-get install crun runc", runtime.display());
        let temp = tempfile::tempdir().unwrap();
        rootfs_make(temp.path());
        let parent = format!("banyan-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let backoff = Backoff {
            first: Duration::from_millis(20),
            max: Duration::from_millis(200),
            reset_after: Duration::from_secs(60),
        };
        Self { temp, parent, runtime, stop_grace: Duration::from_secs(10), log_bytes_max: 1 << 20, backoff }
    }

    pub fn data(&self) -> PathBuf {
        self.temp.path().join("data")
    }

    pub fn config(&self) -> EngineConfig {
        let mut config = EngineConfig::new(self.data(), "node-1".parse().unwrap());
        config.oci_runtime = Some(self.runtime.clone());
        config.shim = vec![PathBuf::from(env!("CARGO_BIN_EXE_banyan-shim"))];
        config.cgroup_parent = self.parent.clone();
        config.stop_grace = self.stop_grace;
        config.log_bytes_max = self.log_bytes_max;
        config.backoff = self.backoff;
        config
    }

    pub async fn engine(&self) -> Engine {
        self.start(self.config()).await.unwrap()
    }

    pub async fn start(&self, config: EngineConfig) -> model::Result<Engine> {
        self.start_with(config, Arc::new(HostNetwork)).await
    }

    pub async fn start_on(&self, config: EngineConfig, network: Arc<dyn node::Network>) -> Engine {
        self.start_with(config, network).await.unwrap()
    }

    async fn start_with(
        &self,
        config: EngineConfig,
        network: Arc<dyn node::Network>,
    ) -> model::Result<Engine> {
        let layers = ["lower", "upper"].map(|name| self.temp.path().join(name)).to_vec();
        let clock = Arc::new(work::SystemClock);
        Engine::start(config, clock, Arc::new(Layers(layers)), network).await
    }

    /// Removes everything through the engine and then looks for anything that is still there.
    pub async fn end(self, engine: Engine) {
        engine.apply(Vec::new());
        wait_for(&engine, |all| all.is_empty()).await;
        engine.shutdown().await;
        self.nothing_left();
    }

    pub fn nothing_left(&self) {
        let path = self.temp.path().to_str().unwrap();
        let empty = |dir: &str| std::fs::read_dir(self.data().join(dir)).unwrap().next().is_none();
        assert!(empty("instances"), "an instance directory is left");
        assert!(empty("runtime"), "the runtime still knows a container");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(path), "a mount is left");
        for process in processes().filter(|process| !zombie(process)) {
            let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&command).contains(path), "a process is left: {command:?}");
            let cgroup = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            assert!(!cgroup.contains(&format!("{}/", self.parent)), "a process is left in {cgroup}");
        }
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            for parent in
                [hierarchy.path().join(&self.parent), PathBuf::from("/sys/fs/cgroup").join(&self.parent)]
            {
                let children = std::fs::read_dir(parent).into_iter().flatten().flatten();
                let left: Vec<_> =
                    children.filter(|c| c.file_type().unwrap().is_dir()).map(|c| c.path()).collect();
                assert!(left.is_empty(), "a cgroup is left: {left:?}");
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Also after a failed test: the processes of this world, by their own cgroup.
        let cgroups = node::cgroup::Cgroups::find(&self.parent).unwrap();
        for entry in std::fs::read_dir(self.data().join("instances")).into_iter().flatten().flatten() {
            let _ = cgroups.clear(entry.file_name().to_str().unwrap());
        }
        cgroups.parent_remove();
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| path.file_name().unwrap().to_str().unwrap().parse::<u32>().is_ok())
}

/// Dead, but not yet reaped by whoever inherited it.
fn zombie(process: &Path) -> bool {
    std::fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains("State:\tZ"))
}

/// Two layers: busybox with its commands, and some files over it.
fn rootfs_make(at: &Path) {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("busybox is missing: apt-get install busybox-static");
    let (lower, upper) = (at.join("lower"), at.join("upper"));
    for dir in [lower.join("bin"), lower.join("etc"), lower.join("tmp"), upper.join("etc")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::copy(busybox, lower.join("bin/busybox")).unwrap();
    let applets = "sh sleep echo cat true false id env pwd hostname stty tty ls dd head tail yes seq kill nc httpd touch ps wc mount unshare grep trap test";
    for name in applets.split(' ') {
        symlink("busybox", lower.join("bin").join(name)).unwrap();
    }
    std::fs::write(lower.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    std::fs::write(upper.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n")
        .unwrap();
    std::fs::write(upper.join("etc/group"), "root:x:0:\nweb:x:44:\nlogs:x:50:web\n").unwrap();
}

pub fn assignment(number: u128, script: &str) -> Assignment {
    let mut spec = InstanceSpec::new("busybox");
    spec.command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    spec.restart = RestartPolicy::Never;
    spec.memory = Bytes::mib(32);
    Assignment {
        id: InstanceId::from_random(number),
        tenant: TenantId::from_random(1),
        name: "web-1".parse().unwrap(),
        generation: Generation { major: 1, minor: 1 },
        run: Run::Running,
        restart_count: 0,
        spec: spec.into(),
        group: None,
        image: std::sync::Arc::new(ImageManifest {
            id: ImageId::from_random(1),
            platform: Platform { arch: Arch::HOST },
            layers: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: BTreeMap::from([("FROM_IMAGE".to_owned(), "yes".to_owned())]),
            user: None,
            workdir: None,
        }),
    }
}

pub async fn wait_for(
    engine: &Engine,
    mut holds: impl FnMut(&[ObservedInstance]) -> bool,
) -> Vec<ObservedInstance> {
    let mut changed = engine.changed();
    let waiting = async {
        loop {
            let all = engine.observed();
            if holds(&all) {
                return all;
            }
            changed.changed().await.unwrap();
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(all) => all,
        Err(_) => panic!("it never came true: {:#?}", engine.observed()),
    }
}

pub async fn wait(
    engine: &Engine,
    id: &InstanceId,
    mut holds: impl FnMut(&ObservedInstance) -> bool,
) -> ObservedInstance {
    let all = wait_for(engine, |all| all.iter().any(|one| one.id == *id && holds(one))).await;
    all.into_iter().find(|one| one.id == *id).unwrap()
}

pub async fn logs(engine: &Engine, id: &InstanceId, follow: bool, tail: Option<u64>) -> String {
    let stream = engine.logs(id, follow, tail).await.unwrap();
    let collect = async {
        futures::pin_mut!(stream);
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        String::from_utf8(bytes).unwrap()
    };
    tokio::time::timeout(PATIENCE, collect).await.expect("the log ends")
}

/// Runs each test with both runtimes.
#[macro_export]
macro_rules! on_both_runtimes {
    ($($name:ident),* $(,)?) => {
        mod crun { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name("crun").await; })* }
        mod runc { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name("runc").await; })* }
    };
}
