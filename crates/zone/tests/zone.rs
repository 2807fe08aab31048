//! A zone with its real ledger, and nodes and root that are played by the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use link::{ByteStream, Down, ParentHandler, PulseSource, Uplink};
use model::exchange::{Ack, Ask, InstanceUsage, Revision};
use model::{
    Arch, Assignment, Bytes, Check, ChildId, Cpu, Desired, Digest, Error, Facts, Generation, ImageId,
    ImageManifest, InstanceId, InstanceSpec, Light, Observed, ObservedInstance, Phase, PlaceMode, Platform,
    Pulse, Resources, Result, RevisionedSet, Run, RuntimeKind, Sample, TenantId, Timestamp, Usage,
};
use tier::sync::ChildOwner;
use tokio::io::AsyncWrite;
use work::ManualClock;
use zone::{ZoneConfig, ZoneService};

const NOON: Timestamp = Timestamp(1_800_000_000_000_000);
const PATIENCE: Duration = Duration::from_secs(30);

/// Root is away.
struct Nowhere;

impl Uplink for Nowhere {
    fn push(&self, _: Observed) -> BoxFuture<'_, Result<Ack>> {
        Box::pin(async { Err(Error::unavailable("root is away")) })
    }
    fn set_have(&self, _: Option<Revision>) {}
    fn next(&self) -> BoxFuture<'_, Down> {
        Box::pin(std::future::pending())
    }
    fn pulse_from(&self, _: PulseSource) {}
    fn rtt(&self) -> Option<Duration> {
        Some(Duration::from_micros(12_345))
    }
    fn open_stream<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ByteStream>> {
        Box::pin(async { Err(Error::unavailable("root is away")) })
    }
    fn blob<'a>(
        &'a self,
        _: &'a Digest,
        _: &'a mut (dyn AsyncWrite + Send + Unpin),
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { Err(Error::unavailable("root is away")) })
    }
}

struct World {
    zone: ZoneService,
    clock: Arc<ManualClock>,
    task: tokio::task::JoinHandle<()>,
    ledger: std::path::PathBuf,
}

impl World {
    fn new(dir: &Path) -> Self {
        Self::with(dir, |_| {})
    }

    fn with(dir: &Path, change: impl FnOnce(&mut ZoneConfig)) -> Self {
        let clock = Arc::new(ManualClock::new(NOON));
        let mut config = ZoneConfig::new("east".parse().unwrap(), dir.to_owned());
        change(&mut config);
        let zone = ZoneService::open(config, Arc::new(Nowhere), clock.clone()).unwrap();
        let running = zone.clone();
        let task = tokio::spawn(async move { running.run().await });
        Self { zone, clock, task, ledger: dir.join("ledger.redb") }
    }

    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
        drop(self.zone);
        // What was being written when it ended is written to its end.
        while tier::ledger::Ledger::open(&self.ledger).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Lets time pass as it does, in steps that the zone sees, and hears these nodes meanwhile.
    async fn pass(&self, ms: i64, wanted: &[Assignment], heard: &[&ChildId]) {
        for _ in 0..ms / 3_000 {
            self.clock.advance_ms(3_000);
            heard.iter().for_each(|node| self.hear(node, |_| {}));
            let rev = work::Clock::now(&*self.clock).0.unsigned_abs();
            self.zone.take(from_root(rev, wanted.to_vec())).await.unwrap();
        }
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, ask: Ask) -> Result<T> {
        let (mine, theirs) = ByteStream::pair();
        let zone = self.zone.clone();
        tokio::spawn(ChildOwner::answer(&zone, ask, theirs));
        let mut mine = mine;
        let bytes = tokio::time::timeout(PATIENCE, mine.read_all(1 << 20)).await.expect("an answer")?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    /// What the zone tells root of an instance.
    fn told(&self, id: &InstanceId) -> Option<ObservedInstance> {
        self.zone.report(None)?.set.upserts.into_iter().find(|one| one.id == *id)
    }

    fn hear(&self, node: &ChildId, change: impl FnOnce(&mut Pulse)) {
        let at = work::Clock::now(&*self.clock);
        let usage = Usage { cpu_milli: 500, disk_used_bytes: 1, disk_total_bytes: 9, ..Usage::default() };
        let mut pulse = Pulse { at, usage: Some(usage), ..Pulse::default() };
        change(&mut pulse);
        self.zone.heard(node, Some(&pulse));
    }
}

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "it never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn node(name: &str) -> (ChildId, Facts) {
    let capacity = Resources { cpu: Cpu(4000), memory: Bytes::mib(4096), disk: Bytes::mib(4096) };
    let facts = Facts {
        archs: vec![Arch::HOST],
        runtimes: vec![RuntimeKind::Container],
        capacity,
        ..Facts::new(name.parse().unwrap(), "1")
    };
    (ChildId::from(format!("id-{name}").as_str()), facts)
}

