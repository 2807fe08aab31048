//! Walks the whole table of routes: every role, a stranger, and a neighbour tenant.

use model::Role;
use reqwest::{Method, StatusCode};
use root::access::{Rule, Who, table};

use crate::world::{World, ask_for};

const ROLES: [Role; 4] = [Role::Viewer, Role::Member, Role::Admin, Role::Operator];

/// A body that the route accepts, so that what is refused is refused for who asks.
fn body(rule: &Rule) -> Option<serde_json::Value> {
    use serde_json::json;
    Some(match rule.name {
        "catalogue_write" => json!({"entities": {}}),
        "instance_create" => json!({"name": "walk", "spec": {"image": "busybox"}}),
        "workload_create" => json!({"name": "walk", "spec": {"instance": {"image": "busybox"}}}),
        "workload_update" => json!({"spec": {"instance": {"image": "busybox"}}}),
        "workload_scale" => json!({"replicas": 2}),
        "cluster_create" => json!({"name": "walk", "template": "none", "size": 1}),
        "cluster_solve" => json!({"ask": {"template": "none", "size": 1}}),
        "cluster_expand" | "cluster_shrink" => json!({"size": 1}),
        "cluster_services" => json!({"add": ["web"]}),
        "cluster_configure" => json!({"config": {}}),
        "cluster_start" | "cluster_stop" | "cluster_restart" | "cluster_upgrade" | "cluster_repair"
        | "cluster_lease" => {
            json!({})
        }
        "order_check" => json!({"images": ["walk"]}),
        "app_create" => json!({"name": "walk"}),
        "app_update" => json!({"workloads": []}),
        "image_pull" => json!({"reference": "not a reference"}),
        "login" => json!({"user": "nobody", "password": "no password"}),
        "password_change" => json!({"current": "wrong one", "new": "another one"}),
        "token_create" => json!({"name": "walk", "role": "viewer"}),
        "tenant_create" => json!({"name": "walk"}),
        "quota_set" | "object_store_scrub" => json!({}),
        "user_create" => json!({"name": "walk", "role": "viewer", "password": "long enough"}),
        "user_update" => json!({}),
        "node_mode" | "zone_mode" => json!({"mode": "cordoned"}),
        "zone_hosts" => json!({"hosts": ["east.example"]}),
        "node_labels" => json!({"set": {"disk": "ssd"}}),
        "enrolment_create" => json!({"role": "zone"}),
        _ => return None,
    })
}

/// The address of something of the tenant `mine`.
fn path(rule: &Rule, token: &str, key: &str, user: &str) -> String {
    let one = match rule.path.split('/').nth(2).unwrap_or_default() {
        "tokens" => token,
        "keys" => key,
        "users" => user,
        "zones" => "alpha",
        "nodes" => "node-1",
        "tenants" => "mine",
        _ => "thing",
    };
    let command = if rule.name == "instance_exec" { "?command=sh" } else { "?" };
    let kind = if rule.path.starts_with("/v1/resources") { "automatortypes" } else { "services" };
    let path = rule.path.replace("{kind}", kind).replace("{plugin}", "shell").replace("{type}", "scripts");
    path.replace("{number}", "1").replace("{name}", one).replace("{id}", one) + command
}

async fn call(world: &World, rule: &Rule, path: &str, token: Option<&str>) -> StatusCode {
    let method = Method::from_bytes(rule.verb.as_str().as_bytes()).unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = http.request(method, world.url(path));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(body) = body(rule) {
        request = request.json(&body);
    }
    request.send().await.unwrap().status()
}

/// A token of a user with this role in this tenant.
async fn token_of(world: &World, tenant: &str, role: Role) -> String {
    let client = world.user(tenant, role).await;
    let body = api::TokenCreate { name: "walk".parse().unwrap(), role: None, expires_in_s: None };
    client.token_create(&body).await.unwrap().secret
}

