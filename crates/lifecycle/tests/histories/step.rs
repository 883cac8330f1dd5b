//! What can happen in a history: numbers that a world turns into names it knows.

use crate::support::Flaw;
use lifecycle::names::{IssuerUse, KeyKind};
use lifecycle::registry::{AlertKind, Door, Role};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// The number of what nobody knows.
pub const UNKNOWN: usize = usize::MAX;

#[derive(Debug, Clone)]
pub enum Step {
    /// Milliseconds pass.
    Pass(u64),
    /// The leader's clock is set back by milliseconds.
    SetBack(u64),
    /// An earlier envelope arrives once more.
    Repeat(usize),
    /// What a host asks for is prepared and kept back: it comes later, or never.
    Hold(Ask),
    /// A command, from the actor it is meant for or from someone else, its id drawn some milliseconds ago.
    Give { ask: Ask, by: Option<Who>, age: u64 },
}

#[derive(Debug, Clone, Copy)]
pub enum Who {
    Local,
    Operator { name: usize, own_serial: bool },
    Key(usize),
    Node { node: usize, serial: usize },
    Stranger,
    Reconciler,
    Replica(u64),
}

/// What an operator does to a node.
#[derive(Debug, Clone, Copy)]
pub enum Care {
    Drain(Option<u64>),
    Undrain,
    Quarantine,
    Release,
    Revoke,
    /// Whether its sessions end with it.
    Decommission(bool),
    Reinstate,
    Rotate,
    Rekey,
    RevokeRecoveryTokens,
    /// A name, or none.
    Describe(Option<u8>),
}

/// What is done about issuers and roots. The first three as versions did that knew one issuer for both uses.
#[derive(Debug, Clone, Copy)]
pub enum Roll {
    Prepare,
    Certify {
        other_key: bool,
    },
    Activate {
        number: usize,
        force: bool,
    },
    Retire(usize),
    Revoke(usize),
    Rewrap {
        whole: bool,
    },
    /// The same root with another key, or another root.
    ChangeStepCa {
        another: bool,
    },
    /// For what is rolled in this domain, mostly; else for exactly this.
    Begin {
        usage: IssuerUse,
        new_root: bool,
        exactly: bool,
    },
    Answer {
        flaw: Option<AnswerFlaw>,
    },
    ActivateAll {
        force: bool,
    },
    /// Whatever comes next in the roll that is in progress, or the first step of one.
    Next {
        usage: IssuerUse,
        new_root: bool,
        /// Hosts that have not stored the trust bundle are told first.
        patient: bool,
    },
    Abandon,
    RetireRoot {
        number: usize,
        force: bool,
    },
    ImportList {
        number: usize,
        flaw: Option<ListFlaw>,
    },
    /// By a replica that has started.
    Publish {
        replica: u64,
        flaw: Option<PublishFlaw>,
    },
}

/// What can be wrong with the certificates that answer a roll.
#[derive(Debug, Clone, Copy)]
pub enum AnswerFlaw {
    Half,
    OtherRoot,
    KnownRoot,
    OutlivesRoot,
    KnownName,
    OtherKey,
}

/// What can be wrong with a revocation list of a root.
#[derive(Debug, Clone, Copy)]
pub enum ListFlaw {
    Older,
    SameNumber,
    Drops,
    UnknownRoot,
    Unconfirmed,
}

/// What can be wrong with an issuer that is published.
#[derive(Debug, Clone, Copy)]
pub enum PublishFlaw {
    /// Of another replica than the one that publishes it.
    OtherReplica,
    KnownId,
    KnownName,
    TooLong,
    Over,
    NotYet,
}

