//! The listener: connections, limits, and what stands around s3s (request ids, CORS, virtual hosts).

pub mod amend;
mod cors;
pub mod document;
mod host;
mod method;
mod place;
mod range;
mod slow;
mod tls;
mod website;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse, S3Error, S3ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{self, Gate, Peer, Sts};
use crate::checksum;
use crate::fault::Fault;
use crate::form;
use crate::log::{Line, Log};
use crate::service::{Caller, Service};
use crate::share::Shares;
use crate::trace::{Seen, Trace};
use amend::Details;
use place::{Places, Seat};
use slow::{Pace, Taking};
use tls::Tls;

/// A client that does not send its headers by then is let go.
const HEADER_WAIT: Duration = Duration::from_secs(30);
/// The most bytes that a connection receives at once, and gathers before it sends.
const CONNECTION_BUFFER: usize = 64 << 10;
/// How long running requests may go on once the store is asked to stop.
const DRAIN_WAIT: Duration = Duration::from_secs(10);
/// The most an XML body may hold.
const XML_MAX: usize = 2 << 20;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const HOST_ID: HeaderName = HeaderName::from_static("x-amz-id-2");

/// A listener that is bound but not served yet.
pub struct Server {
    listener: TcpListener,
    door: Door,
}

/// What every listener of a store leads to.
#[derive(Clone)]
pub struct Door {
    tls: Option<Arc<Tls>>,
    edge: Arc<Edge>,
    places: Places,
}

struct Edge {
    service: Service,
    hosts: host::Hosts,
    websites: host::Hosts,
    s3: S3Service,
    /// For requests that have been checked.
    plain: S3Service,
    gate: Gate,
    log: Log,
    shares: Shares,
    /// Names this server in answers.
    host_id: Arc<str>,
}

impl Server {
    pub async fn bind(service: Service, log: Log) -> model::Result<Self> {
        let tls = service.config.tls.clone().map(Tls::load).transpose()?;
        let listener = listen(service.config.listen).await?;
        let mut config = S3Config::default();
        config.xml_max_body_size = XML_MAX;
        let mut builder = S3ServiceBuilder::new(service.clone());
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        let mut plain = S3ServiceBuilder::new(service.clone());
        plain.set_host(host::Hosts::new(&service.config.domains));
        builder.set_host(host::Hosts::new(&service.config.domains));
        builder.set_auth(crate::access::Auth::new(service.identity.clone()));
        builder.set_access(Gate::new(service.clone()));
        builder.set_route(Sts::new(service.clone()));
        let hosts = host::Hosts::new(&service.config.domains);
        let websites = host::Hosts::new(&service.config.website_domains);
        let gate = Gate::new(service.clone());
        let host_id = format!("{:032x}", rand::random::<u128>()).into();
        let places = Places::new(service.config.connections_max);
        let (s3, plain) = (builder.build(), plain.build());
        let shares = Shares::new(service.config.share_max);
        let edge = Edge { hosts, websites, s3, plain, gate, service, log, shares, host_id };
        Ok(Self { listener, door: Door { tls: tls.map(Arc::new), edge: Arc::new(edge), places } })
    }

