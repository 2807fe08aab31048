//! One cloud's APIs: bounded questions with a token that is made when it is needed.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::identity::{Login, Session, Sessions, field};
use crate::task::{Fault, Task};

/// Making a server may take long to be answered.
const ASK_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_secs(15);
/// Bytes of an answer.
const ANSWER_MAX: usize = 8 << 20;
/// Pages of a list, of up to a thousand items each.
const PAGES_MAX: usize = 100;
/// Letters of what the cloud says that are passed on.
const WORDS_MAX: usize = 500;

pub(super) struct Cloud<'a> {
    client: reqwest::Client,
    login: Login,
    region: Option<String>,
    interface: String,
    sessions: &'a Sessions,
}

/// A question to one of the services.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    /// As the catalogue calls the service.
    pub(super) kind: &'static str,
    pub(super) path: &'a [&'a str],
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Option<&'a Value>,
}

/// A refusal; its status is 0 if the cloud was not heard.
pub(super) struct Denied {
    pub(super) status: u16,
    pub(super) fault: Fault,
}

impl From<Denied> for Fault {
    fn from(denied: Denied) -> Self {
        denied.fault
    }
}

impl From<Fault> for Denied {
    fn from(fault: Fault) -> Self {
        Self { status: 0, fault }
    }
}

impl<'a> Cloud<'a> {
    pub(super) fn of(task: &Task, sessions: &'a Sessions) -> Result<Self, Fault> {
        let interface = field(task, "openstack_interface").unwrap_or_else(|| "public".to_owned());
        if !["public", "internal"].contains(&interface.as_str()) {
            let given = model::shown(&interface);
            return Err(Fault::invalid(format!(
                "'openstack_interface' is '{given}': write public or internal"
            )));
        }
        // A token goes where the catalogue says and nowhere else.
        let client = reqwest::Client::builder()
            .timeout(ASK_MAX)
            .connect_timeout(CONNECT_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Fault::failed(error.to_string()))?;
        Ok(Self {
            client,
            login: Login::of(task)?,
            region: field(task, "openstack_region"),
            interface,
            sessions,
        })
    }

    pub(super) async fn get(
        &self,
        kind: &'static str,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Value, Denied> {
        self.ask(Ask { method: Method::GET, kind, path, query, body: None }).await
    }

    /// Deletes; what is gone already is deleted.
    pub(super) async fn delete(&self, kind: &'static str, path: &[&str]) -> Result<(), Fault> {
        match self.ask(Ask { method: Method::DELETE, kind, path, query: &[], body: None }).await {
            Err(denied) if denied.status == 404 => Ok(()),
            told => told.map(drop).map_err(Fault::from),
        }
    }

    /// Asks, with another token if the one that is kept is not taken.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<Value, Denied> {
        let kept = self.sessions.get(&self.login);
        let is_kept = kept.is_some();
        let session = match kept {
            Some(session) => session,
            None => self.enter().await?,
        };
        match self.ask_as(&session, &ask).await {
            Err(denied) if denied.status == 401 => {
                self.sessions.forget(&self.login);
                if is_kept { self.ask_as(&*self.enter().await?, &ask).await } else { Err(denied) }
            }
            answer => answer,
        }
    }

    async fn enter(&self) -> Result<Arc<Session>, Denied> {
        let request = self.client.post(self.login.address.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(self.login.body.to_string());
        let (response, body) = self.send(request).await?;
        let status = response.status();
        if status != StatusCode::CREATED && status != StatusCode::OK {
            return Err(Denied::of("Keystone refuses us", status, &body));
        }
        let token = response.headers().get("x-subject-token").and_then(|token| token.to_str().ok());
        let token = token.ok_or_else(|| Fault::failed("Keystone gave no token"))?;
        let session = Arc::new(Session::read(token, &body)?);
        self.sessions.put(&self.login, &session);
        Ok(session)
    }

    async fn ask_as(&self, session: &Session, ask: &Ask<'_>) -> Result<Value, Denied> {
        let mut url = session.endpoint(ask.kind, self.region.as_deref(), &self.interface)?;
        url.path_segments_mut()
            .map_err(|()| Fault::invalid("the cloud's address has no path"))?
            .pop_if_empty()
            .extend(ask.path);
        let mut token = HeaderValue::from_str(&session.token)
            .map_err(|_| Fault::failed("the cloud's token is no header"))?;
        token.set_sensitive(true);
        let mut request = self.client.request(ask.method.clone(), url).header("x-auth-token", token);
        if !ask.query.is_empty() {
            request = request.query(ask.query);
        }
        if let Some(body) = ask.body {
            request = request.json(body);
        }
        let (response, body) = self.send(request).await?;
        if !response.status().is_success() {
            let what = format!("the cloud refuses {} of {}", ask.method, ask.path.join("/"));
            return Err(Denied::of(&what, response.status(), &body));
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| Fault::failed(format!("the cloud's answer cannot be read: {error}")).into())
    }

    async fn send(&self, request: RequestBuilder) -> Result<(reqwest::Response, Vec<u8>), Denied> {
        // What the library says names the address, and no secret is in that.
        let lost = |error: reqwest::Error| {
            let why = if error.is_timeout() { "it does not answer".to_owned() } else { deep(&error) };
            Fault::failed(format!("the cloud cannot be asked: {why}"))
        };
        let mut response = request.send().await.map_err(lost)?;
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(lost)? {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_MAX {
                let text = format!("the cloud answered more than {} MiB", ANSWER_MAX >> 20);
                return Err(Fault::failed(text).into());
            }
        }
        Ok((response, body))
    }

    /// All of a list of Nova's, page by page.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        name: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        let mut marker = String::new();
        for _ in 0..PAGES_MAX {
            let mut query = query.to_vec();
            if !marker.is_empty() {
                query.push(("marker", &marker));
            }
            let mut page = self.get("compute", path, &query).await?;
            let items: Vec<Value> = read(page[name].take())?;
            let last = items.last().and_then(|item| item["id"].as_str()).map(str::to_owned);
            for item in items {
                all.push(read(item)?);
            }
            match last {
                Some(last) if page[format!("{name}_links")].is_array() => marker = last,
                _ => return Ok(all),
            }
        }
        Err(Fault::failed(format!("the cloud's list of {name} does not end")))
    }

    /// The id of what has the name, unless this is an id already.
    pub(super) async fn named(
        &self,
        kind: &'static str,
        path: &[&str],
        list: &str,
        given: &str,
    ) -> Result<String, Fault> {
        if is_uuid(given) {
            return Ok(given.to_owned());
        }
        let found = self.get(kind, path, &[("name", given)]).await?;
        let found = found[list].as_array().cloned().unwrap_or_default();
        let ids: Vec<&str> = found.iter().filter_map(|item| item["id"].as_str()).collect();
        let given = model::shown(given);
        match ids.as_slice() {
            [id] => Ok((*id).to_owned()),
            [] => Err(Fault::invalid(format!("the cloud has none of {list} with the name '{given}'"))),
            many => Err(Fault::invalid(format!(
                "the cloud has {} of {list} with the name '{given}': write an id",
                many.len()
            ))),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value)
        .map_err(|error| Fault::failed(format!("the cloud's answer cannot be read: {error}")))
}

