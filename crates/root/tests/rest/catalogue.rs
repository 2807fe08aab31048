//! The catalogue over REST.

use api::{CatalogueWrite, Entities, ListQuery};
use model::{ErrorKind, Role};
use serde_json::{Value, json};

use crate::world::World;

fn write(entities: Value) -> CatalogueWrite {
    CatalogueWrite { entities: serde_json::from_value(entities).unwrap(), replace: false, dry_run: false }
}

/// A template with all that it needs.
fn whole() -> Value {
    json!({
        "providers": [{"name": "lab", "providertype": "hosts", "provisioner": {"hosts": "192.0.2.1", "ssh_key": "very secret"}}],
        "hardwaretypes": [{"name": "small", "providermap": {"lab": {"flavor": "any"}}}],
        "imagetypes": [{"name": "debian", "providermap": {"lab": {"image": "any"}}}],
        "services": [{"name": "web", "provisioner": {"actions": {"install": {"type": "shell", "fields": {"code": "true"}}}}}],
        "clustertemplates": [{"name": "site", "defaults": {"services": ["web"], "provider": "lab", "hardwaretype": "small", "imagetype": "debian"}}]
    })
}

#[tokio::test]
async fn writes_at_the_same_time_all_count() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    for round in 0..5 {
        let each = |at: usize| {
            let admin = admin.clone();
            let service = json!({"services": [{"name": format!("s{round}-{at}")}]});
            async move { admin.catalogue_write(&write(service)).await }
        };
        let written = futures::future::join_all((0..4).map(each)).await;
        written.into_iter().for_each(|one| assert_eq!(one.unwrap().created.len(), 1));
    }
    let query = ListQuery::new().with("kind", "services");
    assert_eq!(admin.definition_list(&query).await.unwrap().items.len(), 20);
}

#[tokio::test]
async fn definitions_are_written_together_numbered_and_kept() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let made = admin.catalogue_write(&write(whole())).await.unwrap();
    assert_eq!((made.created.len(), made.changed.len(), made.unchanged), (5, 0, 0), "{made:?}");
    let again = admin.catalogue_write(&write(whole())).await.unwrap();
    assert_eq!((again.created.len(), again.changed.len(), again.unchanged), (0, 0, 5), "{again:?}");
    let other = json!({"services": [{"name": "web", "description": "another"}]});
    let dry = CatalogueWrite { dry_run: true, ..write(other.clone()) };
    assert_eq!(admin.catalogue_write(&dry).await.unwrap().changed, ["services/web"]);
    assert_eq!(admin.definition_get("services", "web", None).await.unwrap().number, 1);
    admin.catalogue_write(&write(other)).await.unwrap();
    let now = admin.definition_get("services", "web", None).await.unwrap();
    assert_eq!((now.number, &now.entity["description"]), (2, &json!("another")));
    let past = admin.definition_get("services", "web", Some(1)).await.unwrap();
    assert_eq!(
        (past.number, &past.entity["provisioner"]["actions"]["install"]["type"]),
        (1, &json!("shell"))
    );
    let missing = admin.definition_get("services", "web", Some(9)).await.unwrap_err();
    assert_eq!(missing.message, "there is no number 9 of service 'web'");
    // Others see nothing of it, but what comes with the software.
    let neighbour = world.user("other", Role::Admin).await;
    let seen = neighbour.definition_list(&ListQuery::new()).await.unwrap();
    let names: Vec<String> = seen.items.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect();
    let built_in = [
        "automatortypes/ansible",
        "automatortypes/chef-solo",
        "automatortypes/docker",
        "automatortypes/puppet",
        "automatortypes/shell",
        "providers/banyan",
        "providertypes/banyan",
        "providertypes/ec2",
        "providertypes/hosts",
        "providertypes/openstack",
    ];
    assert_eq!(names, built_in);
    let page = admin.definition_list(&ListQuery::new().limit(3)).await.unwrap();
    let rest = admin.definition_list(&ListQuery::new().after(page.next.as_deref().unwrap())).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len()), (3, 12));
}

