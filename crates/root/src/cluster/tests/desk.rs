//! The desk by itself: jobs that would never end, and large ones that fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::JobStatus;
use model::{Report, Timestamp};
use work::queue::Claim;

use super::super::desk::{Desk, FORSAKEN_MS, Said};
use super::super::end::end;
use super::super::live::{Live, News};
use super::super::record::{JobRecord, Machine, NodeRecord, PlanRow, PlanTask, Purpose, Shape, Verb};
use super::fixture::{catalogue, cluster};

/// A job with tasks of any nodes. Those of a delete have machines that go.
fn live(purpose: Purpose, force: bool, plan: Vec<PlanTask>) -> Live {
    let cluster = cluster();
    let goes = purpose == Purpose::Delete;
    let numbers: BTreeSet<u32> = plan.iter().map(|task| task.node).collect();
    let row = |num: &u32| {
        let before = goes.then(Vec::new);
        let (hardwaretype, imagetype) = ("h".to_owned(), "i".to_owned());
        let row = PlanRow {
            num: *num,
            services: Vec::new(),
            before,
            gone: goes,
            given_up: false,
            hardwaretype,
            imagetype,
        };
        (*num, row)
    };
    let node = |num: &u32| {
        let planned = NodeRecord::planned(&cluster.id, &row(num).1, format!("site-{num}"));
        let machine = if goes { Machine::Made } else { Machine::None };
        let node = NodeRecord { machine, confirmed: goes, joined: goes, ..planned };
        (*num, node)
    };
    let job = JobRecord {
        cluster: cluster.id.clone(),
        tenant: cluster.tenant.clone(),
        number: 1,
        action: "CLUSTER_DELETE".into(),
        purpose,
        was: cluster.status,
        force,
        target: Shape::default(),
        cost: None,
        status: JobStatus::Running,
        pages: vec![1],
        undo: None,
        total: 0,
        done: 0,
        failed: 0,
        failing: None,
        message: None,
        created_at: Timestamp(0),
        created_by: "ada".into(),
        ended_at: None,
    };
    Live {
        rows: numbers.iter().map(row).collect(),
        nodes: numbers.iter().map(node).collect(),
        cluster: Arc::new(cluster),
        job,
        catalogue: Arc::new(catalogue(false)),
        secrets: BTreeMap::new(),
        plan,
        tasks: BTreeMap::new(),
        dirty: Default::default(),
        counted: Timestamp(0),
        plugins: Default::default(),
        shown: None,
    }
}

fn task(verb: Verb, node: u32, needs: &[u32]) -> PlanTask {
    PlanTask { verb: Some(verb), node, service: String::new(), needs: needs.to_vec() }
}

fn at(ms: i64) -> Timestamp {
    Timestamp(ms * 1_000)
}

/// What a provisioner that does so much at once is given.
fn asked(desk: &mut Desk, capacity: u32, holds: &[Claim], now: Timestamp) -> Vec<Claim> {
    let plugins = BTreeSet::new();
    let said = Said { session: "s", capacity, plugins: &plugins, holds };
    desk.hear("ada", said, &mut None, now, now);
    desk.rebalance();
    desk.give("ada", now, now)
}

/// Reports the end of a task; what is decided counts at once.
fn told(desk: &mut Desk, claim: &Claim, report: Report, now: Timestamp) {
    desk.finishing(claim);
    let outcome = desk.fold(claim, News::Report(report), now).expect("the claim holds");
    desk.settle_all(&[(claim.clone(), outcome)], now);
    desk.finished(std::iter::once(claim));
}

#[test]
fn a_job_whose_tasks_wait_for_what_will_never_be_done_is_seen() {
    let mut desk = Desk::new(1);
    let plan = vec![task(Verb::Delete, 1000, &[]), task(Verb::Start, 1001, &[0])];
    desk.open(live(Purpose::Delete, false, plan), None).expect("the plan is sound");
    let given = asked(&mut desk, 4, &[], at(0));
    assert_eq!((given.len(), given[0].task), (1, 0));
    assert!(desk.stuck().is_empty() && desk.over().is_empty());
    let refused = Report { status: 400, message: "no".into(), ..Report::default() };
    told(&mut desk, &given[0], refused, at(10));
    // The delete is given up, and its job does not fail by it: nothing will ever free the other.
    let id = given[0].job.clone();
    assert_eq!((desk.stuck(), desk.over()), (vec![id.clone()], vec![]));
    desk.lives.get_mut(&id).expect("it is there").fail("it waits in vain");
    desk.failing(&id);
    assert_eq!((desk.stuck(), desk.over()), (vec![], vec![id]));
}

