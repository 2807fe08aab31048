//! Telling webhooks what happened in a bucket.
//!
//! An event is a record that is written by the very change it tells of, so none
//! is lost and none is told of what did not happen. Every target of an account has a
//! queue of its own, so that one that does not answer holds up nobody else's. A background
//! task delivers each queue in its order, again after a failure, and lets go of
//! those that nobody wanted for a day.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;

use s3s::dto::{FilterRuleName, NotificationConfigurationFilter};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::engine::Tx;
use crate::escape::escape;
use crate::fault::Result;
use crate::hook;
use crate::identity::Account;
use crate::record::Bucket;
use crate::record::key::{self, Space};
use crate::record::version::Head;
use crate::service::{Records, Service};
use crate::time::timestamp;
use crate::version::{self, Deleted};

/// Events of one bucket that may wait, for all its targets together; when there are more, new ones are not kept.
pub const WAITING_MAX: u64 = 100_000;
/// How long an event is tried.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Events of one target in one round.
const ROUND: usize = 20;
/// Targets that are called at once.
const CALLS: usize = 16;
const PAUSE: Duration = Duration::from_secs(1);
/// How long a target that failed is left alone, at first and at most.
const REST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
const QUEUE: &str = "hook";
/// Where it is counted how many events of a bucket wait.
const HELD: &str = "held";
/// Of buckets that name none.
const REGION: &str = "us-east-1";

/// An event that waits for delivery.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    to: String,
    at: i64,
    body: String,
    /// It may not go to the store's own machine.
    #[serde(default)]
    far: bool,
    /// Whose events it counts among; earlier builds kept none.
    #[serde(default)]
    bucket: u32,
}

/// What an event is about.
pub struct About<'a> {
    pub object: &'a str,
    pub size: u64,
    pub etag: &'a str,
    pub version_id: Option<String>,
    pub seq: u64,
    /// Who did it.
    pub by: &'a Account,
}

impl<'a> About<'a> {
    pub fn version(object: &'a str, head: &'a Head) -> Self {
        let version_id = Some(head.version_id());
        Self { object, size: head.size, etag: &head.etag, version_id, seq: head.seq, by: &head.owner }
    }
}

/// What happened, in S3's words after `s3:`, such as `ObjectCreated:Put`.
pub fn emit(tx: &mut Tx<'_>, bucket: &Bucket, event: &str, about: &About<'_>) -> Result<()> {
    let Some(asked) = &bucket.settings.notification else { return Ok(()) };
    let topics = asked.topic_configurations.iter().flatten();
    let topics = topics.map(|topic| (&topic.id, &topic.topic_arn, &topic.events, &topic.filter));
    let queues = asked.queue_configurations.iter().flatten();
    let queues = queues.map(|queue| (&queue.id, &queue.queue_arn, &queue.events, &queue.filter));
    for (id, arn, events, filter) in topics.chain(queues) {
        let wanted = events.iter().any(|pattern| event_fits(pattern.as_ref(), event));
        if !wanted || !key_fits(filter.as_ref(), about.object) {
            continue;
        }
        let now = tx.now();
        let body = message(bucket, event, about, id.as_deref().unwrap_or_default(), now);
        let Some(to) = hook::address(arn).map(str::to_owned) else { continue };
        let held = held(tx, bucket.id)?;
        if held >= WAITING_MAX {
            tracing::warn!(bucket = bucket.name, target = to, "too many events wait; one is dropped");
            continue;
        }
        hold(tx, bucket.id, held + 1);
        let far = bucket.settings.notification_far;
        let queue = Mark::of(&bucket.owner, &to, far);
        let number = tx.next(&queue.counter())?;
        let waiting = Waiting { to, at: now, body, far, bucket: bucket.id };
        tx.put(queue.place(number), serde_json::to_vec(&waiting).expect("plain data"));
    }
    Ok(())
}

