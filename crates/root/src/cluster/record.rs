//! What is kept of clusters.
//!
//! | kind | id | written by |
//! |---|---|---|
//! | cluster | the cluster's | users' orders; the owner when a job ends |
//! | cluster-job | `CLUSTER-NUMBER` | made by an order, then the owner only |
//! | cluster-node | `CLUSTER/NUM` | the owner |
//! | cluster-task | `CLUSTER/NUM/JOB-TASK` | the owner: what became of a task, and the node's log |
//! | cluster-part | `CLUSTER/…/PAGE` | once: definitions and plans, in pages |
//! | cluster-call | random | in the transaction that it speaks of: a webhook to be called |

use std::collections::{BTreeMap, BTreeSet};

use api::{ClusterStatus, ClusterWebhooks, JobStatus};
use model::{ClusterId, Name, Report, TenantId, Timestamp, UserId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use template::Layout;
use template::entity::{Lease, Link};
use template::plan::TaskName;

use crate::tables::{Row, kind};

/// What a cluster is, or is to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The number of the definitions it is made from.
    pub definition: u32,
    pub services: Vec<String>,
    pub config: Map<String, Value>,
    pub layout: Layout,
}

/// A cluster. The name is unique per tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub id: ClusterId,
    pub tenant: TenantId,
    pub name: Name,
    /// In the names of its machines.
    pub number: u64,
    #[serde(default)]
    pub description: String,
    pub template: String,
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardwaretype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imagetype: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_suffix: Option<String>,
    /// As it is, or while it is being made, as it is to be. Every record has a `shape` of its own.
    #[serde(rename = "form")]
    pub shape: Shape,
    /// As it was before the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Shape>,
    /// Machines that count against the quota.
    pub machines: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// What the user set of the provider, and in secret.
    #[serde(default)]
    pub provider_fields: Map<String, Value>,
    #[serde(default)]
    pub provider_secrets: BTreeMap<String, String>,
    pub public_key: String,
    /// Sealed under the master key.
    pub private_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<ClusterWebhooks>,
    pub status: ClusterStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of the template, and of each service that has some.
    #[serde(default)]
    pub links: Vec<Link>,
    #[serde(default)]
    pub service_links: BTreeMap<String, Vec<Link>>,
    /// The number of the newest job.
    pub job: u64,
    /// What users want of that job.
    #[serde(default)]
    pub paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted_by: Option<String>,
    /// The number of the next node.
    pub node_next: u32,
    #[serde(default)]
    pub lease: Lease,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The end of the lease that was warned of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warned_of: Option<Timestamp>,
    pub created_at: Timestamp,
    pub created_by: String,
    /// In whose name its machines are made, where that needs a name.
    pub owner: UserId,
}

impl ClusterRecord {
    /// What a rollback makes of it. A change that failed half-way left its shape as it was before, so that is where it
    /// leads then. There is nothing to go back to if the last change led to what was there.
    pub fn back(&self) -> Option<&Shape> {
        match self.status {
            ClusterStatus::Inconsistent => Some(&self.shape),
            _ => self.before.as_ref().filter(|before| **before != self.shape),
        }
    }
}

/// What a job is for, which says what becomes of the cluster at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    Create,
    Delete,
    /// Machines or services come or go.
    Change,
    /// The same machines and services; something is done to them.
    Operate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub cluster: ClusterId,
    pub tenant: TenantId,
    pub number: u64,
    /// In Coopr's words where it has one.
    pub action: String,
    pub purpose: Purpose,
    /// The status of the cluster before.
    pub was: ClusterStatus,
    /// Machines that cannot be deleted are given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// What the cluster is once the job is complete.
    pub target: Shape,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    pub status: JobStatus,
    /// The pages of the plan, and of what takes it back.
    pub pages: Vec<u32>,
    /// The first task of what takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<u32>,
    pub total: u32,
    pub done: u32,
    pub failed: u32,
    /// Why it cannot be completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub created_at: Timestamp,
    pub created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

