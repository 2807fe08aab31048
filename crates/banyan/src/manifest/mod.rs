//! Files that describe resources: YAML with several documents, or JSON.
//!
//! ```yaml
//! kind: Instance            # or Workload, App, Image, Tenant, User
//! metadata: { name: web }   # tenant: NAME too, for operators
//! spec: { image: busybox, command: [httpd, -f] }
//! ```
//!
//! [`load`] reads files into [`Resource`]s; [`diff`] says what changes; [`sla`] reads descriptors of
//! another system.

pub mod diff;
mod sla;

use std::io::Read;
use std::path::{Path, PathBuf};

use api::AppWorkload;
use model::workload::{APP_WORKLOADS_MAX, DESCRIPTION_BYTES_MAX, WORKLOAD_NAME_MAX};
use model::{InstanceSpec, Name, Quota, Role, WorkloadSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::output::yaml;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most documents of one `apply`.
const RESOURCES_MAX: usize = 10_000;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
const KINDS: &str = "Instance, Workload, App, Image, Tenant or User";
/// What `get -o yaml` shows of a thing besides what was asked for.
const READ_ONLY: [&str; 10] = [
    "id",
    "tenant",
    "version",
    "revision",
    "created_at",
    "created_by",
    "status",
    "description",
    "deleting",
    "workloads",
];

/// One document, in the order in which kinds depend on each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    pub name: Name,
    pub tenant: Option<String>,
    pub body: Body,
    /// File and document, for messages.
    pub place: String,
    /// Whether it was translated from another system's language.
    pub translated: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Tenant(TenantSpec),
    User(UserSpec),
    Image(ImageSpec),
    Instance(Box<InstanceSpec>),
    App(AppSpec),
    Workload(Box<WorkloadManifest>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppSpec {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default)]
    pub workloads: Vec<AppWorkload>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadManifest {
    /// The app that it belongs to, made before.
    pub app: Option<Name>,
    pub spec: WorkloadSpec,
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
            Self::App(_) => "App",
            Self::Workload(_) => "Workload",
        }
    }

    /// What must be there first is applied first.
    const fn rank(&self) -> u8 {
        match self {
            Self::Tenant(_) => 0,
            Self::User(_) => 1,
            Self::Image(_) => 2,
            Self::Instance(_) => 3,
            Self::App(_) => 4,
            Self::Workload(_) => 5,
        }
    }
}

impl Resource {
    /// The document that asks for this.
    pub fn text(&self) -> String {
        let spec = match &self.body {
            Body::Workload(workload) => {
                return workload_text(&self.name, workload.app.as_ref(), &workload.spec);
            }
            Body::App(spec) => json!(spec),
            Body::Instance(spec) => json!(spec),
            Body::Image(spec) => json!(spec),
            Body::Tenant(spec) => json!(spec),
            Body::User(spec) => json!({ "role": spec.role }),
        };
        yaml(&json!({ "kind": self.body.kind(), "metadata": { "name": self.name }, "spec": spec }))
    }
}

/// The document that asks for a workload.
pub fn workload_text(name: &Name, app: Option<&Name>, spec: &WorkloadSpec) -> String {
    let mut metadata = json!({ "name": name });
    if let Some(app) = app {
        metadata["app"] = json!(app);
    }
    yaml(&json!({ "kind": "Workload", "metadata": metadata, "spec": spec }))
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
    /// Of a workload: the app it belongs to.
    #[serde(default)]
    app: Option<Name>,
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
    let mut images = Vec::new();
    resources.retain(|resource| {
        // Several descriptors may pull the same image.
        let twin = resource.translated && images.contains(&(resource.name.clone(), resource.body.clone()));
        if matches!(resource.body, Body::Image(_)) {
            images.push((resource.name.clone(), resource.body.clone()));
        }
        !twin
    });
    reject_twins(&resources)?;
    reject_outsiders(&resources)?;
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
        if sla::is_descriptor(&value) {
            resources.extend(sla::translate(&value, &place)?);
        } else {
            resources.push(resource(value, &place, folder)?);
        }
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
    let mut values = Vec::new();
    for document in yaml_serde::Deserializer::from_str(text) {
        let value = Value::deserialize(document)
            .map_err(|error| Failure::new(format!("this is not YAML: {error}")).at(label))?;
        match value {
            Value::Array(several) => values.extend(several),
            value => values.push(value),
        }
    }
    Ok(values)
}