#[test]
fn machines_are_given_up_where_no_provisioner_is() {
    let plan: Vec<PlanTask> = (1000..1003).map(|num| task(Verb::Delete, num, &[])).collect();
    let mut desk = Desk::new(1);
    desk.open(live(Purpose::Delete, true, plan.clone()), None).expect("the plan is sound");
    desk.forsake(at(0));
    desk.forsake(at(FORSAKEN_MS - 1));
    assert!(desk.over().is_empty());
    desk.forsake(at(FORSAKEN_MS));
    let over = desk.over();
    assert_eq!(over.len(), 1);
    let live_of = |desk: &Desk| desk.lives.values().next().map(|live| end(live, &cluster(), at(FORSAKEN_MS)));
    let ended = live_of(&desk).expect("it is there");
    assert!(ended.cluster.is_none() && ended.gone == [1000, 1001, 1002]);
    let message = ended.job.message.expect("a message");
    assert!(
        message.contains("no provisioner was there") && message.contains("site-1001 of node 1001"),
        "{message}"
    );

    // One that is there is waited for, and so is one that comes meanwhile. Without force nobody gives up.
    for (force, comes) in [(true, true), (false, false)] {
        let mut desk = Desk::new(1);
        desk.open(live(Purpose::Delete, force, plan.clone()), None).expect("the plan is sound");
        desk.forsake(at(0));
        if comes {
            assert_eq!(asked(&mut desk, 4, &[], at(FORSAKEN_MS / 2)).len(), 3);
        }
        desk.forsake(at(FORSAKEN_MS));
        desk.forsake(at(10 * FORSAKEN_MS));
        assert!(desk.over().is_empty(), "{force}");
    }
}

#[test]
fn what_a_machine_that_starts_anew_is_asked_for_is_tried_for_two_minutes() {
    let plan = || vec![task(Verb::Install, 1000, &[])];
    let waited = |status: i32| {
        let mut desk = Desk::new(1);
        let mut live = live(Purpose::Operate, false, plan());
        live.rows.values_mut().for_each(|row| row.before = Some(Vec::new()));
        desk.open(live, None).expect("the plan is sound");
        let (mut now, mut tries) = (0, 0);
        while desk.over().is_empty() {
            desk.queue.mature(at(now));
            for claim in asked(&mut desk, 4, &[], at(now)) {
                tries += 1;
                let report = Report { status, message: "no".into(), is_passing: true, ..Report::default() };
                told(&mut desk, &claim, report, at(now));
            }
            now += 1_000;
        }
        (tries, now / 1_000)
    };
    assert_eq!(waited(1).0, 5);
    let (tries, seconds) = waited(503);
    assert!(tries == 8 && (120..200).contains(&seconds), "{tries} {seconds}");
}

#[test]
fn a_large_job_that_fails_lets_go_of_what_is_done_in_vain() {
    let plan: Vec<PlanTask> = (0..10_000).map(|at| task(Verb::Install, 1000 + at, &[])).collect();
    let mut desk = Desk::new(1);
    desk.open(live(Purpose::Create, false, plan), None).expect("the plan is sound");
    let mut held = Vec::new();
    for _ in 0..10 {
        held.extend(asked(&mut desk, 10_000, &held.clone(), at(0)));
    }
    assert_eq!(held.len(), 10_000);
    let id = held[0].job.clone();
    desk.lives.get_mut(&id).expect("it is there").fail("no");
    desk.failing(&id);
    assert_eq!(desk.over(), [id]);
    assert!(held.iter().all(|claim| desk.is_vain("ada", claim)));
    assert!(!desk.is_vain("bob", &held[0]));
}
