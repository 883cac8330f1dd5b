//! A founded domain, and the one door by which every test changes it.

mod promises;

use lifecycle::host::Class;
use lifecycle::names::{
    AlertId, ClusterId, Fingerprint, IssuerId, IssuerUse, KeyHash, KeyId, KeyKind, Label, Labels, NodeId,
    OperatorName, ProfileName, ReplicaId, RequestId, SecretHash, Serial, Source, Span, SpiffeId, SpiffePath,
    TenantId, Timestamp, TokenId, TrustDomain, Ulid, VclusterId, WireguardKey,
};
use lifecycle::registry::{
    ActivateIssuer, Actor, AddOperator, Admission, AnnounceReplica, AnswerRoll, Applied, BeginIssuance,
    Claim, Command, Confirm, ConfirmStatus, Confirmation, CreateOperatorKey, CreateTenant, CreateToken,
    CreateVcluster, Credential, Door, EPHEMERAL_LIFE, Enroll, Envelope, Event, ExternalIssuance,
    HardwareIdentity, HardwareText, InitializeDomain, Issued, IssuerKind, IssuerRequest, IssuerState,
    JoinReplica, Keeping, Mint, NewIssuer, NewRoot, NewStepCa, NodeChoice, NodeSigner, NodeState, Outcome,
    PendingRoll, PrepareRoll, Prepared, PublishIssuer, Recover, RecoveryKind, Register, RegisterHardware,
    Renew, RenewOperator, Role, ServerCertificate, SetPolicy, Sighting, Silence, State, StepCaAccess,
    StepCaIntermediate, Tenants, Vclusters, Wireguard, admit, apply, would_apply,
};

use std::net::{IpAddr, Ipv4Addr};

/// What a command should come to: its answer, and the audit names of its events.
#[derive(Debug)]
pub struct Expect {
    refused: Option<&'static str>,
    events: &'static [&'static str],
}

pub fn granted(events: &'static [&'static str]) -> Expect {
    Expect { refused: None, events }
}

/// Refused, and nothing happened.
pub fn refused(code: &'static str) -> Expect {
    Expect { refused: Some(code), events: &[] }
}

/// Refused, and that had a consequence.
pub fn refused_with(code: &'static str, events: &'static [&'static str]) -> Expect {
    Expect { refused: Some(code), events }
}

/// The door: given a domain, when an actor gives a command, then expect. Answers with the events.
#[track_caller]
pub fn check(given: &mut Domain, (actor, command): (Actor, Command), expect: Expect) -> Vec<Event> {
    let applied = given.give(actor, command);
    let code = applied.answer.as_ref().err().map(|rejection| rejection.code());
    assert_eq!(code, expect.refused, "{:?}", applied.answer);
    assert_eq!(names(&applied.events), expect.events);
    applied.events
}

pub fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::name).collect()
}

pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Where every command comes from.
pub const SOURCE: Source = Source::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
pub const ISSUER_LIFE: Span = Span::from_days(365);

/// A registry with a clock and a source of ever new ids beside it.
#[derive(Debug, Clone)]
pub struct Domain {
    pub state: State,
    /// What the leader's clock says.
    pub now: Timestamp,
    drawn: u64,
    /// What replicas have asked an external issuer for, oldest first, for whoever remembers all steps.
    pub begun: Vec<Begun>,
}

/// A step that was taken while something was prepared.
#[derive(Debug, Clone)]
pub struct Begun {
    pub before: State,
    pub after: State,
    pub envelope: Envelope,
    pub at: Timestamp,
    pub applied: Applied,
}

#[derive(Debug, Clone, Copy)]
pub struct Minted {
    pub id: TokenId,
    pub hash: SecretHash,
}

#[derive(Debug, Clone)]
pub struct Enrolled {
    pub node: NodeId,
    pub serial: Serial,
    /// What was asked, to ask it again.
    pub request: Enroll,
}

impl Enrolled {
    /// The node with the certificate of this enrollment.
    pub fn actor(&self) -> Actor {
        Actor::Node { id: self.node.clone(), serial: self.serial.clone() }
    }
}

/// Making a domain and passing time.
impl Domain {
    pub fn unfounded() -> Self {
        Self { state: State::default(), now: START, drawn: 0, begun: Vec::new() }
    }

    pub fn founded() -> Self {
        let mut domain = Self::unfounded();
        let found = domain.found();
        check(&mut domain, (local(), found), granted(&["domain.founded"]));
        domain
    }

    /// One in which replicas sign the certificates of nodes, the first of them with the issuer `e1`.
    pub fn ephemeral() -> Self {
        let mut domain = Self::unfounded();
        let found = domain.found_with(NodeSigner::Ephemeral);
        check(&mut domain, (local(), found), granted(&["domain.founded"]));
        domain.published("e1");
        domain
    }

    /// One in which a step-ca, `c1`, signs the certificates of nodes.
    pub fn step_ca() -> Self {
        let mut domain = Self::unfounded();
        let found = domain.found_step_ca();
        check(&mut domain, (local(), found), granted(&["domain.founded"]));
        domain
    }

    pub fn found_step_ca(&mut self) -> Command {
        let Command::InitializeDomain(mut found) = self.found_divided(NodeSigner::StepCa) else {
            unreachable!()
        };
        found.step_ca = Some(Box::new(self.new_step_ca()));
        Command::InitializeDomain(found)
    }

