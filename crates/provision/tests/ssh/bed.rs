//! An sshd of Debian's package, with keys and a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use provision::ssh::{Auth, HostKey, Identity, Pin, Target};

pub struct Sshd {
    child: Child,
    folder: tempfile::TempDir,
    address: String,
    pub port: u16,
    pub identity: Identity,
}

impl Sshd {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1", Identity::from_seed(&rand::random()))
    }

    /// On another address of loopback, letting this key in.
    pub fn start_at(address: &str, identity: Identity) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        host_key(folder.path());
        fs::write(folder.path().join("authorized"), identity.public_text() + "\n").unwrap();
        let at = folder.path().display();
        let config = format!(
            "Port {port}\nListenAddress {address}\nHostKey {at}/host\nPidFile none\nAuthorizedKeysFile {at}/authorized {at}/home/.ssh/authorized_keys\n\
             ForceCommand {at}/shell\nSetEnv HOME={at}/home\n\
             UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxSessions 10\n"
        );
        fs::write(folder.path().join("config"), config).unwrap();
        // Commands run in a home of their own, so that the keys of this machine's root stay as they are and what its
        // shell does first is not waited for.
        fs::create_dir(folder.path().join("home")).unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let shell = format!(
            "#!/bin/sh\nHOME={at}/home; PATH={at}/bin:$PATH; export HOME PATH; cd \"$HOME\" && eval \"$SSH_ORIGINAL_COMMAND\"\n"
        );
        fs::write(folder.path().join("shell"), shell).unwrap();
        fs::set_permissions(folder.path().join("shell"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let child = run(folder.path());
        let sshd = Self { child, folder, address: address.to_owned(), port, identity };
        sshd.wait();
        sshd
    }

    fn wait(&self) {
        let began = Instant::now();
        while std::net::TcpStream::connect((self.address.as_str(), self.port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The same machine with another host key, as if it had been replaced.
    pub fn replace(&mut self) {
        self.stop();
        host_key(self.folder.path());
        self.child = run(self.folder.path());
        self.wait();
    }

    /// The same machine, back again.
    pub fn revive(&mut self) {
        self.stop();
        self.child = run(self.folder.path());
        self.wait();
    }

    /// Falls silent, with all its connections, but stays.
    pub fn freeze(&self) {
        for pid in self.processes() {
            let _ = Command::new("kill").args(["-STOP", &pid]).status();
        }
    }

    fn processes(&self) -> Vec<String> {
        let main = self.child.id().to_string();
        let children = fs::read_to_string(format!("/proc/{main}/task/{main}/children")).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).chain([main]).collect()
    }

    pub fn host_key(&self) -> HostKey {
        let text = fs::read_to_string(self.folder.path().join("host.pub")).unwrap();
        text.try_into().unwrap()
    }

    /// The keys it lets in, also of the user's own file.
    pub fn authorized(&self) -> String {
        fs::read_to_string(self.folder.path().join("home/.ssh/authorized_keys")).unwrap_or_default()
    }

    pub fn target(&self, pin: Pin) -> Target {
        let auth = Auth::Key(self.identity.clone());
        Target { host: self.address.clone(), port: self.port, user: "root".into(), auth, pin }
    }

    pub fn known(&self) -> Target {
        self.target(Pin::Known(vec![self.host_key()]))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Also ends the connections it holds.
    pub fn stop(&mut self) {
        for pid in self.processes() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn host_key(folder: &Path) {
    let key = Identity::from_seed(&rand::random());
    fs::write(folder.join("host"), key.private_text().as_str()).unwrap();
    fs::set_permissions(folder.join("host"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(folder.join("host.pub"), key.public_text()).unwrap();
}

fn run(folder: &Path) -> Child {
    let mut command = Command::new("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f"]).arg(folder.join("config"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("Debian's package openssh-server is there")
}
