//! Health checks of each kind: healthy, then not, then started again and healthy once more.

use crate::support::*;

fn check(name: &str, probe: &[&str], script: &str, harm: &str) {
    let cloud = Cloud::shared();
    let options = [probe, &["--health-interval", "150ms", "--health-grace", "1s"]].concat();
    let made = cloud.create(name, &options, script);
    assert_eq!(made["health"], "healthy", "it was not waited for: {made:#}");
    let first = cloud.life(made["id"].as_str().unwrap());
    cloud.exec(name, harm);
    let after =
        cloud.wait(name, "started again", |i| i["restarts"].as_u64() >= Some(1) && i["health"] == "healthy");
    assert_eq!(after["phase"], "running");
    assert_ne!(first, cloud.life(made["id"].as_str().unwrap()));
    let events = cloud.events(name);
    assert!(whats(&events).contains(&"instance.unhealthy"), "{:?}", whats(&events));
    cloud.good(&["instance", "delete", name]);
}

#[test]
fn a_command_says_how_it_is() {
    check(
        "by-command",
        &["--health-cmd", "test -f /well"],
        "touch /well; while true; do sleep 1; done",
        "rm /well",
    );
}

#[test]
fn a_port_says_how_it_is() {
    let script = "httpd -p 9000 -h /; while true; do sleep 1; done";
    check("by-port", &["--health-tcp", "9000"], script, "killall httpd");
}

#[test]
fn a_page_says_how_it_is() {
    let script = "mkdir -p /www; echo ok > /www/well; exec httpd -f -p 80 -h /www";
    check("by-page", &["--health-http", "80/well"], script, "rm /www/well");
}
