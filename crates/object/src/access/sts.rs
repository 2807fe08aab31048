//! The token service: temporary credentials for users of ours. On the same port, `POST /` with a form.

use std::fmt::Write as _;

use async_trait::async_trait;
use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, Uri};
use s3s::route::S3Route;
use s3s::{Body, HttpResponse, S3Error, S3Request, S3Response, S3Result};

use super::auth::{Identified, identify, token_of};
use super::policy::{For, Policy, arn};
use super::request::pairs;
use super::session::{self, Level, Session};
use crate::service::Service;

/// The most bytes of a form.
const FORM_MAX: usize = 8 * 1024;
/// The most bytes of the policy of a session.
const POLICY_MAX: usize = 2 * 1024;
const SECONDS_MIN: i64 = 15 * 60;
const SECONDS_MAX: i64 = 12 * 60 * 60;
/// Characters of a strange parameter that are told back.
const NAME_SHOWN: usize = 64;
const ROLE_SECONDS: i64 = 60 * 60;
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";

/// Answers the token service's calls.
pub struct Sts {
    service: Service,
}

impl Sts {
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    /// Whether a request is for the token service.
    pub fn asked(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let form = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let form = form.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded"));
        method == Method::POST && uri.path() == "/" && form
    }

    /// Signatures are refused before the service is asked, in the form of S3: its clients read another.
    pub async fn in_its_form(response: HttpResponse) -> HttpResponse {
        let (mut head, mut body) = response.into_parts();
        let Ok(bytes) = body.store_all_limited(FORM_MAX).await else {
            return HttpResponse::from_parts(head, Body::empty());
        };
        let text = String::from_utf8_lossy(&bytes);
        let within = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
        };
        if head.status.is_success() || text.contains("<ErrorResponse") {
            return HttpResponse::from_parts(head, Body::from(bytes));
        }
        head.headers.remove(http::header::CONTENT_LENGTH);
        // What is taken over is escaped already.
        let code = within("Code").unwrap_or("InternalFailure");
        let text = failure(code, within("Message").unwrap_or("The request was refused"));
        HttpResponse::from_parts(head, Body::from(text))
    }

    async fn answer(&self, mut req: S3Request<Body>) -> Result<String, Refusal> {
        let credentials = req.credentials.as_ref().ok_or_else(|| denied("Signature is required"))?;
        let access_key = credentials.access_key.clone();
        let token = token_of(&req.uri, &req.headers);
        let caller = identify(&*self.service.identity, &access_key, token.as_deref()).await;
        let caller = caller.map_err(|fault| Refusal::from(S3Error::from(fault)))?;
        let body = req.input.store_all_limited(FORM_MAX).await;
        let body = body.map_err(|_| validation("The form cannot be read or is too large"))?;
        let text = std::str::from_utf8(&body).map_err(|_| validation("The form is not text"))?;
        let form = Form(pairs(text).collect());
        match form.get("Action") {
            Some("GetCallerIdentity") => form.only(&[]).map(|()| identity(&caller)),
            Some("GetSessionToken") => self.session_token(&form, &caller, access_key),
            Some("AssumeRole") => self.assume_role(&form, &caller, access_key),
            Some(action) => Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "InvalidAction",
                format!("Could not find operation {action} for version 2011-06-15"),
            )),
            None => Err(Refusal::new(StatusCode::BAD_REQUEST, "MissingAction", "The form names no Action")),
        }
    }

    fn session_token(&self, form: &Form, caller: &Identified, parent: String) -> Result<String, Refusal> {
        refuse_temporary(caller, "GetSessionToken")?;
        form.only(&["DurationSeconds"])?;
        let session = Session {
            parent,
            rights: caller.principal.rights.into(),
            role: None,
            expires: form.expires(SECONDS_MAX)?,
            policy: None,
            account: None,
        };
        Ok(answer("GetSessionToken", &self.credentials(&session)))
    }

    fn assume_role(&self, form: &Form, caller: &Identified, parent: String) -> Result<String, Refusal> {
        refuse_temporary(caller, "AssumeRole")?;
        form.only(&["RoleArn", "RoleSessionName", "DurationSeconds", "Policy"])?;
        let principal = &caller.principal;
        let name = form.get("RoleSessionName").ok_or_else(|| validation("RoleSessionName is missing"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
        if !(2..=64).contains(&name.len()) || !name.chars().all(plain) {
            return Err(validation("RoleSessionName has 2 to 64 letters, digits or _+=,.@-"));
        }
        let role_arn = form.get("RoleArn").ok_or_else(|| validation("RoleArn is missing"))?;
        let role = role_arn.strip_prefix("arn:aws:iam::").and_then(|rest| rest.split_once(":role/"));
        let (account, role) =
            role.ok_or_else(|| validation("RoleArn has the form arn:aws:iam::ACCOUNT:role/ROLE"))?;
        let level = Level::parse(role).filter(|level| level.rights() <= principal.rights);
        let level = level.filter(|_| *account == *principal.account.id);
        let level = level.ok_or_else(|| {
            let user = arn(principal);
            denied(format!(
                "User: {user} is not authorized to perform: sts:AssumeRole on resource: {role_arn}"
            ))
        })?;
        if let Some(policy) = form.get("Policy") {
            if policy.len() > POLICY_MAX {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    "PackedPolicyTooLarge",
                    "The policy is too large",
                ));
            }
            Policy::parse(policy, For::Session).map_err(|fault| {
                Refusal::new(StatusCode::BAD_REQUEST, "MalformedPolicyDocument", fault.to_string())
            })?;
        }
        let session = Session {
            parent,
            rights: level,
            role: Some(format!("{role}/{name}")),
            expires: form.expires(ROLE_SECONDS)?,
            policy: form.get("Policy").map(str::to_owned),
            account: None,
        };
        let mut result = self.credentials(&session);
        let _ = write!(
            result,
            "<AssumedRoleUser><AssumedRoleId>{0}:{1}</AssumedRoleId><Arn>arn:aws:sts::{2}:assumed-role/{0}/{1}</Arn></AssumedRoleUser>",
            escape(role),
            escape(name),
            escape(account),
        );
        Ok(answer("AssumeRole", &result))
    }

    fn credentials(&self, session: &Session) -> String {
        let issued = session::issue(&self.service.identity.root_key(), session);
        let expires = jiff::Timestamp::from_second(session.expires).unwrap_or_default();
        format!(
            "<Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{expires}</Expiration></Credentials>",
            issued.id, *issued.secret, issued.token,
        )
    }
}

