//! Root, a zone and two nodes, each in a process of its own, joined by tokens; then each of them dies.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod down;
mod join;
mod provisioner;
mod restore;
mod upkeep;

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;
use support::guard::Remains;
use support::{Cloud, until};

/// One role of the binary, from its configuration file.
struct Role<'a> {
    home: &'a Cloud,
    role: &'static str,
    file: PathBuf,
    process: Option<Child>,
}

impl<'a> Role<'a> {
    fn start(home: &'a Cloud, role: &'static str, config: &str) -> Self {
        let file = home.home.join(format!("{role}.toml"));
        std::fs::write(&file, config).unwrap();
        let mut made = Self { home, role, file, process: None };
        made.again();
        made
    }

    fn again(&mut self) {
        let path = self.home.home.join(format!("{}.log", self.role));
        let log = std::fs::File::create(&path).unwrap();
        let mut command = self.home.command(&[self.role, "--config"]);
        let mut child = command.arg(&self.file).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let ready = format!("{} is up", self.role);
        until(&ready, || {
            let said = std::fs::read_to_string(&path).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{} ended: {said}", self.role);
            said.contains(&ready).then_some(())
        });
        self.process = Some(child);
    }

    fn terminate(&mut self) {
        let mut child = self.process.take().expect("it runs");
        support::signal(child.id(), rustix::process::Signal::TERM);
        assert!(child.wait().unwrap().success());
    }

    fn kill(&mut self) {
        let mut child = self.process.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The command line of the first operator, without a context.
struct Operator<'a> {
    home: &'a Cloud,
    endpoint: String,
    token: String,
}

impl Operator<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(words);
        command.env("BANYAN_ENDPOINT", &self.endpoint).env("BANYAN_TOKEN", &self.token);
        command
    }

    fn good(&self, words: &[&str]) -> String {
        support::good(&mut self.command(words))
    }

    /// What is printed, whatever the exit code: the lights of health also tell of the machine's disk and
    /// load, which are not a test's to decide.
    fn output(&self, words: &[&str]) -> String {
        support::text(&self.command(words).output().unwrap().stdout)
    }

    fn get(&self, name: &str) -> Value {
        serde_json::from_str(&self.good(&["instance", "get", name, "-o", "json"])).unwrap()
    }

    fn wait(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.get(name)).filter(|seen| holds(seen)))
    }
}

fn node_config(cloud: &Cloud, name: &str, https: u16, mqtt: u16, token: &str) -> String {
    let data = cloud.data().join("node");
    format!(
        "name = \"{name}\"\ndata = \"{}\"\nzone = \"https://127.0.0.1:{https}\"\nbroker = \"127.0.0.1:{mqtt}\"\n\
         token = \"{}\"\nbridge = \"{tag}\"\ncgroup_parent = \"{tag}\"\n",
        data.display(),
        token.trim(),
        tag = cloud.tag
    )
}

/// Root of a tree on this machine, and the command line of its operator.
fn root_start<'a>(cloud: &'a Cloud, names: &str) -> (Role<'a>, Operator<'a>, u16) {
    root_start_with(cloud, names, "")
}

/// The same with more lines in its file.
fn root_start_with<'a>(cloud: &'a Cloud, names: &str, more: &str) -> (Role<'a>, Operator<'a>, u16) {
    let (rest, link) = (free_port(), free_port());
    let data = cloud.data().join("root");
    let config = format!(
        "data = \"{}\"\nlisten = \"127.0.0.1:{rest}\"\nlink_listen = \"127.0.0.1:{link}\"\nnames = [{names}]\n{more}",
        data.display()
    );
    let root = Role::start(cloud, "root", &config);
    let admin: Value = serde_json::from_slice(&std::fs::read(data.join("admin.json")).unwrap()).unwrap();
    let token = admin["token"].as_str().unwrap().to_owned();
    (root, Operator { home: cloud, endpoint: format!("http://127.0.0.1:{rest}"), token }, link)
}

/// Starts a node where it must not join, and returns what it says.
fn refused(cloud: &Cloud, config: &str) -> String {
    let file = cloud.home.join("refused.toml");
    std::fs::write(&file, config).unwrap();
    let output = cloud.command(&["node", "--config"]).arg(&file).output().unwrap();
    assert!(!output.status.success());
    support::text(&output.stderr)
}

