//! The agent's calls: several servers in turn, again and again until the caller's patience ends.

mod line;
mod turns;

use crate::error::Error;
use crate::trust::{Identity, Trust, client_config};
use crate::url::ServerUrl;
use api::agent::{ConfirmRequest, ConfirmResponse, EnrollRequest, EnrollResponse};
use line::{Labels, Line};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::time::Instant;

/// What a server answered, and what it said beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<T> {
    pub message: T,
    /// Which server answered.
    pub server: ServerUrl,
    /// Its clock, in Unix milliseconds.
    pub server_time: Option<u64>,
}

/// A host's way to its control plane.
#[derive(Debug, Clone)]
pub struct Agent {
    servers: Vec<ServerUrl>,
    tls: Arc<ClientConfig>,
}

impl Agent {
    /// The servers in order of preference. Enrolling needs no identity; everything else does.
    pub fn new(servers: Vec<ServerUrl>, trust: &Trust, identity: Option<&Identity>) -> Result<Self, Error> {
        if servers.is_empty() {
            return Err(Error::Usage("no server is configured".to_owned()));
        }
        Ok(Self { servers, tls: client_config(trust, identity, b"h2")? })
    }

    /// Redeems a token. The idempotency key is the same on every try, and should be the same after a restart:
    /// with it, and the same key in the request, a lost reply can be had again.
    ///
    /// With a deadline it is tried until then, without one once on every server.
    pub async fn enroll(
        &self,
        request: EnrollRequest,
        idempotency_key: &str,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<EnrollResponse>, Error> {
        let labels = Labels::new(Some(idempotency_key), correlation_id)?;
        turns::take(&self.servers, deadline, |server, until| {
            let (tls, request) = (self.tls.clone(), labels.attach(request.clone()));
            async move {
                let mut line = Line::open(server, tls, until).await?;
                let answer = line.client().enroll(request).await;
                line.read(answer)
            }
        })
        .await
    }

    /// Says that the identity is kept and in use, or that it could not be kept. Repeating it changes nothing.
    pub async fn confirm(
        &self,
        request: ConfirmRequest,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<ConfirmResponse>, Error> {
        let labels = Labels::new(None, correlation_id)?;
        turns::take(&self.servers, deadline, |server, until| {
            let (tls, request) = (self.tls.clone(), labels.attach(request.clone()));
            async move {
                let mut line = Line::open(server, tls, until).await?;
                let answer = line.client().confirm(request).await;
                line.read(answer)
            }
        })
        .await
    }
}
