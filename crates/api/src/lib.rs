//! The public REST interface as types, and a typed client for it.
//!
//! This crate says what travels; `root` serves it. Requests refuse unknown
//! fields, answers may grow new ones. Errors travel as problem details
//! (RFC 9457) and come out of the client as [`model::Error`] again.

pub mod bucket;
pub mod catalogue;
pub mod check;
pub mod client;
pub mod cluster;
pub mod diff;
pub mod event;
pub mod exec;
pub mod identity;
pub mod image;
pub mod instance;
pub mod page;
pub mod place;
pub mod problem;
pub mod read;
pub mod resource;
pub mod workload;

pub use bucket::{Bucket, BucketQuota, DamagedObject, ObjectStore, S3Session, Scrub, ScrubStart};
pub use catalogue::{CatalogueChange, CatalogueWrite, Definition, Entities};
pub use check::{Check, CheckFault, CheckKind, CheckReport};
pub use client::{
    Client, ExecOptions, ExecReceiver, ExecSender, ExecStream, ListQuery, LogsOptions, ResourceUpload,
    Upload, WatchStream,
};
pub use cluster::{
    Cluster, ClusterAsk, ClusterConfigure, ClusterCreate, ClusterJob, ClusterKey, ClusterLease, ClusterLink,
    ClusterNode, ClusterPreview, ClusterRepair, ClusterResize, ClusterServiceOrder, ClusterServices,
    ClusterSolve, ClusterStatus, ClusterUpgrade, ClusterWebhooks, JobStatus, JobSummary, JobTask,
    LayoutGroup, NodeAction, NodeStatus, PlanStep, Provisioner, TaskStatus, Unsolvable,
};
pub use event::{WatchEvent, WatchKind};
pub use exec::ExecFrame;
pub use identity::{
    AccessKey, AccessKeyCreated, Login, LoginDone, PasswordChange, QuotaReport, Tenant, TenantCreate, Token,
    TokenCreate, TokenCreated, Usage, User, UserCreate, UserUpdate, Whoami,
};
pub use image::{Image, ImagePull};
pub use instance::{Instance, InstanceCreate, InstanceWhy};
pub use page::Page;
pub use place::{
    EnrolRole, Enrolment, EnrolmentCreate, EnrolmentToken, Node, NodeLabels, PlaceModeSet, PlatformHealth,
    Server, Zone, ZoneHosts,
};
pub use problem::Problem;
pub use resource::{Resource, ResourceStatus, ResourceSync, ResourceVersion};
pub use workload::{
    App, AppCreate, AppMember, AppUpdate, AppWorkload, Workload, WorkloadCreate, WorkloadRevision,
    WorkloadRollback, WorkloadScale, WorkloadStatus, WorkloadUpdate, WorkloadWhy,
};

/// What `GET /v1/health` answers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok` when requests are served.
    pub status: String,
    pub version: String,
}