    pub fn new_step_ca(&mut self) -> NewStepCa {
        NewStepCa {
            issuer: NewIssuer {
                id: issuer("c1"),
                kind: IssuerKind::StepCa,
                subject: "CN=Smallstep root".to_owned(),
                certificate: b"step-ca".to_vec(),
                fingerprint: Fingerprint::new(self.digest()),
                not_after: START.plus(ISSUER_LIFE),
                sealed_key: b"sealed".to_vec(),
                usage: IssuerUse::Node,
                root: None,
            },
            access: StepCaAccess {
                url: "https://ca.example".to_owned(),
                provisioner: "enlist".to_owned(),
                key_id: "k1".to_owned(),
            },
        }
    }

    /// The intent for a certificate: its serial, and the id of the command that records it.
    pub fn begin_issuance(
        &mut self,
        subject: SpiffeId,
        key: KeyHash,
        not_after: Timestamp,
    ) -> (Serial, RequestId) {
        let asks = self.state.members().next().map_or(ReplicaId::FIRST, |member| member.id);
        let serial = self.serial();
        let begin = BeginIssuance {
            replica: asks,
            issuer: issuer("c1"),
            serial: serial.clone(),
            key,
            subject,
            not_after,
        };
        let (drawn, at) = (self.now.max(self.state.at), self.now);
        let command = Command::BeginIssuance(Box::new(begin));
        let envelope = self.envelope_drawn_at(drawn, Actor::Replica { id: asks }, command);
        let (before, intent) = (self.state.clone(), envelope.id);
        let applied = self.step(&envelope);
        self.begun.push(Begun { before, after: self.state.clone(), envelope, at, applied });
        (serial, intent)
    }

    /// The first replica has started again.
    #[track_caller]
    pub fn published(&mut self, name: &str) {
        let publish = self.publish(name);
        check(self, (replica(1), publish), granted(&["ca.published"]));
    }

    pub fn publish(&mut self, name: &str) -> Command {
        let at = self.now.max(self.state.at);
        let not_before = at.minus(Span::from_hours(1));
        Command::PublishIssuer(Box::new(PublishIssuer {
            replica: ReplicaId(1),
            issuer: issuer(name),
            subject: format!("CN={name}"),
            certificate: name.as_bytes().to_vec(),
            fingerprint: Fingerprint::new(self.digest()),
            not_before,
            not_after: not_before.plus(EPHEMERAL_LIFE),
        }))
    }

    pub fn found(&mut self) -> Command {
        self.found_with(NodeSigner::DomainIssuer)
    }

    /// One with an issuer for nodes and operators, `n1`, and one for the control plane, `s1`.
    pub fn divided() -> Self {
        let mut domain = Self::unfounded();
        let found = domain.found_divided(NodeSigner::DomainIssuer);
        check(&mut domain, (local(), found), granted(&["domain.founded"]));
        domain
    }

    pub fn found_divided(&mut self, node_signer: NodeSigner) -> Command {
        let Command::InitializeDomain(mut found) = self.found_with(node_signer) else { unreachable!() };
        let root = Some(found.root_fingerprint);
        let fingerprint = Fingerprint::new(self.digest());
        let node = NewIssuer { id: issuer("n1"), usage: IssuerUse::Node, root, ..found.issuer.clone() };
        let subject = "CN=Fleet server issuer".to_owned();
        let (id, usage) = (issuer("s1"), IssuerUse::Server);
        found.server_issuer = Some(NewIssuer { id, usage, subject, fingerprint, ..node.clone() });
        found.issuer = node;
        Command::InitializeDomain(found)
    }

    pub fn found_with(&mut self, node_signer: NodeSigner) -> Command {
        Command::InitializeDomain(Box::new(InitializeDomain {
            node_signer,
            domain: TrustDomain::parse("fleet.example").unwrap(),
            cluster: ClusterId(self.ulid()),
            overlay_prefix: "fd12:3456:789a::".parse().unwrap(),
            default_profile: ProfileName::default_profile(),
            root: b"root".to_vec(),
            root_fingerprint: Fingerprint::new(self.digest()),
            root_not_after: START.plus(Span::from_days(3650)),
            issuer: NewIssuer {
                id: issuer("i1"),
                kind: IssuerKind::Sealed,
                subject: "CN=Fleet issuer".to_owned(),
                certificate: b"issuer".to_vec(),
                fingerprint: Fingerprint::new(self.digest()),
                not_after: START.plus(ISSUER_LIFE),
                sealed_key: b"sealed".to_vec(),
                usage: IssuerUse::Both,
                root: None,
            },
            audit_certificate: b"audit".to_vec(),
            audit_sealed_key: b"sealed".to_vec(),
            server_issuer: None,
            step_ca: None,
            root_list: None,
        }))
    }

    pub fn pass(&mut self, span: Span) {
        self.now = self.now.plus(span);
    }

    /// An ever new number: what the real system draws by chance.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    pub fn digest(&mut self) -> [u8; 32] {
        digest(self.draw())
    }

    pub fn ulid(&mut self) -> Ulid {
        let now = self.now;
        self.ulid_at(now)
    }

    fn ulid_at(&mut self, at: Timestamp) -> Ulid {
        let mut chance = [0; 10];
        chance[2..].copy_from_slice(&self.draw().to_be_bytes());
        Ulid::new(at, chance)
    }

    pub fn serial(&mut self) -> Serial {
        Serial::parse(&format!("5e{:014x}", self.draw())).unwrap()
    }
}

/// Giving commands.
impl Domain {
    pub fn envelope(&mut self, actor: Actor, command: Command) -> Envelope {
        let now = self.now;
        self.envelope_drawn_at(now, actor, command)
    }

