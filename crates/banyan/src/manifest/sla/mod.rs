//! Oakestra's SLA descriptors v2.0, as they are: an application becomes an App, a microservice a
//! Workload of it, and `code` that is a registry's reference an Image. What is asked for and cannot be
//! given is refused, all of it in one message with the path of each field.

mod place;
mod read;

use std::collections::BTreeMap;

use api::AppWorkload;
use model::name::NAME_MAX;
use model::workload::{DESCRIPTION_BYTES_MAX, RunPolicy, WORKLOAD_NAME_MAX};
use model::{Bytes, Cpu, Faults, GpuAsk, InstanceSpec, Mode, Name, RestartPolicy, WorkloadSpec, shown};
use serde_json::Value;

use self::read::Fields;
use super::{AppSpec, Body, ImageSpec, Resource};

const VERSION: &str = "v2.0";
const PART_MAX: usize = 30;
/// The label that keeps the name which the other system would have given.
const JOB_LABEL: &str = "oakestra/job";

/// Whether a document is meant to be a descriptor.
pub fn is_descriptor(value: &Value) -> bool {
    value.get("sla_version").is_some() || (value.get("kind").is_none() && value.get("applications").is_some())
}

/// What a descriptor asks for. `place` is its file, for messages.
pub fn translate(value: &Value, place: &str) -> model::Result<Vec<Resource>> {
    let mut faults = Faults::default();
    let resources = descriptor(value, place, &mut faults);
    faults.done().map(|()| resources)
}

/// Microservices by the names under which others may mean them.
#[derive(Default)]
pub struct Targets(BTreeMap<String, Option<Name>>);

impl Targets {
    fn add(&mut self, name: String, workload: &Name) {
        // A name that two have means neither.
        self.0.entry(name).and_modify(|known| *known = None).or_insert_with(|| Some(workload.clone()));
    }

    pub fn workload(&self, name: &str) -> Option<Name> {
        self.0.get(name).cloned().flatten()
    }
}

/// The four names of a microservice.
struct Names<'a> {
    application: &'a str,
    application_space: &'a str,
    service: &'a str,
    service_space: &'a str,
}

impl Names<'_> {
    fn job(&self) -> String {
        [self.application, self.application_space, self.service, self.service_space].join(".")
    }

    fn workload(&self) -> Name {
        let parts = [self.application, self.application_space, self.service, self.service_space];
        name_of(&parts, WORKLOAD_NAME_MAX)
    }
}

/// The parts in lower case, joined. Where that loses something, a hash of the whole keeps it apart.
fn name_of(parts: &[&str], longest: usize) -> Name {
    let whole = parts.join("-");
    let small: String =
        whole.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let text = if small == whole && small.len() <= longest {
        small
    } else {
        let kept = &small[..small.len().min(longest - 9)];
        format!("{}-{:08x}", kept.trim_matches('-'), hash(&parts.join(".")))
    };
    text.trim_matches('-').parse().expect("letters, digits and '-', and short enough")
}

/// FNV-1a, folded to 32 bits: it stays the same for ever.
fn hash(text: &str) -> u32 {
    let whole = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (whole >> 32) as u32 ^ whole as u32
}

fn descriptor(value: &Value, place: &str, faults: &mut Faults) -> Vec<Resource> {
    let Some(mut top) = Fields::of(value, "", faults) else { return Vec::new() };
    if !top.constant("sla_version", VERSION, faults) {
        return Vec::new();
    }
    // Who acts is who is logged in, so the customer is only looked at.
    top.needed("customerID", faults);
    top.text("customerID", faults);
    top.cannot(&["args"], "a list", "arguments of a descriptor have no meaning here", faults);
    top.needed("applications", faults);
    let applications = top.list("applications", faults);
    top.rest(faults);
    let targets = targets(&applications);
    let mut images = BTreeMap::new();
    let mut resources = Vec::new();
    for (path, value) in applications {
        let Some((name, spec)) = application(value, path, &targets, &mut images, faults) else { continue };
        let body = Body::App(spec);
        resources.push(Resource { name, tenant: None, body, place: place.to_owned(), translated: true });
    }
    let images = images.into_iter().map(|(name, reference)| {
        let body = Body::Image(ImageSpec { file: None, reference: Some(reference), public: false });
        Resource { name, tenant: None, body, place: place.to_owned(), translated: true }
    });
    images.chain(resources).collect()
}

