//! Images of every kind come in and run; what is no image is refused and leaves nothing.

use tar::EntryType;

use crate::support::image::{Tar, podman_save, registry, rootfs};
use crate::support::*;

/// Files that the image stores of root and of the node hold.
fn stored(cloud: &Cloud) -> Vec<String> {
    let find = std::process::Command::new("find")
        .arg(cloud.data().join("root/images"))
        .args(["-type", "f"])
        .output()
        .unwrap();
    let mut files: Vec<_> = text(&find.stdout).lines().map(str::to_owned).collect();
    files.sort();
    files
}

fn runs(cloud: &Cloud, image: &str, marker: &str) {
    cloud.good(&["instance", "create", image, "--image", image]);
    until("the image's own command spoke", || {
        (cloud.logs(image) == format!("{marker}\nplum\n")).then_some(())
    });
    let shown = cloud.json(&["image", "get", image]);
    assert_eq!(shown["manifest"]["env"]["FLAVOUR"], "plum", "{shown:#}");
}

#[test]
fn archives_layouts_and_registries_give_the_same_image() {
    let cloud = Cloud::shared();
    let dir = cloud.home.join("podman");
    podman_save(&dir, &rootfs("apple\n").end());
    let path = |name: &str| dir.join(name).display().to_string();
    cloud.good(&["image", "import", "from-oci", &path("oci.tar")]);
    cloud.good(&["image", "import", "from-docker", &path("docker.tar")]);
    cloud.good(&["image", "import", "from-layout", &path("layout")]);
    let piped = cloud.fed(&["image", "import", "from-pipe", "-"], &std::fs::read(path("oci.tar")).unwrap());
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    let reference = registry(dir.join("layout"));
    cloud.good(&["image", "pull", "from-registry", &format!("{reference}:1")]);
    let names = ["from-oci", "from-docker", "from-layout", "from-pipe", "from-registry"];
    says(&cloud.good(&["image", "list"]), &names);
    for name in names {
        runs(&cloud, name, "apple");
    }
    says(&cloud.bad(&["image", "pull", "none", &format!("{reference}:2")]), &[&format!("{reference}:2")]);
    let closed = cloud.bad(&["image", "pull", "none", "127.0.0.1:9/team/app:1"]);
    says(&closed, &["127.0.0.1:9"]);
    says(&cloud.bad(&["image", "get", "none"]), &["there is no image 'none'"]);
    cloud.good(&[&["instance", "delete"], &names[..]].concat());
    cloud.good(&[&["image", "delete"], &names[..]].concat());
}

#[test]
fn an_instance_runs_on_when_its_image_is_deleted() {
    let cloud = Cloud::shared();
    let file = cloud.home.join("pear.tar");
    std::fs::write(&file, rootfs("pear\n").folder("etc/").end()).unwrap();
    cloud.good(&["image", "import", "pear", file.to_str().unwrap()]);
    let words =
        ["instance", "create", "on-pear", "--image", "pear", "--", "sh", "-c", "cat /marker; sleep 100000"];
    cloud.good(&words);
    cloud.good(&["image", "delete", "pear"]);
    says(&cloud.bad(&["image", "get", "pear"]), &["there is no image 'pear'"]);
    says(&cloud.bad(&["instance", "create", "too-late", "--image", "pear"]), &["pear", "banyan image list"]);
    assert_eq!(text(&cloud.exec("on-pear", "cat /marker").stdout), "pear\n");
    cloud.good(&["instance", "stop", "on-pear"]);
    cloud.good(&["instance", "start", "on-pear"]);
    assert_eq!(text(&cloud.exec("on-pear", "cat /marker").stdout), "pear\n");
    cloud.good(&["instance", "delete", "on-pear"]);
}

#[test]
fn what_is_no_image_is_refused_and_leaves_nothing() {
    // Nobody else imports here, so that what is stored can be compared.
    let cloud = Cloud::start(&[]);
    let before = stored(&cloud);
    let good = rootfs("x").end();
    let files: [(&str, Vec<u8>); 8] = [
        ("empty", Vec::new()),
        ("words", b"this is a letter, not an image\n".repeat(100)),
        ("picture", [&b"\x89PNG\r\n\x1a\n"[..], &[7; 4000]].concat()),
        ("half", good[..good.len() / 2].to_vec()),
        ("gzip-half", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3]),
        ("dots", Tar::default().folder("bin/").file("../../evil", "x").end()),
        ("through", Tar::default().symlink("out", "/etc").file("out/evil", "x").end()),
        ("hard", Tar::default().entry(EntryType::Link, "passwd", "../../../etc/passwd", b"").end()),
    ];
    for (name, bytes) in &files {
        let file = cloud.home.join(name);
        std::fs::write(&file, bytes).unwrap();
        cloud.bad(&["image", "import", name, file.to_str().unwrap()]);
        says(&cloud.bad(&["image", "get", name]), &["there is no image"]);
    }
    assert_eq!(cloud.good(&["image", "list", "-o", "name"]), "busybox\n");
    until("the store is as before", || (stored(&cloud) == before).then_some(()));
    says(&cloud.bad(&["image", "import", "gone", "/no/such/file"]), &["/no/such/file"]);
}