    pub fn envelope_drawn_at(&mut self, at: Timestamp, actor: Actor, command: Command) -> Envelope {
        Envelope {
            id: RequestId(self.ulid_at(at)),
            actor,
            source: SOURCE,
            request_id: None,
            correlation_id: None,
            command,
        }
    }

    #[track_caller]
    pub fn give(&mut self, actor: Actor, command: Command) -> Applied {
        let envelope = self.envelope(actor, command);
        self.step(&envelope)
    }

    /// Applies a command now, and holds the step against what is promised of every step.
    #[track_caller]
    pub fn step(&mut self, envelope: &Envelope) -> Applied {
        let before = self.state.clone();
        let foretold = would_apply(&before, envelope, self.now);
        let applied = apply(&mut self.state, envelope, self.now);
        assert_eq!(foretold, (applied.answer.clone(), !applied.events.is_empty()), "foretold otherwise");
        promises::check(&before, &self.state, self.now, envelope, &applied);
        applied
    }

    pub fn policy(&mut self, key: &str, value: &str) {
        check(self, (local(), set_policy(key, value)), granted(&["policy.changed"]));
    }

    pub fn tenant(&mut self, name: &str) -> TenantId {
        check(self, (local(), create_tenant(name)), granted(&["tenant.created"]));
        tenant(name)
    }
}

/// Tokens, enrollment, confirmation.
impl Domain {
    /// A request for a token of the default tenant, nothing else said.
    pub fn token_request(&mut self) -> CreateToken {
        CreateToken {
            token: TokenId(self.ulid()),
            hash: SecretHash::new(self.digest()),
            tenant: TenantId::default_tenant(),
            node: None,
            profile: None,
            ttl: None,
            name: None,
            labels: Labels::default(),
            connected: None,
            replace: false,
        }
    }

    pub fn mint(&mut self) -> Minted {
        self.mint_with(|_| ())
    }

    pub fn mint_pinned(&mut self, to: &NodeId) -> Minted {
        self.mint_with(|create| create.node = Some(to.clone()))
    }

    #[track_caller]
    pub fn mint_with(&mut self, change: impl FnOnce(&mut CreateToken)) -> Minted {
        let mut create = self.token_request();
        change(&mut create);
        let minted = Minted { id: create.token, hash: create.hash };
        check(self, (local(), Command::CreateToken(create)), granted(&["enrollment_token.created"]));
        minted
    }

    /// What a host sends: a new key, nothing else said, nothing prepared yet.
    pub fn request(&mut self, token: Minted) -> Enroll {
        Enroll {
            credential: Credential::Token(token.hash),
            key: KeyHash::new(self.digest()),
            key_kind: KeyKind::P256,
            idempotency: None,
            door: Door::Native,
            requested_node: None,
            wireguard: None,
            underlay: None,
            hardware: None,
            hostname: None,
            agent_version: None,
            prepared: None,
            replacement_alerts: true,
            conflict_alerts: true,
            holder_seen_at: None,
            claimed: None,
            memory_storage: false,
            strict: true,
        }
    }

    /// What the replica adds: a certificate that fits, if the registry would admit the request.
    pub fn prepare(&mut self, mut request: Enroll) -> Enroll {
        if let Ok(Admission::Fresh { tenant, profile, node }) = admit(&self.state, &request, &SOURCE) {
            let node = match node {
                NodeChoice::Pinned(id) | NodeChoice::Requested(id) => id,
                NodeChoice::Free => self::node(&format!("n{}", self.draw())),
            };
            let domain = self.state.domain.as_ref().unwrap().name.clone();
            let lifetime = self.state.policy.profiles[&profile].lifetime;
            let subject = SpiffeId::agent(&domain, &tenant, &node);
            let certificate = self.issue(subject, request.key, lifetime);
            request.prepared = Some(Prepared { node, tenant, profile, certificate });
        }
        request
    }

    /// A certificate, signed at the later of the replica's clock and the last applied moment. Where no issuer
    /// signs, by one that did.
    pub fn issue(&mut self, subject: SpiffeId, key: KeyHash, lifetime: Span) -> Issued {
        let of_node = matches!(subject.path, SpiffePath::Agent { .. });
        let external = of_node && self.state.has_step_ca();
        let signs = if external {
            self.state.step_ca_issuer().map(|(issuer, _)| issuer)
        } else if of_node && self.state.has_ephemeral_issuers() {
            self.state.ephemeral_issuer(ReplicaId(1))
        } else if matches!(subject.path, SpiffePath::Replica { .. }) {
            self.state.server_issuer()
        } else {
            self.state.client_issuer()
        };
        let signer = signs.map(|issuer| (issuer.id.clone(), issuer.not_after));
        let (issuer, end) = signer.unwrap_or_else(|| (issuer("i1"), Timestamp::from_millis(u64::MAX)));
        let signed_at = self.now.max(self.state.at);
        let not_after = signed_at.plus(lifetime).min(end);
        let (serial, external) = if external {
            let (serial, intent) = self.begin_issuance(subject.clone(), key, not_after);
            let not_before = signed_at.minus(Span::from_secs(60));
            let external = ExternalIssuance { intent, not_before, chain: vec![self.intermediate("step-1")] };
            (serial, Some(Box::new(external)))
        } else {
            (self.serial(), None)
        };
        Issued {
            external,
            fingerprint: Fingerprint::new(self.digest()),
            subject,
            key,
            issuer,
            signed_at,
            not_after,
            renew_at: signed_at.plus(Span::from_millis(not_after.since(signed_at).millis() / 2)),
            der: format!("certificate {serial}").into_bytes(),
            serial,
        }
    }

