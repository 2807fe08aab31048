//! Whose an upload or a new bucket is, and the list it begins with.

use http::HeaderMap;
use s3s::S3ErrorCode;

use super::decide::{ENFORCED, PREFERRED, is_enforced};
use super::{acl, guard};
use crate::fault::{Fault, Result};
use crate::identity::{Account, Identity};
use crate::record::{Acl, Bucket};
use crate::service::{Caller, Service};

const FULL_CONTROL: &str = "bucket-owner-full-control";

/// The owner and the list of what a request uploads. `form` is the `acl` field of a form.
/// `AccessControlListNotSupported` or `AccessDenied` if the bucket does not take the list.
pub async fn of_upload(
    service: &Service,
    caller: &Caller,
    bucket: &Bucket,
    headers: &HeaderMap,
    form: Option<&str>,
) -> Result<(Account, Acl)> {
    let full_control = form.map_or_else(|| acl::asks_full_control(headers), |form| form == FULL_CONTROL);
    let asked = form.is_some() || acl::asked(headers);
    if is_enforced(bucket) {
        if asked && !full_control {
            return Err(not_supported());
        }
        return Ok((bucket.owner.clone(), Acl::private(&bucket.owner)));
    }
    let preferred = bucket.settings.ownership.as_deref() == Some(PREFERRED);
    let owner = match &caller.principal {
        Some(principal) if !(preferred && full_control) => &principal.account,
        // What nobody uploads belongs to whoever pays for it.
        _ => &bucket.owner,
    };
    let list = match form {
        Some(form) => Some(
            acl::canned(form, owner, Some(&bucket.owner))
                .ok_or_else(|| Fault::new(S3ErrorCode::InvalidArgument, format!("Unknown ACL: {form}")))?,
        ),
        None => acl::from_headers(&*service.identity, headers, owner, Some(&bucket.owner)).await?,
    };
    let list = list.unwrap_or_else(|| Acl::private(owner));
    refuse_public(bucket, &list)?;
    Ok((owner.clone(), list))
}

/// The list of a new bucket.
pub async fn of_bucket(
    identity: &dyn Identity,
    headers: &HeaderMap,
    owner: &Account,
    ownership: Option<&str>,
) -> Result<Acl> {
    let list = acl::from_headers(identity, headers, owner, None).await?;
    let list = list.unwrap_or_else(|| Acl::private(owner));
    if ownership == Some(ENFORCED) && list != Acl::private(owner) {
        return Err(Fault::new(
            S3ErrorCode::InvalidBucketAclWithObjectOwnership,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        ));
    }
    Ok(list)
}

pub fn not_supported() -> Fault {
    Fault::new(S3ErrorCode::AccessControlListNotSupported, "The bucket does not allow ACLs")
}

/// `AccessDenied` for a public list where the bucket blocks those.
pub fn refuse_public(bucket: &Bucket, list: &Acl) -> Result<()> {
    let block = bucket.settings.public_access.as_ref();
    let blocked = block.is_some_and(|block| block.block_public_acls == Some(true));
    if blocked && acl::is_public(list) { Err(guard::denied()) } else { Ok(()) }
}
