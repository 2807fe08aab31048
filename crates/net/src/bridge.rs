//! The handle on one network: attach and detach instances, look them up, clear away, stop.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, StreamExt};
use model::{Error, Result};

use crate::cidr::Ipv4Cidr;
use crate::config::{BridgeConfig, instance_check, mac_of, mac_text, subnet_check};
use crate::filter::{Filter, filter_remove};
use crate::host::{
    bridge_ensure, bridge_lack, bridge_ports, bridge_remove, kernel_error, ports_loose, subnet_choose,
};
use crate::lease::Leases;
use crate::netlink::Netlink;
use crate::netns::{folder_lock, netns_names, netns_path, netns_remove};
use crate::port::{PortPlan, port_ensure, port_remove};
use crate::warm::WarmSpaces;

/// Ports that are made or removed at the same time; the kernel takes them one by one for the most part.
const PORTS_AT_ONCE: usize = 8;
/// The file of leases when the configured path is a folder.
const LEASE_FILE: &str = "leases.json";

/// What an instance has of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The namespace to start the instance in.
    pub netns: PathBuf,
    pub address: Ipv4Addr,
    pub gateway: Ipv4Addr,
    pub prefix: u8,
    pub mac: String,
    pub host_veth: String,
}

/// What went through the port of an instance, as the instance sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
}

/// A network of this node. Clones are handles on the same one.
#[derive(Clone)]
pub struct Bridge {
    inner: Arc<Inner>,
}

struct Inner {
    config: BridgeConfig,
    leases: Leases,
    filter: Filter,
    /// One holder per instance at a time.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Read by those who make or remove a port, written by the one who looks for leftovers.
    sweep: tokio::sync::RwLock<()>,
    ports: tokio::sync::Semaphore,
    warm: Arc<WarmSpaces>,
}

impl Bridge {
    /// Makes the network of `config`, or adopts it with all that is attached.
    pub async fn start(config: BridgeConfig) -> Result<Self> {
        let subnet = config.subnet;
        Self::start_any(config, &[subnet]).await
    }

