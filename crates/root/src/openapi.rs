//! The OpenAPI 3.1 document, made from the table of routes and the schemas of the types.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{Array, Object, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Required,
    ResponseBuilder,
};

use crate::access::{Route, Verb, Who, table};

/// A type's schema: its name, and itself with all it names.
#[derive(Clone)]
pub struct Shape {
    name: String,
    schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl Shape {
    pub fn of<T: ToSchema>() -> Self {
        Self {
            name: T::name().into_owned(),
            schemas: |all| {
                all.push((T::name().into_owned(), T::schema()));
                T::schemas(all);
            },
        }
    }
}

/// What a body is.
#[derive(Clone)]
pub enum Content {
    Nothing,
    Json(Shape),
    /// A JSON list, whole.
    List(Shape),
    /// Bytes of this media type.
    Raw(&'static str),
}

/// The document as text, made once.
pub fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut text = document().to_pretty_json().expect("the document is plain data");
        text.push('\n');
        text
    })
}

pub fn document() -> OpenApi {
    let routes = table();
    let problem = Shape::of::<api::Problem>();
    let mut schemas = Vec::new();
    let bodies = routes.iter().flat_map(|route| [&route.takes, &route.gives]);
    for content in bodies {
        if let Content::Json(shape) | Content::List(shape) = content {
            (shape.schemas)(&mut schemas);
        }
    }
    (problem.schemas)(&mut schemas);
    // By name, so that the text does not depend on the order of the table.
    let schemas: BTreeMap<String, RefOr<Schema>> = schemas.into_iter().collect();
    let mut paths = PathsBuilder::new();
    for route in &routes {
        let item = PathItem::new(method(route.rule.verb), operation(route));
        paths = paths.path(route.rule.path, item);
    }
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let components = ComponentsBuilder::new().schemas_from_iter(schemas).security_scheme("bearer", bearer);
    let info = InfoBuilder::new()
        .title("Banyan")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Errors are problem details (RFC 9457). Lists are pages with a cursor."));
    OpenApiBuilder::new().info(info.build()).paths(paths).components(Some(components.build())).build()
}

const fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Put => HttpMethod::Put,
        Verb::Patch => HttpMethod::Patch,
        Verb::Delete => HttpMethod::Delete,
    }
}

fn operation(route: &Route) -> Operation {
    let rule = &route.rule;
    let tag = rule.path.trim_start_matches("/v1/").trim_start_matches('/').split('/').next().unwrap_or("v1");
    let mut operation = OperationBuilder::new()
        .operation_id(Some(rule.name))
        .summary(Some(route.summary))
        .description(Some(description(route)))
        .tag(tag);
    for name in rule.path.split(['{', '}']).skip(1).step_by(2) {
        operation = operation.parameter(parameter(name, ParameterIn::Path));
    }
    for name in &route.params {
        // Of a history it is a time, elsewhere the number of a change.
        let name = if *name == "since" && rule.name.ends_with("_history") { SINCE_TIME } else { name };
        operation = operation.parameter(parameter(name, ParameterIn::Query));
    }
    if rule.tenant_scoped {
        operation = operation.parameter(parameter("tenant", ParameterIn::Query));
    }
    for name in headers(route) {
        operation = operation.parameter(parameter(name, ParameterIn::Header));
    }
    if let Some((media, content)) = content(&route.takes) {
        let body = RequestBodyBuilder::new().content(media, content).required(Some(Required::True));
        operation = operation.request_body(Some(body.build()));
    }
    let mut response = ResponseBuilder::new().description(reason(route.status));
    if let Some((media, content)) = content(&route.gives) {
        response = response.content(media, content);
    }
    operation = operation.response(route.status.to_string(), response.build());
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let failed = ResponseBuilder::new()
        .description("What was wrong, where, and what to do")
        .content(api::problem::CONTENT_TYPE, problem);
    operation = operation.response("default", failed.build());
    if rule.who != Who::Anyone {
        operation = operation.security(SecurityRequirement::new("bearer", Vec::<String>::new()));
    }
    operation.build()
}

fn description(route: &Route) -> String {
    match route.rule.who {
        Who::Anyone => "Needs no credentials.".to_owned(),
        Who::AtLeast(role) => format!("Needs the role {role} or more."),
        Who::OperatorOrLoopback => {
            "Needs the role operator, or a connection from the same machine.".to_owned()
        }
    }
}

/// The headers that a route understands.
fn headers(route: &Route) -> Vec<&'static str> {
    let changes = matches!(route.rule.verb, Verb::Delete | Verb::Patch)
        || [
            "quota_set",
            "instance_stop",
            "instance_start",
            "instance_restart",
            "workload_update",
            "workload_scale",
            "workload_restart",
            "workload_pause",
            "workload_resume",
            "workload_rollback",
            "workload_promote",
            "workload_run",
            "node_mode",
            "node_labels",
            "app_update",
            "cluster_expand",
            "cluster_shrink",
            "cluster_services",
            "cluster_configure",
            "cluster_start",
            "cluster_stop",
            "cluster_restart",
            "cluster_upgrade",
            "cluster_rollback",
            "cluster_repair",
            "cluster_check",
            "cluster_lease",
            "cluster_abort",
            "cluster_pause",
            "cluster_resume",
        ]
        .contains(&route.rule.name);
    let creates = [
        "workload_create",
        "app_create",
        "instance_create",
        "cluster_create",
        "tenant_create",
        "user_create",
        "token_create",
        "key_create",
    ];
    let unversioned = [
        "token_delete",
        "key_delete",
        "node_remove",
        "zone_remove",
        "provisioner_remove",
        "server_remove",
        "enrolment_revoke",
    ]
    .contains(&route.rule.name);
    let mut names = Vec::new();
    if changes && !unversioned {
        names.push("If-Match");
    }
    if creates.contains(&route.rule.name) {
        names.push("Idempotency-Key");
    }
    names
}

