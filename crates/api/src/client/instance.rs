//! Instances: life, output, commands, statistics.

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, Stream, StreamExt, TryStreamExt};
use model::exchange::InstanceStats;
use model::{Error, Result};
use reqwest::Method;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{Client, ListQuery, error_from, if_match, segment};
use crate::exec::ExecFrame;
use crate::{Instance, InstanceCreate, InstanceWhy, Page};

#[derive(Debug, Clone, Copy, Default)]
pub struct LogsOptions {
    pub follow: bool,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct ExecOptions {
    pub command: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub rows: u16,
    pub cols: u16,
}

fn path(name: &str) -> String {
    format!("/v1/instances/{}", segment(name))
}

impl Client {
    pub async fn instance_create(&self, body: &InstanceCreate) -> Result<Instance> {
        self.create("/v1/instances", body, None).await
    }

    /// The same key with the same body gives the same answer and makes nothing twice, for a day.
    pub async fn instance_create_once(&self, body: &InstanceCreate, key: &str) -> Result<Instance> {
        self.create("/v1/instances", body, Some(key)).await
    }

    pub async fn instance_list(&self, query: &ListQuery) -> Result<Page<Instance>> {
        self.list("/v1/instances", query).await
    }

    /// By name or id.
    pub async fn instance_get(&self, name: &str) -> Result<Instance> {
        self.get(&path(name)).await
    }

    pub async fn instance_delete(&self, name: &str, version: Option<i64>) -> Result<Instance> {
        self.json(self.request(Method::DELETE, &path(name)).headers(if_match(version))).await
    }

    pub async fn instance_stop(&self, name: &str, version: Option<i64>) -> Result<Instance> {
        self.instance_verb(name, "stop", version).await
    }

    pub async fn instance_start(&self, name: &str, version: Option<i64>) -> Result<Instance> {
        self.instance_verb(name, "start", version).await
    }

    pub async fn instance_restart(&self, name: &str, version: Option<i64>) -> Result<Instance> {
        self.instance_verb(name, "restart", version).await
    }

    async fn instance_verb(&self, name: &str, verb: &str, version: Option<i64>) -> Result<Instance> {
        let request = self.request(Method::POST, &format!("{}/{verb}", path(name)));
        self.json(request.headers(if_match(version))).await
    }

    pub async fn instance_stats(&self, name: &str) -> Result<InstanceStats> {
        self.get(&format!("{}/stats", path(name))).await
    }

    pub async fn instance_why(&self, name: &str) -> Result<InstanceWhy> {
        self.get(&format!("{}/why", path(name))).await
    }

    /// The output as raw bytes; endless when following.
    pub async fn instance_logs(
        &self,
        name: &str,
        options: LogsOptions,
    ) -> Result<impl Stream<Item = Result<Bytes>> + Send + Unpin + use<>> {
        let mut request = self.request(Method::GET, &format!("{}/logs", path(name)));
        if options.follow {
            request = request.query(&[("follow", "true")]);
        }
        if let Some(lines) = options.tail_lines {
            request = request.query(&[("tail", lines)]);
        }
        let response = self.send(request).await?;
        Ok(Box::pin(
            response
                .bytes_stream()
                .map_err(|error| Error::unavailable("the output broke off").because(error)),
        ))
    }

    /// Runs a command in a running instance.
    pub async fn instance_exec(&self, name: &str, options: &ExecOptions) -> Result<ExecStream> {
        let mut pairs: Vec<(&str, String)> =
            options.command.iter().map(|word| ("command", word.clone())).collect();
        pairs.push(("tty", options.tty.to_string()));
        pairs.push(("stdin", options.stdin.to_string()));
        pairs.push(("rows", options.rows.to_string()));
        pairs.push(("cols", options.cols.to_string()));
        let request = self
            .request(Method::GET, &format!("{}/exec", path(name)))
            .query(&pairs)
            .build()
            .map_err(|error| Error::invalid("the command cannot be sent").because(error))?;
        // http:// becomes ws://, https:// becomes wss://.
        let url = request.url().as_str().replacen("http", "ws", 1);
        let mut upgrade = url
            .into_client_request()
            .map_err(|error| Error::invalid("the endpoint is not usable").because(error))?;
        if let Some(value) = request.headers().get(AUTHORIZATION) {
            upgrade.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        match tokio_tungstenite::connect_async(upgrade).await {
            Ok((socket, _)) => Ok(ExecStream(socket)),
            Err(tungstenite::Error::Http(response)) => {
                let status = response.status().as_u16();
                Err(error_from(status, response.body().as_deref().unwrap_or_default()))
            }
            Err(error) => Err(Error::unavailable(format!("{} cannot be reached", self.base)).because(error)),
        }
    }
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The two directions of a running command.
pub struct ExecStream(Socket);

pub struct ExecSender(SplitSink<Socket, Message>);

pub struct ExecReceiver(SplitStream<Socket>);

impl ExecStream {
    pub fn split(self) -> (ExecSender, ExecReceiver) {
        let (sink, stream) = self.0.split();
        (ExecSender(sink), ExecReceiver(stream))
    }

    pub async fn send(&mut self, frame: ExecFrame) -> Result<()> {
        self.0.send(Message::Binary(frame.encode())).await.map_err(broken)
    }

    pub async fn recv(&mut self) -> Result<Option<ExecFrame>> {
        next(&mut self.0).await
    }
}

impl ExecSender {
    pub async fn send(&mut self, frame: ExecFrame) -> Result<()> {
        self.0.send(Message::Binary(frame.encode())).await.map_err(broken)
    }
}

impl ExecReceiver {
    /// The next frame; `None` when the other side closed. A frame with an error comes back as one.
    pub async fn recv(&mut self) -> Result<Option<ExecFrame>> {
        next(&mut self.0).await
    }
}

fn broken(error: tungstenite::Error) -> Error {
    Error::unavailable("the connection to the command broke off").because(error)
}

async fn next<S>(stream: &mut S) -> Result<Option<ExecFrame>>
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    while let Some(message) = stream.next().await {
        match message.map_err(broken)? {
            Message::Binary(data) => {
                return match ExecFrame::decode(data)? {
                    ExecFrame::Error(problem) => Err((*problem).into()),
                    frame => Ok(Some(frame)),
                };
            }
            Message::Close(_) => return Ok(None),
            _ => {}
        }
    }
    Ok(None)
}
