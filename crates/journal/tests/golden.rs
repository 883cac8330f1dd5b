//! Stored forms that must decode for ever: `tests/golden/`.
//!
//! A sample is never changed. `UPDATE_GOLDEN=1` writes those that are missing, for a new command.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on may panic")]

use journal::conformance::{Batch, EncodedEnvelope, Image, StoredEntry, StoredPayload};
use journal::conformance::{decode_snapshot, encode_snapshot, open, seal};
use lifecycle::host::Class;
use lifecycle::names::*;
use lifecycle::registry::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

const AT: Timestamp = Timestamp::from_millis(1_794_778_622_050);

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// The sample of that name; written first if it is missing and may be.
fn golden(name: &str, fresh: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let path = path(name);
    if !path.exists() && std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, fresh()).expect("writes");
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; see UPDATE_GOLDEN", path.display()))
}

fn id(n: u8) -> Ulid {
    Ulid::new(AT, [n; 10])
}

fn later(days: u64) -> Timestamp {
    AT.plus(Span::from_days(days))
}

fn domain() -> TrustDomain {
    TrustDomain::parse("fleet.example").expect("a trust domain")
}

fn issuer() -> IssuerId {
    IssuerId::parse("sealed-1").expect("an issuer")
}

fn operator() -> OperatorName {
    OperatorName::parse("alice").expect("an operator")
}

fn node() -> NodeId {
    NodeId::parse("node-7").expect("a node")
}

fn serial() -> Serial {
    Serial::parse("4a01").expect("a serial")
}

fn server_serial() -> Serial {
    Serial::parse("5b02").expect("a serial")
}

fn issued(subject: SpiffeId) -> Issued {
    Issued {
        serial: serial(),
        fingerprint: Fingerprint::new([21; 32]),
        subject,
        key: KeyHash::new([22; 32]),
        issuer: issuer(),
        signed_at: AT,
        not_after: AT.plus(Span::from_minutes(10)),
        renew_at: AT.plus(Span::from_minutes(6)),
        der: vec![0x30, 0x03, 0x02, 0x01, 0xff],
        external: None,
    }
}

fn found() -> InitializeDomain {
    InitializeDomain {
        domain: domain(),
        cluster: ClusterId(id(1)),
        overlay_prefix: "fd00:1:2::".parse().expect("an address"),
        default_profile: ProfileName::default_profile(),
        root: vec![1; 3],
        root_fingerprint: Fingerprint::new([2; 32]),
        root_not_after: later(3650),
        issuer: NewIssuer {
            id: issuer(),
            kind: IssuerKind::Sealed,
            subject: "CN=Enlist Intermediate".to_owned(),
            certificate: vec![3; 3],
            fingerprint: Fingerprint::new([4; 32]),
            not_after: later(365),
            sealed_key: vec![5; 3],
            usage: IssuerUse::Both,
            root: None,
        },
        audit_certificate: vec![6; 3],
        audit_sealed_key: vec![7; 3],
        node_signer: NodeSigner::DomainIssuer,
        server_issuer: None,
        step_ca: None,
        root_list: None,
    }
}

fn found_with_list() -> Command {
    let root_list = Some(RootList { number: 0, denied: Vec::new(), der: vec![82; 3] });
    Command::InitializeDomain(Box::new(InitializeDomain { root_list, ..found() }))
}

fn answer_with_list() -> Command {
    let list = Some(RootList { number: 0, denied: Vec::new(), der: vec![83; 3] });
    let answer = answer_roll();
    let root = answer.root.map(|root| NewRoot { list, ..root });
    Command::AnswerRoll(Box::new(AnswerRoll { root, issuers: answer.issuers }))
}

fn found_ephemeral() -> Command {
    Command::InitializeDomain(Box::new(InitializeDomain { node_signer: NodeSigner::Ephemeral, ..found() }))
}

fn step_ca_id() -> IssuerId {
    IssuerId::parse("step-1").expect("an issuer")
}

fn found_step_ca() -> Command {
    let issuer = NewIssuer {
        id: step_ca_id(),
        kind: IssuerKind::StepCa,
        subject: "CN=Smallstep Root CA".to_owned(),
        certificate: vec![80; 3],
        fingerprint: Fingerprint::new([80; 32]),
        not_after: later(3650),
        sealed_key: vec![81; 3],
        usage: IssuerUse::Node,
        root: None,
    };
    let access = StepCaAccess {
        url: "https://ca.example:9000".to_owned(),
        provisioner: "enlist".to_owned(),
        key_id: "k1".to_owned(),
    };
    let Command::InitializeDomain(found) = found_divided() else { panic!("another command") };
    Command::InitializeDomain(Box::new(InitializeDomain {
        node_signer: NodeSigner::StepCa,
        step_ca: Some(Box::new(NewStepCa { issuer, access })),
        ..*found
    }))
}

fn change_step_ca() -> Command {
    let Command::InitializeDomain(found) = found_step_ca() else { panic!("another command") };
    Command::ChangeStepCa(found.step_ca.expect("a step-ca"))
}

fn begin_issuance() -> BeginIssuance {
    BeginIssuance {
        replica: ReplicaId(1),
        issuer: step_ca_id(),
        serial: serial(),
        key: KeyHash::new([22; 32]),
        subject: SpiffeId::agent(&domain(), &TenantId::default_tenant(), &node()),
        not_after: AT.plus(Span::from_minutes(10)),
    }
}

/// The result of an intent, with an intermediate.
fn issued_externally() -> Issued {
    let subject = SpiffeId::agent(&domain(), &TenantId::default_tenant(), &node());
    let intermediate = StepCaIntermediate {
        fingerprint: Fingerprint::new([82; 32]),
        not_after: later(365),
        certificate: vec![82; 3],
    };
    let external = ExternalIssuance { intent: RequestId(id(9)), not_before: AT, chain: vec![intermediate] };
    Issued { external: Some(Box::new(external)), issuer: step_ca_id(), ..issued(subject) }
}

fn end_issuance(end: IntentEnd) -> Command {
    Command::EndIssuance(Box::new(EndIssuance { replica: ReplicaId(1), intent: RequestId(id(9)), end }))
}

fn publish() -> PublishIssuer {
    PublishIssuer {
        replica: ReplicaId(1),
        issuer: IssuerId::parse("ephemeral-1").expect("an issuer"),
        subject: "CN=Enlist Ephemeral CA".to_owned(),
        certificate: vec![8; 3],
        fingerprint: Fingerprint::new([9; 32]),
        not_before: AT,
        not_after: later(14),
    }
}

fn enroll() -> Enroll {
    Enroll {
        credential: Credential::Token(SecretHash::new([10; 32])),
        key: KeyHash::new([22; 32]),
        key_kind: KeyKind::P256,
        idempotency: Some(IdempotencyHash::new([11; 32])),
        door: Door::Native,
        requested_node: Some(node()),
        wireguard: Some(Wireguard {
            key: WireguardKey::new([12; 32]).expect("a key"),
            fingerprint: Fingerprint::new([13; 32]),
        }),
        underlay: Some(Underlay {
            ipv6: "2001:db8::7".parse().ok(),
            ipv4: "192.0.2.7".parse().ok(),
            port: 51820,
        }),
        hardware: Some(Hardware {
            cpu_cores: Some(64),
            memory_bytes: Some(1 << 38),
            disk_bytes: None,
            arch: Label::parse("x86_64").ok(),
        }),
        hostname: Label::parse("host-7").ok(),
        agent_version: Label::parse("0.1.0").ok(),
        prepared: Some(Prepared {
            node: node(),
            tenant: TenantId::default_tenant(),
            profile: ProfileName::default_profile(),
            certificate: issued(SpiffeId::agent(&domain(), &TenantId::default_tenant(), &node())),
        }),
        replacement_alerts: false,
        conflict_alerts: false,
        holder_seen_at: None,
        claimed: None,
        memory_storage: false,
        strict: false,
    }
}

