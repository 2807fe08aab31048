//! What is wrong gets a sentence, a field and a fitting code, and nothing is half done.

use api::Problem;
use reqwest::header::CONTENT_TYPE;

use crate::world::World;

async fn check(world: &World, body: &str, status: u16, field: Option<&str>, says: &str) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = http
        .post(world.url("/v1/instances"))
        .bearer_auth(&world.credentials.token)
        .body(body.to_owned())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), status, "{body:.80}");
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(problem.field.as_deref(), field, "{problem:?}");
    assert!(problem.detail.contains(says), "{problem:?}");
    assert_eq!((problem.status, problem.instance.as_deref()), (status, Some("/v1/instances")));
}

#[tokio::test]
async fn wrong_bodies() {
    let world = World::new().await;
    let spec = |spec: &str| format!(r#"{{"name":"a","spec":{spec}}}"#);
    check(&world, "{\"name\":", 400, None, "not JSON").await;
    check(&world, "", 400, Some("name"), "is missing").await;
    check(&world, r#"{"name":"UPPER","spec":{"image":"busybox"}}"#, 400, Some("name"), "is not a name").await;
    check(
        &world,
        &format!(r#"{{"name":"{}","spec":{{"image":"b"}}}}"#, "a".repeat(64)),
        400,
        Some("name"),
        "63",
    )
    .await;
    check(
        &world,
        &spec(r#"{"image":"busybox","memroy":"1GiB"}"#),
        400,
        Some("spec.memroy"),
        "did you mean 'memory'",
    )
    .await;
    check(&world, &spec(r#"{"image":"busybox","memory":"1KiB"}"#), 400, Some("spec.memory"), "6MiB").await;
    check(&world, &spec(r#"{"image":"nothere"}"#), 400, Some("spec.image"), "no image 'nothere'").await;
    check(&world, &spec(r#"{"image":"busybox","cpu":[]}"#), 400, Some("spec.cpu"), "").await;
    let large = format!(r#"{{"name":"a","spec":{{"image":"{}"}}}}"#, "x".repeat(3 << 20));
    check(&world, &large, 413, None, "2 MiB").await;
    assert!(world.cloud.state.snapshot().instances.is_empty(), "nothing was made");
}

#[tokio::test]
async fn all_that_is_wrong_is_told_at_once() {
    let world = World::new().await;
    let fields = |error: model::Error| -> Vec<String> {
        error.faults().into_iter().filter_map(|fault| fault.field).collect()
    };
    let mut ask = crate::world::ask_for("a");
    ask.spec.pids = 0;
    ask.spec.cpu = model::Cpu(0);
    ask.spec.constraints.node = Some(String::new());
    let error = world.admin.instance_create(&ask).await.expect_err("three things are wrong");
    assert_eq!(fields(error), ["spec.cpu", "spec.pids", "spec.constraints.node"]);
    let long = "x".repeat(100_000);
    for error in [
        world.admin.instance_get(&long).await.expect_err("there is none"),
        world.admin.workload_get(&long).await.expect_err("there is none"),
        world.admin.zone_get(&long).await.expect_err("there is none"),
    ] {
        assert!(error.message.len() < 200, "{} bytes come back", error.message.len());
    }
}

async fn problem_at(
    world: &World,
    method: reqwest::Method,
    path: &str,
    header: Option<(&str, &str)>,
) -> Problem {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = http.request(method, world.url(path)).bearer_auth(&world.credentials.token);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(problem.status, status);
    problem
}

#[tokio::test]
async fn wrong_addresses_parameters_and_headers() {
    use reqwest::Method;
    let world = World::new().await;
    let nowhere = problem_at(&world, Method::GET, "/v1/nowhere", None).await;
    assert_eq!(nowhere.status, 404);
    let method = problem_at(&world, Method::PUT, "/v1/instances", None).await;
    assert_eq!(method.status, 405);
    for (path, field) in [
        ("/v1/instances?phse=running", "phse"),
        ("/v1/instances?phase=walking", "phase"),
        ("/v1/instances?limit=0", "limit"),
        ("/v1/instances?limit=many", "limit"),
        ("/v1/instances?after=../x", "after"),
        ("/v1/events?subject=web", "subject"),
        ("/v1/events?after=x", "after"),
        ("/v1/watch?kind=cat", "kind"),
        ("/v1/watch?since=soon", "since"),
    ] {
        let problem = problem_at(&world, Method::GET, path, None).await;
        assert_eq!((problem.status, problem.field.as_deref()), (400, Some(field)), "{path} {problem:?}");
    }
    let tenant = problem_at(&world, Method::GET, "/v1/instances?tenant=ghost", None).await;
    assert_eq!(tenant.status, 404);
    world.admin.instance_create(&crate::world::ask_for("a")).await.unwrap();
    let tag = problem_at(&world, Method::DELETE, "/v1/instances/a", Some(("if-match", "soon"))).await;
    assert_eq!((tag.status, tag.field.as_deref()), (400, Some("If-Match")));
    let stale = problem_at(&world, Method::DELETE, "/v1/instances/a", Some(("if-match", "\"1\""))).await;
    assert_eq!(stale.status, 412);
}
