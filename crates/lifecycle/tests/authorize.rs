//! Who may do what, written out a second time: every command, every kind of actor.

use crate::support::{
    BOTH, Domain, Enrolled, activate, check, confirm_ok, create_replica_token, create_tenant,
    create_vcluster, granted, hardware, local, only, operator, register, register_hardware, remove_replica,
    replica, revoke, set_policy, span, vcluster,
};
use lifecycle::names::{
    BootstrapName, Checksum, Fingerprint, KeyHash, Label, NodeId, ReplicaId, RequestId, Serial, Source,
    SpiffeId, TenantId,
};
use lifecycle::registry::{
    AcceptClock, AcceptRollback, Act, Actor, AlertKind, AuditGap, AuditSink, BeginIssuance, Change,
    Checkpoint, Claim, ClaimOverlay, Command, ConfigDocument, ConfigTarget, Confirmation, CorroborateClock,
    DeniedSighting, Describe, EndIssuance, Forwarded, ForwardingGapCause, Import, ImportRootList, IntentEnd,
    IssueBootstrap, IssueRepairBundle, Keeping, RaiseAlert, Refusals, Relabel, RepairClock, ReportSessions,
    Rewrap, Role, RootList, ServerCertificate, SetConfig, Silence, SkipForwarding, Subject, Tenants,
    authorize, may_reach, may_read,
};
use std::collections::BTreeSet;

