//! The command line as a person meets it, as far as it needs no cloud: help,
//! completion, contexts, and errors that say what to do next.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A closed port of this machine: nothing listens on the discard port here.
const NOBODY: &str = "http://127.0.0.1:9";

struct Cli {
    home: tempfile::TempDir,
}

impl Cli {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn config(&self) -> std::path::PathBuf {
        self.home.path().join("config.yaml")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_banyan"));
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", self.home.path());
        command.env("BANYAN_CONFIG", self.config()).current_dir(self.home.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its data.
    fn good(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail, without data, and returns what it says.
    fn bad(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        assert_eq!(text(&output.stdout), "", "{words:?} wrote data although it failed");
        text(&output.stderr)
    }

    fn write(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    fn contexts(&self) {
        self.write(
            "config.yaml",
            "current: near\ncontexts:\n  near: {endpoint: 'http://127.0.0.1:9', token: hush, user: ann}\n  far: {endpoint: 'http://127.0.0.1:10'}\n",
        );
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text}\ndoes not say '{part}'");
    }
}

#[test]
fn help_is_data_and_shows_examples() {
    let cli = Cli::new();
    says(&cli.good(&["--help"]), &["Examples:", "instance", "BANYAN_<OPTION>", "completion"]);
    says(&cli.good(&["instance", "create", "--help"]), &["--memory", "--no-wait", "Examples:", "dry-run"]);
    says(&cli.good(&["apply", "--help"]), &["kind: Instance", "--detailed-exitcode"]);
    says(&cli.good(&["version"]), &[env!("CARGO_PKG_VERSION")]);
    let json: serde_json::Value = serde_json::from_str(&cli.good(&["version", "-o", "json"])).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn completion_is_a_script_the_shell_reads() {
    let cli = Cli::new();
    let bash = cli.good(&["completion", "bash"]);
    let mut shell = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(bash.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    says(&bash, &["instance", "completion"]);
    for verb in ["create", "scale", "rollback", "promote", "revisions", "why"] {
        says(&bash, &[&format!("banyan__subcmd__workload__subcmd__{verb}")]);
    }
    says(&cli.good(&["completion", "zsh"]), &["#compdef banyan"]);
    says(&cli.good(&["completion", "fish"]), &["complete -c banyan"]);
}

#[test]
fn without_a_cloud_the_next_command_is_named() {
    let cli = Cli::new();
    says(&cli.bad(&["instance", "list"]), &["error: no cloud is chosen", "banyan up", "banyan login"]);
    says(&cli.bad(&["context", "current"]), &["no context is current", "banyan login"]);
    says(&cli.bad(&["--context", "moon", "ps"]), &["there is no context 'moon'"]);
    let said: serde_json::Value =
        serde_json::from_str(&cli.bad(&["instance", "list", "-o", "json"])).unwrap();
    assert_eq!(said["error"]["message"], "no cloud is chosen", "{said}");
}

#[test]
fn a_cloud_that_does_not_answer_is_named() {
    let cli = Cli::new();
    let said = cli.bad(&["--endpoint", NOBODY, "--token", "secret-word", "instance", "list"]);
    says(&said, &[NOBODY, "cannot be reached", "hint:"]);
    assert!(!said.contains("secret-word"), "{said}");
    says(&cli.bad(&["--endpoint", "nonsense", "whoami"]), &["'nonsense' is not an endpoint"]);
}

#[test]
fn flag_beats_environment_beats_context() {
    let cli = Cli::new();
    cli.contexts();
    says(&cli.bad(&["whoami"]), &["127.0.0.1:9 "]);
    let output = cli.command(&["whoami"]).env("BANYAN_ENDPOINT", "http://127.0.0.1:11").output().unwrap();
    says(&text(&output.stderr), &["127.0.0.1:11"]);
    let mut command = cli.command(&["whoami", "--endpoint", "http://127.0.0.1:12"]);
    let output = command.env("BANYAN_ENDPOINT", "http://127.0.0.1:11").output().unwrap();
    says(&text(&output.stderr), &["127.0.0.1:12"]);
}

#[test]
fn contexts_are_listed_switched_and_forgotten() {
    let cli = Cli::new();
    cli.contexts();
    assert_eq!(cli.good(&["context", "list", "-o", "name"]), "far\nnear\n");
    let list = cli.good(&["context", "list", "-o", "json"]);
    assert!(!list.contains("hush"), "{list}");
    cli.good(&["context", "use", "far"]);
    assert_eq!(cli.good(&["context", "current"]), "far\n");
    assert_eq!(std::fs::metadata(cli.config()).unwrap().permissions().mode() & 0o777, 0o600);
    cli.good(&["context", "delete", "far"]);
    says(&cli.bad(&["context", "use", "far"]), &["there is no context 'far'", "known are near"]);
    cli.bad(&["context", "current"]);
}

#[test]
fn bad_input_gets_a_sentence_with_its_place() {
    let cli = Cli::new();
    for (name, content, parts) in [
        ("a.yaml", "kind: [", &["not YAML", "a.yaml"][..]),
        (
            "b.yaml",
            "kind: Instance\nmetadata: {name: web}\nspec: {image: x, memroy: 1}",
            &["memroy", "document 1"],
        ),
        (
            "c.yaml",
            "kind: Instance\nmetadata: {name: web}\nspec: {image: x, cpu: lots}",
            &["'lots' is not an amount"],
        ),
        ("d.json", "{\"kind\": ", &["not JSON", "d.json:1"]),
        (
            "e.yaml",
            "kind: Robot\nmetadata: {name: web}",
            &["'Robot' is not a kind", "Instance, Workload, App, Image, Tenant or User"],
        ),
    ] {
        let path = cli.write(name, content);
        says(&cli.bad(&["apply", "-f", &path]), parts);
    }
    let sla = r#"{"sla_version": "v2.0", "customerID": 7, "applications": [{"application_name": "a-b",
        "application_namespace": "c", "microservices": [{"microservice_name": "d", "microservice_namespace": "e",
        "virtualization": "container", "code": "busybox", "port": "80:80", "vcpus": "one"}]}]}"#;
    let path = cli.write("sla.json", sla);
    let said = cli.bad(&["apply", "-f", &path]);
    says(&said, &["customerID: must be a text", "applications[0].application_name: 'a-b'", "sla.json"]);
    says(&said, &["applications[0].microservices[0].port", "applications[0].microservices[0].vcpus"]);
    says(&cli.bad(&["apply", "-f", "missing.yaml"]), &["cannot read missing.yaml"]);
    let mut child = cli.command(&["apply", "-f", "-"]);
    let mut child = child.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"kind: Robot\nmetadata: {name: a}").unwrap();
    says(&text(&child.wait_with_output().unwrap().stderr), &["standard input", "'Robot'"]);
}

#[test]
fn wrong_options_end_with_code_2_and_the_right_way() {
    let cli = Cli::new();
    for (words, part) in [
        (&["instance", "create", "Web", "--image", "x"][..], "is not a name"),
        (&["instance", "create", "web", "--image", "x", "--memory", "lots"], "is not a size"),
        (&["instance", "create", "web", "--image", "x", "--timeout", "soon"], "is not a time"),
        (&["instance", "delete"], "required"),
        (&["instance", "delete", "--all"], "--yes"),
        (&["instance", "fly"], "unrecognized subcommand"),
        (&["workload", "create", "web"], "--image"),
        (
            &["workload", "create", "web", "--image", "x", "--daemon", "--replicas", "2"],
            "cannot be used with",
        ),
        (
            &["workload", "create", "web", "--image", "x", "--max-surge", "101%"],
            "is not a number of instances",
        ),
        (&["workload", "scale", "web"], "required"),
    ] {
        let output = cli.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        says(&text(&output.stderr), &[part]);
    }
    let said =
        cli.bad(&["--endpoint", NOBODY, "instance", "create", "web", "--image", "x", "--memory", "1KiB"]);
    says(&said, &["memory must be", "where: memory"]);
}

#[test]
fn a_terminal_is_not_promised_where_there_is_none() {
    let cli = Cli::new();
    says(&cli.bad(&["--endpoint", NOBODY, "instance", "exec", "-it", "web", "--", "sh"]), &["leave -t out"]);
}

#[test]
fn colour_stays_out_of_pipes() {
    let cli = Cli::new();
    assert!(!cli.bad(&["instance", "list"]).contains('\x1b'));
    assert!(!cli.good(&["--help"]).contains('\x1b'));
}

#[test]
fn what_takes_away_is_not_offered_to_what_is_made() {
    let cli = Cli::new();
    let options = ["--unset-env", "--unlabel", "--no-canary", "--no-autoscale"];
    let (create, update) = (["workload", "create", "--help"], ["workload", "update", "--help"]);
    let (create, update) = (cli.good(&create), cli.good(&update));
    for option in options {
        assert!(!create.contains(option), "{option}: {create}");
        assert!(update.contains(option), "{option}: {update}");
    }
    assert!(!cli.good(&["instance", "create", "--help"]).contains("--unset-env"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let cli = Cli::new();
    let mut child = cli.command(&["completion", "zsh"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!Path::new(&cli.config()).exists());
}

#[test]
fn an_empty_token_is_not_whoever_is_logged_in() {
    let cli = Cli::new();
    cli.contexts();
    says(&cli.bad(&["--token", "", "instance", "list"]), &["the token is empty"]);
    let output = cli.command(&["instance", "list"]).env("BANYAN_TOKEN", "").output().unwrap();
    says(&text(&output.stderr), &["the token is empty", "unset BANYAN_TOKEN"]);
}
