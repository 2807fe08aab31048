//! Root: the store, the tree, the API, and the listener that zones come to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use link::{Ca, Children, Desk, EnrollToken, HttpsParent, HttpsParentConfig, Identity, Kind};
use model::{Error, Name, Result};
use root::image::ImageStore;
use root::tree::{StoreBook, TreeConfig, TreeService};
use root::{AdminCredentials, Cloud, Config, Endpoints, Running, State};
use work::SharedClock;

pub struct RootOptions {
    pub config: Config,
    /// Where zones come to.
    pub link_listen: SocketAddr,
    /// Names and addresses under which zones reach this root.
    pub link_names: Vec<String>,
    /// Where the first operator's credentials are kept.
    pub admin: PathBuf,
}

/// A root that runs until it is dropped.
pub struct RootRole {
    pub api: Running,
    pub admin: Option<AdminCredentials>,
    link: HttpsParent,
    tree: TreeService,
    state: State,
    tree_task: tokio::task::JoinHandle<()>,
}

impl RootRole {
    pub async fn start(options: RootOptions, clock: SharedClock) -> Result<Self> {
        let data: PathBuf = options.config.data.clone();
        sal::folder_private(&data)?;
        let store = store::Store::open(&options.config.database_url()).await.map_err(|error| {
            Error::from(error).hint("is the database named by --database right, and does it answer?")
        })?;
        let state = State::open(store).await?;
        let images = ImageStore::open(data.join("images"))?;
        let tree =
            TreeService::open(state.clone(), images.clone(), clock.clone(), TreeConfig::default()).await?;
        let cloud =
            Cloud::new(options.config.clone(), state.clone(), Arc::new(tree.clone()), images, clock.clone())
                .await?;
        let endpoint = format!("http://{}", options.config.listen);
        let endpoints =
            Endpoints { endpoint: endpoint.clone(), s3_endpoint: String::new(), ec2_endpoint: endpoint };
        let keep = |admin: &AdminCredentials| crate::up::admin_write(&options.admin, admin);
        let admin = match root::bootstrap_kept(&cloud, endpoints.clone(), keep).await? {
            // Whoever owns the data folder owns the cloud: a lost file is made anew, and the old credentials end.
            None if !options.admin.exists() => {
                let renewed = root::admin_renew(&cloud, endpoints).await?;
                keep(&renewed)?;
                tracing::warn!(file = %options.admin.display(), "the credentials file was gone; made new ones");
                Some(renewed)
            }
            admin => admin,
        };
        root::ops::image::builtin_ensure(&cloud).await?;
        let ca = Arc::new(Ca::create_or_load(&data.join("ca"))?);
        tree.join_with(ca.fingerprint());
        let book = Arc::new(StoreBook::new(tree.clone()));
        let server = ca.issue_fresh(
            Identity::new(Kind::Server, "root"),
            &options.link_names,
            Duration::from_secs(365 * 24 * 3600),
        )?;
        let desk = Desk { kind: Kind::Zone, parent: None, issuer: ca.clone(), book, clock };
        let parent = HttpsParentConfig {
            listen: options.link_listen,
            server,
            children: Children::zones(),
            desk: Some(desk),
            issuer: Some(ca.clone()),
            peers: None,
        };
        let link = HttpsParent::start(parent, Arc::new(tree.clone()), tree.calls()).await?;
        let api = root::serve(cloud).await?;
        let running = tree.clone();
        let tree_task = tokio::spawn(async move { running.run().await });
        Ok(Self { api, admin, link, tree, state, tree_task })
    }

    /// Where REST is served.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.api.addr)
    }

    /// Where zones come to.
    pub fn link_url(&self) -> String {
        format!("https://{}", self.link.address())
    }

    /// A one-time token with which a zone of this name may join.
    pub async fn zone_token(&self, name: &Name) -> Result<EnrollToken> {
        self.tree.zone_token(Some(name.clone())).await?.token.parse()
    }

    pub async fn stop(self) {
        let Self { api, tree_task, state, .. } = self;
        tree_task.abort();
        api.shutdown().await;
        state.close().await;
    }
}
