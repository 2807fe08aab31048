//! Every bound of the link, by name.

use std::time::Duration;

/// The largest message body, as sent and as unpacked.
pub const BODY_MAX: usize = 64 << 20;
/// The largest body of an enrolment or of another small request.
pub const SMALL_BODY_MAX: usize = 64 << 10;
/// The largest MQTT packet.
pub const PACKET_MAX: usize = 16 << 20;
/// What a packet may hold besides its payload.
pub(crate) const PACKET_ROOM: usize = 1 << 10;
/// Bodies above this size are packed with gzip.
pub const COMPRESS_OVER: usize = 16 << 10;
/// Bodies above this size are packed and unpacked beside the tasks that carry messages.
pub const ASIDE_OVER: usize = 128 << 10;
/// A page that is too large is asked for again in pages of this size, then of half of it, and so on.
pub const PAGE_CUT_FIRST: usize = 512 << 10;

/// How long a parent holds a poll open.
pub const POLL_MAX: Duration = Duration::from_secs(25);
/// How long root holds the poll of a provisioner open. Each is a sign of life, so it is shorter than its lease.
pub const TASK_POLL_MAX: Duration = Duration::from_secs(4);
/// The largest body of a provisioner: what it holds, or what became of tasks.
pub const TASK_BODY_MAX: usize = 16 << 20;
/// Reports of one request.
pub const TASKS_DONE_MAX: usize = 1_000;
/// How often a child gives a sign of life.
pub const BEAT: Duration = Duration::from_secs(4);
/// Round trips that are remembered; the shortest of them counts.
pub const ROUND_TRIPS_MAX: usize = 8;
/// MQTT's own keep-alive.
pub const KEEP_ALIVE_S: u16 = 5;
/// A request that should be answered at once is given up after this.
pub const REQUEST_WAIT: Duration = Duration::from_secs(8);
/// A child that stops waits so long for its parent to hear of it.
pub const GOODBYE_WAIT: Duration = Duration::from_secs(1);
/// A push of a large observed set may take this long.
pub const PUSH_WAIT: Duration = Duration::from_secs(30);
/// How long a child has to say that it took a desired set before it is offered again.
pub const HAVE_WAIT: Duration = Duration::from_secs(10);
/// How long a child waits for its parent to hear of a new connection before it beats again.
pub const WELCOME_WAIT: Duration = Duration::from_secs(2);
/// Beats without an answer after which a child connects anew.
pub const WELCOMES_MAX: usize = 3;
/// How long a call waits for the child to open its stream.
pub const CALL_WAIT: Duration = Duration::from_secs(10);
/// TCP and TLS must be up by then.
pub const CONNECT_WAIT: Duration = Duration::from_secs(8);
/// A blob that brings no byte for this long is given up.
pub const BLOB_STALL: Duration = Duration::from_secs(30);

/// The first pause before connecting again, and the longest.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A connection that ends sooner does not make the next pause short again.
pub const BACKOFF_HOLD: Duration = Duration::from_secs(5);
/// So many connections of one child within the time are worth a warning.
pub const CONNS_OFTEN: usize = 8;
pub const CONNS_OFTEN_WITHIN: Duration = Duration::from_secs(60);
/// Processes of one child that are remembered.
pub const LIVES_MAX: usize = 4;
/// That two processes have one identity is said once, and then this often.
pub const TWINS_SAID_EVERY: Duration = Duration::from_secs(60);
/// Two processes that speak in turns over different ways are told apart from one that was started anew, of which
/// something was still on the way, by how often they take turns.
pub const LIVES_TURNS_MAX: u32 = 3;
/// That a certificate is of no use here is said once, and then this often.
pub const STRANGERS_SAID_EVERY: Duration = Duration::from_secs(60);

/// While a broker is away the leases of those behind it are renewed this often, well within one.
pub const SPARE_EVERY: Duration = Duration::from_secs(2);

/// A child that was removed asks again after so long.
pub const REMOVED_PAUSE: Duration = Duration::from_secs(300);
/// That somebody is refused is said once, and then this often, by the child and by the broker.
pub const REFUSED_SAID_EVERY: Duration = Duration::from_secs(600);
pub const REFUSALS_SAID_EVERY: Duration = Duration::from_secs(60);
/// Beats of removed children that wait to be answered.
pub const REFUSALS_MAX: usize = 64;

/// A call waits this long for a child that is between two connections.
pub const ROUTE_WAIT: Duration = Duration::from_secs(2);
/// Calls that wait for a child to fetch them.
pub const CALLS_QUEUE_MAX: usize = 64;
/// Calls of all children that wait for their stream.
pub const CALLS_WAITING_MAX: usize = 4096;
/// Frames between a stream's socket and its user, each way.
pub const STREAM_FRAMES_MAX: usize = 16;
/// The largest part of a stream sent as one frame.
pub const FRAME_MAX: usize = 64 << 10;
/// An idle stream is kept open through NAT by a ping this often.
pub const STREAM_PING: Duration = Duration::from_secs(20);
/// Connections that one HTTPS listener holds.
pub const CONNECTIONS_MAX: usize = 8192;
/// Connections that have not shown a certificate yet, and those of them that are past the handshake because they show
/// none, as newcomers do: so many, and for so long. Strangers cannot take the places of children.
pub const CONNECTIONS_NEW_MAX: usize = 2048;
pub const STRANGERS_MAX: usize = 512;
pub const STRANGER_WAIT: Duration = Duration::from_secs(30);
/// Requests at once on one connection.
pub const REQUESTS_PER_CONNECTION_MAX: u32 = 64;
/// Messages that the broker keeps for one slow client.
pub const BROKER_QUEUE_MAX: usize = 8192;
/// MQTT requests that wait to be written.
pub const MQTT_REQUESTS_MAX: usize = 64;
/// MQTT messages that a child, and the parent of many, has sent and the broker has not acknowledged.
pub const MQTT_CHILD_INFLIGHT_MAX: u16 = 16;
pub const MQTT_PARENT_INFLIGHT_MAX: u16 = 1024;
/// Observed sets of one child that wait to be taken.
pub const REPORTS_QUEUE_MAX: usize = 4;
/// Ended connections of one child that are remembered, so that what still comes of them is not taken for news.
pub const CONNS_ENDED_MAX: usize = 4;

/// How long a certificate of the tree is good.
pub const CERT_VALID: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest that makes sense: it is renewed when a third is left, and clocks differ.
pub const CERT_VALID_MIN: Duration = Duration::from_secs(10);
/// How long the CA's own certificate is good.
pub const CA_VALID: Duration = Duration::from_secs(20 * 365 * 24 * 3600);
/// Certificates begin this long before now, for clocks that differ.
pub const CERT_BACKDATE: Duration = Duration::from_secs(3600);
/// A certificate is renewed when one part of so many of its life is left.
pub const RENEW_LEFT_PART: i64 = 3;
/// After a failure it is tried again when one part of so many of the rest has passed.
pub const RENEW_RETRY_PART: i64 = 10;
/// How often a certificate is looked at, at most and at least.
pub const RENEW_LOOK_MIN: Duration = Duration::from_secs(1);
pub const RENEW_LOOK_MAX: Duration = Duration::from_secs(3600);
/// How often one that has expired is tried.
pub const RENEW_EXPIRED: Duration = Duration::from_secs(60);
/// Removals that a listener has not heard of yet; it asks about every request all the same.
pub const KICKS_MAX: usize = 256;
/// Addresses of one parent.
pub const PARENTS_MAX: usize = 16;
