//! Passwords, sessions, tokens, keys and roles.

use api::{ListQuery, Login, PasswordChange, TokenCreate, UserCreate, UserUpdate};
use model::{ErrorKind, Role};

use crate::world::World;

fn login(user: &str, password: &str) -> Login {
    Login { tenant: None, user: user.parse().unwrap(), password: password.to_owned() }
}

#[tokio::test]
async fn the_first_operator_has_all_credentials() {
    let world = World::new().await;
    let json = serde_json::to_value(&world.credentials).unwrap();
    let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let wanted =
        "access_key_id ec2_endpoint endpoint password s3_endpoint secret_access_key tenant token user";
    assert_eq!(keys.join(" "), wanted);
    let done = world.admin.login(&login("admin", &world.credentials.password)).await.unwrap();
    let client = world.admin.with_token(done.token);
    let me = client.whoami().await.unwrap();
    assert_eq!((me.user.as_str(), me.tenant.as_str(), me.role), ("admin", "main", Role::Operator));
    client.logout().await.unwrap();
    assert_eq!(client.whoami().await.unwrap_err().kind, ErrorKind::Unauthenticated);
    let id = model::AccessKeyId(world.credentials.access_key_id.clone());
    let (_, secret) = root::ops::key::secret(&world.cloud, &id).unwrap();
    assert_eq!(secret.as_slice(), world.credentials.secret_access_key.as_bytes());
}

#[tokio::test]
async fn secrets_are_not_in_the_store() {
    let world = World::new().await;
    let made = world
        .admin
        .token_create(&TokenCreate { name: "ci".parse().unwrap(), role: None, expires_in_s: None })
        .await
        .unwrap();
    let (records, _) = world.cloud.state.store().load().await.unwrap();
    let all = records.iter().map(|record| record.body.text()).collect::<String>();
    for secret in [
        &world.credentials.password,
        &world.credentials.token,
        &world.credentials.secret_access_key,
        &made.secret,
    ] {
        assert!(!all.contains(secret.as_str()));
    }
    assert!(all.contains("$argon2id$"));
}

#[tokio::test]
async fn password_attempts_are_limited() {
    let world = World::new().await;
    let mut last = ErrorKind::Internal;
    for _ in 0..8 {
        last = world.admin.login(&login("admin", "wrong password")).await.err().unwrap().kind;
    }
    assert_eq!(last, ErrorKind::RateLimited);
    let unknown = world.admin.login(&login("nobody", "wrong password")).await.err().unwrap();
    assert_eq!(unknown.kind, ErrorKind::Unauthenticated, "another account is not held back yet");
}

#[tokio::test]
async fn a_token_is_narrower_than_its_user_and_ends() {
    let world = World::new().await;
    let body = |role, expires| TokenCreate { name: "ci".parse().unwrap(), role, expires_in_s: expires };
    let made = world.admin.token_create(&body(Some(Role::Viewer), None)).await.unwrap();
    let viewer = world.admin.with_token(made.secret);
    assert_eq!(viewer.whoami().await.unwrap().role, Role::Viewer);
    assert_eq!(viewer.tenant_list(&ListQuery::new()).await.unwrap_err().kind, ErrorKind::Forbidden);
    let wider = viewer.token_create(&body(Some(Role::Member), None)).await.err().unwrap();
    assert_eq!((wider.kind, wider.field.as_deref()), (ErrorKind::Forbidden, Some("role")));
    world.admin.token_delete(made.token.id.as_str()).await.unwrap();
    assert_eq!(viewer.whoami().await.unwrap_err().kind, ErrorKind::Unauthenticated);

    let short = world.admin.token_create(&body(None, Some(1))).await.unwrap();
    let client = world.admin.with_token(short.secret);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(client.whoami().await.unwrap_err().kind, ErrorKind::Unauthenticated);
    let fence = world.cloud.duties.held(root::duty::SWEEP).unwrap();
    root::sweep::sweep(&world.cloud, &fence).await.unwrap();
    assert!(!world.cloud.state.snapshot().tokens.contains_key(&short.token.id), "swept away");
}

#[tokio::test]
async fn an_enrolment_token_that_is_over_is_swept_away() {
    let world = World::new().await;
    let store = world.cloud.state.store();
    let mut ids = Vec::new();
    for valid_ms in [-1, 60_000] {
        let until = world.cloud.now().plus_ms(valid_ms);
        let (_, record) = link::EnrollToken::make([0; 32], link::Kind::Zone, None, until);
        let body = serde_json::to_value(&record).unwrap();
        let txn = store::Txn::new().insert(root::tables::kind::ENROLMENT, &record.digest, None, None, body);
        world.cloud.state.commit(txn).await.unwrap();
        ids.push(record.digest);
    }
    let fence = world.cloud.duties.held(root::duty::SWEEP).unwrap();
    root::sweep::sweep(&world.cloud, &fence).await.unwrap();
    let left = store.list(root::tables::kind::ENROLMENT).await.unwrap();
    assert_eq!(left.into_iter().map(|record| record.id).collect::<Vec<_>>(), ids[1..]);
}

#[tokio::test]
async fn users_change_and_go() {
    let world = World::new().await;
    let admin = world.user("team", Role::Admin).await;
    let member = world.user("team", Role::Member).await;
    let body = |name: &str, role| UserCreate {
        name: name.parse().unwrap(),
        role,
        password: "long enough".into(),
        email: None,
    };
    let too_much = admin.user_create(&body("boss", Role::Operator)).await.unwrap_err();
    assert_eq!((too_much.kind, too_much.field.as_deref()), (ErrorKind::Forbidden, Some("role")));
    let operator =
        world.admin.with_tenant("team").user_create(&body("boss", Role::Operator)).await.unwrap_err();
    assert_eq!(operator.field.as_deref(), Some("role"), "operators live in main");
    let mut short = body("short", Role::Viewer);
    short.password = "short".into();
    assert_eq!(admin.user_create(&short).await.unwrap_err().field.as_deref(), Some("password"));

    let change = PasswordChange { current: "wrong one".into(), new: "a new password".into() };
    assert_eq!(member.password_change(&change).await.unwrap_err().kind, ErrorKind::Forbidden);
    let change = PasswordChange { current: "correct horse".into(), new: "a new password".into() };
    member.password_change(&change).await.unwrap();
    assert_eq!(member.whoami().await.unwrap_err().kind, ErrorKind::Unauthenticated, "its sessions ended");

    let seen = admin.user_get("team-member").await.unwrap();
    let update = UserUpdate { role: Some(Role::Viewer), password: None, email: None };
    let changed = admin.user_update("team-member", &update, Some(seen.version)).await.unwrap();
    assert_eq!(changed.role, Role::Viewer);
    let stale = admin.user_update("team-member", &update, Some(seen.version)).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::VersionMismatch);
    admin.user_delete("team-member", None).await.unwrap();
    assert_eq!(admin.user_get("team-member").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(admin.user_delete("team-admin", None).await.unwrap_err().kind, ErrorKind::Conflict);
    let last = UserUpdate { role: Some(Role::Admin), password: None, email: None };
    assert_eq!(world.admin.user_update("admin", &last, None).await.unwrap_err().kind, ErrorKind::Conflict);
    let full = world.admin.tenant_delete("team", None).await.unwrap_err();
    assert!(full.message.contains("1 users"), "{full}");
}
