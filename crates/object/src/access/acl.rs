//! Access control lists: canned, from headers, from XML, and what they grant.

use http::HeaderMap;
use s3s::{S3ErrorCode, dto};

use crate::fault::{Fault, Result};
use crate::identity::{Account, Identity, Principal};
use crate::record::{Acl, Grant, Grantee, Permission};

/// The most grants of one list.
pub const GRANTS_MAX: usize = 100;

const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const LOG_DELIVERY: &str = "http://acs.amazonaws.com/groups/s3/LogDelivery";

const CANNED: &str = "x-amz-acl";
const GRANTS: [(&str, Permission); 5] = [
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
    ("x-amz-grant-full-control", Permission::FullControl),
];

/// The list that a canned name stands for. `bucket` is the owner of the bucket, if the list is an object's.
pub fn canned(name: &str, owner: &Account, bucket: Option<&Account>) -> Option<Acl> {
    use Grantee::{AllUsers, AuthenticatedUsers, LogDelivery};
    let others = match name {
        "private" => vec![],
        "public-read" => vec![(AllUsers, Permission::Read)],
        "public-read-write" => vec![(AllUsers, Permission::Read), (AllUsers, Permission::Write)],
        "authenticated-read" => vec![(AuthenticatedUsers, Permission::Read)],
        "log-delivery-write" => vec![(LogDelivery, Permission::Write), (LogDelivery, Permission::ReadAcp)],
        // A bucket's own list has no other owner to name, and an owner has all rights already.
        "aws-exec-read" => vec![],
        "bucket-owner-read" | "bucket-owner-full-control" => {
            let permission = if name.ends_with("read") { Permission::Read } else { Permission::FullControl };
            let other = bucket.filter(|bucket| bucket.id != owner.id);
            other.map(|bucket| (Grantee::Account(bucket.clone()), permission)).into_iter().collect()
        }
        _ => return None,
    };
    let mut grants: Vec<Grant> =
        others.into_iter().map(|(to, permission)| Grant { to, permission }).collect();
    grants.extend(Acl::private(owner).grants);
    Some(Acl { owner: owner.clone(), grants })
}

/// Whether the headers ask for a list.
pub fn asked(headers: &HeaderMap) -> bool {
    headers.contains_key(CANNED) || GRANTS.iter().any(|(name, _)| headers.contains_key(*name))
}

/// Whether the headers ask for the bucket's owner to have all rights.
pub fn asks_full_control(headers: &HeaderMap) -> bool {
    headers.get(CANNED).is_some_and(|name| name == "bucket-owner-full-control")
}

/// Whether what the headers ask for gives rights to nobody but the owners of object and bucket.
pub fn asks_private(headers: &HeaderMap) -> bool {
    let private = ["private", "bucket-owner-read", "bucket-owner-full-control"];
    let canned = headers.get(CANNED).is_none_or(|name| private.iter().any(|private| name == private));
    canned && GRANTS.iter().all(|(name, _)| !headers.contains_key(*name))
}

/// The list that headers ask for, if they do.
pub async fn from_headers(
    identity: &dyn Identity,
    headers: &HeaderMap,
    owner: &Account,
    bucket: Option<&Account>,
) -> Result<Option<Acl>> {
    let text = |name: &str| {
        let value = headers.get(name).map(|value| value.to_str());
        value.transpose().map_err(|_| argument(format!("The header {name} is not text")))
    };
    let name = text(CANNED)?;
    let mut grants = Vec::new();
    for (header, permission) in GRANTS {
        let Some(list) = text(header)? else { continue };
        for (kind, value) in grantees(list)? {
            grants.push(Grant { to: resolve(identity, &kind, &value).await?, permission });
        }
    }
    match name {
        Some(_) if !grants.is_empty() => Err(Fault::new(
            S3ErrorCode::InvalidRequest,
            "Specifying both Canned ACLs and Header Grants is not allowed",
        )),
        Some(name) => {
            canned(name, owner, bucket).map(Some).ok_or_else(|| argument(format!("Unknown ACL: {name}")))
        }
        None if grants.is_empty() => Ok(None),
        None => limited(Acl { owner: owner.clone(), grants }).map(Some),
    }
}

