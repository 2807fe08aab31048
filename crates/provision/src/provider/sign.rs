//! Requests with Amazon's signature of the version 4.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

pub(super) struct Signer {
    pub(super) endpoint: reqwest::Url,
    pub(super) region: String,
    pub(super) service: &'static str,
    pub(super) access: String,
    pub(super) secret: Zeroizing<String>,
}

/// A form, ready to be sent.
pub(super) struct Signed {
    pub(super) headers: [(&'static str, String); 3],
    pub(super) body: String,
}

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

impl Signer {
    pub(super) fn post(&self, parameters: &[(String, String)], now: jiff::Timestamp) -> Signed {
        let pairs: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value))).collect();
        let body = pairs.join("&");
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        let path = self.endpoint.path();
        let headers = format!("content-type:{FORM}\nhost:{}\nx-amz-date:{time}\n", self.host());
        let names = "content-type;host;x-amz-date";
        let digest = hex(&Sha256::digest(&body));
        let request = format!("POST\n{path}\n\n{headers}\n{names}\n{digest}");
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(request)));
        let mut key = Zeroizing::new(format!("AWS4{}", self.secret.as_str()).into_bytes());
        for part in [day, &self.region, self.service, "aws4_request"] {
            key = Zeroizing::new(mac(&key, part));
        }
        let signature = hex(&mac(&key, &text));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.access
        );
        let headers =
            [("content-type", FORM.to_owned()), ("x-amz-date", time), ("authorization", authorization)];
        Signed { headers, body }
    }

    /// As the header has it: without the usual port.
    fn host(&self) -> String {
        let host = self.endpoint.host_str().unwrap_or_default();
        match self.endpoint.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_published_key_derivation() {
        // Amazon's example: secret, day 20120215, us-east-1, iam.
        let mut key = b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec();
        for part in ["20120215", "us-east-1", "iam", "aws4_request"] {
            key = mac(&key, part);
        }
        assert_eq!(hex(&key), "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
        assert_eq!(escaped("a b/ä~"), "a%20b%2F%C3%A4~");
    }
}
