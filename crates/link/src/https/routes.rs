//! The routes of a parent. Each takes the caller's identity from its certificate, never from the request.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use model::{ChildId, Digest, Error, ErrorKind, Pulse};
use serde::Serialize;
use tokio_util::io::ReaderStream;
use work::{Clock, SystemClock};

use super::roster::{Connection, Roster};
use super::socket::pump;
use super::{
    HEADER_CONN, PATH_BEAT, PATH_BLOB, PATH_DESIRED, PATH_ENROLL, PATH_ISSUE, PATH_OBSERVED, PATH_STANDING,
    PATH_STREAM, Poll, Polled,
};
use crate::ca::{IssueAsk, Issuer, issue_allowed};
use crate::calls::Calls;
use crate::dispatch::Dispatcher;
use crate::enroll::{Desk, EnrollAsk};
use crate::identity::{Children, Identity};
use crate::limits::{BODY_MAX, FRAME_MAX, POLL_MAX, SMALL_BODY_MAX};
use crate::page;
use crate::parent::{BlobSource, ParentHandler, PeerHandler};
use crate::stream::ByteStream;
use crate::wire::{self, NotHolder, Removed};

/// The largest WebSocket message: one frame and its tag.
pub(super) const MESSAGE_MAX: usize = FRAME_MAX + 1024;

pub(super) struct Shared {
    pub handler: Arc<dyn ParentHandler>,
    pub calls: Calls,
    pub children: Children,
    pub desk: Option<Desk>,
    pub issuer: Option<Arc<dyn Issuer>>,
    pub peers: Option<Arc<dyn PeerHandler>>,
    pub dispatcher: Option<Arc<dyn Dispatcher>>,
    pub roster: Arc<Roster>,
}

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(PATH_ENROLL, post(enroll))
        .route(PATH_ISSUE, post(issue))
        .route(PATH_DESIRED, post(desired))
        .route(PATH_BEAT, post(beat))
        .route(PATH_STANDING, post(standing))
        .route(&format!("{PATH_STREAM}/{{id}}"), get(stream))
        .route(&format!("{PATH_BLOB}/{{digest}}"), get(blob))
        .merge(super::peer::routes())
        .layer(DefaultBodyLimit::max(SMALL_BODY_MAX))
        .merge(super::dispatch::routes())
        .route(PATH_OBSERVED, post(observed).layer(DefaultBodyLimit::max(BODY_MAX)))
        .with_state(shared)
}

pub(super) type Answer<T = Response> = Result<T, Refusal>;

pub(super) struct Refusal(Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        if self.0.kind == ErrorKind::Internal {
            tracing::error!(error = %self.0, cause = ?self.0.source, "a link request failed");
        }
        let status = StatusCode::from_u16(wire::status_of(&self.0)).expect("a valid status");
        (status, serde_json::to_string(&wire::WireError::from(&self.0)).unwrap_or_default()).into_response()
    }
}

/// Whoever holds a certificate of our CA.
pub(super) struct Peer(pub(super) Identity, pub(super) Arc<Connection>);

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        let connection = parts.extensions.get::<Arc<Connection>>().cloned();
        let stranger = |text: &str| Refusal(Error::new(ErrorKind::Unauthenticated, text));
        let connection = connection.ok_or_else(|| stranger("this needs a certificate of the tree"))?;
        match &connection.peer {
            Some((_, until)) if SystemClock.now() >= *until => Err(stranger("the certificate has expired")),
            Some((identity, _)) => Ok(Self(identity.clone(), connection.clone())),
            None => Err(stranger("this needs a certificate of the tree")),
        }
    }
}

/// A child of this parent, by its certificate.
struct Child(ChildId, Arc<Connection>);

impl FromRequestParts<Arc<Shared>> for Child {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let Peer(identity, connection) = Peer::from_request_parts(parts, shared).await?;
        let child = identity.child_id();
        if shared.children.include(&identity) && shared.handler.removed(&child) {
            return Err(Removed.error(identity).into());
        }
        if !shared.children.include(&identity) || !shared.handler.admits(&child) {
            return Err(
                Error::new(ErrorKind::Forbidden, format!("{identity} is no child of this parent")).into()
            );
        }
        Ok(Self(child, connection))
    }
}

/// A child on the exchange, at the parent that it should talk to.
struct Speaker(ChildId);

impl FromRequestParts<Arc<Shared>> for Speaker {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Answer<Self> {
        let Child(child, connection) = Child::from_request_parts(parts, shared).await?;
        shared.handler.holds().map_err(|holder| NotHolder(holder).error())?;
        let conn = parts.headers.get(HEADER_CONN).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(conn) = conn {
            shared.roster.turn(&child, conn)?;
        }
        connection.exchanged(&child);
        Ok(Self(child))
    }
}