fn observed(facts: &Facts, rev: u64, upserts: Vec<ObservedInstance>) -> Observed {
    let at = Revision { epoch: 1, rev };
    Observed {
        facts: facts.clone(),
        set: RevisionedSet { base: None, at, upserts, removes: vec![], more: false, upto: None },
    }
}

fn wanted(number: u128) -> Assignment {
    Assignment {
        id: InstanceId::from_random(number),
        tenant: TenantId::from_random(1),
        name: "web-1".parse().unwrap(),
        generation: Generation { major: 1, minor: 0 },
        run: Run::Running,
        restart_count: 0,
        spec: InstanceSpec::new("busybox").into(),
        group: None,
        image: Arc::new(ImageManifest {
            id: ImageId::from_random(1),
            platform: Platform { arch: Arch::HOST },
            layers: Vec::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            env: BTreeMap::new(),
            user: None,
            workdir: None,
        }),
    }
}

fn from_root(rev: u64, upserts: Vec<Assignment>) -> Desired {
    RevisionedSet {
        base: None,
        at: Revision { epoch: 1, rev },
        upserts,
        removes: vec![],
        more: false,
        upto: None,
    }
}

/// What a node is told that has nothing yet.
async fn desired_of(zone: &ZoneService, node: &ChildId) -> Vec<Assignment> {
    tokio::time::timeout(PATIENCE, ParentHandler::desired(zone, node, None)).await.unwrap().unwrap().upserts
}

fn runs(at: &Assignment) -> ObservedInstance {
    ObservedInstance::new(at.id.clone(), at.generation, Phase::Running)
}

#[tokio::test]
async fn after_a_cut_the_old_holder_is_not_believed_and_is_told_to_drop_it() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let ((a, facts_a), (b, facts_b)) = (node("a"), node("b"));
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    let instance = wanted(1);
    world.zone.take(from_root(1, vec![instance.clone()])).await.unwrap();
    let first = desired_of(&world.zone, &a).await.pop().expect("it is placed on the only node");
    world.zone.observed(&a, observed(&facts_a, 2, vec![runs(&first)])).await.unwrap();
    let told =
        until("it runs", || world.told(&instance.id).filter(|told| told.phase == Phase::Running)).await;
    assert_eq!(told.generation, instance.generation);

    // The node is cut off for longer than its lease; another one takes over.
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    world.pass(60_000, std::slice::from_ref(&instance), &[&b]).await;
    let second = until("it is placed again", || {
        let desired = futures::FutureExt::now_or_never(ParentHandler::desired(&world.zone, &b, None))?;
        desired.unwrap().upserts.pop()
    })
    .await;
    assert!(second.generation > first.generation);
    let mut there = runs(&second);
    there.node = Some("b".parse().unwrap());
    world.zone.observed(&b, observed(&facts_b, 2, vec![there])).await.unwrap();

    // The link heals. The old holder speaks first, and loudest.
    world.zone.link_state(&a, true);
    world.zone.observed(&a, observed(&facts_a, 3, vec![runs(&first)])).await.unwrap();
    assert!(desired_of(&world.zone, &a).await.is_empty(), "its first word from the zone takes it away");
    let told = world.told(&instance.id).unwrap();
    assert_eq!((told.phase, told.node), (Phase::Running, Some("b".parse().unwrap())));
    world.zone.observed(&a, observed(&facts_a, 4, vec![])).await.unwrap();
    assert_eq!(world.told(&instance.id).unwrap().phase, Phase::Running);
    world.end().await;
}