#[derive(Debug, Clone)]
pub enum Ask {
    InitializeDomain,
    Mint {
        tenant: usize,
        node: Option<usize>,
        profile: Option<usize>,
        ttl: Option<u64>,
        reuse: bool,
    },
    Revoke {
        token: usize,
    },
    Enroll(Request),
    /// Under one of a few ids, by a token or in a tenant.
    Register {
        node: usize,
        token: Option<usize>,
        tenant: usize,
    },
    /// An earlier request again, as after a lost reply, by the same host or by someone who overheard it.
    EnrollAgain {
        request: usize,
        other_key: bool,
        idempotency: Option<Option<u8>>,
    },
    Confirm {
        node: usize,
        failed: Option<usize>,
    },
    /// With the latest serial but so many, for the latest key (0), one of a few, or a new one.
    Renew {
        node: usize,
        serial: usize,
        key: Option<u8>,
        flaw: Option<RenewFlaw>,
    },
    Contact {
        node: usize,
        serial: usize,
    },
    /// A node claims its place in the overlay: with one of a few keys, mostly its own or an unused one, at one of a few endpoints.
    Overlay {
        node: usize,
        key: Option<u8>,
        endpoint: Option<u8>,
    },
    /// What a node says of its recovery token: none, the current one, or one before it; and whether it wants more.
    Keep {
        node: usize,
        kept: Option<usize>,
        wants: bool,
    },
    /// Which of a few sessions are open and which have ended, of one start of its agent or another, and how much of it
    /// there is room to record.
    Sessions {
        node: usize,
        instance: u8,
        sequence: u64,
        complete: bool,
        open: Vec<u8>,
        ended: Vec<u8>,
        most: u32,
    },
    /// With a recovery token of a while ago, for a new key or for that of the last recovery.
    Recover {
        token: usize,
        again: bool,
        claim: Option<usize>,
        flaw: Option<RecoverFlaw>,
    },
    Repair {
        node: usize,
        ttl: Option<u64>,
    },
    EndRepair(usize),
    /// Nodes and how many milliseconds ago they were heard, or how far ahead a clock was.
    Observe(Vec<(usize, i64, bool)>),
    Silence(Vec<usize>, u64),
    Care(usize, Care),
    RaiseAlert {
        kind: AlertKind,
        node: Option<usize>,
        detail: usize,
    },
    ClearAlert(usize),
    AcknowledgeAlert(usize),
    Roll(Roll),
    Tenant(usize),
    AddOperator {
        name: usize,
        role: Role,
        tenants: Scope,
        with_certificate: bool,
        narrowed: Option<usize>,
    },
    RemoveOperator(usize),
    RenewOperator {
        name: usize,
        with_unused: bool,
    },
    UseRenewed(usize),
    CreateKey {
        role: Role,
        tenants: Scope,
        ttl: u64,
        reuse: bool,
        narrowed: Option<usize>,
    },
    RevokeKey(usize),
    Policy(&'static str, &'static str),
    ServerCertificate {
        used_serial: bool,
        replica: u64,
    },
    Cluster(Joining),
    /// Something that was kept back, for the first time or again.
    Held(usize),
    Issuing(Issuing),
    /// Under one of a few ids, with one of a few machines, perhaps in a vCluster.
    RegisterHardware {
        node: usize,
        machine: Machine,
        tenant: usize,
        vcluster: Option<usize>,
    },
    /// By hardware alone: that of a node, mostly, or of nobody.
    Boot {
        machine: Machine,
        request: Request,
    },
    CreateVcluster {
        vcluster: usize,
        tenant: usize,
    },
    RemoveVcluster(usize),
    Place(usize, Placing),
    Config(Configured, u8),
    Expire,
    AcceptClock,
    Refusals,
    Checkpoint,
    Gap,
    /// Some lines on, or back, which changes nothing.
    Forwarded(u64),
    SkipForwarding(u64),
    Rollback,
    Tidy,
}

/// What is done about replicas. Addresses are out of a few.
#[derive(Debug, Clone, Copy)]
pub enum Joining {
    Mint {
        ttl: u64,
        reuse: bool,
    },
    Join {
        token: usize,
        peer: u8,
        flaw: Option<JoinFlaw>,
    },
    /// At another address, or where it was.
    Announce {
        replica: u64,
        peer: Option<u8>,
        renewed: bool,
        flaw: Option<JoinFlaw>,
    },
    Remove {
        replica: u64,
        forced: bool,
        confirmed: bool,
    },
}

/// What can be wrong with the certificate of a replica.
#[derive(Debug, Clone, Copy)]
pub enum JoinFlaw {
    OtherId,
    OtherSubject,
    OtherIssuer,
    UsedSerial,
    Over,
    OutlivesIssuer,
}

/// What a replica does about certificates that a step-ca signs, beside asking for those that hosts want.
#[derive(Debug, Clone, Copy)]
pub enum Issuing {
    /// For a host that is never heard of again.
    Begin {
        replica: u64,
        flaw: Option<IntentFlaw>,
    },
    End {
        intent: usize,
        replica: u64,
        end: Came,
    },
    /// So many of those that step-ca has yet to revoke, and perhaps one that it has not.
    Deliver {
        count: usize,
        other: bool,
    },
}

