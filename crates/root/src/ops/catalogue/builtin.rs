//! Plugin types, and a provider, that come with the software.

use serde_json::{Value, json};
use template::Kind;

/// What every tenant finds in its catalogue without anybody having written it.
pub fn builtin() -> Vec<(Kind, Value)> {
    let mut all: Vec<(Kind, Value)> = providers().map(|kind| (Kind::ProviderType, kind)).into();
    all.extend([shell(), ansible(), puppet(), chef(), docker()].map(|kind| (Kind::AutomatorType, kind)));
    let own = json!({"name": "banyan", "description": "instances of this cloud", "providertype": "banyan", "provisioner": {}});
    all.push((Kind::Provider, own));
    all
}

fn field(label: &str, kind: &str, tip: &str) -> Value {
    json!({"label": label, "type": kind, "tip": tip})
}

fn secret(label: &str, tip: &str) -> Value {
    json!({"label": label, "type": "password", "tip": tip, "sensitive": true})
}

fn providers() -> [Value; 4] {
    let hosts = json!({
        "name": "hosts", "description": "machines that are there already, reached by SSH", "pool": true,
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
    let banyan = json!({
        "name": "banyan", "description": "instances of this cloud",
        "parameters": {"admin": {
            "fields": {
                "start": field("Start", "text", "sshd: a script of ours runs the image's sshd (if empty); image: its own entry point does")
            },
            "required": []
        }}
    });
    let ec2 = json!({
        "name": "ec2", "description": "instances of Amazon, or of any cloud with its EC2 API",
        "parameters": {"admin": {
            "fields": {
                "api_user": field("Access key", "text", "its id"),
                "api_password": secret("Secret key", "of the access key"),
                "aws_region": field("Region", "text", "us-east-1 if empty"),
                "endpoint": field("Endpoint", "text", "address of the API; Amazon's if empty"),
                "subnet_id": field("Subnet", "text", "where machines are"),
                "security_groups": field("Security groups", "text", "names or ids, with commas; they must let SSH in"),
                "associate_public_ip": field("Public address", "text", "true: machines get one"),
                "address": field("Reached by", "text", "private: by their private address"),
                "ssh_keypair": field("Key pair", "text", "one more key that machines let in"),
                "ssh_wait": field("Wait for SSH", "text", "in seconds; 300 if empty")
            },
            "required": [["api_user", "api_password"]]
        }}
    });
    [banyan, ec2, hosts, openstack()]
}

fn openstack() -> Value {
    json!({
        "name": "openstack", "description": "servers of an OpenStack",
        "parameters": {"admin": {
            "fields": {
                "openstack_auth_url": field("Keystone", "text", "its address, such as https://cloud.example:5000/v3"),
                "openstack_username": field("User", "text", "its name"),
                "openstack_api_key": secret("Password", "of the user"),
                "openstack_tenant": field("Project", "text", "where machines are, by name or id"),
                "openstack_user_domain": field("User's domain", "text", "by name or id; default if empty"),
                "openstack_project_domain": field("Project's domain", "text", "by name or id; default if empty"),
                "openstack_application_credential_id": field("Application credential", "text", "its id; instead of user, password and project"),
                "openstack_application_credential_secret": secret("Secret", "of the application credential"),
                "openstack_region": field("Region", "text", "may be empty if there is one"),
                "openstack_interface": field("Interface", "text", "public (if empty) or internal: which addresses of the catalogue are asked"),
                "network_ids": field("Networks", "text", "ids or names, with commas"),
                "security_groups": field("Security groups", "text", "names, with commas; they must let SSH in"),
                "availability_zone": field("Availability zone", "text", "the cloud's choice if empty"),
                "ssh_keypair": field("Key pair", "text", "one more key that machines let in"),
                "floating_ip": field("Floating address", "text", "true: machines get one"),
                "floating_network": field("Floating network", "text", "id or name; may be empty if there is one to the outside"),
                "address": field("Reached by", "text", "floating, fixed, or the name of a network; a floating address first if empty"),
                "ssh_wait": field("Wait for SSH", "text", "in seconds; 300 if empty")
            },
            "required": [
                ["openstack_auth_url", "openstack_username", "openstack_api_key", "openstack_tenant"],
                ["openstack_auth_url", "openstack_application_credential_id", "openstack_application_credential_secret"]
            ]
        }}
    })
}

fn shell() -> Value {
    json!({
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
    })
}

fn ansible() -> Value {
    json!({
        "name": "ansible", "description": "playbooks that a provisioner runs against the machine",
        "parameters": {"admin": {
            "fields": {
                "playbook": field("Playbook", "text", "name of a staged playbook, or its path in the archive"),
                "archive": field("Archive", "text", "name of a staged archive that holds the playbook"),
                "roles": field("Roles", "text", "names of staged archives with one role each"),
                "tags": field("Tags", "text", "only what has one of these"),
                "timeout": field("Time limit", "text", "in seconds")
            },
            "required": [["playbook"]]
        }},
        "resourceTypes": {
            "playbooks": {"format": "file", "permissions": "0644"}, "roles": {"format": "archive"},
            "archives": {"format": "archive"}
        }
    })
}

fn puppet() -> Value {
    json!({
        "name": "puppet", "description": "manifests that are applied on the machine, without a master",
        "parameters": {"admin": {
            "fields": {
                "manifest": field("Manifest", "text", "name of a staged manifest"),
                "code": field("Code", "text", "the text of a manifest, instead of its name"),
                "modules": field("Modules", "text", "names of staged archives with one module each"),
                "timeout": field("Time limit", "text", "in seconds")
            },
            "required": [["manifest"], ["code"]]
        }},
        "resourceTypes": {
            "manifests": {"format": "file", "permissions": "0644"}, "modules": {"format": "archive"}
        }
    })
}

fn chef() -> Value {
    json!({
        "name": "chef-solo", "description": "recipes that run on the machine, without a server",
        "parameters": {"admin": {
            "fields": {
                "run_list": field("Run list", "text", "recipes and roles, with commas"),
                "json_attributes": field("Attributes", "text", "a JSON object, over the cluster's configuration"),
                "cookbooks": field("Cookbooks", "text", "names of staged archives; all if not given"),
                "roles": field("Roles", "text", "names of staged roles; all if not given"),
                "data_bags": field("Data bags", "text", "names of staged archives; all if not given"),
                "timeout": field("Time limit", "text", "in seconds")
            },
            "required": [["run_list"]]
        }},
        "resourceTypes": {
            "cookbooks": {"format": "archive"}, "data_bags": {"format": "archive"},
            "roles": {"format": "file", "permissions": "0644"}
        }
    })
}

fn docker() -> Value {
    json!({
        "name": "docker", "description": "containers of the machine's Docker, one or a Compose project",
        "parameters": {"admin": {
            "fields": {
                "image_name": field("Image", "text", "with its registry and tag"),
                "name": field("Name", "text", "of the container or project; the service's if empty"),
                "environment_variables": field("Variables", "text", "NAME=VALUE, with commas or as a list"),
                "volumes": field("Volumes", "text", "SOURCE:PATH, with commas or as a list"),
                "publish_ports": field("Ports", "text", "HOST:CONTAINER, with commas or as a list"),
                "links": field("Links", "text", "names of other containers"),
                "options": field("Options", "text", "more words for docker run"),
                "command": field("Command", "text", "words for the image"),
                "compose": field("Compose file", "text", "name of a staged Compose file"),
                "code": field("Compose text", "text", "the text of a Compose file, instead of its name"),
                "timeout": field("Time limit", "text", "in seconds")
            },
            "required": []
        }},
        "resourceTypes": {"compose": {"format": "file", "permissions": "0644"}}
    })
}
