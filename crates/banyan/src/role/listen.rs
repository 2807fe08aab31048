//! Where a zone's nodes come to: its HTTPS listener and a broker, embedded or external, with certificates that
//! are renewed while they run.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use link::{
    Broker, BrokerConfig, Children, Credentials, Desk, HttpsParent, HttpsParentConfig, Identity, Kind,
    MqttParent, MqttParentConfig, RemoteIssuer, Renewal, Wallet,
};
use model::exchange::Doorway;
use model::{Check, Light, Name, Result, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use work::SharedClock;
use zone::ZoneService;

use super::zone::ZoneOptions;

/// Where the listeners' certificate is kept, so that a zone can start while root is away.
const LISTENER_DIR: &str = "listener";
const BROKER_DIR: &str = "broker";
/// How often an external broker is asked for its certificate, at most and at least.
const BROKER_LOOK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3600));

/// From when and until when the certificate of an external broker is good, or why nobody is let in.
type BrokerShows = Option<std::result::Result<(Timestamp, Timestamp), String>>;

/// They run until they are dropped.
pub struct Listeners {
    pub https: HttpsParent,
    broker: Option<Broker>,
    broker_address: String,
    mqtt: Arc<MqttParent>,
    broker_shows: watch::Receiver<BrokerShows>,
    tasks: Vec<JoinHandle<()>>,
}

impl Listeners {
    pub async fn start(
        options: &ZoneOptions,
        me: &Wallet,
        issuer: &Arc<RemoteIssuer>,
        service: &ZoneService,
        clock: SharedClock,
    ) -> Result<Self> {
        let id = me.identity().id;
        let names = names(options);
        let dir = options.data.join(LISTENER_DIR);
        let parent = HttpsParentConfig {
            listen: options.https_listen,
            server: certificate(&dir, issuer, &id, &names).await?,
            children: Children::nodes_of(&id),
            desk: Some(Desk {
                kind: Kind::Node,
                parent: Some(id.clone()),
                issuer: issuer.clone(),
                book: Arc::new(service.clone()),
                clock,
            }),
            issuer: Some(issuer.clone()),
            peers: None,
            dispatcher: None,
        };
        let https = HttpsParent::start(parent, Arc::new(service.clone()), service.calls()).await?;
        let broker = broker(options, id, https.wallet(), service).await?;
        let broker_address = match (&options.broker, &broker) {
            (Some(external), _) => external.clone(),
            (None, Some(broker)) => own_address(broker.address()).to_string(),
            (None, None) => String::new(),
        };
        let mqtt = MqttParentConfig {
            broker: broker_address.clone(),
            me: me.clone(),
            own_broker: options.broker.is_none(),
        };
        let mqtt = Arc::new(MqttParent::start(mqtt, Arc::new(service.clone()), service.calls())?);
        let mut tasks = vec![tokio::spawn(renewal(https.wallet(), issuer, names, dir).run())];
        let (shows, broker_shows) = watch::channel(None);
        if options.broker.is_some() {
            let follow = broker_files_follow(options.data.join(BROKER_DIR), https.wallet().clone());
            tasks.push(tokio::spawn(follow));
            tasks.push(tokio::spawn(broker_certificate_follow(broker_address.clone(), me.clone(), shows)));
        }
        Ok(Self { https, broker, broker_address, mqtt, broker_shows, tasks })
    }

