//! A real `banyan up` in a folder of its own, used as a person would, and gone with the test.
//!
//! [`Cloud::shared`] is one cloud for all tests of a binary that run at the same time; each test has
//! its own names in it. [`Cloud::new`] is a cloud of one's own that a test starts and ends as it likes.
#![allow(clippy::unwrap_used, dead_code)]

pub mod cluster;
pub mod guard;
pub mod image;
pub mod terminal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use guard::{Guard, Remains};
use serde_json::Value;

/// How long to wait for what must come, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(30);
/// Where buckets have host names of their own.
pub const S3_DOMAIN: &str = "s3.localhost";

pub struct Cloud {
    pub home: PathBuf,
    pub tag: String,
    program: PathBuf,
    process: Mutex<Option<Child>>,
    _guard: Guard,
}

impl Cloud {
    /// A folder and names for a cloud that is not started yet.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = std::fs::metadata("/proc/self").map(|proc| std::os::unix::fs::MetadataExt::uid(&proc));
        assert_eq!(root.unwrap(), 0, "these tests start containers and networks: run them as root");
        // Ten characters at most, and no name the beginning of another: devices are named after it.
        let tag = format!("b{:x}x{:02x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&tag);
        std::fs::create_dir_all(&home).unwrap();
        let guard = Guard::new(&home, &tag);
        // A link of its own, so that a build at the same time does not take the program away.
        let program = home.join("banyan");
        std::fs::hard_link(env!("CARGO_BIN_EXE_banyan"), &program).unwrap();
        Self { home, tag, program, process: Mutex::new(None), _guard: guard }
    }

    /// A cloud of one's own that is up.
    pub fn start(options: &[&str]) -> Self {
        let cloud = Self::new();
        cloud.up(options);
        cloud
    }

