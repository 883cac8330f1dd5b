//! A domain in which a history takes place, and what is remembered of it.

use super::model::Model;
use super::step::{
    AnswerFlaw, Ask, Came, Care, Configured, IntentFlaw, Issuing, JoinFlaw, Joining, ListFlaw, Machine,
    Placing, PublishFlaw, RecoverFlaw, RenewFlaw, Request, Roll, Scope, Signed, Step, UNKNOWN, Who,
};
use super::stored_envelope;
use crate::support::{
    BOTH, Begun, Domain, Minted, NODE, SERVER, Wanted, confirm_failed, confirm_ok, create_tenant, hardware,
    issuer, keeping, local, node, replica, vcluster,
};
use crate::support::{activate, digest, operator, profile, set_policy, tenant};
use lifecycle::host::Class;
use lifecycle::names::{
    AlertId, Checksum, Fingerprint, IdempotencyHash, IssuerId, IssuerUse, KeyHash, KeyId, Label, Mac, NodeId,
    OperatorName, ReplicaId, RequestId, Serial, SessionId, Span, SpiffeId, Timestamp, Title, Ulid,
    VclusterId, WireguardKey,
};
use lifecycle::registry::{
    AcceptClock, AcceptRollback, Actor, Applied, Attestor, AuditGap, AuditSink, BeginIssuance, Change,
    Checkpoint, Claim, ClaimOverlay, CloseReason, ClosedSession, Command, ConfigDocument, ConfigTarget,
    CreateOperatorKey, CreateVcluster, Credential, Describe, EndIssuance, Enroll, Envelope, Event, Forwarded,
    ForwardingGapCause, HardwareIdentity, ImportRootList, IntentEnd, IssueRepairBundle, Issued, IssuerState,
    Keeping, Mint, Node, NodeSigner, Operator, OperatorKey, RaiseAlert, Recover, Refusals, Register,
    RegisterHardware, Relabel, Report, ReportSessions, Rewrap, Role, RootList, RootState, ServerCertificate,
    Session, SessionChanges, SessionKind, SessionReport, SetConfig, Sighting, Silence, SkipForwarding, State,
    Tenants, Underlay, Vclusters, Wireguard, apply,
};
use lifecycle::registry::{Confirmation, event};
use std::collections::BTreeMap;
use std::sync::Arc;

const NODES: [&str; 4] = ["a", "b", "c", "d"];
/// The first four are those of [`NODES`].
const MACHINES: [&str; 6] = ["a", "b", "c", "d", "m1", "m2"];
const VCLUSTERS: [&str; 3] = ["blue", "red", "green"];
const TENANTS: [&str; 4] = ["default", "acme", "apex", "nowhere"];
const OPERATORS: [&str; 3] = ["alice", "bob", "carol"];
const PROFILES: [&str; 4] = ["plfm", "taskrun", "gpu", "nothing"];

pub struct World {
    pub domain: Domain,
    pub past: Vec<Past>,
    /// What happened how often.
    pub seen: BTreeMap<String, u64>,
    model: Model,
    tokens: Vec<Minted>,
    keys: Vec<KeyId>,
    requests: Vec<Enroll>,
    recovery_tokens: Vec<Mint>,
    recoveries: Vec<Recover>,
    replica_tokens: Vec<Minted>,
    /// What hosts asked for and was kept back.
    held: Vec<(Actor, Command)>,
}

/// Something that was asked, to be asked again.
pub struct Past {
    envelope: Box<Envelope>,
    at: Timestamp,
    applied: Applied,
}

impl Past {
    pub fn replay(&self, state: &mut State) {
        assert_eq!(apply(state, &stored_envelope(&self.envelope), self.at), self.applied);
    }
}

impl World {
    /// A domain to begin with, in which nodes have ephemeral issuers or not, with one issuer of its own or two, and of one
    /// replica or of two.
    pub fn new(node_signer: NodeSigner, divided: bool, cluster: bool) -> Self {
        let mut world = Self {
            domain: Domain::unfounded(),
            past: Vec::new(),
            seen: BTreeMap::new(),
            model: Model::default(),
            tokens: Vec::new(),
            keys: Vec::new(),
            requests: Vec::new(),
            recovery_tokens: Vec::new(),
            recoveries: Vec::new(),
            replica_tokens: Vec::new(),
            held: Vec::new(),
        };
        // A domain with a step-ca has an issuer for operators and one for the control plane.
        let external = node_signer == NodeSigner::StepCa;
        let divided = divided || external;
        let found = match divided {
            true if external => world.domain.found_step_ca(),
            true => world.domain.found_divided(node_signer),
            false => world.domain.found_with(node_signer),
        };
        for command in [found, create_tenant("acme")] {
            let envelope = world.domain.envelope(local(), command);
            world.apply(envelope);
        }
        if node_signer == NodeSigner::Ephemeral {
            world.give(&Ask::Roll(Roll::Publish { replica: 1, flaw: None }), None, 0);
        }
        // Some tokens to begin with: two for one node, two for any.
        for pin in [Some("a"), Some("a"), None, None] {
            let mut create = world.domain.token_request();
            create.node = pin.map(node);
            let envelope = world.domain.envelope(local(), Command::CreateToken(create));
            world.apply(envelope);
        }
        // And two nodes, of which one has confirmed.
        for number in [3, 1] {
            let token = world.tokens[number];
            let request = world.domain.request(token);
            let request = world.domain.prepare(request);
            let envelope = world.domain.envelope(Actor::Stranger, Command::Enroll(Box::new(request)));
            world.apply(envelope);
        }
        let Actor::Node { id, serial } = world.node(1, 0) else { unreachable!() };
        let command = Command::Contact { node: id.clone() };
        let envelope = world.domain.envelope(Actor::Node { id, serial }, command);
        world.apply(envelope);
        world.begin(divided);
        if cluster {
            let announce = |replica| Joining::Announce { replica, peer: None, renewed: true, flaw: None };
            let mint = Joining::Mint { ttl: 3_600_000, reuse: false };
            let join = Joining::Join { token: 0, peer: 1, flaw: None };
            for joining in [announce(1), mint, join, announce(2), mint] {
                world.give(&Ask::Cluster(joining), None, 0);
            }
        }
        world
    }