    /// Says whether the zone is connected to its broker, and whether an external one will go on to let nodes in. It
    /// does not keep the connection alive.
    pub fn broker_probe(&self, zone: &Name) -> impl Fn(Timestamp) -> Check + Send + Sync + 'static {
        let (mqtt, subject) = (Arc::downgrade(&self.mqtt), format!("zone {zone}"));
        let (address, shows) = (self.mqtt_address(), self.broker_shows.clone());
        move |now| {
            let check = |light, text: String| Check::new("broker", &subject, light, text, now);
            if !mqtt.upgrade().is_some_and(|mqtt| mqtt.connected()) {
                return check(Light::Red, format!("there is no connection to the broker at {address}"))
                    .hint("nodes over MQTT are not heard until it is back");
            }
            let hint = "the zone keeps good ones in 'broker' of its data folder: have the broker read them again, \
                        Mosquitto by SIGHUP";
            match &*shows.borrow() {
                Some(Ok((from, until))) => {
                    let seen = zone::health::certificate(&subject, Some(*from), *until, now);
                    match seen.light {
                        Light::Green => check(Light::Green, format!("connected to {address}")),
                        light => check(light, format!("its certificate: {}", seen.message)).hint(hint),
                    }
                }
                Some(Err(why)) => check(Light::Red, why.clone()).hint(hint),
                None => check(Light::Green, format!("connected to {address}")),
            }
        }
    }

    /// Where nodes come to, by the first of the zone's names.
    pub fn doorway(&self, options: &ZoneOptions) -> Doorway {
        let name = options.link_names.first().map_or("127.0.0.1", String::as_str);
        let at = |port: u16| match name.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]:{port}"),
            Err(_) => format!("{name}:{port}"),
        };
        let broker = match &self.broker {
            Some(broker) => at(broker.address().port()),
            None => self.broker_address.clone(),
        };
        Doorway { urls: vec![format!("https://{}", at(self.https.address().port()))], broker: Some(broker) }
    }

    /// Where nodes find the broker.
    pub fn mqtt_address(&self) -> String {
        match &self.broker {
            Some(broker) => own_address(broker.address()).to_string(),
            None => self.broker_address.clone(),
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Keeps a certificate fresh through the parent.
pub fn renewal(wallet: &Wallet, issuer: &Arc<RemoteIssuer>, names: Vec<String>, dir: PathBuf) -> Renewal {
    Renewal { wallet: wallet.clone(), issuer: issuer.clone(), names, dir: Some(dir) }
}

/// The certificate from an earlier life while it is good and carries these names, or else a new one.
async fn certificate(dir: &Path, issuer: &RemoteIssuer, id: &str, names: &[String]) -> Result<Credentials> {
    let identity = Identity::new(Kind::Server, id);
    let kept = Credentials::load(dir).ok().flatten();
    let good = |kept: &Credentials| kept.identity == identity && kept.serves(names) && kept.valid_now();
    if let Some(kept) = kept.filter(good) {
        return Ok(kept);
    }
    let server = link::certify(issuer, identity, names.to_vec()).await?;
    server.save(dir)?;
    Ok(server)
}

/// The embedded broker, unless there is an external one.
async fn broker(
    options: &ZoneOptions,
    zone: String,
    server: &Wallet,
    service: &ZoneService,
) -> Result<Option<Broker>> {
    let dir = options.data.join(BROKER_DIR);
    if options.broker.is_some() {
        broker_files(&dir, server)?;
        return Ok(None);
    }
    let broker = BrokerConfig {
        listen: options.mqtt_listen,
        server: server.clone(),
        zone,
        dir,
        handler: Arc::new(service.clone()),
        calls: service.calls(),
    };
    Broker::start(broker).await.map(Some)
}

/// The names of the listeners' certificate. An external broker shows the same one, so its host is among them.
pub fn names(options: &ZoneOptions) -> Vec<String> {
    let mut names = options.link_names.clone();
    let external = options.broker.as_deref().and_then(|address| address.rsplit_once(':'));
    if let Some((host, _)) = external {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !names.contains(&host) {
            names.push(host);
        }
    }
    names
}

/// What an external broker needs to be one of the tree: its certificate and key, and the CA.
fn broker_files(dir: &Path, server: &Wallet) -> Result<()> {
    sal::folder_private(dir)?;
    server.credentials().files_write(dir, "broker")
}

/// Writes the files again whenever the certificate is renewed; the broker reads them again on SIGHUP.
async fn broker_files_follow(dir: PathBuf, server: Wallet) {
    let mut changes = server.changes();
    while changes.changed().await.is_ok() {
        if let Err(error) = broker_files(&dir, &server) {
            tracing::warn!(%error, "the files of the broker were not renewed");
        }
    }
}

/// Asks an external broker for its certificate, ten times in the life of one.
async fn broker_certificate_follow(address: String, me: Wallet, shows: watch::Sender<BrokerShows>) {
    let (soonest, latest) = BROKER_LOOK;
    loop {
        let shown = link::broker_certificate(&address, &me).await;
        let life_ms = shown.as_ref().map_or(0, |(from, until)| until.ms_since(*from));
        let pause = Duration::from_millis(u64::try_from(life_ms / 10).unwrap_or(0)).clamp(soonest, latest);
        if shows.send(Some(shown.map_err(|error| error.to_string()))).is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Where a listener is reached from its own host: one that listens everywhere answers on loopback, which
/// its certificate names.
pub fn own_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}