/// One row per command. `+` allowed, `-` forbidden, `?` not authenticated, `0` does not exist for this actor.
/// What the commands are about lies in the tenant `default`. Columns, a certificate and an API key alike:
///
/// local | platform-admin, operator, viewer of all tenants | the same of `default` only | the same of another
/// tenant only | operator narrowed to a vCluster of `default` | operators and keys that have lapsed | the node, another node | stranger | reconciler | the replica, another replica
const COMMANDS: &[(&str, &str)] = &[
    ("InitializeDomain", "+ --- --- --- - - -- - - --"),
    ("CreateToken", "+ ++- ++- 00- - ? -- ? - --"),
    ("RevokeToken", "+ ++- ++- 00- - ? -- ? - --"),
    ("Enroll", "+ +++ +++ +++ + + ++ + + ++"),
    ("Confirm", "? ??? ??? ??? ? ? +- ? ? ??"),
    ("CreateTenant", "+ +-- --- --- - ? -- ? - --"),
    ("AddOperator", "+ +-- --- --- - ? -- ? - --"),
    ("RemoveOperator", "+ +-- --- --- - ? -- ? - --"),
    ("CreateOperatorKey", "+ +-- --- --- - ? -- ? - --"),
    ("RevokeOperatorKey", "+ +-- --- --- - ? -- ? - --"),
    ("SetPolicy", "+ +-- --- --- - ? -- ? - --"),
    ("RecordServerCertificate", "- --- --- --- - - -- - + --"),
    ("RecordRefusals", "- --- --- --- - - -- - + --"),
    ("RecordCheckpoint", "- --- --- --- - - -- - + --"),
    ("RecordAuditGap", "- --- --- --- - - -- - + --"),
    ("AcceptRollback", "- --- --- --- - - -- - + --"),
    ("Tidy", "- --- --- --- - - -- - + --"),
    ("Expire", "- --- --- --- - - -- - + --"),
    ("Renew", "? ??? ??? ??? ? ? +- ? ? ??"),
    ("Contact", "? ??? ??? ??? ? ? +- ? ? ??"),
    ("Observe", "- --- --- --- - - -- - + --"),
    ("MarkInactive", "- --- --- --- - - -- - + --"),
    ("Drain", "+ ++- ++- 00- - ? -- ? - --"),
    ("Undrain", "+ ++- ++- 00- - ? -- ? - --"),
    ("Quarantine", "+ ++- ++- 00- - ? -- ? - --"),
    ("Release", "+ ++- ++- 00- - ? -- ? - --"),
    ("Decommission", "+ +-- +-- 0-- - ? -- ? - --"),
    ("Revoke", "+ ++- ++- 00- - ? -- ? - --"),
    ("Reinstate", "+ +-- +-- 0-- - ? -- ? - --"),
    ("Rotate", "+ ++- ++- 00- - ? -- ? - --"),
    ("OrderRekey", "+ ++- ++- 00- - ? -- ? - --"),
    ("ClaimOverlay", "? ??? ??? ??? ? ? +- ? ? ??"),
    ("RaiseAlert", "- --- --- --- - - -- - + --"),
    ("ClearAlert", "- --- --- --- - - -- - + --"),
    ("AcknowledgeAlert", "+ ++- ++- 00- - ? -- ? - --"),
    ("PrepareRoll", "+ +-- --- --- - ? -- ? - --"),
    ("CertifyRoll", "+ +-- --- --- - ? -- ? - --"),
    ("ActivateIssuer", "+ +-- --- --- - ? -- ? - --"),
    ("RetireIssuer", "+ +-- --- --- - ? -- ? - --"),
    ("RevokeIssuer", "+ +-- --- --- - ? -- ? - --"),
    ("Rewrap", "+ +-- --- --- - ? -- ? - --"),
    ("ChangeStepCa", "+ +-- --- --- - ? -- ? - --"),
    ("BeginRoll", "+ +-- --- --- - ? -- ? - --"),
    ("AnswerRoll", "+ +-- --- --- - ? -- ? - --"),
    ("AbandonRoll", "+ +-- --- --- - ? -- ? - --"),
    ("RetireRoot", "+ +-- --- --- - ? -- ? - --"),
    ("ImportRootList", "+ +-- --- --- - ? -- ? - --"),
    ("IssueBootstrap", "+ +-- --- --- - ? -- ? - --"),
    ("RevokeBootstrap", "+ +-- --- --- - ? -- ? - --"),
    ("PublishIssuer", "- --- --- --- - - -- - - +-"),
    ("BeginIssuance", "- --- --- --- - - -- - - +-"),
    ("EndIssuance", "- --- --- --- - - -- - - +-"),
    ("RecordDeliveredRevocations", "- --- --- --- - - -- - + --"),
    ("CreateReplicaToken", "+ +-- --- --- - ? -- ? - --"),
    ("JoinReplica", "+ +++ +++ +++ + + ++ + + ++"),
    ("AnnounceReplica", "- --- --- --- - - -- - - +-"),
    ("RemoveReplica", "+ +-- --- --- - ? -- ? - --"),
    ("Register by an operator", "+ ++- ++- 00- - ? -- ? - --"),
    ("Register by a token", "+ +++ +++ +++ + + ++ + + ++"),
    ("Describe", "+ ++- ++- 00- - ? -- ? - --"),
    ("Import", "+ +-- --- --- - ? -- ? - --"),
    ("MintRecovery", "? ??? ??? ??? ? ? +- ? ? ??"),
    ("Recover", "+ +++ +++ +++ + + ++ + + ++"),
    ("IssueRepairBundle", "+ +-- +-- 0-- - ? -- ? - --"),
    ("EndRepair", "- --- --- --- - - -- - + --"),
    ("RecordDeniedCertificate", "- --- --- --- - - -- - + --"),
    ("RevokeRecoveryTokens", "+ ++- ++- 00- - ? -- ? - --"),
    ("AcceptClock", "+ +-- --- --- - ? -- ? - --"),
    ("CorroborateClock", "- --- --- --- - - -- - + --"),
    ("RepairClock", "+ --- --- --- - - -- - - --"),
    ("RegisterHardware", "+ +-- --- 0-- - ? -- ? - --"),
    ("CreateVcluster", "+ +-- +-- 0-- - ? -- ? - --"),
    ("RemoveVcluster", "+ +-- +-- 0-- - ? -- ? - --"),
    ("SetConfig of the defaults", "+ +-- --- --- - ? -- ? - --"),
    ("SetConfig of a vCluster", "+ +-- +-- 0-- - ? -- ? - --"),
    ("SetConfig of a node", "+ +-- +-- 0-- - ? -- ? - --"),
    ("Assign", "+ ++- ++- 00- + ? -- ? - --"),
    ("Unassign", "+ ++- ++- 00- + ? -- ? - --"),
    ("Move", "+ ++- ++- 00- + ? -- ? - --"),
    ("RecordForwarded", "- --- --- --- - - -- - + --"),
    ("SkipForwarding", "- --- --- --- - - -- - + --"),
    ("ReportSessions", "? ??? ??? ??? ? ? +- ? ? ??"),
    // Nobody renews for another; for itself, see below.
    ("RenewOperator", "- --- --- --- - ? -- ? - --"),
    ("UseRenewedCertificate", "- --- --- --- - ? -- ? - --"),
];

