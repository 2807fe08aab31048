//! Which sub-resources there are, and which methods they know. The library answers those that it does not know as if the
//! sub-resource were not named: a `DELETE` of a bucket's ACL would delete the bucket, and a `PUT` of an object's encryption
//! would store the request as the object.

use http::{Method, Uri};
use s3s::S3ErrorCode;

use crate::access::pairs;
use crate::fault::{Fault, Result};

/// Characters of an unknown name that are told back.
const NAME_SHOWN: usize = 40;

/// Name, methods on a bucket, methods on an object.
const KNOWN: [(&str, &str, &str); 32] = [
    ("accelerate", "GET PUT", ""),
    ("acl", "GET PUT", "GET PUT"),
    ("analytics", "GET PUT DELETE", ""),
    ("attributes", "", "GET"),
    ("cors", "GET PUT DELETE", ""),
    ("delete", "POST", ""),
    ("encryption", "GET PUT DELETE", ""),
    ("intelligent-tiering", "GET PUT DELETE", ""),
    ("inventory", "GET PUT DELETE", ""),
    ("legal-hold", "", "GET PUT"),
    ("lifecycle", "GET PUT DELETE", ""),
    ("location", "GET", ""),
    ("logging", "GET PUT", ""),
    ("metrics", "GET PUT DELETE", ""),
    ("notification", "GET PUT", ""),
    ("object-lock", "GET PUT", ""),
    ("ownershipControls", "GET PUT DELETE", ""),
    ("policy", "GET PUT DELETE", ""),
    ("policyStatus", "GET", ""),
    ("publicAccessBlock", "GET PUT DELETE", ""),
    ("replication", "GET PUT DELETE", ""),
    ("requestPayment", "GET PUT", ""),
    ("restore", "", "POST"),
    ("retention", "", "GET PUT"),
    ("select", "", "POST"),
    ("tagging", "GET PUT DELETE", "GET PUT DELETE"),
    ("uploadId", "", "GET PUT POST DELETE"),
    ("uploads", "GET", "POST"),
    ("versioning", "GET PUT", ""),
    ("versions", "GET", ""),
    ("website", "GET PUT DELETE", ""),
    ("partNumber", "", "GET HEAD PUT"),
];

/// Sub-resources of buckets that are not offered.
const BUCKET_LACKS: [&str; 6] = [
    "abac",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "session",
];
/// The same of objects.
const OBJECT_LACKS: [&str; 4] = ["append", "encryption", "renameObject", "torrent"];
/// Parameters that may stand in a query without a value and are no sub-resources.
const PLAIN: [&str; 5] = ["continuation-token", "delimiter", "marker", "prefix", "x-id"];

/// The operation that a request seems to ask for, as far as it is known without the library.
pub fn guess(method: &Method, uri: &Uri, object: bool) -> String {
    let query: Vec<(String, String)> = pairs(uri.query().unwrap_or_default()).collect();
    let named = KNOWN.iter().find(|(known, ..)| query.iter().any(|(name, _)| name == known));
    match (named, object) {
        _ if method == Method::OPTIONS => "Preflight",
        (Some(("uploadId", ..)), _) if query.iter().any(|(name, _)| name == "partNumber") => "UploadPart",
        (Some(("uploadId", ..)), _) => "CompleteMultipartUpload",
        (Some(("delete", ..)), false) => "DeleteObjects",
        (Some((name, ..)), _) if *name != "partNumber" => name,
        (_, true) => "GetObject",
        (_, false) if method == Method::POST => "PostObject",
        (_, false) => "ListObjects",
    }
    .to_owned()
}

