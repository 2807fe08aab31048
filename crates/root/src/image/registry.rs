//! The pull half of the OCI distribution protocol, with every answer bounded.
//!
//! The `oci-client` crate reads manifests and tokens into memory however long they are; the registry is named by a
//! tenant and may be hostile, so the requests are made here and only the reference grammar is taken from there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use model::{Digest, Error, ErrorKind, Result};
use oci_spec::distribution::Reference;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode, Url};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::manifest::{MEDIA_DOCKER_LIST, MEDIA_DOCKER_MANIFEST, MEDIA_OCI_INDEX, MEDIA_OCI_MANIFEST};
use super::{ImageLimits, import::mismatch, too_large};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a byte for this long, a registry is taken to be gone.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const REDIRECTS_MAX: usize = 5;
const LOCALHOST: &str = "localhost";

/// Looks names up and leaves out what lies on this machine or on its link: whoever owns a name may point it anywhere.
struct Elsewhere;

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Hosts of this name are refused before; what is left is a proxy, which the machine's owner chose.
            let proxy = name.as_str() == LOCALHOST;
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.filter(|at| proxy || !address_is_local(at.ip())).collect();
            match found.is_empty() {
                true => Err("its name leads to an address that is not allowed".into()),
                false => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

/// One repository of one registry, read anonymously.
pub struct Registry {
    http: reqwest::Client,
    base: Url,
    loopback: bool,
    reference: Reference,
    document_bytes_max: u64,
    /// `Bearer …`, once the registry has asked for one.
    authorization: Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    pub fn new(reference: &str, limits: &ImageLimits) -> Result<Self> {
        let reference: Reference = reference.parse().map_err(|error| {
            let shown = reference.escape_debug();
            Error::invalid(format!("'{shown}' is not an image reference: {error}"))
                .hint("write it as registry/repository:tag or registry/repository@sha256:…")
        })?;
        let host = reference.resolve_registry();
        let loopback = host_is_loopback(host);
        let scheme = if loopback { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/v2/{}/", reference.repository()))
            .map_err(|error| Error::invalid(format!("'{host}' is not a registry's address: {error}")))?;
        if !address_allowed(&base, loopback) {
            return Err(Error::invalid(format!(
                "'{host}' is an address that registries are not looked for at"
            )));
        }
        let redirects = reqwest::redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > REDIRECTS_MAX {
                attempt.error("too many redirects")
            } else if !address_allowed(attempt.url(), loopback) {
                attempt.error("redirected to an address that is not allowed")
            } else {
                attempt.follow()
            }
        });
        let mut http = reqwest::Client::builder();
        http = match loopback {
            // A proxy would look for the registry on its own machine.
            true => http.no_proxy(),
            false => http.dns_resolver(Arc::new(Elsewhere)),
        };
        let http = http
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(redirects)
            .user_agent(concat!("banyan/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::unavailable("no connection to registries can be made").because(error))?;
        let document_bytes_max = limits.document_bytes_max;
        Ok(Self { http, base, loopback, reference, document_bytes_max, authorization: Mutex::new(None) })
    }

    /// The manifest or index that the reference names.
    pub async fn manifest_named(&self) -> Result<Vec<u8>> {
        match (self.reference.digest(), self.reference.tag()) {
            (Some(digest), _) => self.manifest(&digest.parse()?).await,
            (None, tag) => self.document(&format!("manifests/{}", tag.unwrap_or("latest"))).await,
        }
    }

    /// A manifest or index by its digest.
    pub async fn manifest(&self, digest: &Digest) -> Result<Vec<u8>> {
        verified(self.document(&format!("manifests/{digest}")).await?, digest)
    }

    /// A small blob, such as a config.
    pub async fn blob_whole(&self, digest: &Digest) -> Result<Vec<u8>> {
        verified(self.document(&format!("blobs/{digest}")).await?, digest)
    }

    /// A blob as it comes. The caller counts and hashes.
    pub async fn blob(&self, digest: &Digest) -> Result<Response> {
        self.get(&format!("blobs/{digest}")).await
    }

    async fn document(&self, path: &str) -> Result<Vec<u8>> {
        body_bounded(self.get(path).await?, self.document_bytes_max).await
    }

    async fn get(&self, path: &str) -> Result<Response> {
        let url = self.base.join(path).map_err(|error| Error::invalid(error.to_string()))?;
        let authorization = self.authorization.lock().await.clone();
        let answer = self.send(&url, authorization.as_deref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED || authorization.is_some() {
            return self.judged(answer);
        }
        let challenge = answer.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let Some(token) = self.token(challenge.unwrap_or_default()).await? else {
            return self.judged(answer);
        };
        let authorization = format!("Bearer {token}");
        *self.authorization.lock().await = Some(authorization.clone());
        self.judged(self.send(&url, Some(&authorization)).await?)
    }

    async fn send(&self, url: &Url, authorization: Option<&str>) -> Result<Response> {
        let accept = [MEDIA_OCI_INDEX, MEDIA_DOCKER_LIST, MEDIA_OCI_MANIFEST, MEDIA_DOCKER_MANIFEST, "*/*"];
        let mut request = self.http.get(url.clone()).header(ACCEPT, accept.join(", "));
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        request.send().await.map_err(|error| self.unreachable(error))
    }

    /// Asks for an anonymous token as the challenge says; nothing when it asks for something else.
    async fn token(&self, challenge: &str) -> Result<Option<String>> {
        let Some(realm) = challenge_value(challenge, "realm") else { return Ok(None) };
        let url = Url::parse(&realm).ok().filter(|url| address_allowed(url, self.loopback));
        let Some(mut url) = url else {
            return Err(Error::invalid(
                "the registry sends us for a token to an address that is not allowed",
            ));
        };
        let scope = format!("repository:{}:pull", self.reference.repository());
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = challenge_value(challenge, "service") {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let answer = self.judged(self.send(&url, None).await?)?;
        let body = body_bounded(answer, self.document_bytes_max).await?;
        let token: Token = super::manifest::parse(&body, "the registry's token")?;
        Ok(token.token.or(token.access_token))
    }

    /// Turns a refusal of the registry into ours.
    fn judged(&self, answer: Response) -> Result<Response> {
        let image = self.reference.whole();
        let status = answer.status();
        Err(match status {
            status if status.is_success() => return Ok(answer),
            StatusCode::NOT_FOUND => Error::not_found(format!("image '{image}' in its registry")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Error::new(
                ErrorKind::Forbidden,
                format!("the registry does not let everyone pull '{image}', or it is not there"),
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                Error::new(ErrorKind::RateLimited, "the registry asks us to pull less often")
            }
            status if status.is_server_error() => {
                Error::unavailable(format!("the registry failed to serve '{image}' ({status})"))
            }
            status => Error::invalid(format!("the registry refused '{image}' ({status})")),
        })
    }

    pub fn unreachable(&self, error: reqwest::Error) -> Error {
        let host = self.reference.resolve_registry();
        Error::unavailable(format!("the registry {host} cannot be read: {}", cause_of(&error))).because(error)
    }
}

/// The innermost cause, which is the one that says something.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

async fn body_bounded(mut answer: Response, max: u64) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| {
        Error::unavailable("the registry broke off in the middle of an answer").because(error)
    })? {
        if (body.len() + chunk.len()) as u64 > max {
            return Err(too_large(format!("the registry answers with a document larger than {max} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn verified(bytes: Vec<u8>, digest: &Digest) -> Result<Vec<u8>> {
    match Digest::from_sha256(&Sha256::digest(&bytes)) == *digest {
        true => Ok(bytes),
        false => Err(mismatch("what the registry sent", digest)),
    }
}

/// A value of `Bearer realm="…",service="…"`.
fn challenge_value(challenge: &str, key: &str) -> Option<String> {
    let (scheme, values) = challenge.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut rest = values;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, next) = after.split_once('"')?;
        if name.trim_matches([',', ' ']).eq_ignore_ascii_case(key) {
            return Some(value.to_owned());
        }
        rest = next;
    }
    None
}

/// Plain HTTP is for registries on this machine, and a registry elsewhere may not send us to this machine.
fn address_allowed(url: &Url, loopback: bool) -> bool {
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" => loopback || !host_is_local(host),
        "http" => loopback && host_is_loopback(host),
        _ => false,
    }
}

/// The address in `127.0.0.1`, `127.0.0.1:5000`, `[::1]:5000`.
fn host_address(host: &str) -> Option<IpAddr> {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.parse().ok()
}

fn host_is_loopback(host: &str) -> bool {
    host.split(':').next() == Some(LOCALHOST)
        || host_address(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

fn host_is_local(host: &str) -> bool {
    host_is_loopback(host) || host_address(host).is_some_and(address_is_local)
}

fn address_is_local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    }
}

/// Whether a reference names a registry on this machine.
pub fn reference_is_loopback(reference: &str) -> bool {
    reference.parse().is_ok_and(|reference: Reference| host_is_loopback(reference.resolve_registry()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_and_others_ignored() {
        let challenge = r#"Bearer realm="https://a.example/t",service="a, b",scope="x""#;
        assert_eq!(challenge_value(challenge, "realm").as_deref(), Some("https://a.example/t"));
        assert_eq!(challenge_value(challenge, "service").as_deref(), Some("a, b"));
        assert_eq!(challenge_value(r#"Basic realm="x""#, "realm"), None);
        assert_eq!(challenge_value("", "realm"), None);
    }

    #[tokio::test]
    async fn a_name_that_leads_to_this_machine_is_not_followed() {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
        let lookup = tokio::net::lookup_host((own.trim(), 0)).await.map(Iterator::collect::<Vec<_>>);
        let local = lookup.is_ok_and(|found| found.iter().all(|at| address_is_local(at.ip())));
        let found = Elsewhere.resolve(own.trim().parse().expect("a name")).await;
        assert!(!local || found.is_err(), "{own} leads here");
        assert!(Elsewhere.resolve("ip6-localhost".parse().expect("a name")).await.is_err());
    }

    #[test]
    fn plain_http_and_this_machine_are_for_loopback_registries_only() {
        let check = |url: &str, loopback, expected| {
            let url = Url::parse(url).expect("a URL");
            assert_eq!(address_allowed(&url, loopback), expected, "{url} {loopback}");
        };
        check("https://cdn.example/x", false, true);
        check("http://cdn.example/x", false, false);
        check("http://127.0.0.1:1/x", false, false);
        check("https://127.0.0.1:1/x", false, false);
        check("https://169.254.169.254/x", false, false);
        check("https://[::1]/x", false, false);
        check("https://[::ffff:127.0.0.1]/x", false, false);
        check("https://127.1/x", false, false);
        check("https://2130706433/x", false, false);
        check("https://0/x", false, false);
        check("https://0x7f.1/x", false, false);
        check("http://127.0.0.1:1/x", true, true);
        check("http://[::1]:1/x", true, true);
        check("http://cdn.example/x", true, false);
        check("file:///etc/passwd", true, false);
    }
}