/// What can be wrong with an intent.
#[derive(Debug, Clone, Copy)]
pub enum IntentFlaw {
    OtherReplica,
    OtherIssuer,
    OtherSubject,
    UsedSerial,
    AskedSerial,
    OwedSerial,
    Over,
    OutlivesIssuer,
}

/// What came of an intent.
#[derive(Debug, Clone, Copy)]
pub enum Came {
    NotSigned,
    NotRecorded(Signed),
    Misbehaved(Option<Signed>),
}

/// The certificate that came: with the serial that was asked for, one of step-ca's own choice, one that is on record, or one that was
/// asked for by another.
#[derive(Debug, Clone, Copy)]
pub enum Signed {
    AsAsked,
    Otherwise,
    OnRecord,
    OfAnother,
}

/// Interfaces out of a few, and a serial number out of fewer, or none.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    pub interface: u8,
    pub second: Option<u8>,
    pub serial: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
pub enum Placing {
    Assign(usize),
    Unassign,
    Move(usize),
}

/// Whose configuration is set.
#[derive(Debug, Clone, Copy)]
pub enum Configured {
    Defaults,
    Vcluster(usize),
    Node(usize),
}

/// All tenants, or these.
pub type Scope = Option<Vec<usize>>;

#[derive(Debug, Clone)]
pub struct Request {
    pub token: usize,
    pub key: u8,
    pub kind: KeyKind,
    pub idempotency: Option<u8>,
    pub door: Door,
    pub requested: Option<usize>,
    pub wireguard: Option<u8>,
    pub flaw: Option<Flaw>,
    pub claimed: Option<Machine>,
    pub memory: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum RenewFlaw {
    Missing,
    OtherKey,
    OtherIssuer,
    UsedSerial,
    TooLongLived,
}

#[derive(Debug, Clone, Copy)]
pub enum RecoverFlaw {
    Missing,
    OtherKey,
    OtherIssuer,
    OtherNode,
    TooLongLived,
    OtherEnd,
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => pass(),
        1 => (0..7_200_000u64).prop_map(Step::SetBack),
        4 => (0..20usize).prop_map(Step::Repeat),
        4 => wanted().prop_map(Step::Hold),
        60 => (ask(), mostly_none(who()), age()).prop_map(|(ask, by, age)| Step::Give { ask, by, age }),
    ]
}

fn pass() -> impl Strategy<Value = Step> {
    prop_oneof![
        32 => 0..120_000u64,
        8 => 0..7_200_000u64,
        2 => 0..172_800_000u64,
        2 => 0..3_456_000_000u64,
        // To about the end of the issuer.
        1 => 31_400_000_000..31_536_000_000u64,
    ]
    .prop_map(Step::Pass)
}

fn age() -> impl Strategy<Value = u64> {
    prop_oneof![20 => Just(0), 2 => 0..120_000u64, 1 => 120_001..10_000_000u64]
}

/// One of so many, seldom one that nobody knows.
fn one(of: usize) -> impl Strategy<Value = usize> {
    prop_oneof![15 => 0..of, 1 => Just(UNKNOWN)]
}

