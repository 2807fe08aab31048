//! One machine, and one automator that works on it.

use std::path::PathBuf;

use provision::automator::{Automator, Job};
use provision::machine::Machine;
use provision::resource::Resources;
use provision::ssh::Pool;
use provision::task::{Fault, Report, Task};
use serde_json::{Value, json};

use crate::bed::Sshd;

pub struct World<A> {
    pub sshd: Sshd,
    pub pool: Pool,
    automator: A,
    resources: tempfile::TempDir,
}

impl<A: Automator> World<A> {
    pub fn new(automator: A) -> Self {
        Self { sshd: Sshd::start(), pool: Pool::new(4), automator, resources: tempfile::tempdir().unwrap() }
    }

    /// Where a resource lies: `KIND/NAME`.
    pub fn staged(&self, path: &str) -> PathBuf {
        let path = self.resources.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Stages an archive of files.
    pub fn archive(&self, path: &str, files: &[(&str, &str)]) {
        let file = std::fs::File::create(self.staged(path)).unwrap();
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o600);
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
    }

    /// Machines of tests share one file system.
    pub fn task_id(&self) -> String {
        format!("c-{}-7", self.sshd.port)
    }

    pub fn task(&self, verb: &str, fields: Value) -> Task {
        serde_json::from_value(json!({
            "taskId": self.task_id(), "jobId": "c-1", "clusterId": "c-1", "taskName": verb, "nodeId": "n-1",
            "config": {
                "hostname": "web1-1000.local", "ipaddresses": {"access_v4": "127.0.0.1"}, "ssh-port": self.sshd.port,
                "ssh-auth": {"user": "root", "key": self.sshd.identity.private_text().as_str()},
                "ssh_host_keys": {"ed25519": self.sshd.host_key()},
                "provider": {"provisioner": {"password": "secret"}},
                "service": {"name": "web", "action": {"type": self.automator.name(), "fields": fields}},
                "cluster": {"web": {"port": 80, "text": "{{ 6 * 7 }} 'it'"}}
            }
        }))
        .unwrap()
    }

    pub async fn act(&self, verb: &str, fields: Value) -> Result<Report, Fault> {
        let task = self.task(verb, fields);
        let machine = Machine::of(&task, &self.pool)?;
        let resources = Resources::new(self.resources.path().to_owned());
        let job = Job { machine: &machine, task: &task, resources: &resources };
        self.automator.bootstrap(&job).await?;
        self.act_with(&machine, &task).await
    }

    /// Without bootstrap, on a machine as it was known before.
    pub async fn act_with(&self, machine: &Machine, task: &Task) -> Result<Report, Fault> {
        let resources = Resources::new(self.resources.path().to_owned());
        let job = Job { machine, task, resources: &resources };
        self.automator.act(&job, task.action().unwrap()).await
    }
}
