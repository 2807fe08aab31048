//! Buckets and objects from the command line, and in REST.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::terminal::Terminal;
use crate::support::{Cloud, good, text, until};

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn objects_go_there_and_come_back() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let large: Vec<u8> = (0..(70 << 20)).map(|n: u32| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect();
    write(&at("cat.txt"), b"meow");
    write(&at("large.bin"), &large);

    cloud.good(&["bucket", "create", "cli-photos"]);
    let (cat, big) = (at("cat.txt"), at("large.bin"));
    cloud.good(&["object", "put", cat.to_str().unwrap(), big.to_str().unwrap(), "cli-photos/2026/"]);
    let listed = cloud.json(&["object", "ls", "cli-photos/2026/"]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap()).collect();
    assert_eq!(names, ["2026/cat.txt", "2026/large.bin"]);
    assert!(cloud.good(&["object", "ls", "cli-photos"]).contains("2026/"));

    let back = at("back.bin");
    cloud.good(&["object", "get", "cli-photos/2026/large.bin", back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == large, "what came back is not what was sent");
    assert_eq!(cloud.good(&["object", "get", "cli-photos/2026/cat.txt", "-"]), "meow");

    let fed = cloud.fed(&["object", "put", "-", "cli-photos/piped"], b"from a pipe");
    assert!(fed.status.success());
    assert_eq!(cloud.good(&["object", "get", "cli-photos/piped", "-"]), "from a pipe");

    let link = cloud.good(&["object", "presign", "cli-photos/2026/cat.txt", "--expires", "5m"]);
    assert_eq!(good(Command::new("curl").args(["-sSf", link.trim()])), "meow");
    let shown = cloud.json(&["bucket", "get", "cli-photos"]);
    assert_eq!(shown["objects"], 3, "{shown}");

    let refused = cloud.bad(&["bucket", "delete", "cli-photos"]);
    assert!(refused.contains("--force"), "{refused}");
    cloud.good(&["object", "rm", "--recursive", "cli-photos/2026/"]);
    cloud.bad(&["object", "get", "cli-photos/2026/cat.txt", "-"]);
    cloud.bad(&["object", "rm", "cli-photos/2026/cat.txt"]);
    cloud.good(&["bucket", "delete", "--force", "cli-photos"]);
    cloud.bad(&["bucket", "get", "cli-photos"]);
}

#[test]
fn a_folder_and_a_prefix_become_alike() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    write(&site.join("index.html"), b"<h1>hello</h1>");
    write(&site.join("img/a.svg"), b"<svg/>");
    let from = site.to_str().unwrap();
    cloud.good(&["bucket", "create", "cli-site"]);
    cloud.good(&["object", "sync", from, "s3://cli-site/www", "--dry-run"]);
    assert_eq!(cloud.json(&["object", "ls", "-r", "cli-site"]).as_array().unwrap().len(), 0);
    for number in 0..40 {
        write(&site.join(format!("many/{number}.txt")), format!("page {number}").as_bytes());
    }
    cloud.good(&["object", "sync", from, "s3://cli-site/www"]);
    let link = cloud.good(&["object", "presign", "cli-site/www/index.html"]);
    let kind =
        good(Command::new("curl").args(["-sSf", "-o", "/dev/null", "-w", "%{content_type}", link.trim()]));
    assert_eq!(kind, "text/html; charset=utf-8");
    std::fs::remove_dir_all(site.join("img")).unwrap();
    write(&site.join("new.txt"), b"new");
    cloud.good(&["object", "sync", from, "s3://cli-site/www", "--delete"]);
    let back = folder.path().join("back");
    cloud.good(&["object", "sync", "s3://cli-site/www", back.to_str().unwrap()]);
    good(Command::new("diff").arg("-r").arg(&site).arg(&back));
    cloud.bad(&["object", "sync", from, back.to_str().unwrap()]);

    // Other bytes, as many as before and of about the same time, are found on both sides.
    let write_near = |file: &Path, bytes: &[u8], after_ms: i64| {
        let listed = cloud.json(&["object", "ls", "cli-site/www/new.txt"]);
        let at: jiff::Timestamp = listed[0]["modified"].as_str().unwrap().parse().unwrap();
        let at = at + jiff::SignedDuration::from_millis(after_ms);
        write(file, bytes);
        let file = std::fs::File::options().write(true).open(file).unwrap();
        file.set_modified(std::time::SystemTime::from(at)).unwrap();
    };
    write_near(&site.join("new.txt"), b"NEW", 0);
    cloud.good(&["object", "sync", from, "s3://cli-site/www"]);
    assert_eq!(cloud.good(&["object", "get", "cli-site/www/new.txt", "-"]), "NEW");
    write_near(&back.join("new.txt"), b"old", 500);
    // What is of no use in a folder does not keep the rest from it.
    assert!(cloud.fed(&["object", "put", "-", "cli-site/www//odd"], b"odd").status.success());
    let told = cloud.bad(&["object", "sync", "s3://cli-site/www", back.to_str().unwrap()]);
    assert!(told.contains("1 of the objects"), "{told}");
    assert_eq!(std::fs::read(back.join("new.txt")).unwrap(), b"NEW");
    std::os::unix::fs::symlink("nowhere", site.join("dangling")).unwrap();
    cloud.good(&["object", "sync", from, "s3://cli-site/www"]);
    cloud.good(&["bucket", "delete", "--force", "cli-site"]);
}

