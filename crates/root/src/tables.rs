//! Root's records: what is kept in the store, one struct per kind.
//!
//! Every body carries the number of its shape. [`encode`] writes the newest
//! shape; [`decode`] walks an older one up through [`Row::migrate`], so that
//! old data is read by every later version.

use std::sync::Arc;

use model::{
    AccessKeyId, AppId, Explanation, Facts, Generation, ImageId, ImageManifest, InstanceId, InstanceSpec,
    Name, ObservedInstance, Phase, PlaceMode, ProvisionerId, Quota, Role, Run, SessionId, TenantId,
    Timestamp, TokenId, UserId, WorkloadId, WorkloadSpec, ZoneId,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Body;

/// The kinds of record as the store knows them.
pub mod kind {
    pub const INSTANCE: &str = "instance";
    pub const STATUS: &str = "status";
    pub const ZONE: &str = "zone";
    /// Whoever carries out tasks of clusters.
    pub const PROVISIONER: &str = "provisioner";
    /// A zone or provisioner that was removed for good; same id.
    pub const REMOVED: &str = "removed";
    /// A token with which a zone or provisioner may join, by its digest.
    pub const ENROLMENT: &str = "enrolment";
    /// Written and thrown away, to see whether the store takes anything.
    pub const PROBE: &str = "probe";
    pub const TENANT: &str = "tenant";
    pub const USER: &str = "user";
    pub const SESSION: &str = "session";
    pub const TOKEN: &str = "token";
    pub const KEY: &str = "key";
    pub const IMAGE: &str = "image";
    pub const WORKLOAD: &str = "workload";
    /// What became of a workload; same id. Written only by its controller.
    pub const WORKLOAD_STATE: &str = "workload-state";
    pub const APP: &str = "app";
    pub const IDEMPOTENCY: &str = "idempotency";
    /// A root server that is there, and who of them holds which duty.
    pub const SERVER: &str = "server";
    /// A root server that fell silent, until it is back or an operator forgets it; same id.
    pub const SERVER_LOST: &str = "server-lost";
    pub const DUTY: &str = "duty";
    /// Which root server runs the object store; one record.
    pub const OBJECT_STORE: &str = "object-store";
    /// What all root servers share in secret, sealed under the master key.
    pub const SECRET: &str = "secret";
    /// One per tenant; its version fences creates of several root servers against each other.
    pub const GATE: &str = "gate";
    /// A part of the catalogue, and what it was before it was changed.
    pub const DEFINITION: &str = "definition";
    pub const DEFINITION_PAST: &str = "definition-past";
    /// One per tenant; its version fences changes of the catalogue against each other.
    pub const CATALOGUE: &str = "catalogue";
    /// One version of a file that plugins use, and its bytes where those are secret. See `resource`.
    pub const RESOURCE: &str = "resource";
    pub const RESOURCE_SECRET: &str = "resource-secret";
    /// See `cluster::record`.
    pub const CLUSTER: &str = "cluster";
    pub const CLUSTER_JOB: &str = "cluster-job";
    pub const CLUSTER_NODE: &str = "cluster-node";
    pub const CLUSTER_TASK: &str = "cluster-task";
    pub const CLUSTER_PART: &str = "cluster-part";
    pub const CLUSTER_CALL: &str = "cluster-call";
}

/// A struct that is kept as a record.
pub trait Row: Serialize + DeserializeOwned {
    const KIND: &'static str;
    /// Grows when the shape changes in a way that serde's defaults do not bridge.
    const SHAPE: u64 = 1;

    /// Turns a body of shape `from` into one of shape `from + 1`.
    fn migrate(from: u64, body: Value) -> model::Result<Value> {
        let _ = body;
        Err(model::Error::internal(format!("no step leads on from shape {from} of kind '{}'", Self::KIND)))
    }
}

/// A row with its shape in front, so that reading it begins with that.
#[derive(Serialize)]
struct Shaped<'a, T> {
    shape: u64,
    #[serde(flatten)]
    row: &'a T,
}

/// What every body begins with that this version wrote; earlier ones wrote the shape somewhere among the fields.
const SHAPE_FIRST: &str = "{\"shape\":";

#[derive(Deserialize)]
struct ShapeOnly {
    shape: Option<u64>,
}

