//! The whole of root's records at one point of the change feed, immutable.
//!
//! Maps share what did not change, so the next snapshot costs the change and
//! not the whole. Instances are also kept by tenant and name, together with
//! their status, so that a list is one walk over a sorted map.

use std::ops::Deref;
use std::sync::Arc;

use api::Usage;
use imbl::{HashMap, OrdMap};
use model::{
    AccessKeyId, AppId, ChildId, ClusterId, ImageId, InstanceId, Name, Phase, ProvisionerId, Run, SessionId,
    TenantId, TokenId, UserId, WorkloadId, ZoneId,
};

use crate::bootstrap::MAIN;
use crate::cluster::record::{CallRecord, ClusterRecord, JobRecord, NodeRecord};
use crate::resource::ResourceRecord;
use crate::tables::{
    AppRecord, DefinitionRecord, DutyRecord, ImageRecord, InstanceRecord, KeyRecord, LostServerRecord,
    ObjectStoreRecord, ProvisionerRecord, RemovedRecord, ServerRecord, SessionRecord, StatusRecord,
    TenantRecord, TokenRecord, UserRecord, WorkloadRecord, WorkloadState, ZoneRecord,
};

/// A record with the version the store gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned<T> {
    pub version: i64,
    pub value: T,
}

impl<T> Deref for Versioned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

pub type Row<T> = Versioned<Arc<T>>;

/// An instance with what became of it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub instance: Row<InstanceRecord>,
    pub status: Option<Arc<StatusRecord>>,
}

impl Entry {
    /// The phase shown to users.
    pub fn phase(&self) -> Phase {
        if self.instance.run == Run::Gone {
            return Phase::Deleting;
        }
        self.status.as_ref().map_or(Phase::Pending, |status| status.phase)
    }

    /// Whether it is stopped, or ended for good.
    pub fn rests(&self) -> bool {
        let seen = self.status.as_ref().and_then(|status| status.observed.as_ref());
        seen.is_some_and(|seen| seen.rests(self.instance.run))
    }

    /// What it counts for against a quota. At rest that is no processor and no memory; what is kept of a run
    /// that ended does not count at all, so that it never keeps the next run from beginning.
    pub fn usage(&self) -> Usage {
        if !self.rests() {
            return self.usage_awake();
        }
        let kept = self.instance.owner.as_ref().is_some_and(|owner| owner.counted);
        Usage { instances: u64::from(!kept), ..Usage::default() }
    }

    /// What it counts for when it is not at rest.
    pub fn usage_awake(&self) -> Usage {
        let spec = &self.instance.spec;
        Usage { instances: 1, cpu: spec.cpu, memory: spec.memory, ..Usage::default() }
    }
}

/// Whose secret it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    Session(SessionId),
    Token(TokenId),
}

/// By kind and name.
pub type Definitions = OrdMap<(String, String), Row<DefinitionRecord>>;

