//! A machine that speaks pact's API.

use crate::fleet::Shared;
use crate::framing::{Error, frame};
use crate::machine::{self, Identity, Opened};
use crate::transport::{Dialer, Messages, call, call_once, once};
use api::doors::pact::enrollment::{EnrollRequest, EnrollResponse, HardwareIdentity};
use api::doors::pact::stream::{
    BootConfigRequest, ConfigChunk, ConfigUpdate, SubscribeRequest, config_chunk, config_update,
};
use bytes::Bytes;
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
        hardware_identity: Some(HardwareIdentity {
            mac_address: machine::mac(number),
            bmc_serial: machine::serial(number),
            ..HardwareIdentity::default()
        }),
        csr: machine::request(key)?,
    };
    let (mut sender, _driver) = dialer.http2(number, stranger.clone()).await?;
    let (path, idempotency) = ("pact.enrollment.EnrollmentService/Enroll", machine::idempotency_key(number));
    let answer: EnrollResponse =
        call_once(&mut sender, path, &idempotency, once(frame(&request))).await?.first().await?;
    if answer.node_id != machine::node_id(number) {
        return Err(format!("machine {number} was taken for {}", answer.node_id).into());
    }
    let chain = pki::pem::certificates(&answer.signed_cert)?.iter().map(|der| der.to_vec()).collect();
    let tls = dialer.tls(Some((chain, key.private_key_der())), b"h2")?;
    Ok(Identity { node: answer.node_id, tls })
}

/// The configuration as it is, the first time; then the stream of what changes. A machine that has just booted knows no
/// sequence, so the stream begins with the same document again.
pub async fn open(
    shared: &Shared,
    number: usize,
    identity: &Identity,
    received: u64,
) -> Result<Opened, Error> {
    let (mut sender, _driver) = shared.dialer.http2(number, identity.tls.clone()).await?;
    if received == 0 {
        let asked = BootConfigRequest { node_id: identity.node.clone(), ..BootConfigRequest::default() };
        let path = "pact.stream.BootConfigService/StreamBootConfig";
        let mut chunks = call(&mut sender, path, once(frame(&asked))).await?;
        let mut document = Vec::new();
        while let Some(ConfigChunk { chunk }) = chunks.next().await? {
            match chunk.ok_or("an empty chunk")? {
                config_chunk::Chunk::BaseOverlay(part) => document.extend_from_slice(&part.data),
                config_chunk::Chunk::NodeDelta(_) => return Err("a document of its own".into()),
                config_chunk::Chunk::Complete(_) => {}
            }
        }
        shared.has(number, &Bytes::from(document));
    }
    let asked = SubscribeRequest {
        node_id: identity.node.clone(),
        from_sequence: received,
        ..SubscribeRequest::default()
    };
    let path = "pact.stream.BootConfigService/SubscribeConfigUpdates";
    let down = call(&mut sender, path, once(frame(&asked))).await?;
    Ok(Opened { down, _sender: sender, received })
}

/// The next document; none at the end.
pub async fn change(down: &mut Messages) -> Result<Option<(u64, Bytes)>, Error> {
    let Some(ConfigUpdate { sequence, update, .. }) = down.next().await? else { return Ok(None) };
    match update {
        Some(config_update::Update::VclusterChange(document)) => Ok(Some((sequence, document.into()))),
        other => Err(format!("instead of a document: {other:?}").into()),
    }
}
