//! What the library reads or writes otherwise than S3 does.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode};

use crate::fault::{Fault, Result};

/// The most bytes of an answer that is changed.
const CHANGED_MAX: usize = 1 << 20;
/// The most bytes of an error that is completed.
const ERROR_MAX: u64 = 64 << 10;
/// The most bytes of a body that is measured; a larger one must say its length. It is held before anyone knows who sends it.
const MEASURED_MAX: usize = 64 << 10;

/// Put into the extensions of an answer whose ETag goes without quotes.
#[derive(Debug, Clone, Copy)]
pub struct PlainETag;

/// User metadata that is not UTF-8 is Latin-1; the library, and the signatures of clients, know
/// UTF-8 alone.
pub fn read_latin(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| {
            name.as_str().starts_with("x-amz-meta-") && std::str::from_utf8(value.as_bytes()).is_err()
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in names {
        let Some(value) = headers.get_mut(&name) else { continue };
        let text: String = value.as_bytes().iter().map(|byte| char::from(*byte)).collect();
        if let Ok(read) = HeaderValue::from_bytes(text.as_bytes()) {
            *value = read;
        }
    }
}

/// How long the content is of a body that the client has put into chunks of its own. Over TLS the AWS tools say nothing
/// else of its length.
pub fn length_within(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let chunks = text("x-amz-content-sha256").is_some_and(|kind| kind.starts_with("STREAMING-"));
    text("x-amz-decoded-content-length").filter(|_| chunks)?.trim().parse().ok()
}

/// A small body that comes without its length is measured; the library takes none that is not. One that is too long
/// or breaks off is refused: it must never be taken for an empty one.
pub async fn measure(req: Request<Body>) -> Result<Request<Body>> {
    let headers = req.headers();
    let chunked = headers.get(TRANSFER_ENCODING).is_some_and(|value| value == "chunked");
    if !chunked || headers.contains_key(CONTENT_LENGTH) || length_within(headers).is_some() {
        return Ok(req);
    }
    let (mut head, body) = req.into_parts();
    let bytes = Limited::new(body, MEASURED_MAX).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = "You must provide the Content-Length HTTP header.";
            Fault::new(S3ErrorCode::MissingContentLength, message)
        } else {
            Fault::new(S3ErrorCode::IncompleteBody, "The body of the request cannot be read.")
        }
    })?;
    let bytes = bytes.to_bytes();
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Ok(Request::from_parts(head, Body::from(bytes)))
}

