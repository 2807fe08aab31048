//! The one table of who may call what. The router, the guard and the OpenAPI
//! document are made from it, so that nothing is served that does not stand here.

use api::{
    AccessKey, AccessKeyCreated, App, AppCreate, AppUpdate, Bucket, BucketQuota, CatalogueChange,
    CatalogueWrite, Check, CheckReport, DamagedObject, Definition, Enrolment, EnrolmentCreate,
    EnrolmentToken, Entities, Image, ImagePull, Instance, InstanceCreate, InstanceWhy, Login, LoginDone,
    Node, NodeLabels, ObjectStore, Page, PasswordChange, PlaceModeSet, PlatformHealth, QuotaReport,
    S3Session, ScrubStart, Server, Tenant, TenantCreate, Token, TokenCreate, TokenCreated, User, UserCreate,
    UserUpdate, WatchEvent, Whoami, Workload, WorkloadCreate, WorkloadRevision, WorkloadRollback,
    WorkloadScale, WorkloadUpdate, WorkloadWhy, Zone, ZoneHosts,
};
mod cluster;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use model::exchange::InstanceStats;
use model::{Event, Quota, Role, Sample};
use utoipa::ToSchema;

use crate::cloud::Shared;
use crate::http::{app, bucket, catalogue, identity, image, instance, place, stream, system, workload};
use crate::openapi::{Content, Shape};
use crate::ops;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Verb {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Anyone,
    AtLeast(Role),
    /// For scrapers on the same machine.
    OperatorOrLoopback,
}

/// Who may call one route.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub verb: Verb,
    pub path: &'static str,
    /// Noun first; also the operation's id in the OpenAPI document.
    pub name: &'static str,
    pub who: Who,
    /// It speaks of things of one tenant: those of others are not found.
    pub tenant_scoped: bool,
}

/// A rule with what serves it and what is said of it.
pub struct Route {
    pub rule: Rule,
    pub summary: &'static str,
    pub params: Vec<&'static str>,
    pub takes: Content,
    pub status: u16,
    pub gives: Content,
    pub handler: MethodRouter<Shared>,
}

const ANYONE: Who = Who::Anyone;
const VIEWER: Who = Who::AtLeast(Role::Viewer);
const MEMBER: Who = Who::AtLeast(Role::Member);
const ADMIN: Who = Who::AtLeast(Role::Admin);
const OPERATOR: Who = Who::AtLeast(Role::Operator);

fn route<H, T>(verb: Verb, path: &'static str, name: &'static str, who: Who, handler: H) -> Route
where
    H: Handler<T, Shared>,
    T: 'static,
{
    Route {
        rule: Rule { verb, path, name, who, tenant_scoped: false },
        summary: "",
        params: Vec::new(),
        takes: Content::Nothing,
        status: 200,
        gives: Content::Nothing,
        handler: on(verb.filter(), handler),
    }
}

impl Route {
    /// Of things of one tenant.
    fn tenant(mut self) -> Self {
        self.rule.tenant_scoped = true;
        self
    }

    fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    fn params(mut self, names: &[&'static str]) -> Self {
        self.params.extend_from_slice(names);
        self
    }

    /// A list: cursor, limit and its filters.
    fn pages<T: ToSchema + 'static>(self, filters: &[&'static str]) -> Self {
        self.params(&["limit", "after"]).params(filters).gives::<Page<T>>(200)
    }

    fn takes<T: ToSchema>(mut self) -> Self {
        self.takes = Content::Json(Shape::of::<T>());
        self
    }

    fn gives<T: ToSchema>(mut self, status: u16) -> Self {
        self.status = status;
        self.gives = Content::Json(Shape::of::<T>());
        self
    }

    fn lists<T: ToSchema>(mut self) -> Self {
        self.gives = Content::List(Shape::of::<T>());
        self
    }

    fn done(mut self) -> Self {
        self.status = 204;
        self
    }

    fn raw(mut self, status: u16, content_type: &'static str) -> Self {
        self.status = status;
        self.gives = Content::Raw(content_type);
        self
    }

    fn uploads(mut self) -> Self {
        self.takes = Content::Raw("application/octet-stream");
        self
    }
}

