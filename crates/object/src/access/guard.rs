//! Asks the rules of one bucket on behalf of one caller.

use std::borrow::Cow;
use std::sync::Arc;

use s3s::S3ErrorCode;

use super::action::{Action, Target};
use super::context::Context;
use super::decide::{Object, Question};
use super::policy::{Asked, Policy, Subject, Verdict};
use crate::engine::View;
use crate::fault::{Fault, Result};
use crate::record::{Bucket, Version};
use crate::service::{Caller, Records, Service};
use crate::version;

/// The rules of a bucket as they are now. Ask it more than once where a request is about many keys.
pub struct Guard<'a> {
    caller: &'a Caller,
    view: View,
    bucket: Arc<Bucket>,
    policy: Option<Policy>,
    public: bool,
}

impl<'a> Guard<'a> {
    /// `NoSuchBucket` if it is not there.
    pub fn open(service: &Service, caller: &'a Caller, bucket: &str) -> Result<Self> {
        let view = service.engine.read()?;
        let bucket = view.bucket_shared(bucket)?;
        let policy = bucket.policy.as_deref().map(Policy::kept);
        let public = policy.as_ref().is_some_and(Policy::is_public);
        Ok(Self { caller, view, bucket, policy, public })
    }

    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Whether the answer can depend on a context.
    pub fn needs_context(&self) -> bool {
        self.policy.is_some() || self.caller.narrowed.is_some()
    }

    /// `AccessDenied` unless the caller may. A key that is not there passes if the caller may know that.
    pub fn check(
        &self,
        action: Action,
        key: Option<&str>,
        version: Option<&str>,
        context: &Context,
    ) -> Result<()> {
        let object = match key {
            Some(key) if action.target() == Target::Object || self.wants_tags() => {
                match version::lookup(&self.view, self.bucket.id, key, version) {
                    Ok(found) => found,
                    // An id that none can have is the operation's to refuse.
                    Err(Fault::S3(..)) => None,
                    Err(error) => return Err(error),
                }
            }
            _ => None,
        };
        let missing = object.as_ref().is_none_or(|object| object.head.marker && version.is_none());
        let allowed = match key {
            Some(key) if missing && action.target() == Target::Object => self.may_miss(action, key, context),
            _ => self.may(action, key, object.as_ref(), context),
        };
        if allowed { Ok(()) } else { Err(denied()) }
    }

    /// Refuses what a policy or the caller's session takes away. For what comes with something that is allowed.
    pub fn check_open(&self, action: Action, key: &str, context: &Context) -> Result<()> {
        let denies = self.verdict(action, Some(key), context) == Verdict::Deny;
        if denies || !self.within_session(action, Some(key), context) { Err(denied()) } else { Ok(()) }
    }

    /// Whether what passed the check did so by a list of rights alone.
    pub fn needs_acl(&self, action: Action, key: Option<&str>, context: &Context) -> bool {
        let caller = self.caller.principal.as_ref();
        let home = caller.is_some_and(|caller| caller.account.id == self.bucket.owner.id);
        !home && self.verdict(action, key, context) == Verdict::Silent
    }

    /// Who may list the names may know that one is not there.
    fn may_miss(&self, action: Action, key: &str, context: &Context) -> bool {
        if self.verdict(action, Some(key), context) == Verdict::Deny
            || !self.within_session(action, Some(key), context)
        {
            return false;
        }
        let mut context = context.clone();
        context.set("s3:prefix", key);
        self.may(Action::ListBucket, None, None, &context)
    }

    fn may(&self, action: Action, key: Option<&str>, object: Option<&Version>, context: &Context) -> bool {
        let mut context = Cow::Borrowed(context);
        if let Some(object) = object.filter(|_| self.wants_tags()) {
            for (name, value) in &object.tags {
                context.to_mut().add(&format!("s3:ExistingObjectTag/{name}"), value);
            }
        }
        let object = object.map(|object| Object { owner: &object.head.owner, acl: object.acl.as_ref() });
        let question =
            Question { caller: self.caller.principal.as_ref(), action, bucket: &self.bucket, object };
        self.within_session(action, key, &context)
            && question.allowed(self.verdict(action, key, &context), self.public)
    }

    fn verdict(&self, action: Action, key: Option<&str>, context: &Context) -> Verdict {
        let Some(policy) = &self.policy else { return Verdict::Silent };
        let resource = resource(&self.bucket.name, key);
        policy.verdict(&Asked {
            subject: Subject::of(self.caller),
            action: action.name(),
            resource: &resource,
            context,
        })
    }

    /// Temporary credentials may carry a policy of their own, which must allow what is asked.
    fn within_session(&self, action: Action, key: Option<&str>, context: &Context) -> bool {
        let Some(policy) = &self.caller.narrowed else { return true };
        let resource = resource(&self.bucket.name, key);
        let asked =
            Asked { subject: Subject::of(self.caller), action: action.name(), resource: &resource, context };
        policy.verdict(&asked) == Verdict::Allow
    }

    /// Tags are read for conditions alone.
    fn wants_tags(&self) -> bool {
        self.needs_context()
    }
}

pub(super) fn denied() -> Fault {
    Fault::new(S3ErrorCode::AccessDenied, "Access Denied")
}

fn resource(bucket: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("arn:aws:s3:::{bucket}/{key}"),
        None => format!("arn:aws:s3:::{bucket}"),
    }
}

/// Whether the policy of a bucket lets a part of the cloud act on a key, such as `logging.s3.amazonaws.com`.
pub fn service_may(bucket: &Bucket, service: &str, action: Action, key: &str, context: &Context) -> bool {
    let Some(policy) = bucket.policy.as_deref().map(Policy::kept) else { return false };
    let resource = resource(&bucket.name, Some(key));
    let asked =
        Asked { subject: Subject::Service(service), action: action.name(), resource: &resource, context };
    policy.verdict(&asked) == Verdict::Allow
}

/// Whether the caller may do this too: the source of a copy, a key of a multi-delete, the bypass of a lock.
/// `context` is what [`super::request_context`] says of the request, and more if the action needs it.
pub fn authorize(
    service: &Service,
    caller: &Caller,
    action: Action,
    bucket: &str,
    key: Option<&str>,
    version: Option<&str>,
    context: &Context,
) -> Result<()> {
    Guard::open(service, caller, bucket)?.check(action, key, version, context)
}