fn create_token() -> CreateToken {
    CreateToken {
        token: TokenId(id(2)),
        hash: SecretHash::new([10; 32]),
        tenant: TenantId::default_tenant(),
        node: Some(node()),
        profile: Some(ProfileName::default_profile()),
        ttl: Some(Span::from_minutes(15)),
        name: None,
        labels: Labels::default(),
        connected: None,
        replace: false,
    }
}

fn operator_commands() -> Vec<(&'static str, Command)> {
    let only = Tenants::Only(BTreeSet::from([TenantId::default_tenant()]));
    let add = AddOperator {
        name: operator(),
        role: Role::PlatformAdmin,
        tenants: Tenants::All,
        certificate: Some(issued(SpiffeId::operator(&domain(), &operator()))),
        vclusters: Vclusters::All,
    };
    let renew =
        RenewOperator { name: operator(), certificate: issued(SpiffeId::operator(&domain(), &operator())) };
    let create_key = CreateOperatorKey {
        key: KeyId(id(3)),
        hash: SecretHash::new([14; 32]),
        name: operator(),
        role: Role::Viewer,
        tenants: only,
        ttl: Span::from_days(30),
        vclusters: Vclusters::All,
    };
    vec![
        ("add_operator", Command::AddOperator(add)),
        ("renew_operator", Command::RenewOperator(Box::new(renew))),
        ("use_renewed_certificate", Command::UseRenewedCertificate { name: operator() }),
        ("remove_operator", Command::RemoveOperator { name: operator(), keys_made: false }),
        ("create_operator_key", Command::CreateOperatorKey(create_key)),
        ("revoke_operator_key", Command::RevokeOperatorKey { key: KeyId(id(3)) }),
    ]
}

fn import() -> Import {
    Import {
        node: node(),
        serial: serial(),
        fingerprint: Fingerprint::new([21; 32]),
        key: KeyHash::new([22; 32]),
        issuer: issuer(),
        not_before: AT,
        not_after: later(7),
    }
}

fn housekeeping() -> Vec<(&'static str, Command)> {
    let certificate = ServerCertificate {
        serial: server_serial(),
        fingerprint: Fingerprint::new([15; 32]),
        issuer: issuer(),
        not_after: later(365),
        replica: ReplicaId::FIRST,
    };
    let refusals = Refusals {
        reason: "token_invalid".to_owned(),
        network: Some(Source::Address("192.0.2.0".parse().expect("an address"))),
        count: 17,
        samples: vec!["node-9".to_owned()],
        recovery: None,
        alert: None,
        renewal: None,
    };
    let checkpoint = Checkpoint { seq: 1000, head: Fingerprint::new([16; 32]), signature: vec![17; 8] };
    vec![
        ("record_server_certificate", Command::RecordServerCertificate(certificate)),
        ("record_refusals", Command::RecordRefusals(refusals)),
        ("record_checkpoint", Command::RecordCheckpoint(checkpoint)),
        (
            "accept_rollback",
            Command::AcceptRollback(AcceptRollback {
                directory_seq: 3,
                anchor_seq: Some(9),
                voids_recovery: false,
            }),
        ),
        ("record_forwarded", Command::RecordForwarded(Forwarded { sink: AuditSink::Loki, through: 900 })),
        (
            "skip_forwarding",
            Command::SkipForwarding(SkipForwarding {
                sink: AuditSink::Loki,
                to: 1200,
                cause: ForwardingGapCause::Missing,
            }),
        ),
        ("record_audit_gap", Command::RecordAuditGap(AuditGap { from: 3, to: 9, refilled: true })),
        ("tidy", Command::Tidy),
        ("expire", Command::Expire),
    ]
}

fn replica_certificate(number: u64) -> Issued {
    Issued {
        serial: Serial::parse(&format!("6c0{number}")).expect("a serial"),
        ..issued(SpiffeId::replica(&domain(), ReplicaId(number)))
    }
}

fn announce_replica() -> AnnounceReplica {
    AnnounceReplica {
        replica: ReplicaId(1),
        peer: "192.0.2.1:8444".to_owned(),
        urls: vec!["https://cp1.example:8443".to_owned()],
        certificate: Some(replica_certificate(1)),
    }
}

fn replica_commands() -> Vec<(&'static str, Command)> {
    let hash = SecretHash::new([70; 32]);
    let join = JoinReplica {
        hash,
        replica: ReplicaId(2),
        peer: "192.0.2.2:8444".to_owned(),
        urls: vec!["https://cp2.example:8443".to_owned(), "https://192.0.2.2:8443".to_owned()],
        certificate: replica_certificate(2),
    };
    let create = Command::CreateReplicaToken { token: TokenId(id(71)), hash, ttl: Span::from_hours(1) };
    let (replica, confirm) = (ReplicaId(1), Confirmation::NotAsked);
    vec![
        ("create_replica_token", create),
        ("join_replica", Command::JoinReplica(join)),
        ("announce_replica", Command::AnnounceReplica(announce_replica())),
        ("remove_replica", Command::RemoveReplica { replica, confirm, forced: false }),
    ]
}

fn bootstrap_commands() -> Vec<(&'static str, Command)> {
    let name = BootstrapName::parse("image-1").expect("a name");
    let certificate = Issued {
        serial: Serial::parse("6d01").expect("a serial"),
        ..issued(SpiffeId::bootstrap(&domain(), &name))
    };
    vec![
        (
            "issue_bootstrap",
            Command::IssueBootstrap(Box::new(IssueBootstrap { name: name.clone(), certificate })),
        ),
        ("revoke_bootstrap", Command::RevokeBootstrap { name }),
    ]
}

fn server_certificate_of_replica() -> ServerCertificate {
    ServerCertificate {
        serial: Serial::parse("5b03").expect("a serial"),
        fingerprint: Fingerprint::new([15; 32]),
        issuer: issuer(),
        not_after: later(365),
        replica: ReplicaId(2),
    }
}

fn sighting() -> Sighting {
    Sighting {
        node: node(),
        seen: AT,
        instance: Label::parse("start-1").ok(),
        bundle: Some(2),
        agent_version: Label::parse("0.1.0").ok(),
        report: None,
        recovery_kept: None,
        by_svid: false,
    }
}