/// What is read, under the same columns.
const READS: &[(Act, &str)] = &[
    (Act::ReadTokens, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadNodes, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadVclusters, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadAlerts, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadTenants, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadOperators, "+ +-- --- --- - ? -- ? - --"),
    (Act::ReadPolicy, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadCa, "+ +++ +++ +++ - ? -- ? - --"),
    (Act::ReadAudit, "+ +++ --- --- - ? -- ? - --"),
    (Act::ReadMetrics, "+ +++ --- --- - ? -- ? - --"),
    (Act::ReadClock, "+ +++ --- --- - ? -- ? - --"),
    (Act::ReadCluster, "+ +++ --- --- - ? -- ? - --"),
];

struct Cast {
    domain: Domain,
    /// In the order of the columns; actors of one column are treated alike.
    columns: Vec<Vec<Actor>>,
    node: Enrolled,
}

fn cast() -> Cast {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let lapsed = lapsed(&mut domain);
    let node = domain.enroll();
    let mut columns = vec![vec![local()]];
    for (scope, tenants) in
        [("all", Tenants::All), ("default", only(&["default"])), ("acme", only(&["acme"]))]
    {
        for role in [Role::PlatformAdmin, Role::Operator, Role::Viewer] {
            let name = format!("{}-{scope}", role.as_str());
            columns
                .push(vec![domain.operator(&name, role, tenants.clone()), domain.key(role, tenants.clone())]);
        }
    }
    let blue = create_vcluster("blue", &TenantId::default_tenant());
    check(&mut domain, (local(), blue), granted(&["vcluster.created"]));
    columns.push(vec![domain.narrowed_operator("narrowed", &["blue"]), domain.narrowed_key(&["blue"])]);
    columns.push(lapsed);
    columns.push(vec![node.actor()]);
    columns.push(vec![domain.enroll().actor()]);
    columns.push(vec![Actor::Stranger]);
    columns.push(vec![Actor::Reconciler]);
    columns.push(vec![replica(1)]);
    columns.push(vec![replica(2)]);
    Cast { domain, columns, node }
}

/// Platform admins, all of them once: removed, expired, revoked, never on record, with another's serial.
fn lapsed(domain: &mut Domain) -> Vec<Actor> {
    let mut admin = |name: &str| domain.operator(name, Role::PlatformAdmin, Tenants::All);
    let (removed, expired) = (admin("removed"), admin("expired"));
    let (expired_key, revoked_key) =
        (domain.key(Role::PlatformAdmin, Tenants::All), domain.key(Role::PlatformAdmin, Tenants::All));
    let (Actor::Key { id }, Actor::Operator { serial: old, .. }) = (&revoked_key, &removed) else {
        unreachable!()
    };
    check(domain, (local(), Command::RevokeOperatorKey { key: *id }), granted(&["operator_key.revoked"]));
    let remove = Command::RemoveOperator { name: operator("removed"), keys_made: true };
    check(domain, (local(), remove), granted(&["operator.removed"]));
    let stale = Actor::Operator { name: operator("expired"), serial: old.clone() };
    domain.pass(span("31d"));
    let Actor::Operator { serial, .. } = domain.operator("victim", Role::PlatformAdmin, Tenants::All) else {
        unreachable!()
    };
    let disguised = Actor::Operator { name: operator("expired"), serial };
    let unknown = Actor::Operator { name: operator("nobody"), serial: Serial::parse("1").unwrap() };
    let never = Actor::Key { id: domain.key_request(Role::PlatformAdmin, Tenants::All).key };
    vec![removed, expired, expired_key, revoked_key, stale, disguised, unknown, never]
}

