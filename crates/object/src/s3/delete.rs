//! Deletes of one object and of many.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Response};

use super::{Answer, Req};
use crate::access::{self, Action, Context, Guard};
use crate::condition;
use crate::engine::Tx;
use crate::fault::{Fault, Result};
use crate::identity::Account;
use crate::notify;
use crate::record::Bucket;
use crate::record::version::Head;
use crate::service::{Caller, Records, Service};
use crate::time::millis;
use crate::trace::{Each, Trace};
use crate::version::{self, Deleted};

/// The most keys of one request.
const KEYS_MAX: usize = 1000;

pub async fn delete_object(service: &Service, req: Req<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
    let caller = Caller::of(&req)?;
    let by = account(caller);
    let bypass = req.input.bypass_governance_retention.unwrap_or_default();
    if bypass {
        let context = access::request_context(caller, &req.uri, &req.headers);
        let (key, id) = (Some(req.input.key.as_str()), req.input.version_id.as_deref());
        let action = Action::BypassGovernanceRetention;
        access::authorize(service, caller, action, &req.input.bucket, key, id, &context)?;
    }
    let input = req.input;
    let name = input.bucket;
    let order = Order {
        key: input.key,
        version_id: input.version_id,
        etag: input.if_match,
        modified: input.if_match_last_modified_time,
        size: input.if_match_size,
    };
    let change = service.engine.write(move |tx| -> Result<Deleted> {
        let bucket = tx.bucket(&name)?;
        order.perform(tx, &bucket, by.as_ref(), bypass)
    });
    let deleted = change.await?;
    Ok(S3Response::new(DeleteObjectOutput {
        delete_marker: deleted.marker.then_some(true),
        request_charged: None,
        version_id: deleted.version_id,
    }))
}

pub async fn delete_objects(service: &Service, req: Req<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
    let caller = Caller::of(&req)?.clone();
    let context = access::request_context(&caller, &req.uri, &req.headers);
    let trace = req.extensions.get::<Trace>().cloned();
    let input = req.input;
    let bypass = input.bypass_governance_retention.unwrap_or_default();
    let quiet = input.delete.quiet.unwrap_or_default();
    let asked = input.delete.objects;
    if asked.is_empty() || asked.len() > KEYS_MAX {
        let message =
            "The XML you provided was not well-formed or did not validate against our published schema";
        return Err(Fault::new(S3ErrorCode::MalformedXML, message).into());
    }
    let mut orders = Vec::with_capacity(asked.len());
    let logged;
    {
        let guard = Guard::open(service, &caller, &input.bucket)?;
        logged = guard.bucket().settings.logging.is_some();
        for order in asked.into_iter().map(Order::from) {
            let may = order.authorize(&guard, &context, bypass);
            orders.push((order, may));
        }
    }
    let (name, by) = (input.bucket, account(&caller));
    let change = service.engine.write(move |tx| -> Result<Vec<(Order, Result<Deleted>)>> {
        let bucket = tx.bucket(&name)?;
        let mut done = Vec::with_capacity(orders.len());
        for (order, may) in orders {
            match may.and_then(|()| order.perform(tx, &bucket, by.as_ref(), bypass)) {
                Err(Fault::Engine(error)) => return Err(error.into()),
                answer => done.push((order, answer)),
            }
        }
        Ok(done)
    });
    let done = change.await?;
    if let Some(trace) = trace.filter(|_| logged) {
        trace.note_each(done.iter().map(|(order, answer)| order.told(answer.as_ref().err())).collect());
    }
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (order, answer) in done {
        match answer {
            Ok(_) if quiet => {}
            Ok(answer) => deleted.push(entry(order, answer)),
            Err(fault) => errors.push(failure(order, fault)),
        }
    }
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: Some(deleted),
        errors: Some(errors),
        request_charged: None,
    }))
}

/// What is to be deleted, and what must be true of it.
struct Order {
    key: String,
    version_id: Option<String>,
    etag: Option<ETagCondition>,
    modified: Option<Timestamp>,
    size: Option<i64>,
}

impl From<ObjectIdentifier> for Order {
    fn from(asked: ObjectIdentifier) -> Self {
        Self {
            key: asked.key,
            version_id: asked.version_id,
            etag: asked.e_tag.map(ETagCondition::ETag),
            modified: asked.last_modified_time,
            size: asked.size,
        }
    }
}

impl Order {
    /// Each key is the caller's to delete, or not.
    fn authorize(&self, guard: &Guard<'_>, context: &Context, bypass: bool) -> Result<()> {
        if self.version_id.as_deref() == Some("") {
            let message = "Version id cannot be the empty string";
            return Err(Fault::new(S3ErrorCode::InvalidArgument, message));
        }
        let (key, id) = (Some(self.key.as_str()), self.version_id.as_deref());
        let action = if id.is_some() { Action::DeleteObjectVersion } else { Action::DeleteObject };
        guard.check(action, key, id, context)?;
        if bypass {
            guard.check(Action::BypassGovernanceRetention, key, id, context)?;
        }
        Ok(())
    }

    /// The bucket's owner owns the marker that an anonymous caller makes.
    fn perform(
        &self,
        tx: &mut Tx<'_>,
        bucket: &Bucket,
        by: Option<&Account>,
        bypass: bool,
    ) -> Result<Deleted> {
        let id = self.version_id.as_deref();
        if self.is_conditional() {
            match version::lookup(tx, bucket.id, &self.key, id)? {
                // What is not there is deleted already, and no marker is made for it.
                None => return Ok(Deleted::default()),
                Some(version) if !self.holds(&version.head) => return Err(condition::failed()),
                Some(_) => {}
            }
        }
        let by = by.unwrap_or(&bucket.owner);
        let deleted = version::delete(tx, bucket, &self.key, id, by, bypass)?;
        notify::removed(
            tx,
            bucket,
            &self.key,
            &deleted,
            by,
            ["ObjectRemoved:Delete", "ObjectRemoved:DeleteMarkerCreated"],
        )?;
        Ok(deleted)
    }

    /// For the log.
    fn told(&self, fault: Option<&Fault>) -> Each {
        let (key, version_id) = (self.key.clone(), self.version_id.clone());
        let code = fault.map(|fault| fault.code().as_str().to_owned());
        let status =
            fault.map_or(204, |fault| fault.code().status_code().map_or(400, |status| status.as_u16()));
        Each { key, version_id, status, code }
    }

    fn is_conditional(&self) -> bool {
        self.etag.is_some() || self.modified.is_some() || self.size.is_some()
    }

    fn holds(&self, head: &Head) -> bool {
        let seconds = |time: i64| time.div_euclid(1000);
        let same_time = |time: &Timestamp| seconds(millis(time)) == seconds(head.modified);
        self.etag.as_ref().is_none_or(|etag| condition::matches(etag, &head.etag))
            && self.modified.as_ref().is_none_or(same_time)
            && self.size.is_none_or(|size| u64::try_from(size) == Ok(head.size))
    }
}

fn account(caller: &Caller) -> Option<Account> {
    caller.principal.as_ref().map(|principal| principal.account.clone())
}

fn entry(order: Order, answer: Deleted) -> DeletedObject {
    DeletedObject {
        delete_marker: answer.marker.then_some(true),
        delete_marker_version_id: answer.version_id.filter(|_| answer.marker),
        key: Some(order.key),
        version_id: order.version_id,
    }
}

fn failure(order: Order, fault: Fault) -> Error {
    let error = S3Error::from(fault);
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(order.key),
        message: error.message().map(str::to_owned),
        version_id: order.version_id,
    }
}
