//! REST over the operations: a handler authorises (by the table in [`crate::access`]), parses, calls `ops`, replies.
//!
//! ```text
//!  server (accept, time-outs, shutdown) ▶ outer (problems, headers, metrics) ▶ guard (who may) ▶ handler ▶ ops
//! ```

pub mod app;
pub mod bucket;
pub mod catalogue;
pub mod cluster;
pub mod extract;
pub mod guard;
pub mod identity;
pub mod image;
pub mod instance;
pub mod outer;
pub mod place;
pub mod reply;
pub mod resource;
pub mod server;
pub mod stream;
pub mod system;
mod upload;
pub mod workload;

use axum::Router;
use axum::middleware::from_fn_with_state;

use crate::access;
use crate::cloud::Shared;

/// The whole interface. Every route comes from the table, so none is without its guard.
pub fn router(cloud: Shared, ending: server::Ending) -> Router {
    let mut router = Router::new();
    for route in access::table() {
        let access::Route { rule, handler, .. } = route;
        let guarded = handler.layer(from_fn_with_state((cloud.clone(), rule), guard::guard));
        router = router.route(rule.path, guarded);
    }
    router
        .fallback(system::not_found)
        .method_not_allowed_fallback(system::method_not_allowed)
        .layer(from_fn_with_state(cloud.clone(), outer::outer))
        .layer(axum::Extension(ending))
        .with_state(cloud)
}
