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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::identity::Rights;
    use crate::record::{Grant, Grantee, Permission};

    fn account(id: &str) -> Account {
        Account { id: id.into(), name: id.into() }
    }

    fn user(id: &str, rights: Rights) -> Principal {
        Principal { account: account(id), user: "ann".into(), rights, operator: false, session: None }
    }

    fn bucket(list: &str) -> Bucket {
        let owner = account("owner");
        let acl = acl::canned(list, &owner, None).unwrap();
        Bucket {
            id: 1,
            name: "b".into(),
            owner,
            created: 0,
            versioning: Default::default(),
            acl,
            policy: None,
            location: None,
            settings: Default::default(),
            quota: None,
        }
    }

    fn ask(caller: Option<&Principal>, action: Action, bucket: &Bucket, object: Option<&Acl>) -> bool {
        let object = object.map(|acl| Object { owner: &acl.owner, acl: Some(acl) });
        Question { caller, action, bucket, object }.allowed(Verdict::Silent, false)
    }

    #[test]
    fn the_owners_users_do_what_their_rights_say() {
        let bucket = bucket("private");
        let rows = [
            (Action::ListBucket, Rights::Read),
            (Action::PutObject, Rights::Write),
            (Action::DeleteBucket, Rights::Write),
            (Action::PutBucketPolicy, Rights::Manage),
            (Action::PutBucketAcl, Rights::Manage),
            (Action::BypassGovernanceRetention, Rights::Manage),
        ];
        for (action, needed) in rows {
            for rights in [Rights::Read, Rights::Write, Rights::Manage] {
                let allowed = ask(Some(&user("owner", rights)), action, &bucket, None);
                assert_eq!(allowed, rights >= needed, "{action:?} with {rights:?}");
            }
            assert!(
                !ask(Some(&user("other", Rights::Manage)), action, &bucket, None),
                "{action:?} by another"
            );
            assert!(!ask(None, action, &bucket, None), "{action:?} by nobody");
        }
    }

    #[test]
    fn a_viewer_writes_nowhere() {
        let open = bucket("public-read-write");
        let viewer = user("other", Rights::Read);
        assert!(!ask(Some(&viewer), Action::PutObject, &open, None));
        let question =
            Question { caller: Some(&viewer), action: Action::PutObject, bucket: &open, object: None };
        assert!(!question.allowed(Verdict::Allow, true));
        assert!(ask(Some(&viewer), Action::ListBucket, &open, None));
    }

    #[test]
    fn lists_of_buckets_grant() {
        let other = user("other", Rights::Manage);
        // list, action, another account, nobody
        let rows = [
            ("private", Action::ListBucket, false, false),
            ("public-read", Action::ListBucket, true, true),
            ("public-read", Action::PutObject, false, false),
            ("public-read-write", Action::PutObject, true, true),
            ("public-read-write", Action::DeleteObject, true, true),
            ("public-read-write", Action::DeleteObjectVersion, false, false),
            ("public-read-write", Action::GetBucketAcl, false, false),
            ("public-read-write", Action::DeleteBucket, false, false),
            ("authenticated-read", Action::ListBucket, true, false),
            ("log-delivery-write", Action::PutObject, false, false),
        ];
        for (list, action, another, nobody) in rows {
            let bucket = bucket(list);
            assert_eq!(ask(Some(&other), action, &bucket, None), another, "{list} {action:?}");
            assert_eq!(ask(None, action, &bucket, None), nobody, "{list} {action:?} by nobody");
        }
    }

    #[test]
    fn a_grant_gives_its_permission_alone() {
        use Permission::*;
        let other = user("other", Rights::Manage);
        let needs = [
            (Action::ListBucket, Read),
            (Action::PutObject, Write),
            (Action::GetBucketAcl, ReadAcp),
            (Action::PutBucketAcl, WriteAcp),
        ];
        for granted in [Read, Write, ReadAcp, WriteAcp, FullControl] {
            let mut bucket = bucket("private");
            bucket.acl.grants.push(Grant { to: Grantee::Account(account("other")), permission: granted });
            for (action, needed) in needs {
                let allowed = ask(Some(&other), action, &bucket, None);
                assert_eq!(
                    allowed,
                    granted == needed || granted == FullControl,
                    "{granted:?} for {action:?}"
                );
            }
        }
    }

    #[test]
    fn an_object_is_its_owners() {
        let open = bucket("public-read-write");
        let (owner, writer) = (user("owner", Rights::Manage), user("writer", Rights::Manage));
        let private = Acl::private(&account("writer"));
        assert!(ask(Some(&writer), Action::GetObject, &open, Some(&private)));
        assert!(
            !ask(Some(&owner), Action::GetObject, &open, Some(&private)),
            "the bucket's owner has no part in it"
        );
        assert!(
            !ask(None, Action::GetObject, &open, Some(&private)),
            "the bucket's list is not the object's"
        );
        assert!(ask(Some(&owner), Action::DeleteObject, &open, Some(&private)));
        let shared = acl::canned("bucket-owner-read", &account("writer"), Some(&account("owner"))).unwrap();
        assert!(ask(Some(&owner), Action::GetObject, &open, Some(&shared)));
        assert!(!ask(Some(&owner), Action::PutObjectAcl, &open, Some(&shared)));
        let public = acl::canned("public-read", &account("writer"), None).unwrap();
        assert!(ask(None, Action::GetObject, &bucket("private"), Some(&public)));
        assert!(!ask(None, Action::GetObjectAcl, &bucket("private"), Some(&public)));
    }

    #[test]
    fn enforced_ownership_disables_lists() {
        let mut enforced = bucket("public-read-write");
        enforced.settings.ownership = Some(ENFORCED.into());
        let owner = user("owner", Rights::Manage);
        let public = acl::canned("public-read", &account("writer"), None).unwrap();
        assert!(!ask(None, Action::GetObject, &enforced, Some(&public)));
        assert!(!ask(None, Action::ListBucket, &enforced, None));
        assert!(!ask(Some(&user("writer", Rights::Manage)), Action::GetObject, &enforced, Some(&public)));
        assert!(ask(Some(&owner), Action::GetObject, &enforced, Some(&public)));
    }

    #[test]
    fn public_lists_can_be_ignored() {
        let mut blocked = bucket("public-read");
        let block =
            s3s::dto::PublicAccessBlockConfiguration { ignore_public_acls: Some(true), ..Default::default() };
        blocked.settings.public_access = Some(block);
        let other = user("other", Rights::Manage);
        assert!(!ask(Some(&other), Action::ListBucket, &blocked, None));
        assert!(ask(Some(&user("owner", Rights::Read)), Action::ListBucket, &blocked, None));
        blocked
            .acl
            .grants
            .push(Grant { to: Grantee::Account(account("other")), permission: Permission::Read });
        assert!(ask(Some(&other), Action::ListBucket, &blocked, None), "a grant to one is not public");
    }

    #[test]
    fn a_policy_denies_also_the_owner_but_never_its_own_end() {
        let bucket = bucket("public-read");
        let owner = user("owner", Rights::Manage);
        let denied = |caller, action| {
            !Question { caller, action, bucket: &bucket, object: None }.allowed(Verdict::Deny, false)
        };
        assert!(denied(Some(&owner), Action::ListBucket));
        assert!(denied(None, Action::ListBucket));
        assert!(!denied(Some(&owner), Action::DeleteBucketPolicy));
        assert!(!denied(Some(&owner), Action::PutBucketPolicy));
        let (member, other) = (user("owner", Rights::Write), user("other", Rights::Manage));
        assert!(denied(Some(&member), Action::DeleteBucketPolicy));
        assert!(denied(Some(&other), Action::DeleteBucketPolicy));
    }

    #[test]
    fn a_public_policy_can_be_restricted_to_the_owners_account() {
        let mut bucket = bucket("private");
        let (owner, other) = (user("owner", Rights::Read), user("other", Rights::Read));
        let ask = |bucket: &Bucket, caller, public| {
            Question { caller, action: Action::ListBucket, bucket, object: None }
                .allowed(Verdict::Allow, public)
        };
        assert!(ask(&bucket, None, true));
        bucket.settings.public_access = Some(s3s::dto::PublicAccessBlockConfiguration {
            restrict_public_buckets: Some(true),
            ..Default::default()
        });
        assert!(!ask(&bucket, None, true));
        assert!(!ask(&bucket, Some(&other), true));
        assert!(ask(&bucket, Some(&owner), true));
        assert!(ask(&bucket, Some(&other), false), "a policy for some is not restricted");
    }
}