/// The body to store for a record.
pub fn encode<T: Row>(row: &T) -> Body {
    Body::of(&Shaped { shape: T::SHAPE, row })
}

/// Reads a stored body of this or an older shape.
pub fn decode<T: Row>(body: &Body) -> model::Result<T> {
    let wrong = |error: serde_json::Error| {
        model::Error::internal(format!("a record of kind '{}' cannot be read: {error}", T::KIND))
            .because(error)
    };
    let first = body.text().strip_prefix(SHAPE_FIRST).and_then(|rest| rest.split([',', '}']).next());
    let mut shape = match first.and_then(|number| number.parse().ok()) {
        Some(shape) => shape,
        None => body.read::<ShapeOnly>().map_err(wrong)?.shape.unwrap_or(1),
    };
    if shape == T::SHAPE {
        return body.read().map_err(wrong);
    }
    if shape > T::SHAPE {
        return Err(model::Error::internal(format!(
            "a record of kind '{}' has shape {shape}, this version knows up to {}",
            T::KIND,
            T::SHAPE
        ))
        .hint("the data was written by a newer version; start that one"));
    }
    let mut body = body.read::<Value>().map_err(wrong)?;
    while shape < T::SHAPE {
        body = T::migrate(shape, body)?;
        shape += 1;
    }
    serde_json::from_value(body).map_err(wrong)
}

/// What was asked for. The name is unique per tenant; the record's version is what `If-Match` speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    pub id: InstanceId,
    pub tenant: TenantId,
    pub name: Name,
    pub spec: Arc<InstanceSpec>,
    /// The image as it was when the instance was made.
    pub image: Arc<ImageManifest>,
    /// The workload that keeps it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// `Gone` once deletion was asked for.
    pub run: Run,
    pub restart_count: u64,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// Which part of which workload an instance is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub workload: WorkloadId,
    /// The template it was made from.
    pub revision: u64,
    /// The run it belongs to, of workloads that have runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The restarts of the workload that were asked for before it was made.
    #[serde(default)]
    pub restart: u64,
    /// Its end is in the numbers of its run.
    #[serde(default)]
    pub counted: bool,
}

/// What was decided and what is; same id as the instance. Written only by `tree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRecord {
    pub id: InstanceId,
    pub zone: Option<ZoneId>,
    pub generation: Generation,
    pub phase: Phase,
    /// As folded up by the zone, its events emptied.
    pub observed: Option<ObservedInstance>,
    /// Why root chose the zone, or found none.
    pub explanation: Option<Arc<Explanation>>,
    pub events_seen: u64,
    pub changed_at: Timestamp,
}

/// An enrolled zone. The name is unique.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneRecord {
    pub id: ZoneId,
    pub name: Name,
    pub enrolled_at: Timestamp,
    pub facts: Option<Facts>,
    #[serde(default)]
    pub mode: PlaceMode,
    /// Of a zone that empties: also what would rather wait moves.
    #[serde(default)]
    pub forced: bool,
    /// Names and addresses of its listeners, as it joined with them.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Those that an operator allowed, whoever else has them.
    #[serde(default)]
    pub granted: Vec<String>,
}

/// An enrolled provisioner. The name is unique among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerRecord {
    pub id: ProvisionerId,
    pub name: Name,
    pub enrolled_at: Timestamp,
}

/// A zone or provisioner that is never let in again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedRecord {
    pub name: Name,
    pub removed_at: Timestamp,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    pub id: TenantId,
    pub name: Name,
    #[serde(default)]
    pub quota: Quota,
    pub created_at: Timestamp,
}

/// A user; the name is unique per tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRecord {
    pub id: UserId,
    pub tenant: TenantId,
    pub name: Name,
    pub role: Role,
    /// Argon2id in PHC form.
    pub password_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub created_at: Timestamp,
}

/// A login; its secret is kept only as SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: SessionId,
    pub user: UserId,
    pub tenant: TenantId,
    pub hash: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// An API token; its secret is kept only as SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    pub id: TokenId,
    pub user: UserId,
    pub tenant: TenantId,
    pub name: Name,
    /// The most the token may do, whatever the user may.
    pub role: Role,
    pub hash: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// An access key; the secret is sealed under the master key, because signatures need it in clear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub id: AccessKeyId,
    pub user: UserId,
    pub tenant: TenantId,
    pub sealed_secret: String,
    pub created_at: Timestamp,
}

