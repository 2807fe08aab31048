//! `ansible`: playbooks that a provisioner runs against the machine.
//!
//! Fields: `playbook`, the name of a staged playbook; or `archive`, the name of a staged archive, and `playbook`
//! the path of the playbook in it; `roles`, names of staged archives that hold one role each; `tags`; `timeout` in
//! seconds. The inventory is this one machine, in a group of the service's name. Extra variables are what is on
//! the first level of the cluster's configuration, `settings` (all of it, one text a path) and `banyan_action`,
//! `banyan_service`, `banyan_hostname`, `banyan_cluster`, `banyan_node`; their texts are never templates.
//!
//! A playbook is a program of the tenant that runs here. A provisioner that is root gives every run a user and
//! processes of its own, which see nothing of the provisioner and of other runs. One that is not root cannot,
//! and runs none unless it is told by [`TRUSTED`] that all who write playbooks are trusted.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::place::{self, limit, title, words};
use super::{Automator, Job};
use crate::child::{self, Group, prepare};
use crate::ssh::{Auth, Exit, HostKey, Identity, Output, Pin, quote};
use crate::task::{Action, Fault, Report};

/// The variable that lets playbooks run with the provisioner's own rights, when it is `1`.
pub const TRUSTED: &str = "BANYAN_ANSIBLE_TRUSTED";
/// Bytes kept of the beginning and of the end of each output.
const OUTPUT_KEPT: usize = 64 << 10;
/// Bytes of all archives of a run, unpacked.
const ARCHIVE_MAX: u64 = 1 << 30;
const VERSION_MAX: Duration = Duration::from_secs(60);
/// The codes of a shell for a program that may not be run and for one that is not there.
const NOT_RUN: [Exit; 2] = [Exit::Code(126), Exit::Code(127)];
/// The interpreter on machines, unless a playbook says another.
const PYTHON: &str = "/usr/bin/python3";
/// Letters of a reason.
const REASON_MAX: usize = 300;
/// A program that begins when it is told to.
const BEGIN: &str = "read -r _ && exec \"$@\"";
/// What sets a run apart, where the kernel lets it: its own processes are all that `/proc` shows, and its `/tmp` has nothing
/// but its folder. It has no rights to undo that, and no program gives it any.
const APART: &str = r#"mount -t proc proc /proc 2>/dev/null
cd "$1" || exit 125
if mount -t tmpfs -o mode=1777 tmpfs /tmp 2>/dev/null; then mkdir -p "$1" && mount -c --bind . "$1" || exit 125; fi
cd "$1/project" || exit 125
shift
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@""#;
/// Users of runs are above all that people and services have.
const USERS: std::ops::Range<u32> = 0x7000_0000..0x7fff_0000;

pub struct Ansible {
    program: PathBuf,
    seen: std::sync::Mutex<Seen>,
}

/// What the last look found.
#[derive(Default)]
struct Seen {
    /// The file that worked, and when it was changed: it need not be tried again.
    worked: Option<(PathBuf, i64)>,
    /// It was said that one does not work.
    is_told: bool,
}

impl Default for Ansible {
    fn default() -> Self {
        Self::new("ansible-playbook".into())
    }
}