#[tokio::test]
async fn what_dangles_is_refused_with_all_of_it() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let mut broken = whole();
    broken["clustertemplates"][0]["defaults"]["services"] = json!(["web", "ghost"]);
    broken["clustertemplates"][0]["defaults"]["provider"] = json!("moon");
    let refused = admin.catalogue_write(&write(broken)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid);
    let told: Vec<String> = refused.faults().iter().map(|fault| fault.message.clone()).collect();
    assert!(
        told.iter().any(|one| one.contains("ghost")) && told.iter().any(|one| one.contains("moon")),
        "{told:?}"
    );
    assert!(admin.definition_get("services", "web", None).await.is_err(), "nothing was written");
    admin.catalogue_write(&write(whole())).await.unwrap();
    let used = admin.definition_delete("services", "web", None).await.unwrap_err();
    assert_eq!(used.kind, ErrorKind::Conflict);
    assert!(used.message.starts_with("the service 'web' is in use"), "{}", used.message);
    admin.definition_delete("clustertemplates", "site", None).await.unwrap();
    admin.definition_delete("services", "web", None).await.unwrap();
    let foreign =
        json!({"services": [{"name": "db", "provisioner": {"actions": {"install": {"type": "salt"}}}}]});
    let taken = admin.catalogue_write(&write(foreign)).await.unwrap();
    let warned: Vec<String> = taken.warnings.iter().map(api::read::line).collect();
    let expect = "entities.services[0].provisioner.actions.install.type: service db: automator type 'salt' does not exist";
    assert_eq!(warned, [expect]);
    for (entities, word) in [
        (json!({"moons": []}), "moons"),
        (json!({"services": [{"name": "a b"}]}), "no name"),
        (json!({"services": [{"name": "a"}, {"name": "a"}]}), "twice"),
        (json!({"services": [7]}), "JSON object"),
    ] {
        let refused = admin.catalogue_write(&write(entities)).await.unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[tokio::test]
async fn misspelt_fields_are_warnings_and_all_faults_have_their_places() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let mut written = whole();
    written["services"][0]["desciption"] = json!("x");
    written["services"][0]["provisioner"]["actions"]["install"]["fields"]["time_out"] = json!(5);
    written["providers"][0]["provisioner"]["ssh_usr"] = json!("root");
    let taken = admin.catalogue_write(&write(written)).await.unwrap();
    assert_eq!(taken.created.len(), 5);
    let warned: Vec<String> = taken.warnings.iter().map(api::read::line).collect();
    assert_eq!(
        warned,
        [
            "entities.providers[0].provisioner.ssh_usr: provider lab: there is no field 'ssh_usr' here; did you mean 'ssh_user'?",
            "entities.services[0].desciption: service web: there is no field 'desciption' here; did you mean 'description'?",
            "entities.services[0].provisioner.actions.install.fields.time_out: service web: there is no field 'time_out' here; did you mean 'timeout'?",
        ]
    );
    let broken = json!({
        "services": [{"name": "a", "links": 3, "dependencies": {"install": {"requires": "b"}}}, {}],
        "clustertemplates": [{"name": "t", "constraints": {"size": {"min": "many"}}}]
    });
    let refused = admin.catalogue_write(&write(broken)).await.unwrap_err();
    let mut places: Vec<String> = refused.faults().into_iter().filter_map(|fault| fault.field).collect();
    places.sort();
    assert_eq!(
        places,
        [
            "entities.clustertemplates[0].constraints.size.min",
            "entities.services[0].dependencies.install.requires",
            "entities.services[0].links",
            "entities.services[1].name",
        ]
    );
}

