//! The operator client against servers that answer well, badly, and without end.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use api::code;
use api::error::{ErrorBody, ErrorDetail};
use api::rest::page::Page;
use api::rest::policy::PolicyItem;
use api::rest::secret::Secret;
use client::rest::{ApiCredential, Path};
use client::unreachable::{TlsAlert, Unreachable};
use client::{Error, OperatorApi, ServerUrl, TlsIdentity, Trust};
use rustls::{CertificateError, ServerConfig};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::authority::{Authority, Dates};
use world::server;

fn tls() -> (ServerConfig, Trust) {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    (server::config(&leaf, &[]), Trust::cas(vec![root.der]))
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

/// Asks a server that answers with these bytes.
async fn asked(answer: impl Into<Vec<u8>>) -> Result<PolicyItem, Error> {
    let (config, trust) = tls();
    let url = server::answers(config, answer).await;
    OperatorApi::over_tls(url, &trust, None).unwrap().get(&Path::new("/v1/policy")).await
}

fn cause(error: Error) -> Unreachable {
    match error {
        Error::Unreachable { cause, .. } => cause,
        other => panic!("not unreachable: {other:?}"),
    }
}

#[tokio::test]
async fn a_json_answer_is_read() {
    let item = PolicyItem { key: "a".to_owned(), value: "b".to_owned() };
    assert_eq!(asked(http("200 OK", "", r#"{"key":"a","value":"b"}"#)).await, Ok(item));
}

#[tokio::test]
async fn a_refusal_is_told_as_the_control_plane_worded_it() {
    let detail = ErrorDetail::new(code::OVERLOADED, "too much at once", "01REQUEST");
    let body = serde_json::to_string(&ErrorBody::from(detail.clone())).unwrap();
    let error = asked(http("429 Too Many Requests", "retry-after: 7\r\n", &body)).await.unwrap_err();
    assert_eq!((error.exit_code(), error.code(), error.is_retryable()), (3, "overloaded", true));
    let Error::Refused(refusal) = error else { panic!("not refused: {error:?}") };
    assert_eq!((refusal.detail, refusal.retry_after), (detail, Some(Duration::from_secs(7))));
}

/// A replica that reaches no majority can do nothing: for a script that is a control plane out of reach.
#[tokio::test]
async fn a_replica_without_a_majority_is_a_control_plane_out_of_reach() {
    for code in [code::NO_QUORUM, code::STALE, code::OUTCOME_UNKNOWN] {
        let body =
            serde_json::to_string(&ErrorBody::from(ErrorDetail::new(code, "alone", "01REQUEST"))).unwrap();
        let error = asked(http("503 Service Unavailable", "", &body)).await.unwrap_err();
        assert_eq!((error.exit_code(), error.code(), error.is_retryable()), (4, code.word, true));
    }
}

#[tokio::test]
async fn a_code_of_a_newer_server_is_passed_on() {
    let body =
        r#"{"error":{"code":"brand_new","message":"m","hint":"h","request_id":"r","retryable":true,"x":1}}"#;
    let error = asked(http("418 I'm a teapot", "", body)).await.unwrap_err();
    assert_eq!((error.code(), error.hint(), error.is_retryable()), ("brand_new", "h", true));
}

#[tokio::test]
async fn what_is_not_ours_is_garbage() {
    for answer in [
        http("502 Bad Gateway", "", "<html>proxy</html>"),
        http("200 OK", "", "<html>portal</html>"),
        http("200 OK", "", r#"{"key":1}"#),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'y'; 200_000]].concat(),
    ] {
        let error = asked(answer).await.unwrap_err();
        assert_eq!(error.exit_code(), 4);
        let cause = cause(error);
        assert!(matches!(cause, Unreachable::Garbage(_)), "{cause:?}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let answers = [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"];
    for answer in answers {
        assert_eq!(cause(asked(answer).await.unwrap_err()), Unreachable::Closed);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let (config, trust) = tls();
    let url = server::never_ends(config, "HTTP/1.1 200 OK\r\n\r\n", b"[1,2,3],").await;
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    let error = operator.get::<PolicyItem>(&Path::new("/v1/policy")).await.unwrap_err();
    assert!(matches!(cause(error), Unreachable::Garbage(_)));
}

#[tokio::test]
async fn a_line_without_end_is_cut_off() {
    let (config, trust) = tls();
    let url = server::never_ends(config, "HTTP/1.1 200 OK\r\n\r\nfirst\n", b"no break ").await;
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    let mut lines = operator.lines(&Path::new("/v1/audit/export"), None).await.unwrap();
    assert_eq!(lines.next().await, Ok(Some("first".to_owned())));
    assert!(matches!(cause(lines.next().await.unwrap_err()), Unreachable::Garbage(_)));
}

#[tokio::test]
async fn lines_come_one_by_one_and_a_silence_ends_them() {
    let (config, trust) = tls();
    let url = server::serve(config, |mut stream| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\none\r\ntwo\nthr").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    let idle = Some(Duration::from_millis(200));
    let mut lines = operator.lines(&Path::new("/v1/audit/export"), idle).await.unwrap();
    assert_eq!(lines.next().await, Ok(Some("one".to_owned())));
    assert_eq!(lines.next().await, Ok(Some("two".to_owned())));
    assert_eq!(cause(lines.next().await.unwrap_err()), Unreachable::TimedOut("next line"));
}

#[tokio::test]
async fn events_are_told_apart_from_comments() {
    let (config, trust) = tls();
    let stream = "HTTP/1.1 200 OK\r\n\r\n: hello\n\nid: 7\nevent: line\ndata: {\"a\":\ndata: 1}\n\ndata:x\n\ndata: cut";
    let url = server::answers(config, stream).await;
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    let mut events = operator.events(&Path::new("/v1/events")).await.unwrap();
    let first = events.next().await.unwrap().unwrap();
    assert_eq!((first.id.as_deref(), first.name.as_deref()), (Some("7"), Some("line")));
    assert_eq!(first.data, "{\"a\":\n1}");
    assert_eq!(events.next().await.unwrap().map(|event| event.data), Some("x".to_owned()));
    assert_eq!(events.next().await, Ok(None));
}

#[tokio::test]
async fn a_list_that_leads_in_circles_ends() {
    let item = PolicyItem { key: "a".to_owned(), value: "b".to_owned() };
    let page = Page { items: vec![item], next_cursor: Some("again".to_owned()) };
    let (config, trust) = tls();
    let url = server::answers(config, http("200 OK", "", &serde_json::to_string(&page).unwrap())).await;
    let operator = OperatorApi::over_tls(url, &trust, None).unwrap();
    let items: Vec<PolicyItem> = operator.list(&Path::new("/v1/nodes")).await.unwrap();
    assert_eq!(items.len(), 2);
}

#[tokio::test]
async fn an_api_key_travels_as_bearer_and_is_never_printed() {
    let (config, trust) = tls();
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let url = server::serve(config, move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut bytes = vec![0; 4096];
            let length = stream.read(&mut bytes).await.unwrap_or(0);
            bytes.truncate(length);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        }
    })
    .await;
    let key = ApiCredential::ApiKey(Secret::new("hush\n"));
    let operator = OperatorApi::over_tls(url, &trust, Some(&key)).unwrap().correlated("corr-1").unwrap();
    assert!(!format!("{operator:?} {key:?}").contains("hush"));
    operator.delete(&Path::new("/v1/tokens").segment("01A")).await.unwrap();
    let request = seen.recv().await.unwrap();
    assert!(request.starts_with("DELETE /v1/tokens/01A HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer hush\r\n"), "{request}");
    assert!(request.contains("x-correlation-id: corr-1\r\n"), "{request}");
}

#[tokio::test]
async fn the_reason_for_a_refused_certificate_is_read() {
    let root = Authority::root(Dates::Now);
    let leaf = root.server(&["localhost"], Dates::Now);
    let client = root.client();
    let identity = TlsIdentity::new(vec![client.der], client.key);
    for (refusal, alert) in [
        (CertificateError::Revoked, TlsAlert::Revoked),
        (CertificateError::Expired, TlsAlert::Expired),
        (CertificateError::UnknownIssuer, TlsAlert::UnknownIssuer),
        (CertificateError::BadEncoding, TlsAlert::Unacceptable),
    ] {
        let url = server::serve(server::refusing(&leaf, &[], refusal), |_| async {}).await;
        let trust = Trust::cas(vec![root.der.clone()]);
        let credential = ApiCredential::Certificate(identity.clone());
        let operator = OperatorApi::over_tls(url, &trust, Some(&credential)).unwrap();
        let error = operator.get::<PolicyItem>(&Path::new("/v1/policy")).await.unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert_eq!(cause(error), Unreachable::Alert(alert));
    }
}

#[tokio::test]
async fn an_operator_is_not_told_of_a_refused_certificate_by_a_stranger() {
    let root = Authority::root(Dates::Now);
    let client = root.client();
    let credential = ApiCredential::Certificate(TlsIdentity::new(vec![client.der], client.key));
    for alert in [42, 44, 45, 48] {
        let url = server::breaks_off(alert).await;
        let trust = Trust::cas(vec![root.der.clone()]);
        let operator = OperatorApi::over_tls(url, &trust, Some(&credential)).unwrap();
        let error = operator.get::<PolicyItem>(&Path::new("/v1/policy")).await.unwrap_err();
        assert_eq!((error.exit_code(), error.code()), (4, "endpoint_unreachable"));
        let cause = cause(error);
        assert!(matches!(cause, Unreachable::BrokenOff(_)), "{cause:?}");
    }
}

#[tokio::test]
async fn each_way_of_not_connecting_has_its_name() {
    let trust = Trust::cas(vec![Authority::root(Dates::Now).der]);
    let ask = async |url: &str| {
        let operator = OperatorApi::over_tls(ServerUrl::parse(url).unwrap(), &trust, None).unwrap();
        cause(operator.text(&Path::new("/healthz")).await.unwrap_err())
    };
    let none = ask("https://no-such-host.invalid").await;
    assert!(matches!(none, Unreachable::NoSuchName { .. }), "{none:?}");

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    assert_eq!(ask(&format!("https://127.0.0.1:{port}")).await, Unreachable::ConnectionRefused);

    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = plain.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let garbage = ask(&format!("https://127.0.0.1:{port}")).await;
    assert!(matches!(garbage, Unreachable::Garbage(_)), "{garbage:?}");
}

#[tokio::test]
async fn the_operator_socket_speaks_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("operator.sock");
    let operator = OperatorApi::over_socket(&path);
    let missing = operator.readiness().await.unwrap_err();
    assert_eq!(missing.exit_code(), 4);

    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let body = r#"{"ready":false,"reasons":["no leader"]}"#;
            let _ = stream.write_all(&http("503 Service Unavailable", "", body)).await;
        }
    });
    assert_eq!(operator.readiness().await.unwrap().reasons, ["no leader"]);
}

#[test]
fn plain_http_never_becomes_a_client() {
    let error = Error::from(ServerUrl::parse("http://localhost:8443").unwrap_err());
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("https://"), "{error}");
}