#[tokio::test]
async fn a_clock_that_is_corrected_loses_no_node() {
    // The real clock, because the steady time is its own.
    let dir = tempfile::tempdir().unwrap();
    struct Jumps(std::sync::atomic::AtomicI64);
    impl work::Clock for Jumps {
        fn now(&self) -> Timestamp {
            work::SystemClock.now().plus_ms(self.0.load(std::sync::atomic::Ordering::SeqCst))
        }
        fn steady(&self) -> Timestamp {
            work::SystemClock.steady()
        }
    }
    let clock = Arc::new(Jumps(std::sync::atomic::AtomicI64::new(0)));
    let config = ZoneConfig::new("east".parse().unwrap(), dir.path().to_owned());
    let zone = ZoneService::open(config, Arc::new(Nowhere), clock.clone()).unwrap();
    let running = zone.clone();
    let task = tokio::spawn(async move { running.run().await });
    let (a, facts) = node("a");
    zone.observed(&a, observed(&facts, 1, vec![])).await.unwrap();
    for jump_ms in [3_600_000, -86_400_000] {
        clock.0.store(jump_ms, std::sync::atomic::Ordering::SeqCst);
        zone.take(from_root(jump_ms.unsigned_abs(), vec![wanted(jump_ms.unsigned_abs().into())]))
            .await
            .unwrap();
        assert_eq!(desired_of(&zone, &a).await.len(), 1, "the node lives on after a jump of {jump_ms} ms");
    }
    task.abort();
    let _ = task.await;
}

#[tokio::test]
async fn the_history_outlives_the_zone() {
    let dir = tempfile::tempdir().unwrap();
    let (a, facts) = node("a");
    let (b, facts_b) = node("b");
    let world = World::new(dir.path());
    world.zone.observed(&a, observed(&facts, 1, vec![])).await.unwrap();
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    for _ in 0..4 {
        world.clock.advance_ms(15_000);
        world.hear(&a, |_| {});
        world.hear(&b, |pulse| pulse.usage.as_mut().unwrap().cpu_milli = 250);
        world.zone.sample_take();
    }
    let of = |node: Option<&str>| Ask::History { node: node.map(|n| n.parse().unwrap()), since: NOON };
    let samples: Vec<Sample> = world.ask(of(Some("a"))).await.unwrap();
    assert_eq!(samples.len(), 4);
    let zone: Vec<Sample> = world.ask(of(None)).await.unwrap();
    assert!(zone.iter().all(|sample| sample.usage.cpu_milli == 750), "{zone:?}");
    let late = Ask::History { node: None, since: NOON.plus_ms(45_000) };
    assert_eq!(world.ask::<Vec<Sample>>(late).await.unwrap().len(), 2);
    let error = world.ask::<Vec<Sample>>(of(Some("nobody"))).await.unwrap_err();
    assert!(error.message.contains("nobody"), "{error}");
    world.zone.history_save().await;
    world.end().await;

    let world = World::new(dir.path());
    world.zone.observed(&a, observed(&facts, 1, vec![])).await.unwrap();
    assert_eq!(world.ask::<Vec<Sample>>(of(Some("a"))).await.unwrap(), samples);
    assert_eq!(world.ask::<Vec<Sample>>(of(None)).await.unwrap(), zone);
    world.end().await;
}

