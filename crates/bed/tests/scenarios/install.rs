//! The three machines of docs/install.md, set up by its own commands.

use std::sync::Arc;
use std::time::Duration;

use bed::{Bed, Host};

const TEXT: &str = include_str!("../../../../docs/install.md");

/// The commands below a heading, block by block.
fn commands(heading: &str) -> Vec<String> {
    let (_, rest) =
        TEXT.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("'{heading}' is there"));
    let section = rest.split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Starts what a unit says, as far as that can be done without systemd.
const SYSTEMCTL: &str = r#"#!/bin/bash
set -e
[ "$1" = daemon-reload ] && exit 0
unit=${!#}
pid=$HOME/$unit.pid
case "$1" in
enable)
  file=/etc/systemd/system/$unit.service
  folder=$HOME/credentials-$unit
  mkdir -p $folder
  for given in $(sed -n 's/^LoadCredential=//p' $file); do cp ${given#*:} $folder/${given%%:*}; done
  state=$(sed -n 's/^StateDirectory=//p' $file)
  [ -z "$state" ] || mkdir -p -m 700 /var/lib/$state
  line=$(sed -n 's/^ExecStart=//p' $file | sed "s|%d|$folder|g")
  setsid bash -c "while :; do $line; sleep 0.5; done" </dev/null >>$HOME/$unit.log 2>&1 &
  echo $! >$pid ;;
disable) kill -- -$(cat $pid) ;;
esac
"#;

/// A host with the address and the names of the page, on which files may be put where the page puts them.
fn machine(bed: &mut Bed, name: &str, address: &str) -> Arc<Host> {
    let host = bed.bare(name).unwrap();
    let aside = host.data().with_file_name("aside");
    let binary = bed.binary().display().to_string();
    let contrib = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");
    let over = |folder: &str, at: &str| {
        format!(
            "mkdir -p {a}/{at}/up {a}/{at}/work; mount -t overlay overlay -o lowerdir={folder},upperdir={a}/{at}/up,workdir={a}/{at}/work {folder}; ",
            a = aside.display()
        )
    };
    let hosts = "10.0.0.1 root.example\n10.0.1.1 east.example\n10.0.1.11 n1.east.example\n";
    host.run(&format!(
        "set -e; ip address add {address}/8 dev eth0; {etc}{lib}mount -t tmpfs tmpfs /usr/local/bin; mount -t tmpfs tmpfs /root; \
         mkdir -p /var/lib/banyan {aside}/banyan; mount --bind {aside}/banyan /var/lib/banyan; \
         printf '{hosts}' >>/etc/hosts; mkdir -p {aside}/from; cp -r {contrib} {aside}/from/contrib; \
         printf '#!/bin/sh\\nexec {binary} \"$@\"\\n' >{aside}/from/banyan; \
         printf '#!/bin/sh\\nexit 0\\n' >/usr/local/bin/apt-get; chmod 755 /usr/local/bin/apt-get; \
         export HOME=/root PATH=/usr/local/bin:$PATH; set +e",
        etc = over("/etc", "etc"),
        lib = over("/var/lib", "lib"),
        hosts = hosts.replace('\n', "\\n"),
        aside = aside.display(),
    ))
    .unwrap();
    let script = aside.join("systemctl");
    std::fs::write(host.seen(&script), SYSTEMCTL).unwrap();
    host.run(&format!(
        "install -m 755 {} /usr/local/bin/systemctl; cd {}/from",
        script.display(),
        aside.display()
    ))
    .unwrap();
    host
}

fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + crate::WAIT;
    while !look() {
        assert!(std::time::Instant::now() < deadline, "it did not come to this: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_page_on_installing_is_right() {
    let mut bed = Bed::new().unwrap();
    let root = machine(&mut bed, "root", "10.0.0.1");
    let zone = machine(&mut bed, "zone", "10.0.1.1");
    let node = machine(&mut bed, "node", "10.0.1.11");
    let every = commands("On every machine").concat();
    for (host, role) in [(&root, "root"), (&zone, "zone"), (&node, "node")] {
        host.run(&every.replace("banyan-root", &format!("banyan-{role}"))).unwrap();
    }

    let [begin, operate] = commands("1. Root").try_into().unwrap();
    root.run(&begin).unwrap();
    until("root keeps the first operator's password", || {
        root.run("test -s /var/lib/banyan/root/admin.json").is_ok()
    });
    until("root answers", || root.run("curl -fs http://127.0.0.1:7700/v1/health").is_ok());
    let (login, enroll) = operate.split_once('\n').unwrap();
    let password = r#"sed -n 's/.*"password": "\(.*\)".*/\1/p' /var/lib/banyan/root/admin.json"#;
    root.run(&format!("{password} | {login} --password-stdin")).unwrap();
    let token = |line: &str| root.run(&format!("{} 2>/dev/null", line.trim())).unwrap().trim().to_owned();

    let [begin] = commands("2. The zone").try_into().unwrap();
    zone.run(&begin.replace("banyan1.…", &token(enroll))).unwrap();
    until("the zone is there", || root.run("banyan zone list").is_ok_and(|said| said.contains("connected")));

    let enroll = "banyan enroll node --zone east";
    assert!(TEXT.contains(&format!("`{enroll}`")));
    let [begin] = commands("3. The node").try_into().unwrap();
    let (begin, list) = begin.trim_end().rsplit_once('\n').unwrap();
    // Where many hosts share one kernel, each needs a cgroup of its own.
    let begin = begin.replace("\nEND", &format!("\ncgroup_parent = \"{}\"\nEND", node.cgroup()));
    node.run(&begin.replace("banyan1.…", &token(enroll))).unwrap();
    let list = list.split('#').next().unwrap();
    until("the node is there", || {
        root.run(list).is_ok_and(|said| said.contains("n1") && said.contains("east"))
    });
    root.run("banyan instance create web --image busybox -- sleep 100000").unwrap();

    let [remove, clear] = commands("Removal").try_into().unwrap();
    root.run("banyan instance delete web").unwrap();
    root.run(&remove).unwrap();
    assert!(!root.run("banyan node list").unwrap().contains("n1"));
    node.run(&clear).unwrap();
    assert!(node.run("ip link show banyan0").is_err() && node.run("ls /var/lib/banyan/node").is_err());
}
