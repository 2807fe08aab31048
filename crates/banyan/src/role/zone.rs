//! A zone: a child of root, and the broker and listener that nodes come to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use link::{
    Credentials, EnrollToken, Kind, Newcomer, ParentHandler, Parents, RemoteIssuer, TokenBook, Uplink,
    Wallet, listen_check,
};
use model::exchange::Doorway;
use model::{Area, Error, Name, Result};
use tokio::task::JoinHandle;
use work::SharedClock;
use zone::{LedgerBook, ZoneConfig, ZoneService};

use super::listen::{Listeners, names, own_address, renewal};

const TOKEN_VALID_MS: i64 = 60 * 60 * 1000;

pub struct ZoneOptions {
    pub name: Name,
    pub data: PathBuf,
    /// One address of root, or those of several root servers.
    pub root: Parents,
    /// Where nodes come to, by HTTPS and by MQTT.
    pub https_listen: SocketAddr,
    pub mqtt_listen: SocketAddr,
    /// `host:port` of a broker that takes the place of the embedded one.
    pub broker: Option<String>,
    /// Names and addresses under which nodes reach this zone.
    pub link_names: Vec<String>,
    /// Where on the earth it is; nodes that do not say where they are, are here.
    pub area: Option<Area>,
}

/// A zone that runs until it is dropped.
pub struct ZoneRole {
    listeners: Listeners,
    doorway: Doorway,
    book: Arc<LedgerBook>,
    service: ZoneService,
    fingerprint: [u8; 32],
    clock: SharedClock,
    tasks: Vec<JoinHandle<()>>,
}

impl ZoneRole {
    /// `token` is used the first time; later the certificate from then is.
    pub async fn start(options: ZoneOptions, token: Option<EnrollToken>, clock: SharedClock) -> Result<Self> {
        sal::folder_private(&options.data)?;
        listeners_check(&options)?;
        let newcomer = Newcomer { hosts: names(&options), ..Newcomer::from(&options.name) };
        let me = Wallet::from(credentials(&options.data, &options.root, token, newcomer).await?);
        let uplink: Arc<dyn Uplink> = link::https_uplink(&me, &options.root)?;
        let mut config = ZoneConfig::new(options.name.clone(), options.data.clone());
        config.area = options.area;
        let service = ZoneService::open(config, uplink.clone(), clock.clone())?;
        let (pulsing, shown) = (service.clone(), me.clone());
        uplink.pulse_from(Arc::new(move || pulsing.pulse(shown.credentials().validity().ok())));
        let issuer = Arc::new(RemoteIssuer::new(&me, &options.root)?);
        let listeners = Listeners::start(&options, &me, &issuer, &service, clock.clone()).await?;
        let book = service.book();
        let identity = options.data.join("identity");
        service.probe_add(Box::new(listeners.broker_probe(&options.name)));
        let doorway = listeners.doorway(&options);
        service.doorway_set(doorway.clone());
        let running = service.clone();
        let owner = Arc::new(service.clone());
        let tasks = vec![
            tokio::spawn(async move { running.run().await }),
            tokio::spawn(tier::sync::run(owner, uplink)),
            tokio::spawn(renewal(&me, &issuer, Vec::new(), identity).run()),
        ];
        let fingerprint = link::Issuer::fingerprint(issuer.as_ref());
        Ok(Self { listeners, doorway, book, service, fingerprint, clock, tasks })
    }

    /// Where nodes on this machine come to.
    pub fn https_url(&self) -> String {
        format!("https://{}", own_address(self.listeners.https.address()))
    }

    /// Where nodes come to, by the zone's first name.
    pub fn doorway(&self) -> &Doorway {
        &self.doorway
    }

    pub fn https_port(&self) -> u16 {
        self.listeners.https.address().port()
    }

    /// Where nodes on this machine find the broker.
    pub fn mqtt_address(&self) -> String {
        self.listeners.mqtt_address()
    }

    /// Whether a node with this certificate was removed for good.
    pub fn node_removed(&self, node: &Credentials) -> bool {
        self.service.removed(&node.identity.child_id())
    }

    /// A one-time token with which a node of this name may join.
    pub async fn node_token(&self, name: &Name) -> Result<EnrollToken> {
        let expires_at = self.clock.now().plus_ms(TOKEN_VALID_MS);
        let (token, record) = EnrollToken::make(self.fingerprint, Kind::Node, Some(name.clone()), expires_at);
        self.book.add(record).await?;
        Ok(token)
    }
}

impl Drop for ZoneRole {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A zone that could not listen does not join: its token stays good, and nobody waits for it.
fn listeners_check(options: &ZoneOptions) -> Result<()> {
    listen_check(options.https_listen)?;
    match options.broker {
        Some(_) => Ok(()),
        None => listen_check(options.mqtt_listen),
    }
}

/// Whether a role with this data folder has its certificate already.
pub fn joined(data: &std::path::Path) -> Result<bool> {
    Ok(Credentials::load(&data.join("identity"))?.is_some())
}

/// The certificate from an earlier life, or a new one for the token.
pub async fn credentials(
    data: &std::path::Path,
    parents: &Parents,
    token: Option<EnrollToken>,
    newcomer: impl Into<Newcomer>,
) -> Result<Credentials> {
    let dir = data.join("identity");
    if let Some(kept) = Credentials::load(&dir)? {
        return Ok(kept);
    }
    let newcomer = newcomer.into();
    let token = token.ok_or_else(|| {
        Error::invalid(format!("{} has not joined yet", newcomer.name))
            .hint("give it a token from 'banyan enroll'")
    })?;
    link::enroll_kept(&dir, parents, &token, newcomer).await
}
