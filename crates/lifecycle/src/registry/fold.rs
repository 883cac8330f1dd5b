//! Events change the state. Nothing else does.

use super::{
    Addresses, Alert, Certificate, CertificateStatus, Domain, Envelope, Event, Found, Issuer, IssuerState,
    Node, NodeEnrolled, NodeState, Operator, Owner, Root, State, Tenant, Token, TokenState,
};
use crate::names::{NodeId, Serial, Span, TenantId, TokenId};
use std::sync::Arc;

pub(super) fn fold(state: &mut State, event: &Event, envelope: &Envelope) {
    let at = state.at;
    match event {
        Event::DomainFounded(found) => domain_founded(state, found, envelope),
        Event::TokenCreated(token) => token_created(state, token),
        Event::TokenRevoked { token } => set_token(state, *token, TokenState::Revoked { at }),
        Event::TokenExpired { token } => set_token(state, *token, TokenState::Expired),
        Event::TokenBurned { token, .. } => set_token(state, *token, TokenState::Used { at, node: None }),
        Event::NodeEnrolled(enrolled) => node_enrolled(state, enrolled),
        Event::NodeConfirmed { serial, .. } => node_confirmed(state, serial),
        Event::NodeActive { node } => node_active(state, node),
        Event::AlertRaised { alert, kind, node, detail } => {
            let raised = Alert {
                id: *alert,
                kind: (*kind).to_owned(),
                node: node.clone(),
                since: at,
                count: 1,
                detail: detail.clone(),
                acknowledged: false,
            };
            alert_raised(state, raised);
        }
        Event::AlertCleared { alert, .. } => drop(state.alerts.remove(alert)),
        Event::TenantCreated(tenant) => {
            state.tenants.insert(tenant.name.clone(), tenant.clone());
        }
        Event::OperatorAdded { operator, certificate } => {
            if let Some(issued) = certificate {
                let owner = Owner::Operator(operator.name.clone());
                let mut record = Certificate::of(owner, issued, at);
                record.der = None;
                state.certificates.insert(issued.serial.clone(), Arc::new(record));
            }
            state.operators.insert(operator.name.clone(), operator.clone());
        }
        Event::OperatorRemoved { name } => {
            if let Some(serial) = state.operators.remove(name).and_then(|Operator { serial, .. }| serial) {
                deny(state, &serial);
            }
        }
        Event::OperatorKeyCreated(key) => {
            state.operator_key_by_hash.insert(key.hash, key.id);
            state.operator_keys.insert(key.id, key.clone());
        }
        Event::OperatorKeyRevoked { key, .. } => {
            if let Some(key) = state.operator_keys.get_mut(key) {
                key.revoked_at = Some(at);
            }
        }
        // Decided on a copy before: setting it here cannot fail.
        Event::PolicyChanged { key, new, .. } => drop(state.policy.set(key, new)),
        Event::ServerCertificateIssued(certificate) => state.server_certificate = Some(certificate.clone()),
        Event::CheckpointRecorded(checkpoint) => state.checkpoint = checkpoint.seq,
        Event::EnrollmentRefused(_) | Event::AuditGapFound(_) => {}
        Event::Tidied { tokens, certificates, keys } => {
            for token in tokens.iter().filter_map(|id| state.tokens.remove(id)) {
                state.token_by_hash.remove(&token.hash);
            }
            for serial in certificates {
                forget_certificate(state, serial);
            }
            for key in keys.iter().filter_map(|id| state.operator_keys.remove(id)) {
                state.operator_key_by_hash.remove(&key.hash);
            }
        }
    }
}

fn domain_founded(state: &mut State, found: &Found, envelope: &Envelope) {
    let at = state.at;
    state.domain = Some(Domain { name: found.domain.clone(), cluster: found.cluster, founded_at: at });
    state.policy.default_profile = found.default_profile.clone();
    state.addresses = Addresses { prefix: found.overlay_prefix, ..Addresses::default() };
    state.roots = vec![Root {
        certificate: found.root.clone(),
        fingerprint: found.root_fingerprint,
        not_after: found.root_not_after,
    }];
    let issuer = &found.issuer;
    state.issuers.insert(
        issuer.id.clone(),
        Issuer {
            id: issuer.id.clone(),
            kind: issuer.kind,
            state: IssuerState::Active,
            subject: issuer.subject.clone(),
            certificate: issuer.certificate.clone(),
            fingerprint: issuer.fingerprint,
            not_after: issuer.not_after,
            sealed_key: issuer.sealed_key.clone(),
        },
    );
    state.audit_signer = Some(super::AuditSigner {
        certificate: found.audit_certificate.clone(),
        sealed_key: found.audit_sealed_key.clone(),
    });
    let name = TenantId::default_tenant();
    let tenant = Tenant { name: name.clone(), created_by: envelope.actor.to_string(), created_at: at };
    state.tenants.insert(name, tenant);
}

