//! The tenants that have workers here. None of them sees the files, sessions or credentials of another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use link::{Staged, TaskClient};
use model::Result;

use super::CarrierMake;
use super::stage::Stage;
use crate::carry::Carrier;
use crate::resource::Absent;
use crate::task::Fault;

pub(super) struct Tenants {
    folder: PathBuf,
    carrier: CarrierMake,
    known: Mutex<BTreeMap<String, Arc<Tenant>>>,
}

pub(super) struct Tenant {
    carrier: Carrier,
    stage: Stage,
    wanted: Mutex<Arc<Vec<Staged>>>,
}

impl Tenants {
    pub(super) fn open(folder: PathBuf, carrier: CarrierMake) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, carrier, known: Mutex::default() })
    }

    pub(super) fn get(&self, tenant: &str) -> Arc<Tenant> {
        self.known().entry(tenant.to_owned()).or_insert_with(|| self.make(tenant)).clone()
    }

    fn make(&self, tenant: &str) -> Arc<Tenant> {
        let folder = self.folder.join(folder_name(tenant));
        let stage = Stage::new(tenant.to_owned(), folder.clone());
        Arc::new(Tenant { carrier: (self.carrier)(folder), stage, wanted: Mutex::default() })
    }

    /// Takes over what root says of tenants; those that have neither workers nor tasks here are forgotten, with
    /// their files and sessions.
    pub(super) fn assign(
        &self,
        workers: &BTreeMap<String, u32>,
        mut staged: BTreeMap<String, Vec<Staged>>,
        in_use: &BTreeSet<String>,
    ) {
        let stays =
            |tenant: &str| workers.get(tenant).is_some_and(|count| *count > 0) || in_use.contains(tenant);
        self.known().retain(|tenant, _| stays(tenant));
        for tenant in workers.keys().filter(|tenant| stays(tenant)) {
            let known = self.get(tenant);
            let new = staged.remove(tenant).unwrap_or_default();
            let mut wanted = known.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if **wanted != new {
                *wanted = Arc::new(new);
            }
            known.carrier.tidy();
        }
        self.recall(|folder| stays_folder(folder, &stays, workers, in_use));
    }

    /// Removes the folders of tenants that are no longer here.
    fn recall(&self, stays: impl Fn(&str) -> bool) {
        let Ok(folders) = std::fs::read_dir(&self.folder) else { return };
        for folder in folders.flatten() {
            if folder.file_name().to_str().is_none_or(|name| !stays(name))
                && let Err(error) = std::fs::remove_dir_all(folder.path())
            {
                tracing::warn!(%error, folder = %folder.path().display(), "files could not be removed");
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Tenant>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stays_folder(
    folder: &str,
    stays: &impl Fn(&str) -> bool,
    workers: &BTreeMap<String, u32>,
    in_use: &BTreeSet<String>,
) -> bool {
    workers.keys().chain(in_use).any(|tenant| stays(tenant) && folder_name(tenant) == folder)
}

/// A tenant's name as a part of a path; no two are the same and none leads elsewhere.
fn folder_name(tenant: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let mut name = String::from("t-");
    for byte in tenant.bytes() {
        match is_plain(byte) {
            true => name.push(byte.into()),
            false => name.push_str(&format!("_{byte:02x}")),
        }
    }
    name
}

impl Tenant {
    pub(super) fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// Brings the files of these plugins up to date, and says which could not be had. A task begins after that.
    pub(super) async fn stage(
        &self,
        client: &Arc<TaskClient>,
        plugins: &[String],
    ) -> std::result::Result<Absent, Fault> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.stage.bring(client, &wanted, plugins).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_tenants_do_not_meet_and_lead_nowhere_else() {
        let names = ["main", "Main", "a/../b", "..", "", "a_b", "a-b", "é"];
        let folders: BTreeSet<String> = names.into_iter().map(folder_name).collect();
        assert_eq!(folders.len(), names.len());
        assert!(folders.iter().all(|folder| !folder.contains(['/', '.'])), "{folders:?}");
    }
}
