//! The calls of the daemon. They decide nothing and are safe to drop at any moment.

use api::agent::{
    ConfirmRequest, ConfirmResponse, ConfirmStatus, Hello, RecoverRequest, RecoverResponse, RenewRequest,
    RenewResponse,
};
use client::{AgentApi, Error, LiveConnection, ServerUrl, Trust};
use lifecycle::names::{Span, Timestamp};

use crate::clock;
use crate::failed_call::Failed;
use crate::recover::endpoint::Way;
use crate::recover::{ask, clock_floor};

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    Opened(Result<Box<Opened>, Failed>),
    Renewed(Result<Box<RenewResponse>, Failed>),
    Recovered(Result<Box<RecoverResponse>, Failed>),
}

#[derive(Debug)]
pub struct Opened {
    pub live: Box<LiveConnection>,
    /// Of a host whose identity was not confirmed before.
    pub confirmed: Option<ConfirmResponse>,
}

/// Whom to ask, as whom, and by what to recognise them.
#[derive(Debug)]
pub struct Line {
    pub agent: AgentApi,
    pub servers: Vec<ServerUrl>,
    pub trust: Trust,
    pub correlation_id: String,
}

impl Line {
    async fn failed(&self, error: Error) -> Failed {
        Failed::of(error, &self.servers, &self.trust).await
    }
}

/// Opens the standing connection; a host whose identity is not confirmed yet does that first.
pub async fn open(line: Line, hello: Hello, confirm: bool) -> Outcome {
    let mut confirmed = None;
    if confirm {
        let request = ConfirmRequest {
            status: ConfirmStatus::Ok.into(),
            recovery_kept: hello.recovery_kept.clone(),
            recovery_wanted: hello.recovery_wanted,
            ..ConfirmRequest::default()
        };
        match line.agent.confirm(request, &line.correlation_id, None).await {
            Ok(reply) => confirmed = Some(reply.message),
            Err(error) => return Outcome::Opened(Err(line.failed(error).await)),
        }
    }
    match line.agent.live(hello, &line.correlation_id, None).await {
        Ok(reply) => Outcome::Opened(Ok(Box::new(Opened { live: Box::new(reply.message), confirmed }))),
        Err(error) => Outcome::Opened(Err(line.failed(error).await)),
    }
}

pub async fn renew(line: Line, csr: String, recovery_kept: String) -> Outcome {
    let request = RenewRequest {
        csr,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        recovery_kept,
        recovery_wanted: true,
    };
    match line.agent.renew(request, &line.correlation_id, None).await {
        Ok(reply) => Outcome::Renewed(Ok(Box::new(reply.message))),
        Err(error) => Outcome::Renewed(Err(line.failed(error).await)),
    }
}

/// `made` is the latest moment that has certainly been.
pub async fn recover(
    way: Way,
    request: RecoverRequest,
    correlation_id: String,
    tolerance: Span,
    made: Option<Timestamp>,
) -> Outcome {
    let answer = match clock_floor::check(made, clock::now(), tolerance) {
        Ok(()) => ask::ask(&way, request, &correlation_id, tolerance).await,
        Err(failed) => Err(failed),
    };
    Outcome::Recovered(answer.map(Box::new))
}
