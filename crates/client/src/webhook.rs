//! Webhooks: one POST of JSON to a foreign server, and whether it was accepted.

use crate::foreign::{ForeignRequest, ForeignUrl};
use crate::trust::Trust;
use crate::unreachable::Unreachable;
use crate::url::UrlError;
use http::{HeaderValue, Method, StatusCode, header};
use std::time::Duration;

/// From resolving the name to the head of the answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook(ForeignUrl);

/// Why a receiver did not take what it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    #[error("{0}")]
    Unreachable(Unreachable),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("{0}")]
    Fault(String),
}

impl Undelivered {
    /// Whether the receiver said that it does not want this, rather than not now.
    pub fn is_final(&self) -> bool {
        match self {
            Undelivered::Refused(status) => {
                let later =
                    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
                status.is_client_error() && !later.contains(status)
            }
            Undelivered::Unreachable(_) | Undelivered::Fault(_) => false,
        }
    }
}

impl Webhook {
    /// An http or https URL without user name and fragment.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        ForeignUrl::parse(text).map(Self)
    }

    /// Sends a JSON document; any 2xx says that it was taken.
    pub async fn post(&self, json: Vec<u8>) -> Result<(), Undelivered> {
        let request = ForeignRequest {
            method: Method::POST,
            headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            body: json,
            time_limit: TIME_LIMIT,
            answer_bytes: 0,
        };
        let answer = self.0.ask(&Trust::system_roots(), request).await.map_err(Undelivered::Unreachable)?;
        if answer.status.is_success() { Ok(()) } else { Err(Undelivered::Refused(answer.status)) }
    }
}

impl std::fmt::Display for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A receiver that answers once, and gives back what it was sent.
    async fn answered(answer: &'static str) -> (Result<(), Undelivered>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let receiver = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut heard = Vec::new();
            while !heard.ends_with(b"{\"a\":1}") {
                let mut some = [0; 4096];
                let count = stream.read(&mut some).await.expect("readable");
                heard.extend_from_slice(&some[..count]);
            }
            stream.write_all(answer.as_bytes()).await.expect("writable");
            String::from_utf8(heard).expect("text")
        });
        let hook = Webhook::parse(&format!("http://{address}/in?x=1")).expect("a URL");
        let result = hook.post(b"{\"a\":1}".to_vec()).await;
        (result, receiver.await.expect("ends"))
    }

    #[tokio::test]
    async fn a_document_is_posted_and_any_2xx_takes_it() {
        let (result, heard) = answered("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(result, Ok(()));
        assert!(heard.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{heard}");
        assert!(heard.to_ascii_lowercase().contains("content-type: application/json\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn redirects_and_refusals_are_not_taken() {
        let (result, _) =
            answered("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
                .await;
        assert_eq!(result, Err(Undelivered::Refused(StatusCode::FOUND)));
        let (result, _) = answered("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        assert!(result.is_err_and(|error| error.is_final()));
        let (result, _) = answered("HTTP/1.1 429 Slow Down\r\nContent-Length: 0\r\n\r\n").await;
        assert!(result.is_err_and(|error| !error.is_final()));
    }
}