#[tokio::test]
async fn health_tells_the_sick_from_the_sound() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let nodes = ["sound", "silent", "skewed"].map(node);
    for (id, facts) in &nodes {
        world.zone.observed(id, observed(facts, 1, vec![])).await.unwrap();
    }
    world.pass(60_000, &[], &[&nodes[0].0, &nodes[2].0]).await;
    world.hear(&nodes[0].0, |pulse| pulse.certificate_until = Some(NOON.plus_ms(300 * 86_400_000)));
    for _ in 0..3 {
        world.hear(&nodes[2].0, |pulse| {
            pulse.at = pulse.at.plus_ms(-40_000);
            pulse.orphans_removed = 1;
        });
    }
    let lit = async || -> Vec<String> {
        let checks: Vec<Check> = world.ask(Ask::Health).await.unwrap();
        assert!(checks.iter().any(|check| check.subject == "zone east" && check.message.contains("12.3 ms")));
        // The disk is the real one of this machine, whatever that is like.
        let lit = checks.iter().filter(|check| check.light != Light::Green && check.name != "disk");
        let mut lit: Vec<_> = lit.map(|c| format!("{} {} {:?}", c.subject, c.name, c.light)).collect();
        lit.sort();
        lit
    };
    let mut found = lit().await;
    // The lease of the silent one lapses with the zone's next look at the clock.
    for _ in 0..500 {
        if found.len() == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        found = lit().await;
    }
    assert_eq!(found, ["node silent lease Red", "node skewed clock Red", "node skewed orphan Yellow"]);
    let report: Vec<model::exchange::NodeReport> = world.ask(Ask::Nodes).await.unwrap();
    let skewed = report.iter().find(|node| node.facts.name.as_str() == "skewed").unwrap();
    assert_eq!((skewed.clock_ahead_ms, skewed.usage.as_ref().unwrap().cpu_milli), (-40_000, 500));
    world.end().await;
}

#[tokio::test]
async fn a_question_with_too_many_instances_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let instances = (0..20_001).map(InstanceId::from_random).collect();
    let error = world.ask::<serde_json::Value>(Ask::Usage { instances }).await.unwrap_err();
    assert!(error.message.contains("20000"), "{error}");
    let none: Vec<serde_json::Value> =
        world.ask(Ask::Usage { instances: vec![InstanceId::from_random(1)] }).await.unwrap();
    assert!(none.is_empty(), "nobody holds it");
    world.end().await;
}

#[tokio::test]
async fn orders_about_nodes_are_kept_and_a_removed_node_never_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let [(a, facts_a), (b, facts_b)] = ["a", "b"].map(node);
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    let name = |name: &str| name.parse::<model::Name>().unwrap();
    let label = |unset: &[&str]| Ask::Label {
        node: name("a"),
        set: BTreeMap::from([("rack".to_owned(), "7".to_owned())]),
        unset: unset.iter().map(|key| (*key).to_owned()).collect(),
        seen: None,
    };
    let maintenance = Ask::Mode { node: name("a"), mode: PlaceMode::Maintenance, force: true, seen: None };
    for ask in [maintenance, label(&[]), Ask::Remove { node: name("b"), force: false }] {
        assert_eq!(world.ask::<serde_json::Value>(ask).await.unwrap(), serde_json::json!({}));
    }
    for ask in [
        Ask::Mode { node: name("nobody"), mode: PlaceMode::Open, force: false, seen: None },
        Ask::Label { node: name("nobody"), set: BTreeMap::new(), unset: vec![], seen: None },
        Ask::Label {
            node: name("a"),
            set: BTreeMap::from([("bad key".into(), "x".into())]),
            unset: vec![],
            seen: None,
        },
        Ask::Remove { node: name("b"), force: true },
    ] {
        assert!(world.ask::<serde_json::Value>(ask).await.is_err());
    }
    world.end().await;

    let world = World::new(dir.path());
    assert!(world.zone.admits(&a) && !world.zone.admits(&b));
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    let nodes: Vec<model::exchange::NodeReport> = world.ask(Ask::Nodes).await.unwrap();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!((nodes[0].facts.name.as_str(), nodes[0].mode), ("a", PlaceMode::Maintenance));
    assert_eq!(nodes[0].facts.labels["rack"], ["7"]);
    world.ask::<serde_json::Value>(label(&["rack"])).await.unwrap();
    let nodes: Vec<model::exchange::NodeReport> = world.ask(Ask::Nodes).await.unwrap();
    assert!(!nodes[0].facts.labels.contains_key("rack"));
    world.end().await;
}

