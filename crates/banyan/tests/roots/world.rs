//! Three root servers, a zone and a node.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use serde_json::Value;
use store::Record;
use store::testing::Postgres;

use crate::support::{self, Cloud, text, until, wait_async};

/// One role of the binary, from its configuration file.
pub struct Role {
    name: String,
    role: &'static str,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    log: PathBuf,
    process: Option<Child>,
}

impl Role {
    fn start(cloud: &Cloud, role: &'static str, name: &str, config: &str) -> Self {
        let file = cloud.home.join(format!("{name}.toml"));
        std::fs::write(&file, config).unwrap();
        let (program, home) = (cloud.home.join("banyan"), cloud.home.clone());
        let command = move || {
            let mut command = Command::new(&program);
            command.args([role, "--config"]).arg(&file).env_clear().env("HOME", &home).current_dir(&home);
            command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("BANYAN_LOG", "info");
            command
        };
        let log = cloud.home.join(format!("{name}.log"));
        let mut made = Self { name: name.to_owned(), role, command: Box::new(command), log, process: None };
        made.again();
        made
    }

    pub fn again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let before = log.metadata().unwrap().len() as usize;
        let mut child = (self.command)().stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let ready = format!("{} is up", self.role);
        until(&format!("{} is up", self.name), || {
            let said = text(&std::fs::read(&self.log).unwrap()[before..]);
            assert!(child.try_wait().unwrap().is_none(), "{} ended: {said}", self.name);
            said.contains(&ready).then_some(())
        });
        self.process = Some(child);
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    pub fn kill(&mut self) {
        let mut child = self.process.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("==== {}\n{}", self.name, text(&std::fs::read(&self.log).unwrap_or_default()));
        }
    }
}

/// In the order in which they go: the node first, the database last.
pub struct World {
    _node: Role,
    _zone: Role,
    pub roots: Vec<Role>,
    rest: Vec<u16>,
    link: Vec<u16>,
    token: String,
    pub cloud: Cloud,
    url: String,
    pub postgres: Postgres,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn root_config(data: &std::path::Path, url: &str, rest: u16, link: u16) -> String {
    format!(
        "data = \"{}\"\ndatabase = \"{url}\"\nlisten = \"127.0.0.1:{rest}\"\nlink_listen = \"127.0.0.1:{link}\"\n\
         names = [\"127.0.0.1\"]\n",
        data.display()
    )
}

impl World {
    pub fn start() -> Self {
        let postgres = Postgres::start(true).unwrap();
        let url = postgres.database().unwrap();
        let cloud = Cloud::new();
        let ports = || (0..3).map(|_| free_port()).collect::<Vec<_>>();
        let (rest, link) = (ports(), ports());
        let mut roots = Vec::new();
        let mut token = String::new();
        for server in 0..3 {
            let data = cloud.data().join(format!("root{server}"));
            if server > 0 {
                // The one file that the operator carries to every further server.
                std::fs::create_dir_all(&data).unwrap();
                std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
                let key = |server: usize| cloud.data().join(format!("root{server}/master.key"));
                std::fs::copy(key(0), key(server)).unwrap();
            }
            let mut config = root_config(&data, &url, rest[server], link[server]);
            if server == 0 {
                config.push_str("[object]\nlisten = \"127.0.0.1:0\"\n");
            }
            roots.push(Role::start(&cloud, "root", &format!("root{server}"), &config));
            if server == 0 {
                let admin = std::fs::read(data.join("admin.json")).unwrap();
                let admin: Value = serde_json::from_slice(&admin).unwrap();
                token = admin["token"].as_str().unwrap().to_owned();
            } else {
                assert!(!data.join("admin.json").exists(), "only the first server keeps credentials");
            }
        }
        let good = |server: usize, words: &[&str]| operator(&cloud, rest[server], &token, words);
        let zone = zone_start(&cloud, &link, &support::good(&mut good(1, &["enroll", "zone"])));
        until("the zone is there", || {
            support::good(&mut good(2, &["zone", "list"])).contains("connected").then_some(())
        });
        let node_token = support::good(&mut good(2, &["enroll", "node", "--zone", "east"]));
        let node = node_start(&cloud, zone.1, zone.2, &node_token);
        Self { _node: node, _zone: zone.0, roots, rest, link, token, cloud, url, postgres }
    }

    pub fn root_data(&self, server: usize) -> PathBuf {
        self.cloud.data().join(format!("root{server}"))
    }

    pub fn run(&self, server: usize, words: &[&str]) -> Output {
        operator(&self.cloud, self.rest[server], &self.token, words).output().unwrap()
    }

