//! S3 over TLS, with a certificate that changes.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use object::TlsFiles;

use crate::bed::{Bed, user};

/// Puts a new certificate into its files, and what a client must trust into a third.
fn certify(folder: &Path, trusted: &str) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join("key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("certificate"), made.cert.pem()).unwrap();
    std::fs::write(folder.join(trusted), made.cert.pem()).unwrap();
}

/// The body that curl gets for a client that trusts this certificate alone.
async fn curl(folder: &Path, trusted: &str, words: &[&str], url: &str) -> Option<String> {
    let mut command = Command::new("curl");
    command.args(["-sS", "--cacert"]).arg(folder.join(trusted)).args(words).arg(url);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_served_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    certify(at, "old");
    let files = TlsFiles { certificate: at.join("certificate"), key: at.join("key") };
    let bed = Bed::start_with(|config| config.tls = Some(files)).await;
    let admin = user("admin");
    let link = |method: &str, path: &str| {
        format!("https://{}{}", bed.host(), bed.presign(&admin, method, path, "60"))
    };
    assert_eq!(curl(at, "old", &["-X", "PUT"], &link("PUT", "/box")).await.as_deref(), Some(""));
    let put = ["-X", "PUT", "--data-binary", "content", "-H", "content-type:"];
    assert_eq!(curl(at, "old", &put, &link("PUT", "/box/key")).await.as_deref(), Some(""));
    assert_eq!(curl(at, "old", &[], &link("GET", "/box/key")).await.as_deref(), Some("content"));

    // A broken file changes nothing; a good one is taken up.
    std::fs::write(at.join("certificate"), "no certificate").unwrap();
    assert_eq!(curl(at, "old", &[], &link("GET", "/box/key")).await.as_deref(), Some("content"));
    certify(at, "new");
    let end = Instant::now() + Duration::from_secs(60);
    while curl(at, "new", &[], &link("GET", "/box/key")).await.as_deref() != Some("content") {
        assert!(Instant::now() < end, "the new certificate is not served");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(curl(at, "old", &[], &link("GET", "/box/key")).await, None);
    bed.stop().await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificate: folder.path().join("none"), key: folder.path().join("none") };
    let mut config = object::Config::new(folder.path().join("data"), "127.0.0.1:0".parse().unwrap());
    config.tls = Some(files);
    let told = object::Store::start(config, crate::bed::nobody()).await.err().unwrap();
    assert!(told.message.contains("none cannot be read"), "{}", told.message);
}
