//! One push to Loki, and what its answer means.

use crate::process::config::{LokiConfig, LokiCredential, read_secret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::foreign::{ForeignAnswer, ForeignRequest};
use client::unreachable::Unreachable;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use std::time::Duration;

const TIME_LIMIT: Duration = Duration::from_secs(10);
/// So much of what Loki says of a refusal is read...
const ANSWER_BYTES: usize = 4096;
/// ...and so much of it is told.
const TOLD_CHARS: usize = 300;
/// Loki may ask for a longer pause than this; it does not get it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why lines have not arrived, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushFailure {
    /// A word for metrics.
    pub reason: &'static str,
    /// For people.
    pub detail: String,
    pub retry_after: Option<Duration>,
    /// Something in the batch is refused: with less of it, the rest may pass.
    pub is_about_lines: bool,
}

impl PushFailure {
    pub fn new(reason: &'static str, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), retry_after: None, is_about_lines: false }
    }
}

pub async fn push(config: &LokiConfig, body: Vec<u8>) -> Result<(), PushFailure> {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut headers = vec![json];
    let tenant = config.tenant.clone();
    headers.extend(tenant.map(|tenant| (HeaderName::from_static("x-scope-orgid"), tenant)));
    let credential = authorization(&config.credential)?;
    headers.extend(credential.as_ref().map(|(value, _)| (header::AUTHORIZATION, value.clone())));
    let request = ForeignRequest {
        method: Method::POST,
        headers,
        body,
        time_limit: TIME_LIMIT,
        answer_bytes: ANSWER_BYTES,
    };
    let answer = config.url.ask(&config.trust, request).await.map_err(|error| unreachable(&error))?;
    judge(&answer, credential.as_ref().map(|(_, secret)| secret.as_str()))
}

/// The header, and the secret in it. The file is read each time: tokens are replaced while the control plane runs.
fn authorization(credential: &LokiCredential) -> Result<Option<(HeaderValue, String)>, PushFailure> {
    let read = |file| {
        read_secret(file).map_err(|error| {
            PushFailure::new("credential", format!("{}: {error}", std::path::Path::display(file)))
        })
    };
    let (text, secret) = match credential {
        LokiCredential::None => return Ok(None),
        LokiCredential::Basic { username, password_file } => {
            let secret = read(password_file)?;
            (format!("Basic {}", STANDARD.encode(format!("{username}:{secret}"))), secret)
        }
        LokiCredential::Bearer { file } => {
            let secret = read(file)?;
            (format!("Bearer {secret}"), secret)
        }
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| PushFailure::new("credential", "the credential cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(Some((value, secret)))
}

fn unreachable(error: &Unreachable) -> PushFailure {
    let reason = match error {
        Unreachable::TimedOut(_) => "timed_out",
        Unreachable::Untrusted(_) => "untrusted",
        Unreachable::Garbage(what) => return PushFailure::new("misbehaved", what),
        Unreachable::NoSuchName { .. }
        | Unreachable::ConnectionRefused
        | Unreachable::SocketForbidden
        | Unreachable::Network(_)
        | Unreachable::Closed
        | Unreachable::BrokenOff(_)
        | Unreachable::Alert(_) => "unreachable",
    };
    PushFailure::new(reason, error.to_string())
}

/// Loki says 204, gateways before it may say 200. A page for people with 200 comes from something else.
fn judge(answer: &ForeignAnswer, secret: Option<&str>) -> Result<(), PushFailure> {
    let status = answer.status;
    let is_page = answer
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"text/html"));
    let (reason, is_about_lines) = match status {
        StatusCode::NO_CONTENT => return Ok(()),
        StatusCode::OK if !is_page => return Ok(()),
        StatusCode::TOO_MANY_REQUESTS => ("throttled", false),
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
            ("refused", true)
        }
        StatusCode::REQUEST_TIMEOUT => ("unavailable", false),
        other if other.is_client_error() => ("refused", false),
        other if other.is_server_error() => ("unavailable", false),
        _ => ("misbehaved", false),
    };
    let said = if is_page { String::new() } else { told(&answer.body, secret) };
    let detail = if said.is_empty() {
        format!("it answered {status}")
    } else {
        format!("it answered {status}: {said}")
    };
    let retry_after = answer.retry_after().map(|pause| pause.min(LONGEST_PAUSE));
    Err(PushFailure { reason, detail, retry_after, is_about_lines })
}

/// What a server says of a refusal, short and printable; nothing if it says our secret.
fn told(body: &[u8], secret: Option<&str>) -> String {
    let text = String::from_utf8_lossy(body);
    if secret.is_some_and(|secret| text.contains(secret)) || text.to_ascii_lowercase().contains("basic ") {
        return String::new();
    }
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(TOLD_CHARS).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn answer(status: u16, kind: &'static str, body: &str) -> ForeignAnswer {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("3600"));
        let status = StatusCode::from_u16(status).expect("a status");
        ForeignAnswer { status, headers, body: body.as_bytes().to_vec(), is_cut: false }
    }

    #[test]
    fn lines_have_arrived_only_when_loki_says_so() {
        assert_eq!(judge(&answer(204, "", ""), None), Ok(()));
        assert_eq!(judge(&answer(200, "application/json", "{}"), None), Ok(()));
        for (status, kind, reason, about_lines) in [
            (200, "text/html; charset=utf-8", "misbehaved", false),
            (202, "", "misbehaved", false),
            (302, "", "misbehaved", false),
            (400, "text/plain", "refused", true),
            (401, "text/plain", "refused", false),
            (404, "text/plain", "refused", false),
            (413, "text/html", "refused", true),
            (429, "text/plain", "throttled", false),
            (500, "text/plain", "unavailable", false),
            (503, "text/plain", "unavailable", false),
        ] {
            let failure = judge(&answer(status, kind, "too old"), None).expect_err("not taken");
            assert_eq!((failure.reason, failure.is_about_lines), (reason, about_lines), "{status}");
            assert_eq!(failure.retry_after, Some(LONGEST_PAUSE));
        }
    }

    #[test]
    fn what_loki_says_is_told_in_one_printable_line_and_never_a_secret() {
        assert_eq!(told(b" line 1\nline\x1b[31m 2\n", None), "line 1 line [31m 2");
        assert_eq!(told(&[b'x'; 9000], None).len(), TOLD_CHARS);
        assert_eq!(told(b"you sent Bearer hush", Some("hush")), "");
        assert_eq!(told(b"authorization: Basic YWRhOmh1c2g=", Some("hush")), "");
    }
}