    /// Something to end: a recovery token, orders, a key that rests, a drain, a quarantine, an issuer that retires or a root.
    fn begin(&mut self, divided: bool) {
        self.give(&Ask::Keep { node: 1, kept: None, wants: true }, None, 0);
        let claim = |key| Ask::Overlay { node: 1, key: Some(key), endpoint: Some(1) };
        for ask in [claim(0), Ask::Care(1, Care::Rekey), claim(1), Ask::Care(1, Care::Rekey)] {
            self.give(&ask, None, 0);
        }
        let rest = [Care::Rotate, Care::Drain(None), Care::Quarantine].map(|care| Ask::Care(1, care));
        let roll = match divided {
            false => {
                [Roll::Prepare, Roll::Certify { other_key: false }, Roll::Activate { number: 1, force: true }]
            }
            true => [
                Roll::Begin { usage: IssuerUse::Both, new_root: true, exactly: false },
                Roll::Answer { flaw: None },
                Roll::ActivateAll { force: true },
            ],
        };
        let list = divided.then_some(Roll::ImportList { number: 0, flaw: None });
        for ask in rest.into_iter().chain(roll.into_iter().chain(list).map(Ask::Roll)) {
            self.give(&ask, None, 0);
        }
        let machine = Machine { interface: 0, second: Some(1), serial: None };
        let registered = Ask::RegisterHardware { node: 4, machine, tenant: 0, vcluster: Some(0) };
        let policy = Ask::Policy("attestors", "join-token,hardware,recovery-token");
        let narrowed = Ask::CreateKey {
            role: Role::Operator,
            tenants: None,
            ttl: 80_000_001,
            reuse: false,
            narrowed: Some(0),
        };
        let [blue, red] = [0, 1].map(|vcluster| Ask::CreateVcluster { vcluster, tenant: 0 });
        for ask in [blue, red, registered, policy, narrowed] {
            self.give(&ask, None, 0);
        }
    }

    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Pass(millis) => self.domain.pass(Span::from_millis(*millis)),
            Step::SetBack(millis) => self.domain.now = self.domain.now.minus(Span::from_millis(*millis)),
            Step::Repeat(back) => self.repeat(*back),
            Step::Hold(ask) => {
                let (actor, command, _) = self.command(ask);
                self.note_begun();
                self.held.push((actor, command));
            }
            Step::Give { ask, by, age } => self.give(ask, *by, *age),
        }
    }

    fn give(&mut self, ask: &Ask, by: Option<Who>, age: u64) {
        let (meant_for, command, spoiled) = self.command(ask);
        let actor = by.map_or(meant_for, |who| self.actor(who));
        // A replica whose clock was set back still draws ids after the last applied moment.
        let drawn = self.domain.now.max(self.domain.state.at).minus(Span::from_millis(age));
        let envelope = self.domain.envelope_drawn_at(drawn, actor, command);
        let applied = self.apply(envelope);
        if spoiled {
            assert!(applied.answer.is_err(), "granted what was prepared wrongly");
            let burned = applied.events.iter().all(|event| event.name() == "enrollment.refused");
            assert!(burned, "what was prepared wrongly had consequences: {:?}", applied.events);
        }
    }

    fn apply(&mut self, envelope: Envelope) -> Applied {
        self.note_begun();
        let (before, at) = (self.domain.state.clone(), self.domain.now);
        let applied = self.domain.step(&envelope);
        self.note(Begun { before, after: self.domain.state.clone(), envelope, at, applied: applied.clone() });
        applied
    }

    /// Steps that were taken while something was prepared.
    fn note_begun(&mut self) {
        std::mem::take(&mut self.domain.begun).into_iter().for_each(|begun| self.note(begun));
    }

    fn note(&mut self, Begun { before, after, envelope, at, applied }: Begun) {
        for event in &applied.events {
            self.saw(event.name().to_owned());
            match event {
                Event::TokenCreated(token) => self.tokens.push(Minted { id: token.id, hash: token.hash }),
                Event::ReplicaTokenCreated(token) => {
                    self.replica_tokens.push(Minted { id: token.id, hash: token.hash });
                }
                Event::OperatorKeyCreated(key) => self.keys.push(key.id),
                Event::RecoveryTokenRotated(event::RecoveryTokenRotated { token, .. })
                | Event::RepairBundleIssued(event::RepairBundleIssued { token, .. }) => {
                    self.recovery_tokens.push(Mint { token: token.id, hash: token.hash });
                }
                _ => {}
            }
        }
        if let Err(rejection) = &applied.answer {
            self.saw(format!("refused: {}", rejection.code()));
        }
        for what in self.model.check(&before, &after, &envelope, &applied) {
            self.saw(what.to_owned());
        }
        self.past.push(Past { envelope: Box::new(envelope), at, applied });
    }

    fn saw(&mut self, what: String) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn repeat(&mut self, back: usize) {
        if let Some(past) = self.past.iter().rev().nth(back) {
            let envelope = past.envelope.as_ref().clone();
            let applied = self.apply(envelope);
            assert!(applied.events.is_empty(), "applied twice");
        }
    }

    fn any_node(&self, number: usize) -> Option<NodeId> {
        nth_back(self.domain.state.nodes.keys(), number).cloned()
    }

    fn actor(&mut self, who: Who) -> Actor {
        match who {
            Who::Local => local(),
            Who::Stranger => Actor::Stranger,
            Who::Reconciler => Actor::Reconciler,
            Who::Replica(number) => replica(number),
            Who::Key(back) => Actor::Key { id: self.key(back) },
            Who::Operator { name, own_serial } => {
                let name = operator(OPERATORS[name]);
                let own = self.domain.state.operators.get(&name).and_then(|operator| operator.serial.clone());
                let other = self.domain.state.certificates.keys().next().cloned();
                let serial = if own_serial { own } else { other };
                Actor::Operator { name, serial: serial.unwrap_or_else(|| self.domain.serial()) }
            }
            Who::Node { node, serial } => self.node(node, serial),
        }
    }

    /// A node with its current serial, an older one, or someone else's.
    fn node(&mut self, number: usize, serial: usize) -> Actor {
        let id = self.any_node(number).unwrap_or_else(|| node("nobody"));
        let state = &self.domain.state;
        let own = |back| state.nodes.get(&id).and_then(|node| node.serials.iter().rev().nth(back)).cloned();
        let serial = match serial {
            0..3 => own(serial),
            _ => state.certificates.keys().next_back().cloned(),
        };
        Actor::Node { id, serial: serial.unwrap_or_else(|| self.domain.serial()) }
    }

    /// The same, mostly of one that has something to show.
    fn holder(&mut self, number: usize, serial: usize) -> Actor {
        let state = &self.domain.state;
        let shows = |node: &&Arc<Node>| node.serials.iter().any(|serial| state.is_good(serial));
        let holders: Vec<_> = state.nodes.values().filter(shows).map(|node| node.id.clone()).collect();
        match nth_back(holders.iter(), number).filter(|_| !number.is_multiple_of(3)) {
            Some(holder) => {
                let place = state.nodes.keys().rev().position(|id| id == holder).expect("a known node");
                self.node(place, serial)
            }
            None => self.node(number, serial),
        }
    }

    fn key(&mut self, back: usize) -> KeyId {
        let known = nth_back(self.keys.iter(), back).copied();
        known.unwrap_or_else(|| KeyId(self.domain.ulid()))
    }

    /// A token minted a while ago, or one that never was.
    fn token(&mut self, back: usize) -> Minted {
        match nth_back(self.tokens.iter(), back).copied() {
            Some(token) => token,
            None => {
                let request = self.domain.token_request();
                Minted { id: request.token, hash: request.hash }
            }
        }
    }

    /// The command, whom it is meant for, and whether what it brings was spoiled.
    fn command(&mut self, ask: &Ask) -> (Actor, Command, bool) {
        let good = |actor, command| (actor, command, false);
        match ask {
            Ask::Enroll(request) => {
                let (request, spoiled) = self.request(request);
                self.requests.push(request.clone());
                (Actor::Stranger, Command::Enroll(Box::new(request)), spoiled)
            }
            Ask::Register { node: n, token, tenant: t } => {
                let claim = match token {
                    Some(back) => Claim::Token(self.token(*back).hash),
                    None => Claim::Tenant(tenant(TENANTS[*t])),
                };
                let actor = if token.is_some() { Actor::Stranger } else { local() };
                let (node, profile) = (node(NODES[*n]), None);
                let register = Register { node, claim, profile, plane: None, hostname: None };
                good(actor, Command::Register(register))
            }
            Ask::EnrollAgain { request, other_key, idempotency } => {
                let again = self.again(*request, *other_key, *idempotency);
                good(Actor::Stranger, Command::Enroll(Box::new(again)))
            }
            Ask::Confirm { node, failed } => {
                let actor = self.node(*node, 0);
                let Actor::Node { id, .. } = &actor else { unreachable!() };
                let command = match failed {
                    Some(reason) => confirm_failed(id, ["disk full", "read-only"][*reason]),
                    None => confirm_ok(id),
                };
                good(actor, command)
            }
            Ask::ServerCertificate { used_serial, replica } => {
                let replica = ReplicaId(*replica);
                let state = &self.domain.state;
                let known = if state.replicas.is_empty() {
                    replica == ReplicaId::FIRST
                } else {
                    state.member(replica).is_ok()
                };
                let used = self.used_serial().filter(|_| *used_serial);
                let active = self.domain.state.server_issuer();
                let signer = active.map(|issuer| (issuer.id.clone(), issuer.not_after));
                let spoiled = used.is_some() || signer.is_none() || !known;
                let (signer, not_after) = signer.unwrap_or_else(|| (issuer("i1"), self.domain.now));
                let certificate = ServerCertificate {
                    serial: used.unwrap_or_else(|| self.domain.serial()),
                    fingerprint: Fingerprint::new(self.domain.digest()),
                    issuer: signer,
                    not_after,
                    replica,
                };
                (Actor::Reconciler, Command::RecordServerCertificate(certificate), spoiled)
            }
            Ask::Refusals => {
                let refusals = Refusals {
                    reason: "token_invalid".to_owned(),
                    network: None,
                    count: 3,
                    samples: Vec::new(),
                    recovery: None,
                    alert: None,
                    renewal: None,
                };
                good(Actor::Reconciler, Command::RecordRefusals(refusals))
            }
            Ask::Checkpoint => {
                let head = Fingerprint::new(self.domain.digest());
                let checkpoint = Checkpoint { seq: 1, head, signature: vec![1] };
                good(Actor::Reconciler, Command::RecordCheckpoint(checkpoint))
            }
            Ask::Gap => {
                good(Actor::Reconciler, Command::RecordAuditGap(AuditGap { from: 1, to: 2, refilled: true }))
            }
            Ask::Forwarded(through) => {
                let forwarded = Forwarded { sink: AuditSink::Loki, through: *through };
                good(Actor::Reconciler, Command::RecordForwarded(forwarded))
            }
            Ask::SkipForwarding(to) => {
                let (sink, cause) = (AuditSink::Loki, ForwardingGapCause::Missing);
                good(Actor::Reconciler, Command::SkipForwarding(SkipForwarding { sink, to: *to, cause }))
            }
            Ask::Rollback => {
                let accept = AcceptRollback { directory_seq: 1, anchor_seq: Some(2), voids_recovery: true };
                good(Actor::Reconciler, Command::AcceptRollback(accept))
            }
            Ask::Roll(Roll::Publish { replica, flaw }) => self.publish(*replica, *flaw),
            Ask::Roll(Roll::Answer { flaw }) => self.answer(*flaw),
            Ask::Roll(Roll::Next { patient: true, .. }) if self.is_awaited() => {
                let (seen, bundle) = (self.domain.now, Some(self.domain.state.bundle_version));
                let nodes = self.domain.state.nodes.keys();
                let told = nodes.map(|id| Sighting { seen, bundle, ..self.domain.sighting(id) });
                good(Actor::Reconciler, Command::Observe(told.collect()))
            }
            Ask::Roll(Roll::ImportList { number, flaw }) => self.import_list(*number, *flaw),
            Ask::Cluster(joining) => self.joining(*joining),
            Ask::Held(back) => match nth_back(self.held.iter(), *back).cloned() {
                Some((actor, command)) => good(actor, command),
                // Nothing was kept back yet.
                None => good(Actor::Reconciler, Command::Tidy),
            },
            Ask::Issuing(issuing) => self.issuing(*issuing),
            Ask::Tidy => good(Actor::Reconciler, Command::Tidy),
            Ask::Expire => good(Actor::Reconciler, Command::Expire),
            Ask::Boot { machine, request } => {
                let claimed = self.claimed(*machine, request.token);
                let (request, spoiled) = self.request_by(request, Some(claimed));
                self.requests.push(request.clone());
                (Actor::Stranger, Command::Enroll(Box::new(request)), spoiled)
            }
            Ask::Renew { node, serial, key, flaw } => self.renew((*node, *serial), *key, *flaw),
            Ask::Contact { node, serial } => {
                let actor = self.holder(*node, *serial);
                let Actor::Node { id, .. } = &actor else { unreachable!() };
                let command = Command::Contact { node: id.clone() };
                good(actor, command)
            }
            Ask::Keep { node, kept, wants } => {
                let actor = self.node(*node, 0);
                let Actor::Node { id, .. } = &actor else { unreachable!() };
                let keeping = self.keeping(id, *kept, *wants);
                let command = Command::MintRecovery { node: id.clone(), keeping };
                good(actor, command)
            }
            Ask::Overlay { node, key, endpoint } => {
                let actor = self.node(*node, 0);
                let Actor::Node { id, .. } = &actor else { unreachable!() };
                let held = self.domain.state.nodes.get(id).and_then(|node| node.wireguard);
                let wireguard = key.map(wireguard_of).or(held).unwrap_or_else(|| self.domain.wireguard());
                // The last of them is one that nobody can be reached at.
                let underlay = endpoint.map(|number| Underlay {
                    ipv6: None,
                    ipv4: Some([198, 51, 100, number].into()),
                    port: if number == 5 { 0 } else { 51820 },
                });
                let node = id.clone();
                let claim =
                    ClaimOverlay { node, wireguard, underlay, holder_seen_at: None, former_unproven: false };
                good(actor, Command::ClaimOverlay(Box::new(claim)))
            }
            Ask::Sessions { node, instance, sequence, complete, open, ended, most } => {
                let actor = self.node(*node, 0);
                let Actor::Node { id, .. } = &actor else { unreachable!() };
                let report = self.sessions(*sequence, *complete, open, ended);
                let instance = Label::parse(["one", "two"][usize::from(*instance)]).unwrap();
                let known =
                    self.domain.state.nodes.get(id).map(|node| report.changes(node, &instance, *most));
                let blank = || ReportSessions {
                    node: id.clone(),
                    instance: instance.clone(),
                    sequence: *sequence,
                    opened: report.open.clone(),
                    closed: report.ended.clone(),
                };
                let change = match known {
                    Some(SessionChanges::Some { change, lines, .. }) => {
                        assert!(lines <= *most, "more lines than there is room for");
                        change
                    }
                    // The rule is asked all the same.
                    Some(SessionChanges::None) | None => blank(),
                };
                good(actor, Command::ReportSessions(Box::new(change)))
            }
            Ask::Recover { token, again, claim, flaw } => {
                let recover = self.recover(*token, *again, *claim, *flaw);
                self.recoveries.push(recover.clone());
                good(Actor::Stranger, Command::Recover(Box::new(recover)))
            }
            Ask::EndRepair(number) => {
                let done = |node: &&Arc<Node>| node.quarantined && node.recovery.is_repaired();
                let repaired = self.domain.state.nodes.values().find(done).map(|node| node.id.clone());
                let node = repaired.unwrap_or_else(|| self.some_node(*number));
                good(Actor::Reconciler, Command::EndRepair { node })
            }
            Ask::Observe(heard) => good(Actor::Reconciler, self.observe(heard)),
            Ask::Silence(numbers, ago) => {
                let nodes = numbers.iter().map(|number| self.some_node(*number)).collect();
                let listening_since = self.domain.now.minus(Span::from_millis(*ago));
                good(Actor::Reconciler, Command::MarkInactive(Silence { nodes, listening_since }))
            }
            Ask::RaiseAlert { kind, node, detail } => {
                let node = node.map(|number| self.some_node(number));
                let detail = ["one", "two"][*detail].to_owned();
                good(Actor::Reconciler, Command::RaiseAlert(RaiseAlert { kind: *kind, node, detail }))
            }
            Ask::ClearAlert(back) => {
                good(Actor::Reconciler, Command::ClearAlert { alert: self.alert(*back) })
            }
            Ask::RenewOperator { name, with_unused } => {
                let name = self.some_operator(*name, |known| known.serial.is_some());
                let renew = self.domain.renew_operator(name.as_str());
                good(self.operator_with(name, *with_unused), renew)
            }
            Ask::UseRenewed(name) => {
                let name = self.some_operator(*name, |known| known.renewed.is_some());
                let first_use = Command::UseRenewedCertificate { name: name.clone() };
                good(self.operator_with(name, true), first_use)
            }
            Ask::Place(number, _) if number % 3 == 1 => {
                let narrowed = |key: &&OperatorKey| !key.vclusters.is_all();
                let key = self.domain.state.operator_keys.values().find(narrowed).map(|key| key.id);
                good(key.map_or_else(local, |id| Actor::Key { id }), self.operators_command(ask))
            }
            _ => good(local(), self.operators_command(ask)),
        }
    }

    /// One of whom this holds, if there is any: most have no certificate, and few have renewed it.
    fn some_operator(&self, number: usize, holds: impl Fn(&Operator) -> bool) -> OperatorName {
        let fitting: Vec<_> = self.domain.state.operators.iter().filter(|(_, known)| holds(known)).collect();
        match fitting.len() {
            0 => operator(OPERATORS[number]),
            many => fitting[number % many].0.clone(),
        }
    }

    /// An operator with the certificate in use, or with the one that a renewal issued, if there is one.
    fn operator_with(&mut self, name: OperatorName, unused: bool) -> Actor {
        let known = self.domain.state.operators.get(&name);
        let renewed = known.and_then(|known| known.renewed.clone()).filter(|_| unused);
        let serial = renewed.or_else(|| known.and_then(|known| known.serial.clone()));
        Actor::Operator { name, serial: serial.unwrap_or_else(|| self.domain.serial()) }
    }

    /// What operators ask for.
    fn operators_command(&mut self, ask: &Ask) -> Command {
        match ask {
            Ask::InitializeDomain => self.domain.found(),
            Ask::Mint { tenant: t, node: n, profile: p, ttl, reuse } => {
                let mut create = self.domain.token_request();
                create.tenant = tenant(TENANTS[*t]);
                create.node = n.map(|number| node(NODES[number]));
                create.profile = p.map(|number| profile(PROFILES[number]));
                create.ttl = ttl.map(Span::from_millis);
                if let Some(known) = self.tokens.last().filter(|_| *reuse) {
                    create.hash = known.hash;
                }
                Command::CreateToken(create)
            }
            Ask::Revoke { token } => Command::RevokeToken { token: self.token(*token).id },
            Ask::Tenant(number) => create_tenant(TENANTS[*number]),
            Ask::AddOperator { name, role, tenants, with_certificate, narrowed } => {
                let add = self.domain.add_operator(OPERATORS[*name], *role, scope(tenants));
                let Command::AddOperator(mut add) = add else { unreachable!() };
                add.vclusters = narrow(*narrowed);
                if !*with_certificate {
                    add.certificate = None;
                }
                Command::AddOperator(add)
            }
            Ask::RemoveOperator(name) => {
                Command::RemoveOperator { name: operator(OPERATORS[*name]), keys_made: true }
            }
            Ask::CreateKey { role, tenants, ttl, reuse, narrowed } => {
                let mut create = self.domain.key_request(*role, scope(tenants));
                create.vclusters = narrow(*narrowed);
                create.ttl = Span::from_millis(*ttl);
                let last = self.keys.last().and_then(|id| self.domain.state.operator_keys.get(id));
                if let Some(known) = last.filter(|_| *reuse && *ttl % 8 == 0) {
                    create = CreateOperatorKey { hash: known.hash, ..create };
                }
                Command::CreateOperatorKey(create)
            }
            Ask::RevokeKey(back) => Command::RevokeOperatorKey { key: self.key(*back) },
            Ask::Policy(key, value) => set_policy(key, value),
            Ask::AcknowledgeAlert(back) => {
                Command::AcknowledgeAlert { alert: self.alert(*back), dated: true }
            }
            Ask::Care(number, care) => cared(self.cared_for(*number, *care), *care),
            Ask::Roll(roll) => self.roll(*roll),
            Ask::Repair { node, ttl } => {
                let (node, mint) = (self.some_node(*node), self.domain.drawn());
                let (ttl, profile) = (ttl.map(Span::from_millis), Label::parse("default").unwrap());
                Command::IssueRepairBundle(IssueRepairBundle { node, mint, ttl, profile, endpoint: None })
            }
            Ask::AcceptClock => {
                let (from, to, confirm) = (self.domain.state.at, self.domain.now, Confirmation::NotAsked);
                Command::AcceptClock(AcceptClock { from, to, confirm })
            }
            _ => self.machines_command(ask),
        }
    }

    /// What operators ask for about machines and vClusters.
    fn machines_command(&mut self, ask: &Ask) -> Command {
        match ask {
            Ask::RegisterHardware { node, machine, tenant: t, vcluster } => {
                Command::RegisterHardware(Box::new(RegisterHardware {
                    node: crate::support::node(MACHINES[*node]),
                    tenant: tenant(TENANTS[*t]),
                    profile: None,
                    identity: identity(*machine),
                    vcluster: vcluster.map(vcluster_of),
                    alert: None,
                }))
            }
            Ask::CreateVcluster { vcluster, tenant: t } => Command::CreateVcluster(CreateVcluster {
                vcluster: vcluster_of(*vcluster),
                tenant: tenant(TENANTS[*t]),
            }),
            Ask::RemoveVcluster(number) => {
                // Mostly one that nobody is in.
                let empty = |id: &&VclusterId| self.domain.state.nodes_in(id).next().is_none();
                let empty =
                    self.domain.state.vclusters.keys().find(empty).filter(|_| number.is_multiple_of(2));
                Command::RemoveVcluster { vcluster: empty.cloned().unwrap_or_else(|| vcluster_of(*number)) }
            }
            Ask::Place(number, placing) => {
                // Mostly one for whom it means something.
                let placed = !matches!(placing, Placing::Assign(_)) || *number == 4;
                let fits = |node: &&Arc<Node>| node.vcluster.is_some() == placed && !node.state.is_gone();
                let fitting =
                    self.domain.state.nodes.values().find(fits).filter(|_| number.is_multiple_of(2));
                let node = fitting.map_or_else(|| self.some_node(*number), |node| node.id.clone());
                match placing {
                    Placing::Assign(to) => Command::Assign { node, vcluster: vcluster_of(*to) },
                    Placing::Unassign => Command::Unassign { node },
                    Placing::Move(to) => Command::Move { node, vcluster: vcluster_of(*to) },
                }
            }
            Ask::Config(of, text) => {
                let target = match of {
                    Configured::Defaults => ConfigTarget::Defaults,
                    Configured::Vcluster(number) => ConfigTarget::Vcluster(vcluster_of(*number)),
                    Configured::Node(number) => ConfigTarget::Node(self.some_node(*number)),
                };
                let document = ConfigDocument {
                    text: format!("{{\"a\":{text}}}").into(),
                    checksum: Checksum::new([*text; 32]),
                };
                Command::SetConfig(SetConfig { target, document })
            }
            other => panic!("{other:?} is not for operators"),
        }
    }

    /// What a machine says of itself: half of the time what a node is registered with, and one interface more.
    fn claimed(&self, machine: Machine, number: usize) -> HardwareIdentity {
        let known = self.domain.state.nodes.values().filter_map(|node| node.identity.as_ref());
        let known: Vec<_> = known.collect();
        let mut claimed = identity(machine);
        if let Some(registered) = nth_back(known.iter(), number).filter(|_| machine.serial.is_none()) {
            claimed = registered.as_ref().clone();
            claimed.macs.extend(machine.second.map(interface).iter().flat_map(|mac| Mac::parse(mac)));
        }
        claimed
    }

    fn some_node(&self, number: usize) -> NodeId {
        self.any_node(number).unwrap_or_else(|| node("nobody"))
    }

    /// Mostly one for whom it means something.
    fn cared_for(&self, number: usize, care: Care) -> NodeId {
        let fits = |node: &Node| match care {
            Care::Undrain => node.draining,
            Care::Release => node.quarantined,
            Care::Reinstate => node.state.is_gone(),
            Care::Decommission(_) => !node.sessions.open.is_empty(),
            Care::Rekey => node.wireguard.is_some() && !node.state.is_gone(),
            _ => false,
        };
        let fitting = self.domain.state.nodes.values().find(|node| fits(node));
        let fitting = fitting.filter(|_| number.is_multiple_of(2)).map(|node| node.id.clone());
        fitting.unwrap_or_else(|| self.some_node(number))
    }

    /// What a host says of its sessions, by a clock that may be ahead.
    fn sessions(&self, sequence: u64, complete: bool, open: &[u8], ended: &[u8]) -> SessionReport {
        let session = |number: u8| Session {
            id: SessionId(Ulid::new(Timestamp::from_secs(1), [number; 10])),
            kind: SessionKind::ALL[usize::from(number % 2)],
            user: Label::parse("alice").unwrap(),
            opened_at: self.domain.now.plus(Span::from_secs(u64::from(number))).minus(Span::from_secs(3)),
        };
        let closed = |(at, number): (usize, &u8)| ClosedSession {
            session: session(*number),
            reason: CloseReason::Ended,
            exit_status: None,
            sequence: sequence.saturating_sub(at as u64),
        };
        SessionReport {
            sequence,
            complete,
            open: open.iter().map(|number| session(*number)).collect(),
            ended: ended.iter().enumerate().map(closed).collect(),
        }
    }

    /// The same of issuers.
    fn issuer(&self, number: usize, wanted: IssuerState) -> IssuerId {
        let issuers = &self.domain.state.issuers;
        let fitting = issuers.values().find(|issuer| issuer.state == wanted).filter(|_| number > 0);
        let other = || nth_back(issuers.keys(), number).cloned().unwrap_or_else(|| issuer("i1"));
        fitting.map_or_else(other, |issuer| issuer.id.clone())
    }

    fn alert(&mut self, back: usize) -> AlertId {
        let known = nth_back(self.domain.state.alerts.keys(), back).copied();
        known.unwrap_or_else(|| AlertId(self.domain.ulid()))
    }

    /// Now and then a host says something of itself, by a clock that may be wrong.
    fn report(&self, offset: i64) -> Option<Arc<Report>> {
        let (now, by) = (self.domain.now, Span::from_millis(offset.unsigned_abs()));
        let said = Report {
            class: Class::ALL.iter().copied().nth(usize::try_from(offset.unsigned_abs() % 16).unwrap_or(0)),
            clock_offset_ms: offset,
            ..Report::blank(if offset < 0 { now.minus(by) } else { now.plus(by) })
        };
        (offset % 3 == 0).then(|| Arc::new(said))
    }

    fn observe(&mut self, heard: &[(usize, i64, bool)]) -> Command {
        let sighting = |(number, offset, streams): &(usize, i64, bool)| {
            let (now, by) = (self.domain.now, Span::from_millis(offset.unsigned_abs()));
            Sighting {
                node: self.some_node(*number),
                seen: if *offset < 0 { now.minus(by) } else { now.plus(by) },
                instance: Label::parse(&format!("start-{}", offset % 7 + 7)).ok().filter(|_| *streams),
                // Not every host says it, and some are behind.
                bundle: match offset.unsigned_abs() % 5 {
                    0 => None,
                    1 => Some(offset.unsigned_abs() % 7),
                    _ => Some(self.domain.state.bundle_version),
                },
                agent_version: None,
                recovery_kept: None,
                report: self.report(*offset),
                by_svid: offset % 11 == 0,
            }
        };
        Command::Observe(heard.iter().map(sighting).collect())
    }

    fn keeping(&mut self, id: &NodeId, kept: Option<usize>, wants: bool) -> Keeping {
        let tokens = self.domain.state.nodes.get(id).map(|node| node.recovery.tokens.clone());
        let tokens = tokens.unwrap_or_default();
        let kept = kept.and_then(|back| tokens.iter().rev().nth(back)).map(|token| token.id);
        keeping(kept, wants.then(|| self.domain.drawn()))
    }

    fn recover(
        &mut self,
        back: usize,
        again: bool,
        claim: Option<usize>,
        flaw: Option<RecoverFlaw>,
    ) -> Recover {
        let known = nth_back(self.recovery_tokens.iter(), back).copied();
        let token = known.unwrap_or_else(|| self.domain.drawn());
        let mut recover = self.domain.recovery(token.hash);
        recover.node = claim.map(|number| self.some_node(number));
        if let Some(before) = self.recoveries.last().filter(|_| again) {
            (recover.token, recover.key) = (before.token, before.key);
        }
        if let (Some(flaw), Some(prepared)) = (flaw, &mut recover.prepared) {
            let certificate = &mut prepared.certificate;
            match flaw {
                RecoverFlaw::Missing => recover.prepared = None,
                RecoverFlaw::OtherKey => certificate.key = KeyHash::new([0xee; 32]),
                RecoverFlaw::OtherIssuer => certificate.issuer = issuer("never"),
                RecoverFlaw::OtherNode => prepared.node = node("someone-else"),
                RecoverFlaw::TooLongLived => {
                    certificate.not_after = certificate.not_after.plus(Span::from_millis(1))
                }
                RecoverFlaw::OtherEnd => recover.bundle_ends = Some(Timestamp::from_secs(1)),
            }
        }
        recover
    }

    fn renew(
        &mut self,
        (number, serial): (usize, usize),
        key: Option<u8>,
        flaw: Option<RenewFlaw>,
    ) -> (Actor, Command, bool) {
        let actor = self.holder(number, serial);
        let Actor::Node { id, .. } = &actor else { unreachable!() };
        let current =
            self.domain.state.nodes.get(id).and_then(|node| self.domain.state.current_certificate(node));
        let key = match (key, current) {
            (Some(0), Some((_, certificate))) => certificate.key,
            (Some(number), _) => KeyHash::new([number; 32]),
            (None, _) => KeyHash::new(self.domain.digest()),
        };
        let mut renew = self.domain.renewal(id, key);
        renew.keeping = self.keeping(id, Some(0), serial == 0);
        if let (Some(flaw), Some(certificate)) = (flaw, &mut renew.prepared) {
            match flaw {
                RenewFlaw::Missing => renew.prepared = None,
                RenewFlaw::OtherKey => certificate.key = KeyHash::new([0xee; 32]),
                RenewFlaw::OtherIssuer => certificate.issuer = issuer("never"),
                RenewFlaw::UsedSerial => certificate.serial = self.used_serial().unwrap(),
                RenewFlaw::TooLongLived => {
                    certificate.not_after = certificate.not_after.plus(Span::from_millis(1))
                }
            }
        }
        // The same key again is answered from the record, whatever was prepared.
        (actor, Command::Renew(Box::new(renew)), false)
    }

    /// What a replica publishes that has started, and whether something is wrong with it.
    fn publish(&mut self, number: u64, flaw: Option<PublishFlaw>) -> (Actor, Command, bool) {
        let (name, actor) = (format!("e{}", self.domain.draw()), replica(number));
        let Command::PublishIssuer(mut publish) = self.domain.publish(&name) else { unreachable!() };
        publish.replica = ReplicaId(number);
        let at = self.domain.now.max(self.domain.state.at);
        let known = self.domain.state.issuers.values().next_back().expect("an issuer is never alone");
        match flaw {
            None => {}
            // One that nobody here speaks for.
            Some(PublishFlaw::OtherReplica) => publish.replica = ReplicaId(number + 100),
            Some(PublishFlaw::KnownId) => publish.issuer = known.id.clone(),
            Some(PublishFlaw::KnownName) => publish.subject = known.subject.clone(),
            Some(PublishFlaw::TooLong) => {
                publish.not_after = publish.not_after.plus(Span::from_millis(1));
            }
            Some(PublishFlaw::Over) => publish.not_after = at,
            Some(PublishFlaw::NotYet) => publish.not_before = at.plus(Span::from_millis(60_001)),
        }
        (actor, Command::PublishIssuer(publish), flaw.is_some())
    }

    /// What a replica does about certificates that a step-ca signs, and whether something is wrong with it.
    fn issuing(&mut self, issuing: Issuing) -> (Actor, Command, bool) {
        match issuing {
            Issuing::Begin { replica: number, flaw } => self.begin_issuance(number, flaw),
            Issuing::End { intent, replica: number, end } => {
                let known = nth_back(self.domain.state.intents.keys(), intent).copied();
                let intent = known.unwrap_or_else(|| RequestId(self.domain.ulid()));
                let end = match end {
                    Came::NotSigned => IntentEnd::NotSigned,
                    Came::NotRecorded(signed) => {
                        IntentEnd::NotRecorded { serial: self.signed(intent, signed) }
                    }
                    Came::Misbehaved(signed) => IntentEnd::Misbehaved {
                        serial: signed.map(|signed| self.signed(intent, signed)),
                        what: "another key".to_owned(),
                    },
                };
                let end = EndIssuance { replica: ReplicaId(number), intent, end };
                (replica(number), Command::EndIssuance(Box::new(end)), false)
            }
            Issuing::Deliver { count, other } => {
                let state = &self.domain.state;
                let owed = &state.undelivered_revocations;
                let unowed = state.certificates.keys().find(|serial| other && !owed.contains_key(*serial));
                let serials = owed.keys().take(count).chain(unowed).cloned().collect();
                (Actor::Reconciler, Command::RecordDeliveredRevocations { serials }, false)
            }
        }
    }

    fn begin_issuance(&mut self, number: u64, flaw: Option<IntentFlaw>) -> (Actor, Command, bool) {
        let state = &self.domain.state;
        let name = state.domain.as_ref().expect("a domain").name.clone();
        let ends = state.step_ca_issuer().map(|(issuer, _)| issuer.not_after);
        let at = self.domain.now.max(state.at);
        let asked = state.intents.values().next().map(|intent| intent.serial.clone());
        let owed = state.undelivered_revocations.keys().next().cloned();
        let mut begin = BeginIssuance {
            replica: ReplicaId(number),
            issuer: issuer("c1"),
            serial: self.domain.serial(),
            key: KeyHash::new(self.domain.digest()),
            subject: SpiffeId::agent(&name, &tenant("default"), &node("never")),
            not_after: ends.unwrap_or(at).min(at.plus(Span::from_hours(1))),
        };
        let taken = |serial: Option<Serial>, begin: &mut BeginIssuance| match serial {
            Some(serial) => {
                begin.serial = serial;
                true
            }
            None => false,
        };
        let spoiled = match flaw {
            None => false,
            // One that nobody here speaks for.
            Some(IntentFlaw::OtherReplica) => {
                begin.replica = ReplicaId(number + 100);
                true
            }
            Some(IntentFlaw::OtherIssuer) => {
                begin.issuer = issuer("n1");
                true
            }
            Some(IntentFlaw::OtherSubject) => {
                begin.subject = SpiffeId::operator(&name, &operator("alice"));
                true
            }
            Some(IntentFlaw::UsedSerial) => taken(self.used_serial(), &mut begin),
            Some(IntentFlaw::AskedSerial) => taken(asked, &mut begin),
            Some(IntentFlaw::OwedSerial) => taken(owed, &mut begin),
            Some(IntentFlaw::Over) => {
                begin.not_after = at;
                true
            }
            Some(IntentFlaw::OutlivesIssuer) => {
                begin.not_after = ends.unwrap_or(at).plus(Span::from_millis(1));
                true
            }
        };
        (replica(number), Command::BeginIssuance(Box::new(begin)), spoiled)
    }

    /// The serial of what came of an intent.
    fn signed(&mut self, intent: RequestId, signed: Signed) -> Serial {
        let intents = &self.domain.state.intents;
        let serial = match signed {
            Signed::AsAsked => intents.get(&intent).map(|intent| intent.serial.clone()),
            Signed::Otherwise => None,
            Signed::OnRecord => self.domain.state.certificates.keys().next_back().cloned(),
            Signed::OfAnother => {
                intents.iter().find(|(id, _)| **id != intent).map(|(_, other)| other.serial.clone())
            }
        };
        serial.unwrap_or_else(|| self.domain.serial())
    }

    /// What is done about replicas, and whether something is wrong with it.
    fn joining(&mut self, joining: Joining) -> (Actor, Command, bool) {
        match joining {
            Joining::Mint { ttl, reuse } => {
                let request = self.domain.token_request();
                let known = self.replica_tokens.last().filter(|_| reuse).map(|token| token.hash);
                let (token, hash) = (request.token, known.unwrap_or(request.hash));
                (local(), Command::CreateReplicaToken { token, hash, ttl: Span::from_millis(ttl) }, false)
            }
            Joining::Join { token, peer, flaw } => {
                // Now and then the token of a node.
                let known = nth_back(self.replica_tokens.iter(), token).copied();
                let token = known.unwrap_or_else(|| self.token(0));
                let mut join = self.domain.join(token);
                join.peer = peer_address(peer);
                let spoiled = flaw.is_some_and(|flaw| self.spoil(flaw, &mut join.certificate));
                (Actor::Stranger, Command::JoinReplica(join), spoiled)
            }
            Joining::Announce { replica: number, peer, renewed, flaw } => {
                let mut announce = self.domain.announce(number, renewed);
                let known = self.domain.state.replicas.get(&ReplicaId(number));
                let stays = known.map_or_else(|| peer_address(0), |known| known.peer.clone());
                announce.peer = peer.map_or(stays, peer_address);
                let certificate = announce.certificate.as_mut();
                let spoiled =
                    flaw.zip(certificate).is_some_and(|(flaw, certificate)| self.spoil(flaw, certificate));
                (replica(number), Command::AnnounceReplica(announce), spoiled)
            }
            Joining::Remove { replica, forced, confirmed } => {
                let confirm = Confirmation::Asked(confirmed.then(|| replica.to_string()));
                let spoiled = forced && !confirmed && self.domain.state.member(ReplicaId(replica)).is_ok();
                (local(), Command::RemoveReplica { replica: ReplicaId(replica), confirm, forced }, spoiled)
            }
        }
    }

    /// Spoils the certificate of a replica; false where it cannot be spoiled in this way.
    fn spoil(&self, flaw: JoinFlaw, certificate: &mut Issued) -> bool {
        let at = self.domain.now.max(self.domain.state.at);
        let name = certificate.subject.domain.clone();
        match flaw {
            JoinFlaw::OtherId => certificate.subject = SpiffeId::replica(&name, ReplicaId(77)),
            JoinFlaw::OtherSubject => certificate.subject = SpiffeId::operator(&name, &operator("alice")),
            JoinFlaw::OtherIssuer => certificate.issuer = issuer("never"),
            JoinFlaw::UsedSerial => certificate.serial = self.used_serial().expect("one on record"),
            JoinFlaw::Over => certificate.not_after = at,
            JoinFlaw::OutlivesIssuer => {
                let Some(issuer) = self.domain.state.server_issuer() else { return false };
                certificate.not_after = issuer.not_after.plus(Span::from_millis(1));
            }
        }
        true
    }

    /// What answers the requests that are out, and whether something is wrong with it.
    fn answer(&mut self, flaw: Option<AnswerFlaw>) -> (Actor, Command, bool) {
        let number = self.domain.draw() + 100;
        let mut answer = self.domain.roll_answer(number);
        let state = &self.domain.state;
        let known = state.issuers.values().next_back().expect("an issuer is never alone");
        let spoiled = match (flaw, answer.issuers.first_mut()) {
            (None, _) | (_, None) => false,
            (Some(AnswerFlaw::Half), _) => answer.issuers.pop().is_some(),
            (Some(AnswerFlaw::OtherRoot), Some(first)) => {
                first.root = Some(Fingerprint::new([0xee; 32]));
                true
            }
            (Some(AnswerFlaw::KnownRoot), Some(first)) => {
                first.root = Some(state.roots[0].fingerprint);
                answer.root.as_mut().map(|root| root.fingerprint = state.roots[0].fingerprint).is_some()
            }
            (Some(AnswerFlaw::OutlivesRoot), Some(first)) => {
                let end = answer.root.as_ref().map(|root| root.not_after);
                let end = end.or(state.active_root().map(|root| root.not_after));
                first.not_after = end.unwrap().plus(Span::from_millis(1));
                true
            }
            (Some(AnswerFlaw::KnownName), Some(first)) => {
                first.subject = known.subject.clone();
                true
            }
            (Some(AnswerFlaw::OtherKey), Some(first)) => {
                first.sealed_key = b"other".to_vec();
                true
            }
        };
        (local(), Command::AnswerRoll(Box::new(answer)), spoiled)
    }

    /// The next list of a root, and whether something is wrong with it.
    fn import_list(&mut self, number: usize, flaw: Option<ListFlaw>) -> (Actor, Command, bool) {
        let serial = self.domain.serial();
        let state = &self.domain.state;
        let root = nth_back(state.roots.iter(), number).expect("a root").fingerprint;
        let trusted = state.trusted_roots().any(|known| known.fingerprint == root);
        let known = state.lists.get(&root);
        let mut list = RootList {
            number: known.map_or(10, |known| known.number + 10),
            denied: known.map(|known| known.denied.clone()).unwrap_or_default(),
            der: serial.as_str().as_bytes().to_vec(),
        };
        list.denied.push(serial);
        let mut import = ImportRootList {
            root,
            list,
            issuers: Vec::new(),
            confirm: Confirmation::Asked(None),
            asks_for_nodes: false,
        };
        let spoiled = match (flaw, known) {
            (None, Some(known)) if number == 2 => {
                import.list = known.clone();
                false
            }
            (None, _) => false,
            (Some(ListFlaw::UnknownRoot), _) => {
                import.root = Fingerprint::new([0xee; 32]);
                true
            }
            (Some(ListFlaw::Unconfirmed), _) => {
                import.issuers = state.server_issuer().map(|issuer| issuer.id.clone()).into_iter().collect();
                !import.issuers.is_empty()
            }
            (Some(_), None) => false,
            (Some(ListFlaw::Older), Some(known)) => {
                import.list.number = known.number - 1;
                true
            }
            (Some(ListFlaw::SameNumber), Some(known)) => {
                import.list.number = known.number;
                true
            }
            (Some(ListFlaw::Drops), Some(_)) => {
                drop(import.list.denied.remove(0));
                true
            }
        };
        (local(), Command::ImportRootList(Box::new(import)), spoiled || !trusted)
    }

    /// Whether a roll waits for hosts.
    fn is_awaited(&self) -> bool {
        let state = &self.domain.state;
        let prepared = state.domain_issuers_in(IssuerState::Prepared).next().is_some();
        let (current, total) = state.adoption();
        (prepared || state.root_in(RootState::Retiring).is_some()) && current < total
    }

    fn next_of_roll(&self, usage: IssuerUse, new_root: bool, patient: bool) -> Roll {
        let state = &self.domain.state;
        if state.pending_roll.is_some() {
            Roll::Answer { flaw: None }
        } else if state.domain_issuers_in(IssuerState::Prepared).next().is_some() {
            Roll::ActivateAll { force: !patient }
        } else if new_root && state.root_in(RootState::Retiring).is_some() {
            Roll::RetireRoot { number: 1, force: !patient }
        } else {
            Roll::Begin { usage, new_root, exactly: false }
        }
    }

    /// What is rolled here, mostly.
    fn wanted(&self, usage: IssuerUse, new_root: bool, exactly: bool) -> Wanted {
        let of_use = match usage {
            IssuerUse::Both => BOTH,
            IssuerUse::Node => NODE,
            IssuerUse::Server => SERVER,
        };
        let whole = !exactly && (new_root || !self.domain.state.is_divided());
        Wanted { new_root, ..if whole { BOTH } else { of_use } }
    }

    fn roll(&mut self, roll: Roll) -> Command {
        match roll {
            Roll::Publish { replica, flaw } => self.publish(replica, flaw).1,
            Roll::Answer { flaw } => self.answer(flaw).1,
            Roll::ImportList { number, flaw } => self.import_list(number, flaw).1,
            Roll::Begin { usage, new_root, exactly } => {
                let wanted = self.wanted(usage, new_root, exactly);
                Command::BeginRoll(self.domain.pending_roll(wanted))
            }
            Roll::Next { usage, new_root, patient } => {
                let next = self.next_of_roll(usage, new_root, patient);
                self.roll(next)
            }
            Roll::ActivateAll { force } => self.domain.activate_all(force),
            Roll::Abandon => Command::AbandonRoll,
            Roll::RetireRoot { number, force } => {
                let state = &self.domain.state;
                let retiring = state.root_in(RootState::Retiring).filter(|_| number > 0);
                let root = retiring.or(nth_back(state.roots.iter(), number)).expect("a root");
                Command::RetireRoot {
                    root: root.fingerprint,
                    force,
                    confirm: Confirmation::NotAsked,
                    counts_operators: false,
                }
            }
            Roll::Prepare => Command::PrepareRoll(self.domain.roll_request()),
            Roll::Certify { other_key } => {
                let name = format!("i{}", self.domain.draw() + 100);
                let mut next = self.domain.next_issuer(&name);
                if other_key {
                    next.sealed_key = b"other".to_vec();
                }
                Command::CertifyRoll(Box::new(next))
            }
            Roll::Activate { number, force } => {
                activate(self.issuer(number, IssuerState::Prepared).as_str(), force)
            }
            Roll::Retire(number) => {
                Command::RetireIssuer { issuer: self.issuer(number, IssuerState::Retiring), also: Vec::new() }
            }
            Roll::Revoke(number) => Command::RevokeIssuer {
                issuer: self.issuer(number, IssuerState::Active),
                reason: "lost".to_owned(),
                confirm: Confirmation::NotAsked,
                asks_for_holders: false,
            },
            Roll::ChangeStepCa { another } => {
                let mut new = self.domain.new_step_ca();
                let current = self.domain.state.step_ca_issuer().map(|(issuer, _)| issuer.clone());
                match current.filter(|_| !another) {
                    Some(known) => {
                        (new.issuer.id, new.issuer.fingerprint) = (known.id, known.fingerprint);
                    }
                    None => new.issuer.id = issuer(&format!("c{}", self.domain.draw())),
                }
                new.issuer.not_after = self.domain.state.at.plus(Span::from_days(365));
                Command::ChangeStepCa(Box::new(new))
            }
            Roll::Rewrap { whole } => {
                let anew = self.domain.draw().to_be_bytes().to_vec();
                let held = self.domain.state.issuers.values().filter(|issuer| !issuer.sealed_key.is_empty());
                let issuers = held.map(|issuer| (issuer.id.clone(), anew.clone().into()));
                let issuers = issuers.skip(usize::from(!whole)).collect();
                let roll = self.domain.state.roll.as_ref().map(|_| anew.clone().into());
                let pending = self.domain.state.pending_roll.as_ref().map(|pending| &pending.requests);
                let pending = pending.into_iter().flatten().map(|_| anew.clone().into()).collect();
                Command::Rewrap(Rewrap { issuers, audit: anew, roll, pending })
            }
        }
    }

    fn request(&mut self, wanted: &Request) -> (Enroll, bool) {
        self.request_by(wanted, None)
    }

    /// By hardware alone, where it is said; else by a token.
    fn request_by(&mut self, wanted: &Request, machine: Option<HardwareIdentity>) -> (Enroll, bool) {
        let token = self.token(wanted.token);
        let mut request = self.domain.request(token);
        match machine {
            Some(machine) => request.credential = Credential::Hardware(machine),
            None => {
                // Where it is demanded, mostly what is registered: or nobody would enroll any more.
                let demanded = self.domain.state.policy.requires(Attestor::Hardware);
                let known = Machine { interface: 0, second: None, serial: None };
                let machine = wanted.claimed.or_else(|| demanded.then_some(known));
                request.claimed = machine.map(|machine| self.claimed(machine, wanted.token));
            }
        }
        request.key = KeyHash::new([wanted.key; 32]);
        request.key_kind = wanted.kind;
        request.idempotency = wanted.idempotency.map(|number| IdempotencyHash::new([number; 32]));
        request.door = wanted.door;
        request.memory_storage = wanted.memory;
        request.requested_node = wanted.requested.map(|number| node(NODES[number]));
        request.wireguard = wanted.wireguard.map(wireguard_of);
        request.underlay = wanted.wireguard.map(|number| Underlay {
            ipv6: None,
            ipv4: None,
            port: 51820 + u16::from(number),
        });
        let mut request = self.domain.prepare(request);
        let spoiled = wanted.flaw.is_some_and(|flaw| flaw.spoil(&self.domain, &mut request));
        (request, spoiled)
    }

    fn again(&mut self, back: usize, other_key: bool, idempotency: Option<Option<u8>>) -> Enroll {
        let Some(mut request) = nth_back(self.requests.iter(), back).cloned() else {
            let token = self.token(UNKNOWN);
            return self.domain.request(token);
        };
        if other_key {
            request.key = KeyHash::new([0xaa; 32]);
        }
        if let Some(other) = idempotency {
            request.idempotency = other.map(|number| IdempotencyHash::new([number; 32]));
        }
        request.prepared = None;
        self.domain.prepare(request)
    }

    fn used_serial(&self) -> Option<Serial> {
        self.domain.state.certificates.keys().next().cloned()
    }
}