/// The innermost reason.
fn deep(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}

/// As much of what the cloud said as is passed on.
pub(super) fn words(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(WORDS_MAX).collect()
}

impl Denied {
    fn of(what: &str, status: StatusCode, body: &[u8]) -> Self {
        // Every service wraps its words in an object with a name of its own.
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let said = said.as_object().and_then(|said| said.values().find_map(|one| one["message"].as_str()));
        let said = words(said.unwrap_or_default());
        let status = status.as_u16();
        let why =
            if said.is_empty() { format!("it answered {status}") } else { format!("{said} ({status})") };
        Self { status, fault: fault(status, &said, format!("{what}: {why}")) }
    }
}

/// What a refusal means for the task. Nova says 403 for three different reasons.
fn fault(status: u16, said: &str, text: String) -> Fault {
    let said = said.to_ascii_lowercase();
    match status {
        401 => Fault::credentials(text),
        403 | 413 if said.contains("quota") || said.contains("limit") => {
            Fault { is_passing: false, ..Fault::failed(text) }
        }
        403 if said.is_empty() || said.contains("policy") || said.contains("not authorized") => {
            Fault::credentials(text)
        }
        // What is in the way may go away: a server that is being changed, a port that is being bound.
        409 | 413 | 429 | 500.. => Fault::failed(text),
        _ => Fault::invalid(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let of = |status: u16, body: &str| {
            let denied = Denied::of("no", StatusCode::from_u16(status).unwrap(), body.as_bytes());
            (denied.fault.status, denied.fault.is_passing)
        };
        let said = |text: &str| format!(r#"{{"forbidden": {{"code": 403, "message": "{text}"}}}}"#);
        assert_eq!(of(401, "<html>"), (Fault::CREDENTIALS, false));
        assert_eq!(
            of(403, &said("Policy doesn't allow os_compute_api:servers:create to be performed.")),
            (Fault::CREDENTIALS, false)
        );
        assert_eq!(of(403, &said("Quota exceeded for cores: Requested 1")), (Fault::FAILED, false));
        assert_eq!(
            of(403, &said("Only volume-backed servers are allowed for flavors with zero disk.")),
            (Fault::INVALID, false)
        );
        for status in [409, 429, 500, 503] {
            assert_eq!(of(status, ""), (Fault::FAILED, true), "{status}");
        }
        for status in [302, 400, 404] {
            assert_eq!(of(status, ""), (Fault::INVALID, false), "{status}");
        }
    }

    #[test]
    fn ids_and_names_are_told_apart() {
        assert!(is_uuid("70a599e0-31e7-49b7-b260-868f441e862b"));
        assert!(!is_uuid("debian-12") && !is_uuid("70a599e0_31e7-49b7-b260-868f441e862b"));
    }
}