fn node_commands() -> Vec<(&'static str, Command)> {
    let tenant = TenantId::parse("default").expect("a tenant");
    let renew = Renew {
        node: node(),
        key: KeyHash::new([22; 32]),
        key_kind: KeyKind::Ed25519,
        agent_version: Label::parse("0.1.0").ok(),
        prepared: Some(issued(SpiffeId::agent(&domain(), &tenant, &node()))),
        keeping: Keeping::default(),
    };
    let register = Register {
        node: node(),
        claim: Claim::Token(SecretHash::new([10; 32])),
        profile: Some(ProfileName::default_profile()),
        plane: Label::parse("flow").ok(),
        hostname: Label::parse("host-7").ok(),
    };
    let labels = BTreeMap::from([("site".to_owned(), "lon".to_owned())]);
    let describe = Describe {
        node: node(),
        name: Change::Set(Title::parse("Rack 7").expect("a title")),
        labels: Change::Set(Labels::parse(labels).expect("labels")),
        relabel: Relabel::default(),
    };
    let reason = || "stolen".to_owned();
    vec![
        ("renew", Command::Renew(Box::new(renew))),
        ("contact", Command::Contact { node: node() }),
        ("observe", Command::Observe(vec![sighting()])),
        ("mark_inactive", Command::MarkInactive(Silence { nodes: vec![node()], listening_since: AT })),
        ("drain", Command::Drain { node: node(), within: Some(Span::from_minutes(30)) }),
        ("undrain", Command::Undrain { node: node() }),
        ("quarantine", Command::Quarantine { node: node(), reason: reason() }),
        ("release", Command::Release { node: node() }),
        ("decommission", Command::Decommission { node: node(), force: false }),
        ("report_sessions", Command::ReportSessions(Box::new(report_sessions()))),
        ("revoke", Command::Revoke { node: node(), reason: reason() }),
        ("reinstate", Command::Reinstate { node: node(), as_registered: false }),
        ("rotate", Command::Rotate { node: node() }),
        ("register", Command::Register(register)),
        ("describe", Command::Describe(describe)),
        ("import", Command::Import(Box::new(import()))),
        ("claim_overlay", Command::ClaimOverlay(Box::new(claim_overlay()))),
        ("order_rekey", Command::OrderRekey { node: node(), replace: false }),
    ]
}

fn claim_overlay() -> ClaimOverlay {
    let key = WireguardKey::new([90; 32]).expect("a key");
    ClaimOverlay {
        node: node(),
        wireguard: Wireguard { key, fingerprint: Fingerprint::new([91; 32]) },
        underlay: Some(Underlay {
            ipv6: "2001:db8::9".parse().ok(),
            ipv4: "192.0.2.9".parse().ok(),
            port: 51820,
        }),
        holder_seen_at: Some(Source::Address([192, 0, 2, 8].into())),
        former_unproven: false,
    }
}

fn overlay_report() -> OverlayReport {
    OverlayReport {
        state: OverlayState::Unavailable,
        reason: Some(OverlayReason::NoTunDevice),
        detail: "there is no /dev/net/tun".to_owned(),
        interface: Label::parse("wg0").ok(),
        backend: Label::parse("userspace").ok(),
        key: Some(claim_overlay().wireguard.key),
        revision: 7,
        peers: 3,
        differences: 1,
        oldest_handshake_s: Some(125),
        recent_handshakes: 2,
        received_bytes: 1000,
        sent_bytes: 2000,
    }
}

fn report_sessions() -> ReportSessions {
    let session = |n: u8| Session {
        id: SessionId(id(n)),
        kind: SessionKind::Shell,
        user: Label::parse("alice").expect("a label"),
        opened_at: AT,
    };
    let closed =
        ClosedSession { session: session(9), reason: CloseReason::Ended, exit_status: Some(3), sequence: 2 };
    let instance = Label::parse("first-start").expect("a label");
    ReportSessions { node: node(), instance, sequence: 3, opened: vec![session(8)], closed: vec![closed] }
}

fn recovery_commands() -> Vec<(&'static str, Command)> {
    let tenant = TenantId::parse("default").expect("a tenant");
    let certificate = issued(SpiffeId::agent(&domain(), &tenant, &node()));
    let mint = Mint { token: TokenId(id(5)), hash: SecretHash::new([29; 32]) };
    let recover = Recover {
        token: mint.hash,
        key: KeyHash::new([22; 32]),
        key_kind: KeyKind::P256,
        node: Some(node()),
        class: Some(Class::CertExpired),
        bundle_ends: Some(later(1)),
        heard: Some(AT),
        agent_version: Label::parse("0.1.0").ok(),
        profile: None,
        strict: false,
        svid_counts: false,
        prepared: Some(Prepared {
            node: node(),
            tenant,
            profile: ProfileName::default_profile(),
            certificate,
        }),
    };
    let issue = IssueRepairBundle {
        node: node(),
        mint,
        ttl: Some(Span::from_hours(2)),
        profile: Label::parse("default").expect("a label"),
        endpoint: None,
    };
    let keeping = Keeping { kept: Some(TokenId(id(4))), mint: Some(mint), profile: None };
    vec![
        ("record_denied_certificate", denied_sighting(false)),
        ("revoke_recovery_tokens", Command::RevokeRecoveryTokens { node: node() }),
        ("mint_recovery", Command::MintRecovery { node: node(), keeping }),
        ("recover", Command::Recover(Box::new(recover))),
        ("issue_repair_bundle", Command::IssueRepairBundle(issue)),
        ("end_repair", Command::EndRepair { node: node() }),
    ]
}

fn denied_sighting(of_gone_nodes: bool) -> Command {
    let (serial, source) = (Serial::parse("3d").expect("a serial"), Source::Internal);
    Command::RecordDeniedCertificate(DeniedSighting { node: node(), serial, source, count: 3, of_gone_nodes })
}

/// Everything that can identify a machine.
fn identity() -> HardwareIdentity {
    let hash = "ab".repeat(32);
    let text = HardwareText {
        macs: vec!["02:00:00:00:00:01", "02:00:00:00:00:02"],
        bmc_serial: "SN 1",
        system_uuid: "4c4c4544-0036-3510-8052-b4c04f564432",
        tpm_ek_hash: &hash,
    };
    HardwareIdentity::registered(&text).expect("an identity")
}

fn vcluster() -> VclusterId {
    VclusterId::parse("blue").expect("a vCluster")
}

