#![allow(clippy::unwrap_used)]
use model::geo::Degrees;
use serde_json::json;

use super::*;

fn service(change: Value) -> Value {
    let mut service = json!({
        "microserviceID": "", "microservice_name": "curl", "microservice_namespace": "test",
        "virtualization": "container", "cmd": ["sh", "-c", "sleep 1000"], "memory": 100, "vcpus": 1, "vgpus": 0,
        "vtpus": 0, "bandwidth_in": 0, "bandwidth_out": 0, "storage": 0, "code": "busybox", "state": "",
        "port": "", "added_files": [], "constraints": [], "connectivity": []
    });
    for (key, value) in change.as_object().unwrap() {
        service[key] = value.clone();
    }
    service
}

fn sla(services: Value) -> Value {
    json!({
        "sla_version": "v2.0", "customerID": "Admin",
        "applications": [{
            "applicationID": "", "application_name": "clientsrvr", "application_namespace": "test",
            "application_desc": "a test", "microservices": services
        }]
    })
}

fn good(value: &Value) -> Vec<Resource> {
    translate(value, "sla.json").unwrap_or_else(|error| panic!("{:#?}", error.faults()))
}

fn workload(change: Value) -> AppWorkload {
    let resources = good(&sla(json!([service(change)])));
    let Some(Body::App(app)) = resources.last().map(|r| &r.body) else { panic!("an app: {resources:?}") };
    app.workloads[0].clone()
}

/// All of these, and no other line, are said of a descriptor.
fn bad(value: &Value, expect: &[&str]) {
    let faults = translate(value, "sla.json").expect_err("it is wrong").faults();
    let lines: Vec<String> = faults.iter().map(api::read::line).collect();
    assert_eq!(lines.len(), expect.len(), "{lines:#?}");
    for part in expect {
        assert!(lines.iter().any(|line| line.contains(part)), "{lines:#?}\ndo not say '{part}'");
    }
}

fn bad_service(change: Value, expect: &[&str]) {
    bad(&sla(json!([service(change)])), expect);
}

#[test]
fn an_application_becomes_an_app_of_workloads() {
    let mut first = sla(json!([
        service(json!({"environment": ["A=b", "C=d=e"], "storage": 20, "vgpus": 2})),
        service(json!({"microservice_name": "Nginx", "code": "docker.io/library/nginx:latest", "cmd": []})),
        service(json!({"microservice_name": "sums", "one_shot": true, "virtualization": "docker"})),
    ]));
    first["args"] = json!([]);
    let resources = good(&first);
    let kinds: Vec<_> = resources.iter().map(|r| (r.body.kind(), r.name.to_string())).collect();
    let image = format!("nginx-latest-{:08x}", hash("docker.io/library/nginx:latest"));
    assert_eq!(kinds, [("Image", image.clone()), ("App", "clientsrvr-test".to_owned())]);
    let Body::App(app) = &resources[1].body else { panic!("an app") };
    let [curl, nginx, sums] = &app.workloads[..] else { panic!("three: {app:?}") };
    assert_eq!((app.description.as_str(), curl.name.as_str()), ("a test", "clientsrvr-test-curl-test"));
    let spec = &curl.spec.instance;
    assert_eq!((spec.cpu, spec.memory, spec.disk), (Cpu(1000), Bytes::mib(100), Bytes::mib(20)));
    assert_eq!((spec.env["C"].as_str(), spec.gpu.as_ref().unwrap().count), ("d=e", 2));
    assert_eq!(spec.labels[JOB_LABEL], "clientsrvr.test.curl.test");
    assert_eq!(curl.spec.mode, Mode::Service { replicas: 1 });
    assert!(nginx.name.as_str().starts_with("clientsrvr-test-nginx-test-"), "lower case lost something");
    assert_eq!((nginx.spec.instance.image.as_str(), nginx.spec.instance.command.len()), (image.as_str(), 0));
    assert_eq!(sums.spec.mode, Mode::Once { run: RunPolicy::default() });
    assert_eq!(sums.spec.instance.restart, RestartPolicy::Never);
}

#[test]
fn the_least_that_is_valid_is_enough() {
    // An application without services, as the other system's own blank descriptor.
    let Body::App(app) = &good(&sla(json!([])))[0].body else { panic!("an app") };
    assert!(app.workloads.is_empty());
    let bare = json!({"microservice_name": "a", "microservice_namespace": "b", "virtualization": "container", "code": "busybox"});
    let Body::App(app) = &good(&sla(json!([bare])))[0].body else { panic!("an app") };
    assert_eq!(app.workloads[0].spec.instance.memory, InstanceSpec::new("x").memory, "the default is kept");
    // Two applications in one descriptor.
    let mut two = sla(json!([service(json!({}))]));
    let mut other = two["applications"][0].clone();
    other["application_name"] = json!("second");
    two["applications"].as_array_mut().unwrap().push(other);
    assert_eq!(good(&two).len(), 2);
}

