//! Answers that are no success, as errors with the words of the store.

use http::StatusCode;
use model::{Error, ErrorKind};
use reqwest::Response;

/// What a request was about, for messages.
pub fn place(bucket: &str, key: &str) -> String {
    match (bucket, key) {
        ("", _) => String::new(),
        (bucket, "") => format!("{bucket}: "),
        (bucket, key) => format!("{bucket}/{key}: "),
    }
}

/// The words of a refusal about this place.
pub async fn refusal(response: Response, place: &str) -> Error {
    let status = response.status();
    let bytes = super::body(response).await.unwrap_or_default();
    let kind = match status {
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => ErrorKind::Forbidden,
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => ErrorKind::Conflict,
        status if status.is_client_error() => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    let words = match error_of(&bytes) {
        Some((code, message)) if !message.is_empty() => format!("{message} ({code})"),
        Some((code, _)) => format!("the store refused: {code}"),
        // Answers to HEAD have no words.
        None if status == StatusCode::FORBIDDEN => "Access Denied".to_owned(),
        None => format!("the store answered {status}"),
    };
    Error::new(kind, format!("{place}{words}"))
}

/// Code and message of an error in XML.
pub fn error_of(bytes: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(plain(rest.split_once(&format!("</{name}>"))?.0))
    };
    text.contains("<Error>")
        .then(|| (field("Code").unwrap_or_default(), field("Message").unwrap_or_default()))
}

/// Text as it was before XML escaped it.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        out.push_str(before);
        match after.split_once(';').and_then(|(name, behind)| Some((character(name)?, behind))) {
            Some((character, behind)) => {
                out.push(character);
                rest = behind;
            }
            None => {
                out.push('&');
                rest = after;
            }
        }
    }
    out + rest
}

/// What an entity stands for; what would steer a terminal stays as it is.
fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix('x') {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?).filter(|character| !character.is_control())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_as_they_were_meant() {
        let told = |message: &str| {
            error_of(format!("<Error><Code>C</Code><Message>{message}</Message></Error>").as_bytes())
        };
        for (escaped, expected) in [
            ("&apos;Days&apos; &lt; 1 &amp;&quot;&#228;&#xe4;&gt;", "'Days' < 1 &\"ää>"),
            ("&amp;lt;", "&lt;"),
            ("a & b; &nbsp; &#27; &", "a & b; &nbsp; &#27; &"),
        ] {
            assert_eq!(told(escaped), Some(("C".into(), expected.into())));
        }
        assert_eq!(error_of(b"<Other/>"), None);
    }
}