/// An image by name; public ones are seen by every tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    pub id: ImageId,
    pub tenant: TenantId,
    pub name: Name,
    pub manifest: ImageManifest,
    #[serde(default)]
    pub public: bool,
    /// Where it came from, for people: `import`, `built-in` or a registry reference.
    pub source: String,
    pub created_at: Timestamp,
}

/// Many like instances, as asked for. The name is unique per tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadRecord {
    pub id: WorkloadId,
    pub tenant: TenantId,
    pub name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppId>,
    pub spec: Arc<WorkloadSpec>,
    /// The image of the template, as it was when the revision was made.
    pub image: Arc<ImageManifest>,
    /// Counts the templates it had.
    pub revision: u64,
    /// The first revision with this very template: its instances need not be replaced.
    pub base: u64,
    pub revised_at: Timestamp,
    pub revised_by: String,
    /// Earlier templates, oldest first.
    #[serde(default)]
    pub earlier: Vec<TemplateRecord>,
    /// The revision that was given up for this one, and why; empty once users change the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back: Option<RolledBack>,
    /// Counts the restarts that users asked for.
    #[serde(default)]
    pub restart_count: u64,
    /// Counts the runs that users asked for.
    #[serde(default)]
    pub runs_asked: u64,
    /// The revision whose canary was promoted last.
    #[serde(default)]
    pub promoted: u64,
    /// Times of the schedule before this do not count.
    pub schedule_from: Timestamp,
    #[serde(default)]
    pub deleting: bool,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// A template that a workload had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    pub revision: u64,
    pub base: u64,
    pub created_at: Timestamp,
    pub created_by: String,
    pub instance: Arc<InstanceSpec>,
    pub image: Arc<ImageManifest>,
    /// Why it was given up, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    pub revision: u64,
    pub why: String,
}

/// What the controller of a workload has to remember, and what it tells users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadState {
    pub id: WorkloadId,
    /// The version of the workload's record that this speaks of.
    pub seen: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Runs under way and ended ones that are kept, oldest first.
    #[serde(default)]
    pub runs: Vec<RunRecord>,
    /// How many of the runs that users asked for have begun.
    #[serde(default)]
    pub runs_begun: u64,
    /// The number of the newest run.
    #[serde(default)]
    pub run_last: u64,
    /// The time up to which the schedule was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticked_at: Option<Timestamp>,
    /// Templates, by their base, of which all instances were once available; only those that are still known.
    #[serde(default)]
    pub complete: Vec<u64>,
    pub status: api::WorkloadStatus,
}

/// How far a revision, or a restart, has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub revision: u64,
    pub restart: u64,
    pub began_at: Timestamp,
    /// When it last came nearer to its end.
    pub progress_at: Timestamp,
    /// Most new instances that were available, and fewest old ones, so far.
    pub available_most: u32,
    pub old_least: u32,
    /// Since when all canaries are available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary_since: Option<Timestamp>,
    /// How many canaries there are, as the policy said when it began.
    #[serde(default)]
    pub canaries: u32,
    /// How many instances were wanted at the last look.
    #[serde(default)]
    pub wanted: u32,
    /// Since when it is paused, and its time stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// It concerns all instances, no longer only canaries.
    pub whole: bool,
    pub done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What the autoscaler decided and what it considers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    pub replicas: u32,
    /// When the number last changed; what was measured before says nothing of it.
    pub scaled_at: Timestamp,
    /// Since when more, or less, would be right, and how many at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_since: Option<(Timestamp, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less_since: Option<(Timestamp, u32)>,
}

/// One run of a workload that has runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    pub number: u64,
    pub began_at: Timestamp,
    pub succeeded: u32,
    pub failed: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// Ended instances that are kept to look at.
    pub kept: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A named group of workloads. The name is unique per tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRecord {
    pub id: AppId,
    pub tenant: TenantId,
    pub name: Name,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub deleting: bool,
    pub created_at: Timestamp,
    pub created_by: String,
}

