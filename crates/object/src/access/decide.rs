//! Whether a request may pass: the owner's rights, the policy's word and the lists, put together. No I/O.

use super::acl;
use super::action::{Action, Target};
use super::policy::Verdict;
use crate::identity::{Account, Principal};
use crate::record::{Acl, Bucket};

/// Disables ACLs; everything in the bucket is its owner's.
pub const ENFORCED: &str = "BucketOwnerEnforced";
/// Uploads that give all rights to the bucket's owner become the owner's.
pub const PREFERRED: &str = "BucketOwnerPreferred";
/// Who uploads an object owns it.
pub const WRITER: &str = "ObjectWriter";

/// Whether ACLs are disabled.
pub fn is_enforced(bucket: &Bucket) -> bool {
    bucket.settings.ownership.as_deref() == Some(ENFORCED)
}

/// An object that an action is asked of.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    pub owner: &'a Account,
    /// Without a list the object is its owner's alone.
    pub acl: Option<&'a Acl>,
}

/// Who asks what of which.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    pub caller: Option<&'a Principal>,
    pub action: Action,
    pub bucket: &'a Bucket,
    /// Needed for actions on objects.
    pub object: Option<Object<'a>>,
}

impl Question<'_> {
    /// Answers, given what the policy of the bucket says and whether it gives rights to everyone.
    pub fn allowed(&self, verdict: Verdict, policy_is_public: bool) -> bool {
        if self.caller.is_some_and(|caller| caller.rights < self.action.rights()) {
            return false;
        }
        let home = self.caller.is_some_and(|caller| caller.account.id == self.bucket.owner.id);
        match verdict {
            Verdict::Deny => return home && self.action.frees_policy(),
            Verdict::Allow if home || !(policy_is_public && self.restricts_public()) => return true,
            Verdict::Allow | Verdict::Silent => {}
        }
        self.owned(home) || self.granted()
    }

    fn owned(&self, home: bool) -> bool {
        match (self.action.target(), self.object) {
            (Target::Service, _) => self.caller.is_some(),
            (Target::Object, Some(object)) if !is_enforced(self.bucket) => {
                self.caller.is_some_and(|caller| caller.account.id == object.owner.id)
            }
            _ => home,
        }
    }

    fn granted(&self) -> bool {
        let Some(permission) = self.action.grant() else { return false };
        if is_enforced(self.bucket) {
            return false;
        }
        let acl = match (self.action.target(), self.object) {
            (Target::Object, Some(object)) => object.acl,
            (Target::Bucket | Target::Key, _) => Some(&self.bucket.acl),
            _ => None,
        };
        acl.is_some_and(|acl| acl::grants_permission(acl, self.caller, permission, self.ignores_public()))
    }

    fn ignores_public(&self) -> bool {
        let block = self.bucket.settings.public_access.as_ref();
        block.is_some_and(|block| block.ignore_public_acls == Some(true))
    }

    fn restricts_public(&self) -> bool {
        let block = self.bucket.settings.public_access.as_ref();
        block.is_some_and(|block| block.restrict_public_buckets == Some(true))
    }
}
