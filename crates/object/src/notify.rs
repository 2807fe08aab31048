//! Telling a webhook what happened in a bucket.

use s3s::S3ErrorCode;

use crate::fault::{Fault, Result};

/// The address behind `arn:aws:sns:REGION:ACCOUNT:webhook:URL`, or a plain `http(s)://` address.
pub fn target(arn: &str) -> Result<&str> {
    let address = arn
        .find("http")
        .map(|at| &arn[at..])
        .filter(|rest| rest.starts_with("http://") || rest.starts_with("https://"));
    address.ok_or_else(|| {
        let why = "The target must be a webhook: an address with http:// or https://";
        Fault::new(S3ErrorCode::InvalidArgument, why)
    })
}