fn set_config(target: ConfigTarget) -> Command {
    let document = ConfigDocument { text: r#"{"a":1}"#.into(), checksum: Checksum::new([29; 32]) };
    Command::SetConfig(SetConfig { target, document })
}

fn vcluster_commands() -> Vec<(&'static str, Command)> {
    let register = RegisterHardware {
        node: node(),
        tenant: TenantId::default_tenant(),
        profile: Some(ProfileName::default_profile()),
        identity: identity(),
        vcluster: Some(vcluster()),
        alert: None,
    };

    let create = CreateVcluster { vcluster: vcluster(), tenant: TenantId::default_tenant() };
    vec![
        ("register_hardware", Command::RegisterHardware(Box::new(register))),
        ("create_vcluster", Command::CreateVcluster(create)),
        ("remove_vcluster", Command::RemoveVcluster { vcluster: vcluster() }),
        ("set_config", set_config(ConfigTarget::Vcluster(vcluster()))),
        ("assign", Command::Assign { node: node(), vcluster: vcluster() }),
        ("unassign", Command::Unassign { node: node() }),
        ("move", Command::Move { node: node(), vcluster: vcluster() }),
    ]
}

fn alert_commands() -> Vec<(&'static str, Command)> {
    let (from, to) = (Timestamp::from_secs(1_800_000_000), Timestamp::from_secs(1_800_172_800));
    let raise =
        RaiseAlert { kind: AlertKind::CloneSuspected, node: Some(node()), detail: "two starts".to_owned() };
    vec![
        ("raise_alert", Command::RaiseAlert(raise)),
        ("accept_clock", Command::AcceptClock(AcceptClock { from, to, confirm: Confirmation::NotAsked })),
        ("repair_clock", Command::RepairClock(RepairClock { to: from })),
        (
            "corroborate_clock",
            Command::CorroborateClock(CorroborateClock {
                replica: ReplicaId(1),
                from,
                to,
                agreeing: vec![ReplicaId(2), ReplicaId(3)],
            }),
        ),
        ("clear_alert", Command::ClearAlert { alert: AlertId(id(4)) }),
        ("acknowledge_alert", Command::AcknowledgeAlert { alert: AlertId(id(4)), dated: false }),
    ]
}

fn issuer_commands() -> Vec<(&'static str, Command)> {
    let next = IssuerId::parse("sealed-2").expect("an issuer");
    let prepare =
        PrepareRoll { key: KeyHash::new([23; 32]), request: "a request".to_owned(), sealed_key: vec![24; 3] };
    let certified = NewIssuer { id: next.clone(), sealed_key: vec![24; 3], ..found().issuer };
    let activate = ActivateIssuer {
        issuer: next,
        force: true,
        audit_certificate: vec![25; 3],
        confirm: Confirmation::NotAsked,
        other: None,
        by_stored_bundles: false,
    };
    let rewrap = Rewrap {
        issuers: vec![(issuer(), vec![26; 3].into())],
        audit: vec![27; 3],
        roll: Some(vec![28; 3].into()),
        pending: Vec::new(),
    };
    vec![
        ("prepare_roll", Command::PrepareRoll(prepare)),
        ("certify_roll", Command::CertifyRoll(Box::new(certified))),
        ("activate_issuer", Command::ActivateIssuer(activate)),
        ("retire_issuer", Command::RetireIssuer { issuer: issuer(), also: Vec::new() }),
        (
            "revoke_issuer",
            Command::RevokeIssuer {
                issuer: issuer(),
                reason: "lost".to_owned(),
                confirm: Confirmation::NotAsked,
                asks_for_holders: false,
            },
        ),
        ("rewrap", Command::Rewrap(rewrap)),
        ("begin_roll", Command::BeginRoll(begin_roll())),
        ("answer_roll", Command::AnswerRoll(Box::new(answer_roll()))),
        ("abandon_roll", Command::AbandonRoll),
        (
            "retire_root",
            Command::RetireRoot {
                root: Fingerprint::new([2; 32]),
                force: true,
                confirm: Confirmation::NotAsked,
                counts_operators: false,
            },
        ),
        ("import_root_list", Command::ImportRootList(Box::new(import_root_list()))),
        ("publish_issuer", Command::PublishIssuer(Box::new(publish()))),
        ("begin_issuance", Command::BeginIssuance(Box::new(begin_issuance()))),
        ("end_issuance", end_issuance(IntentEnd::NotSigned)),
        ("change_step_ca", change_step_ca()),
        ("record_delivered_revocations", Command::RecordDeliveredRevocations { serials: vec![serial()] }),
    ]
}

fn begin_roll() -> PendingRoll {
    let request = |usage, kind, n: u8| IssuerRequest {
        usage,
        kind,
        key: KeyHash::new([n; 32]),
        request: "a request".to_owned(),
        sealed_key: vec![n; 3],
    };
    let requests = vec![
        request(IssuerUse::Node, IssuerKind::Sealed, 61),
        request(IssuerUse::Server, IssuerKind::Pkcs11, 62),
    ];
    PendingRoll { requests, new_root: true }
}

fn answer_roll() -> AnswerRoll {
    let root = NewRoot {
        certificate: vec![63; 3],
        fingerprint: Fingerprint::new([64; 32]),
        not_after: later(7300),
        cross_certificate: vec![65; 3],
        list: None,
    };
    let issuer = |name: &str, usage, kind, n: u8| NewIssuer {
        id: IssuerId::parse(name).expect("an issuer"),
        kind,
        subject: format!("CN={name}"),
        certificate: vec![n; 3],
        fingerprint: Fingerprint::new([n; 32]),
        not_after: later(1825),
        sealed_key: vec![n; 3],
        usage,
        root: Some(root.fingerprint),
    };
    let issuers = vec![
        issuer("node-2", IssuerUse::Node, IssuerKind::Sealed, 61),
        issuer("server-2", IssuerUse::Server, IssuerKind::Pkcs11, 62),
    ];
    AnswerRoll { root: Some(root), issuers }
}

fn import_root_list() -> ImportRootList {
    ImportRootList {
        root: Fingerprint::new([2; 32]),
        list: RootList { number: 1_794_778_622, denied: vec![serial()], der: vec![66; 3] },
        issuers: vec![issuer()],
        confirm: Confirmation::Asked(Some("sealed-1".to_owned())),
        asks_for_nodes: false,
    }
}

/// A domain with an issuer for each use.
fn found_divided() -> Command {
    let found = found();
    let root = Some(found.root_fingerprint);
    let node = NewIssuer { usage: IssuerUse::Node, root, ..found.issuer.clone() };
    let server = NewIssuer {
        id: IssuerId::parse("server-1").expect("an issuer"),
        subject: "CN=Enlist Server Intermediate".to_owned(),
        fingerprint: Fingerprint::new([67; 32]),
        usage: IssuerUse::Server,
        ..node.clone()
    };
    Command::InitializeDomain(Box::new(InitializeDomain {
        issuer: node,
        server_issuer: Some(server),
        ..found
    }))
}

fn activate_both() -> Command {
    Command::ActivateIssuer(ActivateIssuer {
        issuer: IssuerId::parse("node-2").expect("an issuer"),
        force: true,
        audit_certificate: vec![68; 3],
        confirm: Confirmation::Asked(Some("node-2".to_owned())),
        other: IssuerId::parse("server-2").ok(),
        by_stored_bundles: true,
    })
}

/// One of every command, by its stored name.
fn samples() -> BTreeMap<&'static str, Command> {
    let tenant = TenantId::parse("lab").expect("a tenant");
    let failed = ConfirmStatus::Failed { reason: "disk_full".to_owned() };
    let policy = SetPolicy {
        key: "token.max_ttl".to_owned(),
        value: "2h".to_owned(),
        confirm: Confirmation::NotAsked,
    };
    let mut samples = BTreeMap::from([
        ("found", Command::InitializeDomain(Box::new(found()))),
        ("create_token", Command::CreateToken(create_token())),
        ("revoke_token", Command::RevokeToken { token: TokenId(id(2)) }),
        ("enroll", Command::Enroll(Box::new(enroll()))),
        ("confirm", Command::Confirm(Confirm { node: node(), status: failed, keeping: Keeping::default() })),
        ("create_tenant", Command::CreateTenant(CreateTenant { tenant })),
        ("set_policy", Command::SetPolicy(policy)),
    ]);
    samples.extend(operator_commands());
    samples.extend(housekeeping());
    samples.extend(node_commands());
    samples.extend(alert_commands());
    samples.extend(vcluster_commands());
    samples.extend(recovery_commands());
    samples.extend(issuer_commands());
    samples.extend(replica_commands());
    samples.extend(bootstrap_commands());
    samples
}

fn recover_svid() -> Command {
    let Some(Command::Recover(recover)) = samples().remove("recover") else { panic!("no sample") };
    Command::Recover(Box::new(Recover { svid_counts: true, ..*recover }))
}

fn register_hardware_bounded() -> Command {
    let Some(Command::RegisterHardware(register)) = samples().remove("register_hardware") else {
        panic!("no sample")
    };
    Command::RegisterHardware(Box::new(RegisterHardware { alert: Some(AlertId(id(6))), ..*register }))
}

