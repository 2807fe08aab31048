//! What travels on the WebSocket of `exec`: binary messages, the first byte names the channel.

use bytes::{BufMut, Bytes, BytesMut};
use model::{Error, Result};

use crate::problem::Problem;

/// Larger frames are refused by both sides.
pub const EXEC_FRAME_MAX: usize = 1 << 20;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESIZE: u8 = 3;
const EXIT: u8 = 4;
const ERROR: u8 = 5;
const STDIN_END: u8 = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecFrame {
    Stdin(Bytes),
    /// Nothing more comes on standard input.
    StdinEnd,
    Stdout(Bytes),
    Stderr(Bytes),
    Resize {
        rows: u16,
        cols: u16,
    },
    /// The command ended; the last frame.
    Exit(i32),
    /// It failed; the last frame.
    Error(Box<Problem>),
}

impl ExecFrame {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Stdin(data) => put(&mut out, STDIN, data),
            Self::StdinEnd => put(&mut out, STDIN_END, &[]),
            Self::Stdout(data) => put(&mut out, STDOUT, data),
            Self::Stderr(data) => put(&mut out, STDERR, data),
            Self::Resize { rows, cols } => {
                out.put_u8(RESIZE);
                out.put_u16(*rows);
                out.put_u16(*cols);
            }
            Self::Exit(code) => put(&mut out, EXIT, &code.to_be_bytes()),
            Self::Error(problem) => {
                let text = serde_json::to_vec(problem).expect("a problem is plain data");
                put(&mut out, ERROR, &text);
            }
        }
        out.freeze()
    }

    pub fn decode(mut message: Bytes) -> Result<Self> {
        let malformed = || Error::invalid("the exec frame cannot be read");
        if message.is_empty() || message.len() > EXEC_FRAME_MAX {
            return Err(malformed());
        }
        let channel = message.split_to(1)[0];
        Ok(match (channel, message.len()) {
            (STDIN, _) => Self::Stdin(message),
            (STDIN_END, 0) => Self::StdinEnd,
            (STDOUT, _) => Self::Stdout(message),
            (STDERR, _) => Self::Stderr(message),
            (RESIZE, 4) => Self::Resize {
                rows: u16::from_be_bytes([message[0], message[1]]),
                cols: u16::from_be_bytes([message[2], message[3]]),
            },
            (EXIT, 4) => Self::Exit(i32::from_be_bytes([message[0], message[1], message[2], message[3]])),
            (ERROR, _) => Self::Error(serde_json::from_slice(&message).map_err(|_| malformed())?),
            _ => return Err(malformed()),
        })
    }
}

fn put(out: &mut BytesMut, channel: u8, data: &[u8]) {
    out.reserve(1 + data.len());
    out.put_u8(channel);
    out.put_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back() {
        let problem = Problem::new(&Error::not_found("instance 'x'"), None);
        for frame in [
            ExecFrame::Stdin(Bytes::from_static(b"ls\n")),
            ExecFrame::StdinEnd,
            ExecFrame::Stdout(Bytes::new()),
            ExecFrame::Stderr(Bytes::from_static(b"\xff")),
            ExecFrame::Resize { rows: 24, cols: 300 },
            ExecFrame::Exit(-9),
            ExecFrame::Error(Box::new(problem)),
        ] {
            assert_eq!(ExecFrame::decode(frame.encode()).expect("reads"), frame);
        }
        for bad in [&b""[..], b"\x03\x00", b"\x09", b"\x06x", b"\x05{"] {
            assert!(ExecFrame::decode(Bytes::copy_from_slice(bad)).is_err(), "{bad:?}");
        }
    }
}
