//! The hand-made part of the corpus; `tests/fuzz/requests` makes certificate requests with openssl.

#![expect(clippy::expect_used, reason = "a seed that cannot be made is no seed")]

use crate::targets::world::{self, AT};
use api::agent::{ConfirmRequest, EnrollRequest};
use journal::audit::{Footer, chain};
use journal::conformance::{Image, ImageMeta, encode_snapshot};
use lifecycle::names::{Fingerprint, OperatorName, ReplicaId, Source, Span, Timestamp, TokenId};
use lifecycle::registry::{
    Actor, AuditGap, Checkpoint, Command, ConfirmStatus, Confirmation, CreateTenant, Envelope, Refusals,
    ServerCertificate, SetPolicy, State,
};
use prost::Message;
use serde::Serialize;
use std::collections::BTreeMap;

type Seed = (&'static str, String, Vec<u8>);

/// Target, file name, content.
pub fn all() -> Vec<Seed> {
    [texts(), envelopes(), entries(), snapshots(), audit_lines(), messages(), certificates(), chains()]
        .concat()
}

fn numbered(target: &'static str, inputs: impl IntoIterator<Item = Vec<u8>>) -> Vec<Seed> {
    inputs.into_iter().enumerate().map(|(n, input)| (target, format!("seed-{n:02}"), input)).collect()
}

/// One line, one input; where a line break belongs to the input, a blank line separates.
fn texts() -> Vec<Seed> {
    let lines = |target, text: &str| numbered(target, text.lines().map(|line| line.as_bytes().to_vec()));
    let blocks =
        |target, text: &str| numbered(target, text.split("\n\n").map(|block| block.as_bytes().to_vec()));
    [
        lines("token", include_str!("seeds/token")),
        lines("pin", include_str!("seeds/pin")),
        lines("server_url", include_str!("seeds/server_url")),
        lines("json_bodies", include_str!("seeds/json_bodies")),
        lines("query_strings", include_str!("seeds/query_strings")),
        blocks("policy", include_str!("seeds/policy")),
        blocks("config", include_str!("seeds/config")),
        nested("json_bodies", [deep(b"[", 200), deep(b"{\"a\":", 200), deep(b"[", 5000)]),
        nested(
            "config",
            [deep(b"a.", 2000), [b"a=", &deep(b"[", 1000)[..]].concat()]
                .map(|key| [&key[..], b"a=1"].concat()),
        ),
    ]
    .concat()
}

fn nested(target: &'static str, inputs: impl IntoIterator<Item = Vec<u8>>) -> Vec<Seed> {
    inputs.into_iter().enumerate().map(|(n, input)| (target, format!("deep-{n}"), input)).collect()
}

fn deep(part: &[u8], times: usize) -> Vec<u8> {
    part.repeat(times)
}

/// What comes after the history of the targets' domain: each command that it would grant, and some it refuses.
fn later() -> Vec<Envelope> {
    let server = ServerCertificate {
        serial: world::serial(99),
        fingerprint: Fingerprint::new([99; 32]),
        issuer: world::found().issuer.id,
        not_after: AT,
        replica: ReplicaId::FIRST,
    };
    let refusals = Refusals {
        reason: "token_invalid".to_owned(),
        network: Some(Source::Address([192, 0, 2, 0].into())),
        count: 7,
        samples: vec!["\"quoted\"\n".to_owned()],
        recovery: None,
        renewal: None,
        alert: None,
    };
    let checkpoint = Checkpoint { seq: 9, head: Fingerprint::new([9; 32]), signature: vec![9; 70] };
    let policy = |key: &str, value: &str| SetPolicy {
        key: key.to_owned(),
        value: value.to_owned(),
        confirm: Confirmation::NotAsked,
    };
    let failed = ConfirmStatus::Failed { reason: "disk full".to_owned() };
    let alice = OperatorName::parse("alice").expect("a name");
    let commands = vec![
        (Actor::Stranger, Command::Enroll(Box::new(world::enroll(2, "n-2")))),
        (Actor::Stranger, Command::Enroll(Box::new(world::enroll(3, "n-1")))),
        (Actor::Stranger, Command::Enroll(Box::new(world::enroll(1, "n-1")))),
        (world::node_actor(1, "n-1"), world::confirm("n-1", ConfirmStatus::Ok)),
        (world::node_actor(1, "n-1"), world::confirm("n-1", failed)),
        (world::local(), Command::CreateToken(world::token(7, Some("n-9")))),
        (world::local(), Command::RevokeToken { token: TokenId(world::ulid(52)) }),
        (world::local(), Command::CreateTenant(CreateTenant { tenant: world::tenant() })),
        (world::local(), Command::RemoveOperator { name: alice, keys_made: false }),
        (world::local(), Command::SetPolicy(policy("token.max_ttl", "1h"))),
        (world::local(), Command::SetPolicy(policy("profile.gpu.cn", "{node} \"of\" {tenant}"))),
        (world::local(), Command::InitializeDomain(Box::new(world::found()))),
        (Actor::Reconciler, Command::RecordServerCertificate(server)),
        (Actor::Reconciler, Command::RecordRefusals(refusals)),
        (Actor::Reconciler, Command::RecordCheckpoint(checkpoint)),
        (Actor::Reconciler, Command::RecordAuditGap(AuditGap { from: 3, to: 4, refilled: true })),
        (Actor::Reconciler, Command::Tidy),
    ];
    let numbered = commands.into_iter().zip(100..);
    numbered.map(|((actor, command), n)| world::envelope(n, actor, command)).collect()
}

fn envelopes() -> Vec<Seed> {
    let named = |envelope: &Envelope| rmp_serde::to_vec_named(envelope).expect("encodes");
    let together = |envelopes: &[Envelope]| envelopes.iter().flat_map(named).collect::<Vec<u8>>();
    let compact = |envelope: &Envelope| rmp_serde::to_vec(envelope).expect("encodes");
    let mut inputs: Vec<Vec<u8>> = later().iter().map(named).collect();
    inputs.push(together(&world::history()));
    inputs.push(together(&later()));
    inputs.push(later().iter().flat_map(compact).collect());
    // An array of 2^32 - 1, a map of as many, a long string that is not there, nesting.
    inputs.extend(
        [&b"\xdd\xff\xff\xff\xff"[..], b"\xdf\xff\xff\xff\xff", b"\x81\xa2id\xdb\xff\xff\xff\xff"]
            .map(<[u8]>::to_vec),
    );
    inputs.push(deep(b"\x81\xa1x", 2000));
    numbered("apply", inputs)
}

/// Rows without their frame, which the target puts around them, and one with it.
fn entries() -> Vec<Seed> {
    #[derive(Serialize)]
    struct Batch {
        at: Timestamp,
        envelopes: Vec<Envelope>,
    }
    #[derive(Serialize)]
    struct Entry<'a, P> {
        term: u64,
        leader: u64,
        index: u64,
        payload: &'a P,
    }
    fn row(payload: &impl Serialize) -> Vec<u8> {
        rmp_serde::to_vec_named(&Entry { term: 3, leader: 1, index: 70_000, payload }).expect("encodes")
    }
    let commands =
        |envelopes: Vec<Envelope>| row(&BTreeMap::from([("commands", Batch { at: AT, envelopes })]));
    let membership = serde_json::json!({ "membership": { "configs": [[1, 2], [1, 3]],
        "nodes": { "1": { "addr": "a:1" }, "2": { "addr": "b:1" }, "3": { "addr": "" } } } });
    let mut inputs = vec![row(&"blank"), commands(Vec::new()), commands(world::history()), row(&membership)];
    inputs.extend(later().into_iter().map(|envelope| commands(vec![envelope])));
    inputs.push(journal::conformance::seal(&7u64).expect("encodes"));
    inputs.extend(
        [&b""[..], b"\x02\0\0\0\0", b"\x84\xa4term\xcf\xff\xff\xff\xff\xff\xff\xff\xff"].map(<[u8]>::to_vec),
    );
    inputs.push(deep(b"\x91", 3000));
    numbered("stored_entry", inputs)
}