    /// The cloud that tests running at the same time share; it ends with the last holder.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Cloud>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(cloud) = shared.upgrade() {
            return cloud;
        }
        let cloud = Arc::new(Self::start(&[]));
        *shared = Arc::downgrade(&cloud);
        cloud
    }

    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// `banyan up` with this cloud's names, not started yet. Later options win over earlier ones.
    pub fn up_command(&self, options: &[&str]) -> Command {
        let mut command = self.command(&["up"]);
        let given = |name: &str| options.contains(&name);
        if !given("--data") {
            command.arg("--data").arg(self.data());
        }
        if !given("--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(["--bridge", &self.tag, "--cgroup-parent", &self.tag, "--s3-domain", S3_DOMAIN]);
        command.args(options);
        command.env("BANYAN_LOG", "info");
        command
    }

    /// Starts the cloud and waits until it says that it is up.
    pub fn up(&self, options: &[&str]) {
        assert!(self.up_or_not(options), "banyan up ended: {}", self.log());
    }

    /// Starts the cloud where it may refuse; whether it is up.
    pub fn up_or_not(&self, options: &[&str]) -> bool {
        let log = std::fs::File::options().create(true).append(true).open(self.home.join("up.log")).unwrap();
        let before = log.metadata().unwrap().len() as usize;
        let mut command = self.up_command(options);
        let mut child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let up = until("the cloud is up or ended", || match child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => self.log()[before..].contains("Banyan is up").then_some(true),
        });
        *self.process.lock().unwrap() = Some(child).filter(|_| up);
        up
    }

    /// Starts `banyan up` where it must refuse, and returns what it says.
    pub fn up_refused(&self, options: &[&str]) -> String {
        let output = self.up_command(options).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success(), "banyan up did not refuse: {said}");
        let errors: Vec<_> = said.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(errors.len(), 1, "not one sentence: {said}");
        said
    }

    /// Waits until the cloud's output has this in it.
    pub fn greets(&self, part: &str) {
        until(&format!("the cloud says '{part}'"), || self.log().contains(part).then_some(()));
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.home.join("up.log")).unwrap_or_default()).into_owned()
    }

    /// Ends the cloud's process as an operator does; its instances go on.
    pub fn terminate(&self) {
        let mut child = self.process.lock().unwrap().take().expect("the cloud is up");
        signal(child.id(), rustix::process::Signal::TERM);
        let status = child.wait().unwrap();
        assert!(status.success(), "banyan up ended with {status}: {}", self.log());
    }

    /// The number of the cloud's process.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().as_ref().expect("the cloud is up").id()
    }

    /// `kill -9`.
    pub fn kill(&self) {
        let mut child = self.process.lock().unwrap().take().expect("the cloud is up");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn config(&self) -> PathBuf {
        self.home.join("config.yaml")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", &self.home);
        command.env("BANYAN_CONFIG", self.config()).current_dir(&self.home).stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its data.
    pub fn good(&self, words: &[&str]) -> String {
        good(&mut self.command(words))
    }

    /// Runs a command that must fail with code 1 and one sentence, and returns what it says.
    pub fn bad(&self, words: &[&str]) -> String {
        bad(&mut self.command(words))
    }

    /// Runs a command with something on its standard input.
    pub fn fed(&self, words: &[&str], input: &[u8]) -> Output {
        fed(&mut self.command(words), input)
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.good(&[words, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap()
    }

    pub fn get(&self, name: &str) -> Value {
        self.json(&["instance", "get", name])
    }

    /// Creates an instance that runs this script, and waits for it.
    pub fn create(&self, name: &str, options: &[&str], script: &str) -> Value {
        let words = [&["instance", "create", name, "--image", "busybox"], options, &["-o", "json"]].concat();
        let text = self.good(&[&words[..], &["--", "sh", "-c", script]].concat());
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until an instance is as it should be.
    pub fn wait(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            last = self.get(name);
            if holds(&last) {
                return last;
            }
            std::thread::sleep(PAUSE);
        }
        panic!(
            "{name}: never {what}: {last:#}\n{}\n{}",
            self.good(&["event", "list", "--subject", name]),
            self.log()
        )
    }

    pub fn exec(&self, name: &str, script: &str) -> Output {
        self.run(&["instance", "exec", name, "--", "sh", "-c", script])
    }

    pub fn logs(&self, name: &str) -> String {
        self.good(&["instance", "logs", name])
    }

    /// What happened to an instance, oldest first.
    pub fn events(&self, name: &str) -> Vec<Value> {
        self.json(&["event", "list", "--limit", "200", "--subject", name]).as_array().unwrap().clone()
    }

    pub fn endpoint(&self) -> String {
        self.admin()["endpoint"].as_str().unwrap().to_owned()
    }

    pub fn admin(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.data().join("admin.json")).unwrap()).unwrap()
    }

    /// The typed client with the first operator's token.
    pub fn client(&self) -> api::Client {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let token = self.admin()["token"].as_str().unwrap().to_owned();
        api::Client::new(&self.endpoint(), Some(token)).unwrap()
    }

    /// The folder in which the node keeps an instance.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.data().join("node/engine/instances").join(id)
    }

    /// Pid and start time of an instance's first process: together they name one life of it.
    pub fn life(&self, id: &str) -> (u64, String) {
        let started = std::fs::read(self.folder(id).join("started.json")).unwrap();
        let started: Value = serde_json::from_slice(&started).unwrap();
        let pid = started["pid"].as_u64().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let tail = stat.rsplit_once(')').map(|(_, tail)| tail.to_owned()).unwrap_or_default();
        (pid, tail.split_whitespace().nth(19).unwrap_or("gone").to_owned())
    }

    pub fn remains(&self) -> Remains {
        Remains::look(&self.data(), &self.tag)
    }

    /// A limit of an instance as the kernel holds it, in version 1 or version 2 of cgroups.
    pub fn cgroup(&self, id: &str, v1: &str, v2: &str) -> String {
        let root = Path::new("/sys/fs/cgroup");
        let (controller, _) = v1.split_once('.').unwrap();
        let old = root.join(controller).join(&self.tag).join(id).join(v1);
        let new = root.join(&self.tag).join(id).join(v2);
        std::fs::read_to_string(&old).or_else(|_| std::fs::read_to_string(&new)).unwrap().trim().to_owned()
    }

    fn up_now(&self) -> bool {
        self.process.lock().is_ok_and(|process| process.is_some())
    }
}

impl Drop for Cloud {
    /// After a good test: deletes everything through the cloud, ends it, and looks whether anything is
    /// left. After a bad one the guard alone clears up.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.up_now() {
            return;
        }
        for tenant in self.json(&["tenant", "list"]).as_array().unwrap() {
            let name = tenant["name"].as_str().unwrap();
            self.good(&["--tenant", name, "instance", "delete", "--all", "--yes"]);
        }
        self.terminate();
        assert_eq!(self.remains(), Remains::default(), "something of deleted instances is left");
    }
}

pub fn good(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub fn bad(command: &mut Command) -> String {
    let output = command.output().unwrap();
    refused(&output);
    text(&output.stderr)
}

/// It failed with code 1, without data, and with one sentence that says why.
pub fn refused(output: &Output) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "it succeeded or broke: {}{said}", text(&output.stdout));
    assert_eq!(text(&output.stdout), "", "it wrote data although it failed");
    assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{said}");
}

pub fn fed(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = feeder.join();
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "it never came true: {what}");
        std::thread::sleep(PAUSE);
    }
}

/// The words of what happened, in order.
pub fn whats(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["what"].as_str().unwrap()).collect()
}

pub fn wait_async<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