fn token_created(state: &mut State, token: &Token) {
    state.token_by_hash.insert(token.hash, token.id);
    state.tokens.insert(token.id, Arc::new(token.clone()));
}

fn set_token(state: &mut State, id: TokenId, next: TokenState) {
    if let Some(token) = state.tokens.get_mut(&id).map(Arc::make_mut) {
        token.state = next;
    }
}

fn node_enrolled(state: &mut State, enrolled: &NodeEnrolled) {
    let at = state.at;
    set_token(state, enrolled.token, TokenState::Used { at, node: Some(enrolled.node.clone()) });
    for serial in &enrolled.denied {
        deny(state, serial);
    }
    let owner = Owner::Node(enrolled.node.clone());
    let issued = &enrolled.certificate;
    state.certificates.insert(issued.serial.clone(), Arc::new(Certificate::of(owner, issued, at)));

    let known = state.nodes.get(&enrolled.node);
    let mut node = known.map_or_else(|| blank(enrolled), |node| node.as_ref().clone());
    node.state = NodeState::Enrolled;
    node.state_since = at;
    node.profile = enrolled.profile.clone();
    node.enrolled_at = Some(at);
    node.token = Some(enrolled.token);
    node.idempotency = enrolled.idempotency;
    node.underlay = enrolled.underlay.or(node.underlay);
    node.hardware = enrolled.hardware.clone().or(node.hardware);
    node.hostname = enrolled.hostname.clone().or(node.hostname);
    node.agent_version = enrolled.agent_version.clone().or(node.agent_version);
    node.serials.push(issued.serial.clone());
    if let Some(wireguard) = enrolled.wireguard {
        if let Some(old) = node.wireguard.replace(wireguard) {
            state.wireguard_keys.remove(&old.key);
        }
        state.wireguard_keys.insert(wireguard.key, node.id.clone());
    }
    if let Some(address) = enrolled.address.filter(|address| node.address != Some(*address)) {
        state.addresses.hold(address, node.id.clone());
        node.address = Some(address);
    }
    state.nodes.insert(node.id.clone(), Arc::new(node));

    let (began, count) = state.minute;
    let same_minute = at.since(began) < Span::from_minutes(1);
    state.minute = if same_minute { (began, count.saturating_add(1)) } else { (at, 1) };
}

fn blank(enrolled: &NodeEnrolled) -> Node {
    Node {
        id: enrolled.node.clone(),
        tenant: enrolled.tenant.clone(),
        state: NodeState::Registered,
        state_since: crate::names::Timestamp::from_millis(0),
        draining: false,
        quarantined: false,
        vcluster: None,
        profile: enrolled.profile.clone(),
        generation: 1,
        enrolled_at: None,
        last_seen: None,
        ever_active: false,
        token: None,
        idempotency: None,
        wireguard: None,
        address: None,
        underlay: None,
        hardware: None,
        hostname: None,
        agent_version: None,
        serials: Vec::new(),
    }
}

/// The holder has what was sent: from now on only serial, fingerprint and dates are kept.
fn node_confirmed(state: &mut State, serial: &Serial) {
    if let Some(certificate) = state.certificates.get_mut(serial).map(Arc::make_mut) {
        certificate.der = None;
    }
}

fn node_active(state: &mut State, id: &NodeId) {
    let at = state.at;
    if let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) {
        node.state = NodeState::Active;
        node.state_since = at;
        node.last_seen = Some(at);
        node.ever_active = true;
    }
}

/// One open alert per kind and node, counted.
fn alert_raised(state: &mut State, raised: Alert) {
    let open = state.alerts.values().find(|alert| alert.kind == raised.kind && alert.node == raised.node);
    match open.map(|alert| alert.id).and_then(|id| state.alerts.get_mut(&id)) {
        Some(alert) => {
            alert.count = alert.count.saturating_add(1);
            alert.detail = raised.detail;
        }
        None => drop(state.alerts.insert(raised.id, raised)),
    }
}

fn deny(state: &mut State, serial: &Serial) {
    if let Some(certificate) = state.certificates.get_mut(serial).map(Arc::make_mut) {
        certificate.status = CertificateStatus::Denied;
        certificate.der = None;
    }
}

fn forget_certificate(state: &mut State, serial: &Serial) {
    if let Some(Owner::Node(id)) = state.certificates.remove(serial).map(|gone| gone.owner.clone())
        && let Some(node) = state.nodes.get_mut(&id).map(Arc::make_mut)
    {
        node.serials.retain(|known| known != serial);
    }
}