/// Every route there is.
pub fn table() -> Vec<Route> {
    let mut all = system_routes();
    all.extend(instance_routes());
    all.extend(workload_routes());
    all.extend(app_routes());
    all.extend(image_routes());
    all.extend(session_routes());
    all.extend(identity_routes());
    all.extend(bucket_routes());
    all.extend(catalogue_routes());
    all.extend(cluster::routes());
    all.extend(place_routes());
    all
}

use Verb::{Delete, Get, Patch, Post, Put};

fn system_routes() -> Vec<Route> {
    vec![
        route(Get, "/v1/health", "health", ANYONE, system::health)
            .says("Answers when requests are served")
            .gives::<api::Health>(200),
        route(Get, "/v1/openapi.json", "openapi", ANYONE, system::openapi_get)
            .says("This document")
            .raw(200, "application/json"),
        route(Get, "/metrics", "metrics", Who::OperatorOrLoopback, system::metrics_get)
            .says("Metrics for Prometheus")
            .raw(200, crate::metrics::CONTENT_TYPE),
        route(Get, "/v1/watch", "watch", VIEWER, stream::watch)
            .tenant()
            .says("Changes as server-sent events; each event's data is a WatchEvent, Last-Event-ID resumes")
            .params(&["kind", "name", "since"])
            .gives::<WatchEvent>(200),
        route(Get, "/v1/events", "event_list", VIEWER, place::event_list)
            .tenant()
            .says("The history, newest first")
            .pages::<Event>(ops::event::FILTERS),
    ]
}

fn instance_routes() -> Vec<Route> {
    const ONE: &str = "/v1/instances/{name}";
    vec![
        route(Get, "/v1/instances", "instance_list", VIEWER, instance::list)
            .says("Lists instances by name")
            .pages::<Instance>(ops::instance::FILTERS),
        route(Post, "/v1/instances", "instance_create", MEMBER, instance::create)
            .says("Asks for an instance; it is pending until it is placed")
            .takes::<InstanceCreate>()
            .gives::<Instance>(201),
        route(Get, ONE, "instance_get", VIEWER, instance::get)
            .says("One instance, by name or id")
            .gives::<Instance>(200),
        route(Delete, ONE, "instance_delete", MEMBER, instance::delete)
            .says("Asks for its end; it is there until it is gone everywhere")
            .gives::<Instance>(202),
        route(Post, "/v1/instances/{name}/stop", "instance_stop", MEMBER, instance::stop)
            .says("Stops it and keeps it")
            .gives::<Instance>(202),
        route(Post, "/v1/instances/{name}/start", "instance_start", MEMBER, instance::start)
            .says("Starts a stopped one")
            .gives::<Instance>(202),
        route(Post, "/v1/instances/{name}/restart", "instance_restart", MEMBER, instance::restart)
            .says("Starts its process again")
            .gives::<Instance>(202),
        route(Get, "/v1/instances/{name}/logs", "instance_logs", VIEWER, stream::logs)
            .says("Its output as raw bytes")
            .params(&["follow", "tail"])
            .raw(200, "application/octet-stream"),
        route(Get, "/v1/instances/{name}/exec", "instance_exec", MEMBER, stream::exec)
            .says("A command in it, over a WebSocket whose binary messages begin with a channel byte")
            .params(&["command", "tty", "stdin", "rows", "cols"])
            .raw(101, "application/octet-stream"),
        route(Get, "/v1/instances/{name}/stats", "instance_stats", VIEWER, instance::stats)
            .says("What it uses now")
            .gives::<InstanceStats>(200),
        route(Get, "/v1/instances/{name}/why", "instance_why", VIEWER, instance::why)
            .says("Why it is where it is, or why it is nowhere")
            .gives::<InstanceWhy>(200),
    ]
    .into_iter()
    .map(Route::tenant)
    .collect()
}