fn mostly_none<T: std::fmt::Debug>(some: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    option::weighted(0.2, some)
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        1 => Just(Who::Local),
        4 => (0..3usize, any::<bool>()).prop_map(|(name, own_serial)| Who::Operator { name, own_serial }),
        4 => one(4).prop_map(Who::Key),
        3 => (one(6), 0..4usize).prop_map(|(node, serial)| Who::Node { node, serial }),
        1 => Just(Who::Stranger),
        1 => Just(Who::Reconciler),
        1 => (1..3u64).prop_map(Who::Replica),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        1 => Just(Ask::InitializeDomain),
        16 => mint(),
        2 => one(6).prop_map(|token| Ask::Revoke { token }),
        30 => request().prop_map(Ask::Enroll),
        6 => (0..4usize, option::weighted(0.7, one(6)), 0..4usize)
            .prop_map(|(node, token, tenant)| Ask::Register { node, token, tenant }),
        5 => (0..5usize, (0..5u8).prop_map(|n| n == 0), mostly_none(option::of(0..2u8))).prop_map(
            |(request, other_key, idempotency)| Ask::EnrollAgain { request, other_key, idempotency }
        ),
        9 => (one(6), option::weighted(0.3, 0..2usize))
            .prop_map(|(node, failed)| Ask::Confirm { node, failed }),
        90 => living(),
        36 => rolling().prop_map(Ask::Roll),
        2 => (0..4usize).prop_map(Ask::Tenant),
        4 => (0..3usize, role(), scope(), any::<bool>(), narrowed()).prop_map(
            |(name, role, tenants, with_certificate, narrowed)| {
                Ask::AddOperator { name, role, tenants, with_certificate, narrowed }
            }
        ),
        3 => (0..3usize).prop_map(Ask::RemoveOperator),
        7 => (0..3usize, any::<bool>()).prop_map(|(name, with_unused)| Ask::RenewOperator { name, with_unused }),
        7 => (0..3usize).prop_map(Ask::UseRenewed),
        3 => (role(), scope(), ttl(), any::<bool>(), narrowed()).prop_map(
            |(role, tenants, ttl, reuse, narrowed)| Ask::CreateKey { role, tenants, ttl, reuse, narrowed }
        ),
        40 => machines(),
        1 => one(4).prop_map(Ask::RevokeKey),
        6 => select(POLICY).prop_map(|(key, value)| Ask::Policy(key, value)),
        2 => (any::<bool>(), 1..4u64)
            .prop_map(|(used_serial, replica)| Ask::ServerCertificate { used_serial, replica }),
        22 => joining().prop_map(Ask::Cluster),
        12 => (0..4usize).prop_map(Ask::Held),
        24 => issuing().prop_map(Ask::Issuing),
        1 => select(vec![Ask::Refusals, Ask::Checkpoint, Ask::Gap, Ask::Rollback]),
        1 => prop_oneof![(0..100_u64).prop_map(Ask::Forwarded), (0..100_u64).prop_map(Ask::SkipForwarding)],
        5 => Just(Ask::Tidy),
        2 => Just(Ask::Expire),
        1 => Just(Ask::AcceptClock),
    ]
}

/// What is done about machines and vClusters.
fn machines() -> impl Strategy<Value = Ask> {
    let vcluster = || one(3);
    let placing = prop_oneof![
        4 => vcluster().prop_map(Placing::Assign),
        2 => Just(Placing::Unassign),
        4 => vcluster().prop_map(Placing::Move),
    ];
    let configured = prop_oneof![
        1 => Just(Configured::Defaults),
        4 => vcluster().prop_map(Configured::Vcluster),
        2 => one(6).prop_map(Configured::Node),
    ];
    prop_oneof![
        10 => (0..6usize, machine(), 0..8usize, option::weighted(0.3, vcluster())).prop_map(
            |(node, machine, tenant, vcluster)| {
                let tenant = tenant.saturating_sub(4);
                Ask::RegisterHardware { node, machine, tenant, vcluster }
            }
        ),
        14 => (machine(), request()).prop_map(|(machine, request)| Ask::Boot { machine, request }),
        4 => (0..3usize, 0..6usize).prop_map(|(vcluster, tenant)| Ask::CreateVcluster {
            vcluster,
            tenant: if tenant < 4 { 0 } else { tenant - 3 },
        }),
        2 => vcluster().prop_map(Ask::RemoveVcluster),
        12 => (one(6), placing).prop_map(|(node, placing)| Ask::Place(node, placing)),
        6 => (configured, 0..3u8).prop_map(|(of, text)| Ask::Config(of, text)),
        3 => select(vec!["hardware", ""]).prop_map(|value| Ask::Policy("attestors.require", value)),
    ]
}

fn machine() -> impl Strategy<Value = Machine> {
    (0..5u8, option::weighted(0.3, 0..5u8), option::weighted(0.3, 0..2u8))
        .prop_map(|(interface, second, serial)| Machine { interface, second, serial })
}

fn narrowed() -> impl Strategy<Value = Option<usize>> {
    option::weighted(0.3, 0..3usize)
}

/// One of the latest certificates of a node, seldom one of before.
fn serial() -> impl Strategy<Value = usize> {
    prop_oneof![6 => Just(0usize), 4 => Just(1), 1 => Just(2), 1 => Just(3)]
}

fn renewal() -> impl Strategy<Value = Ask> {
    let flaws = vec![
        RenewFlaw::Missing,
        RenewFlaw::OtherKey,
        RenewFlaw::OtherIssuer,
        RenewFlaw::UsedSerial,
        RenewFlaw::TooLongLived,
    ];
    (one(6), serial(), option::of(0..4u8), mostly_none(select(flaws)))
        .prop_map(|(node, serial, key, flaw)| Ask::Renew { node, serial, key, flaw })
}

