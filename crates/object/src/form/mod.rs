//! Uploads by HTML forms: `POST` to a bucket with `multipart/form-data`.
//!
//! ```text
//!   multipart   fields, then a file that streams
//!   sign        who signed the policy
//!   policy      what the fields may be
//! ```
//!
//! The fields become the headers of a put, so that everything a header can ask
//! for a field can, too. The file is never held in memory.

mod multipart;
mod policy;
mod sign;

use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use s3s::access::S3Access;
use s3s::dto::{Metadata, ObjectCannedACL, PostObjectInput, PostResponse, ServerSideEncryption, Tagging};
use s3s::xml::{self, Deserialize, Serialize};
use s3s::{Body, HttpResponse, S3, S3Error, S3ErrorCode, S3Request, S3Result};

use crate::access::Gate;
use crate::escape::escape;
use crate::fault::{Fault, Result};
use crate::put::SIZE_MAX;
use crate::service::Service;
use crate::tag;
use multipart::Form;
use policy::Policy;

/// Fields that are headers of the same name.
const HEADERS: [&str; 6] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
];

/// Whether a request is an upload by a form. `key` tells whether its path names an object.
pub fn is_form<B>(req: &Request<B>, key: bool) -> bool {
    req.method() == Method::POST && !key && boundary(req.headers()).is_some()
}

fn boundary(headers: &HeaderMap) -> Option<String> {
    multipart::boundary(headers.get(CONTENT_TYPE)?.to_str().ok()?)
}

/// Takes the upload, or says why not.
pub async fn post(service: &Service, gate: &Gate, bucket: &str, req: Request<Body>) -> HttpResponse {
    upload(service, gate, bucket, req).await.unwrap_or_else(|error| {
        error.to_http_response().unwrap_or_else(|_| {
            let mut response = HttpResponse::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    })
}

async fn upload(service: &Service, gate: &Gate, bucket: &str, req: Request<Body>) -> S3Result<HttpResponse> {
    let boundary = boundary(req.headers())
        .ok_or_else(|| Fault::new(S3ErrorCode::MalformedPOSTRequest, "The POST request has no boundary."))?;
    let (head, body) = req.into_parts();
    let mut form = Form::read(body, &boundary).await?;
    // A policy would look at one of them and the upload use another.
    let mut names: Vec<&str> = form.fields.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(argument(format!("POST requires exactly one field '{}'.", model::shown(twice[0]))).into());
    }
    let key = form.field("key").ok_or_else(|| {
        argument("Bucket POST must contain a field named 'key'. If it is specified, please check the order of the fields.")
    })?;
    let key = key.replace("${filename}", &form.filename);
    set(&mut form.fields, "key", &key);

    let access_key = sign::check(&*service.identity, &form.fields).await?;
    let policy = match form.field("policy") {
        Some(policy) => Policy::parse(policy, jiff::Timestamp::now().as_millisecond())?,
        None => Policy::none(),
    };
    if form.field("policy").is_some() {
        let mut fields = form.fields.clone();
        set(&mut fields, "bucket", bucket);
        policy.check(&fields)?;
    }
    let token = form.field("x-amz-security-token");
    let caller = gate.caller(access_key.as_deref(), token, &head.extensions).await?;
    let after = After::of(&form.fields, bucket, &key);
    let mut input = input(&form.fields, bucket, &key)?;
    let headers = headers(&form.fields)?;
    let file = form.file(policy.sizes.0, policy.sizes.1.min(SIZE_MAX));
    input.body = Some(crate::read::shared(Box::pin(file)));
    let mut extensions = Extensions::new();
    extensions.insert(caller);
    let mut req = S3Request {
        input,
        method: head.method,
        uri: head.uri,
        headers,
        extensions,
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    };
    gate.post_object(&mut req).await?;
    let etag = service.post_object(req).await?.output.e_tag;
    after.answer(etag.as_ref().map(s3s::dto::ETag::value).unwrap_or_default())
}

fn set(fields: &mut Vec<(String, String)>, name: &str, value: &str) {
    fields.retain(|(field, _)| field != name);
    fields.push((name.to_owned(), value.to_owned()));
}

/// What a put would say by its headers.
fn headers(fields: &[(String, String)]) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let (name, value) = match name.as_str() {
            "acl" => ("x-amz-acl", value.clone()),
            "tagging" => ("x-amz-tagging", tags(value)?),
            name if name.starts_with("x-amz-meta-") => continue,
            name if HEADERS.contains(&name) || name.starts_with("x-amz-") => (name, value.clone()),
            _ => continue,
        };
        let bad = |_| argument(format!("The field {name} cannot be kept."));
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(bad)?;
        let Ok(name) = HeaderName::try_from(name) else { continue };
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The field carries XML, the header a query.
fn tags(text: &str) -> Result<String> {
    let malformed = |_| Fault::new(S3ErrorCode::MalformedXML, "The tagging of the form is not well formed.");
    let mut reader = xml::Deserializer::new(text.as_bytes());
    let tagging = Tagging::deserialize(&mut reader).map_err(malformed)?;
    let tags = tag::from_dto(tagging.tag_set, tag::OBJECT_TAGS_MAX)?;
    let pairs = tags.iter().map(|(key, value)| format!("{}={}", escape(key, false), escape(value, false)));
    Ok(pairs.collect::<Vec<_>>().join("&"))
}

fn input(fields: &[(String, String)], bucket: &str, key: &str) -> Result<PostObjectInput> {
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
    let metadata: Metadata = fields
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("x-amz-meta-")?.to_owned(), value.clone())))
        .collect();
    let mut builder = PostObjectInput::builder();
    builder.set_bucket(bucket.to_owned());
    builder.set_key(key.to_owned());
    builder.set_acl(field("acl").map(ObjectCannedACL::from));
    builder.set_metadata(Some(metadata).filter(|metadata| !metadata.is_empty()));
    builder.set_tagging(field("tagging").as_deref().map(tags).transpose()?);
    let sse = "x-amz-server-side-encryption";
    builder.set_server_side_encryption(field(sse).map(ServerSideEncryption::from));
    builder.set_ssekms_key_id(field(&format!("{sse}-aws-kms-key-id")));
    builder.set_sse_customer_algorithm(field(&format!("{sse}-customer-algorithm")));
    builder.set_sse_customer_key(field(&format!("{sse}-customer-key")));
    builder.set_sse_customer_key_md5(field(&format!("{sse}-customer-key-md5")));
    builder.build().map_err(|_| argument("The form names no object."))
}