fn workload_routes() -> Vec<Route> {
    const ONE: &str = "/v1/workloads/{name}";
    vec![
        route(Get, "/v1/workloads", "workload_list", VIEWER, workload::list)
            .says("Lists workloads by name")
            .pages::<Workload>(ops::workload::FILTERS),
        route(Post, "/v1/check", "order_check", MEMBER, workload::check)
            .tenant()
            .says("What would stand in the way of orders; nothing is changed")
            .takes::<Check>()
            .gives::<CheckReport>(200),
        route(Post, "/v1/workloads", "workload_create", MEMBER, workload::create)
            .says("Asks for many like instances, kept so")
            .takes::<WorkloadCreate>()
            .gives::<Workload>(201),
        route(Get, ONE, "workload_get", VIEWER, workload::get)
            .says("One workload, by name or id")
            .gives::<Workload>(200),
        route(Put, ONE, "workload_update", MEMBER, workload::update)
            .says("Replaces its spec; a changed template is a new revision")
            .takes::<WorkloadUpdate>()
            .gives::<Workload>(202),
        route(Delete, ONE, "workload_delete", MEMBER, workload::delete)
            .says("Asks for its end; it is there until its instances are gone")
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/scale", "workload_scale", MEMBER, workload::scale)
            .says("Changes the number of replicas of a service")
            .takes::<WorkloadScale>()
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/restart", "workload_restart", MEMBER, workload::restart)
            .says("Replaces every instance under the update policy")
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/pause", "workload_pause", MEMBER, workload::pause)
            .says("Lets everything be as it is")
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/resume", "workload_resume", MEMBER, workload::resume)
            .says("Goes on after a pause")
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/rollback", "workload_rollback", MEMBER, workload::rollback)
            .says("Takes an earlier template again, as a new revision")
            .takes::<WorkloadRollback>()
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/promote", "workload_promote", MEMBER, workload::promote)
            .says("Lets a canary go on to all instances")
            .gives::<Workload>(202),
        route(Post, "/v1/workloads/{name}/run", "workload_run", MEMBER, workload::run)
            .says("Begins a run now")
            .gives::<Workload>(202),
        route(Get, "/v1/workloads/{name}/revisions", "workload_revisions", VIEWER, workload::revisions)
            .says("The templates it has and had, newest first")
            .gives::<Vec<WorkloadRevision>>(200),
        route(Get, "/v1/workloads/{name}/why", "workload_why", VIEWER, workload::why)
            .says("Why it is as it is: its phase, revisions given up, and instances that are not well")
            .gives::<WorkloadWhy>(200),
    ]
    .into_iter()
    .map(Route::tenant)
    .collect()
}

fn app_routes() -> Vec<Route> {
    const ONE: &str = "/v1/apps/{name}";
    vec![
        route(Get, "/v1/apps", "app_list", VIEWER, app::list)
            .says("Lists apps by name")
            .pages::<App>(ops::app::FILTERS),
        route(Post, "/v1/apps", "app_create", MEMBER, app::create)
            .says("Makes an app with all its workloads")
            .takes::<AppCreate>()
            .gives::<App>(201),
        route(Get, ONE, "app_get", VIEWER, app::get).says("One app, by name or id").gives::<App>(200),
        route(Put, ONE, "app_update", MEMBER, app::update)
            .says("Makes its workloads what the body says; those it does not name are deleted")
            .takes::<AppUpdate>()
            .gives::<App>(202),
        route(Delete, ONE, "app_delete", MEMBER, app::delete)
            .says("Asks for the end of all of it")
            .gives::<App>(202),
    ]
    .into_iter()
    .map(Route::tenant)
    .collect()
}