pub fn job_id(cluster: &ClusterId, number: u64) -> String {
    format!("{cluster}-{number:03}")
}

pub fn node_id(cluster: &ClusterId, num: u32) -> String {
    format!("{cluster}/{num:06}")
}

pub fn task_id(cluster: &ClusterId, num: u32, job: u64, task: u32) -> String {
    format!("{}/{job:06}-{task:08}", node_id(cluster, num))
}

/// What users call a task of a job.
pub fn shown_id(job: &str, task: u32) -> String {
    format!("{job}-{task:03}")
}

impl JobRecord {
    pub fn id(&self) -> String {
        job_id(&self.cluster, self.number)
    }

    /// What its pages begin with.
    pub fn part(&self, part: usize) -> String {
        format!("{}/plan-{:06}-{part}", self.cluster, self.number)
    }
}

/// What its pages begin with.
pub fn definition_part(cluster: &ClusterId, number: u32) -> String {
    format!("{cluster}/definition-{number:06}")
}

/// Whether there is a machine at the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    #[default]
    None,
    /// Somebody tried to make it, and what became of that is not known.
    Doubtful,
    Made,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub cluster: ClusterId,
    pub num: u32,
    pub hostname: String,
    pub services: Vec<String>,
    pub hardwaretype: String,
    pub imagetype: String,
    #[serde(default)]
    pub machine: Machine,
    #[serde(default)]
    pub confirmed: bool,
    /// It is part of the cluster's shape: the job that made it is complete.
    #[serde(default)]
    pub joined: bool,
    #[serde(default)]
    pub leaving: bool,
    #[serde(default)]
    pub addresses: BTreeMap<String, String>,
    /// What reports said of it, for its later tasks; what lets us in is sealed.
    #[serde(default)]
    pub result: Map<String, Value>,
    /// What is done before its task is tried again, because its machine is made anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mending: Option<Verb>,
    /// Machines that were given up.
    #[serde(default)]
    pub spent: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Services that were stopped last, rather than started.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stopped: BTreeSet<String>,
    /// Its machine is an instance of this cloud, so root itself can see how it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Its machine is not there as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absence: Option<Absence>,
}

/// What was found out about a machine behind the cluster's back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// It will not be back; else it may be.
    pub gone: bool,
    pub why: String,
    pub since: Timestamp,
}

impl NodeRecord {
    /// One that is to be made.
    pub fn planned(cluster: &ClusterId, row: &PlanRow, hostname: String) -> Self {
        Self {
            cluster: cluster.clone(),
            num: row.num,
            hostname,
            services: row.services.clone(),
            hardwaretype: row.hardwaretype.clone(),
            imagetype: row.imagetype.clone(),
            machine: Machine::None,
            confirmed: false,
            joined: false,
            leaving: false,
            addresses: BTreeMap::new(),
            result: Map::new(),
            mending: None,
            spent: 0,
            message: None,
            stopped: BTreeSet::new(),
            local: false,
            absence: None,
        }
    }

    /// Whether it belongs to the cluster and has no machine any more.
    pub fn is_gone(&self) -> bool {
        let is_lost = self.absence.as_ref().is_some_and(|absence| absence.gone);
        self.joined && !self.leaving && (is_lost || self.machine == Machine::None)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    Create,
    Confirm,
    Bootstrap,
    Install,
    Configure,
    Initialize,
    Start,
    Stop,
    Remove,
    Delete,
}

impl Verb {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Confirm => "CONFIRM",
            Self::Bootstrap => "BOOTSTRAP",
            Self::Install => "INSTALL",
            Self::Configure => "CONFIGURE",
            Self::Initialize => "INITIALIZE",
            Self::Start => "START",
            Self::Stop => "STOP",
            Self::Remove => "REMOVE",
            Self::Delete => "DELETE",
        }
    }

    pub const fn is_hardware(self) -> bool {
        matches!(self, Self::Create | Self::Confirm | Self::Delete)
    }
}