/// The answer to a create that carried an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    pub request_hash: String,
    /// Sealed under the master key: the answer may hold a secret.
    pub sealed_body: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateRecord {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogueRecord {}

/// A provider, service, template and so on. Plugin types belong to no tenant and serve all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The folder it belongs in.
    pub kind: String,
    pub name: String,
    /// Counts its changes from 1.
    pub number: u64,
    /// Without its secrets.
    pub entity: Value,
    /// Secret fields of a provider, sealed under the master key.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub secrets: std::collections::BTreeMap<String, String>,
    pub changed_at: Timestamp,
    pub changed_by: String,
}

/// One of several root servers. It writes its record anew with every beat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// New with every start.
    pub id: String,
    /// Where zones and the other servers reach it.
    pub link_url: String,
    /// Where REST is served.
    pub endpoint: String,
    /// The machine and the folder it runs in.
    pub place: String,
    /// Names and addresses under which it is reached; no zone may have them.
    #[serde(default)]
    pub names: Vec<String>,
    pub beat: u64,
    /// When it joined, and when it last beat, by its own clock.
    #[serde(default)]
    pub since: Timestamp,
    #[serde(default)]
    pub at: Timestamp,
}

/// A root server that fell silent: its last record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostServerRecord {
    pub server: ServerRecord,
}

/// Who holds a duty. It changes only when the holder does, so that its version fences the holder's commits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DutyRecord {
    /// The id of a server; a duty whose holder is not there is vacant.
    pub holder: String,
    /// Counts holders.
    pub term: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    pub sealed: String,
}

/// Which of the root servers runs the object store. It stays while that server is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStoreRecord {
    /// The machine and the folder of the server.
    pub place: String,
    /// Where its REST is.
    pub endpoint: String,
}

macro_rules! rows {
    ($($record:ty => $kind:expr),+ $(,)?) => {
        $(impl Row for $record {
            const KIND: &'static str = $kind;
        })+
    };
}

rows! {
    InstanceRecord => kind::INSTANCE,
    StatusRecord => kind::STATUS,
    ZoneRecord => kind::ZONE,
    ProvisionerRecord => kind::PROVISIONER,
    RemovedRecord => kind::REMOVED,
    TenantRecord => kind::TENANT,
    UserRecord => kind::USER,
    SessionRecord => kind::SESSION,
    TokenRecord => kind::TOKEN,
    KeyRecord => kind::KEY,
    ImageRecord => kind::IMAGE,
    WorkloadRecord => kind::WORKLOAD,
    WorkloadState => kind::WORKLOAD_STATE,
    AppRecord => kind::APP,
    IdempotencyRecord => kind::IDEMPOTENCY,
    GateRecord => kind::GATE,
    DefinitionRecord => kind::DEFINITION,
    CatalogueRecord => kind::CATALOGUE,
    ServerRecord => kind::SERVER,
    LostServerRecord => kind::SERVER_LOST,
    DutyRecord => kind::DUTY,
    ObjectStoreRecord => kind::OBJECT_STORE,
    SecretRecord => kind::SECRET,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Grown {
        size_bytes: u64,
    }

    impl Row for Grown {
        const KIND: &'static str = "grown";
        const SHAPE: u64 = 2;

        fn migrate(from: u64, mut body: Value) -> model::Result<Value> {
            assert_eq!(from, 1);
            let mib = body["size_mib"].as_u64().expect("a number");
            body["size_bytes"] = (mib << 20).into();
            Ok(body)
        }
    }

    #[test]
    fn an_older_shape_is_walked_up_and_a_newer_one_refused() {
        let old = Body::from(serde_json::json!({"shape": 1, "size_mib": 2}));
        assert_eq!(decode::<Grown>(&old).expect("migrates"), Grown { size_bytes: 2 << 20 });
        let row = Grown { size_bytes: 7 };
        assert!(encode(&row).text().starts_with(SHAPE_FIRST));
        assert_eq!(decode::<Grown>(&encode(&row)).expect("reads back"), row);
        // An earlier version wrote fields in the order of their names.
        let sorted = Body::from(serde_json::json!({"aaa": 1, "shape": 2, "size_bytes": 7}));
        assert!(!sorted.text().starts_with(SHAPE_FIRST));
        assert_eq!(decode::<Grown>(&sorted).expect("reads"), row);
        let newer = Body::from(serde_json::json!({"shape": 3, "size_bytes": 2}));
        assert!(decode::<Grown>(&newer).expect_err("refused").message.contains("shape 3"));
    }
}