#[tokio::test]
async fn a_removed_zone_lets_its_nodes_drop_everything_also_in_its_next_life() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let (a, facts_a) = node("a");
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    world.zone.take(from_root(7, vec![wanted(1), wanted(2)])).await.unwrap();
    let held = desired_of(&world.zone, &a).await;
    assert_eq!(held.len(), 2);
    world.zone.observed(&a, observed(&facts_a, 2, held.iter().map(runs).collect())).await.unwrap();

    ChildOwner::removed(&world.zone).await.unwrap();
    assert!(desired_of(&world.zone, &a).await.is_empty());
    assert_eq!(world.zone.have(), None, "a root that would take it back is asked for everything");
    assert!(world.zone.admits(&a), "its nodes hear of it");
    ChildOwner::removed(&world.zone).await.unwrap();
    world.end().await;

    let world = World::new(dir.path());
    world.zone.observed(&a, observed(&facts_a, 1, held.iter().map(runs).collect())).await.unwrap();
    assert!(desired_of(&world.zone, &a).await.is_empty());
    assert!(world.told(&held[0].id).is_none());
    world.end().await;
}

#[tokio::test]
async fn only_a_node_that_was_removed_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let [(a, facts_a), (stranger, _)] = ["a", "stranger"].map(node);
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    let removed = |node| ParentHandler::removed(&world.zone, node);
    assert!(!removed(&a) && !removed(&stranger));
    let remove = Ask::Remove { node: "a".parse().unwrap(), force: true };
    world.ask::<serde_json::Value>(remove).await.unwrap();
    assert!(removed(&a) && !removed(&stranger));
    world.end().await;
}

#[tokio::test]
async fn the_zones_place_is_that_of_its_nodes_unless_they_say_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let [berlin, hamburg] = [(52.5, 13.4), (53.6, 10.0)].map(|(latitude, longitude)| {
        let area = serde_json::json!({ "latitude": latitude, "longitude": longitude, "radius_km": 5 });
        serde_json::from_value::<model::Area>(area).unwrap()
    });
    let world = World::with(dir.path(), |config| config.area = Some(berlin));
    let told = || world.zone.report(None).unwrap().facts.area;
    assert_eq!(told(), Some(berlin), "also without a node");
    let [(a, facts_a), (b, mut facts_b)] = ["a", "b"].map(node);
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    assert_eq!(told(), Some(berlin));
    facts_b.area = Some(hamburg);
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    assert_eq!(told(), Some(berlin.hull(&hamburg)));
    let nodes: Vec<model::exchange::NodeReport> = world.ask(Ask::Nodes).await.unwrap();
    let area_of = |name: &str| nodes.iter().find(|node| node.facts.name.as_str() == name).unwrap().facts.area;
    assert_eq!((area_of("a"), area_of("b")), (Some(berlin), Some(hamburg)));
    world.end().await;
}

#[tokio::test]
async fn the_way_to_root_is_the_zones_own_and_that_of_its_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::new(dir.path());
    let [(a, mut facts_a), (b, mut facts_b)] = ["a", "b"].map(node);
    let leg = |us| BTreeMap::from([("zone".to_owned(), model::Leg::of(us))]);
    (facts_a.legs, facts_b.legs) = (leg(1_000), leg(9_000));
    world.zone.observed(&a, observed(&facts_a, 1, vec![])).await.unwrap();
    world.zone.observed(&b, observed(&facts_b, 1, vec![])).await.unwrap();
    let root =
        until("the way to root is told", || world.zone.report(None)?.facts.legs.get("root").copied()).await;
    // The way up of these tests takes 12.345 ms, rounded up to two digits.
    assert_eq!((root.min_us, root.max_us), (13_000 + 1_000, 13_000 + 9_000));
    assert!(!world.zone.report(None).unwrap().facts.legs.contains_key("zone"));
    world.end().await;
}