/// How many events of a bucket wait.
fn held(records: &impl Records, bucket: u32) -> Result<u64> {
    let count = records.record(&held_place(bucket))?;
    Ok(count.as_deref().map_or(0, number))
}

fn hold(tx: &mut Tx<'_>, bucket: u32, count: u64) {
    match count {
        0 => tx.delete(held_place(bucket)),
        count => tx.put(held_place(bucket), count.to_be_bytes().to_vec()),
    }
}

fn number(value: &[u8]) -> u64 {
    value.last_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}

fn held_place(bucket: u32) -> Vec<u8> {
    let mut place = beginning(HELD);
    place.extend_from_slice(&bucket.to_be_bytes());
    place
}

/// Events that do not wait any more, and those of each bucket among them.
fn forget(tx: &mut Tx<'_>, done: Vec<Vec<u8>>, of: HashMap<u32, u64>) -> Result<()> {
    done.into_iter().for_each(|name| tx.delete(name));
    for (bucket, count) in of {
        let left = held(tx, bucket)?.saturating_sub(count);
        hold(tx, bucket, left);
    }
    Ok(())
}

/// What was removed, if anything; `events` are for what is gone and for a marker that was made.
pub fn removed(
    tx: &mut Tx<'_>,
    bucket: &Bucket,
    object: &str,
    deleted: &Deleted,
    by: &Account,
    events: [&str; 2],
) -> Result<()> {
    let marked = deleted.marker && !deleted.removed;
    if !marked && !deleted.removed {
        return Ok(());
    }
    let (version_id, seq) = (deleted.version_id.clone(), tx.next(version::COUNTER)?);
    let about = About { object, size: 0, etag: "", version_id, seq, by };
    emit(tx, bucket, events[usize::from(marked)], &about)
}

/// What the queue of a target goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Mark([u8; 8]);

impl Mark {
    /// The same address may be within reach of one account and not of another, and may refuse what one of them tells.
    fn of(owner: &Account, target: &str, far: bool) -> Self {
        let sum = Sha256::digest(format!("{} {far} {target}", owner.id));
        Self(std::array::from_fn(|at| sum[at]))
    }

    fn of_place(place: &[u8]) -> Option<Self> {
        let start = place.len().checked_sub(16)?;
        Some(Self(place.get(start..start + 8)?.try_into().ok()?))
    }

    fn counter(self) -> String {
        format!("{QUEUE}-{}", hex::encode(self.0))
    }

    fn place(self, number: u64) -> Vec<u8> {
        let mut place = beginning(QUEUE);
        place.extend_from_slice(&self.0);
        place.extend_from_slice(&number.to_be_bytes());
        place
    }

    fn all(self) -> std::ops::Range<Vec<u8>> {
        let mut prefix = beginning(QUEUE);
        prefix.extend_from_slice(&self.0);
        key::under(prefix)
    }
}

fn beginning(of: &str) -> Vec<u8> {
    let mut name = vec![Space::Queue as u8];
    name.extend_from_slice(of.as_bytes());
    name.push(0);
    name
}

/// The queues that hold something.
fn queues(records: &impl Records) -> Result<Vec<Mark>> {
    let mut range = key::under(beginning(QUEUE));
    let mut found = Vec::new();
    loop {
        let mut next = None;
        records.each(range.clone(), |name, _| {
            next = Mark::of_place(name);
            false
        })?;
        let Some(queue) = next else { return Ok(found) };
        range.start = queue.all().end;
        found.push(queue);
    }
}

/// How many events wait of the bucket that has most of them.
pub fn waiting(records: &impl Records) -> Result<u64> {
    let mut most = 0;
    records.each(key::under(beginning(HELD)), |_, value| {
        most = most.max(number(value));
        true
    })?;
    Ok(most)
}

