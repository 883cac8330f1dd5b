//! The agent's client against servers that grant, refuse, waver and lie.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "each test file uses its part")]
mod world;

use api::agent as wire;
use api::agent::{
    Ack, ConfirmRequest, ConfirmResponse, EnrollRequest, EnrollResponse, Heartbeat, Hello, LiveDown, LiveUp,
    RecoverRequest, RecoverResponse, RenewRequest, RenewResponse, Welcome, live_down, live_up,
};
use api::code::{self, Code};
use api::error::ErrorDetail;
use client::unreachable::{Distrust, TlsAlert, Unreachable};
use client::{AgentApi, Error, ServerUrl, TlsIdentity, Trust};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rustls::CertificateError;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use world::authority::{Authority, Dates, Leaf};
use world::server;

/// A code, and the seconds to stay away.
type Refused = (&'static Code, Option<u64>);

/// Refuses as often as it was told to, then grants; remembers the keys it was shown.
#[derive(Clone, Default)]
struct Fake {
    refusals: Arc<Mutex<Vec<Refused>>>,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn refusing(refusals: &[Refused]) -> Self {
        let fake = Self::default();
        fake.refusals.lock().unwrap().extend(refusals.iter().rev());
        fake
    }

    fn keys(&self) -> Vec<String> {
        self.keys.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl wire::Agent for Fake {
    async fn boot_config(
        &self,
        _: Request<wire::BootConfigRequest>,
    ) -> Result<Response<wire::Config>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        let key = request.metadata().get("idempotency-key").unwrap().to_str().unwrap().to_owned();
        self.keys.lock().unwrap().push(key);
        if let Some((code, retry_after)) = self.refusals.lock().unwrap().pop() {
            let mut status = Status::from(ErrorDetail::new(code, "not now", "01REQUEST"));
            if let Some(seconds) = retry_after {
                status.metadata_mut().insert("retry-after", seconds.to_string().parse().unwrap());
            }
            return Err(status);
        }
        let mut response =
            Response::new(EnrollResponse { node_id: request.into_inner().hostname, ..Default::default() });
        response.metadata_mut().insert("x-server-time", "1700000000123".parse().unwrap());
        Ok(response)
    }

    async fn check(&self, _: Request<wire::CheckRequest>) -> Result<Response<wire::Standing>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }

    async fn confirm(&self, request: Request<ConfirmRequest>) -> Result<Response<ConfirmResponse>, Status> {
        assert_eq!(request.metadata().get("x-correlation-id").unwrap(), "corr");
        Ok(Response::new(ConfirmResponse {
            node_id: "n1".to_owned(),
            state: "active".to_owned(),
            ..Default::default()
        }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        Ok(Response::new(RenewResponse { certificate: request.into_inner().csr, ..Default::default() }))
    }

    async fn recover(&self, _: Request<RecoverRequest>) -> Result<Response<RecoverResponse>, Status> {
        Err(ErrorDetail::new(code::TOKEN_INVALID, "not one of ours", "01REQUEST").into())
    }

    type LiveStream = ReceiverStream<Result<LiveDown, Status>>;

    /// Welcomes, answers heartbeats, and ends with a refusal when it gets a second Hello.
    async fn live(&self, request: Request<Streaming<LiveUp>>) -> Result<Response<Self::LiveStream>, Status> {
        let (tell, told) = mpsc::channel(8);
        let mut up = request.into_inner();
        tokio::spawn(async move {
            let mut welcomed = false;
            while let Ok(Some(LiveUp { message: Some(word) })) = up.message().await {
                let answer = match word {
                    live_up::Message::Hello(hello) if hello.node_id == "mumbles" => {
                        Ok(live_down::Message::Ack(Ack::default()))
                    }
                    live_up::Message::Hello(_) if !welcomed => {
                        welcomed = true;
                        let welcome =
                            Welcome { server_time_ms: 7, heartbeat_ms: 30_000, ..Default::default() };
                        Ok(live_down::Message::Welcome(welcome))
                    }
                    live_up::Message::Hello(_) => {
                        Err(Status::from(ErrorDetail::new(code::NODE_REVOKED, "gone", "01REQUEST")))
                    }
                    _ => Ok(live_down::Message::Ack(Ack { server_time_ms: 8 })),
                };
                let answer = answer.map(|message| LiveDown { message: Some(message) });
                let _ = tell.send(answer).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(told)))
    }
}

struct World {
    root: Authority,
    leaf: Leaf,
}

impl World {
    fn new() -> Self {
        let root = Authority::root(Dates::Now);
        let leaf = root.server(&["localhost"], Dates::Now);
        Self { root, leaf }
    }

    async fn grpc(&self, fake: &Fake) -> ServerUrl {
        let fake = fake.clone();
        server::serve(server::config(&self.leaf, &[]), move |stream| {
            let service = TowerToHyperService::new(wire::AgentServer::new(fake.clone()));
            async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await
    }

    fn agent(&self, servers: Vec<ServerUrl>) -> AgentApi {
        AgentApi::new(servers, &Trust::cas(vec![self.root.der.clone()]), None).unwrap()
    }

    async fn enroll(&self, servers: Vec<ServerUrl>, patience: Option<u64>) -> Result<String, Error> {
        let request =
            EnrollRequest { token: "t".to_owned(), hostname: "host".to_owned(), ..Default::default() };
        let deadline = patience.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let reply = self.agent(servers).enroll(request, "key-1", "corr", deadline).await?;
        assert_eq!(reply.server_time, Some(1_700_000_000_123));
        Ok(reply.message.node_id)
    }
}

/// Where nobody listens.
async fn nowhere() -> ServerUrl {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    ServerUrl::parse(&format!("https://localhost:{}", free.local_addr().unwrap().port())).unwrap()
}

fn cause(error: Error) -> Unreachable {
    match error {
        Error::Unreachable { cause, .. } => cause,
        other => panic!("not unreachable: {other:?}"),
    }
}

#[tokio::test]
async fn a_host_enrolls_and_confirms() {
    let world = World::new();
    let url = world.grpc(&Fake::default()).await;
    assert_eq!(world.enroll(vec![url.clone()], None).await, Ok("host".to_owned()));
    let reply =
        world.agent(vec![url.clone()]).confirm(ConfirmRequest::default(), "corr", None).await.unwrap();
    assert_eq!((reply.message.state.as_str(), reply.server), ("active", url));
}

#[tokio::test]
async fn a_key_is_renewed() {
    let world = World::new();
    let agent = world.agent(vec![nowhere().await, world.grpc(&Fake::default()).await]);
    let request = RenewRequest { csr: "csr".to_owned(), ..Default::default() };
    assert_eq!(agent.renew(request, "corr", None).await.unwrap().message.certificate, "csr");
}

#[tokio::test]
async fn a_standing_connection_carries_words_both_ways_and_tells_how_it_ended() {
    let world = World::new();
    let agent = world.agent(vec![nowhere().await, world.grpc(&Fake::default()).await]);
    let reply = agent.live(Hello::default(), "corr", None).await.unwrap();
    assert_eq!(reply.server_time, Some(7));
    let mut live = reply.message;
    assert_eq!(live.welcome().heartbeat_ms, 30_000);
    live.send(live_up::Message::Heartbeat(Heartbeat { interval_ms: 30_000 })).unwrap();
    assert_eq!(live.receive().await, Ok(Some(live_down::Message::Ack(Ack { server_time_ms: 8 }))));
    live.send(live_up::Message::Hello(Hello::default())).unwrap();
    assert_eq!(live.receive().await.unwrap_err().code(), "node_revoked");

    let mut live = agent.live(Hello::default(), "corr", None).await.unwrap().message;
    live.half_close();
    while live.receive().await.is_ok() {}
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_welcome_is_garbage() {
    let world = World::new();
    let agent = world.agent(vec![world.grpc(&Fake::default()).await]);
    let hello = Hello { node_id: "mumbles".to_owned(), ..Default::default() };
    let cause = cause(agent.live(hello, "corr", None).await.unwrap_err());
    assert!(matches!(cause, Unreachable::Garbage(_)), "{cause:?}");
}

#[tokio::test]
async fn every_round_that_will_be_repeated_is_told() {
    let world = World::new();
    let url = world.grpc(&Fake::refusing(&[(code::UNAVAILABLE, None), (code::UNAVAILABLE, None)])).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let agent =
        world.agent(vec![url]).on_retry(move |error, _| heard.lock().unwrap().push(error.code().to_owned()));
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    agent.enroll(EnrollRequest::default(), "key", "corr", deadline).await.unwrap();
    assert_eq!(*told.lock().unwrap(), ["unavailable", "unavailable"]);
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_is_down() {
    let world = World::new();
    let up = world.grpc(&Fake::default()).await;
    assert_eq!(world.enroll(vec![nowhere().await, up], None).await, Ok("host".to_owned()));
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_is_an_impostor() {
    let (world, other) = (World::new(), World::new());
    let servers = vec![other.grpc(&Fake::default()).await, world.grpc(&Fake::default()).await];
    assert_eq!(world.enroll(servers, None).await, Ok("host".to_owned()));
}

#[tokio::test]
async fn a_passing_refusal_is_repeated_with_the_same_key() {
    let world = World::new();
    let fake = Fake::refusing(&[(code::UNAVAILABLE, None), (code::OUTCOME_UNKNOWN, None)]);
    let url = world.grpc(&fake).await;
    assert_eq!(world.enroll(vec![url], Some(60)).await, Ok("host".to_owned()));
    assert_eq!(fake.keys(), ["key-1", "key-1", "key-1"]);
}

#[tokio::test]
async fn a_final_refusal_is_asked_once_and_told_in_full() {
    let world = World::new();
    let fake = Fake::refusing(&[(code::TOKEN_USED, None)]);
    let servers = vec![world.grpc(&fake).await, world.grpc(&fake).await];
    let error = world.enroll(servers, Some(60)).await.unwrap_err();
    assert_eq!((error.code(), error.hint(), error.exit_code()), ("token_used", code::TOKEN_USED.hint, 3));
    assert_eq!(error.detail().request_id, "01REQUEST");
    assert_eq!(fake.keys().len(), 1);
}

#[tokio::test]
async fn the_server_is_left_alone_for_as_long_as_it_asks() {
    let world = World::new();
    let fake = Fake::refusing(&[(code::OVERLOADED, Some(1))]);
    let url = world.grpc(&fake).await;
    let began = Instant::now();
    assert_eq!(world.enroll(vec![url], Some(60)).await, Ok("host".to_owned()));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn nobody_waits_longer_than_the_deadline() {
    let world = World::new();
    let fake = Fake::refusing(&[(code::OVERLOADED, Some(3600))]);
    let url = world.grpc(&fake).await;
    let began = Instant::now();
    let error = world.enroll(vec![url], Some(5)).await.unwrap_err();
    assert_eq!(error.code(), "overloaded");
    assert!(began.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn a_connection_that_fails_is_tried_again_until_the_deadline() {
    let world = World::new();
    let error = world.enroll(vec![nowhere().await], Some(1)).await.unwrap_err();
    assert_eq!((error.exit_code(), cause(error)), (4, Unreachable::ConnectionRefused));
}

#[tokio::test]
async fn an_impostor_alone_is_not_asked_again() {
    let (world, other) = (World::new(), World::new());
    let began = Instant::now();
    let error = world.enroll(vec![other.grpc(&Fake::default()).await], Some(60)).await.unwrap_err();
    let cause = cause(error);
    assert!(
        matches!(cause, Unreachable::Untrusted(Distrust::UnknownIssuer | Distrust::Other(_))),
        "{cause:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_revoked_identity_learns_that_it_is_revoked() {
    let world = World::new();
    let client = world.root.client();
    let identity = TlsIdentity::new(vec![client.der], client.key);
    let config = server::refusing(&world.leaf, &[], CertificateError::Revoked);
    let url = server::serve(config, |_| async {}).await;
    let trust = Trust::cas(vec![world.root.der.clone()]);
    let agent = AgentApi::new(vec![url], &trust, Some(&identity)).unwrap();
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let error = agent.confirm(ConfirmRequest::default(), "corr", deadline).await.unwrap_err();
    assert_eq!((error.exit_code(), error.code()), (3, "identity_revoked_or_fenced"));
    assert_eq!(cause(error), Unreachable::Alert(TlsAlert::Revoked));
}

/// 42 bad, 44 revoked, 45 expired, 48 of an unknown issuer, 46 certificate unknown.
const ABOUT_CERTIFICATES: [u8; 5] = [42, 44, 45, 48, 46];

#[tokio::test]
async fn an_alert_during_the_handshake_is_no_word_about_a_certificate() {
    let world = World::new();
    let client = world.root.client();
    let identity = TlsIdentity::new(vec![client.der], client.key);
    let trust = Trust::cas(vec![world.root.der.clone()]);
    for alert in ABOUT_CERTIFICATES {
        let (forged, good) = (server::breaks_off(alert).await, world.grpc(&Fake::default()).await);
        let agent = AgentApi::new(vec![forged.clone()], &trust, Some(&identity)).unwrap();
        let error = agent.live(Hello::default(), "corr", None).await.unwrap_err();
        assert_eq!((error.exit_code(), error.code()), (4, "endpoint_unreachable"), "{error}");
        assert!(error.is_retryable() && error.to_string().contains(&format!("TLS alert {alert}")), "{error}");
        let agent = AgentApi::new(vec![forged.clone(), good.clone()], &trust, Some(&identity)).unwrap();
        agent.live(Hello::default(), "corr", None).await.unwrap();
        assert_eq!(world.enroll(vec![forged, good], None).await, Ok("host".to_owned()));
    }
}

#[tokio::test]
async fn what_is_not_our_protocol_is_garbage() {
    let world = World::new();
    let html = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhtml".repeat(100);
    let url = server::answers(server::config(&world.leaf, &[]), html).await;
    let error = world.enroll(vec![url], Some(60)).await.unwrap_err();
    let cause = cause(error);
    assert!(matches!(cause, Unreachable::Garbage(_)), "{cause:?}");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_closed() {
    let world = World::new();
    let url = server::answers(server::config(&world.leaf, &[]), b"").await;
    assert_eq!(cause(world.enroll(vec![url], None).await.unwrap_err()), Unreachable::Closed);
}

#[tokio::test]
async fn a_server_that_never_greets_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = ServerUrl::parse(&format!("https://127.0.0.1:{port}")).unwrap();
    let error = World::new().enroll(vec![url], Some(1)).await.unwrap_err();
    assert!(matches!(cause(error), Unreachable::TimedOut(_)));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let world = World::new();
    let url = server::serve(server::config(&world.leaf, &[]), |mut stream| async move {
        // An empty SETTINGS frame, then silence.
        let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        while stream.read(&mut [0; 4096]).await.is_ok_and(|length| length > 0) {}
    })
    .await;
    let error = world.enroll(vec![url], Some(1)).await.unwrap_err();
    assert_eq!(cause(error), Unreachable::TimedOut("answer"));
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let world = World::new();
    // SETTINGS, HEADERS of a gRPC answer (`:status 200`, content-type), and DATA that announces a gigabyte.
    let url = server::serve(server::config(&world.leaf, &[]), |mut stream| async move {
        let _ = stream.read(&mut [0; 16 * 1024]).await;
        let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        let mut head = vec![0x88, 0x0f, 0x10, 16];
        head.extend(b"application/grpc");
        bytes.extend([0, 0, u8::try_from(head.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
        bytes.extend(head);
        bytes.extend([0, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0x40, 0, 0, 0]);
        let _ = stream.write_all(&bytes).await;
        while stream.read(&mut [0; 4096]).await.is_ok_and(|length| length > 0) {}
    })
    .await;
    let cause = cause(world.enroll(vec![url], Some(20)).await.unwrap_err());
    assert!(matches!(cause, Unreachable::Garbage(_)), "{cause:?}");
}

#[test]
fn calls_can_be_made_from_a_spawned_task() {
    fn sendable<T: Send>(_: T) {}
    let world = World::new();
    let agent = world.agent(vec![ServerUrl::parse("https://localhost").unwrap()]);
    sendable(agent.enroll(EnrollRequest::default(), "k", "c", None));
    sendable(agent.confirm(ConfirmRequest::default(), "c", None));
    sendable(agent.renew(RenewRequest::default(), "c", None));
    sendable(agent.live(Hello::default(), "c", None));
}