/// The names of all microservices, as far as they are there; what is missing is told elsewhere.
fn targets(applications: &[(String, &Value)]) -> Targets {
    let mut targets = Targets::default();
    for (_, application) in applications {
        let text = |value: &'_ Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let services = application.get("microservices").and_then(Value::as_array);
        for service in services.map(Vec::as_slice).unwrap_or_default() {
            let found = (
                text(application, "application_name"),
                text(application, "application_namespace"),
                text(service, "microservice_name"),
                text(service, "microservice_namespace"),
            );
            if let (Some(a), Some(b), Some(c), Some(d)) = &found {
                let names = Names { application: a, application_space: b, service: c, service_space: d };
                let workload = names.workload();
                targets.add(names.job(), &workload);
                targets.add(format!("{c}.{d}"), &workload);
                targets.add(c.clone(), &workload);
            }
        }
    }
    targets
}

/// 1 to 30 letters and digits.
fn part<'a>(fields: &mut Fields<'a>, key: &'static str, faults: &mut Faults) -> Option<&'a str> {
    fields.needed(key, faults);
    let text = fields.text(key, faults)?;
    if (1..=PART_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Some(text);
    }
    let sentence = format!("'{}' must be 1 to {PART_MAX} letters and digits", shown(text));
    faults.add(&fields.at(key), sentence);
    None
}

type Images = BTreeMap<Name, String>;

fn application(
    value: &Value,
    path: String,
    targets: &Targets,
    images: &mut Images,
    faults: &mut Faults,
) -> Option<(Name, AppSpec)> {
    let mut fields = Fields::of(value, path, faults)?;
    fields.text("applicationID", faults);
    let name = part(&mut fields, "application_name", faults);
    let space = part(&mut fields, "application_namespace", faults);
    let description = fields.text("application_desc", faults).unwrap_or_default().to_owned();
    if description.len() > DESCRIPTION_BYTES_MAX {
        faults.add(&fields.at("application_desc"), format!("may have {DESCRIPTION_BYTES_MAX} bytes"));
    }
    fields.needed("microservices", faults);
    let services = fields.list("microservices", faults);
    fields.rest(faults);
    let mut workloads: Vec<AppWorkload> = Vec::new();
    for (path, value) in services {
        let owner = (name.unwrap_or_default(), space.unwrap_or_default());
        let Some(workload) = microservice(value, path.clone(), owner, targets, images, faults) else {
            continue;
        };
        if workloads.iter().any(|other| other.name == workload.name) {
            faults.add(&path, "a microservice of this name and namespace stands there twice");
        }
        workloads.push(workload);
    }
    Some((name_of(&[name?, space?], NAME_MAX), AppSpec { description, workloads }))
}

fn microservice(
    value: &Value,
    path: String,
    (application, application_space): (&str, &str),
    targets: &Targets,
    images: &mut Images,
    faults: &mut Faults,
) -> Option<AppWorkload> {
    let mut fields = Fields::of(value, path, faults)?;
    let service = part(&mut fields, "microservice_name", faults);
    let service_space = part(&mut fields, "microservice_namespace", faults);
    fields.cannot(&["microserviceID"], "a text", "must be empty", faults);
    virtualization(&mut fields, faults);
    let mut instance = InstanceSpec::new(image(&mut fields, images, faults).unwrap_or_default());
    process(&mut fields, &mut instance, faults);
    amounts(&mut fields, &mut instance, faults);
    let constraints = fields.list("constraints", faults);
    place::constraints(constraints, &mut instance.constraints, faults);
    let connectivity = fields.list("connectivity", faults);
    place::connectivity(connectivity, targets, &mut instance.constraints, faults);
    impossible(&mut fields, faults);
    let once = fields.flag("one_shot", faults);
    let path = fields.path.clone();
    fields.rest(faults);
    let names = Names { application, application_space, service: service?, service_space: service_space? };
    instance.labels.insert(JOB_LABEL.to_owned(), names.job());
    let mut spec = WorkloadSpec::new(instance);
    if once {
        spec.mode = Mode::Once { run: RunPolicy::default() };
        spec.instance.restart = RestartPolicy::Never;
    }
    let name = names.workload();
    // An image that is missing was told already.
    if !spec.instance.image.is_empty()
        && let Err(error) = spec.validate_as(&name)
    {
        for fault in error.faults() {
            faults.add(&format!("{path}.{}", own(&fault.field.unwrap_or_default())), fault.message);
        }
    }
    Some(AppWorkload { name, spec })
}

