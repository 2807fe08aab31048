//! Workloads with real containers, through the typed client.

use api::{ListQuery, Workload, WorkloadCreate, WorkloadUpdate};
use model::workload::RunPolicy;
use model::{
    Amount, Bytes, Cpu, HealthCheck, HealthProbe, InstanceSpec, Mode, RestartPolicy, Run, WorkloadPhase,
    WorkloadSpec,
};

use crate::support::*;

fn spec(script: &str, mode: Mode) -> WorkloadSpec {
    let mut instance = InstanceSpec::new("busybox");
    instance.command = ["sh", "-c", script].map(str::to_owned).to_vec();
    (instance.cpu, instance.memory) = (Cpu(20), Bytes::mib(16));
    if mode.run().is_some() {
        instance.restart = RestartPolicy::Never;
    }
    let mut spec = WorkloadSpec::new(instance);
    spec.mode = mode;
    spec
}

struct One {
    cloud: std::sync::Arc<Cloud>,
    client: api::Client,
    name: &'static str,
}

impl One {
    fn create(name: &'static str, spec: WorkloadSpec) -> Self {
        let cloud = Cloud::shared();
        let client = cloud.client();
        let body = WorkloadCreate { name: name.parse().unwrap(), app: None, spec };
        wait_async(client.workload_create(&body)).unwrap();
        Self { cloud, client, name }
    }

    fn get(&self) -> Workload {
        wait_async(self.client.workload_get(self.name)).unwrap()
    }

    fn until(&self, what: &str, holds: impl Fn(&Workload) -> bool) -> Workload {
        until(&format!("{}: {what}", self.name), || Some(self.get()).filter(&holds))
    }

    fn phase(&self, phase: WorkloadPhase) -> Workload {
        self.until(&phase.to_string(), |found| found.status.phase == phase)
    }

    /// Those that are not on their way out.
    fn instances(&self) -> Vec<api::Instance> {
        let query = ListQuery::new().with("workload", self.name);
        let all = wait_async(self.client.instance_list(&query)).unwrap().items;
        all.into_iter().filter(|instance| instance.run != Run::Gone).collect()
    }

    fn delete(self) {
        wait_async(self.client.workload_delete(self.name, None)).unwrap();
        until(&format!("{} is gone", self.name), || wait_async(self.client.workload_get(self.name)).err());
        assert!(self.instances().is_empty());
    }
}

fn page(path: &str) -> HealthCheck {
    let probe = HealthProbe::Http { port: 80, path: path.to_owned() };
    HealthCheck { probe, interval_ms: 150, timeout_ms: 1_000, retries: 3, grace_ms: 1_000 }
}

#[test]
fn a_service_is_scaled_updated_and_taken_back() {
    let script = "mkdir -p /www; echo ok > /www/well; exec httpd -f -p 80 -h /www";
    let mut asked = spec(script, Mode::Service { replicas: 2 });
    asked.instance.health = Some(page("/well"));
    asked.update.max_unavailable = Amount::Count(0);
    let one = One::create("site", asked.clone());
    one.phase(WorkloadPhase::Available);
    wait_async(one.client.workload_scale("site", 3)).unwrap();
    one.until("three", |found| found.status.available == 3);

    asked = one.get().spec;
    asked.instance.env.insert("EDITION".into(), "second".into());
    wait_async(one.client.workload_update("site", &WorkloadUpdate { spec: asked.clone() }, None)).unwrap();
    let second = one.until("the second edition", |found| {
        assert!(found.status.available >= 3 || found.status.phase != WorkloadPhase::Updating, "{found:#?}");
        found.revision == 2 && found.status.phase == WorkloadPhase::Available && found.status.instances == 3
    });
    let before = one.instances();
    assert!(before.iter().all(|instance| instance.spec.env.contains_key("EDITION")));

    asked.instance.health = Some(page("/missing"));
    wait_async(one.client.workload_update("site", &WorkloadUpdate { spec: asked }, None)).unwrap();
    let back = one.until("taken back", |found| {
        found.revision == 4 && found.status.phase == WorkloadPhase::Available && found.status.instances == 3
    });
    assert_eq!(back.spec.instance, second.spec.instance);
    let revisions = wait_async(one.client.workload_revisions("site")).unwrap();
    assert!(revisions[1].failed.is_some(), "{revisions:#?}");
    let same = before.iter().filter(|old| one.instances().iter().any(|now| now.id == old.id)).count();
    assert_eq!(same, 3, "what was good went on");
    one.delete();
}

#[test]
fn runs_end_and_are_counted() {
    let run = RunPolicy { completions: 3, parallelism: 2, retries: 0, deadline_ms: None };
    let one = One::create("batch", spec("echo done", Mode::Once { run }));
    let done = one.phase(WorkloadPhase::Done);
    assert_eq!((done.status.succeeded, done.status.failed), (3, 0));
    let kept = one.instances();
    assert_eq!(kept.len(), 3);
    assert_eq!(one.cloud.logs(kept[0].name.as_str()).trim(), "done");
    one.delete();

    let run = RunPolicy { completions: 1, parallelism: 1, retries: 1, deadline_ms: None };
    let one = One::create("hopeless", spec("exit 3", Mode::Once { run }));
    let failed = one.phase(WorkloadPhase::Failed);
    assert_eq!((failed.status.succeeded, failed.status.failed), (0, 2));
    one.delete();

    let mode = serde_json::json!({"kind": "cron", "schedule": "0 0 29 2 *", "keep": 1});
    let one = One::create("leap-day", spec("true", serde_json::from_value(mode).unwrap()));
    one.phase(WorkloadPhase::Waiting);
    for _ in 0..2 {
        let asked = wait_async(one.client.workload_run("leap-day")).unwrap();
        one.until("run", |found| {
            found.version == asked.version && found.status.phase == WorkloadPhase::Waiting
        });
    }
    one.until("one run is kept", |found| found.status.instances == 1 && found.status.succeeded == 1);
    one.delete();
}

#[test]
fn a_daemon_stands_on_the_node() {
    let one = One::create("agent", spec("while true; do sleep 1; done", Mode::Daemon));
    let there = one.until("there", |found| found.status.available == 1);
    assert_eq!((there.status.wanted, there.status.phase), (1, WorkloadPhase::Available));
    let nodes = wait_async(one.client.node_list(&ListQuery::new())).unwrap().items;
    let instance = one.instances().remove(0);
    assert_eq!(instance.node.as_ref(), Some(&nodes[0].name));
    wait_async(one.client.instance_delete(instance.name.as_str(), None)).unwrap();
    one.until("there again", |found| {
        let ids: Vec<_> = one.instances().into_iter().map(|now| now.id).collect();
        found.status.available == 1 && !ids.contains(&instance.id)
    });
    one.delete();
}
