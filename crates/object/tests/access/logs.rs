//! Access logs as objects of another bucket.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object::Config;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::io::AsyncWriteExt;

use crate::bed::{Bed, answer, stamp, user};
use crate::policy;

fn asked(format: &str) -> String {
    format!(
        "<BucketLoggingStatus><LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix>of/</TargetPrefix>{format}</LoggingEnabled></BucketLoggingStatus>"
    )
}

#[tokio::test]
async fn lines_come_where_the_target_lets_them_in() {
    let bed = Bed::start_with(|config| config.log_every = Duration::from_millis(300)).await;
    let admin = user("admin");
    for bucket in ["/box", "/logs"] {
        assert_eq!(bed.call(&admin, "PUT", bucket, "").await.code(), "ok");
    }
    let format = "<TargetObjectKeyFormat><PartitionedPrefix><PartitionDateSource>DeliveryTime</PartitionDateSource></PartitionedPrefix></TargetObjectKeyFormat>";
    assert_eq!(bed.call(&admin, "PUT", "/box?logging=", &asked(format)).await.code(), "AccessDenied");
    let lets = policy(
        r#""Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::logs/of/*","Condition":{"StringEquals":{"aws:SourceAccount":"home"},"ArnLike":{"aws:SourceArn":"arn:aws:s3:::box"}}"#,
    );
    assert_eq!(bed.call(&admin, "PUT", "/logs?policy=", &lets).await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box?logging=", &asked(format)).await.code(), "ok");
    let (id, _) = bed.head_of(&admin, "GET", "/box/no%20key").await;

    let end = Instant::now() + Duration::from_secs(60);
    let line = loop {
        let listed =
            bed.call(&admin, "GET", "/logs?list-type=2&prefix=of%2Fhome%2Fus-east-1%2Fbox%2F", "").await;
        let key = listed.text("Key").map(str::to_owned);
        let body = match key {
            Some(key) => bed.call(&admin, "GET", &format!("/logs/{key}"), "").await.body,
            None => String::new(),
        };
        if let Some(line) = body.lines().find(|line| line.contains(&id)) {
            break line.to_owned();
        }
        assert!(Instant::now() < end, "{}", listed.body);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(line.starts_with("home box ["), "{line}");
    assert!(
        line.contains(&format!(
            " arn:aws:iam::home:user/admin {id} REST.GET.OBJECT no%20key \"GET /box/no%20key HTTP/1.1\" 404 NoSuchKey "
        )),
        "{line}"
    );
    assert!(line.contains(" SigV4 - AuthHeader "), "{line}");
    bed.stop().await;
}

/// Makes `box`, whose log goes to `logs`.
async fn prepare(bed: &Bed) {
    let admin = user("admin");
    for bucket in ["/box", "/logs"] {
        assert_eq!(bed.call(&admin, "PUT", bucket, "").await.code(), "ok");
    }
    let lets = policy(
        r#""Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::logs/*""#,
    );
    assert_eq!(bed.call(&admin, "PUT", "/logs?policy=", &lets).await.code(), "ok");
    assert_eq!(bed.call(&admin, "PUT", "/box?logging=", &asked("")).await.code(), "ok");
}

/// Asks for what is not there, and answers the ids of these requests.
async fn ask(bed: &Bed, times: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..times {
        ids.push(bed.head_of(&user("admin"), "GET", "/box/no").await.0);
    }
    ids
}

/// All lines in the objects of `logs`.
async fn lines(bed: &Bed) -> Vec<String> {
    let admin = user("admin");
    let (mut lines, mut after) = (Vec::new(), String::new());
    loop {
        let listed = bed.call(&admin, "GET", &format!("/logs?list-type=2&start-after={after}"), "").await;
        assert_eq!(listed.code(), "ok", "{}", listed.body);
        let keys: Vec<_> =
            listed.body.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
        let Some(last) = keys.last() else { return lines };
        after = last.replace('/', "%2F");
        for key in keys {
            let object = bed.call(&admin, "GET", &format!("/logs/{key}"), "").await;
            assert_eq!(object.code(), "ok", "{key}: {}", object.body);
            lines.extend(object.body.lines().map(str::to_owned));
        }
    }
}

fn count(lines: &[String], id: &str) -> usize {
    lines.iter().filter(|line| line.contains(id)).count()
}

/// Waits until no lines wait in files.
async fn delivered(data: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while waiting(data) > 0 {
        assert!(Instant::now() < end, "{} files wait", waiting(data));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn waiting(data: &Path) -> usize {
    std::fs::read_dir(data.join("log")).unwrap().count()
}

const DATA: &str = "LOGS_DATA";
const EVERY: &str = "LOGS_EVERY_MS";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the process that other tests kill"]
async fn child() {
    let bed = Bed::start_with(|config| {
        config.data = std::env::var(DATA).unwrap().into();
        config.log_every = Duration::from_millis(std::env::var(EVERY).unwrap().parse().unwrap());
    })
    .await;
    std::io::stdout().lock().write_all(format!("\nserving {}\n", bed.host()).as_bytes()).unwrap();
    std::future::pending::<()>().await;
}

/// A store in a process of its own, killed when dropped.
struct Process(Child);

impl Process {
    fn start(data: &Path, every: Duration) -> (Self, Bed) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "logs::child", "--ignored", "--nocapture"]);
        command.env(DATA, data).env(EVERY, every.as_millis().to_string());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let told = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Self(child);
        let host =
            told.map_while(Result::ok).find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        (process, Bed::at(host.expect("the store starts")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

const NEVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn lines_outlive_a_killed_process_and_come_once() {
    let data = tempfile::tempdir().unwrap();
    let (process, bed) = Process::start(data.path(), NEVER);
    prepare(&bed).await;
    let mut ids = ask(&bed, 20).await;
    drop(process);
    assert!(waiting(data.path()) > 0, "nothing was delivered yet");
    // Killed in the middle of deliveries, again and again.
    for round in 1..8 {
        let (process, bed) = Process::start(data.path(), SOON);
        ids.extend(ask(&bed, 10 * round).await);
        drop(process);
    }
    let (_process, bed) = Process::start(data.path(), SOON);
    delivered(data.path()).await;
    let lines = lines(&bed).await;
    for id in &ids {
        assert_eq!(count(&lines, id), 1, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_fails_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let options = std::ffi::CString::new("size=64m").unwrap();
    mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
        .expect("mounting needs root");
    let _mounted = Mounted(folder.path());
    let data = folder.path().join("data");
    let admin = user("admin");

    let (process, bed) = Process::start(&data, NEVER);
    prepare(&bed).await;
    assert_eq!(bed.call(&admin, "PUT", "/filler", "").await.code(), "ok");
    let ids = ask(&bed, 20).await;
    let mut filled = 0;
    for size in [1_000_000, 50_000, 5000, 500] {
        let body = "x".repeat(size);
        while bed.call(&admin, "PUT", &format!("/filler/{filled}"), &body).await.code() == "ok" {
            filled += 1;
            assert!(filled < 1000, "the disk does not fill");
        }
    }
    // What comes now finds next to no room for its line, and is answered as before.
    let last = ask(&bed, 3).await;
    drop(process);
    let (_process, bed) = Process::start(&data, SOON);
    tokio::time::sleep(SOON * 20).await;
    assert_eq!(waiting(&data), 1, "the disk is full");
    assert_eq!(lines(&bed).await, Vec::<String>::new());
    for number in 0..filled {
        assert_eq!(bed.call(&admin, "DELETE", &format!("/filler/{number}"), "").await.code(), "ok");
    }
    delivered(&data).await;
    let lines = lines(&bed).await;
    for id in &ids {
        assert_eq!(count(&lines, id), 1, "{id}");
    }
    assert!(last.iter().all(|id| count(&lines, id) <= 1));
}

/// Unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// A store over this folder that delivers when it stops, and not before.
async fn patient(data: &Path) -> Bed {
    let set = |config: &mut Config| {
        config.data = data.to_owned();
        config.log_every = NEVER;
    };
    Bed::start_with(set).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_delivers_the_lines_of_what_it_waits_for() {
    let data = tempfile::tempdir().unwrap();
    let start = || patient(data.path());
    let bed = start().await;
    prepare(&bed).await;
    let mut ids = ask(&bed, 3).await;
    let mut slow = bed.wire(&user("admin"), "PUT", "/box/slow", &[], 8, b"half").await;
    // The store has begun with it when it answers others that came later.
    ids.extend(ask(&bed, 1).await);
    let stop = tokio::spawn(bed.stop());
    tokio::time::sleep(Duration::from_millis(200)).await;
    slow.write_all(b"done").await.unwrap();
    assert_eq!(answer(slow).await.status, 200);
    stop.await.unwrap();
    assert_eq!(waiting(data.path()), 0);

    let bed = start().await;
    let lines = lines(&bed).await;
    for id in &ids {
        assert_eq!(count(&lines, id), 1, "{id}");
    }
    assert_eq!(count(&lines, "\"PUT /box/slow HTTP/1.1\" 200 "), 1, "{lines:?}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_over_its_quota_loses_its_lines_alone() {
    let data = tempfile::tempdir().unwrap();
    let start = || patient(data.path());
    let bed = start().await;
    let poor = user("poor");
    for bucket in ["/its-box", "/its-logs"] {
        assert_eq!(bed.call(&poor, "PUT", bucket, "").await.code(), "ok");
    }
    assert_eq!(bed.call(&poor, "PUT", "/its-logs/k", "more than ten bytes").await.code(), "QuotaExceeded");
    let lets = policy(
        r#""Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::its-logs/*""#,
    );
    assert_eq!(bed.call(&poor, "PUT", "/its-logs?policy=", &lets).await.code(), "ok");
    let document = asked("").replace(">logs<", ">its-logs<");
    assert_eq!(bed.call(&poor, "PUT", "/its-box?logging=", &document).await.code(), "ok");
    bed.head_of(&poor, "GET", "/its-box/no").await;
    prepare(&bed).await;
    let ids = ask(&bed, 2).await;
    bed.stop().await;
    assert_eq!(waiting(data.path()), 0, "what is refused is not kept");

    let bed = start().await;
    let listed = bed.call(&poor, "GET", "/its-logs?list-type=2", "").await;
    assert_eq!(listed.text("KeyCount"), Some("0"), "{}", listed.body);
    let lines = lines(&bed).await;
    assert!(ids.iter().all(|id| count(&lines, id) == 1), "{lines:?}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_made_anew_under_the_name_gets_no_lines() {
    let data = tempfile::tempdir().unwrap();
    let start = || patient(data.path());
    let bed = start().await;
    prepare(&bed).await;
    ask(&bed, 3).await;
    assert_eq!(bed.call(&user("admin"), "DELETE", "/logs", "").await.code(), "ok");
    assert_eq!(bed.call(&user("other"), "PUT", "/logs", "").await.code(), "ok");
    // Nobody lets these in.
    ask(&bed, 3).await;
    bed.stop().await;
    assert_eq!(waiting(data.path()), 0, "what is refused is not kept");

    let bed = start().await;
    let listed = bed.call(&user("other"), "GET", "/logs?list-type=2", "").await;
    assert_eq!((listed.code(), listed.text("KeyCount")), ("ok", Some("0")), "{}", listed.body);
    bed.stop().await;
}

#[tokio::test]
async fn only_the_owner_says_where_lines_go() {
    let bed = Bed::start().await;
    prepare(&bed).await;
    let lets = policy(
        r#""Effect":"Allow","Principal":"*","Action":"s3:*BucketLogging","Resource":"arn:aws:s3:::box""#,
    );
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy=", &lets).await.code(), "ok");
    assert_eq!(bed.call(&user("other"), "GET", "/box?logging=", "").await.code(), "ok");
    for document in [asked(""), "<BucketLoggingStatus/>".into()] {
        assert_eq!(bed.call(&user("other"), "PUT", "/box?logging=", &document).await.code(), "AccessDenied");
        assert_eq!(bed.call(&user("admin"), "PUT", "/box?logging=", &document).await.code(), "ok");
    }
    bed.stop().await;
}

#[tokio::test]
async fn refused_signatures_and_redirects_have_their_lines() {
    let bed = Bed::start_with(|config| {
        config.log_every = Duration::from_millis(100);
        config.website_domains = vec!["web.test".into()];
    })
    .await;
    prepare(&bed).await;
    let admin = user("admin");
    let site = "<WebsiteConfiguration><RedirectAllRequestsTo><HostName>h.test</HostName></RedirectAllRequestsTo></WebsiteConfiguration>";
    assert_eq!(bed.call(&admin, "PUT", "/box?website=", site).await.code(), "ok");
    let mut wrong = admin.clone();
    wrong.secret.push('x');
    assert_eq!(bed.call(&wrong, "GET", "/box/a%20b", "").await.code(), "SignatureDoesNotMatch");
    assert_eq!(bed.call(&user("nobody"), "GET", "/box?acl=", "").await.code(), "InvalidAccessKeyId");
    let at = stamp(-3600);
    let old = bed.signed(&admin, "PUT", "/box/old", &[], "UNSIGNED-PAYLOAD", (&at, "us-east-1"));
    let old: Vec<(&str, &str)> = old.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(bed.raw("PUT", "/box/old", &old, "").await.code(), "RequestTimeTooSkewed");
    let bad = [("authorization", "Basic abc")];
    assert_eq!(bed.raw("GET", "/box/bad", &bad, "").await.code(), "InvalidArgument");
    let plain = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let page =
        plain.get(format!("http://{}/page", bed.host())).header("host", "box.web.test").send().await.unwrap();
    assert_eq!(page.status().as_u16(), 301);
    let end = Instant::now() + Duration::from_secs(60);
    let wanted = [
        " REST.GET.OBJECT a%20b \"GET /box/a%20b HTTP/1.1\" 403 SignatureDoesNotMatch ",
        " REST.GET.ACL - \"GET /box?acl= HTTP/1.1\" 403 InvalidAccessKeyId ",
        " REST.PUT.OBJECT old \"PUT /box/old HTTP/1.1\" 403 RequestTimeTooSkewed ",
        " REST.GET.OBJECT bad \"GET /box/bad HTTP/1.1\" 400 InvalidArgument ",
        " REST.GET.OBJECT page \"GET /page HTTP/1.1\" 301 - ",
    ];
    loop {
        let lines = lines(&bed).await;
        if wanted.iter().all(|wanted| count(&lines, wanted) == 1) {
            let anonymous = |line: &&String| line.contains("] 127.0.0.1 - ");
            assert!(lines.iter().filter(anonymous).count() >= wanted.len(), "{lines:?}");
            break;
        }
        assert!(Instant::now() < end, "{lines:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bed.stop().await;
}

#[tokio::test]
async fn lines_stay_with_the_owner_of_their_bucket() {
    let bed = Bed::start().await;
    prepare(&bed).await;
    let other = user("other");
    assert_eq!(bed.call(&other, "PUT", "/its", "").await.code(), "ok");
    // The policy of `logs` lets anyone's logs in.
    let answer = bed.call(&other, "PUT", "/its?logging=", &asked("")).await;
    assert_eq!((answer.status, answer.code()), (400, "InvalidTargetBucketForLogging"), "{}", answer.body);
    bed.stop().await;
}

#[tokio::test]
async fn names_with_spaces_are_one_field() {
    let bed = Bed::start_with(|config| config.log_every = Duration::from_millis(100)).await;
    prepare(&bed).await;
    let by = user("M. Tester");
    let (id, _) = bed.head_of(&by, "GET", "/box/no").await;
    let end = Instant::now() + Duration::from_secs(60);
    let line = loop {
        if let Some(line) = lines(&bed).await.into_iter().find(|line| line.contains(&id)) {
            break line;
        }
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(line.contains(&format!(" arn:aws:iam::home:user/M.+Tester {id} ")), "{line}");
    bed.stop().await;
}

#[tokio::test]
async fn a_delete_of_many_names_each() {
    let bed = Bed::start_with(|config| config.log_every = Duration::from_millis(100)).await;
    prepare(&bed).await;
    let denies = policy(
        r#""Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::box/kept""#,
    );
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?policy=", &denies).await.code(), "ok");
    let many =
        "<Delete><Quiet>true</Quiet><Object><Key>a b</Key></Object><Object><Key>kept</Key></Object></Delete>";
    let sum = object::checksum::md5_base64(many.as_bytes());
    let headers = [("content-md5", sum.as_str())];
    let told = bed.call_with(&user("member"), "POST", "/box?delete=", &headers, many).await;
    assert_eq!((told.status, told.text("Key")), (200, Some("kept")), "{}", told.body);
    let end = Instant::now() + Duration::from_secs(60);
    let lines = loop {
        let lines = lines(&bed).await;
        if lines
            .iter()
            .any(|line| line.contains(" REST.POST.MULTI_OBJECT_DELETE - \"POST /box?delete= HTTP/1.1\" 200 "))
        {
            break lines;
        }
        assert!(Instant::now() < end, "{lines:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(count(&lines, " BATCH.DELETE.OBJECT a%20b - 204 - - - - - - - - "), 1, "{lines:?}");
    assert_eq!(count(&lines, " BATCH.DELETE.OBJECT kept - 403 AccessDenied - - - - - - - "), 1, "{lines:?}");
    bed.stop().await;
}

#[tokio::test]
async fn prefixes_are_bounded() {
    let bed = Bed::start().await;
    prepare(&bed).await;
    let long = asked("").replace("of/", &"x".repeat(600));
    assert_eq!(bed.call(&user("admin"), "PUT", "/box?logging=", &long).await.code(), "InvalidArgument");
    bed.stop().await;
}

#[tokio::test]
async fn logs_are_sealed_where_their_bucket_says_so() {
    let bed = Bed::start_with(|config| config.log_every = Duration::from_millis(100)).await;
    prepare(&bed).await;
    let admin = user("admin");
    let rule = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256</SSEAlgorithm></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
    assert_eq!(bed.call(&admin, "PUT", "/logs?encryption=", rule).await.code(), "ok");
    ask(&bed, 1).await;
    let end = Instant::now() + Duration::from_secs(60);
    let key = loop {
        let listed = bed.call(&admin, "GET", "/logs?list-type=2", "").await;
        // The last one may be from before the rule.
        let found =
            listed.body.rsplit_once("<Key>").map(|(_, rest)| rest.split('<').next().unwrap().to_owned());
        if let Some(key) = found
            && bed.call(&admin, "GET", &format!("/logs/{key}"), "").await.body.contains("GET /box/no ")
        {
            break key;
        }
        assert!(Instant::now() < end, "{}", listed.body);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let target = format!("/logs/{key}");
    let headers = bed.signed(&admin, "HEAD", &target, &[], "UNSIGNED-PAYLOAD", (&stamp(0), "us-east-1"));
    let mut head = reqwest::Client::new().head(format!("http://{}{target}", bed.host()));
    for (name, value) in headers {
        head = head.header(name, value);
    }
    let answered = head.send().await.unwrap();
    assert_eq!(answered.headers()["x-amz-server-side-encryption"], "AES256", "{answered:?}");
    bed.stop().await;
}
