//! The address where claims are posted and read.

use crate::process::config::ClaimsConfig;
use client::foreign::{ForeignAnswer, ForeignRequest};
use http::{HeaderValue, Method, StatusCode, header};
use std::time::Duration;

const TIME_LIMIT: Duration = Duration::from_secs(10);
/// So much is read of what others claim.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// What was read: documents, one a line.
pub struct BoardLines {
    pub body: Vec<u8>,
    /// There was more than is read.
    pub is_cut: bool,
}

impl BoardLines {
    /// The whole ones. After a cut the last may be half a line.
    pub fn whole(&self) -> impl Iterator<Item = &[u8]> {
        let end = match (self.is_cut, self.body.iter().rposition(|byte| *byte == b'\n')) {
            (false, _) => self.body.len(),
            (true, end) => end.unwrap_or(0),
        };
        let whole = self.body.get(..end).unwrap_or_default();
        whole.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
    }
}

pub async fn post(config: &ClaimsConfig, body: Vec<u8>) -> Result<(), String> {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = ask(config, Method::POST, vec![json], (body, 0)).await?;
    if answer.status.is_success() { Ok(()) } else { Err(format!("it answered {}", answer.status)) }
}

pub async fn read(config: &ClaimsConfig) -> Result<BoardLines, String> {
    let accept = (header::ACCEPT, HeaderValue::from_static("application/x-ndjson"));
    let answer = ask(config, Method::GET, vec![accept], (Vec::new(), ANSWER_BYTES)).await?;
    match answer.status {
        StatusCode::OK => Ok(BoardLines { body: answer.body, is_cut: answer.is_cut }),
        other => Err(format!("it answered {other}")),
    }
}

async fn ask(
    config: &ClaimsConfig,
    method: Method,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    (body, answer_bytes): (Vec<u8>, usize),
) -> Result<ForeignAnswer, String> {
    let request = ForeignRequest { method, headers, body, time_limit: TIME_LIMIT, answer_bytes };
    config.url.ask(&config.trust, request).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_is_none() {
        let whole = |body: &str, is_cut| {
            let lines = BoardLines { body: body.as_bytes().to_vec(), is_cut };
            lines.whole().map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(whole("a\r\n\n b \nc", false), ["a", "b", "c"]);
        assert_eq!(whole("a\nb\nc", true), ["a", "b"]);
        assert_eq!(whole("abc", true), [""; 0]);
        assert_eq!(whole("", false), [""; 0]);
    }
}