/// The list that a body asks for. It must name the owner that the bucket or object has.
pub async fn from_xml(
    identity: &dyn Identity,
    body: dto::AccessControlPolicy,
    owner: &Account,
) -> Result<Acl> {
    let named = body.owner.and_then(|owner| owner.id);
    let named = named.ok_or_else(|| malformed("The list names no owner"))?;
    if *named != *owner.id {
        return Err(Fault::new(S3ErrorCode::AccessDenied, "The owner of an ACL cannot be changed"));
    }
    let mut grants = Vec::new();
    for grant in body.grants.unwrap_or_default() {
        let permission = grant.permission.ok_or_else(|| malformed("A grant has no permission"))?;
        let permission = permission_of(permission.as_str())
            .ok_or_else(|| malformed("A grant has an unknown permission"))?;
        let grantee = grant.grantee.ok_or_else(|| malformed("A grant names no grantee"))?;
        let (kind, value) = match grantee.type_.as_str() {
            dto::Type::CANONICAL_USER => ("id", grantee.id),
            dto::Type::AMAZON_CUSTOMER_BY_EMAIL => ("emailaddress", grantee.email_address),
            dto::Type::GROUP => ("uri", grantee.uri),
            _ => return Err(malformed("A grantee has an unknown type")),
        };
        let value = value.ok_or_else(|| malformed("A grantee has no name of its type"))?;
        grants.push(Grant { to: resolve(identity, kind, &value).await?, permission });
    }
    limited(Acl { owner: owner.clone(), grants })
}

fn limited(acl: Acl) -> Result<Acl> {
    if acl.grants.len() > GRANTS_MAX {
        return Err(malformed("The list has more than 100 grants"));
    }
    Ok(acl)
}

/// Splits `id="a", emailAddress=b` into lower-case kinds and values.
fn grantees(list: &str) -> Result<Vec<(String, String)>> {
    let entries = list.split(',').map(|entry| {
        let (kind, value) =
            entry.split_once('=').ok_or_else(|| argument("A grantee has the form type=value"))?;
        let value = value.trim();
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        Ok((kind.trim().to_ascii_lowercase(), value.to_owned()))
    });
    entries.collect()
}

async fn resolve(identity: &dyn Identity, kind: &str, value: &str) -> Result<Grantee> {
    match kind {
        "id" => {
            let account = identity.account(value).await;
            account.map(Grantee::Account).ok_or_else(|| argument("Invalid id"))
        }
        "emailaddress" => {
            let account = identity.account_by_email(value).await;
            account.map(Grantee::Account).ok_or_else(|| {
                Fault::new(
                    S3ErrorCode::UnresolvableGrantByEmailAddress,
                    "The e-mail address you provided does not match any account on record",
                )
            })
        }
        "uri" => match value {
            ALL_USERS => Ok(Grantee::AllUsers),
            AUTHENTICATED_USERS => Ok(Grantee::AuthenticatedUsers),
            LOG_DELIVERY => Ok(Grantee::LogDelivery),
            _ => Err(argument("Invalid group uri")),
        },
        _ => Err(argument("A grantee is named by id, emailAddress or uri")),
    }
}

fn argument(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}

fn malformed(message: &'static str) -> Fault {
    Fault::new(S3ErrorCode::MalformedACLError, message)
}

fn permission_of(name: &str) -> Option<Permission> {
    Some(match name {
        dto::Permission::FULL_CONTROL => Permission::FullControl,
        dto::Permission::READ => Permission::Read,
        dto::Permission::WRITE => Permission::Write,
        dto::Permission::READ_ACP => Permission::ReadAcp,
        dto::Permission::WRITE_ACP => Permission::WriteAcp,
        _ => return None,
    })
}

fn permission_name(permission: Permission) -> &'static str {
    match permission {
        Permission::FullControl => dto::Permission::FULL_CONTROL,
        Permission::Read => dto::Permission::READ,
        Permission::Write => dto::Permission::WRITE,
        Permission::ReadAcp => dto::Permission::READ_ACP,
        Permission::WriteAcp => dto::Permission::WRITE_ACP,
    }
}

/// An account as answers show it.
pub fn owner(account: &Account) -> dto::Owner {
    dto::Owner { id: Some(account.id.to_string()), display_name: Some(account.name.to_string()) }
}

