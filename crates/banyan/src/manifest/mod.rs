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

mod document;
pub mod flaw;
mod sla;

use std::io::Read;
use std::path::{Path, PathBuf};

use api::AppWorkload;
use api::read::{from_value, nearest};
use model::name::NAME_MAX;
use model::workload::{APP_WORKLOADS_MAX, DESCRIPTION_BYTES_MAX, WORKLOAD_NAME_MAX, workload_name_validate};
use model::{Error, Fault, Faults, InstanceSpec, Name, Quota, Role, WorkloadSpec, shown};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::document::{Document, documents};
use self::flaw::Flaw;
use crate::failure::{Failure, Result};
use crate::output::yaml;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most documents of one `apply`.
const RESOURCES_MAX: usize = 10_000;
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
const KINDS: [&str; 6] = ["Instance", "Workload", "App", "Image", "Tenant", "User"];
const DOCUMENT_HINT: &str = "a document has kind, metadata with a name, and spec";
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
struct Head {
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

/// Reads files, folders (their .yaml, .yml and .json, by name) and `-` for standard input. Everything that is
/// wrong with any of them is told at once.
pub fn load(sources: &[PathBuf]) -> Result<Vec<Resource>> {
    let (mut resources, mut flaws) = (Vec::new(), Vec::new());
    for source in sources {
        if source == Path::new("-") {
            let text = read("standard input", std::io::stdin().lock())?;
            resources.extend(parse(&text, "standard input", Path::new("."), &mut flaws));
            continue;
        }
        for file in files(source)? {
            let label = file.display().to_string();
            let open =
                std::fs::File::open(&file).map_err(|e| Failure::new(format!("cannot read {label}: {e}")))?;
            let folder = file.parent().unwrap_or(Path::new("."));
            resources.extend(parse(&read(&label, open)?, &label, folder, &mut flaws));
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
    find_twins(&resources, &mut flaws);
    find_outsiders(&resources, &mut flaws);
    if !flaws.is_empty() {
        return Err(Flaw::failure(flaws));
    }
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

/// All documents of one file that can be used. `folder` is what relative paths in it start from.
pub fn parse(text: &str, label: &str, folder: &Path, flaws: &mut Vec<Flaw>) -> Vec<Resource> {
    let found = match documents(text, label) {
        Ok(found) => found,
        Err(flaw) => {
            flaws.push(*flaw);
            return Vec::new();
        }
    };
    if found.is_empty() {
        let flaw = Flaw::at_line(label, None, format!("{label} holds no document"));
        flaws.push(Flaw { fault: Fault { hint: Some(DOCUMENT_HINT.to_owned()), ..flaw.fault }, ..flaw });
    }
    let (mut resources, first) = (Vec::new(), flaws.len());
    for document in &found {
        let twins = document.twins().map(|(path, line)| {
            let message = "this field stands there twice".to_owned();
            (line, Fault { field: Some(path.to_owned()), message, hint: None })
        });
        let mut wrong: Vec<_> = twins.collect();
        let read = match sla::is_descriptor(&document.value) {
            true => sla::translate(&document.value, &place(label, document)),
            false => resource(&document.value, &place(label, document), folder).map(|one| vec![one]),
        };
        match read {
            Ok(read) => resources.extend(read),
            Err(error) => wrong.extend(
                error
                    .faults()
                    .into_iter()
                    .map(|fault| (document.line(fault.field.as_deref().unwrap_or_default()), fault)),
            ),
        }
        flaws.extend(wrong.into_iter().map(|(line, fault)| {
            let document = Some(title(document));
            Flaw { file: label.to_owned(), line, document, fault }
        }));
    }
    flaws[first..].sort_by_key(|flaw| flaw.line);
    resources
}

fn place(label: &str, document: &Document<'_>) -> String {
    format!("{label}, document {}", document.number)
}

/// Which document it is and what it says that it describes.
fn title(document: &Document<'_>) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(shown);
    let kind = text(document.value.get("kind"));
    let name = text(document.value.get("metadata").and_then(|metadata| metadata.get("name")));
    match (kind, name) {
        (Some(kind), Some(name)) => format!("document {}, {kind} '{name}'", document.number),
        _ => format!("document {}", document.number),
    }
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

fn resource(value: &Value, place: &str, folder: &Path) -> model::Result<Resource> {
    let value = without_status(value.clone());
    let mut faults = Faults::default();
    let head = from_value::<Head>(&value, |_| Ok(())).map_err(|error| error.hint(DOCUMENT_HINT));
    let Some(kind) = value.get("kind").and_then(Value::as_str).filter(|kind| KINDS.contains(kind)) else {
        // Of what kind its spec is nobody knows.
        let text = value.get("kind").and_then(Value::as_str);
        faults.inside("kind", text.map_or(Ok(()), |text| Err(unknown_kind(text))));
        faults.keep(head);
        return faults.finish(None);
    };
    let name = value.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let name = name.and_then(|name| name.parse().ok());
    let empty = Value::Object(Default::default());
    let spec = value.get("spec").filter(|spec| !spec.is_null()).unwrap_or(&empty);
    let app = head.as_ref().ok().and_then(|head| head.metadata.app.clone());
    if app.is_some() && kind != "Workload" {
        faults.add("metadata.app", format!("only a Workload belongs to an app, not this {kind}"));
    }
    let head =
        faults.keep(head.map_err(|error| if kind == "Workload" { workload_name(error) } else { error }));
    let body = faults.keep(body(kind, spec, name.as_ref(), app, folder));
    let (head, body) = faults.finish(head.zip(body))?;
    let _ = (head.kind, head.spec, head.api_version);
    let Metadata { name, tenant, .. } = head.metadata;
    Ok(Resource { name, tenant, body, place: place.to_owned(), translated: false })
}

/// The names of workloads are shorter than those of other things.
fn workload_name(mut error: Error) -> Error {
    if error.field.as_deref() == Some("metadata.name") {
        let (any, ours) = (format!("1 to {NAME_MAX} "), format!("1 to {WORKLOAD_NAME_MAX} "));
        error.message = error.message.replace(&any, &ours);
    }
    error
}

fn unknown_kind(kind: &str) -> Error {
    let sentence = match nearest(kind, &KINDS) {
        Some(near) => format!("'{}' is not a kind; did you mean {near}?", shown(kind)),
        None => {
            format!("'{}' is not a kind: write Instance, Workload, App, Image, Tenant or User", shown(kind))
        }
    };
    Error::invalid(sentence)
}

/// The spec of a document. Its fields are told as `spec.…`, its name as `metadata.name`.
fn body(
    kind: &str,
    spec: &Value,
    name: Option<&Name>,
    app: Option<Name>,
    folder: &Path,
) -> model::Result<Body> {
    fn plain<T: DeserializeOwned>(spec: &Value) -> model::Result<T> {
        from_value(spec, |_| Ok(())).map_err(|error| error.at("spec"))
    }
    Ok(match kind {
        "Instance" => {
            let spec = from_value(spec, InstanceSpec::validate).map_err(|error| error.at("spec"))?;
            Body::Instance(Box::new(spec))
        }
        "Workload" => {
            let mut faults = Faults::default();
            faults.inside("metadata.name", name.map_or(Ok(()), workload_name_validate));
            let check =
                |spec: &WorkloadSpec| name.map_or_else(|| spec.validate(), |name| spec.validate_for(name));
            let spec = faults.keep(from_value(spec, check).map_err(|error| error.at("spec")));
            let spec = faults.finish(spec)?;
            Body::Workload(Box::new(WorkloadManifest { app, spec }))
        }
        "App" => Body::App(from_value(spec, app_check).map_err(|error| error.at("spec"))?),
        "Image" => Body::Image(image(plain(spec)?, folder)?),
        "Tenant" => Body::Tenant(plain(spec)?),
        _ => {
            let mut spec: UserSpec = plain(spec)?;
            spec.password_file = spec.password_file.map(|file| folder.join(file));
            Body::User(spec)
        }
    })
}

fn app_check(app: &AppSpec) -> model::Result<()> {
    let mut faults = Faults::default();
    if app.workloads.len() > APP_WORKLOADS_MAX {
        faults.add("workloads", format!("an app may have {APP_WORKLOADS_MAX} workloads"));
    }
    if app.description.len() > DESCRIPTION_BYTES_MAX {
        faults.add("description", format!("a description may have {DESCRIPTION_BYTES_MAX} bytes"));
    }
    let mut names = std::collections::BTreeSet::new();
    for (index, workload) in app.workloads.iter().enumerate().take(APP_WORKLOADS_MAX) {
        let place = format!("workloads[{index}]");
        faults.inside(&place, workload.spec.validate_as(&workload.name));
        if !names.insert(&workload.name) {
            faults.add(&place, format!("workload '{}' stands there twice", workload.name));
        }
    }
    faults.done()
}

fn image(mut spec: ImageSpec, folder: &Path) -> model::Result<ImageSpec> {
    if spec.file.is_some() == spec.reference.is_some() {
        let sentence = "the spec of an Image names either a file or a reference";
        return Err(Error::invalid(sentence).at("spec"));
    }
    spec.file = spec.file.map(|file| folder.join(file));
    Ok(spec)
}

/// The same thing twice would be applied twice, and the last would win by accident. A workload in an
/// app and one alone have names of one kind.
fn find_twins(resources: &[Resource], flaws: &mut Vec<Flaw>) {
    let mut seen = std::collections::BTreeMap::new();
    for resource in resources {
        let members = match &resource.body {
            Body::App(app) => app.workloads.iter().map(|workload| ("Workload", &workload.name)).collect(),
            _ => Vec::new(),
        };
        for (kind, name) in members.into_iter().chain([(resource.body.kind(), &resource.name)]) {
            if let Some(first) = seen.insert((kind, &resource.tenant, name), &resource.place) {
                let sentence = format!("{kind} '{name}' stands there twice, first in {first}");
                flaws.push(Flaw::at_line(&resource.place, None, sentence));
            }
        }
    }
}

/// An app that stands there says all of its workloads, so another one cannot be beside it.
fn find_outsiders(resources: &[Resource], flaws: &mut Vec<Flaw>) {
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
            let sentence = format!(
                "Workload '{}' says that it is of App '{app}', which stands here without it; put it under spec.workloads of the App",
                resource.name
            );
            flaws.push(Flaw::at_line(&resource.place, None, sentence));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn good(text: &str) -> Vec<Resource> {
        let mut flaws = Vec::new();
        let found = parse(text, "a.yaml", Path::new("dir"), &mut flaws);
        assert!(flaws.is_empty(), "{}", Flaw::failure(flaws).lines().join("\n"));
        found
    }

    /// Something is wrong with a text, and one of the lines about it says this.
    fn bad(text: &str, part: &str) {
        let lines = flaws(text).join("\n");
        assert!(lines.contains(part) && lines.contains("a.yaml"), "{lines}\ndoes not say\n{part}");
    }

    fn flaws(text: &str) -> Vec<String> {
        let mut flaws = Vec::new();
        parse(text, "a.yaml", Path::new("dir"), &mut flaws);
        flaws.iter().map(Flaw::line).collect()
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_line_document_and_path() {
        let text = "\
kind: Workload
metadata: { name: web, nmae: x }
spec:
  instance:
    image: busybox
    cpu: lots
    memory: 1MiB
    env:
      A: 1
      A: two
  mode: { kind: service, replicas: many }
  update:
    max_surg: 1
---
kind: Instanse
metadata: { name: a }
---
kind: Instance
metadata: { name: B }
spec: { pids: 0 }
";
        let expect = [
            "a.yaml:2, document 1, Workload 'web', metadata.nmae: there is no field 'nmae' here; did you mean 'name'?",
            "a.yaml:6, document 1, Workload 'web', spec.instance.cpu: 'lots' is not an amount of CPU: write cores such as 0.5 or 2, or thousandths such as 500m",
            "a.yaml:7, document 1, Workload 'web', spec.instance.memory: memory must be 6MiB or more",
            "a.yaml:10, document 1, Workload 'web', spec.instance.env.A: this field stands there twice",
            "a.yaml:11, document 1, Workload 'web', spec.mode.replicas: replicas must be a whole number, not a text (\"many\")",
            "a.yaml:13, document 1, Workload 'web', spec.update.max_surg: there is no field 'max_surg' here; did you mean 'max_surge'?",
            "a.yaml:15, document 2, Instanse 'a', kind: 'Instanse' is not a kind; did you mean Instance?",
            "a.yaml:19, document 3, Instance 'B', metadata.name: 'B' is not a name",
            "a.yaml:20, document 3, Instance 'B', spec.image: 'image' is missing",
            "a.yaml:20, document 3, Instance 'B', spec.pids: pids must be 1 to 32768",
        ];
        let found = flaws(text);
        assert_eq!(found.len(), expect.len(), "{found:#?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found}\nis not\n{expect}");
        }
    }

    #[test]
    fn contradictions_are_refused_with_their_field() {
        let workload = |instance: &str, more: &str| {
            format!(
                "kind: Workload\nmetadata: {{name: web}}\nspec: {{instance: {{image: x, {instance}}}{more}}}"
            )
        };
        let place = |constraints: &str| workload(&format!("constraints: {{{constraints}}}"), "");
        for (text, part) in [
            (place("spread: {group: a, max_skew: 0}"), "spec.instance.constraints.spread.max_skew"),
            (place("latency: [{workload: web, max_ms: 5}]"), "spec.instance.constraints.latency[0].workload"),
            (
                place("area: {latitude: 1, longitude: 2, radius_km: 0}"),
                "spec.instance.constraints.area.radius_km",
            ),
            (place("node_labels: {disk: ssd, disk: hdd}"), "spec.instance.constraints.node_labels.disk"),
            (
                place(
                    "affinity: [{label: a, value: b, required: true}, {label: a, value: b, required: true, anti: true}]",
                ),
                "spec.instance.constraints.affinity[1]",
            ),
            (workload("", ", mode: {kind: once}"), "spec.instance.restart"),
        ] {
            bad(&text, part);
        }
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
        bad("kind: Instance\nmetadata: {name: Web}\nspec: {image: x}", "'Web' is not a name: use 1 to 63");
        bad(
            "kind: Workload\nmetadata: {name: Web}\nspec: {instance: {image: x}}",
            "'Web' is not a name: use 1 to 56",
        );
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
        assert!(load(&[folder.path().to_owned()]).unwrap_err().message.contains("stands there twice"));
        assert!(load(&[folder.path().join("none")]).unwrap_err().message.contains("cannot read"));
    }
}
