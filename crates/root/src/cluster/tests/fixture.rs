//! The catalogue and the cluster that all of it is about.

use std::collections::BTreeMap;

use api::ClusterStatus;
use model::{ClusterId, TenantId, Timestamp, UserId};
use serde_json::json;
use template::{Catalogue, Kind};

use crate::cluster::record::{ClusterRecord, Shape};

pub fn catalogue(is_pool: bool) -> Catalogue {
    let mut all = Catalogue::default();
    let mut add = |kind, value| drop(all.add(kind, value).expect("sound"));
    let run = json!({"type": "shell", "fields": {"code": "x"}});
    let actions = |names: &[&str]| -> serde_json::Value {
        json!({"actions": names.iter().map(|name| ((*name).to_owned(), run.clone())).collect::<BTreeMap<_, _>>()})
    };
    let whole = ["install", "configure", "initialize", "start", "stop", "remove"];
    add(Kind::ProviderType, json!({"name": "fake", "pool": is_pool}));
    add(Kind::Provider, json!({"name": "lab", "providertype": "fake"}));
    add(Kind::HardwareType, json!({"name": "h", "providermap": {"lab": {"flavor": "f"}}}));
    add(Kind::ImageType, json!({"name": "i", "providermap": {"lab": {"image": "i"}}}));
    add(Kind::Service, json!({"name": "base", "provisioner": actions(&["install", "remove"])}));
    add(
        Kind::Service,
        json!({"name": "db", "provisioner": actions(&whole),
               "dependencies": {"install": {"requires": ["base"]}}}),
    );
    add(
        Kind::Service,
        json!({"name": "web", "provisioner": actions(&whole),
               "dependencies": {"install": {"requires": ["base"]}, "runtime": {"requires": ["db"]}}}),
    );
    add(Kind::Service, json!({"name": "cache", "provisioner": actions(&whole)}));
    add(
        Kind::ClusterTemplate,
        json!({"name": "site", "defaults": {"services": ["base", "db", "web"], "provider": "lab"},
            "constraints": {"services": {"db": {"quantities": {"min": 1, "max": 1}}, "cache": {"quantities": {"max": 2}}},
                            "layout": {"cantcoexist": [["db", "web"]]}}}),
    );
    all
}

pub fn cluster() -> ClusterRecord {
    ClusterRecord {
        id: ClusterId::from_random(1),
        tenant: TenantId::from_random(1),
        name: "site".parse().expect("a name"),
        number: 1,
        description: String::new(),
        template: "site".into(),
        provider: "lab".into(),
        hardwaretype: None,
        imagetype: None,
        dns_suffix: None,
        shape: Shape { services: ["base", "db", "web"].map(str::to_owned).to_vec(), ..Shape::default() },
        before: None,
        machines: 0,
        cost: None,
        provider_fields: Default::default(),
        provider_secrets: BTreeMap::new(),
        public_key: String::new(),
        private_key: String::new(),
        webhooks: None,
        status: ClusterStatus::Pending,
        message: None,
        links: Vec::new(),
        service_links: BTreeMap::new(),
        job: 0,
        paused: false,
        aborted_by: None,
        node_next: 1000,
        lease: Default::default(),
        expires_at: None,
        warned_of: None,
        created_at: Timestamp(0),
        created_by: "ada".into(),
        owner: UserId::from_random(1),
    }
}
