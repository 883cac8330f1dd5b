//! Who is asking: a connection and its headers become an actor. Authoritative, on every request.

use crate::cluster;
use crate::edge::keepalive::Keepalive;
use crate::edge::node_peer::ShownIdentity;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use api::rest::nodes::SvidInUse;
use http::{HeaderMap, header};
use journal::View;
use lifecycle::names::{BootstrapName, KeyId, NodeId, OperatorName, Source, SpiffePath, Timestamp};
use lifecycle::registry::{
    self, Act, Actor, Command, Denial, NodeReach, Owner, Presented, Rejection, Role, Tenants, Verdict,
    may_reach, may_read,
};
use pki::svid::VerifiedSvid;
use pki::verify::PeerCertificate;
use std::sync::Arc;

/// What is known of a connection once it is made.
#[derive(Debug, Clone)]
pub struct ConnectionPeer {
    pub source: Source,
    /// Chain, time and deny list were checked at the handshake.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// On the operator socket: the user at the other end.
    pub local_user: Option<Arc<str>>,
    /// Of an HTTP/2 connection with a certificate: the signs of life of a peer that only listens.
    pub keepalive: Option<Arc<Keepalive>>,
}

/// An actor with a credential, against the registry as it is now.
pub async fn authenticate(app: &App, peer: &ConnectionPeer, headers: &HeaderMap) -> Result<Actor, Failure> {
    if let Some(user) = &peer.local_user {
        return Ok(Actor::Local { user: user.to_string() });
    }
    if let Some(key) = bearer(headers)? {
        let hash = pki::digest::secret_hash(key.as_bytes());
        let view = app.view();
        let known = view.state.operator_key_with_hash(&hash).filter(|key| key.is_good(app.now()));
        return match known {
            Some(key) => Ok(Actor::Key { id: key.id }),
            None => Err(Failure::new(code::UNAUTHENTICATED, "the API key is unknown, expired or revoked")),
        };
    }
    match &peer.certificate {
        Some(certificate) => by_certificate(app, certificate).await,
        None => Err(Failure::new(code::UNAUTHENTICATED, "no client certificate and no API key")),
    }
}

/// The node at the other end, for calls that only a node may make.
pub async fn node(app: &App, peer: &ConnectionPeer) -> Result<(NodeId, ShownIdentity), Failure> {
    let Some(certificate) = &peer.certificate else {
        return Err(Failure::new(code::UNAUTHENTICATED, "this call needs a node's client certificate"));
    };
    match by_certificate(app, certificate).await? {
        Actor::Node { id, serial } => Ok((id, ShownIdentity::Certificate(serial))),
        Actor::Svid { id, spiffe_id, serial } => {
            let not_after = certificate.not_after;
            Ok((id, ShownIdentity::Svid(Arc::new(SvidInUse { spiffe_id, serial, not_after }))))
        }
        _ => Err(Failure::new(code::FORBIDDEN, "this call is for nodes")),
    }
}

/// Notes that a node has spoken: the first request with a certificate confirms it, or lets it take over.
pub async fn contact(
    app: &App,
    origin: &Provenance,
    id: &NodeId,
    shown: &ShownIdentity,
) -> Result<Arc<View>, Failure> {
    let (_, view) = app.commit(shown.actor(id), origin, Command::Contact { node: id.clone() }).await?;
    app.fleet.presence.seen(id, origin.source, app.now());
    app.fleet.presence.showed(id, shown);
    Ok(view)
}

/// Notes the first request with a certificate that a renewal issued: the operator's one before is denied.
pub async fn first_use(app: &App, origin: &Provenance, actor: &Actor) -> Result<(), Failure> {
    let Actor::Operator { name, serial } = actor else { return Ok(()) };
    let unused = |operator: &registry::Operator| operator.renewed.as_ref() == Some(serial);
    if app.view().state.operators.get(name).is_some_and(unused) {
        let command = Command::UseRenewedCertificate { name: name.clone() };
        app.commit(actor.clone(), origin, command).await?;
    }
    Ok(())
}

/// Which limits of the edge a caller is under, and how its failures are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerClass {
    Unauthenticated,
    Node,
    Operator,
}

/// Whose credential it is: what one of them may hold at once is counted by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CredentialHolder {
    Local(String),
    Operator(OperatorName),
    Key(KeyId),
    Node(NodeId),
}

