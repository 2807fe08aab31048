//! A zone: a child of root, and the broker and listener that nodes come to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use link::{
    Broker, BrokerConfig, Children, Credentials, Desk, EnrollToken, HttpsParent, HttpsParentConfig, Identity,
    Kind, MqttParent, MqttParentConfig, RemoteIssuer, TokenBook, Uplink,
};
use model::{Check, Error, Light, Name, Result, Timestamp};
use tokio::task::JoinHandle;
use work::SharedClock;
use zone::{LedgerBook, ZoneConfig, ZoneService};

/// How often a certificate's end is read again.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);
const TOKEN_VALID_MS: i64 = 60 * 60 * 1000;

pub struct ZoneOptions {
    pub name: Name,
    pub data: PathBuf,
    pub root_url: String,
    /// Where nodes come to, by HTTPS and by MQTT.
    pub https_listen: SocketAddr,
    pub mqtt_listen: SocketAddr,
    /// Names and addresses under which nodes reach this zone.
    pub link_names: Vec<String>,
}

/// A zone that runs until it is dropped.
pub struct ZoneRole {
    https: HttpsParent,
    broker: Broker,
    _mqtt: MqttParent,
    book: Arc<LedgerBook>,
    fingerprint: [u8; 32],
    clock: SharedClock,
    tasks: Vec<JoinHandle<()>>,
}

impl ZoneRole {
    /// `token` is used the first time; later the certificate from then is.
    pub async fn start(options: ZoneOptions, token: Option<EnrollToken>, clock: SharedClock) -> Result<Self> {
        sal::folder_private(&options.data)?;
        let credentials = credentials(&options.data, &options.root_url, token, &options.name).await?;
        let uplink: Arc<dyn Uplink> = link::https_uplink(&credentials, &options.root_url)?;
        let service = ZoneService::open(
            ZoneConfig::new(options.name.clone(), options.data.clone()),
            uplink.clone(),
            clock.clone(),
        )?;
        let id = credentials.identity.id.clone();
        let issuer = Arc::new(RemoteIssuer::new(&credentials, &options.root_url)?);
        let server_identity = Identity::new(Kind::Server, &id);
        let server =
            link::enroll::certify(issuer.as_ref(), server_identity, options.link_names.clone()).await?;
        let book = service.book();
        let desk = Desk {
            kind: Kind::Node,
            parent: Some(id.clone()),
            issuer: issuer.clone(),
            book: book.clone(),
            clock: clock.clone(),
        };
        let parent = HttpsParentConfig {
            listen: options.https_listen,
            server: server.clone(),
            children: Children::nodes_of(&id),
            desk: Some(desk),
            issuer: Some(issuer.clone()),
            peers: None,
        };
        let https = HttpsParent::start(parent, Arc::new(service.clone()), service.calls()).await?;
        let broker = BrokerConfig {
            listen: options.mqtt_listen,
            server,
            zone: id.clone(),
            dir: options.data.join("broker"),
        };
        let broker = Broker::start(broker).await?;
        let mqtt = MqttParentConfig { broker: own_address(broker.address()).to_string(), me: credentials };
        let mqtt = MqttParent::start(mqtt, Arc::new(service.clone()), service.calls())?;
        let (certificate, subject) = (certificate_until(options.data.join("identity")), options.name.clone());
        service.probe_add(Box::new(move |now| {
            let subject = format!("zone {subject}");
            match certificate() {
                Some(until) => zone::health::certificate(&subject, until, now),
                None => Check::new("certificate", subject, Light::Red, "cannot be read", now),
            }
        }));
        let running = service.clone();
        let owner = Arc::new(service);
        let tasks = vec![
            tokio::spawn(async move { running.run().await }),
            tokio::spawn(tier::sync::run(owner, uplink)),
        ];
        let fingerprint = link::Issuer::fingerprint(issuer.as_ref());
        Ok(Self { https, broker, _mqtt: mqtt, book, fingerprint, clock, tasks })
    }

    pub fn https_url(&self) -> String {
        format!("https://{}", self.https.address())
    }

    pub fn mqtt_address(&self) -> SocketAddr {
        self.broker.address()
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

/// Where a listener is reached from its own host: one that listens everywhere answers on loopback, which
/// its certificate names.
fn own_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// Says when the certificate in a folder ends; looks again now and then, because it is renewed.
pub fn certificate_until(dir: PathBuf) -> impl Fn() -> Option<Timestamp> + Send + Sync {
    let known: Mutex<Option<(Instant, Option<Timestamp>)>> = Mutex::default();
    move || {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((at, until)) if at.elapsed() < CERTIFICATE_LOOK => until,
            _ => {
                let until = Credentials::load(&dir).ok().flatten().and_then(|kept| kept.valid_until());
                *known = Some((Instant::now(), until));
                until
            }
        }
    }
}

/// Whether a role with this data folder has its certificate already.
pub fn joined(data: &std::path::Path) -> Result<bool> {
    Ok(Credentials::load(&data.join("identity"))?.is_some())
}

/// The certificate from an earlier life, or a new one for the token.
pub async fn credentials(
    data: &std::path::Path,
    parent_url: &str,
    token: Option<EnrollToken>,
    name: &Name,
) -> Result<Credentials> {
    let dir = data.join("identity");
    if let Some(kept) = Credentials::load(&dir)? {
        return Ok(kept);
    }
    let token = token.ok_or_else(|| {
        Error::invalid(format!("{name} has not joined yet")).hint("give it a token from 'banyan enroll'")
    })?;
    let credentials = link::enroll(parent_url, &token, name).await?;
    credentials.save(&dir)?;
    Ok(credentials)
}