#[test]
fn constraints_become_places() {
    let place =
        |constraints: Value| workload(json!({ "constraints": constraints })).spec.instance.constraints;
    let found = place(json!([{"type": "direct", "node": "n1", "cluster": "east"}]));
    assert_eq!((found.zone.as_deref(), found.node.as_deref()), (Some("east"), Some("n1")));
    let found = place(json!([{"type": "clusters", "allowed": ["east"]}]));
    assert_eq!(found.zone.as_deref(), Some("east"));
    let found = place(json!([
        {"type": "clusters", "allowed": ["east", "west"]}, {"type": "direct", "cluster": "west;north"}
    ]));
    assert_eq!(found.zone.as_deref(), Some("west"), "what all allow is one");
    let found = place(json!([{
        "type": "geo", "location": "11.576;48.137", "threshold": 100.7, "rigidness": 0.9, "convergence_time": 300
    }]));
    let area = found.area.unwrap();
    assert_eq!((area.longitude, area.latitude), (Degrees::new(11.576), Degrees::new(48.137)));
    assert_eq!((area.radius_km, area.required), (100, true));
    let found = place(json!([{"type": "latency", "area": "munich", "threshold": 20, "rigidness": 0}]));
    assert_eq!((found.latency[0].place.as_deref(), found.latency[0].max_ms), (Some("munich"), 20));
    assert!(!found.latency[0].required, "what need not hold for any request is a wish");
    assert_eq!(place(json!([{"type": "direct"}, {"type": "addons", "needs": []}])), Default::default());
}

#[test]
fn connectivity_becomes_a_way_to_a_workload() {
    let con = |target: &str| {
        json!({"target_microservice_id": target, "con_constraints": [
            {"type": "latency", "threshold": 15, "rigidness": 0.5, "convergence_time": 300},
            {"type": "bandwidth", "threshold": 0, "rigidness": 0, "convergence_time": 0}]})
    };
    for target in ["srv", "srv.test", "clientsrvr.test.srv.test"] {
        let value = sla(json!([
            service(json!({"connectivity": [con(target)]})),
            service(json!({"microservice_name": "srv"}))
        ]));
        let resources = good(&value);
        let Body::App(app) = &resources[0].body else { panic!("an app") };
        let term = &app.workloads[0].spec.instance.constraints.latency[0];
        assert_eq!((term.workload.as_deref(), term.max_ms), (Some("clientsrvr-test-srv-test"), 15));
    }
    bad_service(
        json!({"connectivity": [con("nobody")]}),
        &["applications[0].microservices[0].connectivity[0].target_microservice_id: 'nobody'"],
    );
    bad_service(
        json!({"connectivity": [{"target_microservice_id": "curl", "con_constraints": [
            {"type": "bandwidth", "threshold": 100, "rigidness": 1}]}]}),
        &[
            "con_constraints[0].convergence_time: 'convergence_time' is missing",
            "con_constraints[0].threshold: bandwidth",
        ],
    );
}