/// Whoever waits at a terminal sees a bar, the whole, and how fast it goes; programs see none of it.
#[test]
fn transfers_have_bars() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    let (large, back) = (tree.join("large"), folder.path().join("back"));
    write(&large, b"");
    std::fs::File::options().write(true).open(&large).unwrap().set_len(300 << 20).unwrap();
    cloud.good(&["bucket", "create", "cli-bars"]);
    let shows = |words: &[&str]| {
        let mut terminal = Terminal::start(cloud.command(words).env("TERM", "xterm"), 40, 120);
        assert!(terminal.end().success(), "{}", terminal.seen());
        let seen = terminal.seen();
        for part in ["[", "] ", "% ", " of 300.0MiB, ", "iB/s"] {
            assert!(seen.contains(part), "{words:?} shows no '{part}': {seen}");
        }
        assert!(seen.contains('='), "{words:?} fills no bar: {seen}");
    };
    let (tree, large, back) = (tree.to_str().unwrap(), large.to_str().unwrap(), back.to_str().unwrap());
    shows(&["object", "put", large, "cli-bars/put/"]);
    shows(&["object", "get", "cli-bars/put/large", back]);
    shows(&["object", "sync", tree, "s3://cli-bars/tree"]);
    shows(&["object", "sync", "s3://cli-bars/tree", folder.path().join("synced").to_str().unwrap()]);
    good(Command::new("cmp").args([large, back]));
    let plain = cloud.run(&["object", "get", "cli-bars/put/large", back]);
    assert!(!text(&plain.stderr).contains("] "), "{}", text(&plain.stderr));
    cloud.good(&["bucket", "delete", "--force", "cli-bars"]);
}

#[test]
fn programs_are_told_what_was_done() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let cat = folder.path().join("cat.txt");
    write(&cat, b"meow");
    let cat = cat.to_str().unwrap();
    cloud.good(&["bucket", "create", "cli-told"]);
    assert!(text(&cloud.run(&["bucket", "create", "cli-told"]).stderr).contains("was there already"));
    assert!(cloud.good(&["object", "ls", "-o", "name"]).lines().any(|line| line == "cli-told"));

    // Steps of dots are part of the key, wherever it goes.
    let key = "cli-told/a/../cat.txt";
    let sent = cloud.json(&["object", "put", cat, key]);
    assert_eq!((&sent[0]["key"], &sent[0]["bytes"]), (&"a/../cat.txt".into(), &4.into()), "{sent}");
    let link = cloud.json(&["object", "presign", key]);
    assert_eq!(good(Command::new("curl").args(["-sSf", link["url"].as_str().unwrap()])), "meow");
    let back = folder.path().join("back");
    let got = cloud.json(&["object", "get", key, back.to_str().unwrap()]);
    assert_eq!(got[0]["file"], back.to_str().unwrap());
    assert_eq!(cloud.good(&["object", "rm", key, "-o", "name"]), format!("{key}\n"));
    assert!(cloud.bad(&["object", "put", cat, "cli-told/.."]).contains("address"));
    assert_eq!(
        cloud.json(&["bucket", "endpoint"])["endpoint"],
        cloud.good(&["bucket", "endpoint"]).trim_end()
    );

    let missing = cloud.bad(&["object", "put", cat, "cli-nowhere/x"]);
    assert!(missing.contains("cli-nowhere/x") && missing.contains("NoSuchBucket"), "{missing}");
    let rules = b"Rules: [{ID: a, Status: Enabled, Filter: {Prefix: a}, Expiration: {Days: 0}}]";
    let refused = cloud.fed(&["bucket", "lifecycle", "set", "cli-told", "-"], rules);
    assert!(text(&refused.stderr).contains("'Days'"), "{}", text(&refused.stderr));
    cloud.good(&["bucket", "delete", "cli-told"]);
}