/// How `since` is told apart where it is a time.
const SINCE_TIME: &str = "since (time)";

fn parameter(name: &str, place: ParameterIn) -> utoipa::openapi::path::Parameter {
    let required = if matches!(place, ParameterIn::Path) { Required::True } else { Required::False };
    let (kind, says) = parameter_says(name, &place);
    ParameterBuilder::new()
        .name(if name == SINCE_TIME { "since" } else { name })
        .parameter_in(place)
        .required(required)
        .description(Some(says))
        .schema(Some(Object::with_type(kind)))
        .build()
}

fn parameter_says(name: &str, place: &ParameterIn) -> (Type, &'static str) {
    match (name, place) {
        ("name", ParameterIn::Path) => (Type::String, "Name or id of the thing"),
        ("kind", ParameterIn::Path) => {
            (Type::String, "Kind of the thing, such as services or automatortypes")
        }
        ("plugin", ParameterIn::Path) => (Type::String, "Name of the plugin"),
        ("type", ParameterIn::Path) => (Type::String, "One of the plugin's types of files"),
        ("number", ParameterIn::Path) => (Type::Integer, "Number of the version"),
        (_, ParameterIn::Path) => (Type::String, "Id of the thing"),
        ("plugin", _) => (Type::String, "Only those of this plugin"),
        ("type", _) => (Type::String, "Only those of this type"),
        ("stage", _) => (Type::Boolean, "Whether it is staged at once"),
        ("sync", _) => (Type::Boolean, "Whether it is staged and all files of the tenant are synced at once"),
        ("duration_s", _) => (Type::Integer, "For how many seconds they are good, 1 to 605700; else 43200"),
        ("limit", _) => (Type::Integer, "Most items of the page, 1 to 1000"),
        ("after", _) => (Type::String, "The next of the page before"),
        ("tenant", _) => (Type::String, "For operators: the tenant that is meant; * lists those of all"),
        ("name", _) => (Type::String, "Only names that fit; * stands for anything"),
        ("label", _) => (Type::String, "Only those with this label, as KEY=VALUE or KEY; may be repeated"),
        ("status", _) => (Type::String, "Only those in this status"),
        ("template", _) => (Type::String, "Only those made from this template"),
        ("phase", _) => (Type::String, "Only those in this phase"),
        ("run", _) => (Type::String, "Only those asked to be so: running, stopped or gone"),
        ("role", _) => (Type::String, "Only those with this role"),
        ("zone", _) => (Type::String, "Only in this zone, by name or id"),
        ("node", _) => (Type::String, "Only on the node of this name"),
        ("image", _) => (Type::String, "Only those made from this image"),
        ("subject", _) => (Type::String, "Only of this thing, as KIND/NAME"),
        ("instance", _) => (Type::String, "Only of the instance of this name"),
        ("kind", _) => (Type::String, "What is watched: instance, workload, app, cluster, image or zone"),
        ("workload", _) => (Type::String, "Only those of this workload, by name or id"),
        ("app", _) => (Type::String, "Only those of this app, by name or id"),
        ("since", _) => (Type::Integer, "The seq after which changes are told; from now on when absent"),
        (SINCE_TIME, _) => (Type::String, "From when on, such as 2026-01-31T12:00:00Z"),
        ("force", _) => (Type::Boolean, "Even where that ends or moves what would rather stay"),
        ("tail", _) => (Type::Integer, "Only the last lines"),
        ("rows" | "cols", _) => (Type::Integer, "Size of the terminal"),
        ("follow" | "tty" | "stdin" | "public" | "live" | "alive", _) => (Type::Boolean, "Whether it is so"),
        ("command", _) => (Type::String, "One word of the command; repeated for each"),
        ("If-Match", _) => {
            (Type::String, "The version that was seen; refused with 412 when there is another")
        }
        ("Idempotency-Key", _) => (Type::String, "The same key gives the same answer for a day"),
        _ => (Type::String, ""),
    }
}

fn content(content: &Content) -> Option<(&'static str, utoipa::openapi::Content)> {
    match content {
        Content::Nothing => None,
        Content::Json(shape) => {
            let reference = Ref::from_schema_name(shape.name.clone());
            Some(("application/json", ContentBuilder::new().schema(Some(reference)).build()))
        }
        Content::List(shape) => {
            let list = Array::new(Ref::from_schema_name(shape.name.clone()));
            Some(("application/json", ContentBuilder::new().schema(Some(list)).build()))
        }
        Content::Raw(media) => Some((media, ContentBuilder::new().build())),
    }
}

const fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switches to a WebSocket",
        201 => "Made",
        202 => "Asked for",
        204 => "Done",
        _ => "Found",
    }
}
