//! A plan on its way into the store: one transaction, or as much of it as one may hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Error, InstanceId, InstanceSpec, Name, Result, Run};
use store::{CommitError, Txn};

use super::core::{Create, Plan};
use super::known::Known;
use super::record::{self, By};
use super::{Controller, Next, RETRY_MS, nodes};
use crate::history::{Actor, Line, journal};
use crate::ops::{quota, raced};
use crate::state::{Row, Snapshot, commit_error};
use crate::tables::{InstanceRecord, Owner, WorkloadRecord, WorkloadState, encode, kind};

/// Instances that one transaction makes, and removes; the store has its limit.
const CREATES_MAX: usize = 1_000;
const DELETES_MAX: usize = 1_500;
/// How soon it is tried again what the quota did not let through.
const QUOTA_RETRY_MS: i64 = 2_000;
/// Letters after the workload's name in those of its instances.
const SUFFIX_LETTERS: usize = 5;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Who writes the history of decisions.
const WHO: &str = "root";

impl Controller {
    /// Does what the plan says, if the workload is still as it was when it was made.
    pub(super) async fn commit(
        &self,
        snapshot: &Snapshot,
        row: &Row<WorkloadRecord>,
        state: Option<&Row<WorkloadState>>,
        mut plan: Plan,
    ) -> Result<Next> {
        let mut more = plan.deletes.len() > DELETES_MAX;
        plan.deletes.truncate(DELETES_MAX);
        let wanted = instances_new(snapshot, row, &plan.creates, &self.known, self.cloud.now());
        more |= wanted.len() < plan.created() as usize;
        let (reserved, made, short) = self.reserve(row, wanted).await?;
        if let Some(error) = short {
            plan.state.status.message = Some(error.message);
            plan.look_at(self.cloud.now().plus_ms(QUOTA_RETRY_MS));
        }
        let idle = made.is_empty()
            && plan.deletes.is_empty()
            && plan.counted.is_empty()
            && plan.roll_back.is_none()
            && !plan.gone;
        let next = plan.next.map_or(Next::Changed, Next::At);
        if idle && state.is_some_and(|state| *state.value == plan.state) {
            self.clock.told(&row.id);
            return Ok(next);
        }
        if state.is_none_or(|state| state.status != plan.state.status) {
            plan.state.status.changed_at = Some(self.cloud.now());
        }
        let txn = self.txn(snapshot, row, state, &plan, &made)?;
        let done = self.cloud.state.try_commit(self.fence.guard(txn)).await;
        drop(reserved);
        match done {
            Ok(_) => {
                self.clock.told(&row.id);
                if !made.is_empty() || !plan.deletes.is_empty() {
                    self.cloud.tree.wake();
                }
                Ok(if more || plan.roll_back.is_some() { Next::Now } else { next })
            }
            // Somebody changed something in between, or a name is taken: another look decides anew.
            Err(error) if raced(&error) || taken(&error) => {
                Ok(Next::At(self.cloud.now().plus_ms(RETRY_MS / 10)))
            }
            Err(error) => Err(commit_error(error)),
        }
    }

    /// Counts new instances against the quota and leaves out those that do not fit.
    async fn reserve(
        &self,
        row: &WorkloadRecord,
        mut wanted: Vec<InstanceRecord>,
    ) -> Result<(Option<quota::Reservation>, Vec<InstanceRecord>, Option<Error>)> {
        let Some(first) = wanted.first() else { return Ok((None, wanted, None)) };
        let spec = first.spec.clone();
        let ids: Vec<InstanceId> = wanted.iter().map(|record| record.id.clone()).collect();
        let (reserved, _, short) = quota::reserve_some(&self.cloud, &row.tenant, &ids, &spec).await?;
        wanted.truncate(reserved.count(ids.len()));
        Ok((Some(reserved), wanted, short))
    }

    fn txn(
        &self,
        snapshot: &Snapshot,
        row: &Row<WorkloadRecord>,
        state: Option<&Row<WorkloadState>>,
        plan: &Plan,
        made: &[InstanceRecord],
    ) -> Result<Txn> {
        let mut txn = self.own_records(snapshot, row, state, plan)?;
        for record in made {
            let (tenant, name) = (Some(record.tenant.as_str()), Some(record.name.as_str()));
            txn = txn.insert(kind::INSTANCE, &record.id, tenant, name, encode(record));
        }
        if !made.is_empty() {
            txn = quota::gate_pass(&self.cloud, snapshot, &row.tenant, txn);
        }
        for id in &plan.deletes {
            txn = instance_change(txn, snapshot, id, |record| record.run = Run::Gone);
        }
        for (id, keep) in &plan.counted {
            // What ended is not started again where its node is lost.
            txn = instance_change(txn, snapshot, id, |record| {
                record.run = if *keep { Run::Stopped } else { Run::Gone };
                record.owner = record.owner.take().map(|owner| Owner { counted: true, ..owner });
            });
        }
        for (what, message) in &plan.lines {
            txn = self.line(txn, row, what, message.clone());
        }
        let (made, gone) = (made.len(), plan.deletes.len());
        if made + gone > 0 {
            let message = format!("made {made}, removed {gone}, at revision {}", row.revision);
            txn = self.line(txn, row, "workload.instances", message);
        }
        Ok(txn)
    }

