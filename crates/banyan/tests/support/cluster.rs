//! A small catalogue for clusters on instances, and ways to look at what was made.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Cloud, wait_async};

/// A service that shows a text of the configuration, and knows how many machines there are.
pub fn catalogue(folder: &Path, image: &str) {
    let code =
        |text: &str| json!({"type": "shell", "fields": {"code": format!("#!/bin/sh\nset -e\n{text}\n")}});
    let write = |kind: &str, entity: Value| {
        let at = folder.join(kind);
        std::fs::create_dir_all(&at).unwrap();
        let name = entity["name"].as_str().unwrap();
        std::fs::write(at.join(format!("{name}.json")), entity.to_string()).unwrap();
    };
    write("hardwaretypes", json!({"name": "tiny", "providermap": {"banyan": {"flavor": "100m/64MiB"}}}));
    write("imagetypes", json!({"name": "plain", "providermap": {"banyan": {"image": image}}}));
    write(
        "services",
        json!({
            "name": "page", "description": "shows a text",
            "provisioner": {"actions": {
                "install": code("mkdir -p /srv/www"),
                "configure": code("echo \"$(setting page.text) of $(setting page.count)\" > /srv/www/index.html"),
                "start": code("httpd -f -p 8080 -h /srv/www </dev/null >/dev/null 2>&1 & echo $! > /run/page.pid"),
                "stop": code("kill $(cat /run/page.pid) && while [ -d /proc/$(cat /run/page.pid) ]; do sleep 0.1; done")
            }}
        }),
    );
    // It shares no machine with a page.
    write(
        "services",
        json!({
            "name": "clock", "provisioner": {"actions": {
                "install": code("mkdir -p /srv/clock"),
                "remove": code("rm -r /srv/clock")
            }}
        }),
    );
    write(
        "services",
        json!({
            "name": "broken", "provisioner": {"actions": {"install": code("echo looking for it; echo it cannot be; exit 7")}}
        }),
    );
    let template = |name: &str, service: &str, others: &[&str]| {
        let services = [&[service], others].concat();
        json!({
            "name": name, "description": "a page on every machine",
            "defaults": {
                "services": [service], "provider": "banyan", "hardwaretype": "tiny", "imagetype": "plain",
                "config": {"page": {"text": "hello", "count": "%num.service.page%"}}
            },
            "compatibility": {"hardwaretypes": ["tiny"], "imagetypes": ["plain"], "services": services},
            "constraints": {"size": {"min": 1, "max": 5}, "layout": {"cantcoexist": [["clock", "page"]]}}
        })
    };
    write("clustertemplates", template("site", "page", &["clock"]));
    write("clustertemplates", template("doomed", "broken", &[]));
}

/// What a machine's service says, asked from outside.
pub fn page(address: &str) -> Option<String> {
    let mut socket = TcpStream::connect((address, 8080)).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut said = String::new();
    socket.read_to_string(&mut said).ok()?;
    said.rsplit_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned())
}

pub fn nodes(cloud: &Cloud, cluster: &str) -> Vec<api::ClusterNode> {
    let client = cloud.client();
    let mut nodes = wait_async(client.cluster_nodes(cluster)).unwrap();
    nodes.sort_by_key(|node| node.num);
    nodes
}

pub fn machines(cloud: &Cloud, beginning: &str) -> Vec<String> {
    let all = cloud.json(&["instance", "list"]);
    let names = all.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with(beginning)).collect()
}
