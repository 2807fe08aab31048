//! Who signed the policy of a form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use s3s::S3ErrorCode;
use sha1::Sha1;
use sha2::Sha256;

use crate::access;
use crate::fault::{Fault, Result};
use crate::identity::Identity;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The access key that signed the policy; `None` for a form without one, which is anonymous.
pub async fn check(identity: &dyn Identity, fields: &[(String, String)]) -> Result<Option<String>> {
    let field =
        |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let Some(policy) = field("policy") else {
        let signed = ["signature", "x-amz-signature", "awsaccesskeyid", "x-amz-credential"];
        return match signed.iter().any(|name| field(name).is_some()) {
            true => Err(missing("policy")),
            false => Ok(None),
        };
    };
    let needed = |name: &'static str| field(name).ok_or_else(|| missing(name));
    let credential = field("x-amz-credential");
    let access_key = match credential {
        Some(credential) => credential.split('/').next().unwrap_or_default(),
        None => needed("awsaccesskeyid")?,
    };
    let signature = needed(if credential.is_some() { "x-amz-signature" } else { "signature" })?;
    let secret = access::secret(identity, access_key).await?;
    let good = match credential {
        Some(credential) => {
            if needed("x-amz-algorithm")? != ALGORITHM {
                return Err(Fault::new(
                    S3ErrorCode::InvalidArgument,
                    "X-Amz-Algorithm must be AWS4-HMAC-SHA256",
                ));
            }
            let date = needed("x-amz-date")?;
            is_v4(&secret, credential, date, policy, signature)?
        }
        None => {
            let given = STANDARD.decode(signature).unwrap_or_default();
            mac::<Hmac<Sha1>>(secret.as_bytes(), policy.as_bytes()).verify_slice(&given).is_ok()
        }
    };
    if !good {
        return Err(Fault::new(
            S3ErrorCode::SignatureDoesNotMatch,
            "The request signature we calculated does not match the signature you provided.",
        ));
    }
    Ok(Some(access_key.to_owned()))
}

/// The credential is `KEY/DATE/REGION/SERVICE/aws4_request`.
fn is_v4(secret: &str, credential: &str, date: &str, policy: &str, signature: &str) -> Result<bool> {
    let scope: Vec<&str> = credential.split('/').collect();
    let [_, day, region, service, "aws4_request"] = scope.as_slice() else {
        return Err(Fault::new(S3ErrorCode::InvalidArgument, "X-Amz-Credential is not well formed."));
    };
    if !date.starts_with(day) || *service != "s3" {
        return Err(Fault::new(
            S3ErrorCode::InvalidArgument,
            "X-Amz-Credential does not fit X-Amz-Date or the service.",
        ));
    }
    let first = zeroize::Zeroizing::new(format!("AWS4{secret}"));
    let mut key = mac::<Hmac<Sha256>>(first.as_bytes(), day.as_bytes()).finalize().into_bytes().to_vec();
    for step in [region.as_bytes(), service.as_bytes(), b"aws4_request"] {
        key = mac::<Hmac<Sha256>>(&key, step).finalize().into_bytes().to_vec();
    }
    let given = hex::decode(signature).unwrap_or_default();
    Ok(mac::<Hmac<Sha256>>(&key, policy.as_bytes()).verify_slice(&given).is_ok())
}

fn mac<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("any length of key is good");
    mac.update(text);
    mac
}

fn missing(name: &str) -> Fault {
    Fault::new(
        S3ErrorCode::InvalidArgument,
        format!(
            "Bucket POST must contain a field named '{name}'. If it is specified, please check the order of the fields."
        ),
    )
}
