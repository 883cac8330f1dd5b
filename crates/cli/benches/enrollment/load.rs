//! Many hosts that enroll, each with a connection of its own.

use crate::plane::Plane;
use api::agent::{EnrollRequest, EnrollResponse};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pki::agent_key::HostKey;
use prost::Message;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

type Error = Box<dyn std::error::Error + Send + Sync>;

pub struct Run {
    pub wall: Duration,
    pub cpu: Duration,
    pub rss_kb: u64,
}

pub async fn run(
    rounds: usize,
    clients: usize,
    preload: Option<&Path>,
) -> Result<Run, Box<dyn std::error::Error>> {
    let plane = Plane::start(preload)?;
    let tokens = mint(&plane, rounds).await.map_err(|error| error.to_string())?;
    let csr = HostKey::generate()?.csr_pem()?;
    let requests: Arc<Vec<Bytes>> = Arc::new(tokens.into_iter().map(|token| frame(token, &csr)).collect());
    let bundle = std::fs::read(plane.data().join("ca/bundle.pem"))?;
    let tls = Arc::new(client_config(&bundle).map_err(|error| error.to_string())?);
    let address = plane.url.trim_start_matches("https://").to_owned();
    let next = Arc::new(AtomicUsize::new(0));

    let (cpu, started) = (plane.cpu(), Instant::now());
    let workers: Vec<_> = (0..clients)
        .map(|_| {
            let (requests, tls, address, next) =
                (requests.clone(), tls.clone(), address.clone(), next.clone());
            tokio::spawn(async move {
                while let Some(body) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    enroll(&address, tls.clone(), body.clone()).await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await?.map_err(|error| error.to_string())?;
    }
    Ok(Run { wall: started.elapsed(), cpu: plane.cpu().saturating_sub(cpu), rss_kb: plane.rss_kb() })
}

fn frame(token: String, csr: &str) -> Bytes {
    let request = EnrollRequest { token, csr: csr.to_owned(), ..EnrollRequest::default() };
    let mut framed = BytesMut::with_capacity(request.encoded_len() + 5);
    framed.put_u8(0);
    framed.put_u32(request.encoded_len() as u32);
    framed.put_slice(&request.encode_to_vec());
    framed.freeze()
}

fn client_config(bundle: &[u8]) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    for der in pki::pem::certificates(bundle)? {
        roots.add(CertificateDer::from(der.to_vec()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn enroll(address: &str, tls: Arc<ClientConfig>, body: Bytes) -> Result<(), Error> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, stream).await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = http::Request::post("https://localhost/enlist.agent.v1.Agent/Enroll")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body))?;
    let response = sender.send_request(request).await?;
    let status = response.headers().get("grpc-status").cloned();
    let bytes = response.into_body().collect().await?.to_bytes();
    driver.abort();
    match status {
        Some(status) if status != "0" => Err(format!("refused with grpc-status {status:?}").into()),
        _ => {
            EnrollResponse::decode(bytes.get(5..).ok_or("a short answer")?)?;
            Ok(())
        }
    }
}

/// Tokens through the operator socket, on a few connections.
async fn mint(plane: &Plane, count: usize) -> Result<Vec<String>, Error> {
    let socket = plane.data().join("operator.sock");
    let mut tasks = Vec::new();
    for part in 0..16 {
        let socket = socket.clone();
        let share = count / 16 + usize::from(part < count % 16);
        tasks.push(tokio::spawn(async move {
            let stream = UnixStream::connect(socket).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let driver = tokio::spawn(connection);
            let mut tokens = Vec::with_capacity(share);
            for _ in 0..share {
                let request = http::Request::post("/v1/tokens").header("host", "localhost");
                let response =
                    sender.send_request(request.body(Full::new(Bytes::from_static(b"{}")))?).await?;
                let body = response.into_body().collect().await?.to_bytes();
                let value: serde_json::Value = serde_json::from_slice(&body)?;
                tokens
                    .push(value.get("token").and_then(|token| token.as_str()).ok_or("no token")?.to_owned());
            }
            driver.abort();
            Ok::<_, Error>(tokens)
        }));
    }
    let mut tokens = Vec::with_capacity(count);
    for task in tasks {
        tokens.extend(task.await??);
    }
    Ok(tokens)
}