impl Ansible {
    pub fn new(program: PathBuf) -> Self {
        Self { program, seen: Default::default() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The file of the program, and when it was changed.
    fn file(&self) -> Option<(PathBuf, i64)> {
        let changed = |file: PathBuf| {
            let data = fs::metadata(&file).ok().filter(fs::Metadata::is_file)?;
            Some((file, data.ctime()))
        };
        if self.program.components().count() > 1 {
            return changed(self.program.clone());
        }
        let folders = std::env::var_os("PATH")?;
        std::env::split_paths(&folders).find_map(|folder| changed(folder.join(&self.program)))
    }

    fn start(&self, command: &mut Command) -> Result<Group, Fault> {
        Group::start(command).map_err(|error| {
            Fault::invalid(format!("the provisioner cannot start 'sh' for '{}': {error}", self.name()))
        })
    }

    /// Whether the program is here.
    async fn look(&self, stop: &CancellationToken) -> Result<(), Fault> {
        let folder = Folder::new()?;
        let mut command = folder.command(&self.program)?;
        command.arg("--version");
        let child = self.start(&mut command)?;
        let output = child::run(child, "ansible-playbook", VERSION_MAX, OUTPUT_KEPT, stop).await?;
        match output.is_good() {
            true => Ok(()),
            false => Err(self.absent(&output)),
        }
    }

    fn absent(&self, output: &Output) -> Fault {
        let program = self.program.display();
        let why = match output.exit == NOT_RUN[0] {
            true => "the one that is there may not be run by all users".to_owned(),
            false => output.reason(),
        };
        Fault {
            stderr: output.stderr.text(),
            ..Fault::invalid(format!(
                "the provisioner has no '{program}' that works: install ansible there, for all users (Debian's package 'ansible', or ansible-core from PyPI); {why}"
            ))
        }
    }

    async fn play(&self, job: &Job<'_>, action: &Action<'_>) -> Result<Report, Fault> {
        let folder = Folder::new()?;
        let playbook = project(&folder, job, action)?;
        let machine = way(&folder, job, action)?;
        folder.put("vars.yaml", yaml(&variables(job, action)).as_bytes())?;
        folder.give()?;
        let mut command = folder.command(&self.program)?;
        command.args(["-i", "../inventory.json", "-e", "@../vars.yaml"]);
        if machine != "root" {
            command.arg("--become");
        }
        let tags = action.list("tags");
        if !tags.is_empty() {
            command.args(["--tags", &tags.join(",")]);
        }
        command.arg("--").arg(playbook);
        let what = title(job.task, action);
        let child = self.start(&mut command)?;
        let output = child::run(child, &what, limit(action), OUTPUT_KEPT, job.machine.stop()).await?;
        if NOT_RUN.contains(&output.exit) {
            return Err(self.absent(&output));
        }
        let (stdout, stderr) = (output.stdout.text(), output.stderr.text());
        match output.is_good() {
            true => Ok(Report { stdout, stderr, ..Report::default() }),
            false => {
                let host = &job.machine.target().host;
                let why = reason(&stdout, &stderr).unwrap_or_else(|| output.reason());
                Err(Fault { stdout, stderr, ..Fault::failed(format!("{what} failed on {host}: {why}")) })
            }
        }
    }
}

impl Automator for Ansible {
    fn name(&self) -> &str {
        "ansible"
    }

    /// Whether the program is here, and runs as playbooks are run.
    fn is_ready(&self) -> BoxFuture<'_, bool> {
        async move {
            let Some(found) = self.file() else { return false };
            if self.seen().worked.as_ref() == Some(&found) {
                return true;
            }
            let looked = self.look(&CancellationToken::new()).await;
            let mut seen = self.seen();
            match looked {
                Ok(()) => *seen = Seen { worked: Some(found), is_told: false },
                Err(_) if seen.is_told => seen.worked = None,
                Err(why) => {
                    tracing::warn!(%why, "no playbooks are run here");
                    *seen = Seen { worked: None, is_told: true };
                }
            }
            seen.worked.is_some()
        }
        .boxed()
    }

    /// The program must be here, and its language there.
    fn bootstrap<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move {
            self.look(job.machine.stop()).await?;
            place::ready_program(job, PYTHON, "python3-minimal").await
        }
        .boxed()
    }

    fn act<'a>(&'a self, job: &'a Job<'a>, action: Action<'a>) -> BoxFuture<'a, Result<Report, Fault>> {
        async move { self.play(job, &action).await }.boxed()
    }
}

/// A folder here, for one run. It goes with what is in it, whatever happens.
///
/// ```text
///   key, known_hosts, inventory.json, vars.yaml
///   project/   the playbook, and roles/
/// ```
struct Folder {
    at: tempfile::TempDir,
    /// Whom it belongs to, if not to us.
    user: Option<u32>,
}

fn here(error: std::io::Error) -> Fault {
    Fault::failed(format!("the folder of the run: {error}"))
}