    /// For further listeners.
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`; then lets running requests end.
    pub async fn run(self, stop: CancellationToken) {
        let following = self.door.tls.clone().map(|tls| tokio::spawn(tls.follow(stop.clone())));
        self.door.serve(self.listener, stop).await;
        if let Some(following) = following {
            let _ = following.await;
        }
    }
}

/// Takes an address for S3.
pub async fn listen(address: SocketAddr) -> model::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        model::Error::invalid(format!("S3 cannot listen on {address}: {error}"))
            .hint("choose another address for S3, or stop what holds this one")
    })
}

impl Door {
    /// Serves who comes to a listener until `stop`; then lets running requests end.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let running = TaskTracker::new();
        loop {
            let (stream, from) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "cannot take a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let seat = tokio::select! {
                () = stop.cancelled() => break,
                seat = self.places.take() => seat,
            };
            let _ = stream.set_nodelay(true);
            let (edge, stop) = (self.edge.clone(), stop.clone());
            let acceptor = self.tls.as_ref().map(|tls| tls.acceptor());
            running.spawn(async move {
                tokio::select! {
                    () = connection(edge, stream, from.ip().to_canonical(), acceptor, seat.clone(), stop) => {}
                    () = seat.lost() => tracing::debug!(%from, "a resting connection gives way to another"),
                }
            });
        }
        running.close();
        if tokio::time::timeout(DRAIN_WAIT, running.wait()).await.is_err() {
            tracing::warn!("some requests did not end in time");
        }
    }
}

/// Serves one connection to its end, after its handshake if there is to be one.
async fn connection(
    edge: Arc<Edge>,
    stream: TcpStream,
    address: IpAddr,
    acceptor: Option<TlsAcceptor>,
    seat: Arc<Seat>,
    stop: CancellationToken,
) {
    let mut peer = Peer { address, tls: None };
    let Some(acceptor) = acceptor else { return requests(edge, stream, peer, None, seat, stop).await };
    match tokio::time::timeout(HEADER_WAIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let tls = tls::agreed(stream.get_ref().1);
            peer.tls = Some(tls.map_or("", |(version, _)| version.trim_start_matches("TLSv")));
            requests(edge, stream, peer, tls, seat, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
        Err(_) => tracing::debug!("a handshake took too long"),
    }
}

async fn requests<T>(
    edge: Arc<Edge>,
    stream: T,
    peer: Peer,
    tls: Option<tls::Agreed>,
    seat: Arc<Seat>,
    stop: CancellationToken,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = Taking::new(stream, edge.pace(), seat.clone());
    // S3 is HTTP/1.1. The time for a head also bounds how long a connection may rest between requests.
    let mut builder = http1::Builder::new();
    let head = HEADER_WAIT.min(edge.service.config.silence_max);
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(CONNECTION_BUFFER);
    let serve = service_fn(move |req| {
        let (edge, seat) = (edge.clone(), seat.clone());
        async move {
            if !seat.begin() {
                return std::future::pending().await;
            }
            let answer = edge.handle(req, peer, tls, &seat).await;
            answer.map(|answer| answer.map(|body| seat.hold(body)))
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), serve);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

fn refused(fault: Fault) -> Result<HttpResponse, HttpError> {
    S3Error::from(fault).to_http_response().map_err(|error| HttpError::new(Box::new(error)))
}

/// The connection ends with this answer.
fn close(mut response: HttpResponse) -> Result<HttpResponse, HttpError> {
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

fn length_of<B>(req: &Request<B>) -> Option<u64> {
    req.headers().get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn silent() -> Fault {
    Fault::new(
        S3ErrorCode::RequestTimeout,
        "Your socket connection to the server was not read from or written to within the timeout period.",
    )
}

impl Edge {
    fn pace(&self) -> Pace {
        Pace { most: self.service.config.silence_max, rate: self.service.config.rate_min }
    }

    async fn handle(
        &self,
        req: Request<Incoming>,
        peer: Peer,
        tls: Option<tls::Agreed>,
        seat: &Seat,
    ) -> Result<HttpResponse, HttpError> {
        let started = Instant::now();
        let (head, body) = req.into_parts();
        let expects = head.headers.contains_key(http::header::EXPECT);
        let (body, silence) = slow::watched(body, self.pace(), expects);
        let mut req = Request::from_parts(head, body);
        amend::read_latin(req.headers_mut());
        let trace = Trace::default();
        req.extensions_mut().insert(peer);
        req.extensions_mut().insert(trace.clone());
        let request_id = format!("{:016X}", rand::random::<u64>());
        let mut line = Line::begin(&req, trace, &request_id, self.host_id.clone(), tls);
        let received = length_of(&req).or_else(|| amend::length_within(req.headers())).unwrap_or(0);
        let empty = length_of(&req) == Some(0);
        let failed = |error: &HttpError| tracing::error!(?error, request_id, "a request cannot be answered");
        let mut response = match self.shares.enter(peer.address) {
            Ok(share) => {
                seat.counts(share.clone());
                req.extensions_mut().insert(share);
                self.answer(req).await.inspect_err(failed)?
            }
            Err(fault) => close(refused(fault)?)?,
        };
        if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(request_id, method = %line.method(), path = ?line.uri.path(), "a request failed");
        }
        if silence.fell() {
            response = close(refused(silent())?)?;
        }
        let seen = line.trace.seen();
        let details = Details {
            resource: line.uri.path(),
            bucket: seen.and_then(|seen| seen.bucket.as_deref()),
            key: seen.and_then(|seen| seen.key.as_deref()),
            region: &self.service.config.region,
            request_id: &request_id,
            host_id: &self.host_id,
        };
        (response, line.code) = amend::complete(response, &details).await?;
        // Clients of AWS that get an answer where they wait for `100 Continue` mistake the next answer on the
        // connection.
        if expects && (empty || !response.status().is_success()) {
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, HeaderValue::from_str(&request_id).expect("hex is a header value"));
        headers.insert(HOST_ID, HeaderValue::from_str(&self.host_id).expect("hex is a header value"));
        headers.insert(http::header::SERVER, HeaderValue::from_static("banyan"));
        line.status = response.status().as_u16();
        line.sent = response.body().size_hint().exact();
        line.version_id = response.headers().get("x-amz-version-id").cloned();
        line.took = started.elapsed();
        let operation = line.trace.seen().map_or("none", |seen| seen.operation.as_str());
        self.service.metrics.request(operation, line.status, line.took, received, line.sent.unwrap_or(0));
        if line.trace.seen().is_none() {
            line.trace.note(self.guess(&line, peer));
        }
        self.log.note(&line).await;
        Ok(response)
    }

    /// What a request was about that was answered before anyone knew: its signature was refused, or it is a website's.
    fn guess(&self, line: &Line, peer: Peer) -> Seen {
        let path = line.uri.path().trim_start_matches('/');
        let host =
            line.host().and_then(|host| self.websites.bucket(host).or_else(|| self.hosts.bucket(host)));
        let (bucket, key) = match host {
            Some(bucket) => (bucket.to_ascii_lowercase(), path),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (access::path_decode(bucket), key)
            }
        };
        let named = |text: String| (!text.is_empty()).then_some(text);
        let key = named(access::path_decode(key));
        Seen {
            operation: method::guess(line.method(), &line.uri, key.is_some()),
            bucket: named(bucket),
            key,
            caller: Caller {
                principal: None,
                address: Some(peer.address),
                tls: peer.tls,
                region: self.service.config.region.as_str().into(),
                narrowed: None,
            },
        }
    }

    async fn answer(&self, req: Request<Body>) -> Result<HttpResponse, HttpError> {
        let host = req.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        if let Some(bucket) = host.and_then(|host| self.websites.bucket(host)) {
            let bucket = bucket.to_ascii_lowercase();
            return website::serve(&self.service, &self.s3, &bucket, req).await;
        }
        let origin = cors::Origin::of(&req);
        let bucket = origin.as_ref().and_then(|_| self.bucket_of(&req));
        let mut response = match (&origin, req.method()) {
            (Some(origin), &Method::OPTIONS) => cors::preflight(&self.service, bucket.as_deref(), origin),
            (None, &Method::OPTIONS) => {
                let why = "Insufficient information. Origin request header needed.";
                cors::refused(StatusCode::BAD_REQUEST, "BadRequest", why)
            }
            _ => self.serve(req).await?,
        };
        if let (Some(origin), Some(bucket)) = (&origin, &bucket) {
            cors::mark(&self.service, bucket, origin, response.headers_mut());
        }
        Ok(response)
    }

    async fn serve(&self, req: Request<Body>) -> Result<HttpResponse, HttpError> {
        let region = &self.service.config.region;
        let before = access::before(req.uri(), req.headers(), region, jiff::Timestamp::now());
        let object = self.names_object(&req);
        let before = before.and_then(|()| method::check(req.method(), req.uri(), object));
        if let Err(fault) = before.and_then(|()| checksum::check(req.headers())) {
            return refused(fault);
        }
        let by_path = self.host_bucket(&req).is_none();
        let (mut head, body) = req.into_parts();
        access::settle(&mut head.uri, &mut head.headers, by_path);
        let req = Request::from_parts(head, body);
        if let Some(bucket) = self.form_bucket(&req) {
            return Ok(form::post(&self.service, &self.gate, &bucket, req).await);
        }
        let of_tokens = Sts::asked(req.method(), req.uri(), req.headers());
        let too_long = length_of(&req).is_some_and(|length| length > XML_MAX as u64);
        let mut req = match amend::measure(req).await {
            Ok(req) => req,
            Err(fault) => return close(refused(fault)?),
        };
        let again = range::settle(&mut req);
        let mut response = self.s3.call(document::keep(req)).await?;
        if let Some(again) = again {
            response = again.ask(&self.plain, response).await?;
        }
        let response = amend::blame_client(response, too_long).await?;
        if of_tokens { Ok(Sts::in_its_form(response).await) } else { amend::plain_etag(response).await }
    }

    /// The bucket that a form is posted to. The library would hold its file in memory.
    fn form_bucket(&self, req: &Request<Body>) -> Option<String> {
        form::is_form(req, self.names_object(req)).then(|| self.bucket_of(req)).flatten()
    }

    /// Whether the path names an object, and not only a bucket.
    fn names_object(&self, req: &Request<Body>) -> bool {
        let path = req.uri().path().trim_start_matches('/');
        let key = match self.host_bucket(req) {
            Some(_) => path,
            None => path.split_once('/').map_or("", |(_, key)| key),
        };
        !key.is_empty()
    }

    /// The bucket by host name or by the first step of the path.
    fn bucket_of(&self, req: &Request<Body>) -> Option<String> {
        self.host_bucket(req).or_else(|| {
            let first = req.uri().path().strip_prefix('/')?.split('/').next()?;
            (!first.is_empty()).then(|| first.to_owned())
        })
    }

    fn host_bucket(&self, req: &Request<Body>) -> Option<String> {
        let host = req.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
        host.and_then(|host| self.hosts.bucket(host)).map(str::to_ascii_lowercase)
    }
}
