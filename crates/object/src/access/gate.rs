//! The check that every request passes.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Uri};
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopySource, PostObjectInput, PutObjectTaggingInput};
use s3s::path::S3Path;
use s3s::{S3ErrorCode, S3Request, S3Result};

use super::action::Action;
use super::auth::{identify, token_of};
use super::guard::{Guard, denied};
use super::policy::{Asked, Subject, Verdict};
use super::request::{add_request_tags, parameter, request_context};
use super::{acl, context::Context};
use crate::fault::{Fault, Result};
use crate::identity::Rights;
use crate::service::{Caller, Service};
use crate::share::Share;
use crate::trace::{Seen, Trace};

/// Where a request comes from. The listener puts it into the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    pub address: IpAddr,
    /// The version of TLS that it came over, such as `1.3`.
    pub tls: Option<&'static str>,
}

const CREATES: &str = "s3:ObjectCreationOperation";

/// Lets requests pass or refuses them, before their operation runs.
pub struct Gate {
    service: Service,
    region: Arc<str>,
}

impl Gate {
    pub fn new(service: Service) -> Self {
        let region = service.config.region.as_str().into();
        Self { service, region }
    }

    /// Who signed with this key, and from where. A temporary key needs its token. The request counts for its account
    /// from here on.
    pub async fn caller(
        &self,
        access_key: Option<&str>,
        token: Option<&str>,
        extensions: &Extensions,
    ) -> Result<Caller> {
        let (principal, narrowed) = match access_key {
            Some(access_key) => {
                let caller = identify(&*self.service.identity, access_key, token).await?;
                (Some(caller.principal), caller.narrowed)
            }
            None => (None, None),
        };
        if let (Some(share), Some(principal)) = (extensions.get::<Share>(), &principal) {
            share.is_of(&principal.account.id)?;
        }
        let peer = extensions.get::<Peer>().copied();
        Ok(Caller {
            principal,
            address: peer.map(|peer| peer.address),
            tls: peer.and_then(|peer| peer.tls),
            region: self.region.clone(),
            narrowed,
        })
    }
}

#[async_trait]
impl S3Access for Gate {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let access_key = cx.credentials().map(|credentials| credentials.access_key.clone());
        let token = token_of(cx.uri(), cx.headers());
        let caller = self.caller(access_key.as_deref(), token.as_deref(), cx.extensions_mut()).await?;
        let trace = cx.extensions_mut().get::<Trace>().cloned();
        if let Some(trace) = &trace {
            trace.note(Seen {
                operation: cx.s3_op().name().to_owned(),
                bucket: cx.s3_path().get_bucket_name().map(str::to_owned),
                key: cx.s3_path().get_object_key().map(str::to_owned),
                caller: caller.clone(),
            });
        }
        let (uri, headers) = (cx.uri(), cx.headers());
        let asked = Request { service: &self.service, caller: &caller, uri, headers, trace: trace.as_ref() };
        match cx.s3_path() {
            S3Path::Root => asked.of_account(cx.s3_op().name()),
            S3Path::Bucket { bucket } => asked.of_bucket(cx.s3_op().name(), bucket),
            S3Path::Object { bucket, key } => asked.of_key(cx.s3_op().name(), bucket, key),
        }?;
        trace.inspect(Trace::note_passed);
        cx.extensions_mut().insert(caller);
        Ok(())
    }

    /// The key of a form stands in its body, so the check comes here. Its fields have become headers.
    async fn post_object(&self, req: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        let caller = Caller::of(req)?;
        let guard = Guard::open(&self.service, caller, &req.input.bucket)?;
        let mut context = request_context(caller, &req.uri, &req.headers);
        context.set(CREATES, "true");
        guard.check(Action::PutObject, Some(&req.input.key), None, &context)?;
        Ok(upload(&guard, caller, &req.headers, &req.input.key, &context)?)
    }

    /// The tags stand in the body; conditions may be about them.
    async fn put_object_tagging(&self, req: &mut S3Request<PutObjectTaggingInput>) -> S3Result<()> {
        let caller = Caller::of(req)?;
        let guard = Guard::open(&self.service, caller, &req.input.bucket)?;
        if !guard.needs_context() {
            return Ok(());
        }
        let mut context = request_context(caller, &req.uri, &req.headers);
        let tags = req.input.tagging.tag_set.iter();
        let tags =
            tags.map(|tag| (tag.key.clone().unwrap_or_default(), tag.value.clone().unwrap_or_default()));
        add_request_tags(tags, &mut context);
        let version = req.input.version_id.as_deref();
        let action =
            if version.is_some() { Action::PutObjectVersionTagging } else { Action::PutObjectTagging };
        Ok(guard.check(action, Some(&req.input.key), version, &context)?)
    }
}

/// A request whose operation is known.
struct Request<'a> {
    service: &'a Service,
    caller: &'a Caller,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    trace: Option<&'a Trace>,
}

