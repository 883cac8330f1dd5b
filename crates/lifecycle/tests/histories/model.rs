//! The rules once more, in plain words: a second opinion on every step.

use super::cluster::Cluster;
use super::issuance::Issuance;
use super::machines::{Machines, is_heard, lives_by_svid};
use lifecycle::names::{
    IdempotencyHash, IssuerId, IssuerUse, KeyHash, KeyId, NodeId, OperatorName, RequestId, SecretHash,
    Serial, SessionId, TenantId, Timestamp, TokenId, VclusterId, WireguardKey,
};
use lifecycle::registry::event::{self, NodeEnrolled, NodeRegistered, RecoveryIssued};
use lifecycle::registry::{
    Actor, AlertKind, Answer, Applied, Attestor, Claim, Command, ConfigTarget, ConfirmStatus, Credential,
    Enroll, Envelope, Event, HardwareIdentity, Issued, IssuerState, NodeState, Outcome, Recover,
    RecoveryToken, Register, Role, State, Tenants, Vclusters,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub struct Model {
    answers: BTreeMap<RequestId, Answer>,
    tokens: BTreeMap<SecretHash, Token>,
    operators: BTreeMap<OperatorName, Powers>,
    /// The same with a certificate that a renewal issued and nobody has used.
    unused: BTreeMap<OperatorName, Powers>,
    keys: BTreeMap<KeyId, Powers>,
    /// Those that are open.
    sessions: BTreeSet<(NodeId, SessionId)>,
    /// Serials ever recorded.
    serials: BTreeSet<Serial>,
    nodes: BTreeMap<NodeId, Node>,
    /// Revoked or retired: what they signed serves nobody.
    ended_issuers: BTreeSet<IssuerId>,
    spares: BTreeMap<SecretHash, Spare>,
    machines: Machines,
    cluster: Cluster,
    issuance: Issuance,
    /// The recovery token that this step brings.
    recovering: Option<SecretHash>,
}

/// A recovery token.
struct Spare {
    node: NodeId,
    ends: Timestamp,
    kept: bool,
    ended: bool,
    used: Option<(Serial, KeyHash)>,
    repair: bool,
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
    /// Everything ever issued to it, oldest first.
    papers: Vec<Paper>,
    gone: bool,
    ever_confirmed: bool,
    wireguard: Option<WireguardKey>,
}

/// A certificate of a node.
struct Paper {
    serial: Serial,
    key: KeyHash,
    issuer: IssuerId,
    ends: Timestamp,
    /// Whether the node has shown it.
    shown: bool,
    denied: bool,
    /// When a successor leaves it no more time.
    yields: Option<Timestamp>,
}

impl Paper {
    fn of(issued: &Issued) -> Self {
        Self {
            serial: issued.serial.clone(),
            key: issued.key,
            issuer: issued.issuer.clone(),
            ends: issued.not_after,
            shown: false,
            denied: false,
            yields: None,
        }
    }
}

struct Powers {
    role: Role,
    tenants: Tenants,
    /// Only with this certificate, where it is one.
    serial: Option<Serial>,
    ends: Timestamp,
    issuer: Option<IssuerId>,
}

/// Keys come free by tidying alone, and whoever is among others than before is told so.
fn check_overlay(before: &State, after: &State) -> Vec<&'static str> {
    let mut special = Vec::new();
    if before.resting_keys.keys().any(|(_, key)| !after.wireguard_keys.contains_key(key)) {
        special.push("a WireGuard key comes free");
    }
    for (tenant, overlay) in &after.overlays {
        let known = before.overlays.get(tenant);
        for (id, peer) in &overlay.peers {
            let was = known.and_then(|known| known.peers.get(id));
            let stays = was.is_some_and(|was| was.vcluster == peer.vcluster);
            let told = was.is_none_or(|was| was.regrouped < peer.regrouped);
            assert!(stays || told, "the group of {id}");
            if was.is_some() && !stays {
                special.push("another group in the overlay");
            }
        }
    }
    special
}

