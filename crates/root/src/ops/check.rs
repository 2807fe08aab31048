//! Whether orders would be taken: everything that is looked at when they are given, all at once and changing nothing.

use api::{Check, CheckFault, CheckKind, CheckReport, Usage};
use model::{Bytes, Constraints, Cpu, Error, InstanceSpec, Mode, Name, Quota, Result, WorkloadSpec, shown};

use super::{app, quota};
use crate::cloud::{Caller, Cloud};
use crate::state::Snapshot;

/// Most orders of one check.
const ORDERS_MAX: usize = 10_000;

pub fn check(cloud: &Cloud, caller: &Caller, asked: &Check) -> Result<CheckReport> {
    let count = asked.instances.len()
        + asked.workloads.len()
        + asked.apps.iter().map(|app| 1 + app.workloads.len()).sum::<usize>();
    if count > ORDERS_MAX {
        return Err(Error::invalid(format!("{count} orders are too many; {ORDERS_MAX} are possible")));
    }
    let snapshot = cloud.state.snapshot();
    let mut look = Look {
        caller,
        asked,
        used: snapshot.tenant_usage(&caller.tenant),
        quota: quota::quota_of(&snapshot, &caller.tenant)?,
        snapshot: &snapshot,
        report: CheckReport::default(),
    };
    for one in &asked.instances {
        look.instance(&one.name, &one.spec);
    }
    for one in &asked.apps {
        look.app(one);
    }
    for one in &asked.workloads {
        if let Some(app) = &one.app
            && !asked.apps.iter().any(|made| made.name == *app)
            && let Err(error) = app::find_alive(&snapshot, caller, app.as_str())
        {
            look.refuse(CheckKind::Workload, &one.name, error.at("app"));
        }
        let checked = one.spec.validate_as(&one.name);
        look.take(CheckKind::Workload, &one.name, true, checked);
        look.workload((CheckKind::Workload, &one.name), "spec", &one.name, &one.spec);
    }
    Ok(look.report)
}

struct Look<'a> {
    caller: &'a Caller,
    asked: &'a Check,
    snapshot: &'a Snapshot,
    quota: Quota,
    /// By what there is and what was looked at so far.
    used: Usage,
    report: CheckReport,
}

fn usage(spec: &InstanceSpec, count: u64) -> Usage {
    Usage {
        instances: count,
        cpu: Cpu(spec.cpu.0.saturating_mul(count)),
        memory: Bytes(spec.memory.0.saturating_mul(count)),
        ..Usage::default()
    }
}

fn less(a: Usage, b: Usage) -> Usage {
    Usage {
        instances: a.instances.saturating_sub(b.instances),
        cpu: Cpu(a.cpu.0.saturating_sub(b.cpu.0)),
        memory: Bytes(a.memory.0.saturating_sub(b.memory.0)),
        ..Usage::default()
    }
}

/// Instances that there are of it at the same time, as far as it says so itself.
fn instances_at_once(spec: &WorkloadSpec) -> u64 {
    u64::from(match (&spec.mode, &spec.autoscale) {
        (Mode::Service { .. }, Some(scale)) => scale.min,
        (Mode::Service { replicas }, None) => *replicas,
        (Mode::Once { run } | Mode::Cron { run, .. }, _) => run.parallelism.min(run.completions),
        (Mode::Daemon, _) => 0,
    })
}

impl Look<'_> {
    fn refuse(&mut self, kind: CheckKind, name: &Name, error: Error) {
        self.take(kind, name, true, Err(error));
    }

    fn take(&mut self, kind: CheckKind, name: &Name, refused: bool, checked: Result<()>) {
        let faults = checked.err().map(|error| error.faults()).unwrap_or_default();
        self.report.faults.extend(faults.into_iter().map(|fault| CheckFault {
            kind,
            name: name.clone(),
            refused,
            field: fault.field,
            message: fault.message,
            hint: fault.hint,
        }));
    }

    fn instance(&mut self, name: &Name, spec: &InstanceSpec) {
        let kind = CheckKind::Instance;
        self.take(kind, name, true, spec.validate().map_err(|error| error.at("spec")));
        let image = self.image(&spec.image).map_err(|error| error.at("spec.image"));
        self.take(kind, name, true, image);
        let place = self.place(&spec.constraints).map_err(|error| error.at("spec.constraints"));
        self.take(kind, name, false, place);
        // One of the same name is deleted first.
        let old =
            self.snapshot.entry(&self.caller.tenant, name.as_str()).filter(|e| e.instance.name == *name);
        let before = old.map_or(Usage::default(), |entry| usage(&entry.instance.spec, 1));
        let room = self.room(before, usage(spec, 1)).map_err(|error| error.at("spec"));
        self.take(kind, name, true, room);
    }

    fn app(&mut self, one: &api::AppCreate) {
        let kind = CheckKind::App;
        self.take(kind, &one.name, true, app::validate(&one.description, &one.workloads));
        for (index, member) in one.workloads.iter().enumerate() {
            let at = format!("workloads[{index}].spec");
            self.workload((kind, &one.name), &at, &member.name, &member.spec);
        }
    }

    /// A workload, alone or as a part of an app. `owner` is whose order it is, `at` where its spec stands there.
    fn workload(&mut self, owner: (CheckKind, &Name), at: &str, name: &Name, spec: &WorkloadSpec) {
        let (kind, order) = owner;
        let image = self.image(&spec.instance.image);
        let at_image = format!("{at}.instance.image");
        self.take(kind, order, true, image.map_err(|error| error.at(&at_image)));
        let place = self.place(&spec.instance.constraints);
        let at_place = format!("{at}.instance.constraints");
        self.take(kind, order, false, place.map_err(|error| error.at(&at_place)));
        let there =
            self.snapshot.workload(&self.caller.tenant, name.as_str()).filter(|row| row.name == *name);
        let members = there.and_then(|row| self.snapshot.members.get(&row.id));
        let before = members
            .into_iter()
            .flat_map(|all| all.values())
            .fold(Usage::default(), |sum, entry| quota::plus(sum, usage(&entry.instance.spec, 1)));
        let room = self.room(before, usage(&spec.instance, instances_at_once(spec)));
        self.take(kind, order, false, room.map_err(|error| error.at(at)));
    }

    fn image(&self, name: &str) -> Result<()> {
        let made = self.asked.images.iter().any(|image| image.as_str() == name);
        if made || self.snapshot.image_usable(&self.caller.tenant, name).is_some() {
            return Ok(());
        }
        Err(Error::invalid(format!("there is no image '{}'", shown(name)))
            .hint("'banyan image list' shows those there are"))
    }

    fn place(&self, constraints: &Constraints) -> Result<()> {
        match &constraints.zone {
            Some(zone) if self.snapshot.zone_find(zone).is_none() => {
                Err(Error::invalid(format!("there is no zone '{}'", shown(zone))).at("zone"))
            }
            _ => Ok(()),
        }
    }

    /// Counts what it needs more than it has.
    fn room(&mut self, before: Usage, after: Usage) -> Result<()> {
        let rest = less(self.used, before);
        // Who asks for nothing is in nobody's way, also where others ask for too much.
        let checked =
            if after == Usage::default() { Ok(()) } else { quota::within(&self.quota, rest, after) };
        self.used = quota::plus(rest, after);
        checked
    }
}