/// The library calls a document that it cannot receive, because it is too long, broke off or its chunks are wrong, a
/// failure of its own, and says nothing more. Failures of the store have a message.
pub async fn blame_client(response: HttpResponse, too_long: bool) -> Result<HttpResponse, HttpError> {
    if response.status() != StatusCode::INTERNAL_SERVER_ERROR {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let bytes = Limited::new(body, CHANGED_MAX).collect().await.map_err(HttpError::new)?.to_bytes();
    if bytes.windows(9).any(|part| part == b"<Message>") {
        return Ok(HttpResponse::from_parts(head, Body::from(bytes)));
    }
    let (code, message) = match too_long {
        true => (S3ErrorCode::MaxMessageLengthExceeded, "Your request was too big."),
        false => (S3ErrorCode::IncompleteBody, "The body of the request cannot be read."),
    };
    let error = S3Error::with_message(code, message);
    error.to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// Takes the quotes off the ETag of an answer that is marked so.
pub async fn plain_etag(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    if response.extensions().get::<PlainETag>().is_none() {
        return Ok(response);
    }
    let (mut head, body) = response.into_parts();
    let bytes = Limited::new(body, CHANGED_MAX).collect().await.map_err(HttpError::new)?.to_bytes();
    let bytes = without_quotes(bytes);
    head.headers.remove(http::header::CONTENT_LENGTH);
    Ok(HttpResponse::from_parts(head, Body::from(bytes)))
}

/// What an error's XML says besides its code and its message.
#[derive(Debug, Default)]
pub struct Details<'a> {
    pub resource: &'a str,
    pub bucket: Option<&'a str>,
    pub key: Option<&'a str>,
    pub region: &'a str,
    pub request_id: &'a str,
    pub host_id: &'a str,
}

/// Completes the XML of an error, and says its code. The library knows neither whom it answers nor where it runs.
pub async fn complete(
    response: HttpResponse,
    details: &Details<'_>,
) -> Result<(HttpResponse, Option<String>), HttpError> {
    let length = response.body().size_hint().exact();
    let short = length.is_some_and(|length| length > 0 && length <= ERROR_MAX);
    if !short || response.status().is_success() {
        return Ok((response, None));
    }
    let (mut head, body) = response.into_parts();
    let bytes = body.collect().await.map_err(HttpError::new)?.to_bytes();
    let text = std::str::from_utf8(&bytes).ok();
    let code = text.and_then(code).map(str::to_owned);
    let bytes = match text.and_then(|text| text.strip_suffix("</Error>")) {
        Some(text) => {
            head.headers.remove(CONTENT_LENGTH);
            let code = code.as_deref().unwrap_or_default();
            let message = message(code).filter(|_| !text.contains("<Message>"));
            let message = message.map(|message| format!("<Message>{message}</Message>")).unwrap_or_default();
            Bytes::from(format!("{text}{message}{}</Error>", details.xml(code)))
        }
        None => bytes,
    };
    Ok((HttpResponse::from_parts(head, Body::from(bytes)), code))
}

/// What S3 says with a code that the library gives without a word.
fn message(code: &str) -> Option<&'static str> {
    Some(match code {
        "AccessDenied" => "Access Denied",
        "EntityTooLarge" => "Your proposed upload exceeds the maximum allowed object size.",
        "IncompleteBody" => {
            "You did not provide the number of bytes specified by the Content-Length HTTP header"
        }
        "InternalError" => "We encountered an internal error. Please try again.",
        "InvalidArgument" => "Invalid Argument",
        "InvalidBucketName" => "The specified bucket is not valid.",
        "InvalidRequest" => "Invalid Request",
        "InvalidURI" => "Couldn't parse the specified URI.",
        "KeyTooLongError" => "Your key is too long",
        "MalformedXML" => {
            "The XML you provided was not well-formed or did not validate against our published schema"
        }
        "MethodNotAllowed" => "The specified method is not allowed against this resource.",
        "MissingContentLength" => "You must provide the Content-Length HTTP header.",
        "NotImplemented" => "A header or query you provided requested a function that is not implemented.",
        "SignatureDoesNotMatch" => {
            "The request signature we calculated does not match the signature you provided. Check your key and signing method."
        }
        _ => return None,
    })
}

fn code(xml: &str) -> Option<&str> {
    xml.split_once("<Code>")?.1.split_once("</Code>").map(|(code, _)| code)
}

impl Details<'_> {
    /// The elements that go with a code.
    fn xml(&self, code: &str) -> String {
        let (name, value) = match code {
            "NoSuchBucket" | "BucketAlreadyExists" | "BucketAlreadyOwnedByYou" | "BucketNotEmpty" => {
                ("BucketName", self.bucket)
            }
            "NoSuchKey" => ("Key", self.key),
            "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError" => {
                ("Region", Some(self.region))
            }
            _ => ("", None),
        };
        let elements = [
            (name, value),
            ("Resource", Some(self.resource)),
            ("RequestId", Some(self.request_id)),
            ("HostId", Some(self.host_id)),
        ];
        let mut xml = String::new();
        for (name, value) in elements {
            // What XML cannot hold is left out.
            if let Some(value) = value.filter(|value| !value.chars().any(char::is_control)) {
                let value = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                xml.push_str(&format!("<{name}>{value}</{name}>"));
            }
        }
        xml
    }
}