/// Commands of every act, about the tenant `default` where they are about one.
fn commands(domain: &mut Domain, node: &Enrolled) -> Vec<Command> {
    let token = domain.mint();
    let request = domain.request(token);
    let certificate = ServerCertificate {
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        issuer: crate::support::issuer("i1"),
        not_after: domain.now,
        replica: ReplicaId::FIRST,
    };
    let refusals = Refusals {
        reason: "token_invalid".to_owned(),
        network: None,
        count: 1,
        samples: Vec::new(),
        recovery: None,
        alert: None,
        renewal: None,
    };
    let head = Fingerprint::new(domain.digest());
    let key = domain.key_request(Role::Viewer, Tenants::All);
    let mut commands = of_nodes(domain, node);
    commands.extend(of_issuers(domain));
    commands.extend(of_vclusters(&node.node));
    commands.extend([
        create_replica_token(token, "1h"),
        Command::JoinReplica(domain.join(token)),
        Command::AnnounceReplica(domain.announce(1, true)),
        remove_replica(1),
    ]);
    let bootstrap = BootstrapName::parse("image-1").unwrap();
    let subject = SpiffeId::bootstrap(&domain.state.domain.as_ref().unwrap().name.clone(), &bootstrap);
    let bootstrap_key = KeyHash::new(domain.digest());
    let certificate_of_image = domain.issue(subject, bootstrap_key, span("90d"));
    commands.extend([
        Command::IssueBootstrap(Box::new(IssueBootstrap {
            name: bootstrap.clone(),
            certificate: certificate_of_image,
        })),
        Command::RevokeBootstrap { name: bootstrap },
    ]);
    commands.extend([
        domain.found(),
        Command::CreateToken(domain.token_request()),
        Command::RevokeToken { token: token.id },
        Command::Enroll(Box::new(request)),
        register(Claim::Tenant(TenantId::default_tenant())),
        register(Claim::Token(token.hash)),
        confirm_ok(&node.node),
        create_tenant("apex"),
        domain.add_operator("bob", Role::Viewer, Tenants::All),
        domain.renew_operator("victim"),
        Command::UseRenewedCertificate { name: operator("victim") },
        Command::RemoveOperator { name: operator("victim"), keys_made: true },
        Command::RevokeOperatorKey { key: key.key },
        Command::CreateOperatorKey(key),
        set_policy("enroll.max_per_minute", "1"),
        Command::RecordServerCertificate(certificate),
        Command::RecordRefusals(refusals),
        Command::RecordCheckpoint(Checkpoint { seq: 1, head, signature: Vec::new() }),
        Command::RecordAuditGap(AuditGap { from: 1, to: 2, refilled: true }),
        Command::RecordForwarded(Forwarded { sink: AuditSink::Loki, through: 1 }),
        Command::SkipForwarding(SkipForwarding {
            sink: AuditSink::Loki,
            to: 2,
            cause: ForwardingGapCause::Missing,
        }),
        Command::AcceptRollback(AcceptRollback {
            directory_seq: 1,
            anchor_seq: Some(2),
            voids_recovery: true,
        }),
        Command::AcceptClock(AcceptClock {
            from: domain.now,
            to: domain.now,
            confirm: Confirmation::NotAsked,
        }),
        Command::CorroborateClock(CorroborateClock {
            replica: ReplicaId(1),
            from: domain.now,
            to: domain.now,
            agreeing: Vec::new(),
        }),
        Command::RepairClock(RepairClock { to: domain.now }),
        Command::Tidy,
        Command::Expire,
    ]);
    commands
}