/// Bodies, which the target puts a header before, and one whole file.
fn snapshots() -> Vec<Seed> {
    let file = |state: State| {
        let audit = journal::AuditHead { seq: 8, head: Fingerprint::new([8; 32]) };
        let meta = ImageMeta { log_id: None, membership: Default::default(), audit, at: state.at };
        let mut file = std::io::Cursor::new(Vec::new());
        encode_snapshot(&Image { meta, state }, &mut file).expect("encodes");
        file.into_inner()
    };
    let body = |state| file(state).split_off(21);
    let (empty, full) = (body(State::default()), body(world::state()));
    let cut = full.iter().take(full.len() / 2).copied().collect();
    numbered(
        "snapshot",
        [empty, full, cut, file(State::default()), b"enlistSN\x02".to_vec(), deep(b"\x81\xa1x", 2000)],
    )
}

fn audit_lines() -> Vec<Seed> {
    let (mut state, mut head, mut lines) = (State::default(), chain::origin(), Vec::new());
    for envelope in world::history().iter().chain(&later()) {
        for event in lifecycle::registry::apply(&mut state, envelope, AT).events {
            let mut line = Vec::new();
            head =
                chain::compose(&mut line, 1, &chain::moment(AT), &event, envelope, &head).expect("composes");
            lines.push(line);
        }
    }
    let footer = Footer {
        cluster_id: world::found().cluster,
        domain: world::domain(),
        last_seq: 9,
        head: head.hex(),
        exported_at: AT.to_string(),
        signature: "00".repeat(70),
        certificate: "-----BEGIN".to_owned(),
        chain: String::new(),
    };
    lines.push(footer.line().into_bytes());
    lines.push(
        br#""event_type":"audit.checkpoint","checkpoint_seq":-1,"checkpoint_head":"zz","signature":"0""#
            .to_vec(),
    );
    lines.push(br#"{"footer":{"cluster_id":"01ARYZ6S41TSV4RRFFQ69G5FAV"}}"#.to_vec());
    numbered("audit_line", lines)
}

fn messages() -> Vec<Seed> {
    let enroll = EnrollRequest {
        token: "enl_0123456789abcdef".to_owned(),
        csr: "-----BEGIN CERTIFICATE REQUEST-----".to_owned(),
        hostname: "host-7".to_owned(),
        agent_version: "0.1.0".to_owned(),
        wireguard_public_key: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=".to_owned(),
        underlay: Some(api::agent::Underlay {
            ipv6: "2001:db8::7".to_owned(),
            ipv4: "192.0.2.7".to_owned(),
            port: 51820,
        }),
        hardware: Some(api::agent::Hardware {
            cpu_cores: Some(32),
            memory_bytes: Some(1 << 37),
            disk_bytes: Some(1 << 40),
            arch: "amd64".to_owned(),
        }),
        hardware_identity: Some(api::agent::HardwareIdentity {
            macs: vec!["52:54:00:12:34:56".to_owned()],
            bmc_serial: "SN1".to_owned(),
            ..api::agent::HardwareIdentity::default()
        }),
        memory_storage: false,
    };
    let confirm = ConfirmRequest { status: 2, reason: "disk full".to_owned(), ..ConfirmRequest::default() };
    let odd: [&[u8]; 8] = [
        b"",
        // A length of 2^64 - 1, a varint of eleven bytes, a field of number 0, a group that never ends.
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x00\x00",
        b"\x0b\x0b\x0b\x0b",
        // A known field of another type, text that is no UTF-8, the same field twice.
        b"\x09\0\0\0\0\0\0\0\0",
        b"\x0a\x02\xff\xfe",
        b"\x0a\x01a\x0a\x01b",
    ];
    let inputs = [enroll.encode_to_vec(), confirm.encode_to_vec(), deep(b"\x0b", 300)];
    numbered("protobuf", inputs.into_iter().chain(odd.map(<[u8]>::to_vec)))
}

/// Leaves of the fixed issuer, good and not quite, and the issuer itself; as DER and as PEM.
fn certificates() -> Vec<Seed> {
    let key = pki::agent_key::HostKey::generate().expect("a key");
    let leaf = |name: Option<&str>, serial: u8| {
        let mut issuance = crate::targets::issuance();
        issuance.common_name = name.map(str::to_owned);
        issuance.serial = [serial; 16];
        pki::leaf::sign_leaf(world::issuer(), &key.spki(), &issuance).expect("signs").der
    };
    let server = pki::server_cert::issue_server(
        world::issuer(),
        &["localhost", "cp.example", "::1", "192.0.2.1"],
        "cp",
        [3; 16],
        AT,
        Span::from_hours(1),
    );
    let server = server.expect("signs").signed.der;
    let good = leaf(Some("n-1"), 1);
    let mut broken = good.clone();
    if let Some(last) = broken.last_mut() {
        *last ^= 1;
    }
    let issuer = world::issuer().certificate().to_vec();
    let half = good.iter().take(good.len() / 2).copied().collect();
    let text = pki::pem::chain_pem([good.as_slice(), issuer.as_slice()]);
    let secret = pki::pem::key_pem_pkcs8(include_bytes!("issuer.key"));
    let flood = pki::pem::chain_pem(std::iter::repeat_n(b"x".as_slice(), 17));
    let ders = vec![
        good.clone(),
        leaf(None, 2),
        server,
        broken,
        half,
        issuer,
        deep(b"\x30\x80", 500),
        deep(b"\x30\x82\xff\xff", 300),
    ];
    let unended = text.lines().take(5).collect::<Vec<_>>().join("\n");
    let pems = [
        text.clone(),
        format!("noise\r\n{}{text}", secret.as_str()),
        secret.to_string(),
        flood,
        unended,
        text.replace('\n', "\r\n"),
        text.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n".to_owned() + &secret,
    ];
    [numbered("client_certificate", ders), numbered("pem", pems.map(String::into_bytes))].concat()
}

/// What servers present: a good chain, one with too much in it, and what only looks like one.
fn chains() -> Vec<Seed> {
    let issuer = world::issuer().certificate();
    let key = pki::agent_key::HostKey::generate().expect("a key");
    let server = |name: &str| {
        let made =
            pki::server_cert::issue_server(world::issuer(), &[name], "cp", [4; 16], AT, Span::from_hours(1));
        made.expect("signs").signed.der
    };
    let node = pki::leaf::sign_leaf(world::issuer(), &key.spki(), &crate::targets::issuance());
    let (good, other, node) = (server("localhost"), server("elsewhere"), node.expect("signs").der);
    let presented = |parts: &[&[u8]]| -> Vec<u8> {
        let length = |part: &[u8]| u16::try_from(part.len()).expect("short").to_be_bytes();
        parts.iter().flat_map(|part| [&length(part)[..], part].concat()).collect()
    };
    let flood: Vec<&[u8]> = std::iter::once(good.as_slice()).chain(std::iter::repeat_n(issuer, 8)).collect();
    let inputs = [
        presented(&[&good, issuer]),
        presented(&[&good]),
        presented(&[&other, issuer]),
        presented(&[&node, issuer]),
        presented(&[issuer, issuer]),
        presented(&flood),
        presented(&[issuer; 7]),
        presented(&[issuer; 8]),
        presented(&[b"", b"\x30\x00", b"x"]),
        Vec::new(),
    ];
    numbered("server_chain", inputs)
}
