//! The operator API as the CLI uses it: over the operator socket, or over TLS with a certificate or an API key.
//!
//! One request, one connection: a command asks once or twice, and nothing is left open between.

mod events;
mod exchange;
mod lines;
mod pages;
mod path;
mod response;

pub use events::{ServerSentEvent, ServerSentEvents};
pub use lines::ResponseLines;
pub use pages::Pages;
pub use path::Path;

use crate::error::Error;
use crate::trust::{TlsIdentity, Trust, client_config};
use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use api::rest::health::{Alive, Health};
use api::rest::secret::Secret;
use exchange::{FailedExchange, RestPlace, RestResponse, RestTransport};
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;

/// The most items of a list that is held in memory; no fleet has more nodes.
const LIST_ITEMS: usize = 1_000_000;
/// The most pages of a list that bring nothing, one after another. A search looks into some thousands of nodes for each.
const EMPTY_PAGES: usize = 1_000;

/// As whom an operator comes.
#[derive(Debug, Clone)]
pub enum ApiCredential {
    Certificate(TlsIdentity),
    ApiKey(Secret),
}

#[derive(Debug, Clone)]
pub struct OperatorApi {
    transport: RestTransport,
    authorization: Option<HeaderValue>,
    correlation: Option<HeaderValue>,
    on_stale: Option<fn(Duration)>,
}

impl OperatorApi {
    /// On the control plane's own machine: the socket knows its peer.
    pub fn over_socket(path: impl Into<PathBuf>) -> Self {
        Self {
            transport: RestTransport::Socket(path.into()),
            authorization: None,
            correlation: None,
            on_stale: None,
        }
    }

    /// At the first of these addresses that serves. Without a credential only health and the API's description can be read.
    pub fn over_tls(
        servers: impl Into<Vec<ServerUrl>>,
        trust: &Trust,
        credential: Option<&ApiCredential>,
    ) -> Result<Self, Error> {
        let (identity, authorization) = match credential {
            None => (None, None),
            Some(ApiCredential::Certificate(identity)) => (Some(identity), None),
            Some(ApiCredential::ApiKey(key)) => (None, Some(bearer(key)?)),
        };
        let tls = client_config(trust, identity, b"http/1.1")?;
        let servers: Vec<ServerUrl> = servers.into();
        if servers.is_empty() {
            return Err(Error::Usage("no server is configured".to_owned()));
        }
        Ok(Self {
            transport: RestTransport::Servers { servers, tls },
            authorization,
            correlation: None,
            on_stale: None,
        })
    }

    /// Ties the requests of one undertaking together in the audit trail.
    pub fn correlated(mut self, id: &str) -> Result<Self, Error> {
        let id = HeaderValue::from_str(id).map_err(|_| Error::Usage("not a correlation id".to_owned()))?;
        self.correlation = Some(id);
        Ok(self)
    }

    /// Told how old an answer may be that the replica gave without a leader to ask.
    pub fn noticing_stale(mut self, notice: fn(Duration)) -> Self {
        self.on_stale = Some(notice);
        self
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &Path) -> Result<T, Error> {
        self.send(Method::GET, path, None).await?.json().await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &Path, body: &impl Serialize) -> Result<T, Error> {
        self.send(Method::POST, path, Some(encode(body)?)).await?.json().await
    }

    pub async fn put<T: DeserializeOwned>(&self, path: &Path, body: &impl Serialize) -> Result<T, Error> {
        self.send(Method::PUT, path, Some(encode(body)?)).await?.json().await
    }

    /// A body that is JSON already, byte for byte.
    pub async fn put_document<T: DeserializeOwned>(
        &self,
        path: &Path,
        document: Vec<u8>,
    ) -> Result<T, Error> {
        self.send(Method::PUT, path, Some(document)).await?.json().await
    }

    pub async fn delete(&self, path: &Path) -> Result<(), Error> {
        self.send(Method::DELETE, path, None).await?.bytes().await.map(drop)
    }

    /// Where the answer says what else has ended.
    pub async fn remove<T: DeserializeOwned>(&self, path: &Path) -> Result<T, Error> {
        self.send(Method::DELETE, path, None).await?.json().await
    }

    /// An answer that is not JSON, such as PEM.
    pub async fn text(&self, path: &Path) -> Result<String, Error> {
        self.send(Method::GET, path, None).await?.text().await
    }

    /// Every item of a list, for lists that fit into memory.
    pub async fn list<T: DeserializeOwned>(&self, path: &Path) -> Result<Vec<T>, Error> {
        let mut pages = self.pages(path.clone());
        let (mut items, mut empty) = (Vec::new(), 0);
        while let Some(page) = pages.next().await? {
            // A search may find nothing for a while. Pages that bring nothing new for ever would lead nowhere.
            empty = if page.is_empty() { empty + 1 } else { 0 };
            if empty > EMPTY_PAGES {
                let cause = Unreachable::Garbage(format!("a list with more than {EMPTY_PAGES} empty pages"));
                return Err(Error::unreachable(self.transport.server(), cause));
            }
            items.extend(page);
            if items.len() > LIST_ITEMS {
                let cause = Unreachable::Garbage(format!("a list of more than {LIST_ITEMS} items"));
                return Err(Error::unreachable(self.transport.server(), cause));
            }
        }
        Ok(items)
    }

