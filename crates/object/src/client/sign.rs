//! Signature version 4, made: for requests in their header, for links in their query.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::escape::escape;

/// What signs.
#[derive(Clone)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: zeroize::Zeroizing<String>,
    pub session_token: Option<String>,
}

/// What is signed.
pub struct Signable<'a> {
    pub method: &'a str,
    pub host: &'a str,
    /// Escaped already.
    pub path: &'a str,
    /// Names and values, not escaped.
    pub query: &'a [(String, String)],
    /// Lower-case names; `host` is added.
    pub headers: &'a [(String, String)],
    /// The hash of the body in hex, or `UNSIGNED-PAYLOAD`.
    pub payload: &'a str,
}

pub struct Signer<'a> {
    pub credentials: &'a Credentials,
    pub region: &'a str,
    pub service: &'a str,
    /// As `20261116T120000Z`.
    pub at: &'a str,
}

impl Signer<'_> {
    fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", &self.at[..8], self.region, self.service)
    }

    /// The value of `Authorization`. The caller sends `x-amz-date` and the like as they stand in `headers`.
    pub fn header(&self, what: &Signable<'_>) -> String {
        let (names, signature) = self.signature(what);
        let id = &self.credentials.access_key_id;
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{}, SignedHeaders={names}, Signature={signature}",
            self.scope()
        )
    }

    /// The query of a link that anyone may use for so many seconds.
    pub fn query(&self, what: &Signable<'_>, seconds: u64) -> String {
        let mut query = what.query.to_vec();
        let mut add = |name: &str, value: String| query.push((name.to_owned(), value));
        add("X-Amz-Algorithm", "AWS4-HMAC-SHA256".into());
        add("X-Amz-Credential", format!("{}/{}", self.credentials.access_key_id, self.scope()));
        add("X-Amz-Date", self.at.into());
        add("X-Amz-Expires", seconds.to_string());
        add("X-Amz-SignedHeaders", "host".into());
        if let Some(token) = &self.credentials.session_token {
            add("X-Amz-Security-Token", token.clone());
        }
        let signed = Signable { query: &query, headers: &[], payload: "UNSIGNED-PAYLOAD", ..*what };
        let (_, signature) = self.signature(&signed);
        format!("{}&X-Amz-Signature={signature}", canonical_query(&query))
    }

    fn signature(&self, what: &Signable<'_>) -> (String, String) {
        let mut headers: Vec<(&str, &str)> =
            what.headers.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
        headers.push(("host", what.host));
        headers.sort_unstable();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let query = canonical_query(what.query);
        let canonical =
            format!("{}\n{}\n{query}\n{lines}\n{names}\n{}", what.method, what.path, what.payload);
        let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{digest}", self.at, self.scope());
        let secret = format!("AWS4{}", &*self.credentials.secret_access_key);
        let mut key = hmac(secret.as_bytes(), &self.at[..8]);
        for step in [self.region, self.service, "aws4_request"] {
            key = hmac(&key, step);
        }
        (names, hex::encode(hmac(&key, &text)))
    }
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

/// Sorted and escaped, as it is signed and sent.
pub fn canonical_query(query: &[(String, String)]) -> String {
    let mut pairs: Vec<(String, String)> =
        query.iter().map(|(name, value)| (escape(name, false), escape(value, false))).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published example of AWS for a GET with a range.
    #[test]
    fn the_known_example_is_signed() {
        let credentials = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned().into(),
            session_token: None,
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = [
            header("range", "bytes=0-9"),
            header("x-amz-content-sha256", empty),
            header("x-amz-date", "20130524T000000Z"),
        ];
        let signer =
            Signer { credentials: &credentials, region: "us-east-1", service: "s3", at: "20130524T000000Z" };
        let host = "examplebucket.s3.amazonaws.com";
        let what = Signable {
            method: "GET",
            host,
            path: "/test.txt",
            query: &[],
            headers: &headers,
            payload: empty,
        };
        let signed = signer.header(&what);
        assert!(
            signed.ends_with("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
            "{signed}"
        );
        let link = signer.query(&Signable { headers: &[], ..what }, 86400);
        assert!(
            link.ends_with(
                "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
            ),
            "{link}"
        );
    }
}