fn of_nodes(domain: &mut Domain, enrolled: &Enrolled) -> Vec<Command> {
    let node = || enrolled.node.clone();
    let raise =
        RaiseAlert { kind: AlertKind::CloneSuspected, node: Some(node()), detail: "two at once".to_owned() };
    check(domain, (Actor::Reconciler, Command::RaiseAlert(raise.clone())), granted(&["alert.raised"]));
    let alert = *domain.state.alerts.keys().next().unwrap();
    let renewal = domain.renewal(&enrolled.node, KeyHash::new([7; 32]));
    let (mint, profile) = (domain.drawn(), Label::parse("default").unwrap());
    let import = Import {
        node: node(),
        serial: domain.serial(),
        fingerprint: Fingerprint::new(domain.digest()),
        key: KeyHash::new([8; 32]),
        issuer: crate::support::issuer("i1"),
        not_before: domain.now,
        not_after: domain.now,
    };
    vec![
        Command::Renew(Box::new(renewal)),
        Command::Contact { node: node() },
        Command::MintRecovery { node: node(), keeping: Keeping::default() },
        Command::ReportSessions(Box::new(ReportSessions {
            node: node(),
            instance: Label::parse("start").unwrap(),
            sequence: 1,
            opened: Vec::new(),
            closed: Vec::new(),
        })),
        Command::Recover(Box::new(domain.recovery(mint.hash))),
        Command::IssueRepairBundle(IssueRepairBundle {
            node: node(),
            mint,
            ttl: None,
            profile,
            endpoint: None,
        }),
        Command::EndRepair { node: node() },
        Command::RevokeRecoveryTokens { node: node() },
        Command::RecordDeniedCertificate(DeniedSighting {
            node: node(),
            serial: enrolled.serial.clone(),
            source: Source::Internal,
            count: 1,
            of_gone_nodes: true,
        }),
        Command::Drain { node: node(), within: None },
        Command::Undrain { node: node() },
        Command::Quarantine { node: node(), reason: String::new() },
        Command::Release { node: node() },
        Command::Rotate { node: node() },
        Command::OrderRekey { node: node(), replace: false },
        Command::ClaimOverlay(Box::new(ClaimOverlay {
            node: node(),
            wireguard: domain.wireguard(),
            underlay: None,
            holder_seen_at: None,
            former_unproven: false,
        })),
        revoke(&enrolled.node),
        Command::Decommission { node: node(), force: false },
        Command::Reinstate { node: node(), as_registered: true },
        Command::Describe(Describe {
            node: node(),
            name: Change::Forget,
            labels: Change::Keep,
            relabel: Relabel::default(),
        }),
        Command::Import(Box::new(import)),
        Command::AcknowledgeAlert { alert, dated: true },
        Command::ClearAlert { alert },
        Command::RaiseAlert(raise),
        Command::Observe(vec![domain.sighting(&enrolled.node)]),
        Command::MarkInactive(Silence { nodes: vec![node()], listening_since: domain.now }),
    ]
}

fn of_issuers(domain: &mut Domain) -> Vec<Command> {
    let issuer = crate::support::issuer("i1");
    vec![
        Command::PrepareRoll(domain.roll_request()),
        Command::CertifyRoll(Box::new(domain.next_issuer("i2"))),
        activate("i2", true),
        Command::RetireIssuer { issuer: issuer.clone(), also: Vec::new() },
        Command::RevokeIssuer {
            issuer,
            reason: String::new(),
            confirm: Confirmation::NotAsked,
            asks_for_holders: false,
        },
        Command::Rewrap(Rewrap { issuers: Vec::new(), audit: Vec::new(), roll: None, pending: Vec::new() }),
        Command::ChangeStepCa(Box::new(domain.new_step_ca())),
        domain.publish("e1"),
        Command::BeginIssuance(Box::new(BeginIssuance {
            replica: ReplicaId(1),
            issuer: crate::support::issuer("c1"),
            serial: Serial::parse("77").unwrap(),
            key: KeyHash::new([1; 32]),
            subject: SpiffeId::parse("spiffe://fleet.example/tenant/default/agent/a").unwrap(),
            not_after: domain.now,
        })),
        Command::EndIssuance(Box::new(EndIssuance {
            replica: ReplicaId(1),
            intent: RequestId(domain.ulid()),
            end: IntentEnd::NotSigned,
        })),
        Command::RecordDeliveredRevocations { serials: Vec::new() },
        Command::BeginRoll(domain.pending_roll(BOTH)),
        Command::AnswerRoll(Box::new(domain.roll_answer(2))),
        Command::AbandonRoll,
        Command::RetireRoot {
            root: domain.state.roots[0].fingerprint,
            force: true,
            confirm: Confirmation::NotAsked,
            counts_operators: false,
        },
        Command::ImportRootList(Box::new(ImportRootList {
            root: domain.state.roots[0].fingerprint,
            list: RootList { number: 1, denied: Vec::new(), der: Vec::new() },
            issuers: Vec::new(),
            confirm: Confirmation::NotAsked,
            asks_for_nodes: false,
        })),
    ]
}

