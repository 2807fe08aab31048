//! Which methods the sub-resources know. The library answers those that it does not know as if the sub-resource were
//! not named: a `DELETE` of a bucket's ACL would delete the bucket.

use http::{Method, Uri};
use s3s::S3ErrorCode;

use crate::access::pairs;
use crate::fault::{Fault, Result};

/// Name, methods on a bucket, methods on an object.
const KNOWN: [(&str, &str, &str); 33] = [
    ("accelerate", "GET PUT", ""),
    ("acl", "GET PUT", "GET PUT"),
    ("analytics", "GET PUT DELETE", ""),
    ("attributes", "", "GET"),
    ("cors", "GET PUT DELETE", ""),
    ("delete", "POST", ""),
    ("encryption", "GET PUT DELETE", "PUT"),
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
    ("torrent", "", "GET"),
    ("uploadId", "", "GET PUT POST DELETE"),
    ("uploads", "GET", "POST"),
    ("versioning", "GET PUT", ""),
    ("versions", "GET", ""),
    ("website", "GET PUT DELETE", ""),
    ("partNumber", "", "GET HEAD PUT"),
];

/// Refuses to change a bucket or an object by a sub-resource that cannot be changed so.
pub fn check(method: &Method, uri: &Uri, object: bool) -> Result<()> {
    if method != Method::PUT && method != Method::DELETE {
        return Ok(());
    }
    for (name, _) in pairs(uri.query().unwrap_or_default()) {
        let Some((_, bucket_methods, object_methods)) = KNOWN.iter().find(|(known, ..)| *known == name)
        else {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_resource_is_not_taken_for_its_owner() {
        let allowed = |method: Method, uri: &'static str, object| {
            check(&method, &Uri::from_static(uri), object).is_ok()
        };
        assert!(!allowed(Method::DELETE, "/b?acl", false));
        assert!(!allowed(Method::DELETE, "/b?notification=", false));
        assert!(!allowed(Method::DELETE, "/b/k?retention&versionId=x", true));
        assert!(!allowed(Method::PUT, "/b?location", false));
        assert!(!allowed(Method::PUT, "/b/k?torrent", true));
        assert!(allowed(Method::DELETE, "/b?policy", false));
        assert!(allowed(Method::DELETE, "/b", false));
        assert!(allowed(Method::DELETE, "/b/k?versionId=x", true));
        assert!(allowed(Method::DELETE, "/b/k?uploadId=x", true));
        assert!(allowed(Method::PUT, "/b/k?partNumber=1&uploadId=x", true));
        assert!(allowed(Method::PUT, "/b/k?x-id=PutObject", true));
        assert!(allowed(Method::GET, "/b?torrent", false));
    }
}
