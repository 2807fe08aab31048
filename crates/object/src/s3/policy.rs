//! Bucket policies, the block of public access, and who owns what is uploaded.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response};

use super::{Answer, Req};
use crate::access::policy::{For, Name, Policy as Rules};
use crate::access::{self, ENFORCED, acl};
use crate::fault::{Fault, Result};
use crate::record::{Bucket, Grantee};
use crate::service::{Caller, Records, Service, put_bucket};

/// Characters of a message about an unknown name.
const NAME_SHOWN: usize = 200;

pub async fn get_bucket_policy(
    service: &Service,
    req: Req<GetBucketPolicyInput>,
) -> Answer<GetBucketPolicyOutput> {
    let policy = read(service, &req.input.bucket)?.policy;
    let policy = policy
        .ok_or_else(|| Fault::new(S3ErrorCode::NoSuchBucketPolicy, "The bucket policy does not exist"))?;
    Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) }))
}

pub async fn put_bucket_policy(
    service: &Service,
    req: Req<PutBucketPolicyInput>,
) -> Answer<PutBucketPolicyOutput> {
    let caller = Caller::of(&req)?.clone();
    let PutBucketPolicyInput { bucket, policy, .. } = req.input;
    let rules = Rules::parse(&policy, For::Bucket(&bucket))?;
    if let Some(principal) = &caller.principal {
        for name in rules.names_shut_out() {
            check_name(service, &principal.account.id, name).await?;
        }
    }
    let public = rules.is_public();
    change(service, bucket, move |bucket| {
        let block = bucket.settings.public_access.as_ref();
        if public && block.is_some_and(|block| block.block_public_policy == Some(true)) {
            return Err(Fault::new(
                S3ErrorCode::AccessDenied,
                "The policy gives access to everyone, which the block of public access forbids",
            ));
        }
        bucket.policy = Some(policy);
        Ok(())
    })
    .await?;
    Ok(S3Response::new(PutBucketPolicyOutput {}))
}

/// A user of the caller's own account whom a policy shuts out must be there: a typo would shut nobody out. Of other
/// accounts nobody is told who is there.
async fn check_name(service: &Service, own: &str, name: &Name) -> Result<()> {
    let Name::User { account, user } = name else { return Ok(()) };
    if account != own || service.identity.user_exists(account, user).await {
        return Ok(());
    }
    let why = format!("the tenant '{account}' has no user '{user}'");
    let why = why.chars().filter(|c| !c.is_control()).take(NAME_SHOWN).collect::<String>();
    Err(Fault::new(S3ErrorCode::MalformedPolicy, format!("Invalid principal in policy: {why}")))
}

pub async fn delete_bucket_policy(
    service: &Service,
    req: Req<DeleteBucketPolicyInput>,
) -> Answer<DeleteBucketPolicyOutput> {
    change(service, req.input.bucket, |bucket| {
        bucket.policy = None;
        Ok(())
    })
    .await?;
    Ok(S3Response::new(DeleteBucketPolicyOutput {}))
}

/// A bucket is public by its policy or by its list.
pub async fn get_bucket_policy_status(
    service: &Service,
    req: Req<GetBucketPolicyStatusInput>,
) -> Answer<GetBucketPolicyStatusOutput> {
    let bucket = read(service, &req.input.bucket)?;
    let rules = bucket.policy.as_deref().map(Rules::kept);
    let listed = acl::is_public(&bucket.acl) && !access::is_enforced(&bucket);
    let public = listed || rules.is_some_and(|rules| rules.is_public());
    let policy_status = Some(PolicyStatus { is_public: Some(public) });
    Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status }))
}

pub async fn get_public_access_block(
    service: &Service,
    req: Req<GetPublicAccessBlockInput>,
) -> Answer<GetPublicAccessBlockOutput> {
    let block = read(service, &req.input.bucket)?.settings.public_access;
    let block = block.ok_or_else(|| {
        let code = S3ErrorCode::Custom("NoSuchPublicAccessBlockConfiguration".into());
        let mut error = S3Error::with_message(code, "The public access block configuration was not found");
        error.set_status_code(http::StatusCode::NOT_FOUND);
        error
    })?;
    Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration: Some(block) }))
}

