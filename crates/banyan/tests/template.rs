//! `banyan template`: catalogues in folders, with no server anywhere.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

struct World {
    home: tempfile::TempDir,
}

impl World {
    /// A small catalogue: web servers, a database, and a template with both.
    fn new() -> Self {
        let world = Self { home: tempfile::tempdir().unwrap() };
        world.define("providers", json!({"name": "cloud", "providertype": "ec2", "provisioner": {}}));
        world.define(
            "hardwaretypes",
            json!({"name": "large", "providermap": {"cloud": {"flavor": 6, "cost": "0.50"}}}),
        );
        world.define(
            "hardwaretypes",
            json!({"name": "small", "providermap": {"cloud": {"flavor": "1", "cost": 0.1}}}),
        );
        world.define("imagetypes", json!({"name": "debian", "providermap": {"cloud": {"image": "d12"}}}));
        let shell = |names: &[&str]| -> Value {
            names
                .iter()
                .map(|name| ((*name).to_owned(), json!({"type": "shell", "fields": {"script": "x"}})))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        world.define("services", json!({"name": "base", "provisioner": {"actions": shell(&["install"])}}));
        world.define(
            "services",
            json!({"name": "db", "dependson": ["base"],
            "provisioner": {"actions": shell(&["install", "start", "stop", "remove"])}}),
        );
        world.define("services", json!({"name": "web", "provisioner": {"actions": shell(&["install", "configure", "start", "stop"])},
            "dependencies": {"install": {"requires": ["base"]}, "runtime": {"requires": ["db"]}}}));
        world.define(
            "services",
            json!({"name": "cache", "provisioner": {"actions": shell(&["install", "start"])}}),
        );
        world.define("clustertemplates", json!({"name": "site",
            "defaults": {"services": ["base", "db", "web"], "provider": "cloud", "hardwaretype": "small"},
            "compatibility": {"services": ["base", "db", "web", "cache"]},
            "constraints": {"size": {"min": "2", "max": 100}, "layout": {"cantcoexist": [["db", "web"]]},
                "services": {"db": {"quantities": {"min": 1, "max": "1"}}, "web": {"quantities": {"min": 1}}}},
            "links": [{"label": "site", "url": "http://%ip.access_v4.service.web%/"}]}));
        world
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).display().to_string()
    }

