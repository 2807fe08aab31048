//! Three root servers on one database: one is killed, one cannot reach the database, and a deployment goes on.

use std::time::Duration;

use bed::{Bed, NodeSettings};

use crate::{WAIT, calm, run, seen, sleeper};

const ROOTS: [&str; 3] = ["r1", "r2", "r3"];

/// The server that holds the tree, as the others see it.
fn holder(bed: &Bed, not: Option<&str>) -> String {
    bed.until("somebody holds the tree", WAIT, || {
        for root in ROOTS.into_iter().filter(|root| Some(*root) != not) {
            let client = bed.client_of(root).ok()?;
            let Ok(health) = bed.wait_for(client.platform_health()) else { continue };
            let duty = health.checks.iter().find(|check| check.message.starts_with("tree: held by "))?;
            let place = duty.message.trim_start_matches("tree: held by ");
            let name = if place == "this server" { root } else { place.split(':').next()? };
            if Some(name) != not {
                return Some(name.to_owned());
            }
        }
        None
    })
    .unwrap()
}

#[test]
fn a_deployment_goes_on_while_root_servers_fail() {
    let mut bed = Bed::new().unwrap();
    let database = bed.database("db").unwrap();
    for root in ROOTS {
        bed.root(root, Some(&database)).unwrap();
    }
    bed.zone("east").unwrap();
    for node in ["e1", "e2"] {
        bed.node("east", node, &NodeSettings::default()).unwrap();
    }
    run(&bed, "before", sleeper());

    // The one that holds the tree is killed, in the middle of it.
    let first = holder(&bed, None);
    let others: Vec<&str> = ROOTS.into_iter().filter(|root| *root != first).collect();
    bed.operate_at(others[0]).unwrap();
    for number in 0..3 {
        bed.create(&format!("a{number}"), sleeper()).unwrap();
    }
    bed.host(&first).unwrap().kill9().unwrap();
    for number in 3..6 {
        bed.create(&format!("a{number}"), sleeper()).unwrap();
    }
    bed.delete("before").unwrap();
    seen(&bed, "a5", "it runs", |seen| seen.phase == model::Phase::Running);

    // The next holder cannot reach the database: it must not act, and the last one does.
    let second = holder(&bed, Some(&first));
    let third = ROOTS.into_iter().find(|root| *root != first && *root != second).unwrap();
    bed.operate_at(&second).unwrap();
    bed.cut(&second, "db").unwrap();
    // Whatever it answers from now on, nothing that it acknowledged may be lost.
    let _ = bed.create("lost-or-not", sleeper());
    bed.operate_at(third).unwrap();
    for number in 0..3 {
        bed.until("the last server takes it", WAIT, || bed.create(&format!("b{number}"), sleeper()).ok())
            .unwrap();
    }
    seen(&bed, "b2", "it runs", |seen| seen.phase == model::Phase::Running);
    std::thread::sleep(Duration::from_secs(2));

    bed.heal().unwrap();
    bed.host(&first).unwrap().restart().unwrap();
    bed.host(&first).unwrap().up_wait().unwrap();
    calm(&bed);
    for root in ROOTS {
        bed.operate_at(root).unwrap();
        calm(&bed);
    }
    forget(&bed, "r1", "r2");
}

/// A server that is there is not removed; one that fell silent is shown until it is removed, and counted again when it
/// is back.
fn forget(bed: &Bed, gone: &str, other: &str) {
    bed.operate_at(other).unwrap();
    let client = bed.client().unwrap();
    let servers = || bed.wait_for(client.server_list()).unwrap();
    let find = || servers().into_iter().find(|server| server.name.starts_with(&format!("{gone}:")));
    assert_eq!(servers().len(), ROOTS.len(), "{:?}", servers());
    let name = find().expect("it is listed").name;
    let error = bed.wait_for(client.server_remove(&name)).unwrap_err();
    assert_eq!(error.kind, model::ErrorKind::Conflict, "{error}");

    bed.host(gone).unwrap().kill9().unwrap();
    bed.until("it is missed", WAIT, || find().is_some_and(|server| server.lost).then_some(())).unwrap();
    bed.wait_for(client.server_remove(&name)).unwrap();
    assert!(find().is_none(), "{:?}", servers());
    let error = bed.wait_for(client.server_remove(&name)).unwrap_err();
    assert_eq!(error.kind, model::ErrorKind::NotFound, "{error}");

    bed.host(gone).unwrap().restart().unwrap();
    bed.host(gone).unwrap().up_wait().unwrap();
    bed.until("it is counted again", WAIT, || find().is_some_and(|server| !server.lost).then_some(()))
        .unwrap();
    calm(bed);
}