    /// The pages of a list, one request each, for lists that may be longer than memory.
    pub fn pages<T: DeserializeOwned>(&self, path: Path) -> Pages<'_, T> {
        Pages::new(self, path)
    }

    /// A long answer, line by line. `idle` is the longest silence allowed.
    pub async fn lines(&self, path: &Path, idle: Option<Duration>) -> Result<ResponseLines, Error> {
        Ok(ResponseLines::new(self.send(Method::GET, path, None).await?, idle))
    }

    /// Server-sent events, for as long as the server sends them.
    pub async fn events(&self, path: &Path) -> Result<ServerSentEvents, Error> {
        Ok(ServerSentEvents::new(self.lines(path, None).await?))
    }

    /// `/readyz`: whether the server serves, and why not.
    pub async fn readiness(&self) -> Result<Health, Error> {
        let answer = self.exchange(Method::GET, &Path::new("/readyz"), None).await?;
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            return answer.json().await;
        }
        answer.granted().await?.json().await
    }

    /// `/healthz`: that it is a control plane, and what time it has, in milliseconds since 1970. A failure of its own,
    /// or of what stands before it, is no answer.
    pub async fn alive(&self) -> Result<Option<u64>, Error> {
        let answer = self.exchange(Method::GET, &Path::new("/healthz"), None).await?;
        let time = answer.response.headers().get(api::header::SERVER_TIME);
        let time = time.and_then(|value| value.to_str().ok()?.parse().ok());
        if answer.status().is_server_error() {
            return Err(answer.source.unavailable(format!("it answered HTTP {}", answer.status().as_u16())));
        }
        // What wants people to sign in sends pages, and may not even end them properly.
        let kind = answer.response.headers().get(http::header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            let what = format!("HTTP {} without an Enlist answer", answer.status().as_u16());
            return Err(answer.source.unexpected(what));
        }
        let alive: Alive = answer.granted().await?.json().await?;
        Ok(time.filter(|_| alive.ok))
    }

    /// An answer that is not an error, of the first replica that takes the request. What changes something goes to another one only
    /// if the one before is known not to have taken it: done twice it would not be the same.
    async fn send(&self, method: Method, path: &Path, body: Option<Vec<u8>>) -> Result<RestResponse, Error> {
        let mut failed = None;
        for place in self.transport.places() {
            let error = match self.exchange_with(&place, &method, path, body.clone()).await {
                Err(FailedExchange { error, is_sent }) if is_sent && method != Method::GET => {
                    return Err(error);
                }
                Err(FailedExchange { error, .. }) => error,
                Ok(answer) => match answer.granted().await {
                    Ok(answer) => {
                        if let Some((notice, age)) = self.on_stale.zip(answer.state_age()) {
                            notice(age);
                        }
                        return Ok(answer);
                    }
                    Err(error) if error.is_of_this_replica() => error,
                    Err(error) => return Err(error),
                },
            };
            failed = Some(telling(failed, error));
        }
        Err(failed.unwrap_or_else(|| Error::Usage("no server is configured".to_owned())))
    }

    /// The answer of the first place that can be reached.
    async fn exchange(
        &self,
        method: Method,
        path: &Path,
        body: Option<Vec<u8>>,
    ) -> Result<RestResponse, Error> {
        let mut failed = None;
        for place in self.transport.places() {
            match self.exchange_with(&place, &method, path, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(FailedExchange { error, is_sent: true }) => return Err(error),
                Err(FailedExchange { error, is_sent: false }) => failed = Some(telling(failed, error)),
            }
        }
        Err(failed.unwrap_or_else(|| Error::Usage("no server is configured".to_owned())))
    }

    async fn exchange_with(
        &self,
        place: &RestPlace<'_>,
        method: &Method,
        path: &Path,
        body: Option<Vec<u8>>,
    ) -> Result<RestResponse, FailedExchange> {
        let mut request = http::Request::builder().method(method).uri(path.as_str());
        if let Some(value) = &self.authorization {
            request = request.header(http::header::AUTHORIZATION, value);
        }
        if let Some(value) = &self.correlation {
            request = request.header(api::header::CORRELATION_ID, value);
        }
        exchange::exchange(place, request, body).await
    }
}

/// Of two failures the one that says more: a replica's own answer before one that could not be reached.
fn telling(known: Option<Error>, new: Error) -> Error {
    match known {
        Some(known) if matches!(known, Error::Refused(_)) || !matches!(new, Error::Refused(_)) => known,
        Some(_) | None => new,
    }
}

/// Marked so that no library prints it.
fn bearer(key: &Secret) -> Result<HeaderValue, Error> {
    let value = HeaderValue::from_str(&format!("Bearer {}", key.reveal().trim()));
    let mut value =
        value.map_err(|_| Error::Usage("the API key contains characters that are not allowed".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn encode(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(|error| Error::Fault(format!("the request cannot be written: {error}")))
}
