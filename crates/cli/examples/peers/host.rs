//! One simulated host: enrolled by its hardware, on its live stream, in the overlay once it has claimed its place.

use crate::framing::{Error, frame};
use crate::knowledge::Knowledge;
use crate::transport::{Dialer, Messages, Up, call, call_once, once};
use api::agent::{
    EnrollRequest, EnrollResponse, HardwareIdentity, Heartbeat, Hello, LiveDown, LiveUp, OverlayClaim,
    Underlay, live_down, live_up,
};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2::SendRequest;
use pki::agent_key::HostKey;
use rustls::ClientConfig;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub fn node_id(number: usize) -> String {
    format!("host-{number:06}")
}

pub fn mac(number: usize) -> String {
    let [_, _, _, _, _, a, b, c] = (number as u64).to_be_bytes();
    format!("0c:42:a1:{a:02x}:{b:02x}:{c:02x}")
}

pub struct Host {
    pub number: usize,
    up: mpsc::UnboundedSender<Bytes>,
    /// As it was sent, to be sent again.
    claim: Arc<OnceLock<Bytes>>,
    challenge: Vec<u8>,
    key: PrivateKey,
    /// While it is held, so is the connection.
    _sender: SendRequest<Up>,
}

impl Host {
    /// Enrolls, and opens the stream. A task of its own reads it from then on.
    pub async fn open(
        dialer: &Dialer,
        stranger: &Arc<ClientConfig>,
        number: usize,
        knowledge: Arc<Knowledge>,
    ) -> Result<Self, Error> {
        let tls = enroll(dialer, stranger, number).await?;
        let (mut sender, _driver) = dialer.http2(number, tls).await?;
        let (up, said) = mpsc::unbounded();
        let body = StreamBody::new(Box::pin(said.map(|bytes| Ok(Frame::data(bytes)))) as _);
        let hello = Hello {
            node_id: node_id(number),
            instance_id: format!("peers-{number}"),
            bundle_version: 1,
            ..Hello::default()
        };
        up.unbounded_send(frame(&LiveUp { message: Some(live_up::Message::Hello(hello)) }))?;
        let mut down = call(&mut sender, "enlist.agent.v1.Agent/Live", body).await?;
        let challenge = match down.first::<LiveDown>().await?.message {
            Some(live_down::Message::Welcome(welcome)) => welcome.overlay_challenge,
            other => return Err(format!("instead of Welcome: {other:?}").into()),
        };
        let claim = Arc::new(OnceLock::new());
        tokio::spawn(read(down, (number, up.clone(), claim.clone()), knowledge));
        tokio::spawn(beat(up.clone()));
        Ok(Self { number, up, claim, challenge, key: PrivateKey::generate(&X25519)?, _sender: sender })
    }

    /// As the protocol says.
    pub fn claim(&self) -> Result<(), Error> {
        let public = self.key.compute_public_key()?;
        let node = node_id(self.number);
        let text = [b"enlist overlay claim 1\0".as_slice(), node.as_bytes(), b"\0", public.as_ref()].concat();
        let challenge = UnparsedPublicKey::new(&X25519, &self.challenge);
        let proof = agree(&self.key, challenge, "no exchange", |secret| {
            Ok(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text).as_ref().to_vec())
        })?;
        let [_, _, _, _, _, a, b, c] = (self.number as u64).to_be_bytes();
        let claim = OverlayClaim {
            wireguard_public_key: STANDARD.encode(public.as_ref()),
            proof,
            underlay: Some(Underlay { ipv4: format!("10.{a}.{b}.{c}"), ipv6: String::new(), port: 51820 }),
            ..OverlayClaim::default()
        };
        let claim = frame(&LiveUp { message: Some(live_up::Message::Overlay(claim)) });
        self.up.unbounded_send(self.claim.get_or_init(|| claim).clone())?;
        Ok(())
    }
}

async fn enroll(
    dialer: &Dialer,
    stranger: &Arc<ClientConfig>,
    number: usize,
) -> Result<Arc<ClientConfig>, Error> {
    let key = HostKey::generate()?;
    let request = EnrollRequest {
        csr: key.csr_pem()?,
        hardware_identity: Some(HardwareIdentity { macs: vec![mac(number)], ..HardwareIdentity::default() }),
        memory_storage: true,
        ..EnrollRequest::default()
    };
    let (mut sender, _driver) = dialer.http2(number, stranger.clone()).await?;
    let path = "enlist.agent.v1.Agent/Enroll";
    let answer: EnrollResponse =
        call_once(&mut sender, path, &format!("peers-{number}"), once(frame(&request)))
            .await?
            .first()
            .await?;
    let mut chain = Vec::new();
    for part in [&answer.certificate, &answer.chain] {
        chain.extend(pki::pem::certificates(part.as_bytes())?.iter().map(|der| der.to_vec()));
    }
    dialer.tls(Some((chain, key.private_key_der())), b"h2")
}

/// A sign of life now and then, as agents give it.
async fn beat(up: mpsc::UnboundedSender<Bytes>) {
    let beat =
        frame(&LiveUp { message: Some(live_up::Message::Heartbeat(Heartbeat { interval_ms: 30_000 })) });
    loop {
        tokio::time::sleep(Duration::from_secs(30)).await;
        if up.unbounded_send(beat.clone()).is_err() {
            return;
        }
    }
}

/// Reads the stream. A claim that may be made again is, as agents do.
async fn read(
    mut down: Messages,
    (number, up, claim): (usize, mpsc::UnboundedSender<Bytes>, Arc<OnceLock<Bytes>>),
    knowledge: Arc<Knowledge>,
) {
    while let Ok(Some(LiveDown { message })) = down.next().await {
        match message {
            Some(live_down::Message::OverlayPeers(told)) => knowledge.told(number, &told),
            Some(live_down::Message::OverlayAnswer(answer)) if !answer.code.is_empty() => {
                let again = api::code::Code::of(&answer.code).is_some_and(|code| code.retryable);
                if let Some(claim) = claim.get().filter(|_| again) {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    let _ = up.unbounded_send(claim.clone());
                    continue;
                }
                knowledge.fail(format!("host {number}: {} {}", answer.code, answer.detail));
            }
            _ => {}
        }
    }
}