    fn define(&self, folder: &str, value: Value) {
        let name = format!("{folder}/{}.json", value["name"].as_str().unwrap());
        self.write(&name, &value.to_string());
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_banyan"));
        command.arg("template").args(words).env_clear().env("HOME", self.home.path());
        command
            .env("BANYAN_CONFIG", self.path("none.yaml"))
            .current_dir(self.home.path())
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let output = self.run(&[words, &["-o", "json"]].concat());
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words:?}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{words:?}: {out}{err}"))
    }

    fn asks<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&[verb, "--catalogue", ".", "--template", "site"], more].concat()
    }

    /// Runs a command that must fail without data, and returns what it says.
    fn bad(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn group(count: u32, services: &[&str], hardware: &str) -> Value {
    json!({"count": count, "services": services, "hardwaretype": hardware, "imagetype": "debian"})
}

#[test]
fn a_layout_is_printed_with_its_cost() {
    let world = World::new();
    let solved = world.json(&World::asks("solve", &["--size", "4"]), 0);
    assert_eq!(
        solved["layout"],
        json!([group(1, &["base", "db"], "small"), group(3, &["base", "web"], "small")])
    );
    assert_eq!(
        (&solved["size"], &solved["provider"], &solved["cost"]),
        (&json!(4), &json!("cloud"), &json!(0.4))
    );
    let options = [
        "--size",
        "3",
        "--services",
        "base, cache",
        "--hardwaretype",
        "large",
        "--provider",
        "cloud",
        "--imagetype",
        "debian",
    ];
    let solved = world.json(&World::asks("solve", &options), 0);
    assert_eq!(solved["layout"], json!([group(3, &["base", "cache"], "large")]));
    let table = text(&world.run(&World::asks("solve", &["--size", "4"])).stdout);
    assert!(
        table.contains("3      small     debian  base, web")
            && table.contains("4 machines at cloud, 0.4 an hour"),
        "{table}"
    );
}

#[test]
fn what_has_no_layout_says_why() {
    let world = World::new();
    let check = |more: &[&str], reason: &str| {
        let told = world.json(&World::asks("solve", more), 1);
        assert!(told["unsolvable"]["reason"].as_str().unwrap().contains(reason), "{told}");
        assert!(told["unsolvable"]["conflicts"][0]["path"].is_string(), "{told}");
        let said = world.bad(&World::asks("solve", more), 1);
        assert!(said.contains(reason), "{said}");
    };
    check(&["--size", "1"], "template site is for 2 to 100 machines, not 1");
    check(&["--size", "101"], "2 to 100 machines");
    check(
        &["--size", "3", "--services", "base,ghost"],
        "there is no service 'ghost'; there are base, cache, db, web",
    );
    check(&["--size", "3", "--services", "base,web"], "web requires db, which is not on the cluster");
    check(
        &["--size", "3", "--hardwaretype", "huge"],
        "there is no hardware type 'huge'; there are large, small",
    );
    check(&["--size", "3", "--imagetype", "none"], "there is no image type 'none'; there is debian");
    world.define(
        "clustertemplates",
        json!({"name": "tight", "defaults": {"services": ["base", "db"], "provider": "cloud"},
        "constraints": {"services": {"db": {"quantities": {"min": 3}}}}}),
    );
    let told = world.json(&["solve", "--catalogue", ".", "--template", "tight", "--size", "2"], 1);
    let conflict = &told["unsolvable"]["conflicts"][0];
    assert_eq!(conflict["path"], "constraints.services.db.quantities.min");
    assert_eq!(conflict["text"], "db must be on at least 3 machines");
}

#[test]
fn what_cannot_be_asked_is_one_sentence() {
    let world = World::new();
    let solve =
        |more: &[&str]| World::asks("solve", more).iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let bad = |words: &[String], code| world.bad(&words.iter().map(String::as_str).collect::<Vec<_>>(), code);
    assert!(bad(&solve(&["--size", "0"]), 1).contains("a cluster has 1 to 10000 machines, not 0"));
    assert!(bad(&solve(&["--size", "10001"]), 1).contains("1 to 10000 machines"));
    assert!(bad(&solve(&["--size", "many"]), 2).contains("write a whole number"));
    assert!(bad(&solve(&["--size", "-1"]), 2).contains("-1"));
    assert!(bad(&solve(&[]), 2).contains("--size"));
    assert!(bad(&solve(&["--size", "3", "--provider", "moon"]), 1).contains("there is no provider 'moon'"));
    assert!(
        world
            .bad(&["solve", "--catalogue", ".", "--template", "x", "--size", "3"], 1)
            .contains("there is no cluster template 'x'")
    );
    assert!(
        world
            .bad(&["solve", "--catalogue", "none", "--template", "x", "--size", "3"], 1)
            .contains("there is no folder none")
    );
    std::fs::create_dir(world.path("empty")).unwrap();
    assert!(world.bad(&["check", "empty"], 1).contains("holds no definitions"));
    world.write("services/broken.json", "{\"name\": ");
    assert!(bad(&solve(&["--size", "3"]), 1).contains("services/broken.json is no JSON"));
    world.write("services/broken.json", "{\"name\": \"broken\", \"links\": 3}");
    assert!(bad(&solve(&["--size", "3"]), 1).contains("error: "));
}

fn names(plan: &Value) -> Vec<String> {
    let name = |task: &Value| {
        let [name, node, service] = ["taskName", "nodeId", "service"].map(|key| task[key].as_str().unwrap());
        format!("{name} {node} {service}").trim().to_owned()
    };
    let mut all: Vec<String> = plan["tasks"].as_array().unwrap().iter().map(name).collect();
    all.sort();
    all
}

#[test]
fn a_plan_has_tasks_what_they_need_and_stages() {
    let world = World::new();
    let plan = world.json(&World::asks("plan", &["--size", "2"]), 0);
    assert_eq!(plan["action"], "CLUSTER_CREATE");
    let tasks = plan["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3 * 2 + 2 + 2 + 3);
    let find = |name: &str, service: &str| {
        tasks.iter().filter(|task| task["taskName"] == name && task["service"] == service).collect::<Vec<_>>()
    };
    let start = find("START", "web")[0];
    let needs: Vec<&Value> = vec![&find("START", "db")[0]["id"], &find("CONFIGURE", "web")[0]["id"]];
    let mut found: Vec<&Value> = start["needs"].as_array().unwrap().iter().collect();
    found.sort_by_key(|id| id.as_str());
    let mut needs = needs;
    needs.sort_by_key(|id| id.as_str());
    assert_eq!(found, needs);
    let install = find("INSTALL", "web")[0]["needs"].as_array().unwrap().len();
    assert_eq!(install, 3, "its own machine, and the base of both");
    let stages = plan["stages"].as_array().unwrap();
    assert_eq!(stages[0].as_array().unwrap().len(), 2);
    assert_eq!(stages.iter().map(|stage| stage.as_array().unwrap().len()).sum::<usize>(), tasks.len());
    let table = text(&world.run(&World::asks("plan", &["--size", "2"])).stdout);
    assert!(table.contains("CLUSTER_CREATE: 13 tasks in 7 stages"), "{table}");
}

#[test]
fn a_plan_from_a_layout_changes_only_what_must() {
    let world = World::new();
    let solved = world.json(&World::asks("solve", &["--size", "3"]), 0);
    let from = world.write("layout.json", &solved.to_string());
    let plan = |more: &[&str]| world.json(&World::asks("plan", &[more, &["--from", &from]].concat()), 0);
    let same = plan(&["--size", "3"]);
    assert_eq!((&same["action"], &same["tasks"], &same["stages"]), (&json!("NONE"), &json!([]), &json!([])));
    let grown = plan(&["--size", "4"]);
    assert_eq!(grown["action"], "CLUSTER_EXPAND");
    assert_eq!(
        names(&grown),
        [
            "BOOTSTRAP 1003",
            "CONFIGURE 1003 web",
            "CONFIRM 1003",
            "CREATE 1003",
            "INSTALL 1003 base",
            "INSTALL 1003 web",
            "START 1000 db",
            "START 1003 web"
        ]
    );
    assert_eq!(names(&plan(&["--size", "2"])), ["DELETE 1002", "STOP 1002 web"]);
    let added = plan(&["--size", "3", "--services", "base,db,web,cache"]);
    assert_eq!((&added["action"], names(&added).len()), (&json!("ADD_SERVICES"), 9));
    let restart = plan(&["--size", "3", "--action", "restart", "--on", "db"]);
    assert_eq!(
        names(&restart),
        [
            "START 1000 db",
            "START 1001 web",
            "START 1002 web",
            "STOP 1000 db",
            "STOP 1001 web",
            "STOP 1002 web"
        ]
    );
    let rolling = plan(&["--size", "3", "--action", "upgrade", "--on", "web"]);
    assert_eq!(rolling["stages"].as_array().unwrap().len(), 10);
    let bare = world.write("bare.json", &solved["layout"].to_string());
    assert_eq!(world.json(&World::asks("plan", &["--size", "3", "--from", &bare]), 0)["action"], "NONE");
    let wrong = world.write("wrong.json", "[{\"count\": 1}]");
    assert!(
        world.bad(&World::asks("plan", &["--size", "3", "--from", &wrong]), 1).contains("this is no layout")
    );
    assert!(
        world
            .bad(&World::asks("plan", &["--size", "3", "--action", "stop", "--on", "x"]), 1)
            .contains("no service 'x' on the cluster")
    );
    assert_eq!(
        world.json(&World::asks("plan", &["--size", "1"]), 1)["unsolvable"]["conflicts"][0]["path"],
        "constraints.size"
    );
}

#[test]
fn a_catalogue_is_checked_as_a_whole() {
    let world = World::new();
    let report = world.json(&["check", "."], 0);
    assert_eq!(report, json!({"ok": true, "definitions": 9, "findings": []}));
    assert_eq!(text(&world.run(&["check", "."]).stdout), "9 definitions, 0 errors, 0 warnings\n");
    world.write("services/broken.json", "{");
    world.define(
        "clustertemplates",
        json!({"name": "t", "defaults": {"services": ["ghost"], "provider": "moon"}}),
    );
    let report = world.json(&["check", "."], 1);
    let told: Vec<(&str, &str)> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| (finding["name"].as_str().unwrap(), finding["path"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("broken", ""), ("t", "defaults.services"), ("t", "defaults.provider")]);
    let file = |place: usize| report["findings"][place]["file"].as_str().unwrap();
    assert_eq!((file(0), file(1)), ("./services/broken.json", "./clustertemplates/t.json"));
}

#[test]
fn all_faults_and_misspelt_fields_are_told_with_their_files() {
    let world = World::new();
    world.write("services/two.json", r#"[{"name": "a", "links": 3, "dependencies": 5}, {"nmae": "b"}]"#);
    world.define("services", json!({"name": "odd", "dependencis": {}}));
    let table = text(&world.run(&["check", "."]).stdout);
    for said in [
        "./services/two.json: [0].links",
        "./services/two.json: [0].dependencies",
        "./services/two.json: [1].name",
        "./services/odd.json: dependencis",
        "did you mean 'dependencies'?",
        "3 errors, 1 warning",
    ] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let refused = world.bad(&World::asks("solve", &["--size", "3"]), 1);
    assert!(refused.contains("error: 3 things are wrong with definitions"), "{refused}");
}

#[test]
fn macros_are_expanded_for_one_node() {
    let world = World::new();
    let nodes = json!({"n1": {"hostname": "one", "nodenum": 1000, "services": ["web"], "ipaddresses": {"access_v4": "1.0.0.1"}},
        "n2": {"hostname": "two", "nodenum": 1001, "services": ["web"], "ipaddresses": {"access_v4": "1.0.0.2"}}});
    let file = world.write("nodes.json", &nodes.to_string());
    let words =
        |id: &'static str, text: &'static str| ["expand", "--nodes", "nodes.json", "--self", id, text];
    let good = |id, macros| text(&world.run(&words(id, macros)).stdout);
    assert_eq!(good("n2", "%host.self%: %ip.access_v4.service.web%"), "two: 1.0.0.1,1.0.0.2\n");
    assert_eq!(
        good("n2", "%instance.self.service.web% %cluster.owner% 5%% %Y-%m"),
        "2 %cluster.owner% 5% %Y-%m\n"
    );
    let owned =
        world.json(&["expand", "--nodes", &file, "--self", "n1", "--owner", "ada", "-%cluster.owner%"], 0);
    assert_eq!(owned, json!({"text": "-ada"}));
    assert!(world.bad(&words("n9", "x"), 1).contains("there is no node 'n9'"));
    assert!(world.bad(&words("n1", "%host.nobody%"), 1).contains("'host.nobody' is no macro"));
    assert!(world.bad(&words("n1", "%ip.self%"), 1).contains("node n1 has no address bind_v4"));
    world.write("nodes.json", "[{}]");
    assert!(world.bad(&words("n1", "x"), 1).contains("must have an id"));
}