impl Folder {
    fn new() -> Result<Self, Fault> {
        let user = match rustix::process::geteuid().is_root() {
            true => Some(rand::random_range(USERS)),
            false if std::env::var(TRUSTED).is_ok_and(|value| value == "1") => None,
            false => {
                return Err(Fault::invalid(format!(
                    "a provisioner that is not root runs no playbooks, because they would see all that it sees; \
                     run it as root, or set {TRUSTED}=1 for it if all who write playbooks are trusted"
                )));
            }
        };
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&std::env::temp_dir()));
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let at = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(here)?;
        let folder = Self { at, user };
        fs::create_dir_all(folder.path("project/roles")).map_err(here)?;
        folder.give()?;
        Ok(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        use std::io::Write;
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.path(name));
        file.and_then(|mut file| file.write_all(bytes)).map_err(here)
    }

    /// All of it belongs to the user of the run.
    fn give(&self) -> Result<(), Fault> {
        match self.user {
            Some(user) => give(self.at.path(), user).map_err(here),
            None => Ok(()),
        }
    }

    /// The program, ready to start in the project. Its `ssh` needs a user with a name, so a user of its own is
    /// `root` in a namespace where that means nothing; all of its processes end with it, and it sees no others.
    fn command(&self, program: &Path) -> Result<Command, Fault> {
        let mut command = Command::new("sh");
        command.args(["-c", BEGIN, "sh"]);
        if let Some(user) = self.user {
            command.args([
                "unshare",
                "--user",
                "--map-root-user",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
            ]);
            command.args(["--", "sh", "-c", APART, "sh"]).arg(self.at.path());
            command.uid(user).gid(user);
        }
        command.arg(program);
        prepare(&mut command);
        command.current_dir(self.path("project")).env("HOME", self.at.path());
        // Connections are shared only where they end with the run.
        let shared = if self.user.is_some() { "auto -o ControlPersist=60s" } else { "no" };
        for (name, value) in [
            ("LC_ALL", "C.UTF-8"),
            ("ANSIBLE_NOCOLOR", "1"),
            ("ANSIBLE_NOCOWS", "1"),
            ("ANSIBLE_HOST_KEY_CHECKING", "1"),
            ("ANSIBLE_PIPELINING", "1"),
            ("ANSIBLE_RETRY_FILES_ENABLED", "0"),
            ("ANSIBLE_PYTHON_INTERPRETER", PYTHON),
            ("ANSIBLE_ROLES_PATH", "roles"),
            ("ANSIBLE_SSH_ARGS", &format!("-o ControlMaster={shared}")),
        ] {
            command.env(name, value);
        }
        command.env("TMPDIR", self.at.path()).env("ANSIBLE_LOCAL_TEMP", self.path("tmp"));
        command.env("ANSIBLE_SSH_CONTROL_PATH_DIR", self.path("cp"));
        Ok(command)
    }
}

/// What folders of runs are called, before the number of their provisioner.
const PREFIX: &str = "banyan-ansible-";

/// Folders hold keys, and a provisioner that is killed leaves its own behind: the next one here takes them away.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
        let is_left = pid.is_some_and(|pid| {
            !pid.is_empty()
                && pid.bytes().all(|byte| byte.is_ascii_digit())
                && !Path::new("/proc").join(pid).exists()
        });
        if is_left && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, folder = %entry.path().display(), "what a run left cannot be removed");
        }
    }
}

fn give(path: &Path, user: u32) -> std::io::Result<()> {
    lchown(path, Some(user), Some(user))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    Ok(())
}

/// Brings the playbook and its roles; returns the playbook's path in the project.
fn project(folder: &Folder, job: &Job<'_>, action: &Action<'_>) -> Result<String, Fault> {
    let playbook =
        action.text("playbook").ok_or_else(|| Fault::invalid("an ansible action needs 'playbook'"))?;
    let is_plain = !playbook.is_empty() && !playbook.starts_with('-');
    let parts = playbook.split('/').all(|part| !part.is_empty() && part != "..");
    if !(is_plain && parts) {
        return Err(Fault::invalid(format!("'{}' is no path of a playbook", model::shown(&playbook))));
    }
    let mut left = ARCHIVE_MAX;
    match action.text("archive") {
        Some(archive) => {
            unpack(&job.resources.file("archives", &archive)?, &folder.path("project"), &archive, &mut left)?;
            if !folder.path("project").join(&playbook).is_file() {
                return Err(Fault::invalid(format!("the archive '{archive}' has no '{playbook}'")));
            }
        }
        None => {
            let text = job.resources.file("playbooks", &playbook)?;
            folder.put(&format!("project/{playbook}"), &text)?;
        }
    }
    for role in action.list("roles") {
        unpack(&job.resources.file("roles", &role)?, &folder.path("project/roles"), &role, &mut left)?;
    }
    Ok(playbook)
}