/// Commands with fields that came later.
fn grown() -> Vec<(&'static str, Command)> {
    let said = Report {
        class: Some(Class::DiskFull),
        detail: "no space left on device".to_owned(),
        correlation_id: Label::parse("c-1").ok(),
        cert_serial: Serial::parse("1f").ok(),
        cert_not_after: Some(AT),
        bundle_version: 2,
        last_renewal: Some(Attempt {
            at: Some(AT),
            ok: false,
            code: Label::parse("unavailable").ok(),
            correlation_id: Label::parse("c-1").ok(),
        }),
        endpoint_profile_id: Label::parse("east").ok(),
        diagnostic_writable: Some(false),
        free_space: vec![FreeSpace { place: Place::Cert, path: "/var".to_owned(), available_bytes: 7 }],
        clock_offset_ms: -12,
        disk_free_bytes: 7,
        recovery_ready: true,
        drift_count: 1,
        observability_pressure: true,
        ..Report::blank(AT)
    };
    let renewal = RefusedRenewal { node: Some(node()), serial: Serial::parse("5e41").ok() };
    let refused_renewals = Refusals {
        reason: "csr_invalid".to_owned(),
        network: None,
        count: 3,
        samples: vec!["host-7:1".to_owned()],
        recovery: None,
        renewal: Some(renewal),
        alert: None,
    };
    let reporting = Sighting { report: Some(Arc::new(said)), ..sighting() };
    let by = |credential| Command::Enroll(Box::new(Enroll { credential, ..enroll() }));
    let text = HardwareText { macs: vec!["02:00:00:00:00:01"], ..HardwareText::default() };
    let hardware = Credential::Hardware(HardwareIdentity::claimed(&text).expect("an identity"));
    vec![
        ("observe_report", Command::Observe(vec![reporting])),
        ("record_refused_renewals", Command::RecordRefusals(refused_renewals)),
        ("enroll_hardware", by(hardware)),
        ("enroll_recovery", by(Credential::Recovery(SecretHash::new([10; 32])))),
        (
            "enroll_conflict",
            Command::Enroll(Box::new(Enroll {
                conflict_alerts: true,
                holder_seen_at: Some(Source::Socket),
                ..enroll()
            })),
        ),
        ("enroll_replacement", Command::Enroll(Box::new(Enroll { replacement_alerts: true, ..enroll() }))),
        (
            "create_token_replace",
            Command::CreateToken(CreateToken {
                connected: Some(NodeConnection { since: AT, from: Source::Socket }),
                replace: true,
                ..create_token()
            }),
        ),
        (
            "create_token_labels",
            Command::CreateToken(CreateToken {
                labels: Labels::parse_list("env=prod,rack=7").expect("labels"),
                ..create_token()
            }),
        ),
        (
            "describe_relabel",
            Command::Describe(Describe {
                node: node(),
                name: Change::Keep,
                labels: Change::Keep,
                relabel: Relabel {
                    remove: BTreeSet::from([LabelKey::parse("rack").expect("a key")]),
                    set: Labels::parse_list("env=prod").expect("labels"),
                },
            }),
        ),
        (
            "set_policy_confirmed",
            Command::SetPolicy(SetPolicy {
                key: "attestors".to_owned(),
                value: "hardware".to_owned(),
                confirm: Confirmation::Asked(Some("attestors".to_owned())),
            }),
        ),
        (
            "revoke_issuer_asked",
            Command::RevokeIssuer {
                issuer: issuer(),
                reason: "lost".to_owned(),
                confirm: Confirmation::Asked(None),
                asks_for_holders: false,
            },
        ),
        (
            "revoke_issuer_asked_for_holders",
            Command::RevokeIssuer {
                issuer: issuer(),
                reason: "lost".to_owned(),
                confirm: Confirmation::Asked(None),
                asks_for_holders: true,
            },
        ),
        (
            "import_root_list_asked_for_nodes",
            Command::ImportRootList(Box::new(ImportRootList { asks_for_nodes: true, ..import_root_list() })),
        ),
        (
            "accept_clock_asked",
            Command::AcceptClock(AcceptClock {
                from: Timestamp::from_secs(1_800_000_000),
                to: Timestamp::from_secs(1_800_172_800),
                confirm: Confirmation::Asked(Some("clock".to_owned())),
            }),
        ),
        ("reinstate_as_registered", Command::Reinstate { node: node(), as_registered: true }),
        ("record_denied_certificate_of_gone_nodes", denied_sighting(true)),
        ("acknowledge_alert_dated", Command::AcknowledgeAlert { alert: AlertId(id(4)), dated: true }),
        ("enroll_claimed", Command::Enroll(Box::new(Enroll { claimed: Some(identity()), ..enroll() }))),
        ("enroll_memory", Command::Enroll(Box::new(Enroll { memory_storage: true, ..enroll() }))),
        ("enroll_strict", Command::Enroll(Box::new(Enroll { strict: true, ..enroll() }))),
        ("recover_svid", recover_svid()),
        ("register_hardware_bounded", register_hardware_bounded()),
        ("observe_svid", Command::Observe(vec![Sighting { by_svid: true, ..sighting() }])),
        ("decommission_forced", Command::Decommission { node: node(), force: true }),
        ("set_config_defaults", set_config(ConfigTarget::Defaults)),
        ("set_config_node", set_config(ConfigTarget::Node(node()))),
        ("found_ephemeral", found_ephemeral()),
        ("found_divided", found_divided()),
        ("found_step_ca", found_step_ca()),
        ("found_with_list", found_with_list()),
        ("answer_roll_with_list", answer_with_list()),
        ("end_issuance_not_recorded", end_issuance(IntentEnd::NotRecorded { serial: serial() })),
        (
            "end_issuance_misbehaved",
            end_issuance(IntentEnd::Misbehaved { serial: Some(serial()), what: "another key".to_owned() }),
        ),
        (
            "renew_external",
            Command::Renew(Box::new(Renew {
                node: node(),
                key: KeyHash::new([22; 32]),
                key_kind: KeyKind::P256,
                agent_version: None,
                prepared: Some(issued_externally()),
                keeping: Keeping::default(),
            })),
        ),
        ("activate_issuer_both", activate_both()),
        (
            "retire_issuers",
            Command::RetireIssuer { issuer: issuer(), also: vec![IssuerId::parse("i2").expect("an issuer")] },
        ),
        (
            "retire_root_confirmed",
            Command::RetireRoot {
                root: Fingerprint::new([2; 32]),
                force: true,
                confirm: Confirmation::Asked(Some("sha256:02".to_owned())),
                counts_operators: false,
            },
        ),
        (
            "retire_root_counting_operators",
            Command::RetireRoot {
                root: Fingerprint::new([2; 32]),
                force: true,
                confirm: Confirmation::Asked(Some("sha256:02".to_owned())),
                counts_operators: true,
            },
        ),
        (
            "rewrap_pending",
            Command::Rewrap(Rewrap {
                issuers: vec![(issuer(), vec![26; 3].into())],
                audit: vec![27; 3],
                roll: None,
                pending: vec![vec![28; 3].into(), vec![29; 3].into()],
            }),
        ),
    ]
    .into_iter()
    .chain(narrowed())
    .chain(replicas_grown())
    .collect()
}

/// What commands say that not every one has to say, in a cluster.
fn replicas_grown() -> Vec<(&'static str, Command)> {
    let confirm = Confirmation::Asked(Some("1".to_owned()));
    vec![
        (
            "record_server_certificate_of_replica",
            Command::RecordServerCertificate(server_certificate_of_replica()),
        ),
        (
            "announce_replica_address",
            Command::AnnounceReplica(AnnounceReplica { certificate: None, ..announce_replica() }),
        ),
        ("remove_replica_forced", Command::RemoveReplica { replica: ReplicaId(1), confirm, forced: true }),
        (
            "accept_rollback_voiding_recovery",
            Command::AcceptRollback(AcceptRollback {
                directory_seq: 3,
                anchor_seq: None,
                voids_recovery: true,
            }),
        ),
        ("remove_operator_with_keys", Command::RemoveOperator { name: operator(), keys_made: true }),
    ]
}

