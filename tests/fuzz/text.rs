//! Words, URLs, bodies of requests: what is sent as text, and what protobuf wraps around text.

use super::world::policy as fresh_policy;
use api::doors::{plfm, probectl, taskrun};
use api::rest::{alerts, audit, ca, cluster, nodes, operators, page, policy as policies, tenants, tokens};
use axum::http::Uri;
use lifecycle::names::{
    Label, Malformed, NodeId, OperatorName, ProfileName, Serial, Span, SpiffeId, TenantId, Timestamp, Title,
    TokenId, TrustDomain, Ulid, VclusterId,
};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Display};
use std::io::{Seek, Write};
use tempfile::NamedTempFile;

/// Every word of the vocabulary that is read from text.
pub fn token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    word(text, NodeId::parse);
    word(text, TenantId::parse);
    word(text, OperatorName::parse);
    word(text, VclusterId::parse);
    word(text, ProfileName::parse);
    word(text, TrustDomain::parse);
    word(text, Label::parse);
    word(text, Title::parse);
    word(text, Span::parse);
    word(text, Timestamp::parse);
    word(text, Ulid::parse);
    word(text, TokenId::parse);
    word(text, Serial::parse);
    word(text, SpiffeId::parse);
    let _ = Serial::from_bytes(data).map(|serial| word(serial.as_str(), Serial::parse));
}

fn word<T: Display + Debug + PartialEq>(text: &str, parse: fn(&str) -> Result<T, Malformed>) {
    if let Ok(value) = parse(text) {
        assert_eq!(parse(&value.to_string()), Ok(value), "{text:?}");
    }
}

pub fn pin(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(pin) = pki::pin::Pin::parse(text) {
        assert_eq!(pki::pin::Pin::parse(&pin.to_string()), Ok(pin));
    }
}

pub fn server_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(url) = client::url::ServerUrl::parse(text) {
        assert_eq!(client::url::ServerUrl::parse(&url.to_string()), Ok(url.clone()));
        assert!(url.to_string().parse::<Uri>().is_ok(), "{url}");
    }
}

/// Every body that the operator API and the doors take, and the audit lines it gives, which callers read back.
pub fn json_bodies(data: &[u8]) {
    json::<tokens::CreateTokenRequest>(data);
    json::<tenants::CreateTenantRequest>(data);
    json::<operators::AddOperatorRequest>(data);
    json::<operators::RenewOperatorRequest>(data);
    json::<operators::CreateOperatorKeyRequest>(data);
    json::<policies::SetPolicyRequest>(data);
    json::<policies::PolicyItem>(data);
    json::<nodes::Plainly>(data);
    json::<nodes::Drain>(data);
    json::<nodes::Quarantine>(data);
    json::<nodes::Decommission>(data);
    json::<nodes::Revoke>(data);
    json::<nodes::ImportNode>(data);
    json::<nodes::IssueRepairBundleRequest>(data);
    json::<ca::PrepareRollRequest>(data);
    json::<ca::ActivateIssuerRequest>(data);
    json::<ca::RetireIssuer>(data);
    json::<ca::RevokeIssuer>(data);
    json::<ca::RewrapRequest>(data);
    json::<cluster::CreateReplicaTokenRequest>(data);
    json::<cluster::RemoveReplicaRequest>(data);
    json::<cluster::JoinClusterRequest>(data);
    json::<plfm::EnrollHost>(data);
    json::<plfm::ConfirmHost>(data);
    json::<plfm::RevokeHost>(data);
    json::<plfm::CreateHostToken>(data);
    json::<taskrun::EnrollWorker>(data);
    json::<taskrun::RenewWorker>(data);
    json::<taskrun::RevokeWorker>(data);
    json::<probectl::EnrollAgent>(data);
    json::<probectl::RotateAgent>(data);
    json::<probectl::MintEnrollToken>(data);
    json::<probectl::DescribeAgent>(data);
    json::<probectl::RegisterCollector>(data);
    // Not compared: fields that events do not have may be fractions, which serde_json reads to the last bit but one.
    if let Ok(line) = serde_json::from_slice::<audit::AuditLine>(data) {
        let text = serde_json::to_vec(&line).expect("what was read can be written");
        assert!(serde_json::from_slice::<audit::AuditLine>(&text).is_ok());
    }
}

fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(data) {
        let text = serde_json::to_vec(&value).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<T>(&text).ok(), Some(value));
    }
}

pub fn query_strings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(uri) = format!("/v1/x?{text}").parse() else { return };
    query::<nodes::NodeQuery>(&uri);
    query::<tokens::TokenQuery>(&uri);
    query::<audit::AuditQuery>(&uri);
    query::<page::PageQuery>(&uri);
    query::<ca::BundleQuery>(&uri);
    query::<ca::CrlQuery>(&uri);
    query::<alerts::AlertQuery>(&uri);
    query::<probectl::AgentQuery>(&uri);
    query::<plfm::HostQuery>(&uri);
    query::<plfm::HostTokenQuery>(&uri);
    query::<plfm::OverlayQuery>(&uri);
}

fn query<T: Serialize + DeserializeOwned + PartialEq + Debug>(uri: &Uri) {
    use axum::extract::Query;
    if let Ok(Query(value)) = Query::<T>::try_from_uri(uri) {
        let path = client::rest::Path::new("/v1/x").queries(&value).expect("what was read can be written");
        let again = path.as_str().parse().expect("a query is written as a URI");
        assert_eq!(Query::<T>::try_from_uri(&again).ok().map(|Query(value)| value), Some(value));
    }
}

pub fn protobuf(data: &[u8]) {
    message::<api::agent::EnrollRequest>(data);
    message::<api::agent::ConfirmRequest>(data);
    message::<api::agent::RenewRequest>(data);
    message::<api::agent::RecoverRequest>(data);
    message::<api::agent::CheckRequest>(data);
    message::<api::agent::LiveUp>(data);
    message::<taskrun::RunClientMessage>(data);
}

fn message<T: Message + Default + PartialEq>(data: &[u8]) {
    if let Ok(message) = T::decode(data) {
        let bytes = message.encode_to_vec();
        assert!(T::decode(bytes.as_slice()).ok() == Some(message), "a message reads back otherwise");
    }
}

/// A file is the only door to the configuration, so a file it is. Written over, because some file systems flush
/// what was emptied first.
pub fn config(data: &[u8]) {
    thread_local! {
        static FILE: NamedTempFile = NamedTempFile::new().expect("a temporary file");
    }
    FILE.with(|file| {
        let mut out = file.as_file();
        let written =
            out.rewind().and_then(|()| out.write_all(data)).and_then(|()| out.set_len(data.len() as u64));
        written.expect("a temporary file can be written");
        match server::config::load(file.path()) {
            Ok(config) => {
                assert!(!config.certificate_names().is_empty());
                let bound = ([192, 0, 2, 1], 8443).into();
                for url in config.advertised(bound) {
                    assert!(client::url::ServerUrl::parse(&url).is_ok(), "nodes would be sent to {url:?}");
                }
                let _ = config.server_url();
            }
            Err(mistakes) => assert!(!mistakes.to_string().is_empty(), "refused without a reason"),
        }
    });
}

/// Lines of `key=value`, one after the other.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut policy = fresh_policy();
    for (key, value) in text.split('\n').filter_map(|line| line.split_once('=')).take(64) {
        let before = policy.clone();
        if policy.set(key, value).is_err() {
            assert_eq!(policy, before, "{key} was refused and changed something");
            continue;
        }
        let shown = policy.get(key).expect("what was set can be shown");
        let listed = policy.list();
        assert!(listed.contains(&(key.to_owned(), shown)), "{key} is not listed");
        let mut again = policy.clone();
        for (key, value) in listed {
            assert_eq!(again.set(&key, &value), Ok(()), "{key} = {value}");
        }
        assert_eq!(again, policy);
    }
}