/// What this store tells of.
const EVENTS: [&str; 8] = [
    "ObjectCreated:Put",
    "ObjectCreated:Post",
    "ObjectCreated:Copy",
    "ObjectCreated:CompleteMultipartUpload",
    "ObjectRemoved:Delete",
    "ObjectRemoved:DeleteMarkerCreated",
    "LifecycleExpiration:Delete",
    "LifecycleExpiration:DeleteMarkerCreated",
];

/// Whether an event is one that this store tells of, or all of a kind of them.
pub fn is_told(pattern: &str) -> bool {
    let Some(name) = pattern.strip_prefix("s3:") else { return false };
    let whole = name.strip_suffix('*').is_none_or(|kind| kind.ends_with(':'));
    whole && EVENTS.iter().any(|event| event_fits(pattern, event))
}

fn event_fits(pattern: &str, event: &str) -> bool {
    let pattern = pattern.strip_prefix("s3:").unwrap_or(pattern);
    match pattern.strip_suffix('*') {
        Some(head) => event.starts_with(head),
        None => pattern == event,
    }
}

fn key_fits(filter: Option<&NotificationConfigurationFilter>, object: &str) -> bool {
    let rules = filter.and_then(|filter| filter.key.as_ref()?.filter_rules.as_ref());
    rules.into_iter().flatten().all(|rule| {
        let value = rule.value.as_deref().unwrap_or_default();
        match rule.name.as_ref().map(|name| name.as_str().to_ascii_lowercase()).as_deref() {
            Some(FilterRuleName::PREFIX) => object.starts_with(value),
            Some(FilterRuleName::SUFFIX) => object.ends_with(value),
            _ => true,
        }
    })
}

fn message(bucket: &Bucket, event: &str, about: &About<'_>, id: &str, now: i64) -> String {
    let mut at = Vec::new();
    let format = s3s::dto::TimestampFormat::DateTime;
    let at = timestamp(now).format(format, &mut at).ok().and_then(|()| String::from_utf8(at).ok());
    let mut record = json!({
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": bucket.location.as_deref().filter(|region| !region.is_empty()).unwrap_or(REGION),
        "eventTime": at,
        "eventName": event,
        "userIdentity": { "principalId": &*about.by.id },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": id,
            "bucket": {
                "name": bucket.name,
                "ownerIdentity": { "principalId": &*bucket.owner.id },
                "arn": format!("arn:aws:s3:::{}", bucket.name),
            },
            "object": {
                // Spaces as plus signs, as forms have them and consumers expect it.
                "key": escape(about.object, true).replace("%20", "+"),
                "sequencer": format!("{:016X}", about.seq),
            },
        },
    });
    let object = &mut record["s3"]["object"];
    if event.starts_with("ObjectCreated") {
        object["size"] = about.size.into();
        object["eTag"] = about.etag.into();
    }
    // A bucket that keeps no versions names none.
    if let Some(version) = about.version_id.as_deref().filter(|version| *version != "null") {
        object["versionId"] = version.into();
    }
    json!({ "Records": [record] }).to_string()
}

