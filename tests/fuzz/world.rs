//! What the targets stand on: one issuer, one moment, and a domain with a little history. Always the same, so
//! that an input does tomorrow what it did today.

use lifecycle::names::{
    ClusterId, Fingerprint, IdempotencyHash, IssuerId, KeyHash, KeyId, KeyKind, Label, NodeId, OperatorName,
    ProfileName, RequestId, SecretHash, Serial, Source, Span, SpiffeId, TenantId, Timestamp, TokenId,
    TrustDomain, Ulid, WireguardKey,
};
use lifecycle::registry::{
    Actor, AddOperator, Command, Confirm, ConfirmStatus, CreateOperatorKey, CreateTenant, CreateToken,
    Credential, Door, Enroll, Envelope, Hardware, InitializeDomain, Issued, IssuerKind, Keeping, NewIssuer,
    NodeSigner, Policy, Prepared, Role, State, Tenants, Underlay, Vclusters, Wireguard, apply,
};
use pki::issuer::SigningIssuer;
use std::sync::LazyLock;

pub const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

pub fn domain() -> TrustDomain {
    TrustDomain::parse("fuzz.example").expect("a trust domain")
}

/// Its key is public and vouches for nothing: without a fixed one no kept certificate would hold.
pub fn issuer() -> &'static SigningIssuer {
    static ISSUER: LazyLock<SigningIssuer> = LazyLock::new(|| {
        SigningIssuer::new(include_bytes!("issuer.der"), include_bytes!("issuer.key")).expect("an issuer")
    });
    &ISSUER
}

pub fn policy() -> Policy {
    Policy::default()
}

/// After [`history`].
pub fn state() -> State {
    static STATE: LazyLock<State> = LazyLock::new(|| {
        let mut state = State::default();
        for envelope in history() {
            let applied = apply(&mut state, &envelope, AT);
            assert!(applied.answer.is_ok(), "{:?}", applied.answer);
        }
        state
    });
    STATE.clone()
}

/// A tenant, an operator, an API key; three tokens, one pinned; a node that has used the first token.
pub fn history() -> Vec<Envelope> {
    let robot = CreateOperatorKey {
        key: KeyId(ulid(40)),
        hash: SecretHash::new([41; 32]),
        name: operator_name(),
        role: Role::Operator,
        tenants: Tenants::All,
        ttl: Span::from_days(1),
        vclusters: Vclusters::All,
    };
    vec![
        envelope(1, local(), Command::InitializeDomain(Box::new(found()))),
        envelope(2, local(), Command::CreateTenant(CreateTenant { tenant: tenant() })),
        envelope(3, local(), Command::AddOperator(operator())),
        envelope(4, local(), Command::CreateOperatorKey(robot)),
        envelope(5, local(), Command::CreateToken(token(1, None))),
        envelope(6, local(), Command::CreateToken(token(2, None))),
        envelope(7, local(), Command::CreateToken(token(3, Some("n-1")))),
        envelope(8, Actor::Stranger, Command::Enroll(Box::new(enroll(1, "n-1")))),
    ]
}

pub fn local() -> Actor {
    Actor::Local { user: "root".to_owned() }
}

pub fn node_actor(n: u8, name: &str) -> Actor {
    Actor::Node { id: node(name), serial: serial(n) }
}

pub fn envelope(n: u8, actor: Actor, command: Command) -> Envelope {
    Envelope {
        id: RequestId(ulid(n)),
        actor,
        source: Source::Address([192, 0, 2, 1].into()),
        request_id: Label::parse("req-1").ok(),
        correlation_id: None,
        command,
    }
}

pub fn ulid(n: u8) -> Ulid {
    Ulid::new(AT, [n; 10])
}

pub fn node(name: &str) -> NodeId {
    NodeId::parse(name).expect("a node id")
}

pub fn tenant() -> TenantId {
    TenantId::parse("acme").expect("a tenant")
}

fn operator_name() -> OperatorName {
    OperatorName::parse("alice").expect("an operator name")
}

