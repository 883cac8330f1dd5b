//! Every connection with a client certificate, so that it can be cut the moment the certificate is refused: a connection is registered first and checked then, so that no revocation falls in between.

use crate::cluster;
use crate::process::app::App;
use crate::process::views::Views;
use imbl::ordmap::DiffItem;
use lifecycle::names::{Fingerprint, NodeId, Serial, Timestamp};
use lifecycle::registry::{Owner, State};
use pki::svid::VerifiedSvid;
use pki::verify::PeerCertificate;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often connections are looked at for reasons of time alone: a certificate whose successor took over.
const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Connections {
    open: Mutex<HashMap<Fingerprint, OfCertificate>>,
    next: AtomicU64,
}

/// The open connections of one certificate. By its fingerprint, because another one may bear its serial.
struct OfCertificate {
    serial: Serial,
    /// Of an SVID: it is judged by its node and by its trust domain.
    svid: Option<VerifiedSvid>,
    open: Vec<OpenConnection>,
}

struct OpenConnection {
    id: u64,
    cut: CancellationToken,
}

/// A registered connection; dropping it takes it off the list.
pub struct RegisteredConnection {
    app: Arc<App>,
    certificate: Fingerprint,
    id: u64,
    pub cut: CancellationToken,
}

impl Drop for RegisteredConnection {
    fn drop(&mut self) {
        let mut open = self.app.edge.connections.open();
        if let Some(of_certificate) = open.get_mut(&self.certificate) {
            of_certificate.open.retain(|open| open.id != self.id);
            if of_certificate.open.is_empty() {
                open.remove(&self.certificate);
            }
        }
    }
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<Fingerprint, OfCertificate>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the connections whose certificate is refused now. One on no record may only have not arrived yet.
    fn sweep(&self, app: &App, state: &State, now: Timestamp) {
        for (fingerprint, of_certificate) in self.open().iter() {
            let refused = match &of_certificate.svid {
                Some(svid) => svid_is_refused(app, state, svid, now),
                None => state.presented(&of_certificate.serial, fingerprint, now).is_refused(),
            };
            if refused {
                of_certificate.open.iter().for_each(|open| open.cut.cancel());
            }
        }
    }
}

impl Connections {
    /// Cuts the connections of nodes, whatever their certificates.
    fn cut_nodes(&self, state: &State) {
        for of_certificate in self.open().values() {
            // The serial of an SVID is not ours: an operator's certificate may have the same.
            let ours = of_certificate.svid.is_none().then_some(&of_certificate.serial);
            let owner = ours.and_then(|serial| state.certificates.get(serial)).map(|held| &held.owner);
            if !matches!(owner, Some(Owner::Operator(_))) {
                of_certificate.open.iter().for_each(|open| open.cut.cancel());
            }
        }
    }

    /// Cuts the connections whose certificate was denied between two states. Only records that changed are looked at; an issuer
    /// that is revoked or retired ends leaves without a change to their records, so then it is all of them.
    fn cut_denied(&self, app: &App, before: &State, now: &State, at: Timestamp) {
        if before.issuers.keys().any(|id| before.trusts_issuer(id) && !now.trusts_issuer(id)) {
            return self.sweep(app, now, at);
        }
        let open = self.open();
        for item in before.certificates.diff(&now.certificates) {
            let (DiffItem::Add(serial, held) | DiffItem::Update { new: (serial, held), .. }) = item else {
                continue;
            };
            if let Some(of_certificate) = open.get(&held.fingerprint)
                && now.presented(serial, &held.fingerprint, at).is_refused()
            {
                of_certificate.open.iter().for_each(|open| open.cut.cancel());
            }
        }
    }
}

impl Connections {
    /// Cuts the connections by SVID of nodes that were revoked or decommissioned between two states. Only records that changed are
    /// looked at.
    fn cut_gone(&self, app: &App, before: &State, now: &State) {
        if app.ca.spire.is_empty() {
            return;
        }
        let gone: BTreeSet<&NodeId> = before
            .nodes
            .diff(&now.nodes)
            .filter_map(|item| match item {
                DiffItem::Update { new: (id, node), .. } if node.state.is_gone() => Some(id),
                DiffItem::Remove(id, _) => Some(id),
                DiffItem::Add(..) | DiffItem::Update { .. } => None,
            })
            .collect();
        if gone.is_empty() {
            return;
        }
        for of_certificate in self.open().values() {
            let node = of_certificate.svid.as_ref().and_then(|svid| app.ca.spire.node(&svid.id));
            if node.is_some_and(|node| gone.contains(&node)) {
                of_certificate.open.iter().for_each(|open| open.cut.cancel());
            }
        }
    }
}

/// Whether the node of an SVID is gone, or its CA has ended or is no longer in the bundle. One that is not registered is told so when it asks.
pub fn svid_is_refused(app: &App, state: &State, svid: &VerifiedSvid, at: Timestamp) -> bool {
    let node = app.ca.spire.node(&svid.id);
    let node = node.and_then(|id| state.nodes.get(&id));
    node.is_some_and(|node| node.state.is_gone()) || !app.ca.spire.trusts(svid, at)
}

pub fn register(app: &Arc<App>, certificate: &PeerCertificate) -> RegisteredConnection {
    let id = app.edge.connections.next.fetch_add(1, Ordering::Relaxed);
    let cut = CancellationToken::new();
    let mut open = app.edge.connections.open();
    let of_certificate = open.entry(certificate.fingerprint).or_insert_with(|| OfCertificate {
        serial: certificate.serial.clone(),
        svid: certificate.svid.clone(),
        open: Vec::new(),
    });
    of_certificate.open.push(OpenConnection { id, cut: cut.clone() });
    RegisteredConnection { app: app.clone(), certificate: certificate.fingerprint, id, cut }
}

/// Looks at the open connections whenever something was denied, and at all of them now and then, until the process stops.
pub async fn watch(app: Arc<App>) {
    let mut views = Views::new(&app);
    // Outside of the loop: one that began anew with every commit would never end on a busy control plane.
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            next = views.next() => {
                let Some((before, now)) = next else { return };
                app.edge.connections.cut_gone(&app, &before.state, &now.state);
                if before.state.denials != now.state.denials {
                    app.edge.connections.cut_denied(&app, &before.state, &now.state, app.now());
                }
            }
            _ = ticks.tick() => {
                app.edge.connections.sweep(&app, &views.seen().state, app.now());
                // Whoever was revoked since is not known here: nodes go to another replica.
                if cluster::is_stale(&app) {
                    app.edge.connections.cut_nodes(&views.seen().state);
                }
            }
        }
    }
}
