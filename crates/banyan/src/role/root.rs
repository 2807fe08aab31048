//! Root: the store, the tree, the API, and the listener that zones come to.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use link::{
    Ca, Children, Credentials, Desk, EnrollToken, HttpsParent, HttpsParentConfig, Identity, Kind, Renewal,
    Wallet,
};
use model::{Error, Name, Result};
use root::auth::MasterKey;
use root::duty::Duties;
use root::image::ImageStore;
use root::peer::Peers;
use root::tree::{Signer, StoreBook, TreeConfig, TreeService};
use root::{AdminCredentials, Cloud, Config, Endpoints, Running, State};
use tokio::task::JoinHandle;
use work::SharedClock;

use super::listen::own_address;

pub struct RootOptions {
    pub config: Config,
    /// Where zones come to.
    pub link_listen: SocketAddr,
    /// Names and addresses under which zones reach this root.
    pub link_names: Vec<String>,
    /// How long certificates are good that it gives out.
    pub certificate_valid: Duration,
    /// Where the first operator's credentials are kept.
    pub admin: PathBuf,
    /// Whether lost credentials are made anew: right where the owner of the data folder owns the cloud, and
    /// wrong on the second of several root servers.
    pub admin_renew: bool,
    /// The object store, if this server runs one.
    pub object: Option<object::Config>,
}

/// A root that runs until it is dropped.
pub struct RootRole {
    pub api: Running,
    pub admin: Option<AdminCredentials>,
    link: HttpsParent,
    link_url: String,
    tree: TreeService,
    duties: Duties,
    state: State,
    object: Option<object::Store>,
    cloud: root::Shared,
    tasks: Vec<JoinHandle<()>>,
}

impl RootRole {
    pub async fn start(options: RootOptions, clock: SharedClock) -> Result<Self> {
        let data: PathBuf = options.config.data.clone();
        sal::folder_private(&data)?;
        let store = store::Store::open(&options.config.database_url()).await.map_err(|error| {
            let error = Error::from(error);
            match error.hint {
                Some(_) => error,
                None => error.hint("is the database named by --database right, and does it answer?"),
            }
        })?;
        let state = State::open(store).await?;
        let images = ImageStore::open(data.join("images"))?;
        let master = root::master_open(&options.config, &state)?;
        let (ca, peers) = among(&options, &state, &master).await?;
        let duties = peers.duties().clone();
        let tree = tree_open(&state, &images, &clock, &peers).await?;
        let config = options.config.clone();
        let dyn_tree = Arc::new(tree.clone());
        let cloud =
            Cloud::among(config, state.clone(), dyn_tree, images, clock.clone(), master, &peers).await?;
        let office = Arc::new(root::cluster::Office::new(cloud.clone()));
        let link = link_start(&options, &ca, &tree, office, clock).await?;
        let url = link_url(&options, &link);
        tree.link_url_set(url.clone());
        let rest = root::listen(options.config.listen).await?;
        let rest_url = rest_url(&options, rest.local_addr()?);
        duties.join(url.clone(), rest_url.clone(), place(&data), options.link_names.clone()).await?;
        let beating = duties.clone();
        let mut tasks = vec![tokio::spawn(async move { beating.run().await })];
        tasks.extend(renewals(&options, &ca, &link, &peers));
        tasks.push(tokio::spawn(certificates_follow(tree.clone(), link.wallet().clone())));
        let admin = admin_ensure(&options, &cloud).await?;
        root::ops::image::builtin_ensure(&cloud).await?;
        let (running, copying, followed) = (tree.clone(), tree.clone(), state.clone());
        tasks.push(tokio::spawn(async move { running.run().await }));
        if options.config.shared_store() {
            tasks.push(tokio::spawn(async move { copying.replica().run(&followed).await }));
        }
        let object = object_start(&options, &cloud).await?;
        let me = root::tables::ObjectStoreRecord { place: place(&data), endpoint: rest_url.clone() };
        root::ops::bucket::store_register(&cloud, me, object.is_some()).await?;
        let api = root::serve_on(cloud.clone(), rest)?;
        Ok(Self { api, admin, link, link_url: url, tree, duties, state, object, cloud, tasks })
    }

