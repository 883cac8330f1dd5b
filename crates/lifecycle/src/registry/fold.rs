//! Events change the state. Nothing else does.

use super::{
    Account, Addresses, Alert, Certificate, CertificateStatus, Domain, Envelope, Event, Found, FoundIssuer,
    Issued, Issuer, IssuerState, Node, NodeEnrolled, NodeImported, NodeRegistered, NodeState, Owner,
    Recovery, Refused, Rewrap, Root, Rotation, Sighting, State, Tenant, Token, TokenState, overlay,
    recovery::fold as recovery, remember_start,
};
use crate::names::{IssuerId, Label, NodeId, OperatorName, Serial, Span, TenantId, TokenId};
use std::sync::Arc;

pub(super) fn fold(state: &mut State, event: &Event, envelope: &Envelope) {
    fold_alone(state, event, envelope);
    if let Some(node) = joins_or_leaves(event) {
        overlay::settle(state, node);
    }
}

/// The node that may have become a peer by this, or ceased to be one.
fn joins_or_leaves(event: &Event) -> Option<&NodeId> {
    match event {
        Event::NodeEnrolled(enrolled) => Some(&enrolled.node),
        Event::RecoveryIssued(recovered) => Some(&recovered.node),
        Event::NodeActive { node }
        | Event::NodeQuarantined { node, .. }
        | Event::NodeReleased { node }
        | Event::NodeDecommissioned { node, .. }
        | Event::NodeRevoked { node, .. }
        | Event::NodeReinstated { node, .. } => Some(node),
        _ => None,
    }
}