#[test]
fn flawed_descriptors_are_refused_with_every_flaw() {
    // Without its version; it is still seen to be a descriptor.
    let mut value = sla(json!([]));
    value.as_object_mut().unwrap().remove("sla_version");
    assert!(is_descriptor(&value));
    bad(&value, &["sla_version: 'sla_version' is missing"]);
    // Another version; nothing else can be said of it.
    let mut value = sla(json!([{}]));
    value["sla_version"] = json!("v3.0");
    bad(&value, &["sla_version: must be \"v2.0\", not \"v3.0\""]);
    value["sla_version"] = json!(2);
    bad(&value, &["sla_version: must be \"v2.0\", not a number (2)"]);
    // Wrong types and missing fields.
    bad(
        &json!({"sla_version": "v2.0", "applications": [{"application_name": 7, "microservices": [{}]}], "x": 1}),
        &[
            "customerID: 'customerID' is missing",
            "x: 'x' is not a field",
            "applications[0].application_name: must be a text, not a number (7)",
            "applications[0].application_namespace: 'application_namespace' is missing",
            "microservices[0].microservice_name: 'microservice_name' is missing",
            "microservices[0].microservice_namespace: 'microservice_namespace' is missing",
            "microservices[0].virtualization: 'virtualization' is missing",
            "microservices[0].code: 'code' is missing",
        ],
    );
    bad(
        &json!({"sla_version": "v2.0", "customerID": "x", "applications": {}}),
        &["applications: must be a list"],
    );
    // A name with other characters than letters and digits.
    bad_service(
        json!({"microservice_name": "test.special.char"}),
        &["microservices[0].microservice_name: 'test.special.char' must be 1 to 30"],
    );
    bad_service(
        json!({"memory": "100", "vcpus": -1, "cmd": "sh", "one_shot": "yes", "environment": ["A"], "microserviceID": "x"}),
        &[
            ".memory: must be a whole number",
            ".vcpus: must be a whole number",
            ".cmd: must be a list",
            ".one_shot: must be true or false",
            ".environment[0]: 'A' must be KEY=VALUE",
            ".microserviceID: must be empty",
        ],
    );
    // What asks for nothing must still be of its type, and what is near to nothing is no place.
    bad_service(
        json!({"port": 0, "volumes": "", "privileged": 0, "environment": ["A=1", "A=2"],
            "constraints": [{"type": "geo", "location": "5;9", "threshold": 0.5}, {"type": "latency", "area": "x", "threshold": 0}],
            "connectivity": [{"target_microservice_id": "curl", "con_constraints": [
                {"type": "latency", "threshold": 5, "rigidness": 1, "convergence_time": 1}]}]}),
        &[
            ".port: must be a text, not a number (0)",
            ".volumes: must be a list",
            ".privileged: must be true or false",
            ".environment[1]: 'A' is given two values",
            ".constraints[0].threshold: must be 1 or more",
            ".constraints[1].threshold: must be 1 or more",
            ".connectivity: this is the workload itself",
        ],
    );
    bad_service(json!({"memory": 2}), &["microservices[0].memory: memory must be 6MiB or more"]);
    bad(
        &sla(json!([service(json!({})), service(json!({}))])),
        &["microservices[1]: a microservice of this name"],
    );
}

#[test]
fn what_cannot_be_given_is_named() {
    // The other system's own example of a client and a server.
    let value = sla(json!([
        service(json!({"port": "9080"})),
        service(json!({
            "microservice_name": "nginx", "code": "docker.io/library/nginx:latest", "port": "6080:80/tcp",
            "addresses": {"rr_ip": "10.30.30.30", "rr_ip_v6": ""}
        })),
    ]));
    bad(&value, &["microservices[0].port", "microservices[1].port", "microservices[1].addresses.rr_ip:"]);
    bad_service(
        json!({
            "virtualization": "unikernel", "code": "https://a/x.tar.gz,https://a/y.tar.gz", "arch": ["amd64"],
            "vtpus": 1, "bandwidth_in": 100, "privileged": true, "volumes": [{"volume_id": "a", "csi_driver": "b"}],
            "target_node": "n1", "platform": 5, "sla_violation_strategy": "migrate", "added_files": ["x"], "state": "https://s",
            "expected_output": "hello"
        }),
        &[
            ".virtualization: 'unikernel'",
            ".code: must be one image",
            ".arch:",
            ".platform: must be a text",
            ".vtpus:",
            ".bandwidth_in:",
            ".privileged:",
            ".volumes:",
            ".target_node: write a constraint",
            ".sla_violation_strategy:",
            ".added_files:",
            ".state:",
            ".expected_output: 'expected_output' is not a field",
        ],
    );
    bad_service(
        json!({"constraints": [
            {"type": "direct", "node": "n1;n2"}, {"type": "clusters", "allowed": ["a", "b"]},
            {"type": "addons", "needs": ["builder"]}, {"type": "moon"}, {"cluster": "x"},
            {"type": "geo", "location": "48.1", "threshold": 5}, {"type": "geo", "location": "5;99", "threshold": 5},
            {"type": "latency", "threshold": 5}
        ]}),
        &[
            "constraints[0].node: 2 nodes would do",
            "constraints[1].allowed: 2 clusters would do",
            "constraints[2].needs:",
            "constraints[3].type: 'moon'",
            "constraints[4].type: 'type' is missing",
            "constraints[5].location: must be",
            "constraints[6].location: latitude",
            "constraints[7].area: 'area' is missing",
        ],
    );
    bad_service(
        json!({"constraints": [{"type": "direct", "cluster": "a"}, {"type": "clusters", "allowed": ["b"]}]}),
        &["constraints[1].allowed: no cluster is allowed by all"],
    );
}

#[test]
fn names_stay_apart_and_fit() {
    let name = |parts: &[&str]| name_of(parts, WORKLOAD_NAME_MAX).to_string();
    assert_eq!(name(&["a", "b", "c", "d"]), "a-b-c-d");
    assert_ne!(name(&["A", "b", "c", "d"]), name(&["a", "B", "c", "d"]));
    let long = "x".repeat(30);
    let (one, two) = (name(&[&long, &long, "a", "b"]), name(&[&long, &long, "a", "c"]));
    assert!(one.len() <= WORKLOAD_NAME_MAX && one != two, "{one} {two}");
}
