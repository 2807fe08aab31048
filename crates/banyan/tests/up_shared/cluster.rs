//! A cluster on instances of this cloud, from the catalogue to the last machine: made, seen to serve, changed,
//! entered, deleted, with nothing left.

use serde_json::json;

use crate::support::cluster::{catalogue, machines, nodes, page};
use crate::support::{Cloud, image, says, text, until};

#[test]
fn a_cluster_lives_on_instances_and_leaves_nothing() {
    let cloud = Cloud::shared();
    let folder = cloud.home.join("catalogue");
    catalogue(&folder, "cluster-machine");
    let tiny = folder.join("hardwaretypes/tiny.json");
    let folder = folder.to_str().unwrap();
    refused(&cloud, &tiny, folder);
    let tar = cloud.home.join("cluster.tar");
    std::fs::write(&tar, image::machine()).unwrap();
    cloud.good(&["image", "import", "cluster-machine", tar.to_str().unwrap()]);
    says(&cloud.good(&["catalogue", "apply", "-f", folder]), &["hardwaretypes/tiny"]);
    assert_eq!(cloud.good(&["catalogue", "apply", "-f", folder]), "", "nothing is new");
    let preview = cloud.json(&["cluster", "solve", "--template", "site", "--size", "2"]);
    assert_eq!((&preview["layout"][0]["count"], &preview["tasks"]["CREATE"]), (&json!(2), &json!(2)));

    let made = cloud.json(&["cluster", "create", "shop", "--template", "site", "--size", "2"]);
    assert_eq!(made["status"], "active", "{made:#}\n{}", cloud.log());
    let two = nodes(&cloud, "shop");
    let addresses: Vec<String> = two.iter().map(|node| node.addresses["access_v4"].clone()).collect();
    assert_eq!(addresses.len(), 2);
    addresses.iter().for_each(|at| assert_eq!(page(at).as_deref(), Some("hello of 2"), "{at}"));
    assert_eq!(machines(&cloud, "shop").len(), 2);
    says(&cloud.good(&["cluster", "get", "shop"]), &["active", "1000", "page"]);
    let whole: serde_json::Value =
        serde_json::from_str(&cloud.good(&["cluster", "get", "shop", "-o", "json"])).unwrap();
    assert_eq!((&whole["name"], &whole["machines"][1]["num"]), (&"shop".into(), &1001.into()), "{whole}");
    says(&cloud.good(&["cluster", "logs", "shop", "1000"]), &["CREATE", "INSTALL page", "complete"]);
    says(&cloud.good(&["provisioner", "list"]), &["local", "connected"]);
    assert_ne!(two[0].host_keys, two[1].host_keys, "each machine has a key of its own");
    let words = cloud.run(&["cluster", "ssh", "shop", "1000", "--", "sh", "-c", "echo 'a  b'; exit 7"]);
    assert_eq!((words.status.code(), text(&words.stdout).as_str()), (Some(7), "a  b\n"));
    let entered = cloud.run(&["cluster", "ssh", "shop", "1000", "--", "hostname && exit 3"]);
    assert_eq!(entered.status.code(), Some(3), "{}", text(&entered.stderr));
    assert_eq!(text(&entered.stdout).trim(), two[0].hostname.split('.').next().unwrap());

    cloud.good(&["cluster", "expand", "shop", "3"]);
    let three = nodes(&cloud, "shop");
    assert_eq!(three.len(), 3);
    assert_eq!(three[0].provider_id, two[0].provider_id, "what stands stays");
    let new = &three[2].addresses["access_v4"];
    assert_eq!(page(new).as_deref(), Some("hello of 3"));
    cloud.good(&["cluster", "configure", "shop", "--set", "page.text=good day"]);
    for node in &three {
        let at = &node.addresses["access_v4"];
        until("the page is the new one", || page(at).filter(|said| said == "good day of 3"));
    }
    cloud.good(&["cluster", "stop", "shop", "page"]);
    assert_eq!(page(new), None, "it is stopped");
    cloud.good(&["cluster", "start", "shop"]);
    cloud.good(&["cluster", "restart", "shop", "page"]);
    cloud.good(&["cluster", "upgrade", "shop", "--batch", "2"]);
    assert_eq!(page(new).as_deref(), Some("good day of 3"));
    says(&cloud.good(&["cluster", "watch", "shop"]), &["1002  START page  complete"]);
    says(&cloud.good(&["cluster", "jobs", "shop"]), &["complete"]);
    assert_eq!(cloud.good(&["cluster", "services", "shop"]), "page\n");
    cloud.good(&["cluster", "shrink", "shop", "2"]);
    assert_eq!((nodes(&cloud, "shop").len(), machines(&cloud, "shop").len()), (2, 2));
    says(&cloud.bad(&["cluster", "expand", "shop", "9"]), &["5"]);
    lost(&cloud);
    held(&cloud);
    shared_with_none(&cloud);

    cloud.good(&["cluster", "delete", "shop"]);
    assert_eq!(machines(&cloud, "shop"), Vec::<String>::new());
    // One that cannot be made takes its machines with it.
    let failed = cloud.run(&["cluster", "create", "doom", "--template", "doomed", "--size", "1"]);
    says(&text(&failed.stderr), &["install broken on", "looking for it", "it cannot be"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(machines(&cloud, "doom"), Vec::<String>::new());
    cloud.good(&["cluster", "delete", "doom", "--ignore-missing"]);
    cloud.good(&["image", "delete", "cluster-machine"]);
}

/// A job is paused, goes on, and is ended; a lease is given.
fn held(cloud: &Cloud) {
    let shop = || cloud.json(&["cluster", "get", "shop"]);
    cloud.good(&["cluster", "expand", "shop", "3", "--no-wait"]);
    says(&text(&cloud.run(&["cluster", "pause", "shop"]).stdout), &["cluster shop", "paused"]);
    assert_eq!(shop()["job"]["status"], "paused");
    says(&cloud.bad(&["cluster", "expand", "shop", "4"]), &["under way", "abort"]);
    says(&cloud.bad(&["cluster", "lease", "shop", "--until", "2099-01-01T00:00:00Z"]), &["pending"]);
    assert_eq!(shop()["status"], "pending", "nothing goes on");
    cloud.good(&["cluster", "resume", "shop"]);
    assert_eq!((shop()["status"].as_str(), machines(cloud, "shop").len()), (Some("active"), 3));
    says(&cloud.bad(&["cluster", "pause", "shop"]), &["shop"]);

    cloud.good(&["cluster", "expand", "shop", "4", "--no-wait"]);
    cloud.good(&["cluster", "pause", "shop"]);
    cloud.good(&["cluster", "abort", "shop"]);
    let same = shop();
    assert_eq!((same["status"].as_str(), machines(cloud, "shop").len()), (Some("active"), 3), "{same:#}");
    says(same["message"].as_str().unwrap(), &["Aborted by", "the cluster is as it was"]);

    says(
        &text(&cloud.run(&["cluster", "lease", "shop", "--until", "2099-01-01T00:00:00Z"]).stdout),
        &["its lease ends at 2099-01-01"],
    );
    says(&cloud.good(&["cluster", "get", "shop"]), &["2099-01-01"]);
    cloud.good(&["cluster", "shrink", "shop", "2"]);
}

/// A service that can be on no machine that stands gets one of its own, and that goes with it.
fn shared_with_none(cloud: &Cloud) {
    let before = nodes(cloud, "shop");
    let asked = ["cluster", "solve", "--cluster", "shop", "--add", "clock"];
    let same = cloud.json(&asked);
    assert_eq!(same["anew"], true, "{same:#}");
    let more = cloud.json(&[&asked[..], &["--size", "3"]].concat());
    assert_eq!(
        (more["anew"].as_bool(), more["made"].as_array().map(Vec::len)),
        (Some(false), Some(1)),
        "{more:#}"
    );
    says(
        &cloud.bad(&["cluster", "services", "shop", "--add", "clock"]),
        &["keeps all machines", "3 machines"],
    );
    cloud.good(&["cluster", "services", "shop", "--add", "clock", "--size", "3"]);
    let three = nodes(cloud, "shop");
    let services: Vec<String> = three.iter().map(|node| node.services.join(",")).collect();
    assert_eq!(services, ["page", "page", "clock"]);
    assert_eq!(three[1].provider_id, before[1].provider_id, "what stands stays");
    assert_eq!(cloud.good(&["cluster", "services", "shop"]), "page\nclock\n");
    says(&cloud.bad(&["cluster", "services", "shop", "--remove", "clock"]), &["give up 1", "2"]);
    cloud.good(&["cluster", "services", "shop", "--remove", "clock", "--size", "2"]);
    assert_eq!((nodes(cloud, "shop").len(), machines(cloud, "shop").len()), (2, 2));
}

/// A machine that is deleted or stopped behind the cluster's back is noticed, and made anew when it is gone.
fn lost(cloud: &Cloud) {
    let becomes = |what: &str| {
        until(what, || {
            let seen = cloud.json(&["cluster", "get", "shop"]);
            (seen["status"] == what).then_some(seen)
        })
    };
    let before = nodes(cloud, "shop");
    let id = before[1].provider_id.clone().unwrap();
    cloud.good(&["instance", "stop", &id]);
    let seen = becomes("degraded");
    says(seen["message"].as_str().unwrap(), &["its instance is stopped"]);
    says(&cloud.bad(&["cluster", "repair", "shop"]), &["known to be gone", "cluster check"]);
    cloud.good(&["instance", "start", &id]);
    becomes("active");
    cloud.good(&["instance", "delete", &id]);
    let seen = becomes("degraded");
    says(seen["message"].as_str().unwrap(), &["its instance is gone", "repair"]);
    says(&cloud.good(&["cluster", "list"]), &["degraded"]);
    says(&cloud.good(&["cluster", "get", "shop"]), &["missing"]);
    let health = text(&cloud.run(&["health"]).stdout);
    says(&health, &["machines are gone or down", "shop"]);
    says(&cloud.good(&["event", "list", "--subject", "cluster/shop"]), &["cluster.degraded"]);
    cloud.good(&["cluster", "repair", "shop"]);
    let after = nodes(cloud, "shop");
    assert_eq!((after.len(), machines(cloud, "shop").len()), (2, 2));
    assert_eq!(after[0].provider_id, before[0].provider_id, "what stands stays");
    let at = &after[1].addresses["access_v4"];
    until("the new one serves", || page(at).filter(|said| said == "good day of 2"));
    becomes("active");
}

/// What cannot be made here is told when it is asked for.
fn refused(cloud: &Cloud, tiny: &std::path::Path, folder: &str) {
    let sound = std::fs::read_to_string(tiny).unwrap();
    std::fs::write(tiny, sound.replace("100m/64MiB", "9000/64MiB")).unwrap();
    says(&cloud.good(&["catalogue", "apply", "-f", folder]), &["services/page: created"]);
    for ask in [&["cluster", "solve"][..], &["cluster", "create", "shop"]] {
        let refused = cloud.bad(&[ask, &["--template", "site", "--size", "2"]].concat());
        says(
            &refused,
            &["the image 'cluster-machine', and there is none", "hardware type 'tiny'", "fits into no zone"],
        );
    }
    std::fs::write(tiny, sound).unwrap();
}