    /// As [`Bridge::start`], on the first of `subnets` that the host does not use;
    /// a network that exists keeps the one it has.
    pub async fn start_any(config: BridgeConfig, subnets: &[Ipv4Cidr]) -> Result<Self> {
        let subnets = subnets.to_vec();
        for subnet in &subnets {
            subnet_check(*subnet).map_err(|error| error.at("subnet"))?;
        }
        let (config, leases) = blocking(move || start_blocking(config, &subnets)).await?;
        let filter = Filter::start(&config, leases.all().into_iter().map(|(_, number)| number)).await?;
        tracing::info!(bridge = config.bridge, subnet = %config.subnet, leases = leases.all().len(), "network is up");
        let (locks, sweep) = (Mutex::default(), tokio::sync::RwLock::default());
        let ports = tokio::sync::Semaphore::new(PORTS_AT_ONCE);
        let inner = Inner { config, leases, filter, locks, sweep, ports, warm: Arc::default() };
        inner.warm_fill();
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn subnet(&self) -> Ipv4Cidr {
        self.inner.config.subnet
    }

    /// The host's address on the bridge, which is the gateway of the instances.
    pub fn gateway(&self) -> Ipv4Addr {
        self.inner.config.gateway()
    }

    /// Gives the instance an address and a namespace, or finds those it has.
    ///
    /// The work goes on when the caller goes away, so that nothing is left half done.
    pub async fn attach(&self, instance: &str) -> Result<Attachment> {
        let (inner, instance) = (self.inner.clone(), instance.to_owned());
        joined(tokio::spawn(async move { inner.attach(&instance).await }).await)
    }

    /// Takes the namespace away, then the address; no error when the instance has none.
    pub async fn detach(&self, instance: &str) -> Result<()> {
        let (inner, instance) = (self.inner.clone(), instance.to_owned());
        joined(tokio::spawn(async move { inner.detach(&instance).await }).await)
    }

    /// Detaches all but these instances and removes what belongs to nobody.
    ///
    /// An instance that is not in the list must not be attached at the same time.
    pub async fn retain(&self, instances: &[String]) -> Result<()> {
        let keep: BTreeSet<&str> = instances.iter().map(String::as_str).collect();
        let gone: Vec<String> =
            self.attachments().into_iter().map(|(i, _)| i).filter(|i| !keep.contains(i.as_str())).collect();
        self.detach_all(gone).await?;
        self.sweep().await.map(drop)
    }

    /// Removes ports and namespaces of this network that no lease speaks of; says how many.
    pub async fn sweep(&self) -> Result<usize> {
        let inner = self.inner.clone();
        let _sweep = self.inner.sweep.write().await;
        blocking(move || inner.leftovers_remove()).await
    }

    /// Looks whether the bridge, its ports and its rules are as they were made, and puts back what is not; says what that
    /// was. Others than us change these: a reload of the host's firewall, a tool that clears up.
    pub async fn mend(&self) -> Result<Vec<String>> {
        let mut mended = Vec::new();
        let inner = self.inner.clone();
        let (lack, loose) = {
            let _sweep = self.inner.sweep.write().await;
            blocking(move || inner.host_mend()).await?
        };
        mended.extend(lack);
        for instance in &loose {
            self.inner.clone().reattach(instance).await?;
        }
        match loose.len() {
            0 => {}
            1 => mended.push("1 port did not hang on the bridge".to_owned()),
            count => mended.push(format!("{count} ports did not hang on the bridge")),
        }
        if self.inner.filter.mend(&self.inner.config).await? {
            mended.push(format!(
                "the nftables rules of {} were not as they were loaded",
                self.inner.config.table
            ));
        }
        Ok(mended)
    }

    /// What the instance has by its lease.
    pub fn lookup(&self, instance: &str) -> Option<Attachment> {
        self.inner.leases.get(instance).map(|number| self.inner.attachment(instance, number))
    }

    pub fn attachments(&self) -> Vec<(String, Attachment)> {
        let named = |(instance, number): (String, u32)| {
            let attachment = self.inner.attachment(&instance, number);
            (instance, attachment)
        };
        self.inner.leases.all().into_iter().map(named).collect()
    }

    /// The traffic of an instance since it was attached.
    pub fn counters(&self, instance: &str) -> Result<Counters> {
        let veth = self.lookup(instance).map(|attachment| attachment.host_veth);
        let veth = veth.ok_or_else(|| Error::not_found(format!("network port of {instance}")))?;
        let folder = Path::new("/sys/class/net").join(veth).join("statistics");
        let read = |name: &str| -> Result<u64> {
            let text = std::fs::read_to_string(folder.join(name))
                .map_err(|error| Error::not_found(format!("network port of {instance}")).because(error))?;
            Ok(text.trim().parse().unwrap_or(0))
        };
        // What our end sends, the instance receives.
        Ok(Counters {
            received_bytes: read("tx_bytes")?,
            received_packets: read("tx_packets")?,
            sent_bytes: read("rx_bytes")?,
            sent_packets: read("rx_packets")?,
        })
    }

    /// Removes everything of this network: ports, namespaces, bridge, rules and leases.
    pub async fn stop(self) -> Result<()> {
        self.retain(&[]).await?;
        let bridge = self.inner.config.bridge.clone();
        blocking(move || bridge_remove(&bridge)).await?;
        filter_remove(&self.inner.config.table).await?;
        self.inner.leases.destroy().await
    }

    async fn detach_all(&self, instances: Vec<String>) -> Result<()> {
        let results: Vec<Result<()>> = stream::iter(instances)
            .map(|instance| async move { self.detach(&instance).await })
            .buffer_unordered(PORTS_AT_ONCE)
            .collect()
            .await;
        results.into_iter().collect()
    }
}

/// Under the lock of the host: nobody else chooses a subnet between our look and our address.
fn start_blocking(mut config: BridgeConfig, subnets: &[Ipv4Cidr]) -> Result<(BridgeConfig, Leases)> {
    config.validate()?;
    if config.state.is_dir() {
        config.state.push(LEASE_FILE);
    }
    let _lock = folder_lock()?;
    config.subnet = subnet_choose(&config, subnets)?;
    let leases = Leases::open(&config.state, config.subnet)?;
    bridge_ensure(&config)?;
    Ok((config, leases))
}

impl Inner {
    fn attachment(&self, instance: &str, number: u32) -> Attachment {
        let address = self.config.subnet.host(number);
        Attachment {
            netns: netns_path(&self.config.netns_name(instance)),
            address,
            gateway: self.config.gateway(),
            prefix: self.config.subnet.prefix(),
            mac: mac_text(mac_of(address)),
            host_veth: self.config.veth(number),
        }
    }

    fn plan(&self, attachment: &Attachment) -> PortPlan {
        PortPlan {
            veth: attachment.host_veth.clone(),
            bridge: self.config.bridge.clone(),
            netns: attachment.netns.clone(),
            address: attachment.address,
            prefix: attachment.prefix,
            gateway: attachment.gateway,
            mac: mac_of(attachment.address),
            mtu: self.config.mtu,
        }
    }

    /// Waits for its turn with this instance. Locks that nobody holds are forgotten.
    async fn turn(&self, instance: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|name, lock| name == instance || Arc::strong_count(lock) > 1);
            locks.entry(instance.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }

    async fn attach(self: Arc<Self>, instance: &str) -> Result<Attachment> {
        instance_check(instance)?;
        let _sweep = self.sweep.read().await;
        let _turn = self.turn(instance).await;
        let (number, fresh) = self.leases.lease(instance)?;
        let attachment = self.attachment(instance, number);
        let plan = self.plan(&attachment);
        let made = async {
            self.filter.number_ensure(&self.config, number).await?;
            // The disk and the kernel work at the same time; both must succeed.
            let (kept, made) = tokio::join!(self.leases.persist(), self.port_ensure(plan.clone()));
            kept.and(made)
        };
        if let Err(error) = made.await {
            if fresh && self.port_remove(plan).await.is_ok() {
                self.leases.release(instance);
            }
            return Err(error);
        }
        Ok(attachment)
    }

    /// Makes the bridge anew where it lacks something, and finds the instances whose ports hang elsewhere.
    fn host_mend(&self) -> Result<(Option<String>, Vec<String>)> {
        let told = |error| kernel_error("the bridge cannot be looked at", error);
        let lack = bridge_lack(&self.config).map_err(told)?;
        if lack.is_some() {
            bridge_ensure(&self.config)?;
        }
        let loose: BTreeSet<String> = ports_loose(&self.config).map_err(told)?.into_iter().collect();
        let leased = self.leases.all().into_iter();
        let loose = leased.filter(|(_, number)| loose.contains(&self.config.veth(*number)));
        Ok((lack, loose.map(|(instance, _)| instance).collect()))
    }

    /// Puts the port of an instance back on the bridge, unless it was detached meanwhile.
    async fn reattach(self: Arc<Self>, instance: &str) -> Result<()> {
        let _sweep = self.sweep.read().await;
        let _turn = self.turn(instance).await;
        let Some(number) = self.leases.get(instance) else { return Ok(()) };
        self.port_ensure(self.plan(&self.attachment(instance, number))).await
    }

    async fn detach(self: Arc<Self>, instance: &str) -> Result<()> {
        let _sweep = self.sweep.read().await;
        let _turn = self.turn(instance).await;
        let Some(number) = self.leases.get(instance) else { return Ok(()) };
        // The address is free only when nothing in the kernel has it any more.
        self.port_remove(self.plan(&self.attachment(instance, number))).await?;
        self.leases.release(instance);
        self.leases.persist().await
    }

    async fn port_ensure(&self, plan: PortPlan) -> Result<()> {
        let _permit = self.ports.acquire().await.expect("the semaphore is never closed");
        let warm = self.warm.clone();
        let made = blocking(move || {
            port_ensure(&plan, &warm).map_err(|error| {
                kernel_error(&format!("the network port {} cannot be made", plan.veth), error)
            })
        })
        .await;
        self.warm_fill();
        made
    }

    /// Sees to namespaces for those who come next, while nobody waits.
    fn warm_fill(&self) {
        if !self.warm.is_full() {
            let warm = self.warm.clone();
            drop(tokio::task::spawn_blocking(move || warm.fill()));
        }
    }

    async fn port_remove(&self, plan: PortPlan) -> Result<()> {
        let _permit = self.ports.acquire().await.expect("the semaphore is never closed");
        blocking(move || {
            port_remove(&plan).map_err(|error| {
                kernel_error(&format!("the network port {} cannot be removed", plan.veth), error)
            })
        })
        .await
    }

    /// Ports on our bridge and names with our prefix that no lease speaks of.
    fn leftovers_remove(&self) -> Result<usize> {
        let mut count = 0;
        let told = |error| kernel_error("the leftovers of the network cannot be removed", error);
        let leased: BTreeSet<String> =
            self.leases.all().into_iter().map(|(_, number)| self.config.veth(number)).collect();
        let mut netlink = Netlink::open().map_err(told)?;
        for port in bridge_ports(&self.config.bridge, &self.config.veth_prefix).map_err(told)? {
            if !leased.contains(&port) {
                tracing::info!(port, "removing a port that belongs to nobody");
                netlink.link_remove(&port).map_err(told)?;
                count += 1;
            }
        }
        for name in netns_names(&self.config.netns_prefix).map_err(told)? {
            let instance = name.strip_prefix(&self.config.netns_prefix).unwrap_or_default();
            if self.leases.get(instance).is_none() {
                tracing::info!(name, "removing a namespace that belongs to nobody");
                netns_remove(&netns_path(&name)).map_err(told)?;
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Runs what blocks where blocking is allowed.
async fn blocking<T: Send + 'static>(task: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    joined(tokio::task::spawn_blocking(task).await)
}

/// A task ends without a result only by a panic or at the end of the program.
fn joined<T>(result: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    result.unwrap_or_else(|error| Err(Error::internal("a task of the network broke off").because(error)))
}