pub fn serial(n: u8) -> Serial {
    Serial::from_bytes(&[0x40, n]).expect("a serial")
}

fn issuer_id() -> IssuerId {
    IssuerId::parse("i1").expect("an issuer id")
}

pub fn found() -> InitializeDomain {
    InitializeDomain {
        domain: domain(),
        cluster: ClusterId(ulid(90)),
        overlay_prefix: "fd12:3456:789a::".parse().expect("an address"),
        default_profile: ProfileName::default_profile(),
        root: b"root".to_vec(),
        root_fingerprint: Fingerprint::new([91; 32]),
        root_not_after: AT.plus(Span::from_days(3650)),
        issuer: NewIssuer {
            id: issuer_id(),
            kind: IssuerKind::Sealed,
            subject: "CN=issuer".to_owned(),
            certificate: b"issuer".to_vec(),
            fingerprint: Fingerprint::new([92; 32]),
            not_after: AT.plus(Span::from_days(365)),
            sealed_key: b"sealed".to_vec(),
            usage: lifecycle::names::IssuerUse::Both,
            root: None,
        },
        audit_certificate: b"audit".to_vec(),
        audit_sealed_key: b"sealed".to_vec(),
        step_ca: None,
        node_signer: NodeSigner::DomainIssuer,
        server_issuer: None,
        root_list: None,
    }
}

fn operator() -> AddOperator {
    let certificate = issued(30, SpiffeId::operator(&domain(), &operator_name()));
    AddOperator {
        name: operator_name(),
        role: Role::PlatformAdmin,
        tenants: Tenants::All,
        certificate: Some(certificate),
        vclusters: Vclusters::All,
    }
}

pub fn token(n: u8, pinned: Option<&str>) -> CreateToken {
    CreateToken {
        name: None,
        labels: Default::default(),
        token: TokenId(ulid(50 + n)),
        hash: SecretHash::new([50 + n; 32]),
        tenant: TenantId::default_tenant(),
        node: pinned.map(node),
        profile: None,
        ttl: None,
        connected: None,
        replace: false,
    }
}

/// Redeems token `n`, with everything that can be said.
pub fn enroll(n: u8, name: &str) -> Enroll {
    let certificate = issued(n, SpiffeId::agent(&domain(), &TenantId::default_tenant(), &node(name)));
    Enroll {
        credential: Credential::Token(SecretHash::new([50 + n; 32])),
        key: certificate.key,
        key_kind: KeyKind::P256,
        idempotency: Some(IdempotencyHash::new([60 + n; 32])),
        door: Door::Native,
        requested_node: None,
        wireguard: Some(Wireguard {
            key: WireguardKey::new([70 + n; 32]).expect("a key"),
            fingerprint: Fingerprint::new([80 + n; 32]),
        }),
        underlay: Some(Underlay { ipv6: "2001:db8::7".parse().ok(), ipv4: None, port: 51820 }),
        hardware: Some(Hardware { cpu_cores: Some(8), memory_bytes: None, disk_bytes: None, arch: None }),
        hostname: Label::parse("host-7").ok(),
        agent_version: Label::parse("0.1.0").ok(),
        prepared: Some(Prepared {
            node: node(name),
            tenant: TenantId::default_tenant(),
            profile: ProfileName::default_profile(),
            certificate,
        }),
        replacement_alerts: true,
        conflict_alerts: true,
        holder_seen_at: None,
        claimed: None,
        memory_storage: false,
        strict: false,
    }
}

fn issued(n: u8, subject: SpiffeId) -> Issued {
    Issued {
        serial: serial(n),
        fingerprint: Fingerprint::new([n; 32]),
        subject,
        key: KeyHash::new([n; 32]),
        issuer: issuer_id(),
        signed_at: AT,
        not_after: AT.plus(Span::from_hours(20)),
        renew_at: AT.plus(Span::from_hours(12)),
        der: b"certificate".to_vec(),
        external: None,
    }
}

pub fn confirm(name: &str, status: ConfirmStatus) -> Command {
    Command::Confirm(Confirm { node: node(name), status, keeping: Keeping::default() })
}