#[test]
fn an_interrupted_put_leaves_nothing_open() {
    let cloud = Cloud::shared();
    cloud.good(&["bucket", "create", "cli-cut"]);
    let open = || cloud.json(&["bucket", "get", "cli-cut"])["upload_bytes"].clone();
    let nothing = open();
    let mut command = cloud.command(&["object", "put", "-", "cli-cut/endless"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![7; 17 << 20]).unwrap();
    until("a part is there", || (open() != nothing).then_some(()));
    good(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    assert_eq!(open(), nothing);
    drop(input);
    cloud.good(&["bucket", "delete", "cli-cut"]);
}

#[test]
fn a_quota_stops_what_is_too_much() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    write(&file, &vec![1; 40_000]);
    let file = file.to_str().unwrap();
    cloud.good(&["bucket", "create", "cli-quota"]);
    cloud.good(&["bucket", "quota", "cli-quota", "64KiB"]);
    cloud.good(&["object", "put", file, "cli-quota/one"]);
    let refused = cloud.bad(&["object", "put", file, "cli-quota/two"]);
    assert!(refused.to_lowercase().contains("quota"), "{refused}");
    cloud.good(&["bucket", "quota", "cli-quota", "none"]);
    cloud.good(&["object", "put", file, "cli-quota/two"]);
    cloud.good(&["bucket", "delete", "--force", "cli-quota"]);
}

#[test]
fn a_neighbour_sees_no_bucket() {
    let cloud = Cloud::shared();
    cloud.good(&["bucket", "create", "cli-private"]);
    cloud.good(&["tenant", "create", "s3-neighbour"]);
    let words = ["--tenant", "s3-neighbour", "bucket", "get", "cli-private"];
    let missing = cloud.bad(&words);
    assert!(missing.contains("cli-private"), "{missing}");
    assert!(!cloud.good(&["--tenant", "s3-neighbour", "bucket", "list"]).contains("cli-private"));
    cloud.good(&["bucket", "delete", "cli-private"]);
    cloud.good(&["tenant", "delete", "s3-neighbour"]);
}

#[test]
fn an_instance_reaches_the_store() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seed");
    write(&file, b"for an instance");
    cloud.good(&["bucket", "create", "cli-inside"]);
    cloud.good(&["object", "put", file.to_str().unwrap(), "cli-inside/seed"]);
    cloud.create("s3-asker", &[], "sleep 100000");
    let link = cloud.good(&["object", "presign", "cli-inside/seed", "--inside", "--expires", "7d"]);
    let fetched = cloud.exec("s3-asker", &format!("wget -q -O - '{}'", link.trim()));
    assert_eq!(text(&fetched.stdout), "for an instance", "{}", text(&fetched.stderr));
    let inside = cloud.good(&["bucket", "endpoint", "--inside"]);
    let gateway = cloud.exec("s3-asker", "ip route | awk '/^default/ { print $3 }'");
    assert!(inside.contains(&format!("//{}:", text(&gateway.stdout).trim())), "{inside}");
    // Nothing else of the host is open to it.
    let port = cloud.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let address = text(&gateway.stdout).trim().to_owned();
    let closed = cloud.exec("s3-asker", &format!("wget -T 3 -q -O - http://{address}:{port}/v1/health"));
    assert!(!closed.status.success(), "REST answered an instance");
    cloud.good(&["instance", "delete", "s3-asker"]);
    cloud.good(&["bucket", "delete", "--force", "cli-inside"]);
}

