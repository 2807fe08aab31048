//! `banyan bucket policy|lifecycle|website|cors|encryption|logging|public-access get|set|delete`

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use model::ErrorKind;
use serde_json::Value;

use super::document;
use crate::cli::object::remote::s3;
use crate::failure::{Failure, Result};
use crate::output::{self, Format, note};
use crate::session::Session;

/// The longest document; the store takes less.
const DOCUMENT_MAX: u64 = 1 << 20;

/// The field that holds a policy as text.
const WRAPPED_POLICY: &str = "Policy";
/// A header that is printed beside the rules of a lifecycle.
const HEADER: &str = "TransitionDefaultMinimumObjectSize";

/// What is done with a setting.
#[derive(Subcommand)]
pub enum Verb {
    /// Print it, as 'set' takes it.
    #[command(visible_alias = "show")]
    Get {
        /// Name of the bucket.
        name: String,
    },
    /// Replace it by a document.
    Set {
        /// Name of the bucket.
        name: String,
        /// File with the document, in JSON, YAML or S3's XML; '-' is standard input.
        file: PathBuf,
    },
    /// Take it away.
    #[command(visible_alias = "rm")]
    Delete {
        /// Name of the bucket.
        name: String,
    },
}

/// A setting that S3 keeps as a document.
pub struct Setting {
    /// For people.
    noun: &'static str,
    /// The sub-resource.
    query: &'static str,
    /// The root element; without one the document is JSON on the wire, too.
    root: Option<&'static str>,
    /// S3 has no DELETE for it; an empty document takes it away.
    by_empty: bool,
}

impl Setting {
    const fn new(noun: &'static str, query: &'static str, root: &'static str) -> Self {
        Self { noun, query, root: Some(root), by_empty: false }
    }
}

pub const POLICY: Setting = Setting { noun: "policy", query: "policy", root: None, by_empty: false };
pub const LIFECYCLE: Setting = Setting::new("lifecycle", "lifecycle", "LifecycleConfiguration");
pub const WEBSITE: Setting = Setting::new("website", "website", "WebsiteConfiguration");
pub const CORS: Setting = Setting::new("CORS", "cors", "CORSConfiguration");
pub const ENCRYPTION: Setting = Setting::new("encryption", "encryption", "ServerSideEncryptionConfiguration");
pub const PUBLIC_ACCESS: Setting =
    Setting::new("public access block", "publicAccessBlock", "PublicAccessBlockConfiguration");
pub const LOGGING: Setting =
    Setting { noun: "logging", query: "logging", root: Some("BucketLoggingStatus"), by_empty: true };

pub async fn run(session: &Session, setting: Setting, verb: Verb) -> Result<()> {
    let noun = setting.noun;
    match verb {
        Verb::Get { name } => {
            let bytes = s3(session).await?.setting_get(&name, setting.query).await?;
            show(session.format, &name, &setting, &String::from_utf8_lossy(&bytes))
        }
        Verb::Set { name, file } => {
            let text = wire(&setting, &read(&file)?, &file)?;
            let done = s3(session).await?.setting_set(&name, setting.query, text).await;
            done.map_err(|error| {
                let spoiled = error.kind == ErrorKind::Invalid;
                let failure = Failure::from(error);
                if spoiled { failure.at(file.display().to_string()) } else { failure }
            })?;
            note(format!("bucket {name}: {noun} set"));
            Ok(())
        }
        Verb::Delete { name } => {
            let s3 = s3(session).await?;
            match setting.root.filter(|_| setting.by_empty) {
                Some(root) => s3.setting_set(&name, setting.query, format!("<{root}></{root}>")).await?,
                None => s3.setting_delete(&name, setting.query).await?,
            }
            note(format!("bucket {name}: {noun} deleted"));
            Ok(())
        }
    }
}

fn read(file: &Path) -> Result<String> {
    let told = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", file.display()));
    let mut text = String::new();
    let source: Box<dyn Read> = match file == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(std::fs::File::open(file).map_err(told)?),
    };
    source.take(DOCUMENT_MAX + 1).read_to_string(&mut text).map_err(told)?;
    if text.len() as u64 > DOCUMENT_MAX {
        return Err(Failure::new(format!("{} is longer than {DOCUMENT_MAX} bytes", file.display())));
    }
    Ok(text)
}