/// Operators and keys that are narrowed to vClusters.
fn narrowed() -> Vec<(&'static str, Command)> {
    let vclusters = || Vclusters::narrowed(BTreeSet::from([vcluster()]));
    let narrowed = |(name, command): (&'static str, Command)| match command {
        Command::AddOperator(add) => {
            let add = AddOperator { role: Role::Operator, vclusters: vclusters(), ..add };
            Some(("add_operator_narrowed", Command::AddOperator(add)))
        }
        Command::CreateOperatorKey(create) => {
            let create = CreateOperatorKey { role: Role::Operator, vclusters: vclusters(), ..create };
            Some(("create_operator_key_narrowed", Command::CreateOperatorKey(create)))
        }
        _ => panic!("{name} cannot be narrowed"),
    };
    let narrows = |(name, _): &(&str, Command)| matches!(*name, "add_operator" | "create_operator_key");
    operator_commands().into_iter().filter(narrows).filter_map(narrowed).collect()
}

fn envelope(command: Command) -> Envelope {
    Envelope {
        id: RequestId(id(9)),
        actor: Actor::Local { user: "root".to_owned() },
        source: Source::Socket,
        request_id: Label::parse("mine").ok(),
        correlation_id: Label::parse("theirs").ok(),
        command,
    }
}

fn commands(command: Command) -> StoredPayload {
    let envelope = EncodedEnvelope::encode(envelope(command)).expect("encodes");
    StoredPayload::Commands(Batch::new(AT, vec![Arc::new(envelope)]))
}

fn entry(payload: StoredPayload) -> StoredEntry {
    StoredEntry { term: 1, leader: 1, index: 7, payload }
}

#[test]
fn every_command_decodes_for_ever() {
    for (name, command) in samples().into_iter().chain(grown()) {
        let expected = entry(commands(command));
        let sample = golden(&format!("entry.{name}.v1"), || seal(&expected).expect("encodes"));
        assert_eq!(open::<StoredEntry>(&sample), Ok(expected), "{name}");
    }
}

/// The actor of a node that came by an SVID.
#[test]
fn a_command_by_svid_decodes_for_ever() {
    let actor = Actor::Svid {
        id: node(),
        spiffe_id: "spiffe://spire.example/enlist/n-1".to_owned(),
        serial: Serial::parse("6e01").expect("a serial"),
    };
    let by_svid = Envelope { actor, ..envelope(Command::Contact { node: node() }) };
    let sample = golden("envelope.by_svid.v1", || seal(&by_svid).expect("encodes"));
    assert_eq!(open::<Envelope>(&sample), Ok(by_svid));
}

#[test]
fn entries_without_commands_decode_for_ever() {
    let nodes = BTreeMap::from([(1, openraft::BasicNode::new("replica-1:7443"))]);
    let membership = openraft::Membership::new(vec![BTreeSet::from([1])], nodes);
    for (name, payload) in
        [("blank", StoredPayload::Blank), ("membership", StoredPayload::Membership(membership))]
    {
        let expected = entry(payload);
        let sample = golden(&format!("entry.{name}.v1"), || seal(&expected).expect("encodes"));
        assert_eq!(open::<StoredEntry>(&sample), Ok(expected), "{name}");
    }
}

/// serde names all variants when it is offered one that does not exist.
#[test]
fn every_command_has_a_sample() {
    let error = serde_json::from_str::<Command>("\"?\"").expect_err("no such command").to_string();
    let (_, names) = error.split_once("expected one of").expect("a list of names");
    let known: BTreeSet<&str> = names.split('`').skip(1).step_by(2).collect();
    assert!(known.len() > 10, "{error}");
    assert_eq!(known, samples().into_keys().collect::<BTreeSet<_>>());
}

/// A registry with one of everything that commands can make.
fn image() -> Image {
    let mut state = State::default();
    let mut run = |n: u8, actor: Actor, command: Command| {
        let envelope = Envelope { id: RequestId(id(n)), actor, ..envelope(command) };
        let applied = apply(&mut state, &envelope, AT);
        assert!(applied.answer.is_ok(), "{applied:?}");
    };
    let local = || Actor::Local { user: "root".to_owned() };
    let samples = samples();
    let sample = |name: &str| samples.get(name).cloned().expect("a sample");
    run(30, local(), sample("found"));
    run(31, local(), sample("create_token"));
    run(32, Actor::Stranger, Command::Enroll(Box::new(Enroll { requested_node: None, ..enroll() })));
    run(33, local(), sample("create_tenant"));
    run(34, local(), sample("set_policy"));
    run(35, local(), sample("create_operator_key"));
    run(36, Actor::Reconciler, sample("record_server_certificate"));
    let log_id = openraft::LogId::new(openraft::CommittedLeaderId::new(1, 1), 7);
    let meta = journal::conformance::ImageMeta {
        log_id: Some(log_id),
        membership: openraft::StoredMembership::default(),
        audit: journal::AuditHead { seq: 9, head: Fingerprint::new([18; 32]) },
        at: AT,
    };
    Image { meta, state }
}

/// The same with vClusters, their documents, machines known by their hardware, and who is narrowed.
fn grown_image() -> Image {
    let mut state = State::default();
    let mut run = |n: u8, command: Command| {
        let envelope = Envelope { id: RequestId(id(n)), ..envelope(command) };
        let applied = apply(&mut state, &envelope, AT);
        assert!(applied.answer.is_ok(), "{applied:?}");
    };
    let samples = samples();
    let sample = |name: &str| samples.get(name).cloned().expect("a sample");
    let grown: BTreeMap<_, _> = grown().into_iter().collect();
    let later = |name: &str| grown.get(name).cloned().expect("a sample");
    let first =
        [sample("found"), sample("create_vcluster"), sample("register_hardware"), sample("set_config")];
    let then = ["set_config_defaults", "set_config_node", "create_operator_key_narrowed"].map(later);
    for (n, command) in (40..).zip(first.into_iter().chain(then)) {
        run(n, command);
    }
    Image { state, ..image() }
}

