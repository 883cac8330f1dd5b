//! The agent's calls: several servers in turn, again and again until the caller's patience ends.

mod connection;
mod failover;
mod live;

use crate::error::Error;
use crate::trust::{TlsIdentity, Trust, client_config};
use crate::url::ServerUrl;
use api::agent::{
    AgentClient, BootConfigRequest, CheckRequest, Config, ConfirmRequest, ConfirmResponse, EnrollRequest,
    EnrollResponse, Hello, RecoverRequest, RecoverResponse, RenewRequest, RenewResponse, Standing,
};
use connection::{CallMetadata, GrpcConnection};
pub use live::LiveConnection;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// What a server answered, and what it said beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply<T> {
    pub message: T,
    /// Which server answered.
    pub server: ServerUrl,
    /// Its clock, in Unix milliseconds.
    pub server_time: Option<u64>,
}

/// Hears of a round in which no server did what was asked, and how long it is until the next.
type OnRetry = Arc<dyn Fn(&Error, Duration) + Send + Sync>;

/// A host's way to its control plane.
#[derive(Clone)]
pub struct AgentApi {
    servers: Vec<ServerUrl>,
    tls: Arc<ClientConfig>,
    on_retry: OnRetry,
}

impl AgentApi {
    /// The servers in order of preference. Enrolling needs no identity; everything else does.
    pub fn new(
        servers: Vec<ServerUrl>,
        trust: &Trust,
        identity: Option<&TlsIdentity>,
    ) -> Result<Self, Error> {
        if servers.is_empty() {
            return Err(Error::Usage("no server is configured".to_owned()));
        }
        Ok(Self { servers, tls: client_config(trust, identity, b"h2")?, on_retry: Arc::new(|_, _| ()) })
    }

    /// Tells of every round that failed and will be repeated.
    pub fn on_retry(self, tell: impl Fn(&Error, Duration) + Send + Sync + 'static) -> Self {
        Self { on_retry: Arc::new(tell), ..self }
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
        let metadata = CallMetadata::new(Some(idempotency_key), correlation_id)?;
        self.call(
            request,
            metadata,
            deadline,
            |mut client, request| async move { client.enroll(request).await },
        )
        .await
    }

    /// Says that the identity is kept and in use, or that it could not be kept. Repeating it changes nothing.
    pub async fn confirm(
        &self,
        request: ConfirmRequest,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<ConfirmResponse>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        self.call(
            request,
            metadata,
            deadline,
            |mut client, request| async move { client.confirm(request).await },
        )
        .await
    }

    /// A new certificate for the key in the request. The same key again gives the same certificate, as long as
    /// nobody has used it, so a lost reply can be had again.
    pub async fn renew(
        &self,
        request: RenewRequest,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<RenewResponse>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        self.call(
            request,
            metadata,
            deadline,
            |mut client, request| async move { client.renew(request).await },
        )
        .await
    }

    /// Redeems a recovery token. For an [`AgentApi`] without an identity: the one that was lost is not shown. The same
    /// token and key again give the same certificate, as long as nobody has used it.
    pub async fn recover(
        &self,
        request: RecoverRequest,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<RecoverResponse>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        self.call(
            request,
            metadata,
            deadline,
            |mut client, request| async move { client.recover(request).await },
        )
        .await
    }

    /// What the control plane thinks of the node whose certificate is shown. Changes nothing there.
    pub async fn check(&self, correlation_id: &str) -> Result<Reply<Standing>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        self.call(CheckRequest {}, metadata, None, |mut client, request| async move {
            client.check(request).await
        })
        .await
    }

    /// Configuration for a host that has no identity of its own yet; the identity is a bootstrap one. Empty is the domain's defaults.
    pub async fn boot_config(&self, vcluster: &str, correlation_id: &str) -> Result<Reply<Config>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        let request = BootConfigRequest { vcluster: vcluster.to_owned() };
        self.call(
            request,
            metadata,
            None,
            |mut client, request| async move { client.boot_config(request).await },
        )
        .await
    }

    /// One call, on the first server that answers it.
    async fn call<Q, A, F>(
        &self,
        request: Q,
        metadata: CallMetadata,
        deadline: Option<Instant>,
        ask: impl Fn(AgentClient<Channel>, Request<Q>) -> F,
    ) -> Result<Reply<A>, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        failover::call(&self.servers, deadline, &self.on_retry, |server, until| {
            let (tls, request, ask) = (self.tls.clone(), metadata.attach(request.clone()), &ask);
            async move {
                let connection = GrpcConnection::open(server, tls, until).await?;
                let answer = ask(connection.client(), request).await;
                connection.read(answer)
            }
        })
        .await
    }

    /// The standing connection to the first server that welcomes us.
    pub async fn live(
        &self,
        hello: Hello,
        correlation_id: &str,
        deadline: Option<Instant>,
    ) -> Result<Reply<LiveConnection>, Error> {
        let metadata = CallMetadata::new(None, correlation_id)?;
        failover::call(&self.servers, deadline, &self.on_retry, |server, until| {
            let (tls, hello, metadata) = (self.tls.clone(), hello.clone(), metadata.clone());
            async move {
                LiveConnection::open(
                    GrpcConnection::open_standing(server, tls, until).await?,
                    hello,
                    &metadata,
                )
                .await
            }
        })
        .await
    }
}

impl std::fmt::Debug for AgentApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentApi").field("servers", &self.servers).finish_non_exhaustive()
    }
}
