//! The documents of settings, word for word. The library passes over elements that it does not know: a name with a typo
//! would be taken for a field that was left out, and what it is about turned off.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request};
use hyper::body::{Frame, SizeHint};
use s3s::xml::{DeError, DeResult, Deserializer};
use s3s::{Body, S3ErrorCode, S3Request, StdError};

use crate::access::pairs;
use crate::fault::{Fault, Result};

/// The most bytes that are kept; the library refuses longer documents.
const KEPT_MAX: usize = super::XML_MAX;
/// Characters of an unknown name that are told back.
const NAME_SHOWN: usize = 40;

const TAGGING: &str = "TagSet(Tag(Key Value))";
/// Sub-resources, and the elements under the root of their documents.
const SHAPES: [(&str, &str); 17] = [
    ("accelerate", "Status"),
    (
        "acl",
        "AccessControlList(Grant(Grantee(DisplayName EmailAddress ID Type URI) Permission)) Owner(DisplayName ID)",
    ),
    ("cors", "CORSRule(AllowedHeader AllowedMethod AllowedOrigin ExposeHeader ID MaxAgeSeconds)"),
    ("delete", "Object(ETag Key LastModifiedTime Size VersionId) Quiet"),
    ("encryption", "Rule(ApplyServerSideEncryptionByDefault(KMSMasterKeyID SSEAlgorithm) BucketKeyEnabled)"),
    ("legal-hold", "Status"),
    (
        "lifecycle",
        "Rule(AbortIncompleteMultipartUpload(DaysAfterInitiation) Expiration(Date Days ExpiredObjectDeleteMarker) \
         Filter(And(ObjectSizeGreaterThan ObjectSizeLessThan Prefix Tag(Key Value)) ObjectSizeGreaterThan \
         ObjectSizeLessThan Prefix Tag(Key Value)) ID NoncurrentVersionExpiration(NewerNoncurrentVersions \
         NoncurrentDays) NoncurrentVersionTransition(NewerNoncurrentVersions NoncurrentDays StorageClass) Prefix \
         Status Transition(Date Days StorageClass))",
    ),
    (
        "logging",
        "LoggingEnabled(TargetBucket TargetGrants(Grant(Grantee(DisplayName EmailAddress ID Type URI) Permission)) \
         TargetObjectKeyFormat(PartitionedPrefix(PartitionDateSource) SimplePrefix) TargetPrefix)",
    ),
    (
        "notification",
        "EventBridgeConfiguration CloudFunctionConfiguration(CloudFunction Event Filter(S3Key(FilterRule(Name Value))) \
         Id) QueueConfiguration(Event Filter(S3Key(FilterRule(Name Value))) Id Queue) TopicConfiguration(Event \
         Filter(S3Key(FilterRule(Name Value))) Id Topic)",
    ),
    ("object-lock", "ObjectLockEnabled Rule(DefaultRetention(Days Mode Years))"),
    ("ownershipControls", "Rule(ObjectOwnership)"),
    ("publicAccessBlock", "BlockPublicAcls BlockPublicPolicy IgnorePublicAcls RestrictPublicBuckets"),
    ("requestPayment", "Payer"),
    ("retention", "Mode RetainUntilDate"),
    ("tagging", TAGGING),
    ("versioning", "MfaDelete Status"),
    (
        "website",
        "ErrorDocument(Key) IndexDocument(Suffix) RedirectAllRequestsTo(HostName Protocol) \
         RoutingRules(RoutingRule(Condition(HttpErrorCodeReturnedEquals KeyPrefixEquals) Redirect(HostName \
         HttpRedirectCode Protocol ReplaceKeyPrefixWith ReplaceKeyWith)))",
    ),
];

/// The body of a request with a document, as far as it was read. Put into the request's extensions.
#[derive(Debug, Clone)]
struct Document {
    shape: &'static str,
    bytes: Arc<Mutex<Vec<u8>>>,
}

/// Keeps the document of a request while it is read, if the request has one.
pub fn keep(req: Request<Body>) -> Request<Body> {
    if ![Method::PUT, Method::POST].contains(req.method()) {
        return req;
    }
    let query = req.uri().query().unwrap_or_default();
    let shape = pairs(query).find_map(|(name, _)| SHAPES.iter().find(|(known, _)| *known == name));
    let Some((_, shape)) = shape else { return req };
    let document = Document { shape, bytes: Arc::default() };
    let (mut head, body) = req.into_parts();
    head.extensions.insert(document.clone());
    Request::from_parts(head, Body::http_body(Copying { body, bytes: document.bytes }))
}