/// The grants as answers show them: groups first.
pub fn grants(acl: &Acl) -> Vec<dto::Grant> {
    let mut grants: Vec<&Grant> = acl.grants.iter().collect();
    grants.sort_by_key(|grant| matches!(grant.to, Grantee::Account(_)));
    let grants = grants.into_iter().map(|grant| {
        let group = |uri: &str| dto::Grantee {
            display_name: None,
            email_address: None,
            id: None,
            type_: dto::Type::from_static(dto::Type::GROUP),
            uri: Some(uri.to_owned()),
        };
        let grantee = match &grant.to {
            Grantee::Account(account) => dto::Grantee {
                display_name: Some(account.name.to_string()),
                email_address: None,
                id: Some(account.id.to_string()),
                type_: dto::Type::from_static(dto::Type::CANONICAL_USER),
                uri: None,
            },
            Grantee::AllUsers => group(ALL_USERS),
            Grantee::AuthenticatedUsers => group(AUTHENTICATED_USERS),
            Grantee::LogDelivery => group(LOG_DELIVERY),
        };
        let permission = dto::Permission::from_static(permission_name(grant.permission));
        dto::Grant { grantee: Some(grantee), permission: Some(permission) }
    });
    grants.collect()
}

/// Whether a list gives anything to everyone, or to everyone who has an account.
pub fn is_public(acl: &Acl) -> bool {
    acl.grants.iter().any(is_public_grant)
}

fn is_public_grant(grant: &Grant) -> bool {
    matches!(grant.to, Grantee::AllUsers | Grantee::AuthenticatedUsers)
}