fn of_vclusters(node: &NodeId) -> Vec<Command> {
    let document = ConfigDocument { text: "{}".into(), checksum: Checksum::new([0; 32]) };
    let targets =
        [ConfigTarget::Defaults, ConfigTarget::Vcluster(vcluster("blue")), ConfigTarget::Node(node.clone())];
    let set = |target| Command::SetConfig(SetConfig { target, document: document.clone() });
    let (tenant, machine) = (TenantId::default_tenant(), hardware(&["02:00:00:00:00:01"], ""));
    let placed = [
        Command::RegisterHardware(Box::new(register_hardware("m1", machine))),
        create_vcluster("red", &tenant),
        Command::RemoveVcluster { vcluster: vcluster("blue") },
        Command::Assign { node: node.clone(), vcluster: vcluster("blue") },
        Command::Unassign { node: node.clone() },
        Command::Move { node: node.clone(), vcluster: vcluster("blue") },
    ];
    targets.map(set).into_iter().chain(placed).collect()
}

fn mark(result: Result<(), lifecycle::registry::Rejection>) -> char {
    match result.map_err(|rejection| rejection.code()) {
        Ok(()) => '+',
        Err("forbidden") => '-',
        Err("unauthenticated") => '?',
        Err(code) if code.ends_with("_not_found") => '0',
        Err(code) => panic!("{code}"),
    }
}

/// The row of a command: the name of its variant, and by what right where it has two.
fn row(command: &Command) -> String {
    let name: String = format!("{command:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
    match command {
        Command::Register(register) => match register.claim {
            Claim::Tenant(_) => format!("{name} by an operator"),
            Claim::Token(_) => format!("{name} by a token"),
        },
        Command::SetConfig(set) => match set.target {
            ConfigTarget::Defaults => format!("{name} of the defaults"),
            ConfigTarget::Vcluster(_) => format!("{name} of a vCluster"),
            ConfigTarget::Node(_) => format!("{name} of a node"),
        },
        _ => name,
    }
}

/// The names of all commands, read from where they are declared: one that is not in the table is found.
fn variants() -> impl Iterator<Item = &'static str> {
    let source = include_str!("../src/registry/command.rs");
    let body = source.split("pub enum Command {").nth(1).unwrap().split("\n}").next().unwrap();
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names.filter_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).next())
}

fn marks(row: &str) -> impl Iterator<Item = char> + '_ {
    row.chars().filter(|mark| *mark != ' ')
}

#[test]
fn the_table_says_who_may_give_each_command() {
    let Cast { mut domain, columns, node } = cast();
    let mut seen = BTreeSet::new();
    for command in commands(&mut domain, &node) {
        let name = row(&command);
        let (_, expected) = COMMANDS.iter().find(|(row, _)| *row == name).expect(&name);
        assert_eq!(marks(expected).count(), columns.len());
        for (actors, expected) in columns.iter().zip(marks(expected)) {
            for actor in actors {
                let found = mark(authorize(&domain.state, actor, &command));
                assert_eq!(found, expected, "{name} by {actor:?}");
            }
        }
        seen.insert(name);
    }
    let written: BTreeSet<String> = COMMANDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(seen, written, "every command was tried, and each has its row");
    let variants: BTreeSet<&str> = variants().collect();
    let tried: BTreeSet<&str> = written.iter().filter_map(|name| name.split(' ').next()).collect();
    assert_eq!(tried, variants, "as the stored enum has them");
}