/// What `get -o yaml` shows is taken too: what was asked for is kept, what came of it is dropped.
fn without_status(value: Value) -> Value {
    let Value::Object(mut fields) = value else { return value };
    if fields.contains_key("metadata") || !fields.contains_key("id") {
        return Value::Object(fields);
    }
    fields.retain(|key, _| !READ_ONLY.contains(&key.as_str()));
    let mut metadata = serde_json::Map::new();
    for key in ["name", "app"] {
        metadata.extend(fields.remove(key).map(|value| (key.to_owned(), value)));
    }
    fields.insert("metadata".to_owned(), Value::Object(metadata));
    Value::Object(fields)
}

fn resource(value: Value, place: &str, folder: &Path) -> Result<Resource> {
    let wrong = |error: String| Failure::new(error).at(place);
    let document: Document = serde_json::from_value(without_status(value)).map_err(|error| {
        wrong(error.to_string()).hint("a document has kind, metadata with a name, and spec")
    })?;
    let _ = document.api_version;
    let Metadata { name, tenant, app } = document.metadata;
    let spec = if document.spec.is_null() { Value::Object(Default::default()) } else { document.spec };
    let kind = document.kind.as_str();
    let inside = |error: serde_json::Error| {
        Failure::new(format!("the spec of {kind} '{name}' is wrong: {error}")).at(place)
    };
    let refused = |error: model::Error| {
        let field = error.field.clone().unwrap_or_default();
        Failure::from(error).at(format!("{place}, {kind} '{name}', {field}"))
    };
    if app.is_some() && kind != "Workload" {
        return Err(wrong(format!("metadata.app is only of a Workload, not of {kind} '{name}'")));
    }
    let body = match kind {
        "Instance" => {
            let spec: InstanceSpec = serde_json::from_value(spec).map_err(inside)?;
            spec.validate().map_err(|error| refused(error.at("spec")))?;
            Body::Instance(Box::new(spec))
        }
        "Workload" => {
            let spec: WorkloadSpec = serde_json::from_value(spec).map_err(inside)?;
            workload_check(&name, &spec).map_err(refused)?;
            Body::Workload(Box::new(WorkloadManifest { app, spec }))
        }
        "App" => {
            let spec: AppSpec = serde_json::from_value(spec).map_err(inside)?;
            app_check(&spec).map_err(refused)?;
            Body::App(spec)
        }
        "Image" => Body::Image(image(serde_json::from_value(spec).map_err(inside)?, folder).map_err(wrong)?),
        "Tenant" => Body::Tenant(serde_json::from_value(spec).map_err(inside)?),
        "User" => {
            let mut spec: UserSpec = serde_json::from_value(spec).map_err(inside)?;
            spec.password_file = spec.password_file.map(|file| folder.join(file));
            Body::User(spec)
        }
        other => return Err(wrong(format!("'{other}' is not a kind: write {KINDS}"))),
    };
    Ok(Resource { name, tenant, body, place: place.to_owned(), translated: false })
}

fn workload_check(name: &Name, spec: &WorkloadSpec) -> model::Result<()> {
    if name.as_str().len() > WORKLOAD_NAME_MAX {
        let sentence = format!("the name of a workload may have {WORKLOAD_NAME_MAX} characters");
        return Err(model::Error::invalid(sentence).at("metadata.name"));
    }
    spec.validate().map_err(|error| error.at("spec"))
}

fn app_check(app: &AppSpec) -> model::Result<()> {
    if app.workloads.len() > APP_WORKLOADS_MAX {
        let sentence = format!("an app may have {APP_WORKLOADS_MAX} workloads");
        return Err(model::Error::invalid(sentence).at("spec.workloads"));
    }
    if app.description.len() > DESCRIPTION_BYTES_MAX {
        let sentence = format!("a description may have {DESCRIPTION_BYTES_MAX} bytes");
        return Err(model::Error::invalid(sentence).at("spec.description"));
    }
    let mut names = std::collections::BTreeSet::new();
    for (index, workload) in app.workloads.iter().enumerate() {
        let place = format!("spec.workloads[{index}]");
        workload_check(&workload.name, &workload.spec).map_err(|error| error.at(&place))?;
        if !names.insert(&workload.name) {
            return Err(
                model::Error::invalid(format!("workload '{}' stands there twice", workload.name)).at(&place)
            );
        }
    }
    Ok(())
}

