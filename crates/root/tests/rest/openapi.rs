//! The committed document is the one the code makes.

use std::path::Path;

use crate::world::World;

#[test]
fn the_committed_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = root::openapi::text();
    if std::env::var_os("BANYAN_UPDATE").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "docs/openapi.json is not what the code says; run: BANYAN_UPDATE=1 cargo test -p root --test rest openapi"
    );
}

#[test]
fn every_reference_leads_somewhere() {
    let document: serde_json::Value = serde_json::from_str(root::openapi::text()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut open = vec![&document];
    let mut count = 0;
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(reference) = map.get("$ref").and_then(|r| r.as_str()) {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
                    count += 1;
                }
                open.extend(map.values());
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(count > 50);
    for route in root::access::table() {
        let method = route.rule.verb.as_str().to_lowercase();
        let found = &document["paths"][route.rule.path][method.as_str()]["operationId"];
        assert_eq!(found, route.rule.name);
        assert!(!route.summary.is_empty(), "{} says nothing", route.rule.name);
    }
}

#[tokio::test]
async fn it_is_served() {
    let world = World::new().await;
    assert_eq!(world.admin.openapi().await.unwrap()["info"]["title"], "Banyan");
    assert_eq!(world.admin.health().await.unwrap().status, "ok");
}
