//! The rules once more, in plain words: a second opinion on every step.

use lifecycle::names::{
    IdempotencyHash, KeyHash, KeyId, NodeId, OperatorName, RequestId, SecretHash, Serial, TenantId,
    Timestamp, TokenId, WireguardKey,
};
use lifecycle::registry::{
    Actor, Answer, Applied, Command, Enroll, Envelope, Event, NodeEnrolled, Outcome, Role, State, Tenants,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Model {
    answers: BTreeMap<RequestId, Answer>,
    tokens: BTreeMap<SecretHash, Token>,
    operators: BTreeMap<OperatorName, Powers>,
    keys: BTreeMap<KeyId, Powers>,
    /// Serials ever recorded.
    serials: BTreeSet<Serial>,
    nodes: BTreeMap<NodeId, Node>,
}

struct Token {
    id: TokenId,
    tenant: TenantId,
    pin: Option<NodeId>,
    expires_at: Timestamp,
    ended: bool,
    grant: Option<Grant>,
}

/// What a token was redeemed for.
struct Grant {
    node: NodeId,
    serial: Serial,
    key: KeyHash,
    idempotency: Option<IdempotencyHash>,
}

struct Node {
    tenant: TenantId,
    serials: Vec<Serial>,
    current_ends: Timestamp,
    confirmed: bool,
    wireguard: Option<WireguardKey>,
}

struct Powers {
    role: Role,
    tenants: Tenants,
    /// Only with this certificate, where it is one.
    serial: Option<Serial>,
    ends: Timestamp,
}

impl Model {
    /// Holds a step against the rules; answers with what was special about it.
    pub fn check(
        &mut self,
        before: &State,
        after: &State,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Vec<&'static str> {
        let mut special = Vec::new();
        if let Some(first) = self.answers.get(&envelope.id) {
            assert!(applied.events.is_empty(), "applied twice");
            let too_old =
                applied.answer.as_ref().is_err_and(|rejection| rejection.code() == "request_too_old");
            assert!(too_old || applied.answer == *first, "answered otherwise the second time");
            special.push("the same envelope twice");
            return special;
        }
        self.answers.insert(envelope.id, applied.answer.clone());
        if applied.answer.is_ok() {
            self.check_power(before, after.at, envelope);
        }
        if let Command::Enroll(enroll) = &envelope.command {
            special.extend(self.check_enrollment(before, after, enroll, applied));
        }
        if let Command::Confirm(confirm) = &envelope.command
            && applied.answer.is_ok()
        {
            let Actor::Node { id, serial } = &envelope.actor else { panic!("confirmed by another") };
            let node = &self.nodes[&confirm.node];
            assert_eq!((id, Some(serial)), (&confirm.node, node.serials.last()), "confirmed by another");
            assert!(after.at < node.current_ends, "confirmed with an expired certificate");
            assert!(!before.nodes[id].state.is_gone(), "confirmed after its end");
        }
        for event in &applied.events {
            self.learn(after, event);
        }
        for node in self.nodes.values() {
            let (current, older) = node.serials.split_last().unwrap();
            let accepted =
                |serial: &Serial| after.certificates.contains_key(serial) && !after.is_denied(serial);
            assert!(!older.iter().any(accepted), "an older serial is accepted beside {current}");
        }
        special
    }

    /// Who was granted something had the power to ask for it.
    fn check_power(&self, before: &State, at: Timestamp, envelope: &Envelope) {
        let about = match &envelope.command {
            Command::CreateToken(create) => Some(&create.tenant),
            Command::RevokeToken { token } => before.tokens.get(token).map(|token| &token.tenant),
            _ => None,
        };
        let needs = match &envelope.command {
            Command::Enroll(_) | Command::Confirm(_) => return,
            Command::Found(_) => {
                assert!(matches!(envelope.actor, Actor::Local { .. }));
                return;
            }
            Command::RecordServerCertificate(_)
            | Command::RecordRefusals(_)
            | Command::RecordCheckpoint(_)
            | Command::RecordAuditGap(_)
            | Command::Tidy => {
                assert_eq!(envelope.actor, Actor::Reconciler);
                return;
            }
            Command::CreateToken(_) | Command::RevokeToken { .. } => Role::Operator,
            _ => Role::PlatformAdmin,
        };
        let powers = match &envelope.actor {
            Actor::Local { .. } => return,
            Actor::Operator { name, serial } => {
                self.operators.get(name).filter(|powers| powers.serial.as_ref() == Some(serial))
            }
            Actor::Key { id } => self.keys.get(id),
            _ => None,
        };
        let powers = powers.unwrap_or_else(|| panic!("{:?} has no power at all", envelope.actor));
        assert!(at < powers.ends, "power that has ended");
        assert!(powers.role >= needs, "power of too low a role");
        let within = match about {
            Some(tenant) => powers.tenants.include(tenant),
            None => powers.tenants == Tenants::All,
        };
        assert!(within, "power over other tenants");
    }

    fn check_enrollment(
        &mut self,
        before: &State,
        after: &State,
        enroll: &Enroll,
        applied: &Applied,
    ) -> Option<&'static str> {
        match (&applied.answer, applied.events.as_slice()) {
            (Ok(Outcome::Enrolled { node, serial, replayed: true }), []) => {
                let token = &self.tokens[&enroll.token];
                let grant = token.grant.as_ref().expect("a repeat of what was granted");
                assert_eq!((node, serial, enroll.key), (&grant.node, &grant.serial, grant.key));
                assert!(enroll.idempotency.is_some() && enroll.idempotency == grant.idempotency);
                assert!(after.at < token.expires_at, "repeated after the token's end");
                let holder = &self.nodes[node];
                assert_eq!((holder.serials.last(), holder.confirmed), (Some(serial), false));
                assert!(after.certificates[serial].der.is_some() && !after.is_denied(serial));
                Some("the same certificate after a lost reply")
            }
            (Ok(Outcome::Enrolled { replayed: false, .. }), [Event::NodeEnrolled(enrolled)]) => {
                self.check_address(before, after.at, enroll, enrolled);
                self.check_grant(after, enroll, enrolled)
            }
            (Err(rejection), [Event::TokenBurned { token, reason }]) => {
                assert_eq!(rejection.code(), *reason);
                let known = &self.tokens[&enroll.token];
                assert!(known.id == *token && !known.ended && after.at < known.expires_at, "not live");
                None
            }
            (Err(rejection), []) => {
                let burning = ["wireguard_key_in_use", "node_revoked"];
                assert!(!burning.contains(&rejection.code()), "refused for good, and the token lives on");
                None
            }
            other => panic!("an enrollment came to {other:?}"),
        }
    }

    fn check_grant(&self, after: &State, enroll: &Enroll, enrolled: &NodeEnrolled) -> Option<&'static str> {
        let token = &self.tokens[&enroll.token];
        assert!(!token.ended, "a token that had ended");
        assert!(after.at < token.expires_at, "a token that had expired");
        assert_eq!((token.id, &token.tenant), (enrolled.token, &enrolled.tenant));
        assert!(!self.serials.contains(&enrolled.certificate.serial), "a serial twice");
        let again = self.nodes.get(&enrolled.node);
        match (&token.pin, again) {
            (Some(pin), again) => {
                assert_eq!(*pin, enrolled.node, "another node than the pin");
                assert!(again.is_none_or(|node| node.tenant == token.tenant), "another tenant's node");
            }
            (None, Some(_)) => panic!("a node again without a pin"),
            (None, None) => {}
        }
        if let Some(wireguard) = enroll.wireguard {
            let mut others = self.nodes.iter().filter(|(id, _)| **id != enrolled.node);
            assert!(others.all(|(_, node)| node.wireguard != Some(wireguard.key)), "a WireGuard key twice");
        }
        let certificate = &enrolled.certificate;
        assert_eq!(certificate.key, enroll.key);
        assert!(certificate.not_after > after.at);
        let longest = after.policy.profiles[&enrolled.profile].lifetime;
        assert!(certificate.not_after <= certificate.signed_at.plus(longest), "lives too long");
        again.map(|_| "enrolled again by a pinned token")
    }

    /// A node keeps its address; a new one is nobody's and has rested; without a WireGuard key there is none.
    fn check_address(&self, before: &State, at: Timestamp, enroll: &Enroll, enrolled: &NodeEnrolled) {
        let kept = before.nodes.get(&enrolled.node).and_then(|node| node.address);
        assert!(kept.is_none() || enrolled.address == kept, "another address than before");
        assert_eq!(enrolled.address.is_some(), kept.is_some() || enroll.wireguard.is_some());
        if let Some(new) = enrolled.address.filter(|_| kept.is_none()) {
            assert!(!before.addresses.held.contains_key(&new), "an address twice");
            let mut resting = before.addresses.resting.keys().filter(|(_, address)| *address == new);
            let rested = |since: &Timestamp| since.plus(before.policy.overlay_cooldown) <= at;
            assert!(resting.all(|(since, _)| rested(since)), "an address that still rests");
        }
    }

    fn learn(&mut self, after: &State, event: &Event) {
        match event {
            Event::TokenCreated(token) => {
                let (id, tenant, pin) = (token.id, token.tenant.clone(), token.node.clone());
                let expires_at = token.expires_at;
                let known = Token { id, tenant, pin, expires_at, ended: false, grant: None };
                let twice = self.tokens.insert(token.hash, known);
                // A value is forgotten a week after its end; until then it cannot be minted again.
                assert!(twice.is_none_or(|old| old.ended), "a value minted twice");
            }
            Event::TokenRevoked { token }
            | Event::TokenExpired { token }
            | Event::TokenBurned { token, .. } => {
                self.end_token(*token, None);
            }
            Event::NodeEnrolled(enrolled) => self.learn_enrolled(enrolled),
            Event::NodeConfirmed { node, serial } => {
                assert_eq!(after.certificates[serial].der, None, "kept whole after its holder has it");
                self.nodes.get_mut(node).expect("a known node").confirmed = true;
            }
            Event::OperatorAdded { operator, certificate } => {
                let serial = certificate.as_ref().map(|certificate| certificate.serial.clone());
                assert!(serial.iter().all(|serial| self.serials.insert(serial.clone())), "a serial twice");
                let ends = certificate.as_ref().map_or(after.at, |certificate| certificate.not_after);
                let (role, tenants) = (operator.role, operator.tenants.clone());
                self.operators.insert(operator.name.clone(), Powers { role, tenants, serial, ends });
            }
            Event::OperatorRemoved { name } => drop(self.operators.remove(name)),
            Event::OperatorKeyCreated(key) => {
                let (role, tenants, ends) = (key.role, key.tenants.clone(), key.expires_at);
                self.keys.insert(key.id, Powers { role, tenants, serial: None, ends });
            }
            Event::OperatorKeyRevoked { key, .. } => drop(self.keys.remove(key)),
            Event::ServerCertificateIssued(certificate) => {
                assert!(self.serials.insert(certificate.serial.clone()), "a serial twice");
            }
            _ => {}
        }
    }

    fn end_token(&mut self, id: TokenId, grant: Option<Grant>) {
        let token = self.tokens.values_mut().find(|token| token.id == id).expect("a known token");
        assert!(!token.ended, "a token ended twice");
        token.ended = true;
        token.grant = grant;
    }

    fn learn_enrolled(&mut self, enrolled: &NodeEnrolled) {
        let (node, certificate) = (enrolled.node.clone(), &enrolled.certificate);
        let serial = certificate.serial.clone();
        let (key, idempotency) = (certificate.key, enrolled.idempotency);
        let grant = Grant { node: node.clone(), serial: serial.clone(), key, idempotency };
        self.end_token(enrolled.token, Some(grant));
        self.serials.insert(serial.clone());
        let known = self.nodes.entry(node).or_insert_with(|| Node {
            tenant: enrolled.tenant.clone(),
            serials: Vec::new(),
            current_ends: certificate.not_after,
            confirmed: false,
            wireguard: None,
        });
        known.serials.push(serial);
        known.current_ends = certificate.not_after;
        known.confirmed = false;
        known.wireguard = enrolled.wireguard.map(|wireguard| wireguard.key).or(known.wireguard);
    }
}
