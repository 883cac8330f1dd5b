//! The plane's side of standing connections.

use std::sync::Arc;

use api::agent::{
    Ack, Bundle, Config, EndpointProfile, Evidence, Hello, LiveDown, LiveUp, Order, OrderDone, OverlayAnswer,
    OverlayClaim, OverlayPeers, RecoveryGrant, RekeyOverlay, RenewNow, Standing, Welcome, live_down, live_up,
    order,
};
use api::code;
use api::error::ErrorDetail;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use super::plane::Plane;

pub type Down = UnboundedReceiverStream<Result<LiveDown, Status>>;

/// What was said on all of them.
#[derive(Default)]
pub struct Lives {
    /// With the serial of the certificate.
    pub hellos: Vec<(String, Hello)>,
    pub heartbeats: usize,
    pub evidence: Vec<Evidence>,
    pub done: Vec<OrderDone>,
    /// The recovery tokens that are said to be on disk.
    pub kept: Vec<String>,
    /// What a host proves its WireGuard key with; none, where there is no overlay.
    pub challenge: Vec<u8>,
    pub claims: Vec<OverlayClaim>,
    /// How many the host has ended.
    pub ended: usize,
    open: Vec<mpsc::UnboundedSender<Result<LiveDown, Status>>>,
}

impl std::fmt::Debug for Lives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?} ended {}", self.hellos, self.evidence, self.done, self.ended)
    }
}

impl Lives {
    fn tell(&self, message: live_down::Message) {
        let newest = self.open.last().unwrap();
        newest.send(Ok(LiveDown { message: Some(message) })).unwrap();
    }

    pub fn order_renewal(&self, id: &str) {
        let order = Some(order::Order::RenewNow(RenewNow {}));
        self.tell(live_down::Message::Order(Order { order_id: id.to_owned(), order }));
    }

    pub fn order_rekey(&self, id: &str) {
        let order = Some(order::Order::RekeyOverlay(RekeyOverlay {}));
        self.tell(live_down::Message::Order(Order { order_id: id.to_owned(), order }));
    }

    pub fn send_answer(&self, answer: OverlayAnswer) {
        self.tell(live_down::Message::OverlayAnswer(answer));
    }

    pub fn send_peers(&self, peers: OverlayPeers) {
        self.tell(live_down::Message::OverlayPeers(peers));
    }

    pub fn send_grant(&self, grant: RecoveryGrant) {
        self.tell(live_down::Message::Recovery(grant));
    }

    pub fn send_profile(&self, profile: EndpointProfile) {
        self.tell(live_down::Message::EndpointProfile(profile));
    }

    /// The configuration: of a vCluster, or of none if that is empty.
    pub fn send_config(&self, sequence: u64, vcluster: &str, base: &str, node: &str) {
        let checksum = |text: &str| pki::digest::fingerprint(text.as_bytes()).hex();
        self.tell(live_down::Message::Config(Config {
            sequence,
            vcluster: vcluster.to_owned(),
            base_version: sequence,
            base: base.into(),
            base_checksum: checksum(base),
            node_version: u64::from(!node.is_empty()),
            node: node.into(),
            node_checksum: checksum(node),
        }));
    }

    pub fn send_bundle(&self, version: u64, pem: &str) {
        self.send_trust(Bundle { version, pem: pem.to_owned(), ..Bundle::default() });
    }

    pub fn send_trust(&self, bundle: Bundle) {
        self.tell(live_down::Message::Bundle(bundle));
    }

    /// Ends every connection.
    pub fn cut(&mut self, why: &Status) {
        for open in self.open.drain(..) {
            let _ = open.send(Err(why.clone()));
        }
    }
}

pub fn revoked() -> Status {
    ErrorDetail::new(code::NODE_REVOKED, "the node is revoked", "01REQUEST").into()
}

pub fn superseded() -> Status {
    ErrorDetail::new(code::CERTIFICATE_SUPERSEDED, "another has taken its place", "01REQUEST").into()
}

pub fn serve(plane: Arc<Plane>, serial: String, mut up: Streaming<LiveUp>) -> Down {
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let ack = || live_down::Message::Ack(Ack { server_time_ms: now() });
        while let Ok(Some(LiveUp { message: Some(word) })) = up.message().await {
            let answer = match word {
                live_up::Message::Hello(hello) => {
                    let standing = Standing { state: "active".to_owned(), ..Default::default() };
                    let welcome = live_down::Message::Welcome(Welcome {
                        server_time_ms: now(),
                        heartbeat_ms: 200,
                        standing: Some(standing),
                        servers: vec![plane.url.clone()],
                        overlay_challenge: plane.record().lives.challenge.clone(),
                        ..Default::default()
                    });
                    // Before anybody hears of the connection and sends something on it.
                    let _ = tell.send(Ok(LiveDown { message: Some(welcome) }));
                    plane.change(|record| {
                        record.lives.hellos.push((serial.clone(), hello));
                        record.lives.open.push(tell.clone());
                    });
                    continue;
                }
                live_up::Message::Heartbeat(_) => {
                    plane.change(|record| record.lives.heartbeats += 1);
                    ack()
                }
                live_up::Message::Evidence(evidence) => {
                    plane.change(|record| record.lives.evidence.push(evidence));
                    ack()
                }
                live_up::Message::OrderDone(done) => {
                    plane.change(|record| record.lives.done.push(done));
                    ack()
                }
                live_up::Message::RecoveryKept(kept) => {
                    plane.change(|record| record.lives.kept.push(kept.token_id));
                    ack()
                }
                live_up::Message::Sessions(_) => unreachable!("its Welcome knows no sessions"),
                live_up::Message::Overlay(claim) => {
                    plane.change(|record| record.lives.claims.push(claim));
                    continue;
                }
            };
            let _ = tell.send(Ok(LiveDown { message: Some(answer) }));
        }
        plane.change(|record| {
            record.lives.open.retain(|open| !open.same_channel(&tell));
            record.lives.ended += 1;
        });
    });
    UnboundedReceiverStream::new(told)
}

/// The plane's clock is a minute ahead.
fn now() -> i64 {
    i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() + 60_000
}