fn image(mut spec: ImageSpec, folder: &Path) -> Result<ImageSpec, String> {
    if spec.file.is_some() == spec.reference.is_some() {
        return Err("the spec of an Image names either a file or a reference".to_owned());
    }
    spec.file = spec.file.map(|file| folder.join(file));
    Ok(spec)
}

/// The same thing twice would be applied twice, and the last would win by accident. A workload in an
/// app and one alone have names of one kind.
fn reject_twins(resources: &[Resource]) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for resource in resources {
        let members = match &resource.body {
            Body::App(app) => app.workloads.iter().map(|workload| ("Workload", &workload.name)).collect(),
            _ => Vec::new(),
        };
        for (kind, name) in members.into_iter().chain([(resource.body.kind(), &resource.name)]) {
            if let Some(first) = seen.insert((kind, &resource.tenant, name), &resource.place) {
                return Err(Failure::new(format!("{kind} '{name}' stands there twice"))
                    .at(format!("{first} and {}", resource.place)));
            }
        }
    }
    Ok(())
}

/// An app that stands there says all of its workloads, so another one cannot be beside it.
fn reject_outsiders(resources: &[Resource]) -> Result<()> {
    let whole = |name: &Name, tenant: &Option<String>| {
        resources
            .iter()
            .any(|other| matches!(other.body, Body::App(_)) && other.name == *name && other.tenant == *tenant)
    };
    for resource in resources {
        if let Body::Workload(workload) = &resource.body
            && let Some(app) = &workload.app
            && whole(app, &resource.tenant)
        {
            return Err(Failure::new(format!(
                "Workload '{}' says that it is of App '{app}', which stands here without it",
                resource.name
            ))
            .at(&resource.place)
            .hint("put it under spec.workloads of the App"));
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
        bad("kind: App\nmetadata: {name: a}\nworkloads: []", "workloads");
        bad(
            "kind: App\nmetadata: {name: a}\nspec: {workloads: [{name: b, spec: {instance: {image: x}, mod: 1}}]}",
            "mod",
        );
        bad(
            "kind: App\nmetadata: {name: a}\nspec: {workloads: [{name: b, spec: {instance: {image: x, pids: 0}}}]}",
            "spec.workloads[0].spec.instance.pids",
        );
        bad(
            "kind: Workload\nmetadata: {name: a}\nspec: {instance: {image: x}, mode: {kind: once}}",
            "never ends",
        );
        bad(
            "kind: Workload\nmetadata: {name: a}\nspec: {instance: {image: x}, mode: {kind: cron, schedule: '* *'}}",
            "spec.mode",
        );
        bad("kind: Instance\nmetadata: {name: a, app: b}\nspec: {image: x}", "metadata.app");
        bad(
            &format!(
                "kind: Workload\nmetadata: {{name: {}}}\nspec: {{instance: {{image: x}}}}",
                "a".repeat(57)
            ),
            "56",
        );
        bad("kind: Instance\nmetadata: {name: Web}\nspec: {image: x}", "'Web' is not a name");
        bad("kind: Instance\nspec: {image: x}", "metadata");
        bad("kind: Image\nmetadata: {name: a}\nspec: {}", "either a file or a reference");
        bad("kind: [", "not YAML");
        bad("{", "not JSON");
        bad("# nothing\n", "no document");
    }

    #[test]
    fn the_documents_of_the_reference_are_true() {
        let page = include_str!("../../../../docs/workloads.md");
        let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        let manifests: Vec<_> = blocks.clone().filter(|block| block.starts_with("kind:")).collect();
        assert_eq!(manifests.iter().map(|block| good(block).len()).sum::<usize>(), 5);
        // A part of a spec is true when the spec is that has it.
        for part in blocks.filter(|block| !block.starts_with("kind:")) {
            let inside = if part.trim_start().starts_with("constraints") { "" } else { "{image: busybox}" };
            let image = if inside.is_empty() { "    image: busybox\n" } else { "" };
            good(&format!(
                "kind: Workload\nmetadata: {{name: a}}\nspec:\n  instance: {inside}\n{image}{part}"
            ));
        }
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