pub async fn put_public_access_block(
    service: &Service,
    req: Req<PutPublicAccessBlockInput>,
) -> Answer<PutPublicAccessBlockOutput> {
    let given = req.input.public_access_block_configuration;
    let block = PublicAccessBlockConfiguration {
        block_public_acls: Some(given.block_public_acls.unwrap_or(false)),
        block_public_policy: Some(given.block_public_policy.unwrap_or(false)),
        ignore_public_acls: Some(given.ignore_public_acls.unwrap_or(false)),
        restrict_public_buckets: Some(given.restrict_public_buckets.unwrap_or(false)),
    };
    change(service, req.input.bucket, move |bucket| {
        bucket.settings.public_access = Some(block);
        Ok(())
    })
    .await?;
    Ok(S3Response::new(PutPublicAccessBlockOutput {}))
}

pub async fn delete_public_access_block(
    service: &Service,
    req: Req<DeletePublicAccessBlockInput>,
) -> Answer<DeletePublicAccessBlockOutput> {
    change(service, req.input.bucket, |bucket| {
        bucket.settings.public_access = None;
        Ok(())
    })
    .await?;
    Ok(S3Response::new(DeletePublicAccessBlockOutput {}))
}

pub async fn get_bucket_ownership_controls(
    service: &Service,
    req: Req<GetBucketOwnershipControlsInput>,
) -> Answer<GetBucketOwnershipControlsOutput> {
    let ownership = read(service, &req.input.bucket)?.settings.ownership;
    let ownership = ownership.ok_or_else(|| {
        let missing = "The bucket ownership controls were not found";
        Fault::new(S3ErrorCode::OwnershipControlsNotFoundError, missing)
    })?;
    let rules = vec![OwnershipControlsRule { object_ownership: ObjectOwnership::from(ownership) }];
    let ownership_controls = Some(OwnershipControls { rules });
    Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls }))
}

pub async fn put_bucket_ownership_controls(
    service: &Service,
    req: Req<PutBucketOwnershipControlsInput>,
) -> Answer<PutBucketOwnershipControlsOutput> {
    let [rule] = &req.input.ownership_controls.rules[..] else {
        return Err(Fault::new(S3ErrorCode::MalformedXML, "There must be exactly one rule").into());
    };
    let ownership = rule.object_ownership.as_str().to_owned();
    if ![ENFORCED, access::PREFERRED, access::WRITER].contains(&ownership.as_str()) {
        return Err(Fault::new(S3ErrorCode::MalformedXML, format!("Unknown ownership: {ownership}")).into());
    }
    change(service, req.input.bucket, move |bucket| {
        if ownership == ENFORCED && grants_others(bucket) {
            return Err(Fault::new(
                S3ErrorCode::InvalidBucketAclWithObjectOwnership,
                "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
            ));
        }
        bucket.settings.ownership = Some(ownership);
        Ok(())
    })
    .await?;
    Ok(S3Response::new(PutBucketOwnershipControlsOutput {}))
}

pub async fn delete_bucket_ownership_controls(
    service: &Service,
    req: Req<DeleteBucketOwnershipControlsInput>,
) -> Answer<DeleteBucketOwnershipControlsOutput> {
    change(service, req.input.bucket, |bucket| {
        bucket.settings.ownership = None;
        Ok(())
    })
    .await?;
    Ok(S3Response::new(DeleteBucketOwnershipControlsOutput {}))
}

fn grants_others(bucket: &Bucket) -> bool {
    let owner = Grantee::Account(bucket.owner.clone());
    bucket.acl.grants.iter().any(|grant| grant.to != owner)
}

fn read(service: &Service, bucket: &str) -> Result<Bucket> {
    service.engine.read()?.bucket(bucket)
}

/// Changes the settings of a bucket as it is at that moment.
async fn change(
    service: &Service,
    name: String,
    set: impl FnOnce(&mut Bucket) -> Result<()> + Send + 'static,
) -> Result<()> {
    let change = service.engine.write(move |tx| {
        let mut bucket = tx.bucket(&name)?;
        set(&mut bucket)?;
        put_bucket(tx, &bucket);
        Ok(())
    });
    change.await
}
