//! Where an anchor is: a file, or a URL that answers GET with what was PUT there last.

use super::TrailAnchorError;
use crate::process::config::{AuditConfig, read_secret};
use crate::process::datadir::replace;
use client::foreign::{ForeignAnswer, ForeignRequest, ForeignUrl};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use journal::read_small;
use std::path::PathBuf;
use std::time::Duration;

/// From resolving the name to the last byte of the answer: a start takes no longer than this for its anchor.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// An anchor has about 400 bytes.
const ANSWER_BYTES: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnchorPlace {
    File(PathBuf),
    Url(ForeignUrl),
}

impl AnchorPlace {
    /// An absolute path, or a URL. Over plain http to another machine anybody on the way could answer with an older anchor.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains("://") {
            return ForeignUrl::parse(text).ok().filter(|url| !url.is_exposed()).map(Self::Url);
        }
        Some(PathBuf::from(text)).filter(|path| path.is_absolute()).map(Self::File)
    }

    /// What is there; none if nothing is.
    pub(super) async fn read(&self, audit: &AuditConfig) -> Result<Option<Vec<u8>>, TrailAnchorError> {
        let place = self.to_string();
        match self {
            AnchorPlace::File(path) => match read_small(path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(TrailAnchorError::Unusable { place, why: error.to_string() }),
            },
            AnchorPlace::Url(url) => {
                let answer = ask(url, audit, Method::GET, Vec::new()).await;
                let answer =
                    answer.map_err(|why| TrailAnchorError::Unreachable { place: place.clone(), why })?;
                match answer.status {
                    StatusCode::OK if answer.is_cut => {
                        let why = format!("it has more than {ANSWER_BYTES} bytes");
                        Err(TrailAnchorError::Unusable { place, why })
                    }
                    StatusCode::OK => Ok(Some(answer.body)),
                    StatusCode::NOT_FOUND => Ok(None),
                    other => {
                        let why = format!("it answered GET with {other}");
                        Err(TrailAnchorError::Unreachable { place, why })
                    }
                }
            }
        }
    }

    /// Replaces what is there.
    pub async fn write(&self, audit: &AuditConfig, text: String) -> Result<(), String> {
        let text = format!("{text}\n").into_bytes();
        match self {
            AnchorPlace::File(path) => {
                let path = path.clone();
                let write = move || replace(&path, &text, 0o600);
                let written = tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?;
                written.map_err(|error| error.to_string())
            }
            AnchorPlace::Url(url) => {
                let answer = ask(url, audit, Method::PUT, text).await?;
                let status = answer.status;
                if status.is_success() { Ok(()) } else { Err(format!("it answered PUT with {status}")) }
            }
        }
    }
}

/// The token's file is read each time: tokens are replaced while the control plane runs.
async fn ask(
    url: &ForeignUrl,
    audit: &AuditConfig,
    method: Method,
    body: Vec<u8>,
) -> Result<ForeignAnswer, String> {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut headers: Vec<(HeaderName, HeaderValue)> = vec![json];
    if let Some(file) = &audit.anchor_bearer {
        let token = read_secret(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| format!("{}: the token cannot be sent in a header", file.display()))?;
        value.set_sensitive(true);
        headers.push((header::AUTHORIZATION, value));
    }
    let request =
        ForeignRequest { method, headers, body, time_limit: TIME_LIMIT, answer_bytes: ANSWER_BYTES };
    url.ask(&audit.anchor_trust, request).await.map_err(|error| error.to_string())
}

impl std::fmt::Display for AnchorPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnchorPlace::File(path) => path.display().fmt(f),
            AnchorPlace::Url(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_an_absolute_path_or_a_url_that_nobody_on_the_way_answers_for() {
        assert!(matches!(AnchorPlace::parse("/srv/anchor"), Some(AnchorPlace::File(_))));
        for url in ["https://anchors.example/a?b=c", "http://127.0.0.1:8080/a", "http://localhost/a"] {
            assert!(matches!(AnchorPlace::parse(url), Some(AnchorPlace::Url(_))), "{url}");
        }
        for bad in ["anchor", "http://anchors.example/a", "https://u:p@anchors.example", "ftp://a/b", ""] {
            assert!(AnchorPlace::parse(bad).is_none(), "{bad}");
        }
    }
}