impl Request<'_> {
    fn of_account(&self, operation: &str) -> Result<()> {
        match Action::of(operation, false) {
            // Who has no account has no buckets: the answer is empty, not a refusal.
            Some(Action::ListAllMyBuckets) if self.caller.principal.is_none() => Ok(()),
            Some(action) => self.own_account(action, None),
            None => Err(lacking()),
        }
    }

    fn of_bucket(&self, operation: &str, bucket: &str) -> Result<()> {
        match operation {
            "CreateBucket" => {
                let private = acl::asks_private(self.headers);
                demand_manager(self.caller, private)?;
                if !private {
                    self.own_account(Action::PutBucketAcl, Some(bucket))?;
                }
                self.own_account(Action::CreateBucket, Some(bucket))
            }
            // Each key is checked on its own.
            "DeleteObjects" | "PostObject" => self.guard(bucket).map(|_| ()),
            _ => {
                let guard = self.guard(bucket)?;
                let action = Action::of(operation, false).ok_or_else(lacking)?;
                let context = self.context(&guard);
                guard.check(action, None, None, &context)?;
                self.note_acl(&guard, action, None, &context);
                Ok(())
            }
        }
    }

    fn of_key(&self, operation: &str, bucket: &str, key: &str) -> Result<()> {
        let guard = self.guard(bucket)?;
        let mut context = self.context(&guard);
        let version = parameter(self.uri, "versionId");
        let action = Action::of(operation, version.is_some()).ok_or_else(lacking)?;
        if action == Action::PutObject {
            // Parts and the beginning of an upload make no object yet.
            let creates = ["PutObject", "CopyObject", "CompleteMultipartUpload"].contains(&operation);
            context.set(CREATES, creates.to_string());
        }
        guard.check(action, Some(key), version.as_deref(), &context)?;
        self.note_acl(&guard, action, Some(key), &context);
        if action == Action::PutObject {
            upload(&guard, self.caller, self.headers, key, &context)?;
            self.copy_source()?;
        }
        if action == Action::GetObjectAttributes || action == Action::GetObjectVersionAttributes {
            let read = Action::of("GetObject", version.is_some()).ok_or_else(denied)?;
            guard.check(read, Some(key), version.as_deref(), &context)?;
        }
        Ok(())
    }

    /// Tells the access log whether a list of rights was needed.
    fn note_acl(&self, guard: &Guard<'_>, action: Action, key: Option<&str>, context: &Context) {
        if let Some(trace) = self.trace.filter(|_| guard.needs_acl(action, key, context)) {
            trace.note_acl();
        }
    }

    /// The source of a copy must be readable. One that cannot be parsed is the operation's to refuse.
    fn copy_source(&self) -> Result<()> {
        let header = self.headers.get("x-amz-copy-source").and_then(|value| value.to_str().ok());
        let Some(Ok(CopySource::Bucket { bucket, key, version_id })) = header.map(CopySource::parse) else {
            return Ok(());
        };
        let guard = Guard::open(self.service, self.caller, &bucket)?;
        self.expect_owner(&guard, "x-amz-source-expected-bucket-owner")?;
        let action = if version_id.is_some() { Action::GetObjectVersion } else { Action::GetObject };
        guard.check(action, Some(&key), version_id.as_deref(), &self.context(&guard))
    }

    fn guard(&self, bucket: &str) -> Result<Guard<'_>> {
        let guard = Guard::open(self.service, self.caller, bucket)?;
        self.expect_owner(&guard, "x-amz-expected-bucket-owner")?;
        Ok(guard)
    }

    fn expect_owner(&self, guard: &Guard<'_>, header: &str) -> Result<()> {
        match self.headers.get(header) {
            Some(owner) if owner.as_bytes() != guard.bucket().owner.id.as_bytes() => Err(denied()),
            _ => Ok(()),
        }
    }

    fn context(&self, guard: &Guard<'_>) -> Context {
        if !guard.needs_context() {
            return Context::new();
        }
        let mut context = request_context(self.caller, self.uri, self.headers);
        context.set("s3:ResourceAccount", &*guard.bucket().owner.id);
        context.set("aws:ResourceAccount", &*guard.bucket().owner.id);
        context
    }

    /// What is asked of no bucket that is there is the user's to do in its account.
    fn own_account(&self, action: Action, bucket: Option<&str>) -> Result<()> {
        let principal = self.caller.principal.as_ref().ok_or_else(denied)?;
        let resource = format!("arn:aws:s3:::{}", bucket.unwrap_or("*"));
        let narrow = self.caller.narrowed.as_ref().is_none_or(|policy| {
            let context = &request_context(self.caller, self.uri, self.headers);
            let asked = Asked {
                subject: Subject::User(principal),
                action: action.name(),
                resource: &resource,
                context,
            };
            policy.verdict(&asked) == Verdict::Allow
        });
        if narrow && principal.rights >= action.rights() { Ok(()) } else { Err(denied()) }
    }
}

/// An operation without an action is none of ours.
fn lacking() -> Fault {
    Fault::new(S3ErrorCode::NotImplemented, "This store does not offer that operation")
}

/// Giving rights to others takes the rights of a manager.
fn demand_manager(caller: &Caller, private: bool) -> Result<()> {
    let rights = caller.principal.as_ref().map_or(Rights::Manage, |principal| principal.rights);
    if private || rights == Rights::Manage { Ok(()) } else { Err(denied()) }
}

/// What an upload asks for beyond itself by its headers.
fn upload(
    guard: &Guard<'_>,
    caller: &Caller,
    headers: &HeaderMap,
    key: &str,
    context: &Context,
) -> Result<()> {
    let private = acl::asks_private(headers);
    demand_manager(caller, private)?;
    if !private {
        guard.check_open(Action::PutObjectAcl, key, context)?;
    }
    if headers.contains_key("x-amz-tagging") {
        guard.check_open(Action::PutObjectTagging, key, context)?;
    }
    if headers.contains_key("x-amz-object-lock-mode") {
        guard.check(Action::PutObjectRetention, Some(key), None, context)?;
    }
    if headers.contains_key("x-amz-object-lock-legal-hold") {
        guard.check(Action::PutObjectLegalHold, Some(key), None, context)?;
    }
    Ok(())
}