/// Delivers until `stop`.
pub async fn run(service: Service, stop: CancellationToken) {
    let clients = match Clients::new(&service) {
        Ok(clients) => clients,
        Err(error) => return tracing::error!(%error, "events cannot be delivered"),
    };
    let mut resting: HashMap<Mark, Rest> = HashMap::new();
    while !stop.is_cancelled() {
        let more = match round(&service, &clients, &mut resting).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "a round of events did not end");
                false
            }
        };
        if !more {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// One for webhooks that may be on this machine, one for those that may not.
struct Clients {
    near: reqwest::Client,
    far: reqwest::Client,
    listen: std::net::IpAddr,
}

impl Clients {
    fn new(service: &Service) -> reqwest::Result<Self> {
        let listen = service.config.listen.ip();
        Ok(Self { near: hook::client(listen)?, far: hook::client(hook::STRANGER)?, listen })
    }

    /// An address that has become the machine's own since it was set is not called either.
    async fn call(&self, event: &Waiting) -> std::result::Result<(), String> {
        let (client, listen) =
            if event.far { (&self.far, hook::STRANGER) } else { (&self.near, self.listen) };
        let url: reqwest::Url = event.to.parse().map_err(|_| "it is no address".to_owned())?;
        if !hook::allows(&url, listen) {
            return Err("it is an address that webhooks may not have".into());
        }
        let call = client.post(url).header("content-type", "application/json").body(event.body.clone());
        let answer = call.send().await.and_then(reqwest::Response::error_for_status);
        answer.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// A target that failed.
struct Rest {
    until: Instant,
    last: Duration,
}

/// Tries the oldest events of every target that does not rest. Whether more wait and could go.
async fn round(service: &Service, clients: &Clients, resting: &mut HashMap<Mark, Rest>) -> Result<bool> {
    let awake = {
        let view = service.engine.read()?;
        let mut queues = queues(&view)?;
        resting.retain(|queue, _| queues.contains(queue));
        queues.retain(|queue| resting.get(queue).is_none_or(|rest| rest.until <= Instant::now()));
        queues
    };
    let calls = awake.into_iter().map(|queue| async move { (queue, deliver(service, clients, queue).await) });
    let answers: Vec<(Mark, Result<Delivered>)> =
        futures::stream::iter(calls).buffer_unordered(CALLS).collect().await;
    let mut more = false;
    for (queue, delivered) in answers {
        let delivered = delivered?;
        more |= delivered.more;
        if delivered.failed {
            let last = resting.get(&queue).map_or(REST[0], |rest| (rest.last * 2).min(REST[1]));
            resting.insert(queue, Rest { until: Instant::now() + last, last });
        } else {
            resting.remove(&queue);
        }
    }
    Ok(more)
}

struct Delivered {
    failed: bool,
    /// More wait and could go.
    more: bool,
}

/// Sends the oldest events of a target one after the other, until one is not taken.
async fn deliver(service: &Service, clients: &Clients, queue: Mark) -> Result<Delivered> {
    let mut waiting = Vec::new();
    service.engine.read()?.scan(queue.all(), |name, value| {
        waiting.push((name.to_vec(), serde_json::from_slice::<Waiting>(value).ok()));
        waiting.len() < ROUND
    })?;
    let full = waiting.len() == ROUND;
    let now = jiff::Timestamp::now().as_millisecond();
    let mut done = Vec::new();
    let mut of: HashMap<u32, u64> = HashMap::new();
    let mut failed = false;
    for (name, event) in waiting {
        let Some(event) = event else {
            done.push(name);
            continue;
        };
        if let Err(error) = clients.call(&event).await {
            tracing::warn!(target = event.to, error, "an event was not taken");
            failed = true;
            if now - event.at <= KEPT.as_millis() as i64 {
                break;
            }
        }
        *of.entry(event.bucket).or_default() += 1;
        done.push(name);
    }
    if !done.is_empty() {
        service.engine.write(move |tx| forget(tx, done, of)).await?;
    }
    Ok(Delivered { failed, more: full && !failed })
}

#[cfg(test)]
mod tests {
    use s3s::dto::{Event, NotificationConfiguration, TopicConfiguration};

    use super::*;
    use crate::engine::{Engine, EngineConfig};
    use crate::record::Acl;

    fn topic(address: &str) -> TopicConfiguration {
        TopicConfiguration {
            events: vec![Event::from("s3:ObjectCreated:*".to_owned())],
            filter: None,
            id: None,
            topic_arn: address.into(),
        }
    }

    /// One that tells two targets.
    fn bucket(id: u32) -> Bucket {
        let owner = Account { id: "o".into(), name: "o".into() };
        let topics = vec![topic("http://a.test/"), topic("http://b.test/")];
        let asked = NotificationConfiguration {
            topic_configurations: Some(topics),
            ..NotificationConfiguration::default()
        };
        let settings = crate::record::bucket::Settings {
            notification: Some(asked),
            ..crate::record::bucket::Settings::default()
        };
        Bucket {
            id,
            name: "b".into(),
            acl: Acl::private(&owner),
            owner,
            created: 0,
            versioning: Default::default(),
            policy: None,
            location: None,
            settings,
            quota: None,
        }
    }

    fn put(tx: &mut Tx<'_>, bucket: &Bucket) -> Result<()> {
        let by = &bucket.owner;
        let about = About { object: "k", size: 0, etag: "", version_id: None, seq: 1, by };
        emit(tx, bucket, "ObjectCreated:Put", &about)
    }

    #[tokio::test]
    async fn a_bucket_has_room_for_so_many_events_whatever_their_targets() {
        let data = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineConfig::new(data.path().to_owned())).unwrap();
        let fills = |tx: &mut Tx<'_>| -> Result<()> {
            hold(tx, 1, WAITING_MAX - 1);
            put(tx, &bucket(1))?;
            put(tx, &bucket(1))?;
            put(tx, &bucket(2))
        };
        engine.write(fills).await.unwrap();
        let view = engine.read().unwrap();
        let mut kept = Vec::new();
        view.scan(key::under(beginning(QUEUE)), |name, _| {
            kept.push(name.to_vec());
            true
        })
        .unwrap();
        assert_eq!(kept.len(), 3, "one of the first bucket, and both of the other");
        assert_eq!((held(&view, 1).unwrap(), held(&view, 2).unwrap()), (WAITING_MAX, 2));
        assert_eq!(waiting(&view).unwrap(), WAITING_MAX);
        let of = HashMap::from([(0, 1), (1, 1), (2, 2)]);
        engine.write(move |tx: &mut Tx<'_>| forget(tx, kept, of)).await.unwrap();
        let view = engine.read().unwrap();
        assert_eq!((held(&view, 1).unwrap(), held(&view, 2).unwrap()), (WAITING_MAX - 1, 0));
    }

    #[tokio::test]
    async fn a_queue_is_of_one_account_and_one_reach() {
        let data = tempfile::tempdir().unwrap();
        let engine = Engine::open(EngineConfig::new(data.path().to_owned())).unwrap();
        let fills = |tx: &mut Tx<'_>| -> Result<()> {
            put(tx, &bucket(1))?;
            put(tx, &bucket(2))?;
            let mut far = bucket(3);
            far.settings.notification_far = true;
            put(tx, &far)?;
            let mut other = bucket(4);
            other.owner.id = "p".into();
            put(tx, &other)
        };
        engine.write(fills).await.unwrap();
        let view = engine.read().unwrap();
        let mut held = Vec::new();
        for queue in queues(&view).unwrap() {
            let mut buckets = Vec::new();
            view.scan(queue.all(), |_, value| {
                buckets.push(serde_json::from_slice::<Waiting>(value).unwrap().bucket);
                true
            })
            .unwrap();
            held.push(buckets);
        }
        held.sort();
        assert_eq!(held, [vec![1, 2], vec![1, 2], vec![3], vec![3], vec![4], vec![4]]);
    }

    #[test]
    fn patterns_name_events() {
        assert!(event_fits("s3:ObjectCreated:*", "ObjectCreated:Put"));
        assert!(event_fits("s3:ObjectCreated:Put", "ObjectCreated:Put"));
        assert!(!event_fits("s3:ObjectRemoved:*", "ObjectCreated:Put"));
        assert!(!event_fits("s3:ObjectCreated:Post", "ObjectCreated:Put"));
        for told in ["s3:ObjectCreated:*", "s3:ObjectRemoved:Delete", "s3:LifecycleExpiration:*"] {
            assert!(is_told(told), "{told}");
        }
        for never in [
            "s3:Replication:*",
            "s3:ObjectCreated",
            "s3:Object*",
            "ObjectCreated:Put",
            "s3:*",
            "s3:ObjectAcl:Put",
        ] {
            assert!(!is_told(never), "{never}");
        }
    }
}