#[test]
fn separate_roles_keep_their_promises_when_each_of_them_is_killed() {
    let (first, second) = (Cloud::new(), Cloud::new());
    let (rest, link, https, mqtt) = (free_port(), free_port(), free_port(), free_port());
    let data = first.data();
    let config = format!(
        "data = \"{}\"\nlisten = \"127.0.0.1:{rest}\"\nlink_listen = \"127.0.0.1:{link}\"\nnames = [\"127.0.0.1\"]\n",
        data.join("root").display()
    );
    let mut root = Role::start(&first, "root", &config);
    let admin = std::fs::read(data.join("root/admin.json")).unwrap();
    let admin: Value = serde_json::from_slice(&admin).unwrap();
    let token = admin["token"].as_str().unwrap().to_owned();
    let operator = Operator { home: &first, endpoint: format!("http://127.0.0.1:{rest}"), token };

    let token = operator.good(&["enroll", "zone"]);
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n",
        data.join("zone").display(),
        token.trim()
    );
    let mut zone = Role::start(&first, "zone", &config);
    until("the zone is there", || operator.good(&["zone", "list"]).contains("connected").then_some(()));
    let join = |cloud, name| {
        let token = operator.good(&["enroll", "node", "--zone", "east"]);
        Role::start(cloud, "node", &node_config(cloud, name, https, mqtt, &token))
    };
    let mut node = join(&first, "one");

    operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    let id = operator.get("web")["id"].as_str().unwrap().to_owned();
    let life = first.life(&id);

    // Everything above and beside the container dies; the container does not notice.
    node.kill();
    zone.kill();
    root.kill();
    root.again();
    zone.again();
    node.again();
    operator
        .wait("web", "it is seen running again", |seen| seen["phase"] == "running" && seen["node"] == "one");
    until("it answers again", || {
        operator.command(&["instance", "exec", "web", "--", "true"]).status().unwrap().success().then_some(())
    });
    assert_eq!(first.life(&id), life, "adopted, not started again");

    // A name that a living node has is refused, and the token stays good.
    let token = operator.good(&["enroll", "node", "--zone", "east"]);
    let said = refused(&second, &node_config(&second, "one", https, mqtt, &token));
    assert!(said.contains("has a node 'one' already"), "{said}");
    let _other = Role::start(&second, "node", &node_config(&second, "two", https, mqtt, &token));

    // An orderly stop is waited for: the instance stays where it is.
    node.terminate();
    until("it is expected back", || operator.good(&["node", "list"]).contains("restarting").then_some(()));
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(operator.get("web")["node"], "one");
    node.again();
    until("it is back", || (!operator.good(&["node", "list"]).contains("restarting")).then_some(()));
    assert_eq!(first.life(&id), life, "adopted, not started again");

    // A node that dies and stays away loses its instance to the other, under a newer generation.
    node.kill();
    operator
        .wait("web", "it runs on the other node", |seen| seen["phase"] == "running" && seen["node"] == "two");
    node.again();
    until("the first node drops what is no longer its own", || {
        (Remains::look(&data, &first.tag) == Remains::default()).then_some(())
    });
    let story = operator.good(&["event", "list", "--subject", "web", "-o", "json"]);
    // Its zone may have placed it again before root heard why.
    assert!(
        story.contains("node one was lost") || story.contains("left node one: it is placed again"),
        "{story}"
    );

    operator.good(&["instance", "delete", "web"]);
    assert_eq!(Remains::look(&second.data(), &second.tag), Remains::default());
}