#[tokio::test]
async fn secrets_are_kept_and_never_shown() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    admin.catalogue_write(&write(whole())).await.unwrap();
    let shown = admin.definition_get("providers", "lab", None).await.unwrap();
    assert_eq!(shown.entity["provisioner"]["ssh_key"], "(kept)");
    let export = admin.catalogue_export().await.unwrap();
    assert!(!serde_json::to_string(&export).unwrap().contains("very secret"));
    for record in world.cloud.state.store().list("definition").await.unwrap() {
        assert!(!record.body.text().contains("very secret"));
    }
    // What was exported can be written back, and changes nothing.
    let again = CatalogueWrite { entities: export, replace: true, dry_run: false };
    assert_eq!(admin.catalogue_write(&again).await.unwrap().unchanged, 5);
    let stranger = json!({"providers": [{"name": "new", "providertype": "hosts", "provisioner": {"hosts": "a", "ssh_key": "(kept)"}}]});
    let refused = admin.catalogue_write(&write(stranger)).await.unwrap_err();
    assert_eq!(refused.message, "there is no secret that could be kept as 'ssh_key'");
}

#[tokio::test]
async fn secrets_inside_fields_are_sealed_and_what_is_kept_goes_nowhere_else() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let moon = |region: &str, auth: Value| {
        json!({"providers": [{"name": "moon", "providertype": "moon",
        "provisioner": {"crater": region, "auth": auth}}]})
    };
    let auth = json!({"user": "u", "login": [{"password": "very secret"}]});
    admin.catalogue_write(&write(moon("north", auth.clone()))).await.unwrap();
    let shown = admin.definition_get("providers", "moon", None).await.unwrap();
    assert_eq!(shown.entity["provisioner"], json!({"crater": "north", "auth": "(kept)"}));
    for record in world.cloud.state.store().list("definition").await.unwrap() {
        assert!(!record.body.text().contains("very secret"));
    }
    let same = admin.catalogue_write(&write(moon("north", "(kept)".into()))).await.unwrap();
    assert_eq!(same.unchanged, 1);
    let refused = admin.catalogue_write(&write(moon("south", "(kept)".into()))).await.unwrap_err();
    assert!(refused.message.starts_with("'crater' changes"), "{refused}");
    assert_eq!(admin.catalogue_write(&write(moon("south", auth))).await.unwrap().changed.len(), 1);
    // What a described field means is known.
    let cloud = |kind: &str, fields: Value| {
        let mut fields = fields;
        fields["api_user"] = json!("id");
        write(json!({"providers": [{"name": "sky", "providertype": kind, "provisioner": fields}]}))
    };
    let first = json!({"api_password": "very secret", "endpoint": "https://a.example"});
    admin.catalogue_write(&cloud("ec2", first)).await.unwrap();
    for (kind, fields, field) in [
        ("ec2", json!({"api_password": "(kept)", "endpoint": "https://b.example"}), "endpoint"),
        ("ec2", json!({"api_password": "(kept)"}), "endpoint"),
        ("moon", json!({"api_password": "(kept)", "endpoint": "https://a.example"}), "providertype"),
    ] {
        let refused = admin.catalogue_write(&cloud(kind, fields)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid);
        assert!(refused.message.starts_with(&format!("'{field}' changes")), "{refused}");
    }
    let harmless = json!({"api_password": "(kept)", "endpoint": "https://a.example", "subnet_id": "s"});
    assert_eq!(admin.catalogue_write(&cloud("ec2", harmless)).await.unwrap().changed.len(), 1);
    // A pool may grow by the key that is kept, not by the password, which machines get to see.
    let pool = |hosts: &str, field: &str, secret: &str| {
        let mut fields = json!({"hosts": hosts});
        fields[field] = json!(secret);
        write(
            json!({"providers": [{"name": field.replace('_', "-"), "providertype": "hosts", "provisioner": fields}]}),
        )
    };
    for (field, is_taken) in [("ssh_key", true), ("ssh_password", false)] {
        admin.catalogue_write(&pool("192.0.2.1", field, "very secret")).await.unwrap();
        let grown = admin.catalogue_write(&pool("192.0.2.1,192.0.2.2", field, "(kept)")).await;
        assert_eq!(grown.is_ok(), is_taken, "{field}: {grown:?}");
    }
}