/// Unpacks a tar archive, compressed or not. Nothing of it gets out of the folder. What it has is taken from `left`.
fn unpack(bytes: &Bytes, into: &Path, name: &str, left: &mut u64) -> Result<(), Fault> {
    let reader: Box<dyn Read + '_> = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(flate2::read::GzDecoder::new(bytes.as_ref())),
        false => Box::new(bytes.as_ref()),
    };
    let mut archive = tar::Archive::new(reader.take(*left));
    archive.unpack(into).map_err(|error| {
        Fault::invalid(format!(
            "the archive '{name}' cannot be unpacked: {error}; all archives are .tar or .tar.gz and have at most {} MiB together",
            ARCHIVE_MAX >> 20
        ))
    })?;
    *left = archive.into_inner().limit();
    Ok(())
}

/// Writes the way into the machine; returns the user we come in as.
fn way(folder: &Folder, job: &Job<'_>, action: &Action<'_>) -> Result<String, Fault> {
    let target = job.machine.target();
    let Auth::Key(key) = &target.auth else {
        return Err(Fault::invalid("ansible comes in with a key, and this machine has a password"));
    };
    let Pin::Known(known) = &target.pin else {
        return Err(Fault::invalid("the machine's host key is not known: it was not confirmed"));
    };
    folder.put("key", Identity::private_text(key).as_bytes())?;
    folder.put("known_hosts", known_hosts(known).as_bytes())?;
    let path = |name: &str| folder.path(name).display().to_string();
    let options = format!(
        "-F none -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o HostKeyAlias={ALIAS} \
         -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes -o PasswordAuthentication=no",
        quote(&path("known_hosts"))
    );
    let host = json!({
        "ansible_host": target.host, "ansible_port": target.port, "ansible_user": target.user,
        "ansible_ssh_private_key_file": path("key"), "ansible_ssh_common_args": options
    });
    let name = match place::name(job.task.hostname().split('.').next().unwrap_or_default()) {
        name if name.is_empty() => "machine".to_owned(),
        name => name,
    };
    let group = place::name(action.service).replace('-', "_");
    let hosts = Map::from_iter([(name.clone(), host)]);
    let mut inventory = json!({"all": {"hosts": hosts}});
    // A group may not have the name of a machine.
    if !group.is_empty() && group != name && !["all", "ungrouped"].contains(&group.as_str()) {
        inventory["all"]["children"] = json!({group: {"hosts": Map::from_iter([(name, json!({}))])}});
    }
    folder.put("inventory.json", inventory.to_string().as_bytes())?;
    Ok(target.user.clone())
}

/// The name of the machine among known hosts, whatever its address.
const ALIAS: &str = "machine";

fn known_hosts(known: &[HostKey]) -> String {
    known.iter().map(|key| format!("{ALIAS} {}\n", key.as_str())).collect()
}

fn variables(job: &Job<'_>, action: &Action<'_>) -> Value {
    let is_variable = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            // How ansible itself works is not the cluster's to say.
            && !name.starts_with("ansible_")
    };
    let cluster = job.task.config.get("cluster").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut all: Map<String, Value> = cluster.into_iter().filter(|(name, _)| is_variable(name)).collect();
    all.insert("settings".to_owned(), json!(job.task.settings()));
    for (name, value) in words(job.task, action) {
        all.insert(format!("banyan_{name}"), json!(value));
    }
    Value::Object(all)
}