#[test]
fn the_table_says_who_may_read_what() {
    let Cast { domain, columns, .. } = cast();
    for (act, expected) in READS {
        for (actors, expected) in columns.iter().zip(marks(expected)) {
            for actor in actors {
                let found = mark(may_read(&domain.state, actor, *act).map(drop));
                assert_eq!(found, expected, "{act:?} by {actor:?}");
            }
        }
    }
}

#[test]
fn every_act_is_tried_by_a_command_or_by_a_reading() {
    let Cast { mut domain, node, .. } = cast();
    let given = commands(&mut domain, &node).iter().map(Command::act).collect::<Vec<_>>();
    // By commands of older versions: `hardware.rs`.
    let old = [Act::RegisterHardwareAsBefore];
    let here: BTreeSet<Act> = given.into_iter().chain(READS.iter().map(|(act, _)| *act)).chain(old).collect();
    assert_eq!(here, Act::ALL.iter().copied().collect());
}

/// In another tenant nothing can be told from what does not exist.
#[test]
fn what_a_command_is_about_is_refused_in_another_tenant_as_if_it_were_not_there() {
    let Cast { mut domain, node, .. } = cast();
    let outsider = domain.key(Role::PlatformAdmin, only(&["acme"]));
    for command in commands(&mut domain, &node) {
        let about_a_tenant = match command.subject() {
            Subject::Tenant(_)
            | Subject::Token(_)
            | Subject::Node(_)
            | Subject::Alert(_)
            | Subject::Vcluster(_)
            | Subject::Assignment { .. } => true,
            Subject::Domain
            | Subject::OwnNode(_)
            | Subject::OwnOperator(_)
            | Subject::OwnReplica(_)
            | Subject::Credential => false,
        };
        let found = mark(authorize(&domain.state, &outsider, &command));
        assert!(found != '+' || command.subject() == Subject::Credential, "{}", row(&command));
        if about_a_tenant && command.act() != Act::KeepHouse {
            assert_eq!(found, '0', "{}", row(&command));
        }
    }
}

#[test]
fn what_may_be_read_is_limited_to_the_tenants_of_the_reader() {
    let mut domain = Domain::founded();
    domain.tenant("acme");
    let (all, some) = (domain.key(Role::Viewer, Tenants::All), domain.key(Role::Viewer, only(&["acme"])));
    assert_eq!(may_read(&domain.state, &all, Act::ReadNodes), Ok(Tenants::All));
    assert_eq!(may_read(&domain.state, &some, Act::ReadNodes), Ok(only(&["acme"])));
}