    /// Where REST is served.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.api.addr)
    }

    /// Where S3 is served, if it is.
    pub fn s3_endpoint(&self) -> Option<String> {
        self.object.as_ref().map(|store| format!("{}://{}", store.scheme(), store.address()))
    }

    /// The port of S3, if it is served.
    pub fn s3_port(&self) -> Option<u16> {
        self.object.as_ref().map(|store| store.address().port())
    }

    /// Serves S3 to instances on one more address of this machine; answers where that is.
    pub async fn s3_listen_also(&self, ip: IpAddr) -> Result<Option<String>> {
        let Some(store) = &self.object else { return Ok(None) };
        store.listen_also(ip).await?;
        let address = SocketAddr::new(ip, store.address().port());
        let inside = format!("{}://{address}", store.scheme());
        if let Some(objects) = self.cloud.objects.get() {
            let _ = objects.inside.set(inside.clone());
        }
        Ok(Some(inside))
    }

    /// Where zones on this machine come to.
    pub fn link_url(&self) -> String {
        format!("https://{}", own_address(self.link.address()))
    }

    /// Where zones come to by its first name.
    pub fn link_url_named(&self) -> &str {
        &self.link_url
    }

    /// A one-time token with which a zone of this name may join.
    pub async fn zone_token(&self, name: &Name, hosts: &[String]) -> Result<EnrollToken> {
        self.tree.zone_token(Some(name.clone()), hosts.to_vec()).await?.token.parse()
    }

    /// A one-time token with which a provisioner of this name may join.
    pub async fn provisioner_token(&self, name: &Name) -> Result<EnrollToken> {
        self.tree.provisioner_token(Some(name.clone())).await?.token.parse()
    }

    /// Lets the listeners of a zone have these names, whoever else has them.
    pub async fn zone_hosts_grant(&self, name: &Name, hosts: &[String]) -> Result<()> {
        self.tree.hosts_grant(name, hosts).await
    }

    /// Ends in good order: other root servers take over at once.
    pub async fn stop(self) {
        let Self { api, duties, tasks, state, object, .. } = self;
        tasks.iter().for_each(JoinHandle::abort);
        duties.leave().await;
        api.shutdown().await;
        if let Some(object) = object {
            object.stop().await;
        }
        state.close().await;
    }
}

async fn object_start(options: &RootOptions, cloud: &root::Shared) -> Result<Option<object::Store>> {
    let Some(config) = options.object.clone() else { return Ok(None) };
    sal::folder_private(&config.data)?;
    let directory = Arc::new(root::directory::Directory::new(cloud));
    let store = object::Store::start(config, directory).await?;
    let endpoint = s3_url(options, &store);
    let (service, inside) = (store.service().clone(), std::sync::OnceLock::new());
    let _ = cloud.objects.set(root::cloud::Objects { service, endpoint, inside });
    Ok(Some(store))
}

/// The CA, and the other root servers. With SQLite this root is alone and its CA lies in its folder.
async fn among(options: &RootOptions, state: &State, master: &MasterKey) -> Result<(Arc<Ca>, Peers)> {
    let dir = options.config.data.join("ca");
    if !options.config.shared_store() {
        let ca = Ca::create_or_load(&dir)?.valid_for(options.certificate_valid);
        return Ok((Arc::new(ca), Peers::none()));
    }
    let ca = root::ca_shared(state, master, &dir).await?;
    let ca = Arc::new(ca.valid_for(options.certificate_valid));
    let duties = Duties::shared(state.clone());
    let id = duties.id().unwrap_or_default();
    let credentials = ca.issue_fresh(Identity::new(Kind::Root, id), &[], options.certificate_valid)?;
    Ok((ca, Peers::new(duties, credentials)))
}

/// Keeps the certificates fresh that this root gave itself.
fn renewals(options: &RootOptions, ca: &Arc<Ca>, link: &HttpsParent, peers: &Peers) -> Vec<JoinHandle<()>> {
    let fresh = |wallet: &Wallet, names: &[String]| {
        let (wallet, issuer, names) = (wallet.clone(), ca.clone(), names.to_vec());
        tokio::spawn(Renewal { wallet, issuer, names, dir: None }.run())
    };
    let listener = fresh(link.wallet(), &options.link_names);
    peers.wallet().map(|wallet| fresh(wallet, &[])).into_iter().chain([listener]).collect()
}

