//! What an enrollment leaves on record.

use super::credential::Attestor;
use super::describe::label_field;
use crate::names::{
    IdempotencyHash, Label, Labels, NodeId, ProfileName, Serial, Span, TenantId, Title, TokenId,
};
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, Hardware, Issued, Node, NodeState, State, TokenState, Underlay, Wireguard};
use std::net::Ipv6Addr;
use std::sync::Arc;

/// A token, or what a machine is known by, became an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEnrolled {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    /// None of a machine that came by its hardware alone.
    pub token: Option<TokenId>,
    pub attestor: Attestor,
    pub idempotency: Option<IdempotencyHash>,
    pub certificate: Issued,
    pub wireguard: Option<Wireguard>,
    pub address: Option<Ipv6Addr>,
    pub underlay: Option<Underlay>,
    /// Whether the request came from that address.
    pub underlay_proven: bool,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    pub name: Option<Title>,
    /// Those of the token; none leaves what the node has.
    pub labels: Labels,
    /// Settled by the API and the profile by which it enrolls.
    pub keeps_recovery_tokens: bool,
    /// Older serials of the node, denied by this enrollment.
    pub denied: Vec<Serial>,
}

impl Happened for NodeEnrolled {
    const NAME: &'static str = "host.enrolled";

    fn fields(&self) -> AuditFields {
        let mut fields = host(
            &self.node,
            [
                ("token_id", AuditField::maybe(self.token)),
                ("enrolled_by", AuditField::text("system:enrollment-service")),
                ("tenant", AuditField::text(&self.tenant)),
                ("profile", AuditField::text(&self.profile)),
                ("underlay_endpoint", AuditField::maybe(self.underlay)),
                (
                    "wireguard_pubkey_fingerprint",
                    AuditField::maybe(self.wireguard.map(|wg| wg.fingerprint.labelled())),
                ),
                ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
                ("cert_serial", AuditField::text(&self.certificate.serial)),
                ("spiffe_id", AuditField::text(&self.certificate.subject)),
                ("not_after", AuditField::text(self.certificate.not_after)),
                ("denied_serials", AuditField::texts(&self.denied)),
            ],
        );
        // Lines of old logs are made again from their commands: what came later is there only if it is said.
        if self.attestor != Attestor::JoinToken {
            fields.push(("attestor", AuditField::text(self.attestor.as_str())));
        }
        if !self.labels.is_empty() {
            fields.push(("labels", label_field(&self.labels)));
        }
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let at = state.at;
        if let Some(token) = self.token {
            state.set_token(token, TokenState::Used { at, node: Some(self.node.clone()) });
        }
        state.deny(&self.denied);
        let issued = &self.certificate;
        state.record_certificate(&self.node, issued);

        let known = state.nodes.get(&self.node);
        let blank = || Node::registered(self.node.clone(), self.tenant.clone(), self.profile.clone(), at);
        let mut node = known.map_or_else(blank, |node| node.as_ref().clone());
        node.state = NodeState::Enrolled;
        node.state_since = at;
        node.profile = self.profile.clone();
        node.enrolled_at = Some(at);
        node.token = self.token;
        node.idempotency = self.idempotency;
        node.underlay = self.underlay;
        node.underlay_proven = self.underlay_proven;
        node.hardware = self.hardware.clone().or(node.hardware);
        node.hostname = self.hostname.clone().or(node.hostname);
        node.agent_version = self.agent_version.clone().or(node.agent_version);
        node.name = self.name.clone().or(node.name);
        if !self.labels.is_empty() {
            node.labels = self.labels.clone();
        }
        node.serials.push(issued.serial.clone());
        (node.bundle, node.stored_bundle) = (state.bundle_version, 0);
        node.overlay_seen = state.overlay_revision(&self.tenant);
        node.enrolled_sequence = state.config_sequence;
        (node.rotation, node.rekey) = (None, None);
        node.forget_streams();
        let by_hardware = self.attestor == Attestor::Hardware;
        node.streamed = by_hardware;
        node.enrolled_from = by_hardware.then_some(envelope.source);
        // What the machine before it had is not this one's: with its key it would be a peer again. A key that was in
        // use stays taken, so that nobody else comes with it.
        if let Some(old) = std::mem::replace(&mut node.wireguard, self.wireguard)
            && !node.ever_active
        {
            state.wireguard_keys.remove(&old.key);
        }
        if let Some(wireguard) = self.wireguard {
            state.take_wireguard_key(wireguard.key, &node.id);
        }
        if node.address != self.address {
            if let Some(old) = node.address {
                state.addresses.release(old, at);
            }
            if let Some(address) = self.address {
                state.addresses.hold(address, node.id.clone());
            }
            node.address = self.address;
        }
        state.nodes.insert(node.id.clone(), Arc::new(node));
        // A new life has its own.
        state.change_recovery(&self.node, |recovery| {
            recovery.revoke();
            recovery.eligible = Some(self.keeps_recovery_tokens);
        });

        let (began, count) = state.minute;
        let same_minute = at.since(began) < Span::from_minutes(1);
        state.minute = if same_minute { (began, count.saturating_add(1)) } else { (at, 1) };
    }
}
