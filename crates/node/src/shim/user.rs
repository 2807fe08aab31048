//! Who the process of a container is: names looked up in the image's own files.

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use super::Plan;
use super::rootfs::Root;
use crate::dir::InstanceDir;

/// The most of `/etc/passwd` and `/etc/group` that is read.
const TABLE_BYTES_MAX: u64 = 1 << 20;
const GROUPS_MAX: usize = 64;

#[derive(Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    home: String,
}

/// Fills in what only the mounted root file system can tell: user, groups, home and work directory.
pub fn config_complete(dir: &InstanceDir, plan: &Plan) -> Result<Value, String> {
    let root =
        Root::open(&dir.rootfs()).map_err(|e| format!("the root file system cannot be opened: {e}"))?;
    let table = |path: &str| -> Result<String, String> {
        let mut bytes = Vec::new();
        let file = root.file(path).map_err(|e| format!("{path} of the image cannot be read: {e}"))?;
        if let Some(file) = file {
            file.take(TABLE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| format!("{path}: {e}"))?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let user = resolve(plan.user.as_deref().unwrap_or("0"), &table("etc/passwd")?, &table("etc/group")?)?;
    let mut config = plan.config.clone();
    let process = config.get_mut("process").ok_or("the plan has no process")?;
    process["user"] = json!({ "uid": user.uid, "gid": user.gid, "additionalGids": user.groups });
    if let Some(env) = process.get_mut("env").and_then(Value::as_array_mut)
        && !env.iter().any(|pair| pair.as_str().is_some_and(|text| text.starts_with("HOME=")))
    {
        env.push(json!(format!("HOME={}", user.home)));
    }
    if let Some(cwd) = process.get("cwd").and_then(Value::as_str) {
        root.directory(Path::new(cwd))
            .map_err(|e| format!("the work directory '{cwd}' cannot be made: {e}"))?;
    }
    Ok(config)
}

fn resolve(wanted: &str, passwd: &str, group: &str) -> Result<User, String> {
    let (name, group_name) = match wanted.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (wanted, None),
    };
    let number: Option<u32> = name.parse().ok();
    let rows = || passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|row| row.len() >= 6);
    let row = rows()
        .find(|row| row[0] == name)
        .or_else(|| rows().find(|row| number.is_some() && row[2].parse().ok() == number));
    let uid = match (&row, number) {
        (Some(row), _) => {
            row[2].parse().map_err(|_| format!("/etc/passwd of the image is wrong for '{name}'"))?
        }
        (None, Some(number)) => number,
        (None, None) => {
            return Err(format!("the image has no user '{}' in /etc/passwd", name.escape_debug()));
        }
    };
    let own_gid = row.as_ref().and_then(|row| row[3].parse().ok()).unwrap_or(0);
    let gid = match group_name {
        None => own_gid,
        Some(text) => group_id(text, group)?,
    };
    let groups = match (&row, group_name) {
        (Some(row), None) => groups_of(row[0], group, gid),
        _ => Vec::new(),
    };
    let home = row.as_ref().map(|row| row[5]).filter(|home| home.starts_with('/')).unwrap_or("/");
    Ok(User { uid, gid, groups, home: home.to_owned() })
}

fn group_id(text: &str, table: &str) -> Result<u32, String> {
    let named = table.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(text)).then(|| parts.nth(1).and_then(|gid| gid.parse().ok())).flatten()
    });
    named
        .or_else(|| text.parse().ok())
        .ok_or_else(|| format!("the image has no group '{}' in /etc/group", text.escape_debug()))
}

fn groups_of(user: &str, table: &str, own: u32) -> Vec<u32> {
    let member = |line: &str| -> Option<u32> {
        let parts: Vec<_> = line.split(':').collect();
        let listed = parts.get(3)?.split(',').any(|name| name == user);
        let gid = parts[2].parse().ok()?;
        (listed && gid != own).then_some(gid)
    };
    table.lines().filter_map(member).take(GROUPS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:44:web:/srv:/bin/sh\nbad\n";
    const GROUP: &str = "root:x:0:\nweb:x:44:\nlogs:x:50:ada,web\n";

    #[test]
    fn users_are_found_by_name_and_number() {
        let check = |wanted: &str, uid: u32, gid: u32, groups: &[u32], home: &str| {
            let user = resolve(wanted, PASSWD, GROUP).unwrap();
            assert_eq!(user, User { uid, gid, groups: groups.to_vec(), home: home.into() }, "{wanted}");
        };
        check("0", 0, 0, &[], "/root");
        check("web", 33, 44, &[50], "/srv");
        check("33", 33, 44, &[50], "/srv");
        check("web:logs", 33, 50, &[], "/srv");
        check("7:9", 7, 9, &[], "/");
        check("1000", 1000, 0, &[], "/");
        assert!(resolve("nobody", PASSWD, GROUP).unwrap_err().contains("nobody"));
        assert!(resolve("web:nogroup", PASSWD, GROUP).unwrap_err().contains("nogroup"));
    }
}
