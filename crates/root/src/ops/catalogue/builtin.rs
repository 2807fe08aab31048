//! Plugin types that come with the software.

use serde_json::{Value, json};
use template::Kind;

/// What every tenant finds in its catalogue without anybody having written it.
pub fn builtin() -> Vec<(Kind, Value)> {
    let field = |label: &str, kind: &str, tip: &str| json!({"label": label, "type": kind, "tip": tip});
    let secret =
        |label: &str, tip: &str| json!({"label": label, "type": "password", "tip": tip, "sensitive": true});
    let hosts = json!({
        "name": "hosts", "description": "machines that are there already, reached by SSH",
        "parameters": {"admin": {
            "fields": {
                "hosts": field("Machines", "text", "[USER@]ADDRESS[:PORT], one a line or with commas"),
                "ssh_user": field("User", "text", "for machines that name none; root if empty"),
                "ssh_key": secret("Private key", "lets us into the machines"),
                "ssh_password": secret("Password", "lets us in where there is no key")
            },
            "required": [["hosts", "ssh_key"], ["hosts", "ssh_password"]]
        }}
    });
    let shell = json!({
        "name": "shell", "description": "scripts that run on the machine",
        "parameters": {"admin": {
            "fields": {
                "script": field("Script", "text", "name of a staged script"),
                "code": field("Code", "text", "the text of a script, instead of its name"),
                "args": field("Arguments", "text", "words for the script"),
                "archive": field("Archive", "text", "name of a staged archive that is unpacked beside the script"),
                "timeout": field("Time limit", "text", "in seconds")
            },
            "required": [["script"], ["code"]]
        }},
        "resourceTypes": {
            "scripts": {"format": "file", "permissions": "0755"}, "archives": {"format": "archive"}
        }
    });
    vec![(Kind::ProviderType, hosts), (Kind::AutomatorType, shell)]
}
