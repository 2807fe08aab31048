//! Answers to what a parent asks about instances here, on a stream opened for each.

use futures::StreamExt;
use link::stream::{FrameReceiver, FrameSender};
use link::{ByteStream, Frame};
use model::exchange::Ask;
use model::{Error, InstanceId, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::engine::Engine;
use crate::exec::{ExecRequest, ExecSession, Terminal};

const CHUNK: usize = 32 << 10;

/// Answers, or says on the stream why not.
pub(crate) async fn answer(engine: &Engine, ask: Ask, stream: ByteStream) {
    let done = match ask {
        Ask::Logs { instance, follow, tail_lines } => {
            // Who follows a log that says nothing is gone without a send that fails.
            tokio::select! {
                done = logs(engine, &instance, follow, tail_lines, &stream) => done,
                () = stream.closed() => return,
            }
        }
        Ask::Stats { instance } => match engine.stats(&instance).await {
            Ok(stats) => reply(&stats, &stream).await,
            Err(error) => Err(error),
        },
        Ask::Usage { instances } => match engine.usage(instances).await {
            Ok(usages) => reply(&usages, &stream).await,
            Err(error) => Err(error),
        },
        Ask::Exec { instance, command, tty, stdin, rows, cols } => {
            let request = ExecRequest { command, tty, stdin, rows, cols };
            match engine.exec(&instance, request).await {
                Ok(session) => return exec(session, stream).await,
                Err(error) => Err(error),
            }
        }
        Ask::Nodes
        | Ask::Mode { .. }
        | Ask::Label { .. }
        | Ask::Remove { .. }
        | Ask::History { .. }
        | Ask::Health
        | Ask::Tokens
        | Ask::Revoke { .. }
        | Ask::Admit { .. } => Err(Error::invalid("that is a question for a zone")),
    };
    if let Err(error) = done {
        let _ = stream.send(Frame::Error(error.message)).await;
    }
}

async fn logs(
    engine: &Engine,
    instance: &InstanceId,
    follow: bool,
    tail_lines: Option<u64>,
    stream: &ByteStream,
) -> Result<()> {
    let mut lines = std::pin::pin!(engine.logs(instance, follow, tail_lines).await?);
    while let Some(chunk) = lines.next().await {
        stream.send(Frame::Data(chunk?)).await?;
    }
    stream.send(Frame::Eof).await
}

async fn reply(body: &impl serde::Serialize, stream: &ByteStream) -> Result<()> {
    let json =
        serde_json::to_vec(body).map_err(|e| Error::internal("statistics cannot be written").because(e))?;
    stream.send(Frame::Data(json.into())).await?;
    stream.send(Frame::Eof).await
}

/// Joins a command to the stream until it ends, or until the other side is gone.
async fn exec(session: ExecSession, stream: ByteStream) {
    let (sender, receiver) = stream.split();
    let ExecSession { stdin, stdout, stderr, terminal, exit } = session;
    let output = async {
        let errors = async {
            if let Some(stderr) = stderr {
                copy_out(stderr, &sender, Frame::Stderr).await;
            }
        };
        tokio::join!(copy_out(stdout, &sender, Frame::Stdout), errors);
    };
    let ended = async {
        let ((), code) = tokio::join!(output, exit);
        let last = match code {
            Ok(code) => Frame::Exit { code },
            Err(error) => Frame::Error(error.message),
        };
        let _ = sender.send(last).await;
    };
    tokio::select! {
        () = ended => {}
        () = copy_in(receiver, stdin, terminal) => {}
    }
}

async fn copy_out(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    to: &FrameSender,
    frame: fn(bytes::Bytes) -> Frame,
) {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let bytes = bytes::Bytes::copy_from_slice(&buffer[..count]);
                if to.send(frame(bytes)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Ends only when the other side is gone: the end of its input is not the end of the command.
async fn copy_in(
    mut from: FrameReceiver,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    terminal: Option<Terminal>,
) {
    while let Some(frame) = from.recv().await {
        match frame {
            Frame::Data(bytes) => {
                let written = match &mut stdin {
                    Some(pipe) => pipe.write_all(&bytes).await.and(pipe.flush().await),
                    None => Ok(()),
                };
                if written.is_err() {
                    stdin = None;
                }
            }
            Frame::Eof => stdin = None,
            Frame::Resize { rows, cols } => {
                if let Some(terminal) = &terminal {
                    let _ = terminal.resize(rows, cols);
                }
            }
            Frame::Stdout(_) | Frame::Stderr(_) | Frame::Exit { .. } | Frame::Error(_) => {}
        }
    }
}
