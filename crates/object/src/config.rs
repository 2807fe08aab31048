//! The settings of a store.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

/// Half a kilobyte a second: a tenth of what the slowest radio links carry, and too much to hold many connections with.
const RATE_MIN: u64 = 512;

/// Enough for thousands of clients, and little memory for those that rest.
const CONNECTIONS_MAX: usize = 4096;

/// The files of a certificate, in PEM: the chain from the server's own on, and the private key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How a store is run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the data lives.
    pub data: PathBuf,
    /// Where S3 is served; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Serves HTTPS instead of HTTP.
    pub tls: Option<TlsFiles>,
    /// Connections served at once. One more takes the place of the one that has rested longest; where none rests, it waits.
    pub connections_max: usize,
    /// Requests of one account under way at once, or of one address while nobody knows whose they are; more are told to slow down.
    pub share_max: usize,
    /// How long a client may send nothing of a body, or take nothing of an answer; its rate is measured over twice as much waiting.
    pub silence_max: Duration,
    /// Bytes a second that a client sends of a body, or takes of an answer, at the least.
    pub rate_min: u64,
    /// Base domains for virtual-host style (`bucket.DOMAIN`); path style always works.
    pub domains: Vec<String>,
    /// The name of the region in answers and location constraints.
    pub region: String,
    /// Further names that are taken as location constraints.
    pub locations: Vec<String>,
    /// How long a day lasts for lifecycle rules. Shorter ones are for tests.
    pub day: Duration,
    /// Domains under which buckets are websites (`bucket.DOMAIN`).
    pub website_domains: Vec<String>,
    /// How long after its first line an access log is written.
    pub log_every: Duration,
    /// How often lifecycle, reclaim and the like look for work.
    pub tick: Duration,
    /// The S3 store that keeps the bytes of large objects instead of the disk.
    pub gateway: Option<Gateway>,
}

/// An S3 store behind this one.
#[derive(Clone)]
pub struct Gateway {
    /// Such as `https://s3.example.org`.
    pub endpoint: String,
    pub bucket: String,
    /// What the names of our objects begin with.
    pub prefix: String,
    pub region: String,
    pub access_key: String,
    pub secret_key: Zeroizing<String>,
    /// Whether the bucket is in the host name instead of the path.
    pub virtual_host: bool,
    /// Certificates to trust beside the usual ones, as PEM.
    pub ca: Option<Vec<u8>>,
    /// Whether new objects go there. If not, what is there is still read and reclaimed.
    pub write: bool,
    /// How long one request may take.
    pub timeout: Duration,
    /// How old an object there must be before it counts as left behind by a crash.
    pub settle: Duration,
}

impl Gateway {
    pub fn new(endpoint: &str, bucket: &str, access_key: &str, secret_key: &str) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            bucket: bucket.to_owned(),
            prefix: "banyan".into(),
            region: "us-east-1".into(),
            access_key: access_key.to_owned(),
            secret_key: Zeroizing::new(secret_key.to_owned()),
            virtual_host: false,
            ca: None,
            write: true,
            timeout: Duration::from_secs(30),
            settle: Duration::from_secs(60 * 60),
        }
    }
}

/// The secret stays out of it.
impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway({} {}/{})", self.endpoint, self.bucket, self.prefix)
    }
}

impl Config {
    /// A shorter day also means that rules are looked at more often, and that logs come sooner.
    pub fn day_set(&mut self, day: Duration) {
        self.day = day;
        self.log_every = self.log_every.min(day / 2).max(Duration::from_secs(1));
        self.tick = self.tick.min(day / 10).max(Duration::from_millis(500));
    }

    pub fn new(data: PathBuf, listen: SocketAddr) -> Self {
        Self {
            data,
            listen,
            tls: None,
            connections_max: CONNECTIONS_MAX,
            share_max: CONNECTIONS_MAX / 2,
            silence_max: Duration::from_secs(60),
            rate_min: RATE_MIN,
            domains: Vec::new(),
            region: "us-east-1".into(),
            locations: Vec::new(),
            day: Duration::from_secs(24 * 60 * 60),
            website_domains: Vec::new(),
            log_every: Duration::from_secs(60),
            tick: Duration::from_secs(60),
            gateway: None,
        }
    }
}