fn catalogue_routes() -> Vec<Route> {
    const ONE: &str = "/v1/catalogue/{kind}/{name}";
    vec![
        route(Get, "/v1/catalogue", "catalogue_export", VIEWER, catalogue::export)
            .says("Everything that clusters can be made from, by kind; secrets are shown as (kept)")
            .gives::<Entities>(200),
        route(Post, "/v1/catalogue", "catalogue_write", ADMIN, catalogue::write)
            .says("Writes many definitions at once, all or none, and checks the whole")
            .takes::<CatalogueWrite>()
            .gives::<CatalogueChange>(200),
        route(Get, "/v1/definitions", "definition_list", VIEWER, catalogue::list)
            .says("Lists definitions by kind and name")
            .pages::<Definition>(ops::catalogue::FILTERS),
        route(Get, ONE, "definition_get", VIEWER, catalogue::get)
            .says("One definition, or an earlier number of it")
            .params(&["number"])
            .gives::<Definition>(200),
        route(Delete, ONE, "definition_delete", ADMIN, catalogue::delete)
            .says("Deletes a definition that no other needs")
            .done(),
    ]
    .into_iter()
    .map(Route::tenant)
    .collect()
}

fn image_routes() -> Vec<Route> {
    const ONE: &str = "/v1/images/{name}";
    vec![
        route(Get, "/v1/images", "image_list", VIEWER, image::list)
            .says("Lists the tenant's and the public images")
            .pages::<Image>(ops::image::FILTERS),
        route(Get, ONE, "image_get", VIEWER, image::get).says("One image, by name or id").gives::<Image>(200),
        route(Put, ONE, "image_import", MEMBER, image::import)
            .says("Uploads an OCI archive, docker archive or root file system tarball")
            .params(&["public"])
            .uploads()
            .gives::<Image>(201),
        route(Post, "/v1/images/{name}/pull", "image_pull", MEMBER, image::pull)
            .says("Fetches an image from a registry")
            .takes::<ImagePull>()
            .gives::<Image>(201),
        route(Delete, ONE, "image_delete", MEMBER, image::delete)
            .says("Forgets it; instances made from it stay")
            .done(),
    ]
    .into_iter()
    .map(Route::tenant)
    .collect()
}

fn session_routes() -> Vec<Route> {
    vec![
        route(Post, "/v1/login", "login", ANYONE, identity::login)
            .says("Trades a password for a session")
            .takes::<Login>()
            .gives::<LoginDone>(200),
        route(Post, "/v1/logout", "logout", VIEWER, identity::logout).says("Ends the session").done(),
        route(Get, "/v1/whoami", "whoami", VIEWER, identity::whoami)
            .tenant()
            .says("Who these credentials speak for")
            .gives::<Whoami>(200),
        route(Post, "/v1/password", "password_change", VIEWER, identity::password)
            .says("Changes one's own password")
            .takes::<PasswordChange>()
            .done(),
        route(Get, "/v1/tokens", "token_list", VIEWER, identity::token_list)
            .tenant()
            .says("One's own tokens; for admins the tenant's")
            .pages::<Token>(ops::token::FILTERS),
        route(Post, "/v1/tokens", "token_create", VIEWER, identity::token_create)
            .tenant()
            .says("Makes an API token; its secret is shown once")
            .takes::<TokenCreate>()
            .gives::<TokenCreated>(201),
        route(Delete, "/v1/tokens/{id}", "token_delete", VIEWER, identity::token_delete)
            .tenant()
            .says("Ends a token")
            .done(),
        route(Get, "/v1/keys", "key_list", MEMBER, identity::key_list)
            .tenant()
            .says("One's own access keys; for admins the tenant's")
            .pages::<AccessKey>(&[]),
        route(Post, "/v1/keys", "key_create", MEMBER, identity::key_create)
            .tenant()
            .says("Makes an access key; its secret is shown once")
            .gives::<AccessKeyCreated>(201),
        route(Delete, "/v1/keys/{id}", "key_delete", MEMBER, identity::key_delete)
            .tenant()
            .says("Ends an access key")
            .done(),
    ]
}