#[tokio::test]
async fn every_route_is_open_to_exactly_those_in_the_table() {
    let world = World::new().await;
    let strict = table().into_iter().map(|route| route.rule).filter(|rule| rule.who != Who::Anyone);
    let rules: Vec<Rule> = strict.collect();
    assert!(rules.len() > 40, "the table is whole");

    let mut tokens = Vec::new();
    for role in ROLES {
        let tenant = if role == Role::Operator { "main" } else { "mine" };
        tokens.push((role, token_of(&world, tenant, role).await));
    }
    for rule in &rules {
        let path = path(rule, "tok-00000000000000000", "BYN0", "nobody");
        if let Who::AtLeast(least) = rule.who {
            let stranger = call(&world, rule, &path, None).await;
            assert_eq!(stranger, 401, "a stranger at {} {}", rule.verb.as_str(), rule.path);
            let forged = call(&world, rule, &path, Some("bynt_forged")).await;
            assert_eq!(forged, 401, "a forged token at {} {}", rule.verb.as_str(), rule.path);
            for (role, token) in &tokens {
                let status = call(&world, rule, &path, Some(token)).await;
                let place = format!("{role} at {} {}: {status}", rule.verb.as_str(), rule.path);
                if *role < least {
                    assert_eq!(status, 403, "{place}");
                } else if rule.name == "password_change" {
                    assert_eq!(status, 403, "the current password is wrong: {place}");
                } else {
                    assert!(status != 401 && status != 403 && status != 500, "{place}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_neighbour_finds_nothing() {
    let world = World::new().await;
    let mine = world.user("mine", Role::Admin).await;
    world.user("mine", Role::Viewer).await;
    mine.instance_create(&ask_for("thing")).await.unwrap();
    let app =
        api::AppCreate { name: "thing".parse().unwrap(), description: String::new(), workloads: vec![] };
    mine.app_create(&app).await.unwrap();
    mine.workload_create(&crate::workload::ask_for("thing", 0)).await.unwrap();
    let token = mine
        .token_create(&api::TokenCreate { name: "t".parse().unwrap(), role: None, expires_in_s: None })
        .await
        .unwrap();
    let key = mine.key_create().await.unwrap();
    let archive = tokio_util::io::ReaderStream::new(std::io::Cursor::new(crate::image::tarball()));
    mine.image_import("thing", api::Upload::default(), archive).await.unwrap();
    let script = futures::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"echo"))]);
    let file = "automatortypes/shell/scripts/thing";
    mine.resource_upload(file, api::ResourceUpload::default(), script).await.unwrap();
    let neighbour = token_of(&world, "other", Role::Admin).await;

    for rule in table().into_iter().map(|route| route.rule).filter(|rule| rule.tenant_scoped) {
        let own = path(&rule, token.token.id.as_str(), &key.key.id.0, "mine-viewer");
        // By naming the tenant, which for a neighbour does not exist.
        let named = call(&world, &rule, &format!("{own}&tenant=mine"), Some(&neighbour)).await;
        assert_eq!(named, 404, "{} {} in another tenant", rule.verb.as_str(), rule.path);
        // By the name of the thing. Uploads and pulls would make a thing of their own.
        let makes = ["image_import", "image_pull", "resource_upload"];
        if rule.path.contains('{') && !makes.contains(&rule.name) {
            let status = call(&world, &rule, &own, Some(&neighbour)).await;
            assert_eq!(status, 404, "{} {} of another tenant", rule.verb.as_str(), rule.path);
        }
    }
    let id = mine.instance_get("thing").await.unwrap().id;
    let stranger = world.admin.with_token(neighbour);
    assert_eq!(stranger.instance_get(id.as_str()).await.unwrap_err().kind, model::ErrorKind::NotFound);
    assert!(stranger.instance_list(&api::ListQuery::new()).await.unwrap().items.is_empty());
    assert!(
        stranger.event_list(&api::ListQuery::new().with("instance", "thing")).await.unwrap().items.is_empty()
    );
    assert!(mine.instance_get("thing").await.is_ok(), "and it is all still there");
}

#[tokio::test]
async fn metrics_are_for_operators_and_the_same_machine() {
    let world = World::new().await;
    world.admin.instance_create(&ask_for("counted")).await.unwrap();
    let text = reqwest::get(world.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(text.contains("banyan_instances{phase=\"pending\"} 1"), "{text}");
    assert!(text.contains("route=\"/v1/instances\",status=\"201\""), "{text}");
    assert!(text.contains("banyan_build_info"), "{text}");
}