pub(super) fn answer<T: Serialize>(value: &T) -> Answer {
    Ok(wire::encode(value, BODY_MAX)?.into_response())
}

async fn observed(State(shared): State<Arc<Shared>>, Speaker(child): Speaker, body: Bytes) -> Answer {
    shared.handler.heard(&child, None);
    let observed = wire::decode_large(body, BODY_MAX).await?;
    answer(&shared.handler.observed(&child, observed).await?)
}

/// Answers when there is something newer, when there is a call, or with nothing after a while.
async fn desired(State(shared): State<Arc<Shared>>, Speaker(child): Speaker, body: Bytes) -> Answer {
    shared.handler.heard(&child, None);
    let Poll { have } = wire::decode(&body, SMALL_BODY_MAX)?;
    let newer = async {
        let desired = shared.handler.desired(&child, have).await?;
        if Some(desired.at) == have {
            // Nothing new after all; answering at once would make the child ask at once.
            std::future::pending::<()>().await;
        }
        Ok::<_, Error>(desired)
    };
    tokio::select! {
        calls = shared.roster.calls_next(&child) => answer(&Polled { desired: None, calls }),
        desired = newer => {
            let polled = |desired| Polled { desired: Some(desired), calls: Vec::new() };
            let page = page::fit(&*shared.handler, &child, have, desired?, BODY_MAX, polled).await;
            Ok(page.inspect_err(|error| {
                tracing::error!(%child, %error, "a desired set cannot be sent");
            })?.into_response())
        },
        () = tokio::time::sleep(POLL_MAX) => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

async fn beat(State(shared): State<Arc<Shared>>, Speaker(child): Speaker, body: Bytes) -> Answer {
    let pulse: Option<Pulse> = match body.is_empty() {
        true => None,
        false => wire::decode(&body, SMALL_BODY_MAX)?,
    };
    shared.handler.heard(&child, pulse.as_ref());
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Says whether the caller is still a child, and changes nothing: one that exchanges elsewhere asks here.
async fn standing(_: Child) -> StatusCode {
    StatusCode::NO_CONTENT
}

async fn stream(
    State(shared): State<Arc<Shared>>,
    Child(child, connection): Child,
    Path(id): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Answer {
    let opened = shared.calls.claim(&child, &id).ok_or_else(|| Error::not_found("stream of that name"))?;
    let upgrade = upgrade.max_message_size(MESSAGE_MAX).max_frame_size(MESSAGE_MAX);
    Ok(upgrade.on_upgrade(async move |socket| {
        let (ours, theirs) = ByteStream::pair();
        if opened.send(theirs).is_ok() {
            tokio::select! {
                () = pump(socket, ours) => {}
                () = connection.stopped() => {}
            }
        }
    }))
}

async fn blob(
    State(shared): State<Arc<Shared>>,
    Child(child, _): Child,
    Path(digest): Path<String>,
) -> Answer {
    let digest: Digest = digest.parse()?;
    blob_answer(shared.handler.blob(&child, &digest).await?)
}

pub(super) fn blob_answer(source: BlobSource) -> Answer {
    let body = Body::from_stream(ReaderStream::with_capacity(source.reader, FRAME_MAX));
    Ok(([(header::CONTENT_LENGTH, source.len)], body).into_response())
}

async fn enroll(State(shared): State<Arc<Shared>>, body: Bytes) -> Answer {
    let desk = shared.desk.as_ref().ok_or_else(|| Error::not_found("enrolment at this parent"))?;
    let ask: EnrollAsk = wire::decode(&body, SMALL_BODY_MAX)?;
    answer(&desk.enroll(ask).await?)
}

async fn issue(State(shared): State<Arc<Shared>>, Peer(peer, _): Peer, body: Bytes) -> Answer {
    let issuer = shared.issuer.as_ref().ok_or_else(|| Error::not_found("issuer at this parent"))?;
    let ask: IssueAsk = wire::decode(&body, SMALL_BODY_MAX)?;
    // A child asks its own parent, which knows whether it was removed.
    let is_child = shared.children.include(&peer) && shared.handler.admits(&peer.child_id());
    let ours = is_child || super::dispatch::admitted(&shared, &peer);
    if !ours || !issue_allowed(&peer, &ask.identity) {
        let text = format!("{peer} may not have a certificate for {}", ask.identity);
        return Err(Error::new(ErrorKind::Forbidden, text).into());
    }
    if !ask.sans.is_empty() {
        shared.handler.hosts_allow(&peer.child_id(), &ask.sans).inspect_err(|error| {
            tracing::warn!(%peer, %error, "a certificate was refused");
        })?;
    }
    answer(&issuer.issue(ask).await?)
}
