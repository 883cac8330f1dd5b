//! What this replica says of itself in the registry: where it is reached, and its certificate, which it renews by itself.

use super::peer_tls::PeerTls;
use super::{local, peer_address};
use crate::ca::hsm;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use crate::process::config::ControlPlaneConfig;
use api::code;
use lifecycle::names::{ReplicaId, Span, SpiffeId, Timestamp};
use lifecycle::registry::{Actor, AnnounceReplica, Command, Issued, Issuer, Rejection, State};
use pki::replica_cert::{self, LIFETIME};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use std::net::SocketAddr;

/// Announces this replica if that is needed: its address or URLs changed, or its certificate is due, missing, or of an issuer that
/// signs no more. The one that was initialized is announced when the first other one is to join.
pub async fn ensure(app: &App) -> Result<(), Failure> {
    let _alone = app.cluster.announcing.lock().await;
    let (view, at, id) = (app.view(), app.now(), app.journal.replica());
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let peer = own_address(app).ok_or_else(|| {
        Failure::new(code::UNAVAILABLE, "the port between replicas is not served")
            .remedy("set peer_listen in enlist.toml to a free address, then start the control plane again")
    })?;
    app.journal.is_reached_at(peer.clone());
    let urls = app.own_urls();
    let record = view.state.replicas.get(&id);
    let kept = local::kept(&app.cluster.dir, &app.ca.keys.kek());
    let is_current = kept.as_ref().is_some_and(|kept| is_current(&view.state, kept, at, id));
    if is_current && record.is_some_and(|record| record.peer == peer && record.urls == urls) {
        if let (Some(kept), None) = (kept, app.cluster.tls.shown()) {
            app.cluster.tls.show(kept);
        }
        return Ok(());
    }
    // What is on record already stays: a certificate must be renewed.
    if record.is_none_or(|record| record.peer != peer) {
        peer_address::check_free(&view.state, &peer, Some(id))?;
    }
    let made = if is_current { None } else { Some(make(app, &view.state, at)?) };
    let certificate = made.as_ref().map(|(issued, _)| issued.clone());
    let announce = AnnounceReplica { replica: id, peer, urls, certificate };
    let command = Command::AnnounceReplica(announce);
    let (_, view) = app.commit(Actor::Replica { id }, &Provenance::internal(), command).await?;
    let Some((issued, key)) = made else {
        if let (Some(kept), None) = (kept, app.cluster.tls.shown()) {
            app.cluster.tls.show(kept);
        }
        return Ok(());
    };
    let chain = chain(&view.state, &issued);
    let pem = pki::pem::chain_pem(chain.iter().map(|der| der.as_ref()));
    let failed = |error: &dyn std::fmt::Display| {
        Failure::internal("the replica's certificate could not be kept", error)
    };
    local::keep(&app.cluster.dir, &app.ca.keys.kek(), &pem, &key).map_err(|error| failed(&error))?;
    let certified = local::certified(chain, &key).ok_or_else(|| failed(&"its key does not fit"))?;
    app.cluster.tls.show(certified);
    tracing::info!(serial = %issued.serial, not_after = %issued.not_after, domain = %domain.name, "replica certificate issued");
    Ok(())
}

/// `HOST:PORT` where others reach this replica.
fn own_address(app: &App) -> Option<String> {
    Some(peer_name(&app.config, *app.cluster.listener.get()?))
}

/// The same of one that listens there.
pub fn peer_name(config: &ControlPlaneConfig, bound: SocketAddr) -> String {
    format!("{}:{}", config.host(bound), bound.port())
}

/// Whether the kept certificate is the one on record, not yet due, and of the issuer that signs now.
fn is_current(state: &State, kept: &CertifiedKey, at: Timestamp, id: ReplicaId) -> bool {
    let Some(facts) = kept.cert.first().and_then(|leaf| pki::describe::facts(leaf).ok()) else {
        return false;
    };
    let on_record =
        state.replicas.get(&id).is_some_and(|record| record.serial.as_ref() == Some(&facts.serial));
    let issuer = state.certificates.get(&facts.serial).map(|held| &held.issuer);
    let signs = state.server_issuer().is_some_and(|active| issuer == Some(&active.id));
    let due = facts.not_before.plus(Span::from_millis(LIFETIME.millis() / 3 * 2));
    on_record && signs && is_settled(state, id) && state.is_good(&facts.serial) && at < due
}

/// Whether no certificate of an issuer of before is left to this replica. The one before the current one stays good, in case the
/// replica stops before it has stored its successor, and would hold up the retirement of its issuer: once the successor is stored,
/// another renewal ends it.
pub fn is_settled(state: &State, id: ReplicaId) -> bool {
    let Some(record) = state.replicas.get(&id) else { return true };
    let issuer_of = |serial| state.certificates.get(serial).map(|held| &held.issuer);
    let before = record.previous.as_ref().filter(|serial| state.is_good(serial)).and_then(issuer_of);
    before.is_none_or(|before| record.serial.as_ref().and_then(issuer_of) == Some(before))
}

type MadeCertificate = (Issued, zeroize::Zeroizing<Vec<u8>>);

fn make(app: &App, state: &State, at: Timestamp) -> Result<MadeCertificate, Failure> {
    let domain = state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let issuer = app.ca.keys.server_issuer(state)?;
    let id = app.journal.replica();
    let serial = chance::serial(at)?;
    let made = hsm::signed(app, &issuer, "the replica's certificate could not be signed", || {
        replica_cert::make_replica(&issuer, &domain.name, id, serial, at)
    })?;
    let subject = SpiffeId::replica(&domain.name, id);
    Ok((issued(made.signed, subject, &made.spki, issuer.id(), at), made.key_pkcs8))
}

/// As it goes on record.
pub fn issued(
    signed: pki::leaf::Signed,
    subject: SpiffeId,
    spki: &[u8],
    issuer: lifecycle::names::IssuerId,
    at: Timestamp,
) -> Issued {
    let signed_at = at.whole_second();
    Issued {
        serial: signed.serial,
        fingerprint: signed.fingerprint,
        subject,
        key: pki::digest::key_hash(spki),
        issuer,
        signed_at,
        renew_at: signed_at.plus(Span::from_millis(LIFETIME.millis() / 3 * 2)),
        not_after: signed.not_after,
        der: signed.der,
        external: None,
    }
}

/// A certificate with the issuer above it, and the cross-certificates of a new root.
pub fn chain(state: &State, issued: &Issued) -> Vec<CertificateDer<'static>> {
    let issuer = state.issuers.get(&issued.issuer).map(|issuer| issuer.certificate.clone());
    let cross = state.cross_certificates(state.at).map(<[u8]>::to_vec);
    let above = issuer.into_iter().chain(cross).map(CertificateDer::from);
    std::iter::once(CertificateDer::from(issued.der.clone())).chain(above).collect()
}

/// What the registry trusts is what this replica trusts.
pub fn follow_trust(app: &App) {
    trust(&app.cluster.tls, &app.view().state);
}

/// The same of a registry that knows its domain.
pub fn trust(tls: &PeerTls, state: &State) {
    if let Some(domain) = &state.domain {
        let roots = state.server_trust().map(|root| CertificateDer::from(root.to_vec())).collect();
        let signs = |issuer: &&Issuer| issuer.issues_for().signs_servers();
        let issuers = state.issuers.values().filter(signs);
        let issuers =
            issuers.map(|issuer| (issuer.id.clone(), CertificateDer::from(issuer.certificate.clone())));
        tls.trust(domain.name.clone(), roots, issuers.collect());
    }
}
