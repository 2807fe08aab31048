//! The cloud of `stack.py`, installed once. It ends with the test, because it reads our end of a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;

const PACKAGES: [&str; 5] =
    ["keystone==30.0.0", "openstack-placement==16.0.0", "glance==33.0.0", "neutron==29.0.0", "nova==34.0.0"];

pub struct Stack {
    child: Child,
    pipes: Mutex<(Option<ChildStdin>, BufReader<ChildStdout>)>,
    pub said: Value,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openstack/stack.py")
}

fn run(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Where Python is, and databases as they are when nothing was made.
fn install() -> (PathBuf, PathBuf) {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openstack");
    let (python, empty, ready) = (home.join("bin/python"), home.join("empty"), home.join("ready"));
    if !ready.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        let words = ["install", "-q", "--disable-pip-version-check"];
        run(Command::new(home.join("bin/pip")).args(words).args(PACKAGES));
        run(Command::new(&python).arg(script()).arg("prepare").arg(&empty));
        std::fs::write(&ready, "").expect("the folder is ours");
    }
    (python, empty)
}

impl Stack {
    pub fn start() -> Self {
        let (python, empty) = install();
        let mut child = Command::new(python)
            .args(["-W", "ignore"])
            .arg(script())
            .arg("serve")
            .arg(empty)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = line(&mut stdout);
        Self { child, pipes: Mutex::new((stdin, stdout)), said }
    }

    /// What its administrator sees or does.
    pub fn ask(&self, words: &str) -> Value {
        let mut pipes = self.pipes.lock().unwrap();
        writeln!(pipes.0.as_mut().unwrap(), "{words}").unwrap();
        line(&mut pipes.1)
    }

    /// Servers that belong to this node.
    pub fn servers(&self, node: &str) -> Vec<Value> {
        let all = self.ask("servers").as_array().unwrap().clone();
        all.into_iter().filter(|server| server["metadata"]["banyan:node"] == node).collect()
    }
}

fn line(from: &mut impl BufRead) -> Value {
    let mut text = String::new();
    from.read_line(&mut text).unwrap();
    serde_json::from_str(&text).expect("the cloud says one document a line")
}

impl Drop for Stack {
    fn drop(&mut self) {
        // It ends its services and removes its folder.
        self.pipes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0.take();
        let _ = self.child.wait();
    }
}
