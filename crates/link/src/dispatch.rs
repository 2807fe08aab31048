//! What a provisioner asks of root: tasks, and somebody who takes what became of them.
//!
//! ```text
//!   provisioner                                   root (the server that gives tasks out)
//!     poll: what I hold, how much more I can do  ─▶  beat, lease renewed
//!                                                ◀─  tasks, what I must stop, how many workers of which tenant
//!     finish: claims, reports                    ─▶  all kept, then answered
//! ```
//!
//! A poll is a sign of life and waits until there is something to say. What a provisioner holds and does not
//! name in a poll, it never got: it is given out again. Finishing twice is harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use model::{ChildId, Digest, Report, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use work::queue::Claim;

use crate::parent::BlobSource;

/// A provisioner asks for tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskAsk {
    /// One running process; another one under the same name does not have what this one holds.
    pub session: String,
    /// All that is being done, also what is being stopped.
    #[serde(default, with = "bundle")]
    pub holds: Vec<Claim>,
    /// How many tasks it does at once, all tenants together.
    pub capacity: u32,
    /// The plugins it has, such as `provider ec2` and `automator shell`; all there are if it does not say.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub plugins: BTreeSet<String>,
    /// The answer it has seen last; the next poll waits until there is a newer one.
    #[serde(default)]
    pub seen: u64,
}

/// A task as it is given out. The body holds credentials and is never kept or logged.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Given {
    pub claim: Claim,
    /// Whose worker does it.
    pub tenant: String,
    /// In milliseconds; after that it is stopped and reported.
    pub limit_ms: i64,
    /// In Coopr's shape.
    pub body: Value,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Given({}#{} of {})", self.claim.job, self.claim.task, self.tenant)
    }
}

/// A file that plugins of a tenant use, as it is to lie here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// `providertypes/NAME/KIND/FILE` or `automatortypes/NAME/KIND/FILE`.
    pub path: String,
    pub digest: Digest,
    pub size: u64,
}

/// What root says to a provisioner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskAnswer {
    /// Counts what root has to say.
    pub seen: u64,
    /// In milliseconds: who is silent for longer loses what it holds.
    pub lease_ms: i64,
    #[serde(default)]
    pub tasks: Vec<Given>,
    /// By job, `config.nodes` of those tasks that are for a service: the same for all of them, so it is said once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Arc<Value>>,
    /// Held there, and no longer wanted: to be stopped without a report.
    #[serde(default, with = "bundle")]
    pub stop: Vec<Claim>,
    /// Workers of this provisioner by tenant, all there are.
    #[serde(default)]
    pub workers: BTreeMap<String, u32>,
    /// Files by tenant, all there are, for the tenants that have workers here.
    #[serde(default)]
    pub staged: BTreeMap<String, Vec<Staged>>,
}

/// What became of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDone {
    pub claim: Claim,
    pub report: Report,
}

/// Who gives tasks out. The link has verified who the provisioner is before it calls.
pub trait Dispatcher: Send + Sync + 'static {
    /// Resolves as soon as there is something to say. It may be dropped and asked again at any time; the link puts
    /// the time limit around it and then asks with `is_last`, which is answered at once.
    fn poll(&self, provisioner: &ChildId, ask: TaskAsk, is_last: bool) -> BoxFuture<'_, Result<TaskAnswer>>;

    /// Answers when it is kept. A claim that holds no longer is answered as well, and changes nothing.
    fn finish(&self, provisioner: &ChildId, done: TaskDone) -> BoxFuture<'_, Result<()>>;

    /// The same for many, each with its own answer.
    fn finish_all(&self, provisioner: &ChildId, done: Vec<TaskDone>) -> BoxFuture<'_, Vec<Result<()>>> {
        let all: Vec<_> = done.into_iter().map(|done| self.finish(provisioner, done)).collect();
        Box::pin(futures::future::join_all(all))
    }

    /// A staged file of a tenant that has workers there.
    fn resource(
        &self,
        provisioner: &ChildId,
        tenant: &str,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<BlobSource>>;

    /// Whether this provisioner, whose certificate is valid, is still one of ours.
    fn admits(&self, provisioner: &ChildId) -> bool;

    /// Whether this provisioner was one of ours and was removed for good. It is told so, and stops.
    fn removed(&self, provisioner: &ChildId) -> bool {
        let _ = provisioner;
        false
    }

    /// Whether this server gives tasks out now. If not it may say who does, by the address that provisioners have for
    /// that one; they are sent there.
    fn holds(&self) -> std::result::Result<(), Option<String>> {
        Ok(())
    }
}

/// Claims on their way, those of one job together: thousands are named in every poll.
mod bundle {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use work::queue::Claim;

    /// Claims of one message.
    const CLAIMS_MAX: usize = 20_000;
    /// Bytes of the name of a job.
    const JOB_MAX: usize = 256;

    #[derive(Serialize, Deserialize)]
    struct Bundle {
        job: String,
        attempt: u32,
        life: u64,
        tasks: Vec<u32>,
    }

    pub fn serialize<S: Serializer>(claims: &[Claim], to: S) -> Result<S::Ok, S::Error> {
        let is_same = |one: &Claim, other: &Claim| {
            one.job == other.job && (one.attempt, one.life) == (other.attempt, other.life)
        };
        to.collect_seq(claims.chunk_by(is_same).map(|same| Bundle {
            job: same[0].job.clone(),
            attempt: same[0].attempt,
            life: same[0].life,
            tasks: same.iter().map(|claim| claim.task).collect(),
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Claim>, D::Error> {
        let bundles = Vec::<Bundle>::deserialize(from)?;
        let count: usize = bundles.iter().map(|bundle| bundle.tasks.len()).sum();
        if count > CLAIMS_MAX || bundles.iter().any(|bundle| bundle.job.len() > JOB_MAX) {
            return Err(de::Error::custom(format!(
                "a message names up to {CLAIMS_MAX} claims, of jobs whose names have up to {JOB_MAX} bytes"
            )));
        }
        let claims = |Bundle { job, attempt, life, tasks }: Bundle| {
            tasks.into_iter().map(move |task| Claim { job: job.clone(), task, attempt, life })
        };
        Ok(bundles.into_iter().flat_map(claims).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn claims_of_a_job_travel_together_and_too_many_do_not() {
        let claim = |job: &str, task, attempt| Claim { job: job.into(), task, attempt, life: 3 };
        let holds = vec![claim("a", 1, 1), claim("a", 2, 1), claim("a", 3, 2), claim("b", 1, 2)];
        let ask = TaskAsk { holds, ..TaskAsk::default() };
        let text = serde_json::to_string(&ask).expect("sound");
        assert_eq!(text.matches("\"job\"").count(), 3, "{text}");
        assert_eq!(serde_json::from_str::<TaskAsk>(&text).expect("sound"), ask);
        let many = TaskAsk { holds: (0..20_001).map(|task| claim("a", task, 1)).collect(), ..ask };
        assert!(serde_json::from_str::<TaskAsk>(&serde_json::to_string(&many).expect("sound")).is_err());
    }
}
