//! The routes of clusters, and of the files that they are made with.

use api::{
    Cluster, ClusterConfigure, ClusterCreate, ClusterJob, ClusterKey, ClusterLease, ClusterNode,
    ClusterPreview, ClusterRepair, ClusterResize, ClusterServiceOrder, ClusterServices, ClusterSolve,
    ClusterUpgrade, JobSummary, NodeAction, Provisioner, Resource, ResourceSync,
};

use super::Verb::{Delete, Get, Post};
use super::{ADMIN, MEMBER, OPERATOR, Route, VIEWER, route};
use crate::http::{cluster, resource};
use crate::ops;

pub fn routes() -> Vec<Route> {
    let own = asking().into_iter().chain(orders()).chain(files());
    own.map(Route::tenant).chain(provisioners()).collect()
}

fn provisioners() -> Vec<Route> {
    const ONE: &str = "/v1/provisioners/{name}";
    vec![
        route(Get, "/v1/provisioners", "provisioner_list", OPERATOR, cluster::provisioner_list)
            .says("Those who carry out tasks of clusters, and for whom they work")
            .lists::<Provisioner>(),
        route(Delete, ONE, "provisioner_remove", OPERATOR, cluster::provisioner_remove)
            .says("Removes a provisioner for good; what it does is given to others")
            .done(),
    ]
}

/// What plugins use on machines.
fn files() -> Vec<Route> {
    const ALL: &str = "/v1/resources";
    const ONE: &str = "/v1/resources/{kind}/{plugin}/{type}/{name}";
    const VERSION: &str = "/v1/resources/{kind}/{plugin}/{type}/{name}/versions/{number}";
    const STAGE: &str = "/v1/resources/{kind}/{plugin}/{type}/{name}/versions/{number}/stage";
    const RECALL: &str = "/v1/resources/{kind}/{plugin}/{type}/{name}/versions/{number}/recall";
    const CONTENT: &str = "/v1/resources/{kind}/{plugin}/{type}/{name}/versions/{number}/content";
    vec![
        route(Get, ALL, "resource_list", VIEWER, resource::list)
            .says("Lists files that plugins use, with their versions")
            .pages::<Resource>(ops::resource::FILTERS),
        route(Get, ONE, "resource_get", VIEWER, resource::get)
            .says("One file with its versions")
            .gives::<Resource>(200),
        route(Post, ONE, "resource_upload", ADMIN, resource::upload)
            .says("Uploads a new version of a file; it is inactive unless it is staged at once")
            .params(&["stage", "sync"])
            .uploads()
            .gives::<Resource>(201),
        route(Post, STAGE, "resource_stage", ADMIN, resource::stage)
            .says("Has a version active after the next sync, instead of the one that is")
            .gives::<Resource>(200),
        route(Post, RECALL, "resource_recall", ADMIN, resource::recall)
            .says("Has a version inactive after the next sync")
            .gives::<Resource>(200),
        route(Post, "/v1/resources/sync", "resource_sync", ADMIN, resource::sync)
            .says("Brings what is staged to the provisioners of the tenant, and takes what is recalled away")
            .gives::<ResourceSync>(200),
        route(Delete, VERSION, "resource_delete", ADMIN, resource::delete)
            .says("Deletes a version that is inactive")
            .done(),
        route(Get, CONTENT, "resource_download", ADMIN, resource::download)
            .says("A version as it was uploaded; secret ones are never shown again")
            .raw(200, "application/octet-stream"),
    ]
}