    /// An intermediate of step-ca.
    pub fn intermediate(&self, name: &str) -> StepCaIntermediate {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        StepCaIntermediate {
            fingerprint: Fingerprint::new(bytes),
            not_after: START.plus(ISSUER_LIFE),
            certificate: name.as_bytes().to_vec(),
        }
    }

    /// A fresh token redeemed for a node.
    #[track_caller]
    pub fn enroll(&mut self) -> Enrolled {
        let token = self.mint();
        self.enroll_with(token, |_| ())
    }

    #[track_caller]
    pub fn enroll_with(&mut self, token: Minted, change: impl FnOnce(&mut Enroll)) -> Enrolled {
        let mut request = self.request(token);
        change(&mut request);
        let request = self.prepare(request);
        let command = Command::Enroll(Box::new(request.clone()));
        match self.give(Actor::Stranger, command).answer {
            Ok(Outcome::Enrolled { node, serial, replayed: false }) => Enrolled { node, serial, request },
            other => panic!("not enrolled: {other:?}"),
        }
    }

    #[track_caller]
    pub fn confirm(&mut self, enrolled: &Enrolled) {
        let events = &["host.confirmed", "host.active", "certificate.seen"];
        check(self, (enrolled.actor(), confirm_ok(&enrolled.node)), granted(events));
    }

    pub fn wireguard(&mut self) -> Wireguard {
        let mut bytes = self.digest();
        bytes[31] &= 0x7f;
        let key = WireguardKey::new(bytes).unwrap();
        Wireguard { key, fingerprint: Fingerprint::new(self.digest()) }
    }

    /// What ends a node, by the one way or the other.
    #[track_caller]
    pub fn end(&mut self, node: &NodeId, how: NodeState) {
        let node = node.clone();
        let command = match how {
            NodeState::Revoked => Command::Revoke { node, reason: "stolen".to_owned() },
            NodeState::Decommissioned => Command::Decommission { node, force: false },
            other => panic!("{other} is no end"),
        };
        assert_eq!(self.give(local(), command).answer, Ok(Outcome::Done));
    }
}

/// The life of a node.
impl Domain {
    /// An enrolled node that has confirmed.
    #[track_caller]
    pub fn active(&mut self) -> Enrolled {
        let enrolled = self.enroll();
        self.confirm(&enrolled);
        enrolled
    }

    /// What a host sends to renew, and what the replica adds if the registry would grant it.
    pub fn renewal(&mut self, node: &NodeId, key: KeyHash) -> Renew {
        let record = self.state.nodes.get(node).cloned();
        let prepared = record.map(|record| {
            let domain = self.state.domain.as_ref().unwrap().name.clone();
            let lifetime = self.state.policy.profiles[&record.profile].lifetime;
            self.issue(SpiffeId::agent(&domain, &record.tenant, node), key, lifetime)
        });
        let (key_kind, agent_version, keeping) = (KeyKind::P256, None, Keeping::default());
        Renew { node: node.clone(), key, key_kind, agent_version, prepared, keeping }
    }

    /// The node, once it has renewed with what it holds for a key of its own making: not seen yet.
    #[track_caller]
    pub fn renew(&mut self, with: &Enrolled) -> Enrolled {
        let key = KeyHash::new(self.digest());
        let command = Command::Renew(Box::new(self.renewal(&with.node, key)));
        match self.give(with.actor(), command).answer {
            Ok(Outcome::Renewed { serial, replayed: false }) => Enrolled { serial, ..with.clone() },
            other => panic!("not renewed: {other:?}"),
        }
    }

    /// A node that was heard on its live stream just now.
    #[track_caller]
    pub fn streams(&mut self, node: &NodeId) {
        let sighting = self.sighting(node);
        check(self, (Actor::Reconciler, Command::Observe(vec![sighting])), granted(&["host.seen"]));
    }

    pub fn sighting(&self, node: &NodeId) -> Sighting {
        Sighting {
            node: node.clone(),
            seen: self.now,
            instance: Label::parse("first-start").ok(),
            bundle: None,
            agent_version: None,
            recovery_kept: None,
            report: None,
            by_svid: false,
        }
    }

    /// A streaming node falls silent.
    #[track_caller]
    pub fn silence(&mut self, node: &NodeId) {
        self.streams(node);
        let listening_since = self.now;
        self.pass(self.state.policy.liveness_grace);
        let silence = Silence { nodes: vec![node.clone()], listening_since };
        check(self, (Actor::Reconciler, Command::MarkInactive(silence)), granted(&["host.inactive"]));
    }
}

/// Recovery.
impl Domain {
    /// A recovery token as a replica draws it.
    pub fn drawn(&mut self) -> Mint {
        Mint { token: TokenId(self.ulid()), hash: SecretHash::new(self.digest()) }
    }

    /// What a host without an identity sends, and what the replica adds if the registry would grant it.
    pub fn recovery(&mut self, hash: SecretHash) -> Recover {
        let key = KeyHash::new(self.digest());
        self.recovery_for(hash, key)
    }

    /// The same for a key that asked before.
    pub fn recovery_for(&mut self, hash: SecretHash, key: KeyHash) -> Recover {
        let known = self.state.recovery_token_with_hash(&hash);
        let ends = known.filter(|(_, token)| token.kind == RecoveryKind::Repair);
        let bundle_ends = ends.map(|(_, token)| token.expires_at);
        let owner = known.map(|(node, _)| node.clone());
        let prepared = owner.map(|owner| {
            let domain = self.state.domain.as_ref().unwrap().name.clone();
            let lifetime = self.state.policy.profiles[&owner.profile].lifetime;
            let certificate = self.issue(SpiffeId::agent(&domain, &owner.tenant, &owner.id), key, lifetime);
            Prepared { node: owner.id, tenant: owner.tenant, profile: owner.profile, certificate }
        });
        Recover {
            token: hash,
            key,
            key_kind: KeyKind::P256,
            node: None,
            class: Some(Class::CertExpired),
            bundle_ends,
            heard: None,
            agent_version: None,
            profile: None,
            strict: false,
            svid_counts: false,
            prepared,
        }
    }