#[async_trait]
impl S3Route for Sts {
    fn is_match(&self, method: &Method, uri: &Uri, headers: &HeaderMap, _: &mut Extensions) -> bool {
        Self::asked(method, uri, headers)
    }

    /// The answer says in its own form who may not ask.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, req: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let (status, text) = match self.answer(req).await {
            Ok(text) => (StatusCode::OK, text),
            Err(refusal) => (refusal.status, refusal.text()),
        };
        let mut response = S3Response::new(Body::from(text));
        response.status = Some(status);
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        response.headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

struct Form(Vec<(String, String)>);

impl Form {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Refuses what would not be heeded: most of it takes rights away, or is a proof of who asks.
    fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let strange = |name: &str| !known.contains(&name) && name != "Action" && name != "Version";
        match self.0.iter().find(|(name, _)| strange(name)) {
            Some((name, _)) => {
                let name: String = name.chars().take(NAME_SHOWN).collect();
                Err(validation(format!("The parameter {name} is not offered here")))
            }
            None => Ok(()),
        }
    }

    /// When a session that begins now ends.
    fn expires(&self, default: i64) -> Result<i64, Refusal> {
        let seconds = match self.get("DurationSeconds") {
            Some(text) => text.parse().ok().filter(|seconds| (SECONDS_MIN..=SECONDS_MAX).contains(seconds)),
            None => Some(default),
        };
        let seconds = seconds.ok_or_else(|| validation("DurationSeconds is from 900 to 43200"))?;
        Ok(jiff::Timestamp::now().as_second() + seconds)
    }
}

fn identity(caller: &Identified) -> String {
    let principal = &caller.principal;
    let result = format!(
        "<Arn>{}</Arn><UserId>{}</UserId><Account>{}</Account>",
        escape(&arn(principal)),
        escape(&principal.user),
        escape(&principal.account.id),
    );
    answer("GetCallerIdentity", &result)
}

fn answer(action: &str, result: &str) -> String {
    format!(
        "<{action}Response xmlns=\"{NAMESPACE}\"><{action}Result>{result}</{action}Result><ResponseMetadata><RequestId>{}</RequestId></ResponseMetadata></{action}Response>",
        request_id(),
    )
}

/// A session makes no sessions, so that none outlives the other or drops what it was narrowed to.
fn refuse_temporary(caller: &Identified, action: &str) -> Result<(), Refusal> {
    if caller.temporary {
        return Err(denied(format!("Cannot call {action} with session credentials")));
    }
    Ok(())
}

/// Why a call is refused, in the form of the token service.
struct Refusal {
    status: StatusCode,
    code: String,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, code: code.into(), message: message.into() }
    }

    fn text(&self) -> String {
        failure(&escape(&self.code), &escape(&self.message))
    }
}

fn failure(code: &str, message: &str) -> String {
    format!(
        "<ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>{}</RequestId></ErrorResponse>",
        request_id(),
    )
}

impl From<S3Error> for Refusal {
    fn from(error: S3Error) -> Self {
        let status = error.status_code().unwrap_or(StatusCode::BAD_REQUEST);
        Self::new(status, error.code().as_str(), error.message().unwrap_or_default())
    }
}

fn denied(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "AccessDenied", message)
}

fn validation(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "ValidationError", message)
}

fn request_id() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
