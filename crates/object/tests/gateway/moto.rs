//! A store of others: moto, from PyPI. It ends with the test, because it reads our end of a pipe.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const SERVE: &str = "
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger('werkzeug').setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('port', server.get_host_and_port()[1], flush=True)
sys.stdin.read()
";

pub struct Moto {
    child: Child,
    pub endpoint: String,
}

fn run(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Installed once.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
        let ready = home.join("ready");
        if !ready.exists() {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
            run(Command::new(home.join("bin/pip")).args([
                "install",
                "-q",
                "--disable-pip-version-check",
                "moto[server]==5.2.5",
            ]));
            std::fs::write(&ready, "").expect("the folder is ours");
        }
        home.join("bin/python")
    })
}

impl Moto {
    pub fn start() -> Self {
        let mut child = Command::new(python())
            .args(["-c", SERVE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("moto starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("port ").map(str::to_owned));
        Self { child, endpoint: format!("http://127.0.0.1:{}", port.expect("moto says its port")) }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