    /// A node that was given a recovery token when it confirmed.
    #[track_caller]
    pub fn provided(&mut self) -> (Enrolled, Mint) {
        let (enrolled, mint) = (self.enroll(), self.drawn());
        let events = &["host.confirmed", "host.active", "certificate.seen", "recovery_token.rotated"];
        check(self, confirm_keeping(&enrolled, None, Some(mint)), granted(events));
        (enrolled, mint)
    }
}

pub fn confirm_keeping(by: &Enrolled, kept: Option<TokenId>, mint: Option<Mint>) -> (Actor, Command) {
    let keeping = keeping(kept, mint);
    let confirm = Confirm { node: by.node.clone(), status: ConfirmStatus::Ok, keeping };
    (by.actor(), Command::Confirm(confirm))
}

/// What a node says of its recovery token, and for which recovery profile it gets the next one.
pub fn keeping(kept: Option<TokenId>, mint: Option<Mint>) -> Keeping {
    Keeping { kept, mint, profile: mint.and_then(|_| Label::parse("default").ok()) }
}

pub fn recover(recover: Recover) -> (Actor, Command) {
    (Actor::Stranger, Command::Recover(Box::new(recover)))
}

/// Issuers.
impl Domain {
    /// The key of the next issuer.
    pub fn roll_request(&mut self) -> PrepareRoll {
        PrepareRoll {
            key: KeyHash::new(self.digest()),
            request: "request".to_owned(),
            sealed_key: self.draw().to_be_bytes().to_vec(),
        }
    }

    /// The certificate that comes back for the key that waits.
    pub fn next_issuer(&mut self, name: &str) -> NewIssuer {
        let sealed_key = self.state.roll.as_ref().map_or_else(|| b"other".to_vec(), |r| r.sealed_key.clone());
        NewIssuer {
            id: issuer(name),
            kind: IssuerKind::Sealed,
            subject: format!("CN={name}"),
            certificate: name.as_bytes().to_vec(),
            fingerprint: Fingerprint::new(self.digest()),
            not_after: self.now.plus(ISSUER_LIFE),
            sealed_key,
            usage: IssuerUse::Both,
            root: None,
        }
    }

    /// An issuer that is trusted and does not sign yet.
    #[track_caller]
    pub fn prepare_issuer(&mut self, name: &str) {
        let prepare = Command::PrepareRoll(self.roll_request());
        check(self, (local(), prepare), granted(&["ca.requested"]));
        let next = self.next_issuer(name);
        check(self, (local(), Command::CertifyRoll(Box::new(next))), granted(&["ca.prepared"]));
    }

    #[track_caller]
    pub fn roll(&mut self, name: &str) {
        self.prepare_issuer(name);
        check(self, (local(), activate(name, true)), granted(&["ca.activated"]));
    }
}

/// What a roll asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub uses: &'static [IssuerUse],
    pub new_root: bool,
}

pub const NODE: Wanted = Wanted { uses: &[IssuerUse::Node], new_root: false };
pub const SERVER: Wanted = Wanted { uses: &[IssuerUse::Server], new_root: false };
pub const BOTH: Wanted = Wanted { uses: &[IssuerUse::Node, IssuerUse::Server], new_root: false };
pub const ROOT: Wanted = Wanted { new_root: true, ..BOTH };

/// Rolls of issuers for one use each, and of the root.
impl Domain {
    pub fn pending_roll(&mut self, wanted: Wanted) -> PendingRoll {
        let requests = wanted.uses.iter().map(|usage| IssuerRequest {
            usage: *usage,
            kind: IssuerKind::Sealed,
            key: KeyHash::new(self.digest()),
            request: format!("request for {usage}"),
            sealed_key: self.draw().to_be_bytes().to_vec(),
        });
        PendingRoll { requests: requests.collect(), new_root: wanted.new_root }
    }

    #[track_caller]
    pub fn begin_roll(&mut self, wanted: Wanted) {
        let begin = Command::BeginRoll(self.pending_roll(wanted));
        check(self, (local(), begin), granted(&["ca.requested"]));
    }

    /// What answers the requests that are out: the issuers `n` and `s` of a number, and a root if one is awaited.
    pub fn roll_answer(&mut self, number: u64) -> AnswerRoll {
        let pending = self.state.pending_roll.clone();
        let at = self.now.max(self.state.at);
        let root = pending.as_ref().filter(|pending| pending.new_root).map(|_| NewRoot {
            certificate: format!("root {number}").into_bytes(),
            fingerprint: Fingerprint::new(self.digest()),
            not_after: at.plus(Span::from_days(3650)),
            cross_certificate: format!("root {number} by the one before").into_bytes(),
            list: None,
        });
        let above = root.as_ref().map(|root| (root.fingerprint, root.not_after));
        let active = self.state.active_root().map(|root| (root.fingerprint, root.not_after));
        let (above, end) = above.or(active).unwrap();
        let requests = pending.map(|pending| pending.requests).unwrap_or_default();
        let issuers = requests.into_iter().map(|request| {
            let name = format!("{}{number}", &request.usage.as_str()[..1]);
            NewIssuer {
                id: issuer(&name),
                kind: request.kind,
                subject: format!("CN={name}"),
                certificate: name.into_bytes(),
                fingerprint: Fingerprint::new(self.digest()),
                not_after: at.plus(ISSUER_LIFE).min(end),
                sealed_key: request.sealed_key,
                usage: request.usage,
                root: Some(above),
            }
        });
        AnswerRoll { issuers: issuers.collect(), root }
    }