/// Files of plugins, by path and number.
pub type Resources = OrdMap<(String, u32), Row<ResourceRecord>>;

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The last change that is in here.
    pub seq: i64,
    /// So that the instances of a workload share their spec and image.
    pub(crate) intern: tier::Intern,
    pub instances: OrdMap<InstanceId, Row<InstanceRecord>>,
    pub statuses: OrdMap<InstanceId, Arc<StatusRecord>>,
    /// The same instances by tenant and name.
    pub entries: HashMap<TenantId, OrdMap<Name, Entry>>,
    /// The instances of each workload.
    pub members: HashMap<WorkloadId, OrdMap<InstanceId, Entry>>,
    pub usage: HashMap<TenantId, Usage>,
    pub workloads: OrdMap<WorkloadId, Row<WorkloadRecord>>,
    pub workload_states: OrdMap<WorkloadId, Row<WorkloadState>>,
    pub workload_names: HashMap<TenantId, OrdMap<Name, WorkloadId>>,
    pub apps: OrdMap<AppId, Row<AppRecord>>,
    pub app_names: HashMap<TenantId, OrdMap<Name, AppId>>,
    /// The workloads of each app.
    pub app_members: HashMap<AppId, OrdMap<Name, WorkloadId>>,
    pub clusters: OrdMap<ClusterId, Row<ClusterRecord>>,
    pub cluster_names: HashMap<TenantId, OrdMap<Name, ClusterId>>,
    pub cluster_nodes: HashMap<ClusterId, OrdMap<u32, Row<NodeRecord>>>,
    pub cluster_jobs: HashMap<ClusterId, OrdMap<u64, Row<JobRecord>>>,
    /// The jobs that are not over.
    pub cluster_open: OrdMap<String, (ClusterId, u64)>,
    /// Webhooks to be called.
    pub cluster_calls: OrdMap<String, Row<CallRecord>>,
    pub zones: OrdMap<ZoneId, Row<ZoneRecord>>,
    pub zone_names: OrdMap<Name, ZoneId>,
    pub provisioners: OrdMap<ProvisionerId, Row<ProvisionerRecord>>,
    /// Zones and provisioners that were removed for good.
    pub removed: OrdMap<ChildId, Arc<RemovedRecord>>,
    pub tenants: OrdMap<TenantId, Row<TenantRecord>>,
    pub tenant_names: OrdMap<Name, TenantId>,
    pub users: OrdMap<UserId, Row<UserRecord>>,
    pub user_names: OrdMap<(TenantId, Name), UserId>,
    pub sessions: OrdMap<SessionId, Arc<SessionRecord>>,
    pub tokens: OrdMap<TokenId, Row<TokenRecord>>,
    /// SHA-256 of a secret, in hex.
    pub credentials: HashMap<String, Credential>,
    pub keys: OrdMap<AccessKeyId, Row<KeyRecord>>,
    pub images: OrdMap<ImageId, Row<ImageRecord>>,
    pub image_names: OrdMap<(TenantId, Name), ImageId>,
    /// When each answer kept for an idempotency key was given.
    pub idempotency: OrdMap<String, model::Timestamp>,
    pub gates: HashMap<TenantId, i64>,
    /// By tenant (none for those that serve all), then by kind and name.
    pub definitions: HashMap<Option<TenantId>, Definitions>,
    /// The version of each tenant's catalogue.
    pub catalogues: HashMap<String, i64>,
    pub resources: HashMap<TenantId, Resources>,
    /// The last change of what provisioners have of them.
    pub resources_seq: i64,
    pub servers: OrdMap<String, Row<ServerRecord>>,
    /// Those that fell silent and were not forgotten by an operator.
    pub servers_lost: OrdMap<String, Row<LostServerRecord>>,
    pub duties: OrdMap<String, Row<DutyRecord>>,
    /// At most one.
    pub object_stores: OrdMap<String, Row<ObjectStoreRecord>>,
}

impl Snapshot {
    pub fn tenant_by_name(&self, name: &str) -> Option<&Row<TenantRecord>> {
        let name: Name = name.parse().ok()?;
        self.tenants.get(self.tenant_names.get(&name)?)
    }

    /// The tenant in whose history stands what happens to the cloud itself.
    pub fn operators(&self) -> Option<TenantId> {
        self.tenant_by_name(MAIN).map(|tenant| tenant.id.clone())
    }

    pub fn user_by_name(&self, tenant: &TenantId, name: &Name) -> Option<&Row<UserRecord>> {
        self.users.get(self.user_names.get(&(tenant.clone(), name.clone()))?)
    }

    /// An instance of the tenant by name or id.
    pub fn entry(&self, tenant: &TenantId, name_or_id: &str) -> Option<&Entry> {
        let entries = self.entries.get(tenant)?;
        if let Ok(id) = name_or_id.parse::<InstanceId>() {
            // A name may look like an id; the id wins.
            if let Some(found) = self.instances.get(&id).filter(|i| i.tenant == *tenant) {
                return entries.get(&found.name);
            }
        }
        entries.get(&name_or_id.parse::<Name>().ok()?)
    }

