//! Files that describe what should be: applied, applied again, compared, and wrong.

use crate::support::*;

fn write(cloud: &Cloud, name: &str, content: &str) -> String {
    let path = cloud.home.join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

const TWO: &str = "\
kind: Instance
metadata: { name: desk }
spec: { image: busybox, memory: 16MiB, command: [sleep, \"100000\"] }
---
kind: Tenant
metadata: { name: guild }
spec: { quota: { instances: 3 } }
---
kind: Instance
metadata: { name: lamp, tenant: guild }
spec: { image: busybox, memory: 16MiB, command: [sleep, \"100000\"] }
";

#[test]
fn files_are_made_true_once() {
    let cloud = Cloud::shared();
    let file = write(&cloud, "two.yaml", TWO);
    let plan = ["apply", "--dry-run", "--detailed-exitcode", "-f", &file];
    let output = cloud.run(&plan);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    says(
        &text(&output.stdout),
        &["+ Instance desk: create", "+ Tenant guild: create", "+ Instance lamp: create"],
    );
    assert_eq!(
        cloud.good(&["instance", "list", "--name", "desk", "-o", "name"]),
        "",
        "a dry run made something"
    );
    cloud.good(&["apply", "-f", &file]);
    let desk = cloud.get("desk");
    assert_eq!(desk["phase"], "running", "it was not waited for");
    assert_eq!(cloud.json(&["--tenant", "guild", "instance", "get", "lamp"])["phase"], "running");
    says(&cloud.good(&["apply", "-f", &file]), &["Instance desk: unchanged", "Instance lamp: unchanged"]);
    assert_eq!(cloud.run(&plan).status.code(), Some(0));
    assert_eq!(cloud.get("desk")["version"], desk["version"], "an unchanged file changed something");
    let other = write(&cloud, "other.yaml", &TWO.replacen("16MiB", "24MiB", 1));
    let output = cloud.run(&["apply", "--dry-run", "--detailed-exitcode", "-f", &other]);
    assert_eq!(output.status.code(), Some(2));
    says(&text(&output.stdout), &["Instance desk: replace", "memory", "16MiB", "24MiB"]);
    let output = cloud.run(&["apply", "-f", &other]);
    assert_eq!(output.status.code(), Some(1));
    says(&text(&output.stderr), &["cannot be changed in place; nothing was changed", "--replace"]);
    cloud.good(&["apply", "--replace", "-f", &other]);
    let after = cloud.get("desk");
    assert_eq!((after["spec"]["memory"].as_str(), after["phase"].as_str()), (Some("24MiB"), Some("running")));
    cloud.good(&["instance", "delete", "desk"]);
    cloud.good(&["--tenant", "guild", "instance", "delete", "lamp"]);
}

#[test]
fn a_wrong_file_is_told_with_its_place_and_does_nothing() {
    let cloud = Cloud::shared();
    for (name, content, parts) in [
        ("tabs", "kind: Instance\n\tmetadata: x\n", &["tabs.yaml"][..]),
        ("kind", "kind: Dream\nmetadata: {name: w}\n", &["Dream"]),
        ("field", "kind: Instance\nmetadata: {name: w}\nspec: {image: busybox, memroy: 1GiB}\n", &["memroy"]),
        ("amount", "kind: Instance\nmetadata: {name: w}\nspec: {image: busybox, memory: lots}\n", &["lots"]),
        ("name", "kind: Instance\nmetadata: {name: No Good}\nspec: {image: busybox}\n", &["No Good"]),
        ("image", "kind: Instance\nmetadata: {name: w}\nspec: {image: no-such-image}\n", &["no-such-image"]),
    ] {
        let good = "kind: Instance\nmetadata: {name: w-good}\nspec: {image: busybox}\n---\n";
        let file = write(&cloud, &format!("{name}.yaml"), &format!("{good}{content}"));
        let output = cloud.run(&["apply", "-f", &file]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let said = text(&output.stderr);
        says(&said, parts);
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{name}: {said}");
        let dry = cloud.run(&["apply", "-f", &file, "--dry-run"]);
        assert_eq!(dry.status.code(), Some(1), "{name}: a dry run says so too");
        says(&text(&dry.stderr), parts);
        let made = cloud.good(&["instance", "list", "--name", "w*", "-o", "name"]);
        assert_eq!(made, "", "{name} did half");
    }
}