fn recovery() -> impl Strategy<Value = Ask> {
    let flaws = vec![
        RecoverFlaw::Missing,
        RecoverFlaw::OtherKey,
        RecoverFlaw::OtherIssuer,
        RecoverFlaw::OtherNode,
        RecoverFlaw::TooLongLived,
        // Of a repair bundle only, so it is chosen more often.
        RecoverFlaw::OtherEnd,
        RecoverFlaw::OtherEnd,
        RecoverFlaw::OtherEnd,
        RecoverFlaw::OtherEnd,
    ];
    (one(5), proptest::bool::weighted(0.4), mostly_none(one(6)), option::weighted(0.3, select(flaws)))
        .prop_map(|(token, again, claim, flaw)| Ask::Recover { token, again, claim, flaw })
}

/// What hosts want a certificate by.
fn wanted() -> impl Strategy<Value = Ask> {
    prop_oneof![
        4 => request().prop_map(Ask::Enroll),
        2 => (machine(), request()).prop_map(|(machine, request)| Ask::Boot { machine, request }),
        3 => renewal(),
        2 => recovery(),
    ]
}

fn issuing() -> impl Strategy<Value = Issuing> {
    let flaw = select(vec![
        IntentFlaw::OtherReplica,
        IntentFlaw::OtherIssuer,
        IntentFlaw::OtherSubject,
        IntentFlaw::UsedSerial,
        IntentFlaw::AskedSerial,
        IntentFlaw::OwedSerial,
        IntentFlaw::Over,
        IntentFlaw::OutlivesIssuer,
    ]);
    let replica = || select(vec![1, 1, 1, 2]);
    let signed = || select(vec![Signed::AsAsked, Signed::Otherwise, Signed::OnRecord, Signed::OfAnother]);
    let came = prop_oneof![
        2 => Just(Came::NotSigned),
        4 => signed().prop_map(Came::NotRecorded),
        2 => option::of(signed()).prop_map(Came::Misbehaved),
    ];
    prop_oneof![
        5 => (replica(), option::weighted(0.4, flaw)).prop_map(|(replica, flaw)| Issuing::Begin { replica, flaw }),
        5 => (one(3), replica(), came).prop_map(|(intent, replica, end)| Issuing::End { intent, replica, end }),
        3 => (1..4usize, any::<bool>()).prop_map(|(count, other)| Issuing::Deliver { count, other }),
    ]
}

/// What a node does, and what is done to it.
fn living() -> impl Strategy<Value = Ask> {
    let heard = (one(6), -600_000..600_000i64, any::<bool>());
    prop_oneof![
        24 => renewal(),
        12 => (one(6), serial()).prop_map(|(node, serial)| Ask::Contact { node, serial }),
        10 => (one(6), option::of(0..3usize), proptest::bool::weighted(0.8))
            .prop_map(|(node, kept, wants)| Ask::Keep { node, kept, wants }),
        12 => sessions(),
        16 => (one(6), option::weighted(0.6, 0..6u8), option::weighted(0.7, 0..6u8))
            .prop_map(|(node, key, endpoint)| Ask::Overlay { node, key, endpoint }),
        14 => recovery(),
        5 => (one(6), mostly_none(ttl())).prop_map(|(node, ttl)| Ask::Repair { node, ttl }),
        5 => one(6).prop_map(Ask::EndRepair),
        5 => proptest::collection::vec(heard, 1..3).prop_map(Ask::Observe),
        5 => (proptest::collection::vec(one(6), 1..4), 0..1_000_000u64)
            .prop_map(|(nodes, ago)| Ask::Silence(nodes, ago)),
        11 => (one(6), care()).prop_map(|(node, care)| Ask::Care(node, care)),
        3 => (select(AlertKind::ALL), option::weighted(0.8, one(6)), 0..2usize)
            .prop_map(|(kind, node, detail)| Ask::RaiseAlert { kind, node, detail }),
        1 => one(3).prop_map(Ask::ClearAlert),
        1 => one(3).prop_map(Ask::AcknowledgeAlert),
    ]
}