fn fold_alone(state: &mut State, event: &Event, envelope: &Envelope) {
    let at = state.at;
    match event {
        Event::DomainFounded(found) => domain_founded(state, found, envelope),
        Event::TokenCreated(token) => token_created(state, token),
        Event::TokenRevoked { token } => set_token(state, *token, TokenState::Revoked { at }),
        Event::TokenExpired { token } => set_token(state, *token, TokenState::Expired),
        Event::TokenBurned { token, .. } => set_token(state, *token, TokenState::Used { at, node: None }),
        Event::NodeEnrolled(enrolled) => node_enrolled(state, enrolled),
        // What it says of the certificate is an event of its own.
        Event::NodeConfirmed { .. } => {}
        Event::NodeActive { node } => node_active(state, node),
        Event::AlertRaised { alert, kind, node, detail } => {
            let raised = Alert {
                id: *alert,
                kind: *kind,
                node: node.clone(),
                since: at,
                count: 1,
                detail: detail.clone(),
                acknowledged: false,
                again: None,
            };
            alert_raised(state, raised);
        }
        Event::AlertCleared { alert, .. } => drop(state.alerts.remove(alert)),
        Event::AlertAcknowledged { alert, .. } => {
            if let Some(alert) = state.alerts.get_mut(alert) {
                alert.acknowledged = true;
            }
        }
        Event::NodeInactive { node, .. } => change(state, node, |node| {
            node.state = NodeState::Inactive;
            node.state_since = at;
        }),
        Event::NodeSeen(sighting) => node_seen(state, sighting),
        Event::CertificateSeen { serial } => certificate_seen(state, serial),
        Event::CertificateRenewed { node, certificate, agent_version, denied, .. } => {
            certificate_renewed(state, node, certificate, agent_version.as_ref(), denied);
        }
        Event::CertificateSuperseded { serial, until, .. } => {
            if let Some(old) = state.certificates.get_mut(serial).map(Arc::make_mut) {
                old.status = CertificateStatus::Superseded { until: *until };
            }
        }
        Event::RotationOrdered { node, order } => {
            change(state, node, |node| node.rotation = Some(Rotation { order: *order, at }));
        }
        Event::RotationExpired { node, .. } => change(state, node, |node| node.rotation = None),
        Event::NodeDraining { node, by } => change(state, node, |node| {
            (node.draining, node.drain_by) = (true, *by);
            node.drain_within = by.map(|by| by.since(at));
        }),
        Event::NodeUndrained { node } => change(state, node, undrained),
        Event::NodeQuarantined { node, reason } => change(state, node, |node| {
            node.quarantined = true;
            node.quarantine = Some(Account::of(envelope, at, reason));
            node.recovery.repairing = false;
        }),
        Event::NodeReleased { node } => {
            change(state, node, released);
            recovery::changed(state, node, Recovery::release);
        }
        Event::NodeDecommissioned { node, denied } => {
            node_gone(state, node, denied, NodeState::Decommissioned);
            change(state, node, |node| node.ended = Some(Account::of(envelope, at, "decommissioned")));
        }
        Event::NodeRevoked { node, denied, reason, .. } => {
            node_gone(state, node, denied, NodeState::Revoked);
            change(state, node, |node| node.ended = Some(Account::of(envelope, at, reason)));
        }
        Event::NodeReinstated { node, generation } => change(state, node, |node| {
            node.state = NodeState::Registered;
            node.state_since = at;
            node.generation = *generation;
            node.ended = None;
            undrained(node);
            released(node);
            forget_streams(node);
            node.recovery.repairing = false;
        }),
        Event::RollPrepared(roll) => state.roll = Some(roll.clone()),
        Event::RollCertified(issuer) => {
            state.roll = None;
            state.issuers.insert(issuer.id.clone(), issuer_of(issuer, IssuerState::Prepared));
            state.bundle_version += 1;
        }
        Event::IssuerActivated { activate, before } => {
            if let Some(old) = before.as_ref().and_then(|id| state.issuers.get_mut(id)) {
                old.state = IssuerState::Retiring;
            }
            if let Some(new) = state.issuers.get_mut(&activate.issuer) {
                new.state = IssuerState::Active;
            }
            if let Some(signer) = &mut state.audit_signer {
                signer.certificate = activate.audit_certificate.clone();
            }
        }
        Event::IssuerRetired { issuer } => issuer_gone(state, issuer, IssuerState::Retired),
        Event::IssuerRevoked { issuer, .. } => {
            issuer_gone(state, issuer, IssuerState::Revoked);
            state.denials += 1;
        }
        Event::Rewrapped(rewrap) => rewrapped(state, rewrap),
        Event::TenantCreated(tenant) => {
            state.tenants.insert(tenant.name.clone(), tenant.clone());
        }
        Event::OperatorAdded { operator, certificate } => {
            if let Some(issued) = certificate {
                record_operator(state, &operator.name, issued);
            }
            state.operators.insert(operator.name.clone(), operator.clone());
        }
        Event::OperatorRemoved { name } => {
            let gone = state.operators.remove(name);
            for serial in gone.iter().flat_map(|operator| operator.serial.iter().chain(&operator.renewed)) {
                deny(state, serial);
            }
        }
        Event::OperatorRenewed { name, certificate, denied, .. } => {
            record_operator(state, name, certificate);
            if let Some(serial) = denied {
                deny(state, serial);
            }
            if let Some(operator) = state.operators.get_mut(name) {
                operator.replaced.extend(denied.clone());
                operator.renewed = Some(certificate.serial.clone());
            }
        }
        Event::OperatorCertificateReplaced { name, serial, by } => {
            deny(state, serial);
            if let Some(operator) = state.operators.get_mut(name) {
                operator.replaced.push(serial.clone());
                operator.serial = Some(by.clone());
                operator.renewed = None;
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
        Event::EnrollmentRefused(refusals) => {
            if let Some(node) = refusals.recovery.as_ref().and_then(|recovery| recovery.node.as_ref()) {
                let refused = Refused { at, reason: refusals.reason.clone() };
                change(state, node, |node| node.recovery.refused = Some(refused));
            }
        }
        Event::AuditGapFound(_) => {}
        Event::Tidied { tokens, certificates, keys, issuers } => {
            for issuer in issuers {
                state.issuers.remove(issuer);
            }
            for token in tokens.iter().filter_map(|id| state.tokens.remove(id)) {
                state.token_by_hash.remove(&token.hash);
            }
            for serial in certificates {
                forget_certificate(state, serial);
            }
            for key in keys.iter().filter_map(|id| state.operator_keys.remove(id)) {
                state.operator_key_by_hash.remove(&key.hash);
            }
            forget_idle_keys(state);
        }
        Event::NodeRegistered(registered) => node_registered(state, registered),
        Event::NodeDescribed { node, name, labels } => change(state, node, |node| {
            (node.name, node.labels) = (name.clone(), labels.clone());
        }),
        Event::NodeImported(imported) => node_imported(state, imported),
        Event::RecoveryTokenRotated { node, token } => {
            recovery::minted(state, node, token, Recovery::rotate);
        }
        Event::RecoveryTokenKept { node, token } => {
            recovery::changed(state, node, |recovery| recovery.keep(*token));
        }
        // What it leads to is an event of its own.
        Event::RecoveryRequested { .. } => {}
        Event::RecoveryIssued(recovered) => recovery::issued(state, recovered),
        Event::RecoveryResolved { node, .. } => {
            recovery::changed(state, node, |recovery| recovery.underway = false);
        }
        Event::RepairBundleIssued { node, token, ends_quarantine, .. } => {
            recovery::minted(state, node, token, Recovery::repair);
            recovery::changed(state, node, |recovery| recovery.repairing = *ends_quarantine);
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
    state.issuers.insert(issuer.id.clone(), issuer_of(issuer, IssuerState::Active));
    state.audit_signer = Some(super::AuditSigner {
        certificate: found.audit_certificate.clone(),
        sealed_key: found.audit_sealed_key.clone(),
    });
    let name = TenantId::default_tenant();
    let tenant = Tenant { name: name.clone(), created_by: envelope.actor.to_string(), created_at: at };
    state.tenants.insert(name, tenant);
}

fn issuer_of(issuer: &FoundIssuer, state: IssuerState) -> Issuer {
    Issuer {
        id: issuer.id.clone(),
        kind: issuer.kind,
        state,
        subject: issuer.subject.clone(),
        certificate: issuer.certificate.clone(),
        fingerprint: issuer.fingerprint,
        not_after: issuer.not_after,
        sealed_key: issuer.sealed_key.clone(),
        revoked_at: None,
    }
}

fn issuer_gone(state: &mut State, id: &IssuerId, next: IssuerState) {
    let at = state.at;
    if let Some(issuer) = state.issuers.get_mut(id) {
        issuer.state = next;
        issuer.revoked_at = Some(at).filter(|_| next == IssuerState::Revoked);
    }
    forget_idle_keys(state);
    state.bundle_version += 1;
}

/// A retired or revoked issuer signs one thing still, the list of what was revoked. Once everything on that
/// list has expired its key is not kept.
fn forget_idle_keys(state: &mut State) {
    let over = |issuer: &&Issuer| !issuer.state.is_trusted() && !issuer.sealed_key.is_empty();
    let idle: Vec<IssuerId> = state.issuers.values().filter(over).map(|issuer| issuer.id.clone()).collect();
    for id in idle.into_iter().filter(|id| !state.issuer_is_named(id)).collect::<Vec<_>>() {
        if let Some(issuer) = state.issuers.get_mut(&id) {
            issuer.sealed_key = Vec::new();
        }
    }
}

fn rewrapped(state: &mut State, rewrap: &Rewrap) {
    for (id, sealed) in &rewrap.issuers {
        if let Some(issuer) = state.issuers.get_mut(id) {
            issuer.sealed_key = sealed.to_vec();
        }
    }
    if let Some(signer) = &mut state.audit_signer {
        signer.sealed_key = rewrap.audit.clone();
    }
    if let (Some(roll), Some(sealed)) = (&mut state.roll, &rewrap.roll) {
        roll.sealed_key = sealed.to_vec();
    }
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
    let issued = &enrolled.certificate;
    record(state, &enrolled.node, issued);

    let known = state.nodes.get(&enrolled.node);
    let blank =
        || Node::registered(enrolled.node.clone(), enrolled.tenant.clone(), enrolled.profile.clone(), at);
    let mut node = known.map_or_else(blank, |node| node.as_ref().clone());
    node.state = NodeState::Enrolled;
    node.state_since = at;
    node.profile = enrolled.profile.clone();
    node.enrolled_at = Some(at);
    node.token = Some(enrolled.token);
    node.idempotency = enrolled.idempotency;
    node.underlay = enrolled.underlay;
    node.hardware = enrolled.hardware.clone().or(node.hardware);
    node.hostname = enrolled.hostname.clone().or(node.hostname);
    node.agent_version = enrolled.agent_version.clone().or(node.agent_version);
    node.name = enrolled.name.clone().or(node.name);
    node.serials.push(issued.serial.clone());
    node.bundle = state.bundle_version;
    node.overlay_seen = state.overlay_revision(&enrolled.tenant);
    node.rotation = None;
    forget_streams(&mut node);
    // What the machine before it had is not this one's: with its key it would be a peer again. A key that was in
    // use stays taken, so that nobody else comes with it.
    if let Some(old) = std::mem::replace(&mut node.wireguard, enrolled.wireguard)
        && !node.ever_active
    {
        state.wireguard_keys.remove(&old.key);
    }
    if let Some(wireguard) = enrolled.wireguard {
        state.wireguard_keys.insert(wireguard.key, node.id.clone());
    }
    if node.address != enrolled.address {
        if let Some(old) = node.address {
            state.addresses.release(old, at);
        }
        if let Some(address) = enrolled.address {
            state.addresses.hold(address, node.id.clone());
        }
        node.address = enrolled.address;
    }
    state.nodes.insert(node.id.clone(), Arc::new(node));
    // A new life has its own.
    recovery::changed(state, &enrolled.node, Recovery::revoke);

    let (began, count) = state.minute;
    let same_minute = at.since(began) < Span::from_minutes(1);
    state.minute = if same_minute { (began, count.saturating_add(1)) } else { (at, 1) };
}

/// Its holder has it, so there is nothing to send again; whether it has the trust bundle nobody knows.
fn node_imported(state: &mut State, imported: &NodeImported) {
    let (at, import) = (state.at, &imported.import);
    let mut node =
        Node::registered(import.node.clone(), imported.tenant.clone(), imported.profile.clone(), at);
    (node.state, node.state_since, node.enrolled_at) = (NodeState::Enrolled, at, Some(at));
    node.serials.push(import.serial.clone());
    state.nodes.insert(node.id.clone(), Arc::new(node));
    let certificate = Certificate {
        owner: Owner::Node(import.node.clone()),
        status: CertificateStatus::Live,
        fingerprint: import.fingerprint,
        key: import.key,
        issuer: import.issuer.clone(),
        issued_at: at,
        not_after: imported.not_after,
        renew_at: imported.renew_at,
        der: None,
        denied_at: None,
        imported: true,
    };
    state.certificates.insert(import.serial.clone(), Arc::new(certificate));
    state.certified_keys.insert(import.key, import.serial.clone());
}

fn node_registered(state: &mut State, registered: &NodeRegistered) {
    let (id, tenant) = (registered.node.clone(), registered.tenant.clone());
    let mut node = Node::registered(id.clone(), tenant, registered.profile.clone(), state.at);
    node.name = registered.name.clone();
    node.hostname = registered.hostname.clone();
    node.plane = registered.plane.clone();
    state.nodes.insert(id.clone(), Arc::new(node));
    let token = registered.token.and_then(|token| state.tokens.get_mut(&token));
    if let Some(token) = token.map(Arc::make_mut) {
        token.node = Some(id);
    }
}

pub(super) fn record(state: &mut State, node: &NodeId, issued: &Issued) {
    let certificate = Certificate::of(Owner::Node(node.clone()), issued, state.at);
    state.certificates.insert(issued.serial.clone(), Arc::new(certificate));
    state.certified_keys.insert(issued.key, issued.serial.clone());
}

/// Its bytes are not kept: a lost answer is followed by another renewal.
fn record_operator(state: &mut State, name: &OperatorName, issued: &Issued) {
    let mut record = Certificate::of(Owner::Operator(name.clone()), issued, state.at);
    record.der = None;
    state.certificates.insert(issued.serial.clone(), Arc::new(record));
}

pub(super) fn change(state: &mut State, id: &NodeId, how: impl FnOnce(&mut Node)) {
    if let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) {
        how(node);
    }
}

fn undrained(node: &mut Node) {
    (node.draining, node.drain_by, node.drain_within) = (false, None, None);
}

fn released(node: &mut Node) {
    (node.quarantined, node.quarantine) = (false, None);
}

/// A new life has had no live stream yet, so its silence means nothing, no start of its agent is old, and nothing was
/// said on it.
fn forget_streams(node: &mut Node) {
    node.streamed = false;
    node.instances.clear();
    node.report = None;
}

fn node_seen(state: &mut State, sighting: &Sighting) {
    change(state, &sighting.node, |node| {
        node.last_seen = node.last_seen.max(Some(sighting.seen));
        node.bundle = node.bundle.max(sighting.bundle.unwrap_or(0));
        if let Some(version) = &sighting.agent_version {
            node.agent_version = Some(version.clone());
        }
        if let Some(report) = &sighting.report
            && node.report.as_ref().is_none_or(|known| known.at <= report.at)
        {
            node.report = Some(report.clone());
        }
        if let Some(instance) = &sighting.instance {
            node.streamed = true;
            remember_start(&mut node.instances, instance);
        }
    });
}

fn certificate_renewed(
    state: &mut State,
    id: &NodeId,
    issued: &Issued,
    agent_version: Option<&Label>,
    denied: &[Serial],
) {
    for serial in denied {
        deny(state, serial);
    }
    record(state, id, issued);
    let bundle = state.bundle_version;
    change(state, id, |node| {
        node.serials.push(issued.serial.clone());
        node.rotation = None;
        // The answer holds it.
        node.bundle = bundle;
        if let Some(version) = agent_version {
            node.agent_version = Some(version.clone());
        }
    });
}

/// A tombstone keeps its WireGuard key if it was ever active; its address rests.
fn node_gone(state: &mut State, id: &NodeId, denied: &[Serial], next: NodeState) {
    let at = state.at;
    for serial in denied {
        deny(state, serial);
    }
    let Some(node) = state.nodes.get_mut(id).map(Arc::make_mut) else { return };
    node.state = next;
    node.state_since = at;
    node.rotation = None;
    let address = node.address.take();
    let unused = if node.ever_active { None } else { node.wireguard.take() };
    if let Some(address) = address {
        state.addresses.release(address, at);
    }
    if let Some(wireguard) = unused {
        state.wireguard_keys.remove(&wireguard.key);
    }
    recovery::changed(state, id, Recovery::revoke);
    state.denials += 1;
}

/// The holder has what was sent: from now on only serial, fingerprint and dates are kept.
fn certificate_seen(state: &mut State, serial: &Serial) {
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
            alert.again = Some(raised.since);
        }
        None => drop(state.alerts.insert(raised.id, raised)),
    }
}

pub(super) fn deny(state: &mut State, serial: &Serial) {
    let at = state.at;
    if let Some(certificate) = state.certificates.get_mut(serial).map(Arc::make_mut) {
        certificate.status = CertificateStatus::Denied;
        certificate.der = None;
        certificate.denied_at.get_or_insert(at);
        state.denials += 1;
    }
}

fn forget_certificate(state: &mut State, serial: &Serial) {
    let Some(gone) = state.certificates.remove(serial) else { return };
    if state.certified_keys.get(&gone.key) == Some(serial) {
        state.certified_keys.remove(&gone.key);
    }
    match &gone.owner {
        Owner::Node(id) => change(state, id, |node| node.serials.retain(|known| known != serial)),
        Owner::Operator(name) => {
            if let Some(operator) = state.operators.get_mut(name) {
                operator.replaced.retain(|known| known != serial);
                operator.renewed.take_if(|known| known == serial);
            }
        }
    }
}
