//! The OCI configuration of an instance: everything denied that is not listed here.

mod seccomp;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use model::{Assignment, Error, Result};
use serde_json::{Value, json};

use crate::cgroup::Cgroups;
use crate::dir::InstanceDir;
use crate::network::{Attachment, Netns};

/// Files that a program may have open, whatever the node itself may: the usual number, and what it may ask for. Some old
/// programs go through all numbers one by one.
const FILES_SOFT: u64 = 1024;
const FILES_HARD: u64 = 524_288;
const CPU_PERIOD_US: u64 = 100_000;
const CPU_QUOTA_MIN_US: u64 = 1_000;
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Each at most this much of a host's resolv.conf.
const NAMESERVERS_MAX: usize = 3;

/// What root inside a container may do; none of these reaches the host. A server for logins writes a record of each, and
/// ends where it cannot.
const CAPABILITIES: [&str; 12] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The configuration of `assignment`, but for the user, whom the shim finds in the image.
pub fn config(
    assignment: &Assignment,
    dir: &InstanceDir,
    cgroups: &Cgroups,
    net: &Attachment,
) -> Result<Value> {
    let spec = &assignment.spec;
    let args = command(assignment)?;
    let memory =
        i64::try_from(spec.memory.0).map_err(|_| Error::invalid("memory is too large").at("memory"))?;
    let files = FILES_HARD.min(sal::files_max());
    let mut limits = json!({ "limit": memory });
    if cgroups.swap_accounted {
        limits["swap"] = json!(memory);
    }
    let quota = (spec.cpu.milli() * CPU_PERIOD_US / 1000).max(CPU_QUOTA_MIN_US);
    let mut linux = json!({
        "cgroupsPath": cgroups.path(assignment.id.as_str()),
        "namespaces": namespaces(net),
        "maskedPaths": MASKED,
        "readonlyPaths": READONLY,
        "seccomp": seccomp::profile(),
        "resources": {
            "devices": [{ "allow": false, "access": "rwm" }],
            "memory": limits,
            "cpu": { "period": CPU_PERIOD_US, "quota": quota, "shares": (spec.cpu.milli() * 1024 / 1000).max(2) },
            "pids": { "limit": spec.pids },
        },
    });
    if net.netns != Netns::Host {
        // Ports below 1024 and ping need no capability inside a network of one's own.
        linux["sysctl"] = json!({ "net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647" });
    }
    Ok(json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "args": args,
            "env": environment(assignment),
            "cwd": spec.workdir.as_deref().or(assignment.image.workdir.as_deref()).filter(|d| d.starts_with('/')).unwrap_or("/"),
            "noNewPrivileges": true,
            "capabilities": { "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": FILES_SOFT.min(files), "hard": files }],
        },
        "root": { "path": "rootfs", "readonly": false },
        "hostname": assignment.name.as_str(),
        "mounts": mounts(dir.path()),
        "linux": linux,
    }))
}

fn command(assignment: &Assignment) -> Result<Vec<String>> {
    if !assignment.spec.command.is_empty() {
        return Ok(assignment.spec.command.clone());
    }
    let args: Vec<_> = assignment.image.entrypoint.iter().chain(&assignment.image.command).cloned().collect();
    if args.is_empty() {
        return Err(Error::invalid("the image has no command of its own and the instance names none")
            .at("command")
            .hint("give the command to run"));
    }
    Ok(args)
}

fn environment(assignment: &Assignment) -> Vec<String> {
    let mut env: BTreeMap<&str, &str> = BTreeMap::from([("PATH", PATH_DEFAULT)]);
    env.insert("HOSTNAME", assignment.name.as_str());
    env.extend(assignment.image.env.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    env.extend(assignment.spec.env.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    env.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

fn namespaces(net: &Attachment) -> Value {
    let mut spaces: Vec<Value> =
        ["pid", "ipc", "uts", "mount", "cgroup"].iter().map(|kind| json!({ "type": kind })).collect();
    match &net.netns {
        Netns::Path(path) => spaces.push(json!({ "type": "network", "path": path })),
        Netns::Private => spaces.push(json!({ "type": "network" })),
        Netns::Host => {}
    }
    Value::Array(spaces)
}

fn mounts(dir: &Path) -> Value {
    let mount = |destination: &str, kind: &str, options: &[&str]| json!({ "destination": destination, "type": kind, "source": kind, "options": options });
    let file = |name: &str| {
        json!({ "destination": format!("/etc/{name}"), "type": "bind", "source": dir.join("etc").join(name),
                "options": ["bind", "rw", "nosuid", "nodev", "noexec"] })
    };
    json!([
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]
        ),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/sys/fs/cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
        file("hosts"),
        file("hostname"),
        file("resolv.conf"),
    ])
}

/// Writes the files that tell an instance its own name and whom to ask for others.
pub fn etc_write(assignment: &Assignment, dir: &InstanceDir, net: &Attachment) -> std::io::Result<()> {
    let etc = dir.file("etc");
    std::fs::create_dir_all(&etc)?;
    let name = assignment.name.as_str();
    let own = net.address.map(|address| format!("{address}\t{name}\n")).unwrap_or_default();
    let hosts = format!("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{own}");
    std::fs::write(etc.join("hosts"), hosts)?;
    std::fs::write(etc.join("hostname"), format!("{name}\n"))?;
    let host = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    std::fs::write(etc.join("resolv.conf"), resolv(&net.nameservers, &host, net.netns == Netns::Host))
}

/// Servers on the host's own loopback cannot be reached from another network namespace.
fn resolv(given: &[IpAddr], host: &str, shared: bool) -> String {
    let listed =
        host.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok());
    let usable = listed.filter(|address| shared || !address.is_loopback());
    let servers: Vec<IpAddr> = match given {
        [] => usable.take(NAMESERVERS_MAX).collect(),
        some => some.iter().copied().take(NAMESERVERS_MAX).collect(),
    };
    servers.iter().map(|address| format!("nameserver {address}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_on_loopback_is_not_passed_on() {
        let host = "# x\nnameserver 127.0.0.53\nnameserver 10.0.0.2\n";
        assert_eq!(resolv(&[], host, false), "nameserver 10.0.0.2\n");
        assert_eq!(resolv(&[], host, true), "nameserver 127.0.0.53\nnameserver 10.0.0.2\n");
        assert_eq!(resolv(&[IpAddr::from([1, 1, 1, 1])], host, true), "nameserver 1.1.1.1\n");
    }
}