impl CredentialHolder {
    pub fn of(actor: &Actor) -> Option<Self> {
        match actor {
            Actor::Local { user } => Some(Self::Local(user.clone())),
            Actor::Operator { name, .. } => Some(Self::Operator(name.clone())),
            Actor::Key { id } => Some(Self::Key(*id)),
            Actor::Node { id, .. } | Actor::Svid { id, .. } => Some(Self::Node(id.clone())),
            Actor::Stranger | Actor::Reconciler | Actor::Replica { .. } => None,
        }
    }

    pub fn is_platform_admin(&self, app: &App) -> bool {
        let view = app.view();
        let role = match self {
            Self::Local(_) => Some(Role::PlatformAdmin),
            Self::Operator(name) => view.state.operators.get(name).map(|operator| operator.role),
            Self::Key(id) => view.state.operator_keys.get(id).map(|key| key.role),
            Self::Node(_) => None,
        };
        role == Some(Role::PlatformAdmin)
    }

    pub fn class(&self) -> CallerClass {
        match self {
            Self::Local(_) | Self::Operator(_) | Self::Key(_) => CallerClass::Operator,
            Self::Node(_) => CallerClass::Node,
        }
    }
}

/// By credentials that are good now, not by credentials that are merely there.
pub fn credential_holder(app: &App, peer: &ConnectionPeer, headers: &HeaderMap) -> Option<CredentialHolder> {
    if let Some(user) = &peer.local_user {
        return Some(CredentialHolder::Local(user.to_string()));
    }
    let view = app.view();
    if let Ok(Some(key)) = bearer(headers) {
        let hash = pki::digest::secret_hash(key.as_bytes());
        if let Some(key) = view.state.operator_key_with_hash(&hash).filter(|key| key.is_good(app.now())) {
            return Some(CredentialHolder::Key(key.id));
        }
    }
    let certificate = peer.certificate.as_ref()?;
    let known = match &certificate.svid {
        Some(svid) => svid_holder(app, &view, certificate, svid),
        None => on_record(&view, app.now(), certificate),
    };
    CredentialHolder::of(&known.ok()?)
}

fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let malformed = || Failure::new(code::UNAUTHENTICATED, "the Authorization header is not `Bearer KEY`");
    let text = value.to_str().map_err(|_| malformed())?;
    let (scheme, key) = text.split_once(' ').ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") && (1..=256).contains(&key.len()) {
        Ok(Some(key))
    } else {
        Err(malformed())
    }
}

async fn by_certificate(app: &App, certificate: &PeerCertificate) -> Result<Actor, Failure> {
    if app.now() >= certificate.not_after {
        return Err(expired());
    }
    if let Some(svid) = &certificate.svid {
        return by_svid(app, certificate, svid).await;
    }
    if matches!(certificate.spiffe.as_ref().map(|spiffe| &spiffe.path), Some(SpiffePath::Agent { .. }) | None)
    {
        cluster::check_fresh(app)?;
    }
    let view = app.view();
    if view.state.certificates.contains_key(&certificate.serial) {
        return on_record(&view, app.now(), certificate);
    }
    // Signed by us but not on record here: perhaps it has only not arrived yet. Never taken for revoked.
    let unknown =
        || Failure::new(code::UNAVAILABLE, "the certificate is not on record here yet").retry_after(1);
    let view = app.journal.barrier().await.map_err(|_| unknown())?;
    if !view.state.certificates.contains_key(&certificate.serial) {
        return Err(unknown());
    }
    on_record(&view, app.now(), certificate)
}

/// The node that an SVID stands for. It is on no record, so that its node alone decides.
async fn by_svid(app: &App, certificate: &PeerCertificate, svid: &VerifiedSvid) -> Result<Actor, Failure> {
    cluster::check_fresh(app)?;
    let known = svid_holder(app, &app.view(), certificate, svid);
    match known {
        // Perhaps it was registered on another replica a moment ago.
        Err(failure) if failure.code == code::NODE_NOT_REGISTERED => {
            let view = app.journal.barrier().await?;
            svid_holder(app, &view, certificate, svid)
        }
        known => known,
    }
}

fn svid_holder(
    app: &App,
    view: &View,
    certificate: &PeerCertificate,
    svid: &VerifiedSvid,
) -> Result<Actor, Failure> {
    if !app.ca.spire.trusts(svid, app.now()) {
        return Err(Failure::new(
            code::UNAUTHENTICATED,
            "the CA of the SVID has ended or is no longer in its trust bundle",
        ));
    }
    let unmapped = || {
        let message = format!("{} stands for no node: `map` in [[spire]] does not match it", svid.id);
        Failure::new(code::NODE_NOT_REGISTERED, message)
    };
    let id = app.ca.spire.node(&svid.id).ok_or_else(unmapped)?;
    registry::by_svid(&view.state, &id)?;
    Ok(Actor::Svid { id, spiffe_id: svid.id.to_string(), serial: certificate.serial.clone() })
}