/// Whether a list gives `permission`. Grants to everyone do not count where they are to be ignored.
pub fn grants_permission(
    acl: &Acl,
    caller: Option<&Principal>,
    permission: Permission,
    ignore_public: bool,
) -> bool {
    acl.grants.iter().any(|grant| {
        let permitted = grant.permission == permission || grant.permission == Permission::FullControl;
        let included = match &grant.to {
            Grantee::AllUsers => true,
            Grantee::AuthenticatedUsers => caller.is_some(),
            Grantee::Account(account) => caller.is_some_and(|caller| caller.account.id == account.id),
            Grantee::LogDelivery => false,
        };
        permitted && included && !(ignore_public && is_public_grant(grant))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use async_trait::async_trait;
    use futures::executor::block_on;

    use super::*;
    use crate::identity::Key;

    struct Few;

    fn account(id: &str) -> Account {
        Account { id: id.into(), name: id.to_uppercase().into() }
    }

    #[async_trait]
    impl Identity for Few {
        async fn key(&self, _: &str) -> Option<Key> {
            None
        }
        async fn account(&self, id: &str) -> Option<Account> {
            ["ann", "bob"].contains(&id).then(|| account(id))
        }
        async fn account_by_email(&self, email: &str) -> Option<Account> {
            (email == "bob@example.com").then(|| account("bob"))
        }
        async fn user_exists(&self, _: &str, _: &str) -> bool {
            false
        }
        async fn quota(&self, _: &str) -> Option<u64> {
            None
        }
        fn root_key(&self) -> [u8; 32] {
            [0; 32]
        }
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> String {
        match result {
            Err(Fault::S3(code, _)) => code.as_str().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn read(headers: &[(&'static str, &str)]) -> Result<Option<Acl>> {
        let headers = headers.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), value.parse::<http::HeaderValue>().unwrap())
        });
        block_on(from_headers(&Few, &headers.collect(), &account("ann"), Some(&account("owner"))))
    }

    /// `who: permission` of each grant.
    fn lines(acl: &Acl) -> Vec<String> {
        let grants = grants(acl).into_iter().map(|grant| {
            let grantee = grant.grantee.unwrap();
            let who = grantee.id.or(grantee.uri).unwrap();
            let who = who.rsplit('/').next().unwrap().to_owned();
            format!("{who}: {}", grant.permission.unwrap().as_str())
        });
        grants.collect()
    }

    #[test]
    fn canned_lists() {
        let rows: [(&str, &[&str]); 8] = [
            ("private", &[]),
            ("aws-exec-read", &[]),
            ("public-read", &["AllUsers: READ"]),
            ("public-read-write", &["AllUsers: READ", "AllUsers: WRITE"]),
            ("authenticated-read", &["AuthenticatedUsers: READ"]),
            ("log-delivery-write", &["LogDelivery: WRITE", "LogDelivery: READ_ACP"]),
            ("bucket-owner-read", &["owner: READ"]),
            ("bucket-owner-full-control", &["owner: FULL_CONTROL"]),
        ];
        for (name, others) in rows {
            let acl = read(&[("x-amz-acl", name)]).unwrap().unwrap();
            let mut expected = others.to_vec();
            expected.push("ann: FULL_CONTROL");
            assert_eq!(lines(&acl), expected, "{name}");
            assert_eq!(is_public(&acl), name.starts_with("public") || name.starts_with("authenticated"));
        }
        let own = canned("bucket-owner-read", &account("ann"), Some(&account("ann"))).unwrap();
        assert_eq!(lines(&own), ["ann: FULL_CONTROL"]);
    }

    #[test]
    fn grants_by_headers() {
        assert!(read(&[]).unwrap().is_none());
        let acl = read(&[
            ("x-amz-grant-read", "id=\"bob\", uri=\"http://acs.amazonaws.com/groups/global/AllUsers\""),
            ("x-amz-grant-write-acp", "EMAILADDRESS=bob@example.com"),
        ]);
        let acl = acl.unwrap().unwrap();
        assert_eq!(lines(&acl), ["AllUsers: READ", "bob: READ", "bob: WRITE_ACP"]);
        assert_eq!(acl.owner, account("ann"));
    }

    #[test]
    fn bad_headers() {
        let rows: [(&[(&str, &str)], &str); 8] = [
            (&[("x-amz-acl", "public-ready")], "InvalidArgument"),
            (&[("x-amz-acl", "private"), ("x-amz-grant-read", "id=bob")], "InvalidRequest"),
            (&[("x-amz-grant-read", "id=nobody")], "InvalidArgument"),
            (&[("x-amz-grant-read", "emailAddress=no@example.com")], "UnresolvableGrantByEmailAddress"),
            (&[("x-amz-grant-read", "uri=http://example.com/everyone")], "InvalidArgument"),
            (&[("x-amz-grant-read", "name=bob")], "InvalidArgument"),
            (&[("x-amz-grant-read", "bob")], "InvalidArgument"),
            (&[("x-amz-grant-read", "")], "InvalidArgument"),
        ];
        for (headers, expected) in rows {
            let headers: Vec<(&'static str, &str)> = headers.to_vec();
            assert_eq!(code(read(&headers)), expected, "{headers:?}");
        }
        let many = vec!["id=bob"; GRANTS_MAX + 1].join(",");
        assert_eq!(code(read(&[("x-amz-grant-read", &many)])), "MalformedACLError");
    }

    #[test]
    fn lists_from_bodies() {
        let list = canned("public-read", &account("ann"), None).unwrap();
        let body =
            dto::AccessControlPolicy { grants: Some(grants(&list)), owner: Some(owner(&account("ann"))) };
        let read = |body| block_on(from_xml(&Few, body, &account("ann")));
        assert_eq!(read(body.clone()).unwrap(), list, "what is shown can be given back");
        let ownerless = dto::AccessControlPolicy { owner: None, ..body.clone() };
        assert_eq!(code(read(ownerless)), "MalformedACLError");
        let taken = dto::AccessControlPolicy { owner: Some(owner(&account("bob"))), ..body.clone() };
        assert_eq!(code(read(taken)), "AccessDenied");
        let empty = dto::AccessControlPolicy { grants: None, ..body.clone() };
        assert!(read(empty).unwrap().grants.is_empty());
        let change = |change: fn(&mut dto::Grant)| {
            let mut body = body.clone();
            change(&mut body.grants.as_mut().unwrap()[0]);
            code(read(body))
        };
        assert_eq!(change(|grant| grant.permission = None), "MalformedACLError");
        assert_eq!(change(|grant| grant.permission = Some("ALL".to_owned().into())), "MalformedACLError");
        assert_eq!(change(|grant| grant.grantee = None), "MalformedACLError");
        assert_eq!(change(|grant| grant.grantee.as_mut().unwrap().uri = None), "MalformedACLError");
        let typed =
            |grant: &mut dto::Grant| grant.grantee.as_mut().unwrap().type_ = "Robot".to_owned().into();
        assert_eq!(change(typed), "MalformedACLError");
    }
}