    /// Issuers `n` and `s` of a number that are trusted and do not sign yet; with a root of their own if one is wanted.
    #[track_caller]
    pub fn prepare_roll(&mut self, wanted: Wanted, number: u64) {
        self.begin_roll(wanted);
        let answer = self.roll_answer(number);
        let root = ["ca.root_prepared"].into_iter().filter(|_| wanted.new_root);
        let expected: Vec<_> = root.chain(wanted.uses.iter().map(|_| "ca.prepared")).collect();
        let applied = self.give(local(), Command::AnswerRoll(Box::new(answer)));
        assert_eq!((names(&applied.events), applied.answer), (expected, Ok(Outcome::Done)));
    }

    /// Activates whatever is prepared.
    pub fn activate_all(&self, force: bool) -> Command {
        let mut prepared =
            self.state.domain_issuers_in(IssuerState::Prepared).map(|issuer| issuer.id.clone());
        let (first, other) = (prepared.next(), prepared.next());
        let mut prepared = self.state.domain_issuers_in(IssuerState::Prepared);
        let server = prepared.find(|issuer| issuer.usage.signs_servers());
        Command::ActivateIssuer(ActivateIssuer {
            issuer: first.unwrap_or_else(|| issuer("nothing")),
            force,
            audit_certificate: server
                .map(|by| format!("audit by {}", by.id).into_bytes())
                .unwrap_or_default(),
            confirm: Confirmation::NotAsked,
            other,
            by_stored_bundles: true,
        })
    }

    /// A whole roll, by force.
    #[track_caller]
    pub fn roll_all(&mut self, wanted: Wanted, number: u64) {
        self.prepare_roll(wanted, number);
        let activate = self.activate_all(true);
        let root = ["ca.root_activated"].into_iter().filter(|_| wanted.new_root);
        let expected: Vec<_> = root.chain(wanted.uses.iter().map(|_| "ca.activated")).collect();
        let applied = self.give(local(), activate);
        assert_eq!((names(&applied.events), applied.answer), (expected, Ok(Outcome::Done)));
    }

    /// A node says on its live stream that it has stored the newest trust bundle.
    #[track_caller]
    pub fn stores_bundle(&mut self, node: &NodeId) {
        let sighting = Sighting { bundle: Some(self.state.bundle_version), ..self.sighting(node) };
        check(self, (Actor::Reconciler, Command::Observe(vec![sighting])), granted(&["host.seen"]));
    }

    /// The next certificate of the control plane, by an issuer.
    pub fn server_certificate(&mut self, by: &str) -> (Actor, Command) {
        let certificate = ServerCertificate {
            serial: self.serial(),
            fingerprint: Fingerprint::new(self.digest()),
            issuer: issuer(by),
            not_after: self.now.plus(Span::from_days(30)),
            replica: ReplicaId::FIRST,
        };
        (Actor::Reconciler, Command::RecordServerCertificate(certificate))
    }
}

pub fn activate(name: &str, force: bool) -> Command {
    let audit_certificate = format!("audit by {name}").into_bytes();
    Command::ActivateIssuer(ActivateIssuer {
        issuer: issuer(name),
        force,
        audit_certificate,
        confirm: Confirmation::NotAsked,
        other: None,
        by_stored_bundles: false,
    })
}

pub fn revoke(node: &NodeId) -> Command {
    Command::Revoke { node: node.clone(), reason: "stolen".to_owned() }
}

pub fn contact(by: &Enrolled) -> (Actor, Command) {
    (by.actor(), Command::Contact { node: by.node.clone() })
}

/// Operators and their keys.
impl Domain {
    pub fn add_operator(&mut self, name: &str, role: Role, tenants: Tenants) -> Command {
        let domain = self.state.domain.as_ref().unwrap().name.clone();
        let key = KeyHash::new(self.digest());
        let certificate = self.issue(SpiffeId::operator(&domain, &operator(name)), key, Span::from_days(30));
        let certificate = Some(certificate);
        let (name, vclusters) = (operator(name), Vclusters::All);
        Command::AddOperator(AddOperator { name, role, tenants, certificate, vclusters })
    }

    /// A renewal for a new key.
    pub fn renew_operator(&mut self, name: &str) -> Command {
        let domain = self.state.domain.as_ref().unwrap().name.clone();
        let key = KeyHash::new(self.digest());
        let certificate = self.issue(SpiffeId::operator(&domain, &operator(name)), key, Span::from_days(30));
        Command::RenewOperator(Box::new(RenewOperator { name: operator(name), certificate }))
    }

    /// An operator with a certificate.
    #[track_caller]
    pub fn operator(&mut self, name: &str, role: Role, tenants: Tenants) -> Actor {
        let command = self.add_operator(name, role, tenants);
        check(self, (local(), command), granted(&["operator.added"]));
        let serial = self.state.operators[&operator(name)].serial.clone().unwrap();
        Actor::Operator { name: operator(name), serial }
    }