/// Refuses sub-resources that are not offered, and to change a bucket or an object by one that cannot be changed so.
pub fn check(method: &Method, uri: &Uri, object: bool) -> Result<()> {
    let query: Vec<(String, String)> = pairs(uri.query().unwrap_or_default()).collect();
    if object && method == Method::GET && query.iter().any(|(name, _)| name == "torrent") {
        // Clients take this for "none was made" and go on; conformance suites ask for it.
        return Err(Fault::new(S3ErrorCode::NoSuchKey, "There is no torrent of this object."));
    }
    let lacks: &[&str] = if object { &OBJECT_LACKS } else { &BUCKET_LACKS };
    if let Some((name, _)) = query.iter().find(|(name, _)| lacks.contains(&name.as_str())) {
        return Err(lacking(name));
    }
    if method != Method::PUT && method != Method::DELETE {
        return Ok(());
    }
    let has = |wanted: &str| query.iter().any(|(name, _)| name == wanted);
    if method == Method::PUT && has("uploadId") != has("partNumber") {
        let why = "A part is put with both partNumber and uploadId";
        return Err(Fault::new(S3ErrorCode::InvalidArgument, why));
    }
    for (name, value) in &query {
        let Some((_, bucket_methods, object_methods)) = KNOWN.iter().find(|(known, ..)| known == name) else {
            if value.is_empty() && !is_plain(name) {
                return Err(lacking(name));
            }
            continue;
        };
        let methods = if object { object_methods } else { bucket_methods };
        if !methods.split(' ').any(|known| known == method.as_str()) {
            return Err(Fault::new(
                S3ErrorCode::MethodNotAllowed,
                "The specified method is not allowed against this resource.",
            ));
        }
    }
    Ok(())
}

/// A name alone asks for something of a bucket or an object; what we have never heard of may mean anything.
fn is_plain(name: &str) -> bool {
    let signs = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
    signs || PLAIN.contains(&name)
}

fn lacking(name: &str) -> Fault {
    let name: String = name.chars().take(NAME_SHOWN).collect();
    Fault::new(S3ErrorCode::NotImplemented, format!("This store does not offer '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_guessed() {
        let of = |method: Method, uri: &'static str, object| guess(&method, &Uri::from_static(uri), object);
        assert_eq!(of(Method::GET, "/b/k?versionId=x", true), "GetObject");
        assert_eq!(of(Method::PUT, "/b/k?partNumber=1&uploadId=x", true), "UploadPart");
        assert_eq!(of(Method::GET, "/b?acl", false), "acl");
        assert_eq!(of(Method::GET, "/b", false), "ListObjects");
        assert_eq!(of(Method::POST, "/b", false), "PostObject");
        assert_eq!(of(Method::OPTIONS, "/b?acl", false), "Preflight");
    }

    #[test]
    fn a_sub_resource_is_not_taken_for_its_owner() {
        let allowed = |method: Method, uri: &'static str, object| {
            check(&method, &Uri::from_static(uri), object).is_ok()
        };
        assert!(!allowed(Method::DELETE, "/b?acl", false));
        assert!(!allowed(Method::DELETE, "/b?notification=", false));
        assert!(!allowed(Method::DELETE, "/b/k?retention&versionId=x", true));
        assert!(!allowed(Method::PUT, "/b?location", false));
        assert!(allowed(Method::DELETE, "/b?policy", false));
        assert!(allowed(Method::DELETE, "/b", false));
        assert!(allowed(Method::DELETE, "/b/k?versionId=x", true));
        assert!(allowed(Method::DELETE, "/b/k?uploadId=x", true));
        assert!(allowed(Method::PUT, "/b/k?partNumber=1&uploadId=x", true));
        assert!(allowed(Method::PUT, "/b/k?x-id=PutObject", true));
        assert!(allowed(Method::PUT, "/b/k?X-Amz-Meta-A=", true));
        assert!(allowed(Method::GET, "/b?torrent", false));
    }

    #[test]
    fn what_is_not_offered_is_said_so() {
        let code = |method: Method, uri: &'static str, object| match check(
            &method,
            &Uri::from_static(uri),
            object,
        ) {
            Err(Fault::S3(code, _)) => code.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::POST, Method::HEAD] {
            for lack in ["/b/k?encryption", "/b/k?renameObject="] {
                assert_eq!(code(method.clone(), lack, true), "NotImplemented", "{method} {lack}");
            }
            let table = "/b?metadataTable";
            assert_eq!(code(method.clone(), table, false), "NotImplemented", "{method}");
        }
        assert_eq!(code(Method::PUT, "/b/k?torrent", true), "NotImplemented");
        assert_eq!(code(Method::GET, "/b/k?torrent", true), "NoSuchKey");
        assert_eq!(code(Method::PUT, "/b/k?brand-new", true), "NotImplemented");
        assert_eq!(code(Method::DELETE, "/b?brandNew=", false), "NotImplemented");
        assert_eq!(code(Method::GET, "/b/k?brand-new", true), "Ok(())");
        assert_eq!(code(Method::PUT, "/b/k?uploadId=x", true), "InvalidArgument");
        assert_eq!(code(Method::PUT, "/b/k?partNumber=1", true), "InvalidArgument");
    }
}