fn peer_address(number: u8) -> String {
    format!("peer-{number}:8444")
}

/// The latest but so many, beginning anew where there are not so many; none if it is meant to be unknown.
fn nth_back<T>(all: impl DoubleEndedIterator<Item = T> + ExactSizeIterator, number: usize) -> Option<T> {
    let count = all.len();
    if number == UNKNOWN || count == 0 { None } else { all.rev().nth(number % count) }
}

fn cared(node: NodeId, care: Care) -> Command {
    match care {
        Care::Drain(millis) => Command::Drain { node, within: millis.map(Span::from_millis) },
        Care::Undrain => Command::Undrain { node },
        Care::Quarantine => Command::Quarantine { node, reason: "odd".to_owned() },
        Care::Release => Command::Release { node },
        Care::Revoke => Command::Revoke { node, reason: "stolen".to_owned() },
        Care::Decommission(force) => Command::Decommission { node, force },
        Care::Reinstate => Command::Reinstate { node, as_registered: true },
        Care::Rotate => Command::Rotate { node },
        Care::Rekey => Command::OrderRekey { node, replace: false },
        Care::RevokeRecoveryTokens => Command::RevokeRecoveryTokens { node },
        Care::Describe(name) => {
            let name = name.map(|number| Title::parse(["one", "two"][usize::from(number)]).unwrap());
            let name = name.map_or(Change::Forget, Change::Set);
            Command::Describe(Describe { node, name, labels: Change::Keep, relabel: Relabel::default() })
        }
    }
}

/// One of a few keys.
fn wireguard_of(number: u8) -> Wireguard {
    let mut bytes = digest(u64::MAX - u64::from(number));
    bytes[31] &= 0x7f;
    let key = WireguardKey::new(bytes).unwrap();
    Wireguard { key, fingerprint: Fingerprint::new([number; 32]) }
}

fn vcluster_of(number: usize) -> VclusterId {
    vcluster(VCLUSTERS.get(number).unwrap_or(&"nowhere"))
}

fn narrow(number: Option<usize>) -> Vclusters {
    Vclusters::narrowed(number.map(vcluster_of).into_iter().collect())
}

fn interface(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

fn identity(machine: Machine) -> HardwareIdentity {
    let macs: Vec<String> = [machine.interface].into_iter().chain(machine.second).map(interface).collect();
    let macs: Vec<&str> = macs.iter().map(String::as_str).collect();
    hardware(&macs, machine.serial.map_or("", |number| ["SN1", "SN2"][usize::from(number)]))
}

fn scope(numbers: &Scope) -> Tenants {
    match numbers {
        None => Tenants::All,
        Some(numbers) => Tenants::Only(numbers.iter().map(|number| tenant(TENANTS[*number])).collect()),
    }
}