    pub fn key_request(&mut self, role: Role, tenants: Tenants) -> CreateOperatorKey {
        CreateOperatorKey {
            key: KeyId(self.ulid()),
            hash: SecretHash::new(self.digest()),
            name: operator("robot"),
            role,
            tenants,
            ttl: Span::from_days(1),
            vclusters: Vclusters::All,
        }
    }

    /// An operator of the default tenant, narrowed to these vClusters.
    #[track_caller]
    pub fn narrowed_operator(&mut self, name: &str, to: &[&str]) -> Actor {
        let Command::AddOperator(mut add) = self.add_operator(name, Role::Operator, only(&["default"]))
        else {
            unreachable!()
        };
        add.vclusters = narrowed(to);
        check(self, (local(), Command::AddOperator(add)), granted(&["operator.added"]));
        let serial = self.state.operators[&operator(name)].serial.clone().unwrap();
        Actor::Operator { name: operator(name), serial }
    }

    /// A key of an operator of the default tenant, narrowed to these vClusters.
    #[track_caller]
    pub fn narrowed_key(&mut self, to: &[&str]) -> Actor {
        let mut create = self.key_request(Role::Operator, only(&["default"]));
        create.vclusters = narrowed(to);
        let id = create.key;
        check(self, (local(), Command::CreateOperatorKey(create)), granted(&["operator_key.created"]));
        Actor::Key { id }
    }

    /// An operator's automation with an API key.
    #[track_caller]
    pub fn key(&mut self, role: Role, tenants: Tenants) -> Actor {
        let create = self.key_request(role, tenants);
        let id = create.key;
        check(self, (local(), Command::CreateOperatorKey(create)), granted(&["operator_key.created"]));
        Actor::Key { id }
    }
}

/// Replicas.
impl Domain {
    /// One with so many replicas, reached at `r1:8444` and so on.
    pub fn cluster(members: u64) -> Self {
        let mut domain = Self::founded();
        domain.becomes_cluster(members);
        domain
    }

    #[track_caller]
    pub fn becomes_cluster(&mut self, members: u64) {
        let announce = self.announce(1, true);
        check(self, (replica(1), Command::AnnounceReplica(announce)), granted(&["cluster.announced"]));
        for _ in 1..members {
            let token = self.replica_token();
            let join = self.join(token);
            check(self, (Actor::Stranger, Command::JoinReplica(join)), granted(&["cluster.joined"]));
        }
    }

    pub fn replica_certificate(&mut self, number: u64) -> Issued {
        let domain = self.state.domain.as_ref().unwrap().name.clone();
        let key = KeyHash::new(self.digest());
        self.issue(SpiffeId::replica(&domain, ReplicaId(number)), key, Span::from_days(30))
    }

    /// What a replica says of itself, with a new certificate or without.
    pub fn announce(&mut self, number: u64, renewed: bool) -> AnnounceReplica {
        let certificate = renewed.then(|| self.replica_certificate(number));
        let (peer, urls) = addresses(number);
        AnnounceReplica { replica: ReplicaId(number), peer, urls, certificate }
    }

    #[track_caller]
    pub fn replica_token(&mut self) -> Minted {
        let minted = self.token_request();
        let minted = Minted { id: minted.token, hash: minted.hash };
        let create = create_replica_token(minted, "1h");
        check(self, (local(), create), granted(&["cluster.token_created"]));
        minted
    }

    /// The next replica.
    pub fn join(&mut self, token: Minted) -> JoinReplica {
        let number = self.state.last_replica + 1;
        let certificate = self.replica_certificate(number);
        let (peer, urls) = addresses(number);
        JoinReplica { hash: token.hash, replica: ReplicaId(number), peer, urls, certificate }
    }
}

fn addresses(number: u64) -> (String, Vec<String>) {
    (format!("r{number}:8444"), vec![format!("https://r{number}.example:8443")])
}

pub fn create_replica_token(minted: Minted, ttl: &str) -> Command {
    Command::CreateReplicaToken { token: minted.id, hash: minted.hash, ttl: span(ttl) }
}

pub fn remove_replica(number: u64) -> Command {
    let (replica, confirm) = (ReplicaId(number), Confirmation::NotAsked);
    Command::RemoveReplica { replica, confirm, forced: false }
}

/// What can be wrong with a certificate that was prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    Missing,
    OtherNode,
    OtherTenant,
    OtherProfile,
    OtherKey,
    OtherSubject,
    OtherIssuer,
    UsedSerial,
    ServersSerial,
    TooFarAhead,
    TooFarBehind,
    TooLongLived,
    OutlivesIssuer,
    AlreadyOver,
}

impl Flaw {
    pub const ALL: [Flaw; 14] = [
        Flaw::Missing,
        Flaw::OtherNode,
        Flaw::OtherTenant,
        Flaw::OtherProfile,
        Flaw::OtherKey,
        Flaw::OtherSubject,
        Flaw::OtherIssuer,
        Flaw::UsedSerial,
        Flaw::ServersSerial,
        Flaw::TooFarAhead,
        Flaw::TooFarBehind,
        Flaw::TooLongLived,
        Flaw::OutlivesIssuer,
        Flaw::AlreadyOver,
    ];

