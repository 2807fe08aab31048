//! Images through the interface.

use api::{ListQuery, Upload};
use model::{ErrorKind, Role};
use tokio_util::io::ReaderStream;

use crate::world::{World, ask_for};

/// A root file system with one file.
pub fn tarball() -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o755);
    builder.append_data(&mut header, "bin/hello", &b"hello"[..]).unwrap();
    builder.into_inner().unwrap()
}

fn body(bytes: Vec<u8>) -> ReaderStream<std::io::Cursor<Vec<u8>>> {
    ReaderStream::new(std::io::Cursor::new(bytes))
}

#[tokio::test]
async fn an_image_is_uploaded_used_and_forgotten() {
    let world = World::new().await;
    let client = world.user("team", Role::Member).await;
    let image = client.image_import("mine", Upload::default(), body(tarball())).await.unwrap();
    assert_eq!((image.tenant.as_str(), image.public), ("team", false));
    assert!(image.size_bytes > 0);
    let taken = client.image_import("mine", Upload::default(), body(tarball())).await.unwrap_err();
    assert_eq!(taken.kind, ErrorKind::Conflict);
    let public = Upload { public: true, length: None };
    let refused = client.image_import("ours", public, body(tarball())).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Forbidden);

    let mut ask = ask_for("user");
    ask.spec.image = "mine".into();
    let instance = client.instance_create(&ask).await.unwrap();
    assert_eq!(instance.image_id, image.id);
    client.image_delete("mine", Some(image.version)).await.unwrap();
    assert_eq!(client.image_get("mine").await.unwrap_err().kind, ErrorKind::NotFound);
    let used = root::ops::image::digests_used(&world.cloud.state.snapshot());
    assert!(used.contains(&image.manifest.layers[0].digest), "the instance still needs its layers");

    let listed = client.image_list(&ListQuery::new()).await.unwrap();
    assert_eq!(listed.items.len(), 1, "the built-in one is everyone's");
    assert_eq!(listed.items[0].name.as_str(), "busybox");
    assert_eq!(client.image_delete("busybox", None).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test]
async fn what_is_no_image_leaves_nothing() {
    let world = World::new().await;
    let error =
        world.admin.image_import("bad", Upload::default(), body(b"no image".to_vec())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    let large = Upload { public: false, length: Some(65 << 20) };
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = http
        .put(world.url("/v1/images/large"))
        .bearer_auth(&world.credentials.token)
        .body(vec![0u8; large.length.unwrap() as usize])
        .send()
        .await;
    // The server may answer and close before all is sent.
    if let Ok(response) = response {
        assert_eq!(response.status(), 413);
    }
    assert_eq!(world.admin.image_list(&ListQuery::new()).await.unwrap().items.len(), 1);
}
