//! The process that is killed: root with its store, and nothing else.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Cloud, until};

pub struct Server {
    cloud: Cloud,
    file: PathBuf,
    s3: u16,
    process: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    pub fn start() -> Self {
        let cloud = Cloud::new();
        let file = cloud.home.join("root.toml");
        let s3 = free_port();
        let config = format!(
            "data = \"{}\"\nlisten = \"127.0.0.1:{}\"\nlink_listen = \"127.0.0.1:{}\"\nnames = [\"127.0.0.1\"]\n\
             [object]\nlisten = \"127.0.0.1:{s3}\"\n",
            cloud.data().display(),
            free_port(),
            free_port(),
        );
        std::fs::write(&file, config).unwrap();
        let mut made = Self { cloud, file, s3, process: None };
        made.again();
        made
    }

    fn spawn(&self) -> Child {
        let log = std::fs::File::create(self.log()).unwrap();
        let mut command = self.cloud.command(&["root", "--config"]);
        command.arg(&self.file).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn log(&self) -> PathBuf {
        self.cloud.home.join("root.log")
    }

    pub fn again(&mut self) {
        let mut child = self.spawn();
        until("root is up", || {
            let said = std::fs::read_to_string(self.log()).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "root ended: {said}");
            said.contains("root is up").then_some(())
        });
        self.process = Some(child);
    }

    /// Starts it and kills it before long, so that it dies while it recovers or soon after.
    pub fn stumble(&self, after: Duration) {
        let mut child = self.spawn();
        std::thread::sleep(after);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.process.take().expect("it runs");
        assert!(child.try_wait().unwrap().is_none(), "root ended: {}", self.said());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Where the store keeps its data.
    pub fn data(&self) -> PathBuf {
        self.cloud.data().join("object")
    }

    pub fn rest(&self) -> api::Client {
        self.cloud.client()
    }

    /// A client of its own, without connections from before.
    pub fn s3(&self) -> object::client::Client {
        let admin = self.cloud.admin();
        let text =
            |name: &str| admin[name].as_str().map(str::to_owned).unwrap_or_else(|| Value::to_string(&admin));
        let credentials = object::client::Credentials {
            access_key_id: text("access_key_id"),
            secret_access_key: text("secret_access_key").into(),
            session_token: None,
        };
        object::client::Client::new(&format!("http://127.0.0.1:{}", self.s3), "us-east-1", credentials)
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("==== root\n{}", self.said());
        }
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