fn bucket_routes() -> Vec<Route> {
    const SCRUB: &str = "/v1/object-store/scrub";
    vec![
        route(Get, "/v1/buckets", "bucket_list", VIEWER, bucket::bucket_list)
            .tenant()
            .says("Lists buckets and what they hold")
            .pages::<Bucket>(ops::bucket::FILTERS),
        route(Get, "/v1/buckets/{name}", "bucket_get", VIEWER, bucket::bucket_get)
            .tenant()
            .says("One bucket and what it holds")
            .gives::<Bucket>(200),
        route(Put, "/v1/buckets/{name}/quota", "bucket_quota_set", ADMIN, bucket::bucket_quota_set)
            .tenant()
            .says("Sets the most bytes that a bucket may hold")
            .takes::<BucketQuota>()
            .gives::<Bucket>(200),
        route(Post, "/v1/s3/session", "s3_session", VIEWER, bucket::s3_session)
            .tenant()
            .says("Gives credentials for S3 that end by themselves")
            .params(&["duration_s"])
            .gives::<S3Session>(200),
        route(Get, "/v1/object-store", "object_store", OPERATOR, bucket::object_store)
            .says("What the object store holds and how it is")
            .gives::<ObjectStore>(200),
        route(Post, SCRUB, "object_store_scrub", OPERATOR, bucket::object_store_scrub)
            .says("Begins to read everything that the object store keeps, to find damage")
            .takes::<ScrubStart>()
            .gives::<ObjectStore>(200),
        route(Get, "/v1/object-store/damage", "object_store_damage", OPERATOR, bucket::object_store_damage)
            .says("Lists versions of objects that cannot be read, at most 1,000")
            .lists::<DamagedObject>(),
    ]
}

fn identity_routes() -> Vec<Route> {
    const TENANT: &str = "/v1/tenants/{name}";
    const USER: &str = "/v1/users/{name}";
    vec![
        route(Get, "/v1/tenants", "tenant_list", OPERATOR, identity::tenant_list)
            .says("Lists tenants")
            .pages::<Tenant>(ops::tenant::FILTERS),
        route(Post, "/v1/tenants", "tenant_create", OPERATOR, identity::tenant_create)
            .says("Makes a tenant")
            .takes::<TenantCreate>()
            .gives::<Tenant>(201),
        route(Get, TENANT, "tenant_get", OPERATOR, identity::tenant_get)
            .says("One tenant")
            .gives::<Tenant>(200),
        route(Delete, TENANT, "tenant_delete", OPERATOR, identity::tenant_delete)
            .says("Deletes an empty tenant")
            .done(),
        route(Put, "/v1/tenants/{name}/quota", "quota_set", OPERATOR, identity::quota_set)
            .says("Replaces the quota of a tenant")
            .takes::<Quota>()
            .gives::<Tenant>(200),
        route(Get, "/v1/quota", "quota_get", VIEWER, identity::quota_get)
            .tenant()
            .says("What the tenant may have and what it has")
            .gives::<QuotaReport>(200),
        route(Get, "/v1/users", "user_list", ADMIN, identity::user_list)
            .tenant()
            .says("Lists users")
            .pages::<User>(ops::user::FILTERS),
        route(Post, "/v1/users", "user_create", ADMIN, identity::user_create)
            .tenant()
            .says("Makes a user")
            .takes::<UserCreate>()
            .gives::<User>(201),
        route(Get, USER, "user_get", ADMIN, identity::user_get).tenant().says("One user").gives::<User>(200),
        route(Patch, USER, "user_update", ADMIN, identity::user_update)
            .tenant()
            .says("Changes role or password; a new password ends the user's sessions")
            .takes::<UserUpdate>()
            .gives::<User>(200),
        route(Delete, USER, "user_delete", ADMIN, identity::user_delete)
            .tenant()
            .says("Deletes a user with all tokens and keys")
            .done(),
    ]
}

