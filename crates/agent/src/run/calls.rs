//! The calls of the daemon. They decide nothing and are safe to drop at any moment.

use api::agent::{ConfirmRequest, ConfirmStatus, Hello, RenewRequest, RenewResponse};
use api::code::{self, Code};
use api::error::ErrorDetail;
use client::unreachable::{Alert, Unreachable};
use client::{Agent, Error, Live};
use lifecycle::host::Trouble;

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    Opened(Result<Box<Live>, Error>),
    Renewed(Result<Box<RenewResponse>, Error>),
}

/// Opens the standing connection; a host whose enrollment is not confirmed yet does that first.
pub async fn open(agent: Agent, hello: Hello, confirm: bool, correlation_id: String) -> Outcome {
    if confirm {
        let request = ConfirmRequest { status: ConfirmStatus::Ok.into(), ..ConfirmRequest::default() };
        if let Err(error) = agent.confirm(request, &correlation_id, None).await {
            return Outcome::Opened(Err(error));
        }
    }
    let opened = agent.live(hello, &correlation_id, None).await;
    Outcome::Opened(opened.map(|reply| Box::new(reply.message)))
}

pub async fn renew(agent: Agent, csr: String, correlation_id: String) -> Outcome {
    let request =
        RenewRequest { csr, agent_version: env!("CARGO_PKG_VERSION").to_owned(), ..RenewRequest::default() };
    let renewed = agent.renew(request, &correlation_id, None).await;
    Outcome::Renewed(renewed.map(|reply| Box::new(reply.message)))
}

/// What a failure means.
pub fn trouble(error: &Error) -> Trouble {
    match error {
        Error::Refused(refusal) => refused(&refusal.detail),
        Error::Unreachable { cause: Unreachable::Alert(alert), .. } => match alert {
            Alert::Revoked => Trouble::Revoked,
            Alert::Expired => Trouble::Expired,
            Alert::UnknownIssuer => Trouble::UnknownIssuer,
            Alert::Unacceptable => Trouble::Unacceptable,
            Alert::Other(_) => Trouble::Passing,
        },
        Error::Unreachable { .. } | Error::Usage(_) | Error::Fault(_) => Trouble::Passing,
    }
}

fn refused(detail: &ErrorDetail) -> Trouble {
    let is = |code: &Code| detail.code == code.word;
    if is(code::NODE_REVOKED) {
        Trouble::Revoked
    } else if is(code::CERTIFICATE_SUPERSEDED) {
        Trouble::Superseded
    } else if is(code::UNAUTHENTICATED) {
        Trouble::Unacceptable
    } else if detail.retryable {
        Trouble::Passing
    } else {
        Trouble::Refused
    }
}
