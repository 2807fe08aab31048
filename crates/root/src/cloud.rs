//! Everything an operation needs, and who calls it.

use std::sync::Arc;

use model::{Error, Name, Result, TenantId, Timestamp, shown};
use work::SharedClock;

use crate::auth::{MasterKey, Passwords, Principal, RateLimit};
use crate::cluster::Board;
use crate::config::Config;
use crate::duty::Duties;
use crate::heal::Healer;
use crate::image::ImageStore;
use crate::metrics::Metrics;
use crate::ops::quota::Gates;
use crate::peer::Peers;
use crate::port::Tree;
use crate::replica::Replica;
use crate::state::State;

/// Password attempts of one account from one address.
const LOGIN_BURST: u64 = 5;
const LOGIN_REFILL_MS: u64 = 6_000;
/// Password attempts from one address, whatever the account.
const ADDRESS_BURST: u64 = 30;
const ADDRESS_REFILL_MS: u64 = 2_000;

pub type Shared = Arc<Cloud>;

/// The object store of this server.
pub struct Objects {
    pub service: object::service::Service,
    /// Where clients reach it.
    pub endpoint: String,
    /// Where instances on this machine reach it, once their network is there.
    pub inside: std::sync::OnceLock<String>,
}

/// One per process.
pub struct Cloud {
    pub config: Config,
    pub state: State,
    pub tree: Arc<dyn Tree>,
    pub images: ImageStore,
    pub clock: SharedClock,
    pub master: MasterKey,
    pub passwords: Passwords,
    pub metrics: Metrics,
    pub healer: Healer,
    /// Which of several root servers does what.
    pub duties: Duties,
    pub replica: Replica,
    /// The jobs of clusters.
    pub clusters: Board,
    /// The object store, if this server runs one; set once it does.
    pub objects: std::sync::OnceLock<Objects>,
    pub(crate) gates: Gates,
    /// Changes of files of plugins take turns, so that those of one server never race each other.
    pub(crate) files: tokio::sync::Mutex<()>,
    pub(crate) logins: RateLimit,
    pub(crate) addresses: RateLimit,
}

impl Cloud {
    /// For the only server of a store. Reads the master key from the data folder, or makes it.
    pub async fn new(
        config: Config,
        state: State,
        tree: Arc<dyn Tree>,
        images: ImageStore,
        clock: SharedClock,
    ) -> Result<Shared> {
        let master = master_open(&config, &state)?;
        Self::among(config, state, tree, images, clock, master, &Peers::none()).await
    }

    /// For one of several servers.
    pub async fn among(
        config: Config,
        state: State,
        tree: Arc<dyn Tree>,
        images: ImageStore,
        clock: SharedClock,
        master: MasterKey,
        peers: &Peers,
    ) -> Result<Shared> {
        Ok(Arc::new(Self {
            gates: Gates::new(config.shared_store()),
            files: tokio::sync::Mutex::default(),
            duties: peers.duties().clone(),
            replica: Replica::new(images.clone(), peers.clone()),
            config,
            state,
            tree,
            images,
            clock,
            master,
            passwords: Passwords::new().await?,
            metrics: Metrics::new(),
            healer: Healer::default(),
            clusters: Board::default(),
            objects: std::sync::OnceLock::new(),
            logins: RateLimit::new(LOGIN_BURST, LOGIN_REFILL_MS),
            addresses: RateLimit::new(ADDRESS_BURST, ADDRESS_REFILL_MS),
        }))
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// For spans of time inside this process, which must not lapse because somebody corrected the clock.
    pub fn steady(&self) -> Timestamp {
        self.clock.steady()
    }
}

/// Opens the master key. It is made before the first tenant, so tenants without it mean that it was lost or
/// left elsewhere.
pub fn master_open(config: &Config, state: &State) -> Result<MasterKey> {
    let path = config.master_key();
    match state.snapshot().tenants.is_empty() {
        true => MasterKey::open(&path),
        false => MasterKey::open_present(&path),
    }
}

/// Who calls, and in which tenant the call acts.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Principal,
    /// The tenant whose things are meant: the caller's own, or for operators any.
    pub tenant: TenantId,
    pub tenant_name: Name,
    /// For operators: lists show the things of every tenant.
    pub all_tenants: bool,
}

impl Caller {
    /// `tenant` is what the caller asked for; other tenants do not exist for those who are no operators.
    pub fn new(cloud: &Cloud, principal: Principal, tenant: Option<&str>) -> Result<Self> {
        let snapshot = cloud.state.snapshot();
        let all_tenants = tenant == Some("*") && principal.is_operator();
        let named = tenant.filter(|_| !all_tenants);
        let found = match named {
            None => snapshot.tenants.get(&principal.tenant),
            Some(name) => snapshot
                .tenant_by_name(name)
                .filter(|found| principal.is_operator() || found.id == principal.tenant),
        };
        let Some(found) = found else {
            return Err(
                Error::not_found(format!("tenant '{}'", shown(tenant.unwrap_or_default()))).at("tenant")
            );
        };
        Ok(Self { tenant: found.id.clone(), tenant_name: found.name.clone(), principal, all_tenants })
    }

    pub fn actor(&self) -> crate::history::Actor {
        self.principal.actor()
    }
}
