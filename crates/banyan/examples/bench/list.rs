//! Lists and filters over many instances, through REST. The records are put into the store of a root
//! of its own, as root's tree would have left them; nothing is placed while it is measured.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use api::{Client, ListQuery};
use model::{
    Arch, Generation, ImageId, ImageManifest, InstanceId, InstanceSpec, ObservedInstance, Phase, Platform,
    Run, TenantId, Timestamp, ZoneId,
};
use root::image::ImageStore;
use root::tables::{InstanceRecord, StatusRecord, ZoneRecord, encode, kind};
use root::tree::{TreeConfig, TreeService};
use root::{AdminCredentials, Cloud, Config, Endpoints, Running, State};
use store::{Store, Txn};
use work::{Clock, SharedClock, SystemClock};

use crate::times::{Times, head};

const TOKEN_FILE: &str = "token";
const ROUNDS: usize = 50;
const ZONES: u128 = 10;
/// Instances written in one transaction.
const BATCH: usize = 250;

pub async fn run(count: usize) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // By a process of its own, so that the memory of the one that is measured is its own alone.
    let mut filler = std::process::Command::new(std::env::current_exe()?);
    let filled = filler.arg("list-fill").arg(count.to_string()).arg(folder.path()).status()?;
    ensure!(filled.success(), "the records were not written");
    let token = std::fs::read_to_string(folder.path().join(TOKEN_FILE))?;
    let since = Instant::now();
    let root = Root::start(folder.path()).await?;
    println!(
        "root over them is up in {:.1} s, {:.0} MB resident",
        since.elapsed().as_secs_f64(),
        resident_mb()
    );
    let client = Client::new(&format!("http://{}", root.running.addr), Some(token))?;
    measure(&client, count).await?;
    root.stop().await;
    Ok(())
}

/// Makes a root in `folder` and puts the records into its store.
pub async fn prepare(count: usize, folder: &Path) -> Result<()> {
    let root = Root::start(folder).await?;
    let admin = root.admin.clone().context("a new root has a new operator")?;
    std::fs::write(folder.join(TOKEN_FILE), admin.token)?;
    let since = Instant::now();
    fill(&root.state, count).await?;
    println!("{count} instances written into SQLite in {:.1} s", since.elapsed().as_secs_f64());
    root.stop().await;
    Ok(())
}

struct Root {
    state: State,
    running: Running,
    admin: Option<AdminCredentials>,
}

impl Root {
    async fn start(folder: &Path) -> Result<Self> {
        let mut config = Config::new(folder);
        config.listen = "127.0.0.1:0".parse()?;
        let clock: SharedClock = Arc::new(SystemClock);
        let state = State::open(Store::open(&config.database_url()).await?).await?;
        let images = ImageStore::open(folder.join("images"))?;
        let tree =
            TreeService::open(state.clone(), images.clone(), clock.clone(), TreeConfig::default()).await?;
        let cloud = Cloud::new(config, state.clone(), Arc::new(tree), images, clock).await?;
        let none = String::new;
        let ends = Endpoints { endpoint: none(), s3_endpoint: none(), ec2_endpoint: none() };
        let admin = root::bootstrap(&cloud, ends).await?;
        Ok(Self { state, running: root::serve(cloud).await?, admin })
    }

    async fn stop(self) {
        self.running.shutdown().await;
        self.state.store().clone().close().await;
    }
}

async fn measure(client: &Client, count: usize) -> Result<()> {
    head(&format!("GET /v1/instances over {count}"));
    let queries = [
        ("a page of 100", ListQuery::new()),
        ("a page of 1,000", ListQuery::new().limit(1000)),
        ("a page of 100 from the middle", ListQuery::new().after("web-5")),
        ("filter by name, one fits", ListQuery::new().with("name", format!("*-{}", count - 1))),
        ("filter by phase, 1 in 1,000 fits", ListQuery::new().with("phase", "failed")),
        ("filter by label, 1 in 100 fits", ListQuery::new().with("label", "app=app-7")),
        (
            "filter by zone and phase, 1 in 10 fits",
            ListQuery::new().with("zone", "zone-3").with("phase", "running"),
        ),
        ("filter by node, none fits", ListQuery::new().with("node", "nowhere")),
    ];
    for (what, query) in queries {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let since = Instant::now();
            client.instance_list(&query).await.with_context(|| what.to_owned())?;
            times.push(since.elapsed());
        }
        Times::new(times).row(what);
    }
    Ok(())
}

/// Zones, and instances that run on them but for one in a thousand.
async fn fill(state: &State, count: usize) -> Result<()> {
    let now = SystemClock.now();
    let tenant = state.snapshot().tenants.keys().next().cloned().context("root has a tenant")?;
    let mut txn = Txn::new();
    for number in 0..ZONES {
        let (id, name) = (ZoneId::from_random(number), format!("zone-{number}"));
        let zone = ZoneRecord {
            id,
            name: name.parse()?,
            enrolled_at: now,
            facts: None,
            mode: model::PlaceMode::Open,
            forced: false,
            hosts: Vec::new(),
            granted: Vec::new(),
        };
        txn = txn.insert(kind::ZONE, &zone.id, None, Some(&name), encode(&zone));
    }
    for number in 0..count {
        let (record, status) = instance(number, &tenant, now)?;
        let owner = Some(tenant.as_str());
        txn = txn.insert(kind::INSTANCE, &record.id, owner, Some(record.name.as_str()), encode(&record));
        txn = txn.insert(kind::STATUS, &record.id, owner, None, encode(&status));
        if number % BATCH == BATCH - 1 || number == count - 1 {
            state.commit(std::mem::take(&mut txn)).await?;
        }
    }
    Ok(())
}

fn instance(number: usize, tenant: &TenantId, now: Timestamp) -> Result<(InstanceRecord, StatusRecord)> {
    let id = InstanceId::from_random(rand::random());
    let mut spec = InstanceSpec::new("busybox");
    spec.labels.insert("app".to_owned(), format!("app-{}", number % 100));
    let phase = if number.is_multiple_of(1000) { Phase::Failed } else { Phase::Running };
    let generation = Generation { major: 1, minor: 0 };
    let mut observed = ObservedInstance::new(id.clone(), generation, phase);
    observed.node = Some(format!("node-{}", number % 10_000).parse()?);
    let record = InstanceRecord {
        id: id.clone(),
        tenant: tenant.clone(),
        name: format!("web-{number}").parse()?,
        spec: spec.into(),
        image: image().into(),
        owner: None,
        run: Run::Running,
        restart_count: 0,
        created_at: now,
        created_by: "bench".to_owned(),
    };
    let status = StatusRecord {
        id,
        zone: Some(ZoneId::from_random(number as u128 % ZONES)),
        generation,
        phase,
        observed: Some(observed),
        explanation: None,
        events_seen: 3,
        changed_at: now,
    };
    Ok((record, status))
}

fn image() -> ImageManifest {
    ImageManifest {
        id: ImageId::from_random(1),
        platform: Platform { arch: Arch::HOST },
        layers: Vec::new(),
        entrypoint: Vec::new(),
        command: vec!["sh".to_owned()],
        env: Default::default(),
        user: None,
        workdir: None,
    }
}

fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1000.0
}