#[test]
fn a_node_that_was_removed_while_it_was_away_ends_what_it_holds() {
    let (first, second) = (Cloud::new(), Cloud::new());
    let (rest, link, https, mqtt) = (free_port(), free_port(), free_port(), free_port());
    let data = first.data();
    let config = format!(
        "data = \"{}\"\nlisten = \"127.0.0.1:{rest}\"\nlink_listen = \"127.0.0.1:{link}\"\nnames = [\"127.0.0.1\"]\n",
        data.join("root").display()
    );
    let _root = Role::start(&first, "root", &config);
    let admin: Value = serde_json::from_slice(&std::fs::read(data.join("root/admin.json")).unwrap()).unwrap();
    let token = admin["token"].as_str().unwrap().to_owned();
    let operator = Operator { home: &first, endpoint: format!("http://127.0.0.1:{rest}"), token };
    let token = operator.good(&["enroll", "zone"]);
    let config = format!(
        "name = \"east\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
         https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n",
        data.join("zone").display(),
        token.trim()
    );
    let _zone = Role::start(&first, "zone", &config);
    until("the zone is there", || operator.good(&["zone", "list"]).contains("connected").then_some(()));
    let join = |cloud, name| {
        let token = operator.good(&["enroll", "node", "--zone", "east"]);
        Role::start(cloud, "node", &node_config(cloud, name, https, mqtt, &token))
    };
    let mut node = join(&first, "one");
    operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    assert_eq!(operator.get("web")["node"], "one");
    let _other = join(&second, "two");

    // Its container runs on while it is away, and the zone is told that it never comes back.
    node.kill();
    operator.good(&["node", "remove", "one", "--force", "--yes"]);
    operator
        .wait("web", "it runs on the other node", |seen| seen["phase"] == "running" && seen["node"] == "two");
    assert_ne!(Remains::look(&data, &first.tag), Remains::default());
    node.again();
    until("what it held ends", || (Remains::look(&data, &first.tag) == Remains::default()).then_some(()));
    let log = std::fs::read_to_string(first.home.join("node.log")).unwrap();
    assert_eq!(log.matches("this node was removed from its zone").count(), 1, "{log}");
    assert!(log.contains("node/identity") && log.contains("banyan enroll node"), "{log}");

    // Nor does it begin anew from its disk.
    node.kill();
    node.again();
    until("it hears of it again", || {
        let log = std::fs::read_to_string(first.home.join("node.log")).unwrap();
        log.contains("this node was removed from its zone").then_some(())
    });
    assert_eq!(Remains::look(&data, &first.tag), Remains::default());
    assert_eq!(operator.get("web")["node"], "two");
    operator.good(&["instance", "delete", "web"]);
}

#[test]
fn a_zone_is_emptied_into_another_and_removed_for_good() {
    let (east, west) = (Cloud::new(), Cloud::new());
    let (rest, link) = (free_port(), free_port());
    let data = east.data().join("root");
    let config = format!(
        "data = \"{}\"\nlisten = \"127.0.0.1:{rest}\"\nlink_listen = \"127.0.0.1:{link}\"\nnames = [\"127.0.0.1\"]\n",
        data.display()
    );
    let _root = Role::start(&east, "root", &config);
    let admin: Value = serde_json::from_slice(&std::fs::read(data.join("admin.json")).unwrap()).unwrap();
    let token = admin["token"].as_str().unwrap().to_owned();
    let operator = Operator { home: &east, endpoint: format!("http://127.0.0.1:{rest}"), token };
    let join = |cloud, name: &str| {
        let (https, mqtt) = (free_port(), free_port());
        let token = operator.good(&["enroll", "zone"]);
        let config = format!(
            "name = \"{name}\"\ndata = \"{}\"\nroot = \"https://127.0.0.1:{link}\"\ntoken = \"{}\"\n\
             https_listen = \"127.0.0.1:{https}\"\nmqtt_listen = \"127.0.0.1:{mqtt}\"\nnames = [\"127.0.0.1\"]\n",
            Cloud::data(cloud).join("zone").display(),
            token.trim()
        );
        let zone = Role::start(cloud, "zone", &config);
        let live = || operator.good(&["zone", "get", name]).contains("connected").then_some(());
        until("the zone is there", live);
        let token = operator.good(&["enroll", "node", "--zone", name]);
        let node = Role::start(cloud, "node", &node_config(cloud, &format!("{name}-1"), https, mqtt, &token));
        (zone, node)
    };
    let (mut gone, _east_node) = join(&east, "east");
    let (_west_zone, _west_node) = join(&west, "west");

    operator.good(&["zone", "cordon", "west"]);
    operator.good(&["instance", "create", "web", "--image", "busybox", "--", "sleep", "100000"]);
    assert_eq!(operator.get("web")["zone"], "east");
    operator.good(&["zone", "uncordon", "west"]);
    operator.good(&["zone", "drain", "east"]);
    operator.wait("web", "it runs in the other zone", |seen| {
        seen["phase"] == "running" && seen["zone"] == "west"
    });
    until("the first zone drops what is no longer its own", || {
        (Remains::look(&east.data(), &east.tag) == Remains::default()).then_some(())
    });

    operator.good(&["zone", "remove", "east", "--yes"]);
    gone.kill();
    gone.again();
    until("it is refused", || {
        let log = std::fs::read_to_string(east.home.join("zone.log")).unwrap();
        log.contains("this zone was removed from root").then_some(())
    });
    let zones = operator.good(&["zone", "list", "-o", "name"]);
    assert_eq!(zones, "west\n");
    assert_eq!(operator.get("web")["zone"], "west");
    let story = operator.good(&["event", "list", "-o", "json"]);
    assert!(story.contains("zone.remove") && story.contains("zone.mode"), "{story}");
    operator.good(&["instance", "delete", "web"]);
    assert_eq!(Remains::look(&west.data(), &west.tag), Remains::default());
}