fn place_routes() -> Vec<Route> {
    vec![
        route(Get, "/v1/zones", "zone_list", VIEWER, place::zone_list)
            .says("Lists zones; operators see what is in them")
            .pages::<Zone>(ops::zone::FILTERS),
        route(Get, "/v1/zones/{name}", "zone_get", VIEWER, place::zone_get)
            .says("One zone, by name or id")
            .gives::<Zone>(200),
        route(Post, "/v1/zones/{name}/mode", "zone_mode", OPERATOR, place::zone_mode)
            .says("Opens, cordons or drains a zone")
            .takes::<PlaceModeSet>()
            .gives::<Zone>(200),
        route(Post, "/v1/zones/{name}/hosts", "zone_hosts", OPERATOR, place::zone_hosts)
            .says("Lets the listeners of a zone have these names and addresses too")
            .takes::<ZoneHosts>()
            .gives::<Zone>(200),
        route(Delete, "/v1/zones/{name}", "zone_remove", OPERATOR, place::zone_remove)
            .says("Removes a zone for good; what it held is placed elsewhere")
            .params(&["force"])
            .done(),
        route(Get, "/v1/zones/{name}/history", "zone_history", OPERATOR, place::zone_history)
            .says("What its nodes used together, oldest first; the last hour unless since says more")
            .params(&["since"])
            .lists::<Sample>(),
        route(Get, "/v1/nodes", "node_list", OPERATOR, place::node_list)
            .says("Lists the nodes of the zones that are connected")
            .pages::<Node>(ops::node::FILTERS),
        route(Get, "/v1/nodes/{name}", "node_get", OPERATOR, place::node_get)
            .says("One node, by name or id")
            .params(&["zone"])
            .gives::<Node>(200),
        route(Post, "/v1/nodes/{name}/mode", "node_mode", OPERATOR, place::node_mode)
            .says("Opens, cordons or drains a node, or puts it into maintenance")
            .params(&["zone"])
            .takes::<PlaceModeSet>()
            .gives::<Node>(200),
        route(Post, "/v1/nodes/{name}/labels", "node_labels", OPERATOR, place::node_labels)
            .says("Sets and removes labels beside those of the node's own configuration")
            .params(&["zone"])
            .takes::<NodeLabels>()
            .gives::<Node>(200),
        route(Delete, "/v1/nodes/{name}", "node_remove", OPERATOR, place::node_remove)
            .says("Removes a node for good; its certificate is never let in again")
            .params(&["zone", "force"])
            .done(),
        route(Get, "/v1/nodes/{name}/history", "node_history", OPERATOR, place::node_history)
            .says("What it used, oldest first; the last hour unless since says more")
            .params(&["zone", "since"])
            .lists::<Sample>(),
        route(Get, "/v1/servers", "server_list", OPERATOR, place::server_list)
            .says("The root servers of the store: since when, which duties, when last heard")
            .lists::<Server>(),
        route(Delete, "/v1/servers/{name}", "server_remove", OPERATOR, place::server_remove)
            .says("Forgets a root server that fell silent; one that lives is refused")
            .done(),
        route(Get, "/v1/platform", "platform", OPERATOR, place::platform)
            .says("How the platform itself is: every check with its light, worst first")
            .gives::<PlatformHealth>(200),
        route(Post, "/v1/enrolments", "enrolment_create", OPERATOR, place::enrolment_create)
            .says("Makes a one-time token for a new zone or node, and says where it joins")
            .takes::<EnrolmentCreate>()
            .gives::<Enrolment>(201),
        route(Get, "/v1/enrolments", "enrolment_list", OPERATOR, place::enrolment_list)
            .says("Tokens that are out, of root and of the zones that answer; not the tokens themselves")
            .lists::<EnrolmentToken>(),
        route(Delete, "/v1/enrolments/{name}", "enrolment_revoke", OPERATOR, place::enrolment_revoke)
            .says("Voids a token; who joined with it stays")
            .done(),
    ]
}
