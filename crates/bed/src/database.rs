//! PostgreSQL on a host of the bed, for several root servers.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::Bed;

const PORT: u16 = 5432;
/// Seconds in which it must answer.
const UP_WAIT_S: u32 = 60;

/// The newest PostgreSQL of this machine.
fn programs() -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is not installed: apt-get install -y postgresql")?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|folder| folder.join("postgres").is_file())
        .collect();
    found.sort();
    found.pop().context("PostgreSQL is not installed: apt-get install -y postgresql")
}

impl Bed {
    /// A host with a database that every host of the bed may use; gives its URL.
    pub fn database(&mut self, name: &str) -> Result<String> {
        let programs = programs()?;
        let host = self.bare(name)?;
        let (folder, address) = (host.data().with_file_name("postgres"), host.address());
        let (folder, programs) = (folder.display(), programs.display());
        // It does not run as root, and its disk is small.
        host.run(&format!(
            "set -e; mkdir -p {folder}; chown postgres: {folder}; as() {{ setpriv --reuid postgres --regid postgres --init-groups \"$@\"; }}; \
             as {programs}/initdb -D {folder}/data -A trust --wal-segsize=1 >/dev/null; \
             echo 'host all all 10.77.0.0/16 trust' >>{folder}/data/pg_hba.conf; \
             as {programs}/pg_ctl -D {folder}/data -w -t {UP_WAIT_S} -l {folder}/log \
             -o '-p {PORT} -c listen_addresses=* -c unix_socket_directories={folder} -c fsync=off -c min_wal_size=2MB \
             -c max_wal_size=16MB -c shared_buffers=8MB' start >/dev/null </dev/null; \
             as {programs}/createdb -h {folder} -p {PORT} banyan; set +e"
        ))?;
        Ok(format!("postgres://postgres@{address}:{PORT}/banyan"))
    }
}
