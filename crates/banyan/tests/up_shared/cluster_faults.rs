//! Whatever fails while a cluster is made or grows, on machines that are there: it ends in its old or its new layout, and
//! no machine is left over.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Cloud, image, says, text};

const VERBS: [&str; 4] = ["install", "configure", "initialize", "start"];

/// A service for each verb that fails at it on the second machine, and what fails before any service is begun.
fn catalogue(folder: &Path) {
    let write = |kind: &str, entity: Value| {
        let at = folder.join(kind);
        std::fs::create_dir_all(&at).unwrap();
        std::fs::write(at.join(format!("{}.json", entity["name"].as_str().unwrap())), entity.to_string())
            .unwrap();
    };
    let map = |field: &str, value: &str| json!({"banyan": {field: value}});
    write("hardwaretypes", json!({"name": "small", "providermap": map("flavor", "20m/48MiB")}));
    write("imagetypes", json!({"name": "plain", "providermap": map("image", "fault-machine")}));
    let template = |name: &str| {
        let defaults =
            json!({"services": [name], "provider": "banyan", "hardwaretype": "small", "imagetype": "plain"});
        write("clustertemplates", json!({"name": name, "defaults": defaults}));
    };
    for fails in VERBS {
        let act = |verb: &str| {
            let end = if verb == fails {
                "case $BANYAN_HOSTNAME in *-1001.*) echo it cannot be; exit 7 ;; esac"
            } else {
                ""
            };
            let code = format!("#!/bin/sh\necho {verb} >> /srv/done\n{end}\n");
            (verb.to_owned(), json!({"type": "shell", "fields": {"code": code}}))
        };
        let all = ["install", "configure", "initialize", "start", "stop", "remove"];
        let actions: serde_json::Map<String, Value> = all.into_iter().map(act).collect();
        write("services", json!({"name": fails, "provisioner": {"actions": actions}}));
        template(fails);
    }
    // There is nothing on these machines that could install docker.
    let docker = json!({"start": {"type": "docker", "fields": {"image_name": "x"}}});
    write("services", json!({"name": "bootstrap", "provisioner": {"actions": docker}}));
    template("bootstrap");
}

/// The command line in a tenant.
struct Tenant<'a>(&'a Cloud, &'static str);

impl Tenant<'_> {
    fn words<'w>(&'w self, words: &[&'w str]) -> Vec<&'w str> {
        [&["--tenant", self.1][..], words].concat()
    }

    fn good(&self, words: &[&str]) -> String {
        self.0.good(&self.words(words))
    }

    fn json(&self, words: &[&str]) -> Value {
        self.0.json(&self.words(words))
    }

    /// The cluster once its job is over.
    fn settled(&self, name: &str) -> Value {
        self.0.run(&self.words(&["cluster", "watch", name]));
        self.json(&["cluster", "get", name])
    }

    fn machines(&self) -> usize {
        self.json(&["instance", "list"]).as_array().unwrap().len()
    }
}

#[test]
fn whatever_fails_no_machine_is_left_over() {
    let cloud = Cloud::shared();
    let (folder, tar) = (cloud.home.join("fault-catalogue"), cloud.home.join("fault.tar"));
    std::fs::write(&tar, image::machine()).unwrap();
    catalogue(&folder);
    cloud.good(&["tenant", "create", "faults"]);
    cloud.good(&["tenant", "create", "poor", "--instances", "1"]);
    let (rich, poor) = (Tenant(&cloud, "faults"), Tenant(&cloud, "poor"));
    for tenant in [&rich, &poor] {
        // Machines are made in the name of a user of the tenant.
        let user = ["user", "create", "ada", "--role", "admin", "--password-stdin"];
        let made = cloud.fed(&tenant.words(&user), b"correct horse battery");
        assert!(made.status.success(), "{}", text(&made.stderr));
        tenant.good(&["image", "import", "fault-machine", tar.to_str().unwrap()]);
        tenant.good(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);
    }

    // What is to be made does not come to be, at whichever step.
    let create = |tenant: &Tenant<'_>, name: &str, template: &str, size: &str| {
        tenant.good(&["cluster", "create", name, "--template", template, "--size", size, "--no-wait"]);
    };
    let steps = [&VERBS[..], &["bootstrap"]].concat();
    create(&poor, "create", "install", "2");
    steps.iter().for_each(|step| create(&rich, step, step, "2"));
    let ends = |tenant: &Tenant<'_>, step: &str| {
        let ended = tenant.settled(step);
        assert_eq!((&ended["status"], &ended["nodes"]), (&json!("terminated"), &json!(0)), "{ended:#}");
        says(ended["message"].as_str().unwrap(), &[&step.to_uppercase(), "on node 100"]);
        tenant.good(&["cluster", "delete", step]);
    };
    steps.iter().for_each(|step| ends(&rich, step));
    ends(&poor, "create");
    assert_eq!((rich.machines(), poor.machines()), (0, 0));

    // What stands is as it was when more of it does not come to be.
    VERBS.iter().for_each(|step| create(&rich, step, step, "1"));
    create(&poor, "create", "install", "1");
    let grows = [&VERBS.map(|step| (&rich, step))[..], &[(&poor, "create")]].concat();
    for (tenant, step) in &grows {
        let made = tenant.settled(step);
        assert_eq!((&made["status"], &made["nodes"]), (&json!("active"), &json!(1)), "{made:#}");
        tenant.good(&["cluster", "expand", step, "2", "--no-wait"]);
    }
    for (tenant, step) in &grows {
        let same = tenant.settled(step);
        let (status, size) = (&same["status"], &same["size"]);
        assert_eq!((status, size, &same["nodes"]), (&json!("active"), &json!(1), &json!(1)), "{same:#}");
        says(same["message"].as_str().unwrap(), &[&step.to_uppercase(), "the cluster is as it was"]);
        let done = cloud.run(&tenant.words(&["cluster", "ssh", step, "1000", "--", "cat /srv/done"]));
        assert!(!text(&done.stdout).contains("stop"), "{step}: what stands was left alone");
    }
    assert_eq!((rich.machines(), poor.machines()), (4, 1));
    grows.iter().for_each(|(tenant, step)| drop(tenant.good(&["cluster", "delete", step])));
    assert_eq!((rich.machines(), poor.machines()), (0, 0));
}