/// A field of a workload by the name that the descriptor has for it.
fn own(field: &str) -> String {
    let field = field.strip_prefix("spec.").unwrap_or(field);
    let field = field.strip_prefix("instance.").unwrap_or(field);
    let words =
        [("cpu", "vcpus"), ("gpu", "vgpus"), ("disk", "storage"), ("command", "cmd"), ("env", "environment")];
    let (first, rest) = field.split_once('.').unwrap_or((field, ""));
    match (first, rest) {
        ("constraints", rest) if rest.starts_with("latency") => "connectivity".to_owned(),
        ("constraints", _) => "constraints".to_owned(),
        (first, _) => words.iter().find(|(ours, _)| *ours == first).map_or(field, |(_, own)| own).to_owned(),
    }
}

fn virtualization(fields: &mut Fields<'_>, faults: &mut Faults) {
    fields.needed("virtualization", faults);
    match fields.text("virtualization", faults) {
        Some("container" | "docker") | None => {}
        Some(other) => {
            let sentence = format!("'{}' is not possible here: only container is", shown(other));
            faults.add(&fields.at("virtualization"), sentence);
        }
    }
}

/// The image that `code` means: one of this cloud by its name, or a reference that is pulled.
fn image(fields: &mut Fields<'_>, images: &mut Images, faults: &mut Faults) -> Option<String> {
    fields.needed("code", faults);
    let code = fields.text("code", faults)?;
    if code.parse::<Name>().is_ok() {
        return Some(code.to_owned());
    }
    if code.is_empty() || code.contains("://") || code.contains([',', ' ', '\n']) {
        let sentence = "must be one image: a name of this cloud, or a registry's reference";
        faults.add(&fields.at("code"), sentence);
        return None;
    }
    let short = code.rsplit('/').next().unwrap_or(code);
    let short = short.split('@').next().unwrap_or(short);
    let small: String =
        short.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let kept = &small[..small.len().min(NAME_MAX - 9)];
    let name = format!("{}-{:08x}", kept.trim_matches('-'), hash(code));
    let name: Name = name.trim_matches('-').parse().expect("letters, digits and '-', and short enough");
    images.insert(name.clone(), code.to_owned());
    Some(name.to_string())
}

fn process(fields: &mut Fields<'_>, instance: &mut InstanceSpec, faults: &mut Faults) {
    instance.command = fields.texts("cmd", faults).into_iter().map(|(_, word)| word.to_owned()).collect();
    for (path, pair) in fields.texts("environment", faults) {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                let before = instance.env.insert(key.to_owned(), value.to_owned());
                if before.is_some_and(|before| before != value) {
                    faults.add(&path, format!("'{}' is given two values", shown(key)));
                }
            }
            _ => faults.add(&path, format!("'{}' must be KEY=VALUE", shown(pair))),
        }
    }
}

/// Megabytes are those of memory: 1024 times 1024 bytes.
fn amounts(fields: &mut Fields<'_>, instance: &mut InstanceSpec, faults: &mut Faults) {
    const AMOUNT_MAX: u64 = 1 << 30;
    let mut amount = |key: &'static str| {
        let found = fields.count(key, faults)?;
        if found > AMOUNT_MAX {
            faults.add(&fields.at(key), "is too large");
            return None;
        }
        Some(found)
    };
    instance.memory = amount("memory").map_or(instance.memory, Bytes::mib);
    instance.disk = amount("storage").map_or(instance.disk, Bytes::mib);
    instance.cpu = amount("vcpus").map_or(instance.cpu, |cores| Cpu(cores * 1000));
    instance.gpu = amount("vgpus").map(|count| GpuAsk {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        milli: model::resources::GPU_WHOLE_MILLI,
        models: Vec::new(),
    });
}

fn impossible(fields: &mut Fields<'_>, faults: &mut Faults) {
    let (text, number, list) = ("a text", "a number", "a list");
    for (keys, kind, sentence) in [
        (&["port"][..], text, "ports of the host are not handed out; an instance has an address of its own"),
        (&["addresses"], "an object", "addresses cannot be chosen"),
        (&["bandwidth_in", "bandwidth_out"], number, "bandwidth is not promised here"),
        (&["vtpus"], number, "there are no TPUs here"),
        (&["volumes"], list, "volumes are not there yet"),
        (&["privileged"], "true or false", "an instance has no privileges over its host"),
        (&["state"], text, "state is not brought along; put it into the image"),
        (&["added_files"], list, "files are not brought along; put them into the image"),
        (&["args"], list, "write the arguments into cmd"),
        (&["target_node"], text, "write a constraint of type direct"),
        (
            &["sla_violation_strategy"],
            text,
            "constraints hold when a place is chosen; nothing is moved later",
        ),
        (&["arch", "vm_images"], list, "this is for virtual machines, which are not there yet"),
        (&["platform"], text, "this is for virtual machines, which are not there yet"),
    ] {
        fields.cannot(keys, kind, sentence, faults);
    }
}

#[cfg(test)]
mod tests;