/// The name of the bootstrap identity at the other end, for what only hosts without one of their own ask.
pub async fn bootstrap(app: &App, peer: &ConnectionPeer) -> Result<BootstrapName, Failure> {
    let Some(certificate) = &peer.certificate else {
        return Err(Failure::new(
            code::UNAUTHENTICATED,
            "this call needs the certificate of a bootstrap identity",
        ));
    };
    let name = match certificate.spiffe.as_ref().map(|spiffe| &spiffe.path) {
        Some(SpiffePath::Bootstrap { name }) if certificate.svid.is_none() => name,
        _ => return Err(Failure::new(code::FORBIDDEN, "this call is for bootstrap identities")),
    };
    if app.now() >= certificate.not_after {
        return Err(expired());
    }
    cluster::check_fresh(app)?;
    let is_good = |view: &View| {
        let owner = Owner::Bootstrap(name.clone());
        match view.state.presented(&certificate.serial, &certificate.fingerprint, app.now()) {
            Presented::Recorded(held, verdict) => Some(held.owner == owner && verdict.is_accepted()),
            Presented::Unknown => None,
            Presented::Forged => Some(false),
        }
    };
    let known = match is_good(&app.view()) {
        Some(known) => Some(known),
        None => is_good(&*app.journal.barrier().await?),
    };
    match known {
        Some(true) => Ok(name.clone()),
        Some(false) => Err(Failure::new(code::UNAUTHENTICATED, "the bootstrap identity is no longer valid")),
        None => {
            let unknown = Failure::new(code::UNAVAILABLE, "the certificate is not on record here yet");
            Err(unknown.retry_after(1))
        }
    }
}

fn expired() -> Failure {
    Failure::new(code::UNAUTHENTICATED, "the client certificate has expired")
}

fn on_record(view: &View, now: Timestamp, certificate: &PeerCertificate) -> Result<Actor, Failure> {
    let refused = || Failure::new(code::UNAUTHENTICATED, "the client certificate is no longer valid");
    let serial = &certificate.serial;
    let record = view.state.certificates.get(serial).ok_or_else(refused)?;
    if record.fingerprint != certificate.fingerprint {
        return Err(refused());
    }
    match (view.state.verdict(serial, now), &record.owner) {
        (Verdict::Good | Verdict::Grace { .. }, _) => {}
        (Verdict::Denied(Denial::NodeRevoked | Denial::NodeDecommissioned), Owner::Node(node)) => {
            return Err(Rejection::NodeRevoked { node: node.clone() }.into());
        }
        (Verdict::Superseded { .. }, _) => return Err(Rejection::CertificateSuperseded.into()),
        (Verdict::Expired, _) => return Err(expired()),
        (Verdict::Denied(_) | Verdict::Unknown, _) => return Err(refused()),
    }
    let serial = serial.clone();
    // What was made elsewhere is whose the record says, whatever names it holds.
    if let (Owner::Node(id), true) = (&record.owner, record.imported) {
        return Ok(Actor::Node { id: id.clone(), serial });
    }
    match (&record.owner, &certificate.spiffe.as_ref().ok_or_else(refused)?.path) {
        (Owner::Node(id), SpiffePath::Agent { node, .. }) if id == node => {
            Ok(Actor::Node { id: id.clone(), serial })
        }
        (Owner::Operator(known), SpiffePath::Operator { name }) if known == name => {
            Ok(Actor::Operator { name: name.clone(), serial })
        }
        (Owner::Bootstrap(_), _) => Err(Failure::new(
            code::FORBIDDEN,
            "a bootstrap identity may enroll and read a configuration, and nothing else",
        )),
        // A replica's certificate is for the port between replicas, and opens nothing here.
        (Owner::Replica(_), _) | (Owner::Node(_) | Owner::Operator(_), _) => Err(refused()),
    }
}

/// May this actor read this, and of which tenants?
pub fn reader(app: &App, actor: &Actor, act: Act) -> Result<(Arc<View>, Tenants), Failure> {
    let view = app.view();
    let tenants =
        may_read(&view.state, actor, act).map_err(|rejection: Rejection| Failure::from(rejection))?;
    Ok((view, tenants))
}

/// The same for nodes and vClusters, which those narrowed to vClusters may read too.
pub fn node_reader(app: &App, actor: &Actor, act: Act) -> Result<(Arc<View>, NodeReach), Failure> {
    let view = app.view();
    let reach = may_reach(&view.state, actor, act)?;
    Ok((view, reach))
}