    /// A workload of the tenant by name or id.
    pub fn workload(&self, tenant: &TenantId, name_or_id: &str) -> Option<&Row<WorkloadRecord>> {
        let id = name_or_id.parse::<WorkloadId>().ok();
        if let Some(found) = id.and_then(|id| self.workloads.get(&id)).filter(|w| w.tenant == *tenant) {
            return Some(found);
        }
        self.workloads.get(self.workload_names.get(tenant)?.get(&name_or_id.parse::<Name>().ok()?)?)
    }

    /// A cluster of the tenant by name or id.
    pub fn cluster(&self, tenant: &TenantId, name_or_id: &str) -> Option<&Row<ClusterRecord>> {
        let id = name_or_id.parse::<ClusterId>().ok();
        if let Some(found) = id.and_then(|id| self.clusters.get(&id)).filter(|row| row.tenant == *tenant) {
            return Some(found);
        }
        self.clusters.get(self.cluster_names.get(tenant)?.get(&name_or_id.parse::<Name>().ok()?)?)
    }

    pub fn cluster_job(&self, cluster: &ClusterId, number: u64) -> Option<&Row<JobRecord>> {
        self.cluster_jobs.get(cluster)?.get(&number)
    }

    /// An app of the tenant by name or id.
    pub fn app(&self, tenant: &TenantId, name_or_id: &str) -> Option<&Row<AppRecord>> {
        let id = name_or_id.parse::<AppId>().ok();
        if let Some(found) = id.and_then(|id| self.apps.get(&id)).filter(|app| app.tenant == *tenant) {
            return Some(found);
        }
        self.apps.get(self.app_names.get(tenant)?.get(&name_or_id.parse::<Name>().ok()?)?)
    }

    /// An image the tenant may use, by name or id: its own first, then public ones.
    pub fn image_usable(&self, tenant: &TenantId, name_or_id: &str) -> Option<&Row<ImageRecord>> {
        let visible = |image: &&Row<ImageRecord>| image.tenant == *tenant || image.public;
        let id = name_or_id.parse::<ImageId>().ok();
        if let Some(image) = id.and_then(|id| self.images.get(&id)).filter(visible) {
            return Some(image);
        }
        let name: Name = name_or_id.parse().ok()?;
        if let Some(id) = self.image_names.get(&(tenant.clone(), name.clone())) {
            return self.images.get(id);
        }
        // Public images are few and owned by operators' tenants.
        self.image_names
            .iter()
            .filter(|((_, of), _)| *of == name)
            .filter_map(|(_, id)| self.images.get(id))
            .find(|image| image.public)
    }

    /// Whether an instance is there and not at rest.
    pub(crate) fn awake(&self, id: &InstanceId) -> bool {
        let entry = |instance: &Row<InstanceRecord>| Entry {
            instance: instance.clone(),
            status: self.statuses.get(id).cloned(),
        };
        self.instances.get(id).is_some_and(|instance| !entry(instance).rests())
    }

    pub fn tenant_usage(&self, tenant: &TenantId) -> Usage {
        self.usage.get(tenant).copied().unwrap_or_default()
    }

    /// The zone's name, as users see it.
    pub fn zone_name(&self, id: &ZoneId) -> Option<Name> {
        self.zones.get(id).map(|zone| zone.name.clone())
    }

    /// A provisioner by name or id.
    pub fn provisioner_find(&self, name_or_id: &str) -> Option<&Row<ProvisionerRecord>> {
        let is =
            |row: &&Row<ProvisionerRecord>| row.name.as_str() == name_or_id || row.id.as_str() == name_or_id;
        self.provisioners.values().find(is)
    }

    /// A zone by name or id.
    pub fn zone_find(&self, name_or_id: &str) -> Option<&Row<ZoneRecord>> {
        let id = name_or_id.parse::<ZoneId>().ok();
        if let Some(zone) = id.and_then(|id| self.zones.get(&id)) {
            return Some(zone);
        }
        self.zones.get(self.zone_names.get(&name_or_id.parse::<Name>().ok()?)?)
    }
}