fn sessions() -> impl Strategy<Value = Ask> {
    let few = || proptest::collection::vec(0..6u8, 0..4);
    let most = prop_oneof![4 => Just(100u32), 1 => 0..4u32];
    (one(6), 0..2u8, 0..12u64, any::<bool>(), few(), few(), most).prop_map(
        |(node, instance, sequence, complete, open, ended, most)| Ask::Sessions {
            node,
            instance,
            sequence,
            complete,
            open,
            ended,
            most,
        },
    )
}

fn care() -> impl Strategy<Value = Care> {
    prop_oneof![
        2 => option::of(0..3_600_000u64).prop_map(Care::Drain),
        2 => Just(Care::Undrain),
        2 => Just(Care::Quarantine),
        2 => Just(Care::Release),
        2 => Just(Care::Revoke),
        2 => any::<bool>().prop_map(Care::Decommission),
        3 => Just(Care::Reinstate),
        4 => Just(Care::Rotate),
        6 => Just(Care::Rekey),
        2 => Just(Care::RevokeRecoveryTokens),
        2 => option::of(0..2u8).prop_map(Care::Describe),
    ]
}

fn rolling() -> impl Strategy<Value = Roll> {
    let number = || 0..3usize;
    let force = || proptest::bool::weighted(0.25);
    prop_oneof![
        3 => Just(Roll::Prepare),
        4 => (0..8u8).prop_map(|n| Roll::Certify { other_key: n == 0 }),
        4 => (number(), force()).prop_map(|(number, force)| Roll::Activate { number, force }),
        4 => number().prop_map(Roll::Retire),
        1 => number().prop_map(Roll::Revoke),
        2 => any::<bool>().prop_map(|whole| Roll::Rewrap { whole }),
        1 => any::<bool>().prop_map(|another| Roll::ChangeStepCa { another }),
        3 => (usage(), any::<bool>(), 0..3u8)
            .prop_map(|(usage, new_root, n)| Roll::Begin { usage, new_root, exactly: n == 0 }),
        4 => option::of(answer_flaw()).prop_map(|flaw| Roll::Answer { flaw }),
        3 => force().prop_map(|force| Roll::ActivateAll { force }),
        18 => (usage(), proptest::bool::weighted(0.3), proptest::bool::weighted(0.7))
            .prop_map(|(usage, new_root, patient)| Roll::Next { usage, new_root, patient }),
        2 => Just(Roll::Abandon),
        3 => (number(), force()).prop_map(|(number, force)| Roll::RetireRoot { number, force }),
        6 => (number(), option::of(list_flaw())).prop_map(|(number, flaw)| Roll::ImportList { number, flaw }),
        10 => (select(vec![1, 1, 1, 2]), mostly_none(publish_flaw()))
            .prop_map(|(replica, flaw)| Roll::Publish { replica, flaw }),
    ]
}

fn joining() -> impl Strategy<Value = Joining> {
    let flaw = || mostly_none(join_flaw());
    let peer = || 0..6u8;
    let replica = || prop_oneof![12 => 1..3u64, 3 => 3..5u64, 1 => Just(99)];
    prop_oneof![
        5 => (ttl(), (0..20u8).prop_map(|n| n == 0)).prop_map(|(ttl, reuse)| Joining::Mint { ttl, reuse }),
        8 => (one(4), peer(), flaw()).prop_map(|(token, peer, flaw)| Joining::Join { token, peer, flaw }),
        10 => (replica(), option::weighted(0.4, peer()), any::<bool>(), flaw()).prop_map(|(replica, peer, renewed, flaw)| {
            Joining::Announce { replica, peer, renewed, flaw }
        }),
        8 => (replica(), proptest::bool::weighted(0.3), any::<bool>())
            .prop_map(|(replica, forced, confirmed)| Joining::Remove { replica, forced, confirmed }),
    ]
}

fn join_flaw() -> impl Strategy<Value = JoinFlaw> {
    select(vec![
        JoinFlaw::OtherId,
        JoinFlaw::OtherSubject,
        JoinFlaw::OtherIssuer,
        JoinFlaw::UsedSerial,
        JoinFlaw::Over,
        JoinFlaw::OutlivesIssuer,
    ])
}

fn usage() -> impl Strategy<Value = IssuerUse> {
    select(vec![IssuerUse::Node, IssuerUse::Server, IssuerUse::Both])
}

fn answer_flaw() -> impl Strategy<Value = AnswerFlaw> {
    select(vec![
        AnswerFlaw::Half,
        AnswerFlaw::OtherRoot,
        AnswerFlaw::KnownRoot,
        AnswerFlaw::OutlivesRoot,
        AnswerFlaw::KnownName,
        AnswerFlaw::OtherKey,
    ])
}

