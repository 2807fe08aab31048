//! Server-sent events, read one by one.

use model::{Error, Result};
use reqwest::Response;

use crate::{Problem, WatchEvent};

/// Longest event that is read.
const EVENT_MAX: usize = 4 << 20;

/// The changes of a watch. Resume with the `seq` of the last one.
pub struct WatchStream {
    response: Response,
    buffer: Vec<u8>,
}

impl WatchStream {
    pub(super) fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new() }
    }

    /// The next change; `None` when the server ended the watch.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            if let Some(event) = event_take(&mut self.buffer)? {
                return Ok(Some(event));
            }
            if self.buffer.len() > EVENT_MAX {
                return Err(Error::new(model::ErrorKind::TooLarge, "an event of the watch is too large"));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(Error::unavailable("the watch broke off").because(error)),
            }
        }
    }
}

/// Takes the first whole event with data out of the buffer; comments and empty events are dropped.
fn event_take(buffer: &mut Vec<u8>) -> Result<Option<WatchEvent>> {
    while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
        let block: Vec<u8> = buffer.drain(..end + 2).collect();
        let text = String::from_utf8_lossy(&block);
        let data: String =
            text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
        if text.lines().any(|line| line == "event: problem") {
            let problem = serde_json::from_str::<Problem>(&data);
            return Err(problem.map_or_else(|_| Error::internal("the watch failed"), Error::from));
        }
        if !data.is_empty() {
            return serde_json::from_str(&data)
                .map(Some)
                .map_err(|error| Error::internal("an event of the watch cannot be read").because(error));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_and_comments_are_dropped() {
        let mut buffer =
            b": keep-alive\n\nid: 7\nevent: change\ndata: {\"seq\":7,\"kind\":\"zone\",".to_vec();
        assert_eq!(event_take(&mut buffer).expect("no error"), None);
        buffer.extend_from_slice(b"\"id\":\"z-1\",\"name\":\"a\",\"deleted\":true}\n\nid: 8\n");
        assert_eq!(event_take(&mut buffer).expect("reads").expect("whole").seq, 7);
        assert_eq!(buffer, b"id: 8\n");
    }
}
