//! Keeps what lets us in out of what is told: a script may print its environment, a cloud its request.

use model::Report;
use serde_json::Value;

use crate::task::{Fault, Task};

/// What stands for a secret.
const HIDDEN: &str = "[hidden]";
/// Shorter ones would be found everywhere.
const LEAST: usize = 6;
/// Shorter lines of a secret of many lines, such as `}`, may be anybody's.
const LINE_LEAST: usize = 12;
/// How the keys of OpenSSH begin, and how long their first line is, which is the same in all of them.
const OPENSSH: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const OPENSSH_FIRST_MAX: usize = 70;

/// The secrets of one task.
pub struct Secrets(Vec<String>);

impl Secrets {
    pub fn of(task: &Task) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let under = |field: &str| task.config.get(field).and_then(Value::as_object);
        let mut all: Vec<String> = task.config.get("cluster-key").and_then(text).into_iter().collect();
        let auth = under("ssh-auth").into_iter().flatten().filter(|(name, _)| *name != "user");
        all.extend(auth.filter_map(|(_, value)| text(value)));
        let provider = under("provider");
        let names = provider.and_then(|provider| provider.get("sensitive")).and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        let fields = provider.and_then(|provider| provider.get("provisioner"));
        for value in names.filter_map(|name| fields.and_then(|fields| fields.get(name))) {
            texts(value, &mut all);
        }
        let mut all: Vec<String> = all.iter().flat_map(|secret| shown_as(secret)).collect();
        all.retain(|secret| secret.len() >= LEAST);
        // What contains another one goes first.
        all.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
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

/// A secret in all the ways in which it may be printed: as it is, by lines, and as JSON and a shell write it.
fn shown_as(secret: &str) -> Vec<String> {
    let secret = secret.trim_end_matches(['\r', '\n']);
    let lines: Vec<&str> = secret.lines().map(str::trim).collect();
    let is_key = secret.starts_with("-----BEGIN ");
    // The armour of a key is no secret, nor is the first line of one of OpenSSH. Other keys begin with what is their own.
    let first = lines.iter().position(|line| !line.is_empty() && !line.starts_with('-'));
    let is_common = |at: usize, line: &str| {
        secret.starts_with(OPENSSH) && Some(at) == first && line.len() <= OPENSSH_FIRST_MAX
    };
    let is_own = |at: usize, line: &str| {
        line.len() >= LINE_LEAST && !(is_key && line.starts_with('-')) && !is_common(at, line)
    };
    let many = if lines.len() > 1 { &lines[..] } else { &[] };
    let own = many.iter().enumerate().filter(|(at, line)| is_own(*at, line)).map(|(_, line)| *line);
    let mut all = Vec::new();
    for text in std::iter::once(secret).chain(own) {
        all.push(text.to_owned());
        let json = Value::from(text).to_string();
        let json = &json[1..json.len() - 1];
        // Some write `/` and what is not ASCII otherwise, too.
        for other in [json.to_owned(), json.replace('/', "\\/"), ascii(json), text.replace('\'', r"'\''")] {
            if other != text {
                all.push(other);
            }
        }
    }
    all
}

/// JSON in ASCII alone.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter.is_ascii() {
            true => out.push(letter),
            false => letter
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
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

    #[test]
    fn only_what_all_keys_of_openssh_begin_with_is_told() {
        let common = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW";
        let whole = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQyNTUxOQAAACA";
        let small = "MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49";
        for (word, first, is_told) in [
            ("OPENSSH PRIVATE KEY", common, true),
            ("OPENSSH PRIVATE KEY", whole, false),
            ("PRIVATE KEY", common, false),
            ("EC PRIVATE KEY", small, false),
        ] {
            let key = format!("-----BEGIN {word}-----\n{first}\nrestOfTheKey=\n-----END {word}-----\n");
            let shown = shown_as(&key);
            assert_eq!(!shown.iter().any(|one| one == first), is_told, "{word} {first}");
            assert!(shown.iter().any(|one| one == "restOfTheKey="), "{word}");
        }
    }

    #[test]
    fn a_secret_is_hidden_in_whatever_way_it_is_written() {
        let (first, second) = ("MIIEpAIBAAKCAQEA0first0of0the0key", "s3cretLineOfTheKey0001");
        let key = format!(
            "-----BEGIN RSA PRIVATE KEY-----\r\n{first}\r\n{second}\r\nendOfTheKey=\r\n-----END RSA PRIVATE KEY-----\r\n"
        );
        let password = r#"quo"te\ba'ck$(id)/ü"#;
        let task = serde_json::from_value(serde_json::json!({
            "taskId": "c-1-7", "jobId": "c-1", "clusterId": "c", "taskName": "CREATE", "nodeId": "n",
            "config": {"provider": {"providertype": "x", "sensitive": ["ssh_key", "password"],
                "provisioner": {"ssh_key": key, "password": password}}}
        }));
        let secrets = Secrets::of(&task.unwrap());
        let told = |text: &str| {
            let report = Report { stdout: text.to_owned(), ..Report::default() };
            secrets.report(report).stdout
        };
        assert_eq!(told(&format!("a {second} b")), "a [hidden] b");
        assert_eq!(told("endOfTheKey="), "[hidden]");
        assert_eq!(told(&serde_json::json!({"key": key}).to_string()), r#"{"key":"[hidden]\r\n"}"#);
        assert_eq!(told(&key.replace("\r\n", "\n")).matches("[hidden]").count(), 3);
        assert_eq!(told(password), "[hidden]");
        assert_eq!(told(&serde_json::json!([password]).to_string()), r#"["[hidden]"]"#);
        assert_eq!(told(r#""quo\"te\\ba'ck$(id)\/ü""#), r#""[hidden]""#);
        assert_eq!(told(r#""quo\"te\\ba'ck$(id)/\u00fc""#), r#""[hidden]""#);
        assert_eq!(told(&crate::ssh::quote(password)), "'[hidden]'");
        assert_eq!(told("-----BEGIN RSA PRIVATE KEY-----"), "-----BEGIN RSA PRIVATE KEY-----");
        assert_eq!(told(first), "[hidden]");
    }
}
