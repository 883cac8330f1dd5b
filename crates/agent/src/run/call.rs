//! A call to the control plane, made beside the daemon's loop. Dropping one at any moment is safe.

use std::future::pending;

use client::{AgentApi, Error, ServerUrl, TlsIdentity, Trust};
use tokio::task::JoinHandle;

use crate::failed_call::FailedCall;
use crate::store::identity::HostIdentity;

/// The call panicked.
#[derive(Debug)]
pub struct CallPanicked;

/// At most one call of a kind.
#[derive(Debug)]
pub struct Call<T>(Option<JoinHandle<T>>);

impl<T> Default for Call<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> Call<T> {
    pub fn begin(&mut self, call: impl Future<Output = T> + Send + 'static) {
        self.0 = Some(tokio::spawn(call));
    }

    /// Waits for its end; for ever while none is under way. Nothing is lost if the waiting is given up.
    pub async fn ended(&mut self) -> Result<T, CallPanicked> {
        let Some(call) = &mut self.0 else { return pending().await };
        let ended = call.await;
        self.0 = None;
        ended.map_err(|_| CallPanicked)
    }
}

/// Whom to call, as whom, and by what to verify them.
#[derive(Debug)]
pub struct CallTarget {
    pub agent: AgentApi,
    servers: Vec<ServerUrl>,
    trust: Trust,
    pub correlation_id: String,
}

impl CallTarget {
    pub fn new(
        servers: Vec<ServerUrl>,
        identity: &HostIdentity,
        correlation_id: &str,
    ) -> Result<Self, Error> {
        Self::by(servers, identity, &identity.credentials(), correlation_id)
    }

    /// As somebody else than the host's own identity, which still says what is trusted.
    pub fn by(
        servers: Vec<ServerUrl>,
        identity: &HostIdentity,
        credentials: &TlsIdentity,
        correlation_id: &str,
    ) -> Result<Self, Error> {
        let trust = identity.trust();
        let agent = AgentApi::new(servers.clone(), &trust, Some(credentials))?;
        Ok(Self { agent, servers, trust, correlation_id: correlation_id.to_owned() })
    }

    pub async fn failed(&self, error: Error) -> FailedCall {
        FailedCall::of(error, &self.servers, &self.trust).await
    }
}