/// As YAML whose texts are taken as they are, also if they look like templates.
fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) => format!("!unsafe {}", quoted(text)),
        Value::Array(all) => format!("[{}]", all.iter().map(yaml).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pairs: Vec<String> =
                map.iter().map(|(name, value)| format!("? {} : {}", quoted(name), yaml(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        value => value.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            ' '..='~' => quoted.push(letter),
            // Writing to a text does not fail.
            letter => drop(write!(quoted, "\\U{:08X}", letter as u32)),
        }
    }
    quoted.push('"');
    quoted
}

/// The first thing that ansible says went wrong.
fn reason(stdout: &str, stderr: &str) -> Option<String> {
    let is_reason =
        |line: &&str| ["fatal:", "failed:", "ERROR!", "[ERROR]:"].iter().any(|begin| line.starts_with(begin));
    let lines = stdout.lines().chain(stderr.lines()).map(str::trim);
    let said = lines.into_iter().find(is_reason)?;
    Some(said.chars().filter(|letter| !letter.is_control()).take(REASON_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a script prints that runs as playbooks do.
    async fn looked(folder: &Folder, script: &str) -> String {
        assert!(folder.user.is_some(), "only root sets runs apart: run the tests as root");
        let mut command = folder.command(Path::new("sh")).unwrap();
        command.args(["-c", script]);
        let group = Group::start(&mut command).unwrap();
        let stop = CancellationToken::new();
        let output = child::run(group, "a look", VERSION_MAX, OUTPUT_KEPT, &stop).await.unwrap();
        let (seen, wrong) = (output.stdout.text(), output.stderr.text());
        assert!(output.is_good(), "{seen} {wrong}");
        seen
    }

    #[tokio::test]
    async fn a_run_cannot_undo_what_sets_it_apart() {
        let beside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let folder = Folder::new().unwrap();
        let own = std::process::id();
        let undo = format!(
            "for at in /tmp /proc; do for way in '' '-l'; do for user in --map-root-user --keep-caps; do
                umount $way $at && echo undone; unshare --user $user --mount umount $way $at && echo undone
            done; done; done
            mkdir ../old && unshare --user --keep-caps --mount mount --bind / ../old && ls ../old/tmp
            ls /tmp; ls -d /proc/{own}; grep ^Cap /proc/self/status; exit 0"
        );
        let seen = looked(&folder, &undo).await;
        assert!(!seen.contains("undone"), "{seen}");
        assert!(!seen.contains(beside.path().file_name().unwrap().to_str().unwrap()), "{seen}");
        assert!(!seen.contains(&format!("/proc/{own}")), "{seen}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(seen.contains(&format!("{set}:\t0000000000000000")), "{seen}");
        }
    }

    #[tokio::test]
    async fn a_run_sees_no_other_process_and_no_other_files_in_tmp() {
        let beside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let folder = Folder::new().unwrap();
        let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /tmp; grep NoNewPrivs /proc/self/status; touch ../kept";
        let seen = looked(&folder, look).await;
        assert!(folder.path("kept").exists(), "{seen}");
        let name = beside.path().file_name().unwrap().to_str().unwrap();
        assert!(!seen.contains(name), "{seen}");
        let own = std::env::current_exe().unwrap();
        assert!(!seen.contains(own.file_name().unwrap().to_str().unwrap()), "{seen}");
        assert!(seen.contains("NoNewPrivs:\t1"), "{seen}");
    }

    #[test]
    fn what_a_killed_provisioner_left_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let mine = format!("{PREFIX}{}-x", std::process::id());
        let names = ["banyan-ansible-4999999999-y", &mine, "banyan-ansible-x", "banyan-other-4999999999-y"];
        for name in names {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("key"), "secret").unwrap();
        }
        sweep(folder.path());
        let left: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn texts_of_variables_are_no_templates() {
        let value = json!({"a": {"b": ["{{ 1 }}", 2, true, null]}, "q\"": "ä\n"});
        assert_eq!(
            yaml(&value),
            r#"{? "a" : {? "b" : [!unsafe "{{ 1 }}", 2, true, null]}, ? "q\"" : !unsafe "\U000000E4\U0000000A"}"#
        );
    }

    #[test]
    fn a_failure_names_what_ansible_says_first() {
        let stdout = "TASK [x] ***\nfatal: [web]: FAILED! => {\"msg\": \"no\"}\nPLAY RECAP ***\nweb : ok=1";
        assert!(reason(stdout, "").unwrap().starts_with("fatal: [web]: FAILED! => {"));
        assert_eq!(reason("PLAY RECAP", ""), None);
    }

    #[test]
    fn archives_stay_in_their_folder() {
        let into = tempfile::tempdir().unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        let name = b"../out";
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_cksum();
        let mut tar = tar::Builder::new(Vec::new());
        tar.append(&header, &b"x"[..]).unwrap();
        let folder = into.path().join("in");
        fs::create_dir(&folder).unwrap();
        let mut left = ARCHIVE_MAX;
        let _ = unpack(&tar.into_inner().unwrap().into(), &folder, "a", &mut left);
        assert!(!into.path().join("out").exists());
        assert!(unpack(&Bytes::from_static(b"no archive"), &folder, "a", &mut left).is_err());
    }

    #[test]
    fn archives_have_so_much_room_together() {
        let into = tempfile::tempdir().unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(10_000);
        header.set_mode(0o644);
        tar.append_data(&mut header, "file", &vec![7; 10_000][..]).unwrap();
        let tar: Bytes = tar.into_inner().unwrap().into();
        let mut left = 25_000;
        unpack(&tar, into.path(), "a", &mut left).unwrap();
        assert!(left <= 15_000, "{left}");
        unpack(&tar, into.path(), "a", &mut left).unwrap();
        assert!(unpack(&tar, into.path(), "a", &mut left).is_err());
    }
}