/// What the client wants to see once the object is there.
struct After {
    redirect: Option<String>,
    status: StatusCode,
    bucket: String,
    key: String,
}

impl After {
    fn of(fields: &[(String, String)], bucket: &str, key: &str) -> Self {
        let field =
            |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let redirect = field("success_action_redirect").or(field("redirect"));
        // Anything that no client could go to is passed over.
        let redirect = redirect.filter(|url| {
            let scheme = url.parse::<Uri>().ok().and_then(|url| url.scheme_str().map(str::to_owned));
            matches!(scheme.as_deref(), Some("http" | "https"))
        });
        let status = match field("success_action_status") {
            Some("200") => StatusCode::OK,
            Some("201") => StatusCode::CREATED,
            _ => StatusCode::NO_CONTENT,
        };
        Self { redirect: redirect.map(str::to_owned), status, bucket: bucket.into(), key: key.into() }
    }

    fn answer(&self, etag: &str) -> S3Result<HttpResponse> {
        let quoted = format!("\"{etag}\"");
        let path = format!("/{}/{}", self.bucket, self.key);
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = self.status;
        let location = match &self.redirect {
            Some(url) => {
                *response.status_mut() = StatusCode::SEE_OTHER;
                let join = if url.contains('?') { '&' } else { '?' };
                let (bucket, key, etag) =
                    (escape(&self.bucket, false), escape(&self.key, false), escape(&quoted, false));
                format!("{url}{join}bucket={bucket}&key={key}&etag={etag}")
            }
            None => escape(&path, true),
        };
        if self.redirect.is_none() && self.status == StatusCode::CREATED {
            let answer =
                PostResponse { location: &path, bucket: &self.bucket, key: &self.key, etag: &quoted };
            let mut text = Vec::new();
            let mut writer = xml::Serializer::new(&mut text);
            writer.decl().and_then(|()| answer.serialize(&mut writer)).map_err(S3Error::internal_error)?;
            *response.body_mut() = Body::from(text);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        for (name, value) in [(LOCATION, location), (ETAG, quoted)] {
            let value = HeaderValue::try_from(value).map_err(S3Error::internal_error)?;
            response.headers_mut().insert(name, value);
        }
        Ok(response)
    }
}

fn argument(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(S3ErrorCode::InvalidArgument, message)
}
