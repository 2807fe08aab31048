//! A PostgreSQL server for tests, started from Debian's package in a directory
//! of its own and gone with the test, however that ends: its supervisor stops it
//! and removes the directory as soon as the pipe from the test closes.

use std::io::{BufRead, BufReader, Error, Result};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Where Debian puts one directory per major version.
const VERSIONS: &str = "/usr/lib/postgresql";
const PACKAGE: &str = "install Debian's package postgresql";

// `$1` binaries, `$2` directory, `$3` fsync on or off. It outlives a killed
// test because it leads its own process group.
const SUPERVISOR: &str = r#"
trap '' INT TERM HUP
bin=$1; dir=$2
cd "$dir" || exit 1
finish() { cd /; rm -rf "$dir"; exit; }
"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 \
  || { tail -n 3 "$dir/log" | tr '\n' ' '; echo; finish; }
cat >>"$dir/data/postgresql.conf" <<EOF
unix_socket_directories = '$dir'
listen_addresses = ''
fsync = $3
max_connections = 100
shared_buffers = 16MB
EOF
"$bin/postgres" -D "$dir/data" </dev/null >>"$dir/log" 2>&1 &
server=$!
until "$bin/pg_isready" -q -h "$dir"; do
  kill -0 $server 2>/dev/null || { tail -n 3 "$dir/log" | tr '\n' ' '; echo; finish; }
  sleep 0.05
done
echo ready
cat >/dev/null
"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1
wait $server
finish
"#;

/// A running server. Tests of one binary share it and each makes its own database.
pub struct Postgres {
    supervisor: Child,
    binaries: PathBuf,
    directory: PathBuf,
    databases: AtomicU64,
}

impl Postgres {
    /// The server that tests running at the same time share; it stops with the last holder.
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start(false)?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    /// A server of one's own. `durable` makes it sync its disk, as a real one does.
    pub fn start(durable: bool) -> Result<Self> {
        let binaries = binaries()?;
        let directory = directory_make()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SUPERVISOR, "sh"]).arg(&binaries).arg(&directory);
        command.arg(if durable { "on" } else { "off" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        if is_root()? {
            let (uid, gid) = postgres_user()?;
            chown(&directory, Some(uid), Some(gid))?;
        }
        as_postgres(&mut command)?;
        let mut supervisor = command.spawn()?;
        let mut line = String::new();
        let stdout = supervisor.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line)?;
        let server = Self { supervisor, binaries, directory, databases: AtomicU64::new(0) };
        match line.trim() {
            "ready" => Ok(server),
            reason => Err(Error::other(format!("PostgreSQL did not start: {reason}"))),
        }
    }

    /// Takes the server away as a crash does, until [`Postgres::up`].
    pub fn down(&self) -> Result<()> {
        self.control(&["-m", "immediate", "stop"])
    }

    pub fn up(&self) -> Result<()> {
        let log = self.directory.join("log");
        self.control(&["-w", "-l", &log.to_string_lossy(), "start"])
    }

    fn control(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(self.binaries.join("pg_ctl"));
        command.arg("-D").arg(self.directory.join("data")).args(words).current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        as_postgres(&mut command)?;
        match command.status()?.success() {
            true => Ok(()),
            false => Err(Error::other(format!("pg_ctl {words:?} failed"))),
        }
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> Result<String> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(self.binaries.join("createdb"));
        let made = command.arg("-h").arg(&self.directory).args(["-U", "postgres", &name]).output()?;
        if !made.status.success() {
            let reason = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(Error::other(format!("createdb failed: {reason}")));
        }
        Ok(format!("postgres://postgres@localhost/{name}?host={}", self.directory.display()))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.supervisor.stdin.take());
        let _ = self.supervisor.wait();
    }
}

fn binaries() -> Result<PathBuf> {
    let missing = || Error::other(format!("no PostgreSQL in {VERSIONS}: {PACKAGE}"));
    let mut found: Vec<PathBuf> = std::fs::read_dir(VERSIONS)
        .map_err(|_| missing())?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().ok_or_else(missing)
}

fn directory_make() -> Result<PathBuf> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = format!("store-postgres-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory)?;
    Ok(directory)
}

/// PostgreSQL refuses to run as root.
fn as_postgres(command: &mut Command) -> Result<()> {
    if is_root()? {
        let (uid, gid) = postgres_user()?;
        command.uid(uid).gid(gid);
    }
    Ok(())
}

fn is_root() -> Result<bool> {
    Ok(std::fs::metadata(Path::new("/proc/self"))?.uid() == 0)
}

fn postgres_user() -> Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<&str> = line.unwrap_or_default().split(':').collect();
    let number = |place: usize| fields.get(place).and_then(|field| field.parse().ok());
    let missing = || Error::other(format!("there is no user postgres: {PACKAGE}"));
    Ok((number(2).ok_or_else(missing)?, number(3).ok_or_else(missing)?))
}