/// Refuses a document with elements that S3 does not know at their place.
pub fn known<T>(req: S3Request<T>) -> Result<S3Request<T>> {
    let Some(document) = req.extensions.get::<Document>() else { return Ok(req) };
    let bytes = document.bytes.lock().unwrap_or_else(PoisonError::into_inner);
    check(&bytes, document.shape)?;
    drop(bytes);
    Ok(req)
}

fn check(text: &[u8], shape: &str) -> Result<()> {
    let mut odd = None;
    let inside = Shape::read(&mut shape.chars().peekable());
    let read = Deserializer::new(text).for_each_element(|reader, _| walk(reader, &inside, &mut odd));
    match (read, odd) {
        (Ok(()), _) => Ok(()),
        (Err(_), Some(name)) => Err(malformed(format!("The element '{name}' is not known here"))),
        // Also one in chunks of S3's own, which the library refuses before.
        (Err(error), None) => Err(malformed(format!("The document cannot be read: {error}"))),
    }
}

fn malformed(why: String) -> Fault {
    Fault::new(S3ErrorCode::MalformedXML, why)
}

fn walk(reader: &mut Deserializer<'_>, inside: &[Shape], odd: &mut Option<String>) -> DeResult {
    reader.for_each_element(|reader, name| match inside.iter().find(|shape| shape.name.as_bytes() == name) {
        Some(shape) => walk(reader, &shape.inside, odd),
        None => {
            let name = String::from_utf8_lossy(name);
            *odd = Some(name.chars().filter(|c| !c.is_control()).take(NAME_SHOWN).collect());
            Err(DeError::UnexpectedTagName)
        }
    })
}

/// An element and what it may hold.
struct Shape {
    name: String,
    inside: Vec<Shape>,
}

impl Shape {
    /// Names with a space between them, each with what it holds in brackets.
    fn read(text: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Vec<Self> {
        let mut shapes = Vec::new();
        loop {
            let mut name = String::new();
            while let Some(letter) = text.next_if(char::is_ascii_alphanumeric) {
                name.push(letter);
            }
            let inside = if text.next_if_eq(&'(').is_some() { Self::read(text) } else { Vec::new() };
            if !name.is_empty() {
                shapes.push(Self { name, inside });
            }
            if text.next() != Some(' ') {
                return shapes;
            }
        }
    }
}

/// A body of which a copy is kept.
struct Copying {
    body: Body,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl hyper::body::Body for Copying {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
            let mut bytes = this.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            let room = KEPT_MAX.saturating_sub(bytes.len());
            let data: &[u8] = data.map_or(&[], |data| data);
            bytes.extend_from_slice(&data[..data.len().min(room)]);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: &str, text: &str) -> String {
        let shape = SHAPES.iter().find(|(known, _)| *known == name).unwrap().1;
        match check(text.as_bytes(), shape) {
            Ok(()) => "ok".into(),
            Err(Fault::S3(_, why)) => why.split('\'').nth(1).unwrap_or(&why).to_owned(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn elements_are_known_at_their_place() {
        let all = "<?xml version=\"1.0\"?><P xmlns=\"x\"> <BlockPublicAcls>true</BlockPublicAcls><RestrictPublicBuckets/></P>";
        assert_eq!(verdict("publicAccessBlock", all), "ok");
        assert_eq!(verdict("publicAccessBlock", "<P/>"), "ok");
        assert_eq!(
            verdict("publicAccessBlock", "<P><BlockPublicAcl>true</BlockPublicAcl></P>"),
            "BlockPublicAcl"
        );
        let rule = |inside: &str| format!("<L><Rule><ID>a</ID>{inside}<Status>Enabled</Status></Rule></L>");
        assert_eq!(verdict("lifecycle", &rule("<Filter><And><Prefix>a</Prefix></And></Filter>")), "ok");
        assert_eq!(verdict("lifecycle", &rule("<Filter><Days>1</Days></Filter>")), "Days");
        assert_eq!(verdict("lifecycle", "<L><ID>a</ID></L>"), "ID");
        assert_eq!(verdict("website", "<W><IndexDocument><Suffix>i<b/></Suffix></IndexDocument></W>"), "b");
    }

    #[test]
    fn every_shape_is_whole() {
        for (name, shape) in SHAPES {
            let open = shape.matches('(').count();
            assert_eq!(open, shape.matches(')').count(), "{name}");
            fn count(shapes: &[Shape]) -> usize {
                shapes.iter().map(|shape| 1 + count(&shape.inside)).sum()
            }
            let words = shape.split([' ', '(', ')']).filter(|word| !word.is_empty()).count();
            assert_eq!(count(&Shape::read(&mut shape.chars().peekable())), words, "{name}");
        }
    }
}