/// A node that runs whatever it is given, and says how much each instance uses.
struct Player {
    child: std::sync::Mutex<tier::Child>,
    news: work::Wake,
    cpu_milli: u64,
}

impl ChildOwner for Player {
    fn have(&self) -> Option<Revision> {
        self.child.lock().unwrap().have()
    }
    fn take(&self, desired: Desired) -> BoxFuture<'_, Result<()>> {
        let mut child = self.child.lock().unwrap();
        child.desired(desired).unwrap();
        let running: Vec<_> = child.assignments().map(runs).collect();
        for one in running {
            child.observe(one);
        }
        self.news.wake();
        Box::pin(async { Ok(()) })
    }
    fn removed(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { panic!("nobody is removed here") })
    }
    fn report(&self, acked: Option<Revision>) -> Option<Observed> {
        self.child.lock().unwrap().report(acked)
    }
    fn told(&self, facts: Facts) {
        self.child.lock().unwrap().told(facts);
    }
    fn page_halve(&self) -> Option<usize> {
        self.child.lock().unwrap().page_halve()
    }
    fn page_restore(&self) {
        self.child.lock().unwrap().page_restore();
    }
    fn news(&self) -> work::Wake {
        self.news.clone()
    }
    fn answer(&self, ask: Ask, stream: ByteStream) -> BoxFuture<'static, ()> {
        let Ask::Usage { instances } = ask else { panic!("only that is asked here") };
        // It also speaks of one that it was not asked for.
        let ids = instances.into_iter().chain([InstanceId::from_random(999)]);
        let usage = |id| InstanceUsage { id, cpu_milli: self.cpu_milli, memory_bytes: 1 };
        let body = serde_json::to_vec(&ids.map(usage).collect::<Vec<_>>()).unwrap();
        Box::pin(async move {
            stream.send(link::Frame::Data(body.into())).await.unwrap();
            stream.send(link::Frame::Eof).await.unwrap();
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_asked_of_every_node_over_the_link_and_joined() {
    use link::{Ca, Children, HttpsParent, HttpsParentConfig, Identity, Kind};
    const ZONE: &str = "z-00000000000000001";
    let dir = tempfile::tempdir().unwrap();
    link::tls::provider_install();
    let ca = Arc::new(Ca::create_or_load(&dir.path().join("ca")).unwrap());
    let world = World::new(dir.path());
    let sans = ["127.0.0.1".to_owned()];
    let valid = link::limits::CERT_VALID;
    let parent = HttpsParentConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        server: ca.issue_fresh(Identity::new(Kind::Server, ZONE), &sans, valid).unwrap(),
        children: Children::nodes_of(ZONE),
        desk: None,
        issuer: None,
        peers: None,
        dispatcher: None,
    };
    let zone = Arc::new(world.zone.clone());
    let https = HttpsParent::start(parent, zone, world.zone.calls()).await.unwrap();
    let mut tasks = Vec::new();
    for (name, cpu_milli) in [("a", 100), ("b", 200)] {
        let id = model::NodeId::from_random(cpu_milli.into()).to_string();
        let me = ca.issue_fresh(Identity::new(Kind::Node, id).under(ZONE), &[], valid).unwrap();
        let uplink = link::https_uplink(&me, &format!("https://{}", https.address())).unwrap();
        let child = std::sync::Mutex::new(tier::Child::new(1, node(name).1, tier::Inbox::default()));
        let player = Arc::new(Player { child, news: work::Wake::new(), cpu_milli });
        tasks.push(tokio::spawn(tier::sync::run(player, uplink)));
    }
    until("both nodes are known", || (world.zone.report(None)?.facts.nodes == 2).then_some(())).await;
    // More than one node can hold.
    let mut all: Vec<Assignment> = (1..=6).map(wanted).collect();
    all.iter_mut().for_each(|one| Arc::make_mut(&mut one.spec).cpu = Cpu(1000));
    world.zone.take(from_root(1, all.clone())).await.unwrap();
    let ids: Vec<InstanceId> = all.iter().map(|one| one.id.clone()).collect();
    until("all run", || {
        ids.iter().all(|id| world.told(id).is_some_and(|told| told.phase == Phase::Running)).then_some(())
    })
    .await;
    let asked = ids.iter().cloned().chain([InstanceId::from_random(77)]).collect();
    let usages: Vec<InstanceUsage> = world.ask(Ask::Usage { instances: asked }).await.unwrap();
    let mut found: Vec<InstanceId> = usages.iter().map(|usage| usage.id.clone()).collect();
    found.sort();
    assert_eq!(found, ids, "each once, and none that was not asked for");
    let mut cpus: Vec<u64> = usages.iter().map(|usage| usage.cpu_milli).collect();
    cpus.sort_unstable();
    cpus.dedup();
    assert_eq!(cpus, [100, 200], "from both nodes");
    // A node that is away is left out; the others are still heard.
    tasks.remove(0).abort();
    let left: Vec<InstanceUsage> = until_async(
        || world.ask(Ask::Usage { instances: ids.clone() }),
        |usages: &Vec<InstanceUsage>| usages.len() < ids.len(),
    )
    .await;
    assert!(left.iter().all(|usage| usage.cpu_milli == 200), "{left:?}");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    drop(https);
    world.end().await;
}

async fn until_async<T, F>(mut look: impl FnMut() -> F, holds: impl Fn(&T) -> bool) -> T
where
    F: Future<Output = Result<T>>,
{
    let waiting = async {
        loop {
            if let Ok(found) = look().await
                && holds(&found)
            {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it comes true")
}

#[test]
fn a_set_that_could_not_be_kept_leaves_nothing_behind() {
    let (node, facts) = node("n1");
    let config = || tier::ParentConfig::over_nodes("east", 1);
    let mut kept = zone::core::Kept::default();
    let mut core = zone::core::Core::new("east".parse().unwrap(), "1", config(), kept.clone(), NOON);
    core.node_observed(&node, observed(&facts, 1, vec![]), NOON);
    let (stays, comes) = (wanted(1), wanted(2));
    kept.apply(&core.desired(from_root(1, vec![stays.clone()])).unwrap());
    let step = core.step(NOON);
    kept.apply(&step.writes);
    core.committed(&step.decisions, NOON);
    let before = core.node_desired(&node, None).unwrap().upserts;
    assert_eq!(before.iter().map(|one| &one.id).collect::<Vec<_>>(), [&stays.id]);

    // The disk is full: one comes and one goes, and neither is kept.
    let difference = |rev, upserts, removes| RevisionedSet {
        base: Some(Revision { epoch: 1, rev: 1 }),
        at: Revision { epoch: 1, rev },
        upserts,
        removes,
        more: false,
        upto: None,
    };
    core.desired(difference(2, vec![comes.clone()], vec![stays.id.clone()])).unwrap();
    let step = core.step(NOON);
    core.rejected(&step.decisions);
    core.desired_restore(kept.clone());
    assert_eq!(core.have(), Some(Revision { epoch: 1, rev: 1 }), "it is asked for again");

    // Meanwhile root changed its mind about both, so the next set names only what it does not know to be here.
    kept.apply(&core.desired(difference(3, vec![], vec![comes.id.clone()])).unwrap());
    let step = core.step(NOON);
    assert!(step.decisions.is_empty(), "nothing is to be placed");
    assert_eq!(core.node_desired(&node, None).unwrap().upserts, before, "where it was, under its generation");
}
