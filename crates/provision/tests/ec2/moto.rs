//! moto, with a user whose key it asks for. It ends with the test, because it reads our end of a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use serde_json::Value;

const SERVE: &str = r#"
import base64, json, logging, os, sys
# So many calls are let in without a key: those that make the user.
os.environ['INITIAL_NO_AUTH_ACTION_COUNT'] = '3'
import boto3
from moto.server import ThreadedMotoServer
logging.getLogger('werkzeug').setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
url = f'http://127.0.0.1:{port}'
def client(name, access='x', secret='x'):
    return boto3.client(name, endpoint_url=url, region_name='us-east-1', aws_access_key_id=access, aws_secret_access_key=secret)
iam = client('iam')
iam.create_user(UserName='banyan')
policy = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Action': 'ec2:*', 'Resource': '*'}]}
iam.put_user_policy(UserName='banyan', PolicyName='all', PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName='banyan')['AccessKey']
print(json.dumps({'url': url, 'access': key['AccessKeyId'], 'secret': key['SecretAccessKey']}), flush=True)
ec2 = client('ec2', key['AccessKeyId'], key['SecretAccessKey'])
for _ in sys.stdin:
    found = []
    for reservation in ec2.describe_instances()['Reservations']:
        for one in reservation['Instances']:
            data = ec2.describe_instance_attribute(InstanceId=one['InstanceId'], Attribute='userData')
            found.append({
                'State': one['State']['Name'], 'PrivateIpAddress': one.get('PrivateIpAddress'),
                'Tags': {tag['Key']: tag['Value'] for tag in one.get('Tags', [])},
                'UserData': base64.b64decode(data['UserData'].get('Value', '')).decode(),
            })
    print(json.dumps(found), flush=True)
"#;

pub struct Moto {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub endpoint: String,
    pub access: String,
    pub secret: String,
}

fn run(command: &mut Command) {
    let output = command.output().expect("python3 is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Installed once.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto-ec2");
        let ready = home.join("ready");
        if !ready.exists() {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
            let words = ["install", "-q", "--disable-pip-version-check", "moto[server,ec2,iam]==5.2.5"];
            run(Command::new(home.join("bin/pip")).args(words));
            std::fs::write(&ready, "").expect("the folder is ours");
        }
        home.join("bin/python")
    })
}

impl Moto {
    pub fn start() -> Self {
        let mut child = Command::new(python())
            .args(["-c", SERVE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("moto starts");
        let stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = line(&mut stdout);
        let text = |name: &str| said[name].as_str().expect("moto says it").to_owned();
        let (endpoint, access, secret) = (text("url"), text("access"), text("secret"));
        Self { child, pipes: Mutex::new((stdin, stdout)), endpoint, access, secret }
    }

    /// All instances, also those that are gone, as Amazon's own library sees them.
    pub fn instances(&self) -> Vec<Value> {
        let mut pipes = self.pipes.lock().unwrap();
        writeln!(pipes.0, "instances").unwrap();
        line(&mut pipes.1).as_array().unwrap().clone()
    }
}

fn line(from: &mut impl BufRead) -> Value {
    let mut text = String::new();
    from.read_line(&mut text).unwrap();
    serde_json::from_str(&text).expect("moto says one document a line")
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
