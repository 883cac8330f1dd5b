//! The four ways in, as bytes.

use crate::wire::{self, Error};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Native,
    Plfm,
    Probectl,
    Taskrun,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Native, Way::Plfm, Way::Probectl, Way::Taskrun];

    pub fn name(self) -> &'static str {
        match self {
            Way::Native => "native",
            Way::Plfm => "plfm",
            Way::Probectl => "probectl",
            Way::Taskrun => "TaskRun",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Way::Native => "/enlist.agent.v1.Agent/Enroll",
            Way::Plfm => "/v1/hosts/enroll",
            Way::Probectl => "/enroll/agent",
            Way::Taskrun => "/v1/enroll",
        }
    }

    pub fn tls(self, bundle: &[u8]) -> Result<ClientConfig, Error> {
        let mut config = wire::stranger(bundle)?;
        if self != Way::Native {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        Ok(config)
    }

    /// The body of the `n`th enrollment.
    pub fn request(self, n: usize, token: String, csr: &str) -> Bytes {
        let body = match self {
            Way::Native => return wire::enrollment(token, csr),
            Way::Plfm => json!({
                "enrollment_token": token,
                "underlay_endpoint": { "ipv4": "127.0.0.1", "port": 51820 },
                "hardware_facts": { "cpu_cores": 32, "memory_bytes": 137438953472_u64, "arch": "amd64" },
                "wireguard_public_key": wireguard_key(n),
                "mtls_csr": csr,
            }),
            Way::Probectl => json!({ "token": token, "csr_pem": csr, "hostname": "bench", "version": "1" }),
            Way::Taskrun => json!({ "bootstrap_token": token, "csr": csr }),
        };
        Bytes::from(body.to_string())
    }

    pub async fn enroll(self, address: &str, tls: Arc<ClientConfig>, body: Bytes) -> Result<(), Error> {
        if self == Way::Native {
            return wire::enroll(address, tls, body).await.map(drop);
        }
        let mut connection = connect(address, tls).await?;
        match post(&mut connection, self.path(), body).await? {
            (200 | 201, _) => Ok(()),
            (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
        }
    }
}

/// A key of its own for each host: bytes that nobody else has.
fn wireguard_key(n: usize) -> String {
    use base64::Engine as _;
    let mut key = [0x5a; 32];
    key.iter_mut().zip(n.to_be_bytes()).for_each(|(byte, digit)| *byte ^= digit);
    base64::engine::general_purpose::STANDARD.encode(key)
}

pub async fn connect(address: &str, tls: Arc<ClientConfig>) -> Result<SendRequest<Full<Bytes>>, Error> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, stream).await?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

pub async fn post(
    connection: &mut SendRequest<Full<Bytes>>,
    path: &str,
    body: Bytes,
) -> Result<(u16, Bytes), Error> {
    let request =
        http::Request::post(path).header("host", "localhost").header("content-type", "application/json");
    connection.ready().await?;
    let response = connection.send_request(request.body(Full::new(body))?).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