fn asking() -> Vec<Route> {
    const ONE: &str = "/v1/clusters/{name}";
    vec![
        route(Get, "/v1/clusters", "cluster_list", VIEWER, cluster::list)
            .says("Lists clusters by name")
            .pages::<Cluster>(ops::cluster::FILTERS),
        route(Post, "/v1/clusters", "cluster_create", MEMBER, cluster::create)
            .says("Asks for a cluster of a template; it is pending until its machines are ready")
            .takes::<ClusterCreate>()
            .gives::<Cluster>(201),
        route(Post, "/v1/clusters/solve", "cluster_solve", VIEWER, cluster::solve)
            .says("What a cluster would be like: layout, tasks, cost; nothing is changed")
            .takes::<ClusterSolve>()
            .gives::<ClusterPreview>(200),
        route(Get, ONE, "cluster_get", VIEWER, cluster::get)
            .says("One cluster, by name or id")
            .gives::<Cluster>(200),
        route(Delete, ONE, "cluster_delete", MEMBER, cluster::delete)
            .says("Asks for the end of its machines; it is there until they are gone, or with force until all were asked for")
            .params(&["force"])
            .gives::<Cluster>(202),
        route(Get, "/v1/clusters/{name}/nodes", "cluster_nodes", VIEWER, cluster::nodes)
            .says("Its machines by number")
            .lists::<ClusterNode>(),
        route(Get, "/v1/clusters/{name}/nodes/{id}/log", "cluster_node_log", VIEWER, cluster::node_log)
            .says("What was done to one of its machines, oldest first")
            .lists::<NodeAction>(),
        route(Get, "/v1/clusters/{name}/jobs", "cluster_jobs", VIEWER, cluster::jobs)
            .says("Its changes, newest first")
            .lists::<JobSummary>(),
        route(Get, "/v1/clusters/{name}/jobs/{id}", "cluster_job", VIEWER, cluster::job)
            .says("One change with its tasks in stages, by id or number")
            .gives::<ClusterJob>(200),
        route(Get, "/v1/clusters/{name}/key", "cluster_key", MEMBER, cluster::key)
            .says("The SSH key that its machines let in; asking for it is in the history")
            .gives::<ClusterKey>(200),
    ]
}

fn orders() -> Vec<Route> {
    vec![
        route(Post, "/v1/clusters/{name}/expand", "cluster_expand", MEMBER, cluster::expand)
            .says("Adds machines")
            .takes::<ClusterResize>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/shrink", "cluster_shrink", MEMBER, cluster::shrink)
            .says("Takes machines away")
            .takes::<ClusterResize>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/services", "cluster_services", MEMBER, cluster::services)
            .says("Adds and removes services")
            .takes::<ClusterServices>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/configure", "cluster_configure", MEMBER, cluster::configure)
            .says("Gives it another configuration")
            .takes::<ClusterConfigure>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/start", "cluster_start", MEMBER, cluster::start)
            .says("Starts services and what they need")
            .takes::<ClusterServiceOrder>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/stop", "cluster_stop", MEMBER, cluster::stop)
            .says("Stops services and what needs them")
            .takes::<ClusterServiceOrder>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/restart", "cluster_restart", MEMBER, cluster::restart)
            .says("Restarts services and what needs them")
            .takes::<ClusterServiceOrder>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/upgrade", "cluster_upgrade", MEMBER, cluster::upgrade)
            .says("Installs services anew, a few machines at a time")
            .takes::<ClusterUpgrade>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/rollback", "cluster_rollback", MEMBER, cluster::rollback)
            .says("Goes back to what it was before the last change")
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/repair", "cluster_repair", MEMBER, cluster::repair)
            .says("Makes machines anew that are gone, and those that are named")
            .takes::<ClusterRepair>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/check", "cluster_check", MEMBER, cluster::check)
            .says("Asks the provider whether its machines are there; what is not there is shown")
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/lease", "cluster_lease", MEMBER, cluster::lease)
            .says("Changes when it ends, by the terms of its template")
            .takes::<ClusterLease>()
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/abort", "cluster_abort", MEMBER, cluster::abort)
            .says("Ends the job under way; what it made by half is taken back")
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/pause", "cluster_pause", MEMBER, cluster::pause)
            .says("Begins no more tasks")
            .gives::<Cluster>(202),
        route(Post, "/v1/clusters/{name}/resume", "cluster_resume", MEMBER, cluster::resume)
            .says("Goes on after a pause")
            .gives::<Cluster>(202),
    ]
}
