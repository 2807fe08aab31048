//! A data folder on a small disk that fills up: a clear sentence, nothing half done, and on it goes
//! once there is room again.

use std::io::Write;
use std::process::Command;

use crate::support::*;

fn mount(cloud: &Cloud, size: &str) {
    std::fs::create_dir_all(cloud.data()).unwrap();
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(cloud.data())
        .status()
        .unwrap();
    assert!(done.success());
}

/// Fills the disk to the last byte; the file's removal makes room again.
fn fill(cloud: &Cloud) -> std::path::PathBuf {
    let path = cloud.data().join("filler");
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let chunk = vec![1; size];
        while file.write_all(&chunk).is_ok() {}
    }
    path
}

#[test]
fn a_full_disk_is_told_and_nothing_is_half_done() {
    let cloud = Cloud::new();
    mount(&cloud, "96m");
    cloud.up(&[]);
    let before = cloud.create("before", &[], "while true; do echo tick; sleep 0.1; done");
    let life = cloud.life(before["id"].as_str().unwrap());
    let image = cloud.home.join("image.tar");
    std::fs::write(&image, image::rootfs("full\n").end()).unwrap();
    cloud.create("going", &[], "sleep 100000");
    fill(&cloud);
    // What makes room gets through, out of the reserve; then that is gone too.
    cloud.good(&["instance", "delete", "going"]);
    let filler = fill(&cloud);
    let refusals = [
        cloud.run(&["image", "import", "full", image.to_str().unwrap()]),
        cloud.run(&["tenant", "create", "full"]),
        cloud.run(&[
            "instance",
            "create",
            "full",
            "--image",
            "busybox",
            "--timeout",
            "5s",
            "--",
            "sleep",
            "100000",
        ]),
    ];
    for output in &refusals {
        refused(output);
        says(&text(&output.stderr), &["disk", "full", "hint: "]);
    }
    assert_eq!(cloud.get("before")["phase"], "running");
    assert_eq!(cloud.life(before["id"].as_str().unwrap()), life, "a full disk ended an instance");
    std::fs::remove_file(filler).unwrap();
    says(&cloud.bad(&["image", "get", "full"]), &["there is no image"]);
    let tmp = std::fs::read_dir(cloud.data().join("root/images/tmp")).unwrap().count();
    assert_eq!(tmp, 0, "a part of the refused image is left");
    until("the cloud takes orders again", || {
        cloud.run(&["image", "import", "full", image.to_str().unwrap()]).status.success().then_some(())
    });
    cloud.create("after", &[], "sleep 100000");
    says(&cloud.bad(&["instance", "get", "full"]), &["there is no instance"]);
    says(&cloud.bad(&["tenant", "get", "full"]), &["there is no tenant"]);
    cloud.good(&["instance", "delete", "after"]);
    cloud.good(&["instance", "restart", "before"]);
    cloud.terminate();
    cloud.up(&[]);
    cloud.good(&["instance", "get", "before"]);
}

#[test]
fn a_start_on_a_full_disk_is_refused_and_works_later() {
    let cloud = Cloud::new();
    mount(&cloud, "48m");
    let filler = fill(&cloud);
    let said = cloud.up_refused(&[]);
    assert!(said.contains("space") || said.contains("full"), "{said}");
    std::fs::remove_file(filler).unwrap();
    cloud.up(&[]);
    cloud.create("after", &[], "sleep 100000");
    let life = cloud.life(cloud.get("after")["id"].as_str().unwrap());
    cloud.terminate();
    let filler = fill(&cloud);
    // It may start without writing, or refuse; it must not lose anything.
    if cloud.up_or_not(&[]) {
        cloud.terminate();
    }
    assert!(!cloud.log().contains("panicked"), "{}", cloud.log());
    std::fs::remove_file(filler).unwrap();
    cloud.up(&[]);
    let kept = cloud.wait("after", "running", |i| i["phase"] == "running");
    assert_eq!((kept["restarts"].as_u64(), cloud.life(kept["id"].as_str().unwrap())), (Some(0), life));
}
