//! Who we are at a cloud: Keystone's tokens and its catalogue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::task::{Fault, Task};

/// A token that ends so soon is not used any more.
const NEAR_S: i64 = 120;
/// Accounts of which tokens are kept.
const SESSIONS_MAX: usize = 64;

/// What stands for one account: its address and its secret.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) address: reqwest::Url,
    pub(super) body: Zeroizing<String>,
}

/// A token, and what it opens.
pub(super) struct Session {
    pub(super) token: Zeroizing<String>,
    until: jiff::Timestamp,
    catalog: Vec<Service>,
}

/// Tokens that can be used again, by the digest of their account.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<[u8; 32], Arc<Session>>>);

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    interface: String,
    #[serde(default)]
    region: Option<String>,
    url: String,
}

#[derive(Deserialize)]
struct Answer {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    expires_at: jiff::Timestamp,
    #[serde(default)]
    catalog: Vec<Service>,
}

pub(super) fn field(task: &Task, name: &str) -> Option<String> {
    task.provider_field(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The words of a field with commas.
pub(super) fn list(task: &Task, name: &str) -> Vec<String> {
    let text = field(task, name).unwrap_or_default();
    text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}

impl Login {
    pub(super) fn of(task: &Task) -> Result<Self, Fault> {
        let must = |names: [&str; 2]| {
            names
                .iter()
                .find_map(|name| field(task, name))
                .ok_or_else(|| Fault::credentials(format!("the provider has no '{}': fill it in", names[0])))
        };
        let address = address(&must(["openstack_auth_url", "endpoint"])?)?;
        let auth = match field(task, "openstack_application_credential_id") {
            Some(id) => {
                let name = "openstack_application_credential_secret";
                let secret = must([name, name])?;
                json!({"identity": {
                    "methods": ["application_credential"],
                    "application_credential": {"id": id, "secret": secret}
                }})
            }
            None => {
                let (name, password) =
                    (must(["openstack_username", "api_user"])?, must(["openstack_api_key", "api_password"])?);
                let domain = domain(field(task, "openstack_user_domain"));
                json!({
                    "identity": {"methods": ["password"], "password": {
                        "user": {"name": name, "password": password, "domain": domain}
                    }},
                    "scope": {"project": project(task, must(["openstack_tenant", "openstack_project"])?)}
                })
            }
        };
        Ok(Self { address, body: json!({ "auth": auth }).to_string().into() })
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::new().chain_update(self.address.as_str()).chain_update(self.body.as_bytes()).finalize().into()
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// By its id if it is `default`, as Keystone's first domain is, or looks like one.
fn domain(given: Option<String>) -> Value {
    match given {
        None => json!({"id": "default"}),
        Some(text) if text == "default" || is_id(&text) => json!({ "id": text }),
        Some(name) => json!({ "name": name }),
    }
}

fn project(task: &Task, given: String) -> Value {
    match is_id(&given) {
        true => json!({ "id": given }),
        false => json!({"name": given, "domain": domain(field(task, "openstack_project_domain"))}),
    }
}

/// Where tokens are made, however much of the path was given: also that of the API before the third.
fn address(given: &str) -> Result<reqwest::Url, Fault> {
    let mut text = given.trim_end_matches('/');
    for tail in ["/tokens", "/auth", "/v3", "/v2.0"] {
        text = text.strip_suffix(tail).unwrap_or(text).trim_end_matches('/');
    }
    url(&format!("{text}/v3/auth/tokens"))
        .ok_or_else(|| Fault::invalid(format!("'{}' is no address of Keystone", model::shown(given))))
}

fn url(text: &str) -> Option<reqwest::Url> {
    let url = reqwest::Url::parse(text).ok()?;
    (["http", "https"].contains(&url.scheme()) && url.host_str().is_some()).then_some(url)
}

impl Session {
    /// From what Keystone answered.
    pub(super) fn read(token: &str, answer: &[u8]) -> Result<Self, Fault> {
        let answer: Answer = serde_json::from_slice(answer)
            .map_err(|error| Fault::failed(format!("Keystone's answer cannot be read: {error}")))?;
        let Token { expires_at, catalog } = answer.token;
        Ok(Self { token: token.to_owned().into(), until: expires_at, catalog })
    }

    fn is_fresh(&self) -> bool {
        jiff::Timestamp::now().as_second() + NEAR_S < self.until.as_second()
    }

    /// The address of an API in a region; of the only region if none is said.
    pub(super) fn endpoint(
        &self,
        kind: &str,
        region: Option<&str>,
        interface: &str,
    ) -> Result<reqwest::Url, Fault> {
        let services = self.catalog.iter().filter(|service| service.kind == kind);
        let all: Vec<&Endpoint> = services.flat_map(|service| &service.endpoints).collect();
        let all: Vec<&Endpoint> = all.into_iter().filter(|one| one.interface == interface).collect();
        let there = |one: &&&Endpoint| region.is_none_or(|region| one.region.as_deref() == Some(region));
        let found: Vec<&&Endpoint> = all.iter().filter(there).collect();
        let regions: Vec<&str> = all.iter().filter_map(|one| one.region.as_deref()).collect();
        let regions = regions.join(", ");
        match found.as_slice() {
            [one] => url(&one.url).ok_or_else(|| {
                Fault::invalid(format!("the cloud's address '{}' is none", model::shown(&one.url)))
            }),
            [] if all.is_empty() => Err(Fault::invalid(format!(
                "the cloud has no {interface} address of the service '{kind}' for this project"
            ))),
            [] => {
                let region = model::shown(region.unwrap_or_default());
                Err(Fault::invalid(format!("the cloud has no region '{region}'; it has {regions}")))
            }
            _ => Err(Fault::invalid(format!("fill in 'openstack_region': the cloud has {regions}"))),
        }
    }
}

impl Sessions {
    pub(super) fn get(&self, login: &Login) -> Option<Arc<Session>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&login.digest()).filter(|session| session.is_fresh()).cloned()
    }

    pub(super) fn put(&self, login: &Login, session: &Arc<Session>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= SESSIONS_MAX {
            all.retain(|_, session| session.is_fresh());
        }
        if all.len() >= SESSIONS_MAX {
            all.pop_first();
        }
        all.insert(login.digest(), session.clone());
    }

    /// The cloud does not take it any more.
    pub(super) fn forget(&self, login: &Login) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&login.digest());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_in_all_their_forms() {
        for given in ["http://k:5000", "http://k:5000/", "http://k:5000/v3", "http://k:5000/v2.0/tokens"] {
            assert_eq!(address(given).unwrap().as_str(), "http://k:5000/v3/auth/tokens", "{given}");
        }
        assert_eq!(
            address("https://c/identity/v3/auth/tokens").unwrap().as_str(),
            "https://c/identity/v3/auth/tokens"
        );
        assert!(address("ftp://k").is_err() && address("k").is_err());
    }

    #[test]
    fn endpoints_are_of_one_region_and_kind() {
        let answer = json!({"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": [
            {"type": "compute", "endpoints": [
                {"interface": "public", "region": "a", "url": "https://a/v2.1"},
                {"interface": "internal", "region": "a", "url": "http://inner/v2.1"},
                {"interface": "public", "region": "b", "url": "https://b/v2.1"}
            ]}
        ]}});
        let session = Session::read("t", answer.to_string().as_bytes()).unwrap();
        let of = |kind, region, interface| {
            session.endpoint(kind, region, interface).map(String::from).map_err(|fault| fault.message)
        };
        assert_eq!(of("compute", Some("b"), "public").as_deref(), Ok("https://b/v2.1"));
        assert_eq!(of("compute", None, "internal").as_deref(), Ok("http://inner/v2.1"));
        let unclear = of("compute", None, "public").unwrap_err();
        assert_eq!(unclear, "fill in 'openstack_region': the cloud has a, b");
        assert!(of("compute", Some("c"), "public").unwrap_err().ends_with("it has a, b"));
        assert!(of("image", None, "public").unwrap_err().contains("'image'"));
        assert!(session.is_fresh());
    }

    #[test]
    fn tokens_near_their_end_are_not_used() {
        let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(NEAR_S - 20)).to_string();
        let answer = json!({"token": {"expires_at": soon}}).to_string();
        let session = Arc::new(Session::read("t", answer.as_bytes()).unwrap());
        let login = Login { address: address("http://k").unwrap(), body: String::new().into() };
        let sessions = Sessions::default();
        sessions.put(&login, &session);
        assert!(sessions.get(&login).is_none());
    }
}
