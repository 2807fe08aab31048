//! Programs that configure a machine from within: Puppet itself, and programs that stand in
//! for it, for Chef and for Docker, and write down how they are called.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use provision::automator::{Automator, Chef, Docker, Puppet};
use serde_json::json;

use crate::world::World;

/// A program of this name on the machine; it writes its arguments to `calls`.
fn stand_in<A: Automator>(world: &World<A>, name: &str, more: &str) {
    let path = world.sshd.folder().join("bin").join(name);
    let calls = world.sshd.folder().join("calls");
    std::fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{more}\n", calls.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What was called since it was looked at last.
fn calls<A: Automator>(world: &World<A>) -> Vec<String> {
    let path = world.sshd.folder().join("calls");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn puppet_itself_applies_a_manifest_with_its_module_and_facts() {
    let there = ["/usr/bin/puppet", "/opt/puppetlabs/bin/puppet"].iter().any(|path| Path::new(path).exists());
    assert!(there, "Puppet is missing: apt-get install puppet-agent");
    let world = World::new(Puppet);
    let page = world.sshd.folder().join("page");
    let class = "class site($path) {\n  $port = $facts['banyan']['config']['web']['port'] + 1\n  \
        file { $path: content => \"${facts['banyan']['action']} ${port} ${facts['banyan']['settings']['web.port']}\\n\" }\n}\n";
    world.archive("modules/site.tgz", &[("site/manifests/init.pp", class)]);
    let code = format!("class {{ 'site': path => '{}' }}", page.display());
    let report = world.act("CONFIGURE", json!({"code": code, "modules": "site.tgz"})).await.unwrap();
    assert!(report.stdout.contains("Applied catalog"), "{report:?}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "configure 81 80\n");
    let failed = world.act("CONFIGURE", json!({"code": "exec { '/bin/false': }"})).await.unwrap_err();
    assert!(
        failed.message.starts_with("configure of 'web' failed on 127.0.0.1: it ended with code 4"),
        "{failed}"
    );
    let wrong = world.act("CONFIGURE", json!({"code": "this is {"})).await.unwrap_err();
    assert!(wrong.stderr.contains("Could not parse"), "{wrong:?}");
}

#[tokio::test]
async fn a_stand_in_for_puppet_finds_its_files() {
    let world = World::new(Puppet);
    stand_in(&world, "puppet", "cat manifest.pp facts/banyan.json; ls modules; exit ${CODE:-2}");
    std::fs::write(world.staged("manifests/site.pp"), "notify { 'hello': }\n").unwrap();
    world.archive("modules/a.tgz", &[("a/manifests/init.pp", "class a {}\n")]);
    let report = world.act("INSTALL", json!({"manifest": "site.pp", "modules": ["a.tgz"]})).await.unwrap();
    let calls = calls(&world);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].starts_with("puppet apply --detailed-exitcodes ") && calls[0].ends_with(" manifest.pp"));
    assert!(report.stdout.contains("hello") && report.stdout.contains(r#""web.port":"80""#), "{report:?}");
    assert!(report.stdout.ends_with("a\n") && !report.stdout.contains("secret"), "{report:?}");
    let missing = world.act("INSTALL", json!({})).await.unwrap_err();
    assert_eq!(missing.message, "a puppet action needs 'manifest' or 'code'");
}

#[tokio::test]
async fn a_stand_in_for_chef_solo_finds_its_cookbooks_and_attributes() {
    let world = World::new(Chef);
    stand_in(&world, "chef-solo", "cat solo.rb attributes.json; ls cookbooks roles");
    world.archive("cookbooks/web.tgz", &[("web/recipes/default.rb", "log 'x'\n")]);
    std::fs::write(world.staged("roles/base.json"), "{}").unwrap();
    let fields =
        json!({"run_list": "recipe[web], role[base]", "json_attributes": "{\"web\": {\"root\": \"/srv\"}}"});
    let report = world.act("INSTALL", fields).await.unwrap();
    assert_eq!(calls(&world), ["chef-solo --no-color -c solo.rb -j attributes.json"]);
    let line = report.stdout.lines().find(|line| line.starts_with('{')).unwrap();
    // The list of files follows the attributes on the same line.
    let mut attributes = serde_json::Deserializer::from_str(line).into_iter::<serde_json::Value>();
    let attributes = attributes.next().unwrap().unwrap();
    assert_eq!(attributes["run_list"], json!(["recipe[web]", "role[base]"]));
    assert_eq!((&attributes["web"]["port"], &attributes["web"]["root"]), (&json!(80), &json!("/srv")));
    assert_eq!(attributes["coopr"]["cluster"]["web"]["port"], 80);
    assert!(report.stdout.contains("web\n") && report.stdout.contains("base.json"), "{}", report.stdout);
    let wrong = world.act("INSTALL", json!({"run_list": "a", "json_attributes": "[1]"})).await.unwrap_err();
    assert!(wrong.message.starts_with("'json_attributes' is no JSON object") && !wrong.is_passing);
}

#[tokio::test]
async fn a_machine_without_chef_says_so_at_once() {
    if Path::new("/usr/bin/chef-solo").exists() {
        eprintln!("skipped: this machine has Chef");
        return;
    }
    let refused = World::new(Chef).act("INSTALL", json!({"run_list": "a"})).await.unwrap_err();
    assert!(refused.message.contains("use an image with Chef or Cinc") && !refused.is_passing, "{refused}");
}

#[tokio::test]
async fn a_stand_in_for_docker_is_called_for_every_verb() {
    let world = World::new(Docker);
    // It knows no container until one is made.
    let made = world.sshd.folder().join("made").display().to_string();
    stand_in(
        &world,
        "docker",
        &format!("case \"$1\" in create) touch {made};; inspect) [ -f {made} ];; rm) rm -f {made};; esac"),
    );
    let mut seen = Vec::new();
    let fields = json!({"image_name": "nginx:1", "publish_ports": "80:80", "command": "serve 'a b'"});
    for (verb, fields) in [
        ("INSTALL", fields.clone()),
        ("START", fields),
        ("STOP", json!({})),
        ("REMOVE", json!({})),
        ("REMOVE", json!({})),
    ] {
        world.act(verb, fields).await.unwrap();
        seen.extend(calls(&world).into_iter().filter(|call| !call.starts_with("docker in")));
    }
    assert_eq!(seen[0], "docker pull nginx:1");
    assert!(seen[1].starts_with("docker rm -f web"), "{seen:?}");
    assert!(seen[2].starts_with("docker create --name web --label banyan.wish="), "{seen:?}");
    assert!(seen[2].ends_with("--publish 80:80 --restart unless-stopped nginx:1 serve a b"), "{seen:?}");
    assert_eq!(seen[3..], ["docker start web", "docker stop web", "docker rm -f web"]);
    let refused = world.act("INSTALL", json!({})).await.unwrap_err();
    assert!(refused.message.contains("needs 'image_name'") && !refused.is_passing);
}

#[tokio::test]
async fn a_stand_in_for_docker_is_called_for_a_project() {
    let world = World::new(Docker);
    stand_in(&world, "docker", "case \"$*\" in *' up '*) cat \"$7\" \"$9\";; esac");
    std::fs::write(world.staged("compose/site.yaml"), "services: {}\n").unwrap();
    let name = format!("banyan-test-{:08x}", rand::random::<u32>());
    let report = world.act("START", json!({"compose": "site.yaml", "name": name})).await.unwrap();
    assert!(report.stdout.contains("WEB_PORT='80'") && report.stdout.contains("services: {}"), "{report:?}");
    let at = format!("/var/lib/banyan/compose/{name}");
    let call = format!(
        "docker compose -p {name} --project-directory {at} --env-file {at}/variables -f {at}/compose.yaml"
    );
    let acts = || calls(&world).into_iter().filter(|call| call != "docker info").collect::<Vec<_>>();
    assert_eq!(acts(), [format!("{call} up -d --remove-orphans")]);
    // The file is there from before.
    world.act("REMOVE", json!({"name": name})).await.unwrap();
    assert_eq!(acts(), [format!("{call} down")]);
    assert!(!Path::new(&at).exists());
}

/// Containers of this test only, of an image that is made here: nothing is fetched.
fn podman(world: &World<Docker>) -> String {
    let at = world.sshd.folder().join("podman");
    let fs = at.join("fs/bin");
    std::fs::create_dir_all(&fs).unwrap();
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("apt-get install busybox-static");
    std::fs::copy(busybox, fs.join("sleep")).unwrap();
    let at = at.display();
    let words = format!(
        "--runtime runc --root {at}/store --runroot {at}/run --storage-driver vfs --cgroup-manager cgroupfs"
    );
    stand_in(world, "docker", &format!("exec podman {words} \"$@\""));
    let import =
        format!("tar -C {at}/fs -cf {at}/fs.tar . && podman {words} import -q {at}/fs.tar localhost/box:1");
    let made = std::process::Command::new("sh").args(["-c", &import]).output().unwrap();
    assert!(made.status.success(), "podman and runc: {}", String::from_utf8_lossy(&made.stderr));
    words
}

#[tokio::test]
async fn podman_under_the_name_of_docker_runs_a_container() {
    let world = World::new(Docker);
    let words = podman(&world);
    let look = |line: &str| {
        let output =
            std::process::Command::new("sh").args(["-c", &format!("podman {words} {line}")]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).trim().to_owned()
    };
    let id = || look("ps -q --no-trunc --filter name=web");
    let cgroup = format!("banyan-test-{:08x}", rand::random::<u32>());
    let fields = |seconds: u32| {
        let options = "--network none --stop-timeout 0 --ulimit nofile=1024:1024 --ulimit nproc=1024:1024";
        let options = format!("{options} --cgroup-parent /{cgroup}");
        json!({"image_name": "localhost/box:1", "options": options, "command": format!("/bin/sleep {seconds}")})
    };
    world.act("START", fields(1000)).await.unwrap();
    let first = id();
    assert!(!first.is_empty());
    // It stays as long as its fields do, and is made anew with others.
    world.act("START", fields(1000)).await.unwrap();
    assert_eq!(id(), first);
    world.act("START", fields(2000)).await.unwrap();
    assert!(!id().is_empty() && id() != first);
    world.act("STOP", json!({})).await.unwrap();
    assert_eq!(id(), "");
    for _ in 0..2 {
        world.act("REMOVE", json!({})).await.unwrap();
    }
    assert_eq!(look("ps -a -q"), "");
    let tidy = format!("find /sys/fs/cgroup -depth -type d -path '*/{cgroup}*' -exec rmdir {{}} +");
    assert!(std::process::Command::new("sh").args(["-c", &tidy]).status().unwrap().success());
}