/// A document as the store takes it.
fn wire(setting: &Setting, text: &str, file: &Path) -> Result<String> {
    let flawed = |why: String| Failure::new(why).at(file.display().to_string());
    if setting.root.is_some() && text.trim_start().starts_with('<') {
        return Ok(text.to_owned());
    }
    let document: Value = match serde_json::from_str(text) {
        // The words of a policy stay as they are.
        Ok(Value::Object(fields)) if setting.root.is_none() && !fields.contains_key(WRAPPED_POLICY) => {
            return Ok(text.to_owned());
        }
        Ok(document) => document,
        Err(_) => yaml_serde::from_str(text)
            .map_err(|error| flawed(format!("this is neither JSON nor YAML: {error}")))?,
    };
    let document = unwrapped(setting, document);
    if let (None, Value::String(policy)) = (setting.root, &document) {
        return Ok(policy.clone());
    }
    if !document.is_object() {
        return Err(flawed(format!("a {} is a document with named fields", setting.noun))
            .hint("'banyan bucket --help' and docs/buckets.md have examples"));
    }
    match setting.root {
        Some(root) => document::to_xml(root, &document).map_err(flawed),
        None => Ok(document.to_string()),
    }
}

/// The document in what the AWS tools print: they put a few of them into a field of its own, and a header beside rules.
fn unwrapped(setting: &Setting, document: Value) -> Value {
    let Value::Object(mut fields) = document else { return document };
    fields.remove(HEADER);
    let wrapper = setting.root.unwrap_or(WRAPPED_POLICY);
    match fields.len() {
        1 => fields.remove(wrapper).unwrap_or(Value::Object(fields)),
        _ => Value::Object(fields),
    }
}

fn show(format: Format, name: &str, setting: &Setting, text: &str) -> Result<()> {
    let document = match setting.root {
        Some(_) => document::from_xml(text),
        None => serde_json::from_str(text).map_err(|error| error.to_string()),
    };
    let document =
        document.map_err(|why| Failure::new(format!("the store's answer cannot be read: {why}")))?;
    let yaml = format == Format::Yaml || setting.root.is_some() && format != Format::Json;
    match (format, yaml) {
        (Format::Name, _) => output::data(&format!("{name}\n")),
        (_, true) => output::data(&output::yaml(&document)),
        (_, false) => output::data(&format!("{document:#}\n")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_the_aws_tools_print_is_taken() {
        let wire = |setting: &Setting, text: &str| wire(setting, text, Path::new("f")).unwrap();
        let block = "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls></PublicAccessBlockConfiguration>";
        for text in [
            r#"{"PublicAccessBlockConfiguration": {"BlockPublicAcls": true}}"#,
            r#"{"BlockPublicAcls": true}"#,
            "PublicAccessBlockConfiguration:\n  BlockPublicAcls: true\n",
        ] {
            assert_eq!(wire(&PUBLIC_ACCESS, text), block, "{text}");
        }
        let sealed = wire(&ENCRYPTION, r#"{"ServerSideEncryptionConfiguration": {"Rules": []}}"#);
        assert_eq!(sealed, "<ServerSideEncryptionConfiguration></ServerSideEncryptionConfiguration>");
        let life = wire(&LIFECYCLE, r#"{"TransitionDefaultMinimumObjectSize": "x", "Rules": [{"ID": "a"}]}"#);
        assert_eq!(life, "<LifecycleConfiguration><Rule><ID>a</ID></Rule></LifecycleConfiguration>");
        assert_eq!(wire(&POLICY, r#"{"Policy": "{\"Version\": 1}"}"#), r#"{"Version": 1}"#);
        assert_eq!(wire(&POLICY, r#"{"Version":  1}"#), r#"{"Version":  1}"#);
    }

    #[test]
    fn fields_that_nobody_knows_reach_the_store_by_their_name() {
        let text =
            wire(&PUBLIC_ACCESS, r#"{"PublicAccessBlock": {"BlockPublicAcls": true}}"#, Path::new("f"));
        assert!(text.unwrap().contains("<PublicAccessBlock>"), "the store refuses it");
    }
}
