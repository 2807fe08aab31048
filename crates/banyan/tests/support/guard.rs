//! Removes everything of one cloud from this machine: when the test says so, and also when the test
//! panics or is killed, because the guard is a process of its own that waits for a pipe to close.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

// `$1` folder of the cloud, `$2` its bridge, table and cgroup. Processes are ended by pid: first the
// cloud and its shims, which have the folder in their command line, then what is in the cgroups.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
cat >/dev/null
dir=$1; tag=$2
for file in $(grep -lsaF "$dir/" /proc/[0-9]*/cmdline); do
  pid=${file#/proc/}; pid=${pid%/cmdline}
  [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
done
for round in 1 2 3 4 5 6 7 8 9 10; do
  groups=$(ls -d /sys/fs/cgroup/"$tag" /sys/fs/cgroup/*/"$tag" 2>/dev/null)
  [ -n "$groups" ] || break
  for group in $(find $groups -depth -type d 2>/dev/null); do
    for pid in $(cat "$group/cgroup.procs" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
    rmdir "$group" 2>/dev/null
  done
  sleep 0.1
done
for name in $(ls /run/netns 2>/dev/null | grep "^$tag-"); do ip netns delete "$name"; done
ip link delete "$tag" 2>/dev/null
for device in $(ls /sys/class/net | grep "^${tag}v"); do ip link delete "$device"; done
for family in inet bridge; do nft delete table $family "$tag" 2>/dev/null; done
for point in $(awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac); do
  umount -l "$point"
done
rm -f /run/banyan/bridge-"$tag"-* /run/banyan/cgroup-"$tag"-*
rm -rf "$dir"
"#;

pub struct Guard(Child);

impl Guard {
    pub fn new(dir: &Path, tag: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "sh"]).arg(dir).arg(tag).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What the kernel and the disk hold of a cloud's instances: by the name of what it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Remains {
    pub shims: Vec<String>,
    pub cgroups: Vec<String>,
    pub namespaces: Vec<String>,
    pub folders: Vec<String>,
    pub mounts: Vec<String>,
}

impl Remains {
    pub fn look(data: &Path, tag: &str) -> Self {
        let mut remains = Self { folders: names(&data.join("node/engine/instances")), ..Self::default() };
        remains.namespaces = names(Path::new("/run/netns"))
            .into_iter()
            .filter_map(|name| name.strip_prefix(&format!("{tag}-")).map(str::to_owned))
            .collect();
        let hierarchies = names(Path::new("/sys/fs/cgroup")).into_iter();
        for root in hierarchies
            .map(|name| format!("/sys/fs/cgroup/{name}/{tag}"))
            .chain([format!("/sys/fs/cgroup/{tag}")])
        {
            remains.cgroups.extend(folders(Path::new(&root)));
        }
        let needle = format!("{}/node/engine/instances/", data.display());
        for pid in names(Path::new("/proc")).into_iter().filter(|name| name.parse::<u32>().is_ok()) {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            if let Some((_, tail)) = command.split_once(&needle) {
                remains.shims.push(tail.split(['\0', '/']).next().unwrap_or_default().to_owned());
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let inside = format!("{}/node/", data.display());
        remains.mounts = mounts.lines().filter(|line| line.contains(&inside)).map(str::to_owned).collect();
        for list in [&mut remains.shims, &mut remains.cgroups, &mut remains.namespaces, &mut remains.folders]
        {
            list.sort();
            list.dedup();
        }
        remains
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn folders(folder: &Path) -> Vec<String> {
    names(folder).into_iter().filter(|name| folder.join(name).is_dir()).collect()
}