fn at_hand(paper: &Paper, at: Timestamp) -> bool {
    !paper.denied && at < paper.ends && paper.yields.is_none_or(|yields| at < yields)
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
            special.extend(self.check_power(before, after.at, envelope));
        }
        if let Command::Enroll(enroll) = &envelope.command {
            special.extend(self.check_enrollment(before, after, enroll, applied));
        }
        if let Command::Recover(recover) = &envelope.command {
            special.extend(self.check_recovery(after, recover, applied));
        }
        if applied.answer.is_ok() {
            special.extend(self.check_node(after.at, envelope, applied));
        }
        special.extend(check_overlay(before, after));
        special.extend(self.check_roll(before, after, envelope, applied));
        special.extend(self.cluster.check_step(before, after, envelope, applied));
        special.extend(self.issuance.check(before, after, envelope, applied));
        self.recovering = match &envelope.command {
            Command::Recover(recover) => Some(recover.token),
            _ => None,
        };
        for event in &applied.events {
            self.learn(after, event);
            self.machines.learn(event);
            special.extend(self.cluster.learn(after, event, &mut self.serials));
        }
        if let (Command::Decommission { node, force: false }, Ok(_)) = (&envelope.command, &applied.answer) {
            let open = before.nodes.get(node).map_or(0, |node| node.sessions.open.len());
            assert_eq!(open, 0, "decommissioned under open sessions");
        }
        let open = after
            .nodes
            .values()
            .flat_map(|node| node.sessions.open.iter().map(|one| (node.id.clone(), one.id)));
        assert_eq!(open.collect::<BTreeSet<_>>(), self.sessions, "other sessions are open");
        self.check_papers(after);
        self.machines.check(after);
        self.cluster.check(after, &self.ended_issuers);
        special
    }

    /// Who speaks for a node is that node, with a paper that is good; a renewal is for a new key or repeats what
    /// was never shown.
    fn check_node(&mut self, at: Timestamp, envelope: &Envelope, applied: &Applied) -> Option<&'static str> {
        let about = match &envelope.command {
            Command::Confirm(confirm) => &confirm.node,
            Command::Renew(renew) => &renew.node,
            Command::Contact { node } | Command::MintRecovery { node, .. } => node,
            Command::ReportSessions(report) => &report.node,
            _ => return None,
        };
        let Actor::Node { id, serial } = &envelope.actor else { panic!("a node's word by another") };
        assert_eq!(id, about, "a node's word by another node");
        let good = self.is_good(at, id, serial);
        assert!(good, "{id} was heard with {serial}");
        let failed =
            matches!(&envelope.command, Command::Confirm(confirm) if confirm.status != ConfirmStatus::Ok);
        if failed {
            return None;
        }
        if matches!(&envelope.command, Command::MintRecovery { .. } | Command::ReportSessions(_)) {
            return None;
        }
        let Command::Renew(renew) = &envelope.command else {
            self.show(id, serial);
            return None;
        };
        let holders = |paper: &&Paper| paper.key == renew.key;
        let held: Vec<&Paper> = self.nodes[id].papers.iter().filter(holders).collect();
        let with = self.nodes[id].papers.iter().find(|paper| paper.serial == *serial).expect("its own");
        assert_eq!(with.yields, None, "renewed with what was superseded");
        let special = match &applied.answer {
            Ok(Outcome::Renewed { serial: same, replayed: true }) => {
                let paper = held.iter().find(|paper| paper.serial == *same).expect("of the same key");
                assert!(!paper.shown && self.is_good(at, id, same) && same != serial);
                Some("the same certificate after a lost renewal")
            }
            Ok(Outcome::Renewed { serial: new, replayed: false }) => {
                assert!(!self.serials.contains(new), "a serial twice");
                assert!(held.iter().all(|paper| !at_hand(paper, at)), "a key that it has already");
                None
            }
            other => panic!("a renewal came to {other:?}"),
        };
        self.show(id, serial);
        special
    }

    /// Nobody is left behind by a roll unless it is forced, and what was signed before it is signed after it.
    fn check_roll(
        &self,
        before: &State,
        after: &State,
        envelope: &Envelope,
        applied: &Applied,
    ) -> Option<&'static str> {
        if applied.events.is_empty() {
            return None;
        }
        let holds = |id: &NodeId| {
            let papers = self.nodes.get(id).map(|node| node.papers.as_slice()).unwrap_or_default();
            papers.iter().any(|paper| self.is_good(after.at, id, &paper.serial))
        };
        let holders = || before.nodes.values().filter(|node| holds(&node.id));
        match &envelope.command {
            Command::ActivateIssuer(activate) => {
                for signs in [IssuerUse::signs_clients, IssuerUse::signs_servers] {
                    let signers = |state: &State| {
                        state.domain_issuers_in(IssuerState::Active).filter(|one| signs(one.usage)).count()
                    };
                    assert!(signers(after) >= signers(before), "nobody signs any more");
                }
                let active = after.active_root().expect("a root");
                for issuer in after.domain_issuers_in(IssuerState::Active) {
                    assert_eq!(after.root_of(issuer), Some(active), "signs below another root");
                }
                if activate.by_stored_bundles && !activate.force {
                    let told =
                        |node: &Arc<lifecycle::registry::Node>| node.stored_bundle == before.bundle_version;
                    assert!(holders().all(told), "somebody was not told");
                    return holders().next().map(|_| "activated with every host told");
                }
                (!before.is_divided() && after.is_divided()).then_some("divided by a roll")
            }
            Command::RetireRoot { force, .. } => {
                let since = after.active_root().expect("a root").since_bundle;
                let behind = holders()
                    .filter(|node| node.stored_bundle < since || !after.holds_good_certificate(node));
                match behind.count() {
                    0 => Some("a root retired with nobody left behind"),
                    _ if *force => Some("a root retired and somebody left behind"),
                    many => panic!("{many} were left behind"),
                }
            }
            _ => None,
        }
    }

    fn is_good(&self, at: Timestamp, id: &NodeId, serial: &Serial) -> bool {
        let node = &self.nodes[id];
        let mut papers = node.papers.iter().filter(|paper| paper.serial == *serial);
        !node.gone && papers.any(|paper| at_hand(paper, at) && !self.ended_issuers.contains(&paper.issuer))
    }

    fn show(&mut self, id: &NodeId, serial: &Serial) {
        let node = self.nodes.get_mut(id).expect("a known node");
        node.ever_confirmed = true;
        let paper = node.papers.iter_mut().find(|paper| paper.serial == *serial).expect("its own");
        paper.shown = true;
    }

    /// The registry accepts exactly what is good here: both papers until the new one is shown, the old one for
    /// its drain, nothing that was denied, nothing of a node that is gone, nothing under an issuer that has ended.
    fn check_papers(&self, after: &State) {
        for (id, node) in &self.nodes {
            let mut unshown = 0;
            for paper in &node.papers {
                let good = self.is_good(after.at, id, &paper.serial);
                assert_eq!(after.is_good(&paper.serial), good, "{} of {id}", paper.serial);
                unshown += u32::from(good && !paper.shown);
                if paper.denied && after.certificates.contains_key(&paper.serial) {
                    assert!(after.is_denied(&paper.serial), "{} of {id} came back", paper.serial);
                }
            }
            assert!(unshown <= 1, "{id} has two that it never showed");
            let holder = node.wireguard.and_then(|key| after.wireguard_keys.get(&key));
            assert_eq!(holder, node.wireguard.map(|_| id), "the WireGuard key of {id}");
        }
    }

    /// Who was granted something had the power to ask for it.
    fn check_power(&self, before: &State, at: Timestamp, envelope: &Envelope) -> Option<&'static str> {
        let of = |node: &NodeId| before.nodes.get(node).map(|node| &node.tenant);
        let about = match &envelope.command {
            Command::CreateToken(create) => Some(&create.tenant),
            Command::RevokeToken { token } => before.tokens.get(token).map(|token| &token.tenant),
            Command::Drain { node, .. }
            | Command::Undrain { node }
            | Command::Quarantine { node, .. }
            | Command::Release { node }
            | Command::Rotate { node }
            | Command::OrderRekey { node, .. }
            | Command::RevokeRecoveryTokens { node }
            | Command::Revoke { node, .. }
            | Command::Decommission { node, .. }
            | Command::Reinstate { node, .. } => of(node),
            Command::Describe(describe) => of(&describe.node),
            Command::IssueRepairBundle(issue) => of(&issue.node),
            Command::Register(Register { claim: Claim::Tenant(tenant), .. }) => Some(tenant),
            Command::AcknowledgeAlert { alert, .. } => before.alerts[alert].node.as_ref().and_then(of),
            Command::RegisterHardware(register) => Some(&register.tenant),
            Command::CreateVcluster(create) => Some(&create.tenant),
            Command::RemoveVcluster { vcluster } => Some(&before.vclusters[vcluster].tenant),
            Command::Assign { node, .. } | Command::Unassign { node } | Command::Move { node, .. } => {
                of(node)
            }
            Command::SetConfig(set) => match &set.target {
                ConfigTarget::Defaults => None,
                ConfigTarget::Vcluster(vcluster) => Some(&before.vclusters[vcluster].tenant),
                ConfigTarget::Node(node) => of(node),
            },
            _ => None,
        };
        let needs = match &envelope.command {
            Command::Enroll(_)
            | Command::Confirm(_)
            | Command::Renew(_)
            | Command::MintRecovery { .. }
            | Command::ReportSessions(_)
            | Command::ClaimOverlay(_)
            | Command::Recover(_)
            | Command::Contact { .. } => return None,
            Command::Register(Register { claim: Claim::Token(token), .. }) => {
                let token = &self.tokens[token];
                assert!(!token.ended && at < token.expires_at, "a token that is not good");
                return None;
            }
            Command::InitializeDomain(_) => {
                assert!(matches!(envelope.actor, Actor::Local { .. }));
                return None;
            }
            Command::PublishIssuer(publish) => {
                assert_eq!(envelope.actor, Actor::Replica { id: publish.replica }, "of another replica");
                return None;
            }
            Command::AnnounceReplica(announce) => {
                assert_eq!(envelope.actor, Actor::Replica { id: announce.replica }, "of another replica");
                return None;
            }
            Command::BeginIssuance(begin) => {
                assert_eq!(envelope.actor, Actor::Replica { id: begin.replica }, "of another replica");
                return None;
            }
            Command::EndIssuance(end) => {
                assert_eq!(envelope.actor, Actor::Replica { id: end.replica }, "of another replica");
                return None;
            }
            // By a token, which is looked at elsewhere.
            Command::JoinReplica(_) => return None,
            Command::RecordServerCertificate(_)
            | Command::RecordRefusals(_)
            | Command::RecordCheckpoint(_)
            | Command::RecordAuditGap(_)
            | Command::RecordForwarded(_)
            | Command::SkipForwarding(_)
            | Command::AcceptRollback(_)
            | Command::Observe(_)
            | Command::MarkInactive(_)
            | Command::RaiseAlert(_)
            | Command::RecordDeniedCertificate(_)
            | Command::RecordDeliveredRevocations { .. }
            | Command::ClearAlert { .. }
            | Command::EndRepair { .. }
            | Command::Tidy
            | Command::Expire => {
                assert_eq!(envelope.actor, Actor::Reconciler);
                return None;
            }
            Command::CreateToken(_)
            | Command::RevokeToken { .. }
            | Command::Drain { .. }
            | Command::Undrain { .. }
            | Command::Quarantine { .. }
            | Command::Release { .. }
            | Command::Rotate { .. }
            | Command::OrderRekey { .. }
            | Command::RevokeRecoveryTokens { .. }
            | Command::Revoke { .. }
            | Command::Describe(_)
            | Command::Register(_)
            | Command::Assign { .. }
            | Command::Unassign { .. }
            | Command::Move { .. }
            | Command::AcknowledgeAlert { .. } => Role::Operator,
            _ => Role::PlatformAdmin,
        };
        let own =
            matches!(&envelope.command, Command::RenewOperator(_) | Command::UseRenewedCertificate { .. });
        let powers = match &envelope.actor {
            Actor::Local { .. } => {
                assert!(!own, "it has no certificate");
                return None;
            }
            Actor::Operator { name, serial } => {
                let mut held = self.operators.get(name).into_iter().chain(self.unused.get(name));
                held.find(|powers| powers.serial.as_ref() == Some(serial))
            }
            Actor::Key { id } => self.keys.get(id),
            _ => None,
        };
        let powers = powers.unwrap_or_else(|| panic!("{:?} has no power at all", envelope.actor));
        assert!(at < powers.ends, "power that has ended");
        let issuer = powers.issuer.as_ref();
        assert!(issuer.is_none_or(|issuer| !self.ended_issuers.contains(issuer)), "power that was revoked");
        if own {
            assert!(matches!(&envelope.actor, Actor::Operator { .. }), "a key has no certificate");
            return None;
        }
        assert!(powers.role >= needs, "power of too low a role");
        let within = match about {
            Some(tenant) => powers.tenants.include(tenant),
            None => powers.tenants == Tenants::All,
        };
        assert!(within, "power over other tenants");
        // Looked up where it is kept: that it loses what is removed is checked elsewhere.
        let vclusters = match &envelope.actor {
            Actor::Operator { name, .. } => &before.operators[name].vclusters,
            Actor::Key { id } => &before.operator_keys[id].vclusters,
            _ => return None,
        };
        let Vclusters::Only(names) = vclusters else { return None };
        let from = |node: &NodeId| before.nodes[node].vcluster.clone();
        let touched: Vec<VclusterId> = match &envelope.command {
            Command::Assign { node, vcluster } | Command::Move { node, vcluster } => {
                from(node).into_iter().chain([vcluster.clone()]).collect()
            }
            Command::Unassign { node } => from(node).into_iter().collect(),
            other => panic!("{other:?} by somebody narrowed to {names:?}"),
        };
        assert!(touched.iter().all(|vcluster| names.contains(vcluster)), "power over other vClusters");
        (!touched.is_empty()).then_some("power over a vCluster")
    }

    fn check_enrollment(
        &mut self,
        before: &State,
        after: &State,
        enroll: &Enroll,
        applied: &Applied,
    ) -> Option<&'static str> {
        if let Credential::Hardware(claimed) = &enroll.credential {
            return self.check_boot(before, after, claimed, enroll, applied);
        }
        match (&applied.answer, applied.events.as_slice()) {
            (Ok(Outcome::Enrolled { node, serial, replayed: true }), []) => {
                let token = &self.tokens[enroll.credential.token().unwrap()];
                let grant = token.grant.as_ref().expect("a repeat of what was granted");
                assert_eq!((node, serial, enroll.key), (&grant.node, &grant.serial, grant.key));
                assert!(enroll.idempotency.is_some() && enroll.idempotency == grant.idempotency);
                assert!(after.at < token.expires_at, "repeated after the token's end");
                let holder = &self.nodes[node];
                let last = holder.papers.last().expect("a paper");
                assert_eq!((&last.serial, last.shown), (serial, false));
                assert!(self.is_good(after.at, node, serial) && after.certificates[serial].der.is_some());
                Some("the same certificate after a lost reply")
            }
            (Ok(Outcome::Enrolled { replayed: false, .. }), [Event::NodeEnrolled(enrolled), rest @ ..]) => {
                let known = before.nodes.get(&enrolled.node);
                let evicts = known.is_some_and(|node| node.state == NodeState::Active)
                    && enrolled.denied.iter().any(|serial| self.is_good(after.at, &enrolled.node, serial))
                    || known.is_some_and(|node| lives_by_svid(before, after.at, &node.id));
                let mut replaced = false;
                for event in rest {
                    let about = match event {
                        Event::AlertCleared(cleared) => {
                            assert_ne!(
                                cleared.kind,
                                AlertKind::CloneSuspected,
                                "a stranger ends no suspicion"
                            );
                            &cleared.node
                        }
                        Event::AlertRaised(raised) => {
                            assert_eq!((raised.kind, replaced), (AlertKind::NodeReplaced, false));
                            replaced = true;
                            &raised.node
                        }
                        other => panic!("an enrollment came to {other:?}"),
                    };
                    assert_eq!(about.as_ref(), Some(&enrolled.node));
                }
                assert_eq!(replaced, evicts, "who evicts a living node is reported");
                self.check_address(before, after.at, enroll, enrolled);
                let special = self.check_grant(before, enroll, after, enrolled);
                self.check_certificate(after, enroll, enrolled);
                special
            }
            (Err(rejection), [Event::TokenBurned(event::TokenBurned { token, reason })]) => {
                assert_eq!(rejection.code(), *reason);
                let known = &self.tokens[enroll.credential.token().unwrap()];
                assert!(known.id == *token && !known.ended && after.at < known.expires_at, "not live");
                None
            }
            (Err(rejection), events) => {
                let foreign = self.holder_is_foreign(before, enroll);
                let burning = match rejection.code() {
                    "node_revoked" => true,
                    "wireguard_key_in_use" => !foreign,
                    _ => false,
                };
                assert!(!burning, "refused for good, and the token lives on");
                for event in events {
                    let Event::AlertRaised(raised) = event else { panic!("a refusal came to {event:?}") };
                    match raised.kind {
                        AlertKind::AlreadyActive => assert_eq!(rejection.code(), "already_active"),
                        AlertKind::HardwareIdentityConflict => {
                            assert_eq!(rejection.code(), "hardware_identity_conflict");
                        }
                        kind => {
                            assert_eq!(kind, AlertKind::WireguardKeyConflict);
                            assert!(foreign || rejection.code() == "node_id_in_use", "a conflict of nobody");
                        }
                    }
                }
                None
            }
            other => panic!("an enrollment came to {other:?}"),
        }
    }

    /// A machine that comes by its hardware is active at once, and nothing else follows but the end of alerts about it.
    fn check_boot(
        &self,
        before: &State,
        after: &State,
        claimed: &HardwareIdentity,
        enroll: &Enroll,
        applied: &Applied,
    ) -> Option<&'static str> {
        let held = |id: &NodeId| {
            let node = &self.nodes[id];
            let good = node.papers.iter().any(|paper| self.is_good(after.at, id, &paper.serial));
            good || is_heard(before, after.at, id)
        };
        let special = self.machines.check_boot(before, claimed, enroll, applied, held);
        match (&applied.answer, applied.events.as_slice()) {
            (Ok(Outcome::Enrolled { node, serial, replayed: true }), []) => {
                let last = self.nodes[node].papers.last().expect("a paper");
                assert_eq!((&last.serial, last.shown), (serial, false));
                assert!(self.is_good(after.at, node, serial) && after.certificates[serial].der.is_some());
            }
            (Ok(_), [Event::NodeEnrolled(enrolled), Event::NodeActive(active), rest @ ..]) => {
                assert_eq!(enrolled.node, active.node);
                for event in rest {
                    let Event::AlertCleared(cleared) = event else { panic!("a boot came to {event:?}") };
                    assert_eq!(cleared.node.as_ref(), Some(&enrolled.node));
                    assert_ne!(cleared.kind, AlertKind::CloneSuspected, "a stranger ends no suspicion");
                }
                assert_eq!(after.nodes[&enrolled.node].last_seen, Some(after.at));
                self.check_address(before, after.at, enroll, enrolled);
                self.check_certificate(after, enroll, enrolled);
            }
            (Err(rejection), events) => {
                for event in events {
                    let Event::AlertRaised(raised) = event else { panic!("a refusal came to {event:?}") };
                    let code = match raised.kind {
                        AlertKind::AlreadyActive => "already_active",
                        AlertKind::HardwareIdentityConflict => "hardware_identity_conflict",
                        AlertKind::WireguardKeyConflict => "wireguard_key_in_use",
                        other => panic!("{other:?} of a boot"),
                    };
                    assert_eq!(rejection.code(), code);
                }
            }
            other => panic!("a boot came to {other:?}"),
        }
        special
    }

    /// Whether the WireGuard key belongs to a node of another tenant than the token's.
    fn holder_is_foreign(&self, before: &State, enroll: &Enroll) -> bool {
        let token = enroll.credential.token().and_then(|token| before.token_with_hash(token));
        let holder = enroll.wireguard.and_then(|wireguard| before.wireguard_keys.get(&wireguard.key));
        let holder = holder.and_then(|holder| before.nodes.get(holder));
        token.zip(holder).is_some_and(|(token, holder)| token.tenant != holder.tenant)
    }

    /// A recovery is for the node that the token was given to, with a token that nobody had used, before its end;
    /// or it is the same again.
    fn check_recovery(&self, after: &State, recover: &Recover, applied: &Applied) -> Option<&'static str> {
        let Ok(Outcome::Recovered { node, serial, replayed }) = &applied.answer else {
            let alert = |event: &Event| matches!(event, Event::AlertRaised(_));
            assert!(applied.events.iter().all(alert), "a refused recovery came to {:?}", applied.events);
            return None;
        };
        let spare = &self.spares[&recover.token];
        assert_eq!(spare.node, *node, "another node than the token's");
        assert!(recover.node.as_ref().is_none_or(|claimed| claimed == node), "another node than claimed");
        assert!(!self.nodes[node].gone, "a tombstone");
        if *replayed {
            assert_eq!(spare.used.as_ref(), Some(&(serial.clone(), recover.key)), "a repeat of another");
            let last = self.nodes[node].papers.last().expect("a paper");
            assert_eq!((&last.serial, last.shown), (serial, false));
            return Some("the same certificate after a lost recovery");
        }
        assert!(!self.serials.contains(serial), "a serial twice");
        assert!(spare.used.is_none() && !spare.ended && after.at < spare.ends, "a token that was over");
        Some(if spare.repair { "recovered by a repair bundle" } else { "recovered by itself" })
    }

    /// Two of its own at most, the one before only until the newer is kept; an operator's ends both.
    fn learn_recovery_token(&mut self, id: &NodeId, token: &RecoveryToken, repair: bool) {
        let others = self.spares.values_mut().filter(|spare| spare.node == *id && !spare.ended);
        for other in others.filter(|spare| repair || !spare.kept) {
            other.ended = true;
        }
        let spare =
            Spare { node: id.clone(), ends: token.expires_at, kept: false, ended: false, used: None, repair };
        assert!(self.spares.insert(token.hash, spare).is_none(), "a value minted twice");
    }

    fn end_spares(&mut self, id: &NodeId) {
        for spare in self.spares.values_mut().filter(|spare| spare.node == *id) {
            spare.ended = true;
        }
    }

    fn check_grant(
        &self,
        before: &State,
        enroll: &Enroll,
        after: &State,
        enrolled: &NodeEnrolled,
    ) -> Option<&'static str> {
        let token = &self.tokens[enroll.credential.token().unwrap()];
        assert!(!token.ended, "a token that had ended");
        assert!(after.at < token.expires_at, "a token that had expired");
        assert_eq!((Some(token.id), &token.tenant), (enrolled.token, &enrolled.tenant));
        let again = self.nodes.get(&enrolled.node);
        let demanded = before.policy.requires(Attestor::Hardware)
            || before.policy.attestors.iter().all(|word| word != "join-token");
        if demanded {
            let claimed = enroll.claimed.as_ref().expect("the hardware is demanded");
            let machine = self.machines.living(before, claimed);
            assert_eq!(machine, std::slice::from_ref(&enrolled.node), "another node than the machine");
            assert!(token.pin.as_ref().is_none_or(|pin| *pin == enrolled.node), "another node than the pin");
            assert!(again.is_some_and(|node| node.tenant == token.tenant), "another tenant's machine");
            return Some("enrolled by a token and the hardware");
        }
        match (&token.pin, again) {
            (Some(pin), again) => {
                assert_eq!(*pin, enrolled.node, "another node than the pin");
                assert!(again.is_none_or(|node| node.tenant == token.tenant), "another tenant's node");
                assert!(again.is_none_or(|node| !node.gone), "a tombstone");
            }
            (None, Some(_)) => panic!("a node again without a pin"),
            (None, None) => {}
        }
        again.map(|_| "enrolled again by a pinned token")
    }

    fn check_certificate(&self, after: &State, enroll: &Enroll, enrolled: &NodeEnrolled) {
        assert!(!self.serials.contains(&enrolled.certificate.serial), "a serial twice");
        if let Some(wireguard) = enroll.wireguard {
            let mut others = self.nodes.iter().filter(|(id, _)| **id != enrolled.node);
            assert!(others.all(|(_, node)| node.wireguard != Some(wireguard.key)), "a WireGuard key twice");
        }
        let certificate = &enrolled.certificate;
        assert_eq!(certificate.key, enroll.key);
        assert!(certificate.not_after > after.at);
        let longest = after.policy.profiles[&enrolled.profile].lifetime;
        assert!(certificate.not_after <= certificate.signed_at.plus(longest), "lives too long");
        if enroll.memory_storage {
            let node = &after.nodes[&enrolled.node];
            assert!(
                !node.keeps_recovery_tokens(),
                "a recovery token for a host that keeps nothing on a disk"
            );
        }
    }

    /// A node with a WireGuard key keeps its address; a new one is nobody's and has rested; without a key there is none.
    fn check_address(&self, before: &State, at: Timestamp, enroll: &Enroll, enrolled: &NodeEnrolled) {
        let kept = before.nodes.get(&enrolled.node).and_then(|node| node.address);
        let kept = kept.filter(|_| enroll.wireguard.is_some());
        assert!(kept.is_none() || enrolled.address == kept, "another address than before");
        assert_eq!(enrolled.address.is_some(), enroll.wireguard.is_some());
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
            Event::TokenRevoked(event::TokenRevoked { token })
            | Event::TokenExpired(event::TokenExpired { token })
            | Event::TokenBurned(event::TokenBurned { token, .. }) => {
                self.end_token(*token, None);
            }
            Event::NodeEnrolled(enrolled) => {
                self.end_spares(&enrolled.node);
                self.learn_enrolled(enrolled);
            }
            Event::RecoveryTokenRotated(event::RecoveryTokenRotated { node, token }) => {
                self.learn_recovery_token(node, token, false)
            }
            Event::RepairBundleIssued(event::RepairBundleIssued { node, token, .. }) => {
                self.learn_recovery_token(node, token, true)
            }
            Event::RecoveryTokenKept(event::RecoveryTokenKept { node, token }) => {
                let hash = after.nodes[node].recovery.token(*token).expect("on record").hash;
                let own = self.spares.iter_mut().filter(|(_, spare)| spare.node == *node && !spare.ended);
                for (other, spare) in own {
                    if *other == hash {
                        spare.kept = true;
                    } else {
                        spare.ended = true;
                    }
                }
            }
            Event::RecoveryTokensRevoked(event::RecoveryTokensRevoked { node, .. }) => self.end_spares(node),
            Event::RollbackAccepted(_) => self.spares.values_mut().for_each(|spare| spare.ended = true),
            Event::RecoveryIssued(issued) => self.learn_recovered(issued),
            Event::NodeReleased(event::NodeReleased { node }) => {
                let repair = |spare: &&mut Spare| spare.node == *node && spare.repair;
                self.spares.values_mut().filter(repair).for_each(|spare| spare.ended = true);
            }
            Event::NodeRegistered(registered) => self.learn_registered(registered),
            Event::HardwareRegistered(registered) => {
                let known = self.nodes.entry(registered.node.clone()).or_insert_with(|| Node {
                    tenant: registered.tenant.clone(),
                    papers: Vec::new(),
                    gone: false,
                    ever_confirmed: false,
                    wireguard: None,
                });
                assert!(!known.gone && known.tenant == registered.tenant, "a node of another");
            }
            Event::NodeActive(active) => {
                self.nodes.get_mut(&active.node).expect("a known node").ever_confirmed = true;
            }
            Event::NodeConfirmed(event::NodeConfirmed { serial, .. }) => {
                assert_eq!(after.certificates[serial].der, None, "kept whole after its holder has it");
            }
            Event::CertificateRenewed(event::CertificateRenewed { node, certificate, .. }) => {
                let node = self.nodes.get_mut(node).expect("a known node");
                // What was issued before and never shown is lost.
                node.papers.iter_mut().filter(|paper| !paper.shown).for_each(|paper| paper.denied = true);
                node.papers.push(Paper::of(certificate));
                self.serials.insert(certificate.serial.clone());
            }
            Event::CertificateSuperseded(event::CertificateSuperseded { node, serial, by, until }) => {
                let node = self.nodes.get_mut(node).expect("a known node");
                assert!(node.papers.iter().any(|paper| paper.serial == *by && paper.shown), "by what?");
                assert_eq!(*until, after.at.plus(after.policy.renew_drain));
                let old = node.papers.iter_mut().find(|paper| paper.serial == *serial).expect("its own");
                assert_eq!(old.yields.replace(*until), None, "superseded twice");
            }
            Event::SessionOpened(event::SessionOpened { node, session }) => {
                assert!(!self.nodes[node].gone, "a session of a node that is gone");
                assert!(self.sessions.insert((node.clone(), session.id)), "a session opened twice");
            }
            Event::SessionClosed(event::SessionClosed { node, session, .. }) => {
                assert!(
                    self.sessions.remove(&(node.clone(), session.id)),
                    "a session closed that was not open"
                );
            }
            Event::NodeRevoked(event::NodeRevoked { node, .. })
            | Event::NodeDecommissioned(event::NodeDecommissioned { node, .. }) => {
                assert!(!self.sessions.iter().any(|(of, _)| of == node), "a session outlives its node");
                self.end_spares(node);
                let node = self.nodes.get_mut(node).expect("a known node");
                node.gone = true;
                node.papers.iter_mut().for_each(|paper| paper.denied = true);
                node.wireguard = node.wireguard.filter(|_| node.ever_confirmed);
            }
            Event::OverlayJoined(event::OverlayJoined { node, wireguard, address, .. }) => {
                let held = after.addresses.held.get(address);
                let known = self.nodes.get_mut(node).expect("a known node");
                assert!(!known.gone && known.ever_confirmed && known.wireguard.is_none(), "joined twice");
                assert!(held == Some(node) || after.nodes[node].state.is_gone(), "an address of another");
                known.wireguard = Some(wireguard.key);
            }
            Event::Rekeyed(event::Rekeyed { node, wireguard, before: old, .. }) => {
                let known = self.nodes.get_mut(node).expect("a known node");
                let old = old.expect("a key to replace").key;
                assert_eq!(known.wireguard.replace(wireguard.key), Some(old), "another key than it had");
                assert_eq!(after.wireguard_keys.get(&old), Some(node), "it rests as the node's own");
            }
            Event::NodeReinstated(event::NodeReinstated { node, .. }) => {
                self.nodes.get_mut(node).expect("a known node").gone = false;
            }
            Event::IssuerRevoked(event::IssuerRevoked { issuer, .. })
            | Event::IssuerRetired(event::IssuerRetired { issuer }) => {
                self.ended_issuers.insert(issuer.clone());
            }
            Event::OperatorAdded(event::OperatorAdded { operator, certificate }) => {
                let serial = certificate.as_ref().map(|certificate| certificate.serial.clone());
                assert!(serial.iter().all(|serial| self.serials.insert(serial.clone())), "a serial twice");
                let ends = certificate.as_ref().map_or(after.at, |certificate| certificate.not_after);
                let (role, tenants) = (operator.role, operator.tenants.clone());
                let issuer = certificate.as_ref().map(|certificate| certificate.issuer.clone());
                let powers = Powers { role, tenants, serial, ends, issuer };
                self.operators.insert(operator.name.clone(), powers);
            }
            Event::OperatorRemoved(event::OperatorRemoved { name }) => {
                self.operators.remove(name);
                self.unused.remove(name);
            }
            Event::OperatorRenewed(event::OperatorRenewed { name, certificate, denied, .. }) => {
                assert!(self.serials.insert(certificate.serial.clone()), "a serial twice");
                let Powers { role, tenants, .. } = &self.operators[name];
                let powers = Powers {
                    role: *role,
                    tenants: tenants.clone(),
                    serial: Some(certificate.serial.clone()),
                    ends: certificate.not_after,
                    issuer: Some(certificate.issuer.clone()),
                };
                let lost = self.unused.insert(name.clone(), powers).and_then(|powers| powers.serial);
                // What has expired may have been tidied away.
                let forgotten = lost.as_ref().is_some_and(|lost| !after.certificates.contains_key(lost));
                assert!(lost == *denied || forgotten, "what was never used is denied");
            }
            Event::OperatorCertificateReplaced(event::OperatorCertificateReplaced { name, serial, by }) => {
                let new = self.unused.remove(name).expect("issued by a renewal");
                assert_eq!(new.serial.as_ref(), Some(by));
                let old = self.operators.insert(name.clone(), new).and_then(|powers| powers.serial);
                assert_eq!(old.as_ref(), Some(serial));
                assert!(after.is_denied(serial), "replaced and good");
            }
            Event::OperatorKeyCreated(key) => {
                let (role, tenants, ends) = (key.role, key.tenants.clone(), key.expires_at);
                self.keys.insert(key.id, Powers { role, tenants, serial: None, ends, issuer: None });
            }
            Event::OperatorKeyRevoked(event::OperatorKeyRevoked { key, .. }) => drop(self.keys.remove(key)),
            Event::ServerCertificateIssued(certificate) => {
                let issuer = &after.issuers[&certificate.issuer];
                assert!(!issuer.is_ephemeral() && issuer.usage.signs_servers(), "signed by another's issuer");
                assert!(self.serials.insert(certificate.serial.clone()), "a serial twice");
            }
            _ => {}
        }
    }

    fn learn_recovered(&mut self, issued: &RecoveryIssued) {
        self.end_spares(&issued.node);
        let serial = issued.certificate.serial.clone();
        let used = self.recovering.take().expect("a token was brought");
        self.spares.get_mut(&used).expect("a known token").used =
            Some((serial.clone(), issued.certificate.key));
        self.serials.insert(serial);
        let node = self.nodes.get_mut(&issued.node).expect("a known node");
        node.papers.iter_mut().for_each(|paper| paper.denied = true);
        node.papers.push(Paper::of(&issued.certificate));
    }

    fn end_token(&mut self, id: TokenId, grant: Option<Grant>) {
        let token = self.tokens.values_mut().find(|token| token.id == id).expect("a known token");
        assert!(!token.ended, "a token ended twice");
        token.ended = true;
        token.grant = grant;
    }

    /// New, without a paper, and the only node that its token is for.
    fn learn_registered(&mut self, registered: &NodeRegistered) {
        let known = Node {
            tenant: registered.tenant.clone(),
            papers: Vec::new(),
            gone: false,
            ever_confirmed: false,
            wireguard: None,
        };
        assert!(self.nodes.insert(registered.node.clone(), known).is_none(), "a node twice");
        if let Some(id) = registered.token {
            let token = self.tokens.values_mut().find(|token| token.id == id).expect("a known token");
            assert_eq!(token.tenant, registered.tenant);
            let pin = token.pin.get_or_insert_with(|| registered.node.clone());
            assert_eq!(*pin, registered.node, "another node than the pin");
        }
    }

    fn learn_enrolled(&mut self, enrolled: &NodeEnrolled) {
        let (node, certificate) = (enrolled.node.clone(), &enrolled.certificate);
        let serial = certificate.serial.clone();
        let (key, idempotency) = (certificate.key, enrolled.idempotency);
        let grant = Grant { node: node.clone(), serial: serial.clone(), key, idempotency };
        if let Some(token) = enrolled.token {
            self.end_token(token, Some(grant));
        }
        self.serials.insert(serial.clone());
        let known = self.nodes.entry(node).or_insert_with(|| Node {
            tenant: enrolled.tenant.clone(),
            papers: Vec::new(),
            gone: false,
            ever_confirmed: false,
            wireguard: None,
        });
        known.papers.iter_mut().for_each(|paper| paper.denied = true);
        known.papers.push(Paper::of(certificate));
        known.wireguard = enrolled.wireguard.map(|wireguard| wireguard.key);
    }
}
