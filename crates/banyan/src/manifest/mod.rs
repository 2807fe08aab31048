//! Files that describe resources: YAML with several documents, or JSON.
//!
//! ```yaml
//! kind: Instance            # or Image, Tenant, User
//! metadata: { name: web }   # tenant: NAME too, for operators
//! spec: { image: busybox, command: [httpd, -f] }
//! ```
//!
//! [`load`] reads files into [`Resource`]s; [`diff`] says what changes.

pub mod diff;

use std::io::Read;
use std::path::{Path, PathBuf};

use model::{InstanceSpec, Name, Quota, Role};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, Result};

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most documents of one `apply`.
const RESOURCES_MAX: usize = 10_000;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One document, in the order in which kinds depend on each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    pub name: Name,
    pub tenant: Option<String>,
    pub body: Body,
    /// File and document, for messages.
    pub place: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Tenant(TenantSpec),
    User(UserSpec),
    Image(ImageSpec),
    Instance(Box<InstanceSpec>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSpec {
    pub quota: Quota,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserSpec {
    pub role: Role,
    /// Only used when the user is made.
    pub password: Option<String>,
    /// A file whose first line is the password, so that it need not stand here.
    pub password_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// Archive or layout folder, relative to the file that names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// What to pull from a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default)]
    pub public: bool,
}

impl Body {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Tenant(_) => "Tenant",
            Self::User(_) => "User",
            Self::Image(_) => "Image",
            Self::Instance(_) => "Instance",
        }
    }

    /// What must be there first is applied first.
    const fn rank(&self) -> u8 {
        match self {
            Self::Tenant(_) => 0,
            Self::User(_) => 1,
            Self::Image(_) => 2,
            Self::Instance(_) => 3,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    /// Accepted so that files may say it; there is one version.
    #[serde(default, rename = "apiVersion")]
    api_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: Name,
    #[serde(default)]
    tenant: Option<String>,
}

/// Reads files, folders (their .yaml, .yml and .json, by name) and `-` for standard input.
pub fn load(sources: &[PathBuf]) -> Result<Vec<Resource>> {
    let mut resources = Vec::new();
    for source in sources {
        if source == Path::new("-") {
            let text = read("standard input", std::io::stdin().lock())?;
            resources.extend(parse(&text, "standard input", Path::new("."))?);
            continue;
        }
        for file in files(source)? {
            let label = file.display().to_string();
            let open =
                std::fs::File::open(&file).map_err(|e| Failure::new(format!("cannot read {label}: {e}")))?;
            let folder = file.parent().unwrap_or(Path::new("."));
            resources.extend(parse(&read(&label, open)?, &label, folder)?);
        }
    }
    if resources.len() > RESOURCES_MAX {
        return Err(Failure::new(format!(
            "{} documents are too many; {RESOURCES_MAX} are possible",
            resources.len()
        )));
    }
    reject_twins(&resources)?;
    resources.sort_by_key(|resource| resource.body.rank());
    Ok(resources)
}

fn read(label: &str, from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::new(format!("cannot read {label}: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::new(format!("{label} is larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(text)
}

fn files(source: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", source.display()));
    if !std::fs::metadata(source).map_err(failed)?.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(source).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let fits = path.extension().and_then(|e| e.to_str()).is_some_and(|e| EXTENSIONS.contains(&e));
        if fits && path.is_file() {
            found.push(path);
        }
    }
    if found.is_empty() {
        return Err(Failure::new(format!("there is no .yaml, .yml or .json file in {}", source.display())));
    }
    found.sort();
    Ok(found)
}

/// All documents of one file. `folder` is what relative paths in it start from.
pub fn parse(text: &str, label: &str, folder: &Path) -> Result<Vec<Resource>> {
    let mut resources = Vec::new();
    for (index, value) in documents(text, label)?.into_iter().enumerate() {
        if value.is_null() {
            continue;
        }
        let place = format!("{label}, document {}", index + 1);
        resources.push(resource(value, &place, folder)?);
    }
    if resources.is_empty() {
        return Err(Failure::new(format!("{label} holds no document"))
            .hint("a document has kind, metadata with a name, and spec"));
    }
    Ok(resources)
}

fn documents(text: &str, label: &str) -> Result<Vec<Value>> {
    if text.trim_start().starts_with(['{', '[']) {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Failure::new(format!("this is not JSON: {error}")).at(label))?;
        return Ok(match value {
            Value::Array(values) => values,
            value => vec![value],
        });
    }
    yaml_serde::Deserializer::from_str(text)
        .map(|document| {
            Value::deserialize(document)
                .map_err(|error| Failure::new(format!("this is not YAML: {error}")).at(label))
        })
        .collect()
}

fn resource(value: Value, place: &str, folder: &Path) -> Result<Resource> {
    let wrong = |error: String| Failure::new(error).at(place);
    let document: Document = serde_json::from_value(value).map_err(|error| {
        wrong(error.to_string()).hint("a document has kind, metadata with a name, and spec")
    })?;
    let _ = document.api_version;
    let name = document.metadata.name;
    let spec = if document.spec.is_null() { Value::Object(Default::default()) } else { document.spec };
    let inside = |error: serde_json::Error| {
        Failure::new(format!("the spec of {} '{name}' is wrong: {error}", document.kind)).at(place)
    };
    let body = match document.kind.as_str() {
        "Instance" => {
            let spec: InstanceSpec = serde_json::from_value(spec).map_err(inside)?;
            spec.validate().map_err(|error| {
                let field = error.field.clone().unwrap_or_default();
                Failure::from(error).at(format!("{place}, Instance '{name}', spec.{field}"))
            })?;
            Body::Instance(Box::new(spec))
        }
        "Image" => Body::Image(image(serde_json::from_value(spec).map_err(inside)?, folder).map_err(wrong)?),
        "Tenant" => Body::Tenant(serde_json::from_value(spec).map_err(inside)?),
        "User" => {
            let mut spec: UserSpec = serde_json::from_value(spec).map_err(inside)?;
            spec.password_file = spec.password_file.map(|file| folder.join(file));
            Body::User(spec)
        }
        other => {
            return Err(wrong(format!("'{other}' is not a kind: write Instance, Image, Tenant or User")));
        }
    };
    Ok(Resource { name, tenant: document.metadata.tenant, body, place: place.to_owned() })
}

fn image(mut spec: ImageSpec, folder: &Path) -> Result<ImageSpec, String> {
    if spec.file.is_some() == spec.reference.is_some() {
        return Err("the spec of an Image names either a file or a reference".to_owned());
    }
    spec.file = spec.file.map(|file| folder.join(file));
    Ok(spec)
}

/// The same thing twice would be applied twice, and the last would win by accident.
fn reject_twins(resources: &[Resource]) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for resource in resources {
        let key = (resource.body.kind(), &resource.tenant, &resource.name);
        if let Some(first) = seen.insert(key, &resource.place) {
            return Err(Failure::new(format!(
                "{} '{}' stands there twice",
                resource.body.kind(),
                resource.name
            ))
            .at(format!("{first} and {}", resource.place)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn good(text: &str) -> Vec<Resource> {
        parse(text, "a.yaml", Path::new("dir")).unwrap()
    }

    fn bad(text: &str, part: &str) {
        let failure = parse(text, "a.yaml", Path::new("dir")).unwrap_err();
        let all = failure.lines().join("\n");
        assert!(all.contains(part) && all.contains("a.yaml"), "{all}\ndoes not say\n{part}");
    }

    #[test]
    fn yaml_with_several_documents() {
        let text = "---\nkind: Instance\nmetadata: {name: web}\nspec:\n  image: busybox\n  cpu: 0.5\n---\n\
                    kind: Tenant\nmetadata: {name: team}\nspec: {quota: {instances: 3}}\n---\n\
                    kind: Image\nmetadata: {name: app, tenant: team}\nspec: {file: app.tar}\n";
        let found = good(text);
        assert_eq!(found.iter().map(|r| r.body.kind()).collect::<Vec<_>>(), ["Instance", "Tenant", "Image"]);
        assert_eq!(found[2].tenant.as_deref(), Some("team"));
        let Body::Image(image) = &found[2].body else { panic!("an image") };
        assert_eq!(image.file.as_deref(), Some(Path::new("dir/app.tar")));
    }

    #[test]
    fn json_alone_or_as_a_list() {
        let one = r#"{"kind":"Instance","metadata":{"name":"web"},"spec":{"image":"busybox"}}"#;
        assert_eq!(good(one).len(), 1);
        assert_eq!(good(&format!("[{one}]")).len(), 1);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        bad("kind: Instance\nmetadata: {name: web}\nspec: {image: x, memroy: 1}", "memroy");
        bad("kind: Instance\nmetadata: {name: web}\nspec: {image: x, memory: 1MiB}", "spec.memory");
        bad("kind: Robot\nmetadata: {name: web}", "'Robot' is not a kind");
        bad("kind: Instance\nmetadata: {name: Web}\nspec: {image: x}", "'Web' is not a name");
        bad("kind: Instance\nspec: {image: x}", "metadata");
        bad("kind: Image\nmetadata: {name: a}\nspec: {}", "either a file or a reference");
        bad("kind: [", "not YAML");
        bad("{", "not JSON");
        bad("# nothing\n", "no document");
    }

    #[test]
    fn a_folder_is_read_in_the_order_things_need_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", "kind: Instance\nmetadata: {name: web}\nspec: {image: x}");
        write("b.yml", "kind: Tenant\nmetadata: {name: team}");
        write("readme.txt", "not ours");
        let found = load(&[folder.path().to_owned()]).unwrap();
        assert_eq!(found.iter().map(|r| r.body.kind()).collect::<Vec<_>>(), ["Tenant", "Instance"]);
        write("c.yaml", "kind: Tenant\nmetadata: {name: team}");
        assert!(load(&[folder.path().to_owned()]).unwrap_err().message.contains("twice"));
        assert!(load(&[folder.path().join("none")]).unwrap_err().message.contains("cannot read"));
    }
}
