//! An instance that looks for a place.

use model::constraint::Labels;
use model::{
    Assignment, ChildId, Constraints, GpuAsk, InstanceId, InstanceSpec, Resources, RuntimeKind, TenantId,
};

/// All of an instance that placing looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub id: InstanceId,
    /// Groups and labels of instances mean something within one tenant only, so
    /// that nobody can keep another tenant's instances off a node.
    pub tenant: Option<TenantId>,
    pub resources: Resources,
    pub gpu: Option<GpuAsk>,
    pub runtime: RuntimeKind,
    pub labels: Labels,
    pub priority: i32,
    pub constraints: Constraints,
    /// Children that already refused it, and why.
    pub avoid: Vec<(ChildId, String)>,
}

impl Want {
    pub fn from_spec(id: InstanceId, spec: &InstanceSpec) -> Self {
        Self {
            id,
            tenant: None,
            resources: spec.resources(),
            gpu: spec.gpu.clone(),
            runtime: spec.runtime,
            labels: spec.labels.clone(),
            priority: spec.priority,
            constraints: spec.constraints.clone(),
            avoid: Vec::new(),
        }
    }

    /// The same want as one of `tenant`.
    #[must_use]
    pub fn of(mut self, tenant: &TenantId) -> Self {
        self.tenant = Some(tenant.clone());
        self
    }

    pub(crate) fn scope(&self) -> &str {
        self.tenant.as_ref().map_or("", TenantId::as_str)
    }
}

impl From<&Assignment> for Want {
    fn from(assignment: &Assignment) -> Self {
        Self::from_spec(assignment.id.clone(), &assignment.spec).of(&assignment.tenant)
    }
}