#[test]
fn a_snapshot_with_vclusters_decodes_for_ever() {
    let sample = golden("snapshot_vclusters.v1", || {
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&grown_image(), &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    let machine = state.nodes.get(&node()).expect("the node");
    assert_eq!(machine.identity.as_deref(), Some(&identity()));
    assert_eq!((&machine.vcluster, machine.registered_at), (&Some(vcluster()), Some(AT)));
    assert_eq!(state.nodes_with_hardware(&identity()).len(), 1);
    let config = state.config_of(machine);
    assert_eq!((config.base.version(), config.own.version(), state.defaults.version()), (1, 1, 1));
    assert_eq!((state.config_sequence, state.config_mark(machine)), (4, 4));
    let key = state.operator_keys.values().next().expect("the key");
    assert_eq!(key.vclusters, Vclusters::narrowed(BTreeSet::from([vcluster()])));
}

#[test]
fn a_snapshot_with_who_is_behind_a_key_decodes_for_ever() {
    let (made, asked) = (KeyId(id(90)), RequestId(id(91)));
    let sample = golden("snapshot_key_makers.v1", || {
        let mut state = image().state;
        let key = state.operator_keys.values().next().cloned().expect("the key");
        let key = OperatorKey {
            id: made,
            created_by: "user:alice".to_owned(),
            behind: BTreeSet::from([operator()]),
            ..key
        };
        state.operator_keys.insert(made, key);
        let answer = Ok(Outcome::OperatorRemoved { keys: vec![made] });
        state.recent.insert(asked, Arc::new(Recorded { answer }));
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&Image { state, ..image() }, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    assert_eq!(state.operator_keys[&made].behind, BTreeSet::from([operator()]));
    assert_eq!(state.recent[&asked].answer, Ok(Outcome::OperatorRemoved { keys: vec![made] }));
}

#[test]
fn a_snapshot_with_an_ephemeral_issuer_decodes_for_ever() {
    let sample = golden("snapshot_ephemeral.v1", || {
        let mut state = State::default();
        let replica = Actor::Replica { id: ReplicaId(1) };
        for (n, actor, command) in [
            (50, envelope(Command::Tidy).actor, found_ephemeral()),
            (51, replica, Command::PublishIssuer(Box::new(publish()))),
        ] {
            let envelope = Envelope { id: RequestId(id(n)), actor, ..envelope(command) };
            let applied = apply(&mut state, &envelope, AT);
            assert!(applied.answer.is_ok(), "{applied:?}");
        }
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&Image { state, ..image() }, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    assert!(state.has_ephemeral_issuers());
    let issuer = state.ephemeral_issuer(ReplicaId(1)).expect("the issuer of the replica");
    assert_eq!((issuer.kind, issuer.certificate.as_slice()), (IssuerKind::Ephemeral, &[8; 3][..]));
    assert_eq!(state.ephemeral_version, 1);
}

#[test]
fn a_snapshot_with_a_step_ca_decodes_for_ever() {
    let sample = golden("snapshot_step_ca.v1", || {
        let mut state = State::default();
        let replica = || Actor::Replica { id: ReplicaId(1) };
        let second = BeginIssuance { serial: Serial::parse("5b04").expect("a serial"), ..begin_issuance() };
        let misbehaved = IntentEnd::Misbehaved { serial: None, what: "another key".to_owned() };
        let end = EndIssuance { replica: ReplicaId(1), intent: RequestId(id(91)), end: misbehaved };
        for (n, actor, command) in [
            (90, envelope(Command::Tidy).actor, found_step_ca()),
            (91, replica(), Command::BeginIssuance(Box::new(begin_issuance()))),
            (92, replica(), Command::BeginIssuance(Box::new(second))),
            (93, replica(), Command::EndIssuance(Box::new(end))),
        ] {
            let envelope = Envelope { id: RequestId(id(n)), actor, ..envelope(command) };
            let applied = apply(&mut state, &envelope, AT);
            assert!(applied.answer.is_ok(), "{applied:?}");
        }
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&Image { state, ..image() }, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    let (issuer, step_ca) = state.step_ca_issuer().expect("signs for nodes");
    assert_eq!((&issuer.id, step_ca.access.provisioner.as_str()), (&step_ca_id(), "enlist"));
    assert_eq!((state.intents.len(), state.undelivered_revocations.len()), (1, 1));
    assert!(state.undelivered_revocations.contains_key(&serial()));
}

/// The envelope of a sample, as it is on disk.
fn stored(name: &str, n: u8) -> Envelope {
    let sample = golden(&format!("entry.{name}.v1"), || {
        let mut known = samples().into_iter().chain(grown());
        let (_, command) = known.find(|(known, _)| *known == name).expect("a sample");
        seal(&entry(commands(command))).expect("encodes")
    });
    let StoredPayload::Commands(batch) = open::<StoredEntry>(&sample).expect("decodes").payload else {
        panic!("{name} holds no command")
    };
    let first = batch.envelopes().next().expect("an envelope").clone();
    Envelope { id: RequestId(id(n)), ..first }
}

fn lines(state: &mut State, names: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, name) in (70..).zip(names) {
        let applied = apply(state, &stored(name, n), AT);
        assert_eq!(applied.answer, Ok(Outcome::Done), "{name}");
        lines.extend(applied.events.iter().map(|event| {
            let fields = event
                .fields()
                .into_iter()
                .map(|(name, field)| format!("{name}={}", serde_json::to_value(field).expect("a field")));
            format!("{} {}", event.name(), fields.collect::<Vec<_>>().join(" "))
        }));
    }
    lines
}

/// A field that was added since is not written where it says nothing.
#[test]
fn commands_of_before_are_written_as_they_were() {
    for name in [
        "found",
        "found_ephemeral",
        "prepare_roll",
        "certify_roll",
        "activate_issuer",
        "rewrap",
        "record_server_certificate",
    ] {
        let sample = golden(&format!("entry.{name}.v1"), || panic!("{name} is an old sample"));
        let read = open::<StoredEntry>(&sample).expect("decodes");
        assert_eq!(seal(&read).expect("encodes"), sample, "{name}");
    }
}

/// What versions that knew one issuer for both uses wrote to their logs gives the lines that it gave them.
#[test]
fn a_roll_of_before_is_applied_as_it_was() {
    let mut state = State::default();
    let rolled = ["found", "prepare_roll", "certify_roll", "activate_issuer", "retire_issuer"];
    let [two, four, seventeen] = [2, 4, 0x17].map(|n: u8| format!("{n:02x}").repeat(32));
    let expected = [
        format!(
            "domain.founded domain=\"fleet.example\" cluster_id=\"{}\" root_fingerprint=\"SHA256:{two}\" issuer=\"sealed-1\" issuer_fingerprint=\"SHA256:{four}\"",
            ClusterId(id(1))
        ),
        format!("ca.requested key_hash=\"{seventeen}\""),
        format!(
            "ca.prepared issuer=\"sealed-2\" issuer_fingerprint=\"SHA256:{four}\" subject=\"CN=Enlist Intermediate\" not_after=\"{}\"",
            later(365)
        ),
        "ca.activated issuer=\"sealed-2\" before=\"sealed-1\" forced=true".to_owned(),
        "ca.retired issuer=\"sealed-1\"".to_owned(),
    ];
    assert_eq!(lines(&mut state, &rolled), expected);
    let second = IssuerId::parse("sealed-2").expect("an issuer");
    assert_eq!(state.client_issuer().map(|issuer| &issuer.id), Some(&second));
    assert_eq!(state.server_issuer().map(|issuer| &issuer.id), Some(&second));
    assert!(!state.is_divided());
    let mut state = State::default();
    let rewrapped = lines(&mut state, &["found", "prepare_roll", "rewrap"]);
    assert_eq!(rewrapped.last().map(String::as_str), Some("ca.rewrapped issuers=[\"sealed-1\"]"));
    assert_eq!(state.roll.map(|roll| roll.sealed_key), Some(vec![28; 3]));
}

#[test]
fn a_roll_of_everything_is_applied_from_its_stored_form() {
    let mut state = State::default();
    let stored = ["found_divided", "begin_roll", "answer_roll", "activate_issuer_both", "retire_root"];
    lines(&mut state, &stored);
    let names =
        [state.client_issuer(), state.server_issuer()].map(|issuer| issuer.map(|issuer| issuer.id.as_str()));
    assert_eq!(names, [Some("node-2"), Some("server-2")]);
    assert_eq!(state.server_trust().collect::<Vec<_>>(), [[63; 3]]);
}

#[test]
fn a_snapshot_with_a_roll_decodes_for_ever() {
    let sample = golden("snapshot_roll.v1", || {
        let mut state = State::default();
        lines(&mut state, &["found_divided", "import_root_list", "begin_roll", "answer_roll"]);
        state.pending_roll = Some(begin_roll());
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&Image { state, ..image() }, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    assert_eq!(state.pending_roll, Some(begin_roll()));
    let uses: Vec<_> = state.issuers.values().map(|issuer| (issuer.usage, issuer.state)).collect();
    let expected = [
        (IssuerUse::Node, IssuerState::Prepared),
        (IssuerUse::Node, IssuerState::Active),
        (IssuerUse::Server, IssuerState::Active),
        (IssuerUse::Server, IssuerState::Prepared),
    ];
    assert_eq!(uses, expected);
    let roots: Vec<_> = state.roots.iter().map(|root| root.state).collect();
    assert_eq!(roots, [RootState::Active, RootState::Prepared]);
    assert_eq!(state.cross_certificates(AT).collect::<Vec<_>>(), [[65; 3]]);
    assert_eq!(state.root_lists().map(|list| list.number).collect::<Vec<_>>(), [1_794_778_622]);
}

#[test]
fn a_snapshot_with_replicas_decodes_for_ever() {
    let sample = golden("snapshot_replicas.v1", || {
        let mut state = State::default();
        let local = || envelope(Command::Tidy).actor;
        for (n, actor, name) in [
            (80, local(), "found"),
            (81, Actor::Replica { id: ReplicaId(1) }, "announce_replica"),
            (82, local(), "create_replica_token"),
            (83, Actor::Stranger, "join_replica"),
            (84, Actor::Reconciler, "record_server_certificate_of_replica"),
            (85, local(), "remove_replica_forced"),
        ] {
            let applied = apply(&mut state, &Envelope { actor, ..stored(name, n) }, AT);
            assert!(applied.answer.is_ok(), "{name}: {applied:?}");
        }
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&Image { state, ..image() }, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    let first = state.replicas.get(&ReplicaId(1)).expect("the first replica");
    assert_eq!((first.state, first.removed_at), (ReplicaState::Removed, Some(AT)));
    let second = state.member(ReplicaId(2)).expect("the second replica");
    assert_eq!((second.peer.as_str(), second.urls.len()), ("192.0.2.2:8444", 2));
    assert_eq!((second.serial.as_ref(), second.joined_at), (Some(&replica_certificate(2).serial), AT));
    let owner = state.certificates.get(&replica_certificate(2).serial).map(|held| &held.owner);
    assert_eq!(owner, Some(&Owner::Replica(ReplicaId(2))));
    assert!(state.is_denied(&replica_certificate(1).serial));
    let token = state.replica_token_with_hash(&SecretHash::new([70; 32])).expect("the token");
    assert_eq!((token.used_at, token.used_by), (Some(AT), Some(ReplicaId(2))));
    assert_eq!(state.server_certificates().collect::<Vec<_>>(), [&server_certificate_of_replica()]);
    assert_eq!((state.last_replica, state.epoch, state.feature_level), (2, 1, 1));
}

/// What a domain of before replicas says of them.
#[test]
fn a_snapshot_of_before_has_no_replicas() {
    let sample = golden("snapshot.v1", || panic!("an old sample"));
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    assert!(state.replicas.is_empty() && state.replica_tokens.is_empty());
    assert_eq!((state.last_replica, state.epoch, state.feature_level), (1, 1, 1));
    assert_eq!(state.server_certificate_of(ReplicaId::FIRST).map(|own| own.replica), Some(ReplicaId::FIRST));
}

#[test]
fn a_snapshot_with_sessions_decodes_for_ever() {
    let sample = golden("snapshot_sessions.v1", || {
        let mut image = image();
        let Command::ReportSessions(report) = samples().remove("report_sessions").expect("a sample") else {
            panic!("another command")
        };
        let of = image.state.nodes.get_mut(&node()).map(Arc::make_mut).expect("the node");
        of.sessions.open = report.opened.clone();
        of.sessions.recorded = Some(SessionMark { instance: report.instance.clone(), sequence: 3 });
        of.sessions.terminated = 2;
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&image, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    let sessions = &state.nodes.get(&node()).expect("the node").sessions;
    assert_eq!(sessions.open, report_sessions().opened);
    assert_eq!((sessions.recorded.as_ref().map(|mark| mark.sequence), sessions.terminated), (Some(3), 2));
}

#[test]
fn a_snapshot_with_an_overlay_decodes_for_ever() {
    let (scope, vcluster) = (OverlayScope::Vcluster, VclusterId::parse("ml").expect("a vCluster"));
    let sample = golden("snapshot_overlay.v1", || {
        let mut image = image();
        let claim = claim_overlay();
        let tenant = image.state.nodes[&node()].tenant.clone();
        let of = image.state.nodes.get_mut(&node()).map(Arc::make_mut).expect("the node");
        of.rekey = Some(Rotation { order: RequestId(id(92)), at: AT, replace: false });
        of.report = Some(Arc::new(Report { overlay: Some(Box::new(overlay_report())), ..Report::blank(AT) }));
        image.state.policy.overlay_scope = scope;
        image.state.policy.overlay_keepalive = Some(Span::from_secs(25));
        image.state.resting_keys.insert((AT, claim.wireguard.key), node());
        let peer = Peer {
            key: claim.wireguard.key,
            address: "fd00::1".parse().expect("an address"),
            underlay: claim.underlay,
            since: 4,
            vcluster: Some(vcluster.clone()),
            regrouped: 3,
        };
        let overlay = image.state.overlays.entry(tenant).or_default();
        overlay.revision = 4;
        overlay.peers.insert(node(), Arc::new(peer));
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&image, &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { state, .. } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    let of = state.nodes.get(&node()).expect("the node");
    assert_eq!(of.rekey.as_ref().map(|rekey| rekey.at), Some(AT));
    let said = of.report.as_ref().and_then(|report| report.overlay.as_deref().cloned());
    assert_eq!(said, Some(overlay_report()));
    assert_eq!(state.policy.overlay_scope, scope);
    assert_eq!(state.policy.overlay_keepalive, Some(Span::from_secs(25)));
    assert_eq!(state.resting_keys.get(&(AT, claim_overlay().wireguard.key)), Some(&node()));
    let overlay = state.overlays.get(&of.tenant).expect("the overlay");
    let peer = overlay.peers.get(&node()).expect("the peer");
    assert_eq!((overlay.revision, peer.since, peer.regrouped), (4, 4, 3));
    assert_eq!((peer.vcluster.as_ref(), peer.underlay), (Some(&vcluster), claim_overlay().underlay));
}

#[test]
fn a_snapshot_decodes_for_ever() {
    let sample = golden("snapshot.v1", || {
        let mut file = Cursor::new(Vec::new());
        encode_snapshot(&image(), &mut file).expect("encodes");
        file.into_inner()
    });
    let Image { meta, state } = decode_snapshot(Cursor::new(sample)).expect("decodes");
    assert_eq!(meta, image().meta);
    assert_eq!(state.domain.map(|domain| domain.name), Some(domain()));
    assert_eq!(state.at, AT);
    let made = state.nodes.get(&node()).expect("the node");
    assert_eq!(made.current_serial(), Some(&serial()));
    let certificate = state.certificates.get(&serial()).expect("its certificate");
    assert_eq!(certificate.fingerprint, Fingerprint::new([21; 32]));
    assert_eq!(certificate.der.as_deref(), Some(&vec![0x30, 0x03, 0x02, 0x01, 0xff]));
    assert_eq!(state.tokens.get(&TokenId(id(2))).map(|token| token.word(AT)), Some("used"));
    assert_eq!(state.tenants.len(), 2);
    assert_eq!(state.operator_keys.len(), 1);
    assert_eq!(state.issuers.get(&issuer()).map(|issuer| issuer.not_after), Some(later(365)));
    assert_eq!(state.policy.token_max_ttl, Span::from_hours(2));
    assert_eq!(state.server_certificate.map(|certificate| certificate.serial), Some(server_serial()));
    assert_eq!(state.recent.len(), 7);
}