#[tokio::test]
async fn an_export_is_written_back_by_whoever_may_write() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let moon = json!({"providertypes": [{"name": "moon", "parameters": {}}]});
    world.admin.catalogue_write(&write(moon)).await.unwrap();
    admin.catalogue_write(&write(whole())).await.unwrap();
    let export = admin.catalogue_export().await.unwrap();
    let names = |kind: &str| -> Vec<String> {
        export.0[kind].iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((names("providertypes"), names("automatortypes")), (vec!["moon".to_owned()], vec![]));
    assert_eq!(names("providers"), ["lab"], "what comes with the software is not in it");
    let back = CatalogueWrite { entities: export.clone(), replace: true, dry_run: false };
    let said = admin.catalogue_write(&back).await.unwrap();
    assert_eq!((said.unchanged, said.created, said.changed, said.deleted), (6, vec![], vec![], vec![]));
    // As it comes with the software it is no write either; another one is.
    let built_in = admin.definition_get("providertypes", "hosts", None).await.unwrap().entity;
    let same = Entities([("providertypes".to_owned(), vec![built_in.clone()])].into());
    let same = CatalogueWrite { entities: same, replace: false, dry_run: false };
    assert_eq!(admin.catalogue_write(&same).await.unwrap().unchanged, 1);
    assert_eq!(admin.definition_get("providertypes", "hosts", None).await.unwrap().number, 0);
    let mut other = built_in;
    other["description"] = json!("mine");
    let refused = admin.catalogue_write(&write(json!({"providertypes": [other]}))).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Forbidden);
    assert!(refused.message.ends_with("provider type 'hosts'"), "{}", refused.message);
}

#[tokio::test]
async fn plugin_types_are_the_operators_and_replacing_deletes_the_rest() {
    let world = World::new().await;
    let admin = world.user("mine", Role::Admin).await;
    let kind = json!({"providertypes": [{"name": "moon", "parameters": {"admin": {"fields": {"api_password": {"label": "x", "type": "password"}}}}}]});
    assert_eq!(admin.catalogue_write(&write(kind.clone())).await.unwrap_err().kind, ErrorKind::Forbidden);
    world.admin.catalogue_write(&write(kind)).await.unwrap();
    assert_eq!(admin.definition_get("providertypes", "moon", None).await.unwrap().number, 1);
    let built_in = world.admin.definition_delete("providertypes", "hosts", None).await.unwrap_err();
    assert_eq!(built_in.message, "the provider type 'hosts' comes with the software");
    admin.catalogue_write(&write(whole())).await.unwrap();
    // A field that the same write calls secret, in the loose way of old files, is one.
    let both = json!({
        "providertypes": [{"name": "mars", "parameters": {"admin": {"fields": {"a/b": {"label": "x", "type": "text", "sensitive": "true"}}}}}],
        "providers": [{"name": "red", "providertype": "mars", "provisioner": {"a/b": "very secret"}}]
    });
    world.admin.catalogue_write(&write(both)).await.unwrap();
    let shown = world.admin.definition_get("providers", "red", None).await.unwrap();
    assert_eq!(shown.entity["provisioner"]["a/b"], "(kept)");
    let less = json!({"services": [{"name": "only"}]});
    let replaced = admin.catalogue_write(&CatalogueWrite { replace: true, ..write(less) }).await.unwrap();
    assert_eq!((replaced.created, replaced.deleted.len()), (vec!["services/only".to_owned()], 5));
    let history = admin.event_list(&ListQuery::new().with("subject", "catalogue/mine")).await.unwrap();
    assert_eq!(history.items[0].message, "services/only created, 5 deleted");
}
