//! What reading a request, signing a leaf and checking a peer cost on this machine: best of five, CPU µs.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on may panic")]

use std::time::Instant;

use lifecycle::names::{Span, SpiffeId, Timestamp, TrustDomain};
use pki::agent_key::HostKey;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, sign_leaf};
use pki::verify::NodeIssuers;

const ROUNDS: u32 = 2000;

fn main() {
    let at = Timestamp::from_secs(1_800_000_000);
    let domain = TrustDomain::parse("probectl").unwrap();
    let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
    let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
    let key = HostKey::generate().unwrap();
    let (request, spki) = (key.csr_pem().unwrap(), key.spki());
    let issuance = Issuance {
        subject: SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap(),
        common_name: Some("worker:n-1".to_owned()),
        serial: [3; 16],
        signing_time: at,
        lifetime: Span::from_hours(24),
    };
    let leaf = sign_leaf(&issuer, &spki, &issuance).unwrap().der.into();
    let issuers = NodeIssuers::new([(&domain, made.node.der.as_slice())]).unwrap();

    measure("csr::read", || drop(pki::csr::read(request.as_bytes()).unwrap()));
    measure("sign_leaf", || drop(sign_leaf(&issuer, &spki, &issuance).unwrap()));
    measure("NodeIssuers::check", || drop(issuers.check(&leaf, at).unwrap()));
}

/// One thread that never waits: the time that passes is the CPU time, save for what others take, and the
/// best of five leaves that out.
fn measure(what: &str, mut act: impl FnMut()) {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| act());
        start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    });
    println!("{what}: {:.1} µs", best.fold(f64::INFINITY, f64::min));
}
