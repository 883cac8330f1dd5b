//! The daemon's metrics, for a collector on this host: over HTTP on loopback, or as a file.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::accept;
use crate::code::AgentCode;
use crate::fault::Fault;

const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST: usize = 4096;
const CALLERS: usize = 8;

/// The text as it is now.
pub type MetricsPage = Arc<Mutex<String>>;

/// Answers every request with the page, in the background.
pub async fn listen(address: SocketAddr, page: MetricsPage) -> Result<(), Fault> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let hint = "choose another port for metrics_listen in agent.toml";
        Fault::usage(AgentCode::MetricsListenUnusable, format!("{address}: {error}"), hint)
    })?;
    let callers = Arc::new(Semaphore::new(CALLERS));
    tokio::spawn(async move {
        loop {
            let (stream, _) = accept::next(|| listener.accept()).await;
            let Ok(permit) = callers.clone().try_acquire_owned() else { continue };
            let page = page.clone();
            tokio::spawn(async move {
                _ = timeout(PATIENCE, answer(stream, &page)).await;
                drop(permit);
            });
        }
    });
    Ok(())
}

async fn answer(mut stream: TcpStream, page: &MetricsPage) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > REQUEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let good = request.starts_with(b"GET /metrics ");
    let (status, body) = match (good, page.lock()) {
        (true, Ok(page)) => ("200 OK", page.clone()),
        _ => ("404 Not Found", "see /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
