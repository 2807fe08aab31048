//! The core of the tour with the records in PostgreSQL.

use crate::support::*;

#[test]
fn the_tour_goes_through_postgresql() {
    let server = store::testing::Postgres::shared().unwrap();
    let database = server.database().unwrap();
    let cloud = Cloud::start(&["--database", &database]);
    assert!(!cloud.data().join("root/root.db").exists(), "the records went to a file");
    let id = cloud.create("pg", &[], "echo hello; sleep 100000")["id"].as_str().unwrap().to_owned();
    assert_eq!(cloud.logs("pg"), "hello\n");
    assert_eq!(cloud.exec("pg", "exit 5").status.code(), Some(5));
    let life = cloud.life(&id);
    cloud.kill();
    cloud.up(&["--database", &database]);
    assert_eq!(cloud.wait("pg", "running", |i| i["phase"] == "running")["restarts"], 0);
    assert_eq!(cloud.life(&id), life);
    let events = cloud.events("pg");
    for what in ["instance.create", "instance.placed", "instance.started"] {
        assert!(whats(&events).contains(&what), "{what}: {:?}", whats(&events));
    }
    cloud.good(&["instance", "stop", "pg"]);
    cloud.good(&["instance", "start", "pg"]);
    cloud.good(&["tenant", "create", "other"]);
    says(&cloud.bad(&["--tenant", "other", "instance", "get", "pg"]), &["there is no instance"]);
    cloud.good(&["instance", "delete", "pg"]);
    // The shared server must outlive the cloud.
    drop(cloud);
    drop(server);
}

#[test]
fn a_database_that_does_not_answer_is_told() {
    let cloud = Cloud::new();
    let said = cloud.up_refused(&["--database", "postgres://nobody@127.0.0.1:9/none"]);
    says(&said, &["database", "Connection refused", "--database"]);
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
}
