//! The node of `banyan up` is removed, and comes back; then everything is deleted.

use crate::support::guard::Remains;
use crate::support::*;

#[test]
fn a_node_that_was_removed_joins_anew_and_a_purge_forgets_the_context() {
    let cloud = Cloud::start(&[]);
    let name = cloud.good(&["node", "list", "-o", "name"]);
    cloud.good(&["node", "remove", name.trim(), "--force", "--yes"]);
    // Other lights may be red on a machine that is short of something.
    let lonely = || text(&cloud.run(&["health", "--all"]).stdout).contains("has no node");
    until("a zone without a node is not well", || lonely().then_some(()));
    cloud.terminate();
    cloud.up(&[]);
    cloud.greets("it joins anew");
    cloud.create("after", &[], "sleep 100000");
    assert!(!lonely());

    cloud.terminate();
    assert!(cloud.good(&["context", "list"]).contains("local"));
    let data = cloud.data();
    let output = cloud.run(&["down", "--data", data.to_str().unwrap(), "--purge"]);
    says(&text(&output.stderr), &["the context 'local' of the command line is forgotten", "is deleted"]);
    assert!(output.status.success() && !data.exists());
    assert!(!cloud.good(&["context", "list"]).contains("local"));
    assert_eq!(Remains::look(&data, &cloud.tag), Remains::default());
}