impl From<TaskName> for Verb {
    fn from(name: TaskName) -> Self {
        use template::entity::ActionKind::{Configure, Initialize, Install, Remove, Start, Stop};
        match name {
            TaskName::Create => Self::Create,
            TaskName::Confirm => Self::Confirm,
            TaskName::Bootstrap => Self::Bootstrap,
            TaskName::Delete => Self::Delete,
            TaskName::Service(Install) => Self::Install,
            TaskName::Service(Configure) => Self::Configure,
            TaskName::Service(Initialize) => Self::Initialize,
            TaskName::Service(Start) => Self::Start,
            TaskName::Service(Stop) => Self::Stop,
            TaskName::Service(Remove) => Self::Remove,
        }
    }
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTask {
    /// Nobody does what has none: it is a gate.
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<Verb>,
    #[serde(rename = "n", default)]
    pub node: u32,
    #[serde(rename = "s", default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<u32>,
}

/// A node as a plan sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRow {
    pub num: u32,
    /// What it carries when the job is complete.
    pub services: Vec<String>,
    /// What it carried before; nothing when it is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Its machine is given up: another takes its place, and nobody is told of it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    pub hardwaretype: String,
    pub imagetype: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    #[serde(default)]
    pub nodes: Vec<PlanRow>,
    pub tasks: Vec<PlanTask>,
}

/// How far a task is, where that is to be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// It failed so far, and is tried again.
    Again,
    Done,
    /// It failed, and what comes after it goes on.
    Passed,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub job: u64,
    pub task: u32,
    pub node: u32,
    pub verb: Verb,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub service: String,
    pub mark: Mark,
    /// Of the last claim that counted: its life and its attempt. Earlier ones never count again.
    #[serde(default)]
    pub claim: (u64, u32),
    /// Attempts that failed, on this machine.
    #[serde(default)]
    pub failures: u32,
    /// Attempts of which nothing was heard.
    #[serde(default)]
    pub losses: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
    pub changed_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What its last attempt printed, once it is over.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Attempts after which it was tried again, the last few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Attempt>,
}

/// One attempt at a task that did not end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub verb: Verb,
    /// A step of making a machine anew may also be done.
    #[serde(default)]
    pub failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

impl TaskRecord {
    /// Lets go of the output of what is over: it is in the store, and of a large cluster too much to hold.
    pub fn forget(&mut self) {
        if self.mark != Mark::Again {
            (self.stdout, self.stderr, self.earlier) = Default::default();
        }
    }

    /// Takes what its last attempt said.
    pub fn say(&mut self, report: &Report) {
        self.message = (!report.message.is_empty()).then(|| report.message.clone());
        (self.stdout, self.stderr) = (report.stdout.clone(), report.stderr.clone());
    }

    /// What users call it: the job and its place in the plan.
    pub fn shown_id(&self, cluster: &ClusterId) -> String {
        shown_id(&job_id(cluster, self.job), self.task)
    }
}

/// A webhook to be called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Whose cluster it tells of.
    #[serde(default)]
    pub tenant: String,
    pub url: String,
    pub body: Value,
    pub tries: u32,
    pub at: Timestamp,
}

/// A page of something that is larger than a record may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// zstd, in base64.
    pub data: String,
}

macro_rules! rows {
    ($($record:ty => $kind:expr),+ $(,)?) => {
        $(impl Row for $record {
            const KIND: &'static str = $kind;
        })+
    };
}

rows! {
    ClusterRecord => kind::CLUSTER,
    JobRecord => kind::CLUSTER_JOB,
    NodeRecord => kind::CLUSTER_NODE,
    TaskRecord => kind::CLUSTER_TASK,
    PartRecord => kind::CLUSTER_PART,
    CallRecord => kind::CLUSTER_CALL,
}
