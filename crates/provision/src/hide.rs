//! Keeps what lets us in out of what is told: a script may print its environment, a cloud its request.

use model::Report;
use serde_json::Value;

use crate::task::{Fault, Task};

/// What stands for a secret.
const HIDDEN: &str = "[hidden]";
/// Shorter ones would be found everywhere.
const LEAST: usize = 6;
/// The armour of a key and its first line, which are the same in all of them, are no secrets; its other lines are.
const KEY_LINE_LEAST: usize = 40;

/// The secrets of one task.
pub struct Secrets(Vec<String>);

impl Secrets {
    pub fn of(task: &Task) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let under = |field: &str| task.config.get(field).and_then(Value::as_object);
        let key = task.config.get("cluster-key").and_then(Value::as_str).unwrap_or_default();
        let key = key.lines().filter(|line| line.len() >= KEY_LINE_LEAST && !line.starts_with('-')).skip(1);
        let mut all: Vec<String> = key.map(str::to_owned).collect();
        let auth = under("ssh-auth").into_iter().flatten().filter(|(name, _)| *name != "user");
        all.extend(auth.filter_map(|(_, value)| text(value)));
        let provider = under("provider");
        let names = provider.and_then(|provider| provider.get("sensitive")).and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let fields = provider.and_then(|provider| provider.get("provisioner"));
        for value in names.filter_map(|name| fields.and_then(|fields| fields.get(name))) {
            texts(value, &mut all);
        }
        all.retain(|secret| secret.len() >= LEAST);
        // What contains another one goes first.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        Self(all)
    }

    fn hide(&self, texts: [&mut String; 3]) {
        for text in texts {
            for secret in self.0.iter().map(String::as_str) {
                if text.contains(secret) {
                    *text = text.replace(secret, HIDDEN);
                }
            }
        }
    }

    pub fn fault(&self, mut fault: Fault) -> Fault {
        self.hide([&mut fault.message, &mut fault.stdout, &mut fault.stderr]);
        fault
    }

    /// Results stay as they are: later tasks need them, and what lets us in is sealed where it is kept.
    pub fn report(&self, mut report: Report) -> Report {
        self.hide([&mut report.message, &mut report.stdout, &mut report.stderr]);
        report
    }
}

/// Every text in a value, at any depth.
fn texts(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Number(number) => into.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(members) => members.values().for_each(|member| texts(member, into)),
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        let line = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMw";
        let key =
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{line}\n{}\n-----END-----\n", "kEy7".repeat(12));
        serde_json::from_value(serde_json::json!({
            "taskId": "c-1-7", "jobId": "c-1", "clusterId": "c", "taskName": "INSTALL", "nodeId": "n",
            "config": {
                "cluster-key": key, "ssh-auth": {"user": "administrator", "password": "letmein-now"},
                "provider": {"providertype": "x", "sensitive": ["api_password", "absent", "pin", "auth"],
                    "provisioner": {"api_password": "hunter2-hunter2", "region": "north-7", "pin": "12",
                        "auth": {"all": [{"token": "inner-token"}]}}},
            }
        }))
        .unwrap()
    }

    #[test]
    fn what_lets_us_in_is_not_told() {
        let secrets = Secrets::of(&task());
        let printed = format!(
            "administrator north-7 12 hunter2-hunter2, inner-token letmein-now\n{}\n",
            "kEy7".repeat(12)
        );
        let hidden = "administrator north-7 12 [hidden], [hidden] [hidden]\n[hidden]\n";
        let fault = Fault { stderr: printed.clone(), ..Fault::failed(printed.clone()) };
        let fault = secrets.fault(fault);
        assert_eq!((fault.message.as_str(), fault.stderr.as_str()), (hidden, hidden));
        let report = secrets.report(Report { stdout: printed, ..Report::default() });
        assert_eq!(report.stdout, hidden);
    }
}
