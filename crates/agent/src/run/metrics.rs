//! The daemon's figures, for a collector on this host: over HTTP on loopback, or as a file.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::accepts;
use crate::fault::Fault;

const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST: usize = 4096;
const CALLERS: usize = 8;

/// What is counted and measured. Names are stable; docs/metrics.md explains them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub renewals_ok: u64,
    pub renewals_failed: u64,
    pub reconnects: u64,
    pub connected: bool,
    pub cert_not_after_secs: u64,
    pub clock_offset_ms: Option<i64>,
}

impl Figures {
    pub fn text(&self, prefix: &str) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, lines: &[(&str, String)]| {
            // Writing to memory does not fail.
            _ = writeln!(text, "# TYPE {prefix}{name} {kind}");
            for (labels, value) in lines {
                _ = writeln!(text, "{prefix}{name}{labels} {value}");
            }
        };
        metric("up", "gauge", &[("", "1".to_owned())]);
        metric("connected", "gauge", &[("", u8::from(self.connected).to_string())]);
        let results = [
            ("{result=\"ok\"}", self.renewals_ok.to_string()),
            ("{result=\"failed\"}", self.renewals_failed.to_string()),
        ];
        metric("renewals_total", "counter", &results);
        metric("reconnects_total", "counter", &[("", self.reconnects.to_string())]);
        metric("cert_not_after_seconds", "gauge", &[("", self.cert_not_after_secs.to_string())]);
        if let Some(offset) = self.clock_offset_ms {
            let sign = if offset < 0 { "-" } else { "" };
            let (secs, millis) = (offset.unsigned_abs() / 1000, offset.unsigned_abs() % 1000);
            metric("clock_offset_seconds", "gauge", &[("", format!("{sign}{secs}.{millis:03}"))]);
        }
        text
    }
}

/// The text as it is now.
pub type Page = Arc<Mutex<String>>;

/// Answers every request with the page, in the background.
pub async fn listen(address: SocketAddr, page: Page) -> Result<(), Fault> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let hint = "choose another port for metrics_listen in agent.toml";
        Fault::usage("metrics_listen_unusable", format!("{address}: {error}"), hint)
    })?;
    let callers = Arc::new(Semaphore::new(CALLERS));
    tokio::spawn(async move {
        loop {
            let (stream, _) = accepts::next(|| listener.accept()).await;
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

async fn answer(mut stream: TcpStream, page: &Page) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_figure() {
        let figures = Figures { clock_offset_ms: Some(-1250), renewals_ok: 2, ..Figures::default() };
        let text = figures.text("x_");
        for line in ["x_up 1", "x_renewals_total{result=\"ok\"} 2", "x_clock_offset_seconds -1.250"] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
