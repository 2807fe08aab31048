//! Starts that must be refused with one sentence, and options that choose the runtime.

use std::net::TcpListener;

use crate::support::guard::Remains;
use crate::support::*;

#[test]
fn a_second_cloud_on_the_same_data_is_refused() {
    let cloud = Cloud::start(&[]);
    cloud.create("first", &[], "sleep 100000");
    let said = cloud.up_refused(&[]);
    says(&said, &["another banyan (process ", "runs on", "--data"]);
    assert_eq!(cloud.get("first")["phase"], "running", "the second start harmed the first");
}

#[test]
fn a_second_cloud_on_the_same_bridge_is_refused_and_takes_nothing_away() {
    let cloud = Cloud::start(&[]);
    let id = cloud.create("first", &[], "sleep 100000")["id"].as_str().unwrap().to_owned();
    let life = cloud.life(&id);
    let other = cloud.home.join("other");
    let other = other.to_str().unwrap();
    let said = cloud.up_refused(&["--data", other]);
    let pid = cloud.pid().to_string();
    says(&said, &[&format!("the bridge {} belongs to another banyan", cloud.tag), &pid, "--bridge NAME"]);
    assert!(!std::path::Path::new(other).exists(), "a refused start leaves no folder");
    // Nor does clearing up after another cloud that had the name before.
    std::fs::create_dir_all(format!("{other}/node/engine")).unwrap();
    let down = ["down", "--data", other, "--bridge", &cloud.tag, "--cgroup-parent", &cloud.tag];
    let output = cloud.run(&down);
    assert!(!output.status.success());
    says(&text(&output.stderr), &["belongs to another banyan"]);

    // What goes on by itself keeps the name too.
    cloud.terminate();
    let said = cloud.up_refused(&["--data", other]);
    says(&said, &["still use the bridge", "banyan down --data"]);
    cloud.up(&[]);
    assert_eq!(cloud.life(&id), life, "it went on all along");
    assert_eq!(Remains::look(&cloud.data(), &cloud.tag).namespaces, [id]);
}

#[test]
fn a_port_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let cloud = Cloud::new();
    says(&cloud.up_refused(&["--listen", &address]), &[&address, "in use"]);
    assert!(!cloud.data().exists(), "a refused start leaves no folder");
    drop(taken);
    cloud.up(&["--listen", &address]);
    assert_eq!(cloud.endpoint(), format!("http://{address}"));
    cloud.create("after", &[], "sleep 100000");
}

#[test]
fn a_runtime_that_is_missing_or_broken_is_told() {
    let cloud = Cloud::new();
    says(&cloud.up_refused(&["--oci-runtime", "/nonexistent"]), &["/nonexistent"]);
    says(&cloud.up_refused(&["--oci-runtime", "/bin/false"]), &["/bin/false"]);
    let crun =
        if std::path::Path::new("/usr/bin/crun").exists() { "/usr/bin/crun" } else { "/usr/sbin/crun" };
    cloud.up(&["--oci-runtime", crun]);
    cloud.greets(&format!("OCI runtime  {crun}"));
    cloud.create("after", &[], "sleep 100000");
}

#[test]
fn the_other_runtime_does_as_well() {
    let runc =
        ["/usr/bin/runc", "/usr/sbin/runc"].into_iter().find(|path| std::path::Path::new(path).exists());
    let runc = runc.expect("runc is missing: apt-get install runc");
    let cloud = Cloud::start(&["--oci-runtime", runc]);
    cloud.greets(&format!("OCI runtime  {runc}"));
    cloud.create("on-runc", &["--memory", "32MiB"], "echo hello; sleep 100000");
    assert_eq!(cloud.logs("on-runc"), "hello\n");
    assert_eq!(cloud.exec("on-runc", "exit 6").status.code(), Some(6));
    cloud.good(&["instance", "restart", "on-runc"]);
}

#[test]
fn options_that_make_no_sense_are_told() {
    let cloud = Cloud::new();
    for (options, part) in [
        (&["--database", "mysql://x"][..], "mysql"),
        (&["--bridge", "a-name-that-is-too-long-for-a-device"], "bridge"),
        (&["--data", "/proc/nowhere"], "/proc/nowhere"),
    ] {
        says(&cloud.up_refused(options), &[part]);
    }
    let words = [
        ("--listen", "nowhere"),
        ("--label", "novalue"),
        ("--cpu-overcommit", "0"),
        ("--node-name", "No Good"),
    ];
    for (option, value) in words {
        let output = cloud.run(&["up", option, value]);
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        says(&text(&output.stderr), &[option, value]);
    }
    cloud.up(&[]);
}

#[test]
fn the_endpoint_and_the_credentials_are_kept_where_it_says() {
    use std::os::unix::fs::PermissionsExt;
    let cloud = Cloud::start(&[]);
    let first = cloud.admin();
    let path = cloud.data().join("admin.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!cloud.endpoint().ends_with(":0"), "{first:#}");
    cloud.greets(&cloud.endpoint());
    cloud.greets(path.to_str().unwrap());
    assert_eq!(cloud.good(&["context", "current"]), "local\n");
    let password = first["password"].as_str().unwrap();
    let login = ["--context", "by-hand", "login", &cloud.endpoint(), "--user", "admin", "--password-stdin"];
    let output = cloud.fed(&login, password.as_bytes());
    assert!(output.status.success(), "{}", text(&output.stderr));
    cloud.terminate();
    cloud.up(&[]);
    let second = cloud.admin();
    assert_eq!((&first["token"], &first["password"]), (&second["token"], &second["password"]));
    assert_eq!(cloud.good(&["context", "current"]), "local\n");
    cloud.good(&["instance", "list"]);
    for needle in ["ERROR", "panicked"] {
        assert!(!cloud.log().contains(needle), "a quiet life has {needle} in its log: {}", cloud.log());
    }
}