#[test]
fn usage_of_buckets_is_part_of_the_quota() {
    let cloud = Cloud::shared();
    cloud.good(&["tenant", "create", "s3-user"]);
    let mine = |words: &[&'static str]| [&["--tenant", "s3-user"][..], words].concat();
    cloud.good(&mine(&["bucket", "create", "cli-usage"]));
    assert!(cloud.fed(&mine(&["object", "put", "-", "cli-usage/k"]), &[7; 2048]).status.success());
    let report = cloud.json(&["quota", "get", "s3-user"]);
    assert_eq!((&report["usage"]["objects"], &report["usage"]["object_bytes"]), (&1.into(), &"2KiB".into()));
    assert!(cloud.good(&["quota", "list"]).contains("2KiB, no limit"));
    cloud.good(&mine(&["bucket", "delete", "--force", "cli-usage"]));
    cloud.good(&["tenant", "delete", "s3-user"]);
}

#[test]
fn settings_are_documents() {
    let cloud = Cloud::shared();
    let folder = tempfile::tempdir().unwrap();
    cloud.good(&["bucket", "create", "cli-set"]);
    let set = |noun: &str, text: &str| {
        let file = folder.path().join(noun);
        write(&file, text.as_bytes());
        cloud.good(&["bucket", noun, "set", "cli-set", file.to_str().unwrap()]);
        cloud.json(&["bucket", noun, "get", "cli-set"])
    };
    let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::cli-set/*"}]}"#;
    assert_eq!(set("policy", policy)["Statement"][0]["Action"], "s3:GetObject");
    assert!(cloud.fed(&["object", "put", "-", "cli-set/page"], b"hello").status.success());
    let page = format!("{}/cli-set/page", cloud.good(&["bucket", "endpoint"]).trim());
    assert_eq!(good(Command::new("curl").args(["-sSf", &page])), "hello");

    let rules = "Rules:\n- {ID: old, Status: Enabled, Filter: {Prefix: logs/}, Expiration: {Days: 30}}\n";
    assert_eq!(set("lifecycle", rules)["Rules"][0]["Expiration"]["Days"], 30);
    let site =
        "<WebsiteConfiguration><IndexDocument><Suffix>i.html</Suffix></IndexDocument></WebsiteConfiguration>";
    assert_eq!(set("website", site)["IndexDocument"]["Suffix"], "i.html");
    let cors = r#"{"CORSRules":[{"AllowedMethods":["GET"],"AllowedOrigins":["http://a","http://b"]}]}"#;
    assert_eq!(set("cors", cors)["CORSRules"][0]["AllowedOrigins"][1], "http://b");
    let sealed = r#"{"Rules":[{"ApplyServerSideEncryptionByDefault":{"SSEAlgorithm":"AES256"}}]}"#;
    let sealed = set("encryption", sealed);
    assert_eq!(sealed["Rules"][0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"], "AES256");
    assert_eq!(set("public-access", "BlockPublicPolicy: true")["BlockPublicPolicy"], true);

    // What is printed can be set again, by a pipe too.
    let shown = cloud.good(&["bucket", "lifecycle", "get", "cli-set"]);
    assert!(shown.starts_with("Rules:"), "{shown}");
    assert!(cloud.fed(&["bucket", "lifecycle", "set", "cli-set", "-"], shown.as_bytes()).status.success());
    let open = cloud.fed(&["bucket", "policy", "set", "cli-set", "-"], policy.as_bytes());
    assert!(text(&open.stderr).contains("AccessDenied"), "{}", text(&open.stderr));
    let spoiled = cloud.fed(&["bucket", "lifecycle", "set", "cli-set", "-"], b"Rules: [{Status: Perhaps}]");
    assert!(!spoiled.status.success(), "{}", text(&spoiled.stdout));
    let list = cloud.fed(&["bucket", "cors", "set", "cli-set", "-"], b"- 1");
    assert!(text(&list.stderr).contains("named fields"), "{}", text(&list.stderr));

    for noun in ["policy", "lifecycle", "website", "cors", "public-access"] {
        cloud.good(&["bucket", noun, "delete", "cli-set"]);
        let gone = cloud.bad(&["bucket", noun, "get", "cli-set"]);
        assert!(gone.contains("NoSuch"), "{noun}: {gone}");
    }
    assert!(cloud.good(&["bucket", "versioning", "cli-set"]).contains("off"));
    cloud.good(&["bucket", "versioning", "cli-set", "on"]);
    assert!(!cloud.good(&["bucket", "versioning", "cli-set"]).contains("off"));
    cloud.good(&["bucket", "delete", "--force", "cli-set"]);
}