fn list_flaw() -> impl Strategy<Value = ListFlaw> {
    select(vec![
        ListFlaw::Older,
        ListFlaw::SameNumber,
        ListFlaw::Drops,
        ListFlaw::UnknownRoot,
        ListFlaw::Unconfirmed,
    ])
}

fn publish_flaw() -> impl Strategy<Value = PublishFlaw> {
    select(vec![
        PublishFlaw::OtherReplica,
        PublishFlaw::KnownId,
        PublishFlaw::KnownName,
        PublishFlaw::TooLong,
        PublishFlaw::Over,
        PublishFlaw::NotYet,
    ])
}

const POLICY: &[(&str, &str)] = &[
    ("attestors", "hardware"),
    ("attestors", "join-token"),
    ("attestors", "join-token,hardware,recovery-token"),
    ("attestors", "join-token,hardware,recovery-token"),
    ("attestors.require", "hardware"),
    ("attestors.require", "join-token,hardware"),
    ("attestors.require", ""),
    ("attestors.require", ""),
    ("hardware.source_cidrs", "198.51.100.0/24"),
    ("hardware.source_cidrs", "192.0.2.0/24"),
    ("hardware.source_cidrs", ""),
    ("attestors", "join-token,recovery-token"),
    ("clone", "quarantine"),
    ("clone", "alert"),
    ("liveness.grace", "30s"),
    ("liveness.grace", "10m"),
    ("recovery.ttl", "1h"),
    ("recovery.ttl", "90d"),
    ("renew.drain", "30s"),
    ("renew.drain", "1h"),
    ("enroll.max_per_minute", "0"),
    ("enroll.max_per_minute", "1"),
    ("enroll.max_per_minute", "2"),
    ("overlay.cooldown", "1s"),
    ("overlay.cooldown", "1h"),
    ("overlay.scope", "vcluster"),
    ("overlay.scope", "vcluster"),
    ("overlay.scope", "tenant"),
    ("profile.default.keys", "p256"),
    ("profile.plfm.keys", "p384"),
    ("profile.taskrun.keys", "ed25519,rsa"),
    ("profile.default.keys", "p256,ed25519"),
    ("profile.default.lifetime", "60s"),
    ("profile.default.lifetime", "1h"),
    ("profile.gpu.lifetime", "2d"),
    ("profile.gpu.lifetime", "91d"),
    ("token.default_ttl", "10m"),
    ("token.max_ttl", "12h"),
    ("token.max_ttl", "25h"),
    ("no.such.key", "1"),
];

fn mint() -> impl Strategy<Value = Ask> {
    let pin = option::weighted(0.5, 0..4usize);
    let profile = option::weighted(0.1, 0..4usize);
    (0..4usize, pin, profile, mostly_none(ttl()), 0..20u8).prop_map(|(tenant, node, profile, ttl, reuse)| {
        // Most tokens are of the default tenant, or pins and requests would seldom meet.
        let tenant = if tenant == 3 { 1 } else { 0 };
        Ask::Mint { tenant, node, profile, ttl, reuse: reuse == 0 }
    })
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 0..10_000u64, 8 => 10_000..=86_400_000u64, 1 => 86_400_001..=172_800_000u64]
}

fn request() -> impl Strategy<Value = Request> {
    let kind = prop_oneof![4 => Just(KeyKind::P256), 1 => select(&KeyKind::ALL[..])];
    let doors = vec![Door::Native, Door::Native, Door::Plfm, Door::Pact, Door::Probectl, Door::Taskrun];
    (
        (one(6), 0..3u8, kind, option::of(0..2u8), select(doors)),
        option::weighted(0.3, 0..4usize),
        option::weighted(0.5, 0..6u8),
        mostly_none(select(&Flaw::ALL[..])),
        (option::weighted(0.3, machine()), proptest::bool::weighted(0.2)),
    )
        .prop_map(
            |((token, key, kind, idempotency, door), requested, wireguard, flaw, (claimed, memory))| {
                Request { token, key, kind, idempotency, door, requested, wireguard, flaw, claimed, memory }
            },
        )
}

fn role() -> impl Strategy<Value = Role> {
    select(&Role::ALL[..])
}

fn scope() -> impl Strategy<Value = Scope> {
    option::of(proptest::collection::vec(0..4usize, 1..3))
}