fn without_quotes(xml: Bytes) -> Bytes {
    let Ok(text) = std::str::from_utf8(&xml) else { return xml };
    let changed = text.replacen("<ETag>\"", "<ETag>", 1).replacen("\"</ETag>", "</ETag>", 1);
    Bytes::from(changed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn latin_metadata_is_read() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.insert("x-amz-meta-b", HeaderValue::from_bytes("café".as_bytes()).unwrap());
        read_latin(&mut headers);
        assert_eq!(headers["x-amz-meta-a"].as_bytes(), "café".as_bytes());
        assert_eq!(headers["x-amz-meta-b"].as_bytes(), "café".as_bytes());
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_never_taken_for_an_empty_one() {
        type Frames = Vec<Result<Bytes, std::io::Error>>;
        let measured = async |frames: Frames| {
            let frames =
                futures::stream::iter(frames.into_iter().map(|frame| frame.map(hyper::body::Frame::data)));
            let body = Body::http_body(http_body_util::StreamBody::new(frames));
            let req = Request::builder().header(TRANSFER_ENCODING, "chunked").body(body).unwrap();
            match measure(req).await {
                Ok(req) => req.headers()[CONTENT_LENGTH].to_str().unwrap().to_owned(),
                Err(Fault::S3(code, _)) => code.as_str().to_owned(),
                Err(other) => panic!("{other}"),
            }
        };
        let piece = || Ok(Bytes::from(vec![1; MEASURED_MAX / 2]));
        assert_eq!(measured(vec![]).await, "0");
        assert_eq!(measured(vec![piece(), piece()]).await, MEASURED_MAX.to_string());
        assert_eq!(measured(vec![piece(), piece(), piece()]).await, "MissingContentLength");
        assert_eq!(measured(vec![piece(), Err(std::io::Error::other("cut"))]).await, "IncompleteBody");
    }

    #[tokio::test]
    async fn a_body_that_cannot_be_read_is_the_clients_fault() {
        for (message, status) in [(None, 400), (Some("We failed"), 500)] {
            let mut error = S3Error::new(S3ErrorCode::InternalError);
            message.into_iter().for_each(|message| error.set_message(message));
            let response = blame_client(error.to_http_response().unwrap(), false).await.unwrap();
            assert_eq!(response.status().as_u16(), status);
        }
    }

    #[tokio::test]
    async fn errors_say_whom_they_are_for() {
        let details = Details {
            resource: "/b/a&b",
            bucket: Some("b"),
            key: Some("a&b"),
            region: "r",
            request_id: "1",
            host_id: "h",
        };
        let completed = async |code: &str| {
            let mut response = HttpResponse::new(Body::from(format!("<Error><Code>{code}</Code></Error>")));
            *response.status_mut() = http::StatusCode::NOT_FOUND;
            let (response, _) = complete(response, &details).await.unwrap();
            String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
        };
        let common = "<Resource>/b/a&amp;b</Resource><RequestId>1</RequestId><HostId>h</HostId></Error>";
        let silent = completed("InvalidURI").await;
        assert!(silent.contains("</Code><Message>Couldn't parse the specified URI.</Message>"), "{silent}");
        let key = completed("NoSuchKey").await;
        assert_eq!(key, format!("<Error><Code>NoSuchKey</Code><Key>a&amp;b</Key>{common}"));
        let region = completed("AuthorizationHeaderMalformed").await;
        assert!(region.contains("<Region>r</Region>"), "{region}");
        let other = completed("SlowDown").await;
        assert_eq!(other, format!("<Error><Code>SlowDown</Code>{common}"));
    }

    #[test]
    fn an_etag_loses_its_quotes() {
        let xml = Bytes::from_static(b"<R><ETag>\"abc\"</ETag><A>\"</A></R>");
        assert_eq!(without_quotes(xml), "<R><ETag>abc</ETag><A>\"</A></R>");
    }
}
