//! A long answer, line by line, never holding more than a line of it.

use super::exchange::{ResponseSource, RestResponse};
use crate::error::Error;
use crate::unreachable::Unreachable;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use std::time::Duration;
use tokio::time::timeout;

/// An audit line is about a kilobyte.
const LINE_BYTES: usize = 256 * 1024;

pub struct ResponseLines {
    answer: RestResponse,
    idle: Option<Duration>,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line break.
    searched: usize,
}

impl ResponseLines {
    pub(super) fn new(answer: RestResponse, idle: Option<Duration>) -> Self {
        Self { answer, idle, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line without its break; none at the end. A last line without a break is a line.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        loop {
            if let Some(line) = self.complete_line() {
                return self.text(&line).map(Some);
            }
            if self.buffer.len() > LINE_BYTES {
                return Err(self.unexpected("a line without end"));
            }
            if !self.receive().await? {
                let rest = self.buffer.split();
                self.searched = 0;
                return if rest.is_empty() { Ok(None) } else { self.text(&rest).map(Some) };
            }
        }
    }

    fn complete_line(&mut self) -> Option<BytesMut> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let Some(place) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + place);
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    /// False at the end.
    async fn receive(&mut self) -> Result<bool, Error> {
        loop {
            let frame = self.answer.response.body_mut().frame();
            let frame = match self.idle {
                None => frame.await,
                Some(idle) => match timeout(idle, frame).await {
                    Ok(frame) => frame,
                    Err(_) => return Err(self.source().interrupted(Unreachable::TimedOut("next line"))),
                },
            };
            match frame {
                None => return Ok(false),
                Some(Err(error)) => return Err(self.source().failed(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn text(&self, line: &[u8]) -> Result<String, Error> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).map(str::to_owned);
        text.map_err(|_| self.unexpected("a line that is not text"))
    }

    pub(super) fn unexpected(&self, what: &str) -> Error {
        self.source().unexpected(what)
    }

    fn source(&self) -> &ResponseSource {
        &self.answer.source
    }
}