async fn tree_open(
    state: &State,
    images: &ImageStore,
    clock: &SharedClock,
    peers: &Peers,
) -> Result<TreeService> {
    let (state, images, clock) = (state.clone(), images.clone(), clock.clone());
    match peers.duties().id() {
        None => TreeService::open(state, images, clock, TreeConfig::default()).await,
        Some(_) => Ok(TreeService::open_among(state, images, clock, TreeConfig::default(), peers.clone())),
    }
}

/// Lets health know when the certificates of this root end.
fn certificates_note(tree: &TreeService, server: &Credentials) -> Result<()> {
    let ca_itself = Credentials { cert: server.ca.clone(), ..server.clone() };
    tree.certificates_set(vec![
        ("the certificate of the CA".to_owned(), ca_itself.validity()?),
        ("the certificate of this server".to_owned(), server.validity()?),
    ]);
    Ok(())
}

async fn certificates_follow(tree: TreeService, server: Wallet) {
    let mut changes = server.changes();
    while changes.changed().await.is_ok() {
        if let Err(error) = certificates_note(&tree, &server.credentials()) {
            tracing::warn!(%error, "a renewed certificate cannot be read");
        }
    }
}

async fn link_start(
    options: &RootOptions,
    ca: &Arc<Ca>,
    tree: &TreeService,
    office: Arc<root::cluster::Office>,
    clock: SharedClock,
) -> Result<HttpsParent> {
    tree.join_with(ca.fingerprint(), options.link_names.clone());
    let book = Arc::new(StoreBook::new(tree.clone()));
    let identity = Identity::new(Kind::Server, "root");
    let server = ca.issue_fresh(identity, &options.link_names, options.certificate_valid)?;
    certificates_note(tree, &server)?;
    let parent = HttpsParentConfig {
        listen: options.link_listen,
        server,
        children: Children::zones(),
        desk: Some(Desk { kind: Kind::Zone, parent: None, issuer: ca.clone(), book, clock }),
        issuer: Some(Arc::new(Signer::new(ca.clone(), tree.clone()))),
        peers: Some(Arc::new(tree.clone())),
        dispatcher: Some(office),
    };
    HttpsParent::start(parent, Arc::new(tree.clone()), tree.calls()).await
}

/// The first operator's credentials: made by the first root server, made anew where the file was lost.
async fn admin_ensure(options: &RootOptions, cloud: &Cloud) -> Result<Option<AdminCredentials>> {
    let endpoint = format!("http://{}", options.config.listen);
    let endpoints =
        Endpoints { endpoint: endpoint.clone(), s3_endpoint: String::new(), ec2_endpoint: endpoint };
    let present = options.admin.exists();
    let keep = |admin: &AdminCredentials| crate::up::admin_write(&options.admin, admin);
    let made = root::bootstrap_kept(cloud, endpoints.clone(), keep).await?;
    if made.is_some() || present {
        return Ok(made);
    }
    // Another server was quicker: what was kept here is of no use.
    let _ = std::fs::remove_file(&options.admin);
    if !options.admin_renew {
        return Ok(None);
    }
    // Whoever owns the data folder owns the cloud: a lost file is made anew, and the old credentials end.
    let renewed = root::admin_renew(cloud, endpoints).await?;
    keep(&renewed)?;
    tracing::warn!(file = %options.admin.display(), "the credentials file was gone; made new ones");
    Ok(Some(renewed))
}

/// Where zones and other root servers reach this one: its first name, and the port that it got.
fn link_url(options: &RootOptions, link: &HttpsParent) -> String {
    format!("https://{}:{}", host(options), link.address().port())
}

fn s3_url(options: &RootOptions, store: &object::Store) -> String {
    let (scheme, listen) = (store.scheme(), store.address());
    match listen.ip().is_unspecified() {
        true => format!("{scheme}://{}:{}", host(options), listen.port()),
        false => format!("{scheme}://{listen}"),
    }
}

fn rest_url(options: &RootOptions, listen: SocketAddr) -> String {
    match listen.ip().is_unspecified() {
        true => format!("http://{}:{}", host(options), listen.port()),
        false => format!("http://{listen}"),
    }
}

fn host(options: &RootOptions) -> String {
    let name = options.link_names.first().map_or("127.0.0.1", String::as_str);
    match name.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => name.to_owned(),
    }
}

/// The machine and the folder, by which a server knows what is left of an earlier life of its own.
fn place(data: &Path) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    format!("{}:{}", name.trim(), data.display())
}