    pub fn good(&self, server: usize, words: &[&str]) -> String {
        support::good(&mut operator(&self.cloud, self.rest[server], &self.token, words))
    }

    pub fn json(&self, server: usize, words: &[&str]) -> Value {
        serde_json::from_str(&self.good(server, &[words, &["-o", "json"]].concat())).unwrap()
    }

    pub fn client(&self, server: usize) -> api::Client {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let url = format!("http://127.0.0.1:{}", self.rest[server]);
        api::Client::new(&url, Some(self.token.clone())).unwrap()
    }

    pub fn tenants(&self, server: usize) -> BTreeSet<String> {
        let listed = self.json(server, &["tenant", "list"]);
        let name = |tenant: &Value| tenant["name"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(name).collect()
    }

    /// The records of a kind, as the database has them.
    pub fn records(&self, kind: &str) -> Vec<Record> {
        wait_async(async {
            let store = store::Store::open(&self.url).await.unwrap();
            let records = store.list(kind).await.unwrap();
            store.close().await;
            records
        })
    }

    fn duty(&self, name: &str) -> Value {
        self.records("duty").into_iter().find(|duty| duty.id == name).unwrap().body.value()
    }

    pub fn term(&self) -> u64 {
        self.duty("tree")["term"].as_u64().unwrap()
    }

    /// Which of the servers holds the tree.
    pub fn holder(&self) -> usize {
        self.holder_of("tree")
    }

    pub fn holder_of(&self, duty: &str) -> usize {
        until("some server holds the duty", || {
            let id = self.duty(duty)["holder"].as_str().unwrap().to_owned();
            let server = self.records("server").into_iter().find(|server| server.id == id)?;
            let url = server.body.value()["link_url"].as_str().unwrap().to_owned();
            self.link.iter().position(|port| url.ends_with(&format!(":{port}")))
        })
    }

    /// A provisioner whose machines and services are the work of two programs.
    pub fn provisioner(&self, provider: &Path, automator: &Path) -> Role {
        let token = self.good(0, &["enroll", "provisioner"]);
        let config = format!(
            "name = \"hand\"\ndata = \"{}\"\nroot = [{}]\ntoken = \"{}\"\n[providers]\nslow = \"{}\"\n\
             [automators]\nslow = \"{}\"\n",
            self.cloud.data().join("provisioner").display(),
            links(&self.link),
            token.trim(),
            provider.display(),
            automator.display(),
        );
        Role::start(&self.cloud, "provisioner", "provisioner", &config)
    }

    /// What a server says that was started without the key of the cloud.
    pub fn root_refused(&self) -> String {
        let data = self.cloud.data().join("stranger");
        let file = self.cloud.home.join("stranger.toml");
        std::fs::write(&file, root_config(&data, &self.url, free_port(), free_port())).unwrap();
        let output = self.cloud.command(&["root", "--config"]).arg(&file).output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    }
}

/// The command line of the first operator, at one of the servers.
fn operator(cloud: &Cloud, port: u16, token: &str, words: &[&str]) -> Command {
    let mut command = cloud.command(words);
    command.env("BANYAN_ENDPOINT", format!("http://127.0.0.1:{port}")).env("BANYAN_TOKEN", token);
    command
}

/// Where all servers are reached by other roles, for a configuration file.
fn links(link: &[u16]) -> String {
    link.iter().map(|port| format!("\"https://127.0.0.1:{port}\"")).collect::<Vec<_>>().join(", ")
}

fn zone_start(cloud: &Cloud, link: &[u16], token: &str) -> (Role, u16, u16) {
    let (https, mqtt) = (free_port(), free_port());
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = [{}]\ntoken = \"{}\"\nhttps_listen = \"127.0.0.1:{https}\"\n\
         mqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n",
        cloud.data().join("zone").display(),
        links(link),
        token.trim()
    );
    (Role::start(cloud, "zone", "zone", &config), https, mqtt)
}

fn node_start(cloud: &Cloud, https: u16, mqtt: u16, token: &str) -> Role {
    let config = format!(
        "name = \"one\"\ndata = \"{}\"\nzone = \"https://127.0.0.1:{https}\"\nbroker = \"127.0.0.1:{mqtt}\"\n\
         token = \"{}\"\nbridge = \"{tag}\"\ncgroup_parent = \"{tag}\"\n",
        cloud.data().join("node").display(),
        token.trim(),
        tag = cloud.tag
    );
    Role::start(cloud, "node", "node", &config)
}