/// Between two vClusters of one tenant: what is in the other one is refused, and what is in another tenant is not there.
#[test]
fn a_narrowed_operator_assigns_within_its_vclusters_and_nothing_else() {
    let mut domain = Domain::founded();
    let (default, acme) = (TenantId::default_tenant(), domain.tenant("acme"));
    for (name, tenant) in [("blue", &default), ("red", &default), ("green", &default), ("theirs", &acme)] {
        check(&mut domain, (local(), create_vcluster(name, tenant)), granted(&["vcluster.created"]));
    }
    let (of_blue, of_both) = (domain.narrowed_key(&["blue"]), domain.narrowed_key(&["blue", "red"]));
    let [free, blue, red] = [(); 3].map(|()| domain.enroll().node);
    let foreign = domain.mint_with(|create| create.tenant = acme.clone());
    let foreign = domain.enroll_with(foreign, |_| ()).node;
    let assign = |node: &NodeId, to| Command::Assign { node: node.clone(), vcluster: vcluster(to) };
    let relocate = |node: &NodeId, to| Command::Move { node: node.clone(), vcluster: vcluster(to) };
    let unassign = |node: &NodeId| Command::Unassign { node: node.clone() };
    for (node, to) in [(&blue, "blue"), (&red, "red"), (&foreign, "theirs")] {
        check(&mut domain, (local(), assign(node, to)), granted(&["host.assigned"]));
    }
    for (command, expected) in [
        (assign(&free, "blue"), "++"),
        (assign(&free, "red"), "-+"),
        (assign(&free, "green"), "--"),
        (assign(&free, "nowhere"), "--"),
        (assign(&red, "blue"), "-+"),
        (unassign(&blue), "++"),
        (unassign(&red), "-+"),
        (unassign(&free), "++"),
        // To take a node away from one is as much as to bring it into one.
        (relocate(&blue, "red"), "-+"),
        (relocate(&red, "blue"), "-+"),
        (relocate(&blue, "green"), "--"),
        (unassign(&foreign), "00"),
        (relocate(&foreign, "blue"), "00"),
        // As of a node that there is not.
        (assign(&foreign, "green"), "--"),
        (assign(&crate::support::node("nobody"), "green"), "--"),
        (Command::Drain { node: foreign.clone(), within: None }, "--"),
        (Command::Drain { node: blue.clone(), within: None }, "--"),
        (Command::RemoveVcluster { vcluster: vcluster("blue") }, "--"),
    ] {
        for (actor, expected) in [&of_blue, &of_both].into_iter().zip(marks(expected)) {
            assert_eq!(mark(authorize(&domain.state, actor, &command)), expected, "{command:?}");
        }
    }
    let node = |id: &NodeId| domain.state.nodes[id].clone();
    for act in [Act::ReadNodes, Act::ReadVclusters] {
        let reach = may_reach(&domain.state, &of_blue, act).unwrap();
        let seen = [&free, &blue, &red, &foreign].map(|id| reach.includes(&node(id)));
        assert_eq!(seen, [false, true, false, false]);
        assert!(reach.vclusters.include(&vcluster("blue")) && !reach.vclusters.include(&vcluster("red")));
        let whole = may_reach(&domain.state, &local(), act).unwrap();
        assert!([&free, &blue, &red, &foreign].iter().all(|id| whole.includes(&node(id))));
    }
    for (act, expected) in READS {
        let found = mark(may_reach(&domain.state, &of_blue, *act).map(drop));
        let reads = matches!(act, Act::ReadNodes | Act::ReadVclusters);
        assert_eq!(found, if reads { '+' } else { '-' }, "{act:?} {expected}");
    }
}

#[test]
fn what_is_no_reading_cannot_be_read() {
    let domain = Domain::founded();
    for act in [Act::InitializeDomain, Act::Enroll, Act::Confirm, Act::KeepHouse] {
        assert!(may_read(&domain.state, &local(), act).is_err(), "{act:?}");
    }
}

#[test]
fn an_operator_renews_for_itself_whatever_its_role_and_a_key_never() {
    let Cast { mut domain, columns, .. } = cast();
    for role in [Role::PlatformAdmin, Role::Operator, Role::Viewer] {
        for scope in ["all", "default", "acme"] {
            let name = format!("{}-{scope}", role.as_str());
            let renew = domain.renew_operator(&name);
            for actor in columns.iter().flatten() {
                let own = matches!(actor, Actor::Operator { name: own, .. } if own.as_str() == name);
                let expected = if own { '+' } else { '-' };
                let found = mark(authorize(&domain.state, actor, &renew));
                assert!(found == expected || (found == '?' && !own), "{name} by {actor:?}: {found}");
            }
        }
    }
}

/// What a revoked issuer signed is denied, whoever holds it.
#[test]
fn an_operator_whose_issuer_was_revoked_has_no_power() {
    let mut domain = Domain::founded();
    let alice = domain.operator("alice", Role::PlatformAdmin, Tenants::All);
    let revoke = Command::RevokeIssuer {
        issuer: crate::support::issuer("i1"),
        reason: "lost".to_owned(),
        confirm: Confirmation::NotAsked,
        asks_for_holders: false,
    };
    check(&mut domain, (local(), revoke), granted(&["ca.revoked"]));
    assert_eq!(mark(authorize(&domain.state, &alice, &create_tenant("apex"))), '?');
}
