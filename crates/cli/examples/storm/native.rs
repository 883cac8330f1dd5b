//! A machine that speaks the native API, as `enlist-agent` does.

use crate::fleet::Shared;
use crate::framing::{Error, frame};
use crate::machine::{self, Identity, Opened};
use crate::transport::{Dialer, Messages, Up, call, call_once, once};
use api::agent::{
    ConfirmRequest, ConfirmResponse, ConfirmStatus, EnrollRequest, EnrollResponse, HardwareIdentity, Hello,
    LiveDown, LiveUp, live_down, live_up,
};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use pki::agent_key::HostKey;
use rustls::ClientConfig;
use std::sync::Arc;

pub async fn enroll(
    dialer: &Dialer,
    stranger: &Arc<ClientConfig>,
    number: usize,
    key: &HostKey,
) -> Result<Identity, Error> {
    let request = EnrollRequest {
        csr: key.csr_pem()?,
        hardware_identity: Some(HardwareIdentity {
            macs: vec![machine::mac(number)],
            bmc_serial: machine::serial(number),
            ..HardwareIdentity::default()
        }),
        ..EnrollRequest::default()
    };
    let (mut sender, _driver) = dialer.http2(number, stranger.clone()).await?;
    let (path, idempotency) = ("enlist.agent.v1.Agent/Enroll", machine::idempotency_key(number));
    let answer: EnrollResponse =
        call_once(&mut sender, path, &idempotency, once(frame(&request))).await?.first().await?;
    if answer.node_id != machine::node_id(number) {
        return Err(format!("machine {number} was taken for {}", answer.node_id).into());
    }
    let mut chain = Vec::new();
    for part in [&answer.certificate, &answer.chain] {
        chain.extend(pki::pem::certificates(part.as_bytes())?.iter().map(|der| der.to_vec()));
    }
    let tls = dialer.tls(Some((chain, key.private_key_der())), b"h2")?;
    Ok(Identity { node: answer.node_id, tls })
}

/// Confirms the first time; then the live stream, up to its Welcome and its configuration.
pub async fn open(
    shared: &Shared,
    number: usize,
    identity: &Identity,
    mut received: u64,
) -> Result<Opened, Error> {
    let (mut sender, _driver) = shared.dialer.http2(number, identity.tls.clone()).await?;
    if received == 0 {
        let confirm = ConfirmRequest {
            status: ConfirmStatus::Ok.into(),
            recovery_wanted: true,
            ..ConfirmRequest::default()
        };
        let path = "enlist.agent.v1.Agent/Confirm";
        let _: ConfirmResponse = call(&mut sender, path, once(frame(&confirm))).await?.first().await?;
    }
    let hello = Hello {
        node_id: identity.node.clone(),
        instance_id: format!("storm-{number}"),
        agent_version: "storm".to_owned(),
        bundle_version: 1,
        config_wanted: true,
        config_sequence: received,
        ..Hello::default()
    };
    let mut down = call(&mut sender, "enlist.agent.v1.Agent/Live", saying(hello)).await?;
    match down.first::<LiveDown>().await?.message {
        Some(live_down::Message::Welcome(_)) => {}
        other => return Err(format!("instead of Welcome: {other:?}").into()),
    }
    if received == 0 {
        let (sequence, document) = change(&mut down).await?.ok_or("no configuration")?;
        shared.has(number, &document);
        received = sequence;
    }
    Ok(Opened { down, _sender: sender, received })
}

/// A body that says Hello and then stays open, as a host between two heartbeats.
fn saying(hello: Hello) -> Up {
    let hello = frame(&LiveUp { message: Some(live_up::Message::Hello(hello)) });
    let first = futures::stream::once(async move { Ok(Frame::data(hello)) });
    StreamBody::new(Box::pin(first.chain(futures::stream::pending())))
}

/// The next document; none at the end.
pub async fn change(down: &mut Messages) -> Result<Option<(u64, Bytes)>, Error> {
    while let Some(LiveDown { message }) = down.next().await? {
        if let Some(live_down::Message::Config(config)) = message {
            return Ok(Some((config.sequence, config.base.into())));
        }
    }
    Ok(None)
}
