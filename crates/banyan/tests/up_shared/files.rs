//! Files of plugins, from the upload to the machine: a script and an archive are used by a service, changed, and
//! taken away.

use std::path::Path;

use serde_json::json;

use crate::support::cluster::{machines, nodes, page};
use crate::support::image::Tar;
use crate::support::{Cloud, image, says, text};

/// A catalogue with a service that is made of two staged files.
fn catalogue(folder: &Path) {
    let run = |args: &str| json!({"type": "shell", "fields": {"script": "filed.sh", "archive": "filed.tar", "args": args}});
    let actions = json!({"configure": run("configure"), "start": run("start")});
    let defaults = json!({
        "services": ["filed"], "provider": "banyan", "hardwaretype": "filed", "imagetype": "filed"
    });
    for (kind, entity) in [
        ("hardwaretypes", json!({"name": "filed", "providermap": {"banyan": {"flavor": "100m/64MiB"}}})),
        ("imagetypes", json!({"name": "filed", "providermap": {"banyan": {"image": "files-machine"}}})),
        ("services", json!({"name": "filed", "provisioner": {"actions": actions}})),
        ("clustertemplates", json!({"name": "filed", "defaults": defaults})),
    ] {
        std::fs::create_dir_all(folder.join(kind)).unwrap();
        std::fs::write(folder.join(kind).join("filed.json"), entity.to_string()).unwrap();
    }
}

fn script(word: &str) -> String {
    format!(
        "#!/bin/sh\nset -e\nmkdir -p /srv/www\necho \"{word} and $(cat text/said)\" > /srv/www/index.html\n\
         if [ \"$1\" = start ]; then httpd -f -p 8080 -h /srv/www </dev/null >/dev/null 2>&1 & fi\n"
    )
}

#[test]
fn a_service_uses_files_that_are_staged_and_no_others() {
    let cloud = Cloud::shared();
    let at = |name: &str| cloud.home.join(name).to_str().unwrap().to_owned();
    std::fs::write(at("files.tar"), image::machine()).unwrap();
    cloud.good(&["image", "import", "files-machine", &at("files.tar")]);
    let folder = cloud.home.join("files-catalogue");
    catalogue(&folder);
    cloud.good(&["catalogue", "apply", "-f", folder.to_str().unwrap()]);

    std::fs::write(at("filed.sh"), script("one")).unwrap();
    let archive = Tar::default().folder("text/").file("text/said", "packed").end();
    std::fs::write(at("filed.tar"), archive).unwrap();
    cloud.good(&["resource", "upload", &at("filed.tar"), "--automator", "shell", "--type", "archives"]);
    says(
        &cloud.good(&["resource", "list", "--name", "filed*"]),
        &["automatortypes/shell/archives/filed.tar"],
    );
    cloud.good(&["resource", "stage", "filed.tar"]);
    let made = cloud.json(&[
        "resource",
        "upload",
        &at("filed.sh"),
        "--automator",
        "shell",
        "--type",
        "scripts",
        "--sync",
    ]);
    assert_eq!(made["versions"][0]["status"], "active", "{made:#}");
    says(&cloud.good(&["resource", "get", "filed.tar"]), &["active"]);
    cloud.good(&["cluster", "create", "filed", "--template", "filed", "--size", "1"]);
    let address = nodes(&cloud, "filed")[0].addresses["access_v4"].clone();
    assert_eq!(page(&address).as_deref(), Some("one and packed"), "{}", cloud.log());

    // A new version counts once it is synced.
    std::fs::write(at("filed.sh"), script("two")).unwrap();
    cloud.good(&[
        "resource",
        "upload",
        &at("filed.sh"),
        "--automator",
        "shell",
        "--type",
        "scripts",
        "--stage",
    ]);
    let configure = ["cluster", "configure", "filed", "--no-restart"];
    cloud.good(&configure);
    assert_eq!(page(&address).as_deref(), Some("one and packed"));
    says(&cloud.good(&["resource", "sync"]), &["scripts/filed.sh@2: active", "scripts/filed.sh@1: inactive"]);
    cloud.good(&configure);
    assert_eq!(page(&address).as_deref(), Some("two and packed"));
    cloud.good(&["resource", "download", "filed.sh@1", "--to", &at("filed.old")]);
    assert_eq!(std::fs::read_to_string(at("filed.old")).unwrap(), script("one"));

    // What is recalled is gone.
    says(&cloud.bad(&["resource", "delete", "filed.sh@2"]), &["is active", "recall it and sync first"]);
    cloud.good(&["resource", "recall", "filed.sh", "--sync"]);
    let failed = cloud.run(&configure);
    assert_eq!(failed.status.code(), Some(1));
    says(&text(&failed.stderr), &["the resource 'filed.sh' of scripts", "it is not staged"]);
    cloud.good(&["cluster", "delete", "filed"]);
    assert_eq!(machines(&cloud, "filed"), Vec::<String>::new());

    cloud.good(&["resource", "recall", "filed.tar", "--sync"]);
    cloud.good(&["resource", "delete", "filed.sh@1", "filed.sh@2", "filed.tar"]);
    assert_eq!(cloud.json(&["resource", "list", "--name", "filed*"]), json!([]));
    for kind in ["clustertemplates", "services", "imagetypes", "hardwaretypes"] {
        cloud.good(&["catalogue", "delete", kind, "filed"]);
    }
    cloud.good(&["image", "delete", "files-machine"]);
}
