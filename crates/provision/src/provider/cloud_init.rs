//! What a machine of another cloud does first: it lets the cluster's key in.

use crate::task::{Fault, Task};

/// For cloud-init. The user is made if the image does not have it, and may become root.
pub(super) fn user_data(task: &Task) -> Result<String, Fault> {
    let key = task.cluster_key()?.public_text();
    let (key, user) = (key.trim(), task.ssh_user());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(is_plain) {
        return Err(Fault::invalid(format!("'{}' is no name of a user: see 'sshuser'", model::shown(user))));
    }
    let more = match user {
        "root" => "disable_root: false\n".to_owned(),
        user => format!(
            "users:\n  - default\n  - name: \"{user}\"\n    sudo: ALL=(ALL) NOPASSWD:ALL\n    shell: /bin/sh\n    \
             ssh_authorized_keys:\n      - {key}\n"
        ),
    };
    Ok(format!("#cloud-config\n{more}ssh_authorized_keys:\n  - {key}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_key_is_let_in_for_the_user() {
        let key = crate::ssh::Identity::from_seed(&[5; 32]);
        let data = |user: &str| {
            let task = json!({
                "taskId": "t", "jobId": "j", "clusterId": "c", "taskName": "CREATE", "nodeId": "n",
                "config": {"cluster-key": key.private_text().as_str(), "sshuser": user}
            });
            user_data(&serde_json::from_value(task).unwrap())
        };
        let root = data("root").unwrap();
        assert!(
            root.starts_with("#cloud-config\ndisable_root: false\nssh_authorized_keys:\n  - ssh-ed25519 ")
        );
        let other = data("debian").unwrap();
        assert_eq!(other.matches(key.public_text().trim()).count(), 2);
        assert!(other.contains("  - name: \"debian\"\n") && !other.contains("PRIVATE"), "{other}");
        assert_eq!(data("a\nb: c").unwrap_err().status, Fault::INVALID);
    }
}
