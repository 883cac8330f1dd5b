//! From an address to a verified connection, within one time limit.

use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use crate::watched::{Cause, Watched};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// For name, connection and handshake together.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A name with more addresses than this is a mistake or an attack.
const ADDRESSES: usize = 8;

pub(crate) type Connection = Watched<TlsStream<TcpStream>>;

pub(crate) async fn connect(
    server: &ServerUrl,
    tls: Arc<ClientConfig>,
    deadline: Instant,
) -> Result<(Connection, Cause), Unreachable> {
    let deadline = deadline.min(Instant::now() + CONNECT_TIMEOUT);
    let stream = dial(server, deadline).await?;
    let handshake = TlsConnector::from(tls).connect(server.name().clone(), stream);
    match timeout_at(deadline, handshake).await {
        Err(_) => Err(Unreachable::TimedOut("TLS handshake")),
        Ok(Err(error)) => Err(Unreachable::in_handshake(&error)),
        Ok(Ok(stream)) => Ok(Watched::new(stream)),
    }
}

/// A connection that nothing is known of yet.
pub(crate) async fn dial(server: &ServerUrl, deadline: Instant) -> Result<TcpStream, Unreachable> {
    let addresses = resolve(server, deadline).await?;
    let stream = reach(&addresses, deadline).await?;
    // Small requests should not wait for more of them.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn resolve(server: &ServerUrl, deadline: Instant) -> Result<Vec<SocketAddr>, Unreachable> {
    let host = server.host();
    let nothing = |reason: String| Unreachable::NoSuchName { host: server.host(), reason };
    match timeout_at(deadline, lookup_host((host.as_str(), server.port()))).await {
        Err(_) => Err(Unreachable::TimedOut("name resolution")),
        Ok(Err(error)) => Err(nothing(error.to_string())),
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.take(ADDRESSES).collect();
            if found.is_empty() { Err(nothing("no addresses".to_owned())) } else { Ok(found) }
        }
    }
}

/// Tries the addresses in turn; a silent one may use up only its share of the time.
async fn reach(addresses: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Unreachable> {
    let mut worst = Unreachable::TimedOut("connection");
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / left.max(1);
        left = left.saturating_sub(1);
        match timeout_at(now + share, TcpStream::connect(address)).await {
            Err(_) => worst = Unreachable::TimedOut("connection"),
            Ok(Err(error)) => worst = Unreachable::from_io(&error),
            Ok(Ok(stream)) => return Ok(stream),
        }
    }
    Err(worst)
}