    /// The records of the workload itself, and of its app when it goes with the last of it.
    fn own_records(
        &self,
        snapshot: &Snapshot,
        row: &Row<WorkloadRecord>,
        state: Option<&Row<WorkloadState>>,
        plan: &Plan,
    ) -> Result<Txn> {
        if plan.gone {
            let txn = Txn::new().delete(kind::WORKLOAD, &row.id, Some(row.version));
            let txn = txn.delete(kind::WORKLOAD_STATE, &row.id, state.map(|state| state.version));
            return Ok(app_gone(
                self.line(txn, row, "workload.gone", "with all its instances".into()),
                snapshot,
                row,
            ));
        }
        let txn = match &plan.roll_back {
            Some((to, why)) => {
                let mut new = WorkloadRecord::clone(row);
                let by = By { who: WHO, at: self.cloud.now() };
                record::roll_back(&mut new, &[], Some(*to), Some(why.clone()), &by)?;
                Txn::new().update(kind::WORKLOAD, &row.id, row.version, encode(&new))
            }
            None => Txn::new().check(kind::WORKLOAD, &row.id, Some(row.version)),
        };
        let body = encode(&plan.state);
        Ok(match state {
            Some(state) => txn.update(kind::WORKLOAD_STATE, &row.id, state.version, body),
            None => txn.insert(kind::WORKLOAD_STATE, &row.id, Some(row.tenant.as_str()), None, body),
        })
    }

    fn line(&self, txn: Txn, row: &WorkloadRecord, what: &str, message: String) -> Txn {
        let line = Line {
            tenant: Some(&row.tenant),
            what,
            kind: kind::WORKLOAD,
            id: row.id.as_str(),
            name: row.name.as_str(),
            message,
        };
        journal(txn, self.cloud.now(), &Actor::root(), line)
    }
}

fn taken(error: &CommitError) -> bool {
    matches!(error, CommitError::NameTaken { .. } | CommitError::AlreadyExists { .. })
}

fn instance_change(
    txn: Txn,
    snapshot: &Snapshot,
    id: &InstanceId,
    edit: impl FnOnce(&mut InstanceRecord),
) -> Txn {
    let Some(old) = snapshot.instances.get(id) else { return txn };
    let mut new = InstanceRecord::clone(old);
    edit(&mut new);
    txn.update(kind::INSTANCE, id, old.version, encode(&new))
}

fn app_gone(txn: Txn, snapshot: &Snapshot, row: &WorkloadRecord) -> Txn {
    let Some(app) = row.app.as_ref().and_then(|app| snapshot.apps.get(app)).filter(|app| app.deleting) else {
        return txn;
    };
    let left = snapshot.app_members.get(&app.id).map_or(0, |members| members.len());
    // Written in any case, so that of two last ones that go at once one sees that it is the last.
    match left {
        0 | 1 => txn.delete(kind::APP, &app.id, Some(app.version)),
        _ => txn.update(kind::APP, &app.id, app.version, encode(app.value.as_ref())),
    }
}

/// The first of the instances that the plan asks for, with names that nothing has.
fn instances_new(
    snapshot: &Snapshot,
    row: &WorkloadRecord,
    creates: &[Create],
    known: &Known,
    now: model::Timestamp,
) -> Vec<InstanceRecord> {
    let mut made = Vec::new();
    let mut names = BTreeSet::new();
    for create in creates {
        let Some((template, image)) = template(row, create.revision) else { continue };
        let mut spec = record::instance_spec(&row.name, template, create.pin.as_ref());
        nodes::wish_zones(&mut spec, |node| known.zones_with(snapshot, node));
        let spec = Arc::new(spec);
        for _ in 0..create.count {
            if made.len() == CREATES_MAX {
                return made;
            }
            made.push(InstanceRecord {
                id: InstanceId::from_random(rand::random()),
                tenant: row.tenant.clone(),
                name: name_new(snapshot, row, &mut names),
                spec: spec.clone(),
                image: image.clone(),
                owner: Some(Owner {
                    workload: row.id.clone(),
                    revision: create.revision,
                    run: create.run,
                    restart: row.restart_count,
                    counted: false,
                }),
                run: Run::Running,
                restart_count: 0,
                created_at: now,
                created_by: format!("workload {}", row.name),
            });
        }
    }
    made
}

fn template(row: &WorkloadRecord, revision: u64) -> Option<(&InstanceSpec, &Arc<model::ImageManifest>)> {
    if revision == row.revision {
        return Some((&row.spec.instance, &row.image));
    }
    let found = row.earlier.iter().find(|template| template.revision == revision)?;
    Some((&found.instance, &found.image))
}

fn name_new(snapshot: &Snapshot, row: &WorkloadRecord, names: &mut BTreeSet<Name>) -> Name {
    let entries = snapshot.entries.get(&row.tenant);
    loop {
        let mut random: u32 = rand::random();
        let suffix: String = (0..SUFFIX_LETTERS)
            .map(|_| {
                let letter = LETTERS[(random % 32) as usize];
                random /= 32;
                char::from(letter)
            })
            .collect();
        let name: Name = format!("{}-{suffix}", row.name).parse().expect("the workload's name leaves room");
        if !entries.is_some_and(|entries| entries.contains_key(&name)) && names.insert(name.clone()) {
            return name;
        }
    }
}