    /// Spoils what was prepared; false where it cannot be spoiled in this way.
    pub fn spoil(self, domain: &Domain, request: &mut Enroll) -> bool {
        let at = domain.now.max(domain.state.at);
        let Some(prepared) = &mut request.prepared else { return false };
        let certificate = &mut prepared.certificate;
        match self {
            Flaw::Missing => request.prepared = None,
            Flaw::OtherNode => {
                let other = node("someone-else");
                let name = certificate.subject.domain.clone();
                certificate.subject = SpiffeId::agent(&name, &prepared.tenant, &other);
                // Only a name that was not left to the replica can be wrong.
                let pinned = match request.credential.token() {
                    Some(token) => domain.state.token_with_hash(token).is_some_and(|t| t.node.is_some()),
                    None => true,
                };
                if !pinned && request.requested_node.is_none() {
                    return false;
                }
                prepared.node = other;
            }
            Flaw::OtherTenant => prepared.tenant = tenant("elsewhere"),
            Flaw::OtherProfile => prepared.profile = profile("elsewhere"),
            Flaw::OtherKey => certificate.key = KeyHash::new([0xee; 32]),
            Flaw::OtherSubject => {
                let name = TrustDomain::parse("other.example").unwrap();
                certificate.subject = SpiffeId::agent(&name, &prepared.tenant, &prepared.node);
            }
            Flaw::OtherIssuer => certificate.issuer = issuer("i2"),
            Flaw::UsedSerial => match domain.state.certificates.keys().next() {
                Some(used) => certificate.serial = used.clone(),
                None => return false,
            },
            Flaw::ServersSerial => match &domain.state.server_certificate {
                Some(server) => certificate.serial = server.serial.clone(),
                None => return false,
            },
            Flaw::TooFarAhead => certificate.signed_at = at.plus(Span::from_millis(60_001)),
            Flaw::TooFarBehind => {
                let life = certificate.not_after.since(certificate.signed_at);
                certificate.signed_at = at.minus(Span::from_millis(300_001));
                certificate.not_after = certificate.signed_at.plus(life);
            }
            Flaw::TooLongLived => {
                let lifetime = domain.state.policy.profiles[&prepared.profile].lifetime;
                certificate.not_after = certificate.signed_at.plus(lifetime).plus(Span::from_millis(1));
            }
            Flaw::OutlivesIssuer => {
                // Only near the issuer's end is this a fault of its own.
                let lifetime = domain.state.policy.profiles[&prepared.profile].lifetime;
                let Some(issuer) = domain.state.node_issuer(&certificate.issuer) else { return false };
                let past_end = issuer.not_after.plus(Span::from_millis(1));
                if certificate.signed_at.plus(lifetime) < past_end {
                    return false;
                }
                certificate.not_after = past_end;
            }
            Flaw::AlreadyOver => certificate.not_after = at,
        }
        true
    }
}

pub fn digest(number: u64) -> [u8; 32] {
    let mut bytes = [0xd1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes
}

pub fn replica(number: u64) -> Actor {
    Actor::Replica { id: ReplicaId(number) }
}

pub fn local() -> Actor {
    Actor::Local { user: "root".to_owned() }
}

pub fn node(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

pub fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub fn operator(name: &str) -> OperatorName {
    OperatorName::parse(name).unwrap()
}

pub fn profile(name: &str) -> ProfileName {
    ProfileName::parse(name).unwrap()
}

pub fn issuer(name: &str) -> IssuerId {
    IssuerId::parse(name).unwrap()
}

pub fn only(names: &[&str]) -> Tenants {
    Tenants::Only(names.iter().map(|name| tenant(name)).collect())
}

pub fn span(text: &str) -> Span {
    Span::parse(text).unwrap()
}

pub fn create_tenant(name: &str) -> Command {
    Command::CreateTenant(CreateTenant { tenant: tenant(name) })
}

pub fn set_policy(key: &str, value: &str) -> Command {
    Command::SetPolicy(SetPolicy {
        key: key.to_owned(),
        value: value.to_owned(),
        confirm: Confirmation::NotAsked,
    })
}

pub fn enroll(request: Enroll) -> (Actor, Command) {
    (Actor::Stranger, Command::Enroll(Box::new(request)))
}

pub fn confirm_ok(node: &NodeId) -> Command {
    let (status, keeping) = (ConfirmStatus::Ok, Keeping::default());
    Command::Confirm(Confirm { node: node.clone(), status, keeping })
}

pub fn confirm_failed(node: &NodeId, reason: &str) -> Command {
    let status = ConfirmStatus::Failed { reason: reason.to_owned() };
    Command::Confirm(Confirm { node: node.clone(), status, keeping: Keeping::default() })
}

/// A node that was drawn as `c1`, nothing else said.
pub fn register(claim: Claim) -> Command {
    Command::Register(Register { node: node("c1"), claim, profile: None, plane: None, hostname: None })
}

/// What a machine is known by: addresses, and a serial number where it is not empty.
pub fn hardware(macs: &[&str], serial: &str) -> HardwareIdentity {
    let text = HardwareText { macs: macs.to_vec(), bmc_serial: serial, ..HardwareText::default() };
    HardwareIdentity::registered(&text).unwrap()
}

pub fn narrowed(to: &[&str]) -> Vclusters {
    Vclusters::narrowed(to.iter().map(|name| vcluster(name)).collect())
}

pub fn vcluster(name: &str) -> VclusterId {
    VclusterId::parse(name).unwrap()
}

pub fn create_vcluster(name: &str, tenant: &TenantId) -> Command {
    Command::CreateVcluster(CreateVcluster { vcluster: vcluster(name), tenant: tenant.clone() })
}

/// A machine of the default tenant, in no vCluster.
pub fn register_hardware(name: &str, identity: HardwareIdentity) -> RegisterHardware {
    let tenant = TenantId::default_tenant();
    let alert = Some(AlertId(Ulid::new(Timestamp::from_secs(1), [7; 10])));
    RegisterHardware { node: node(name), tenant, profile: None, identity, vcluster: None, alert }
}
