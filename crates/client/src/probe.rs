//! Is it the clock or the trust? Asked when a server's certificate is not valid at this host's time.
//!
//! One connection whose chain is checked as always, by the same anchors, for the same name and use, only at a time
//! within its own validity. It carries `GET /healthz` and nothing else, no client certificate above all, and all
//! that is taken from the answer is its date. It chooses the failure class, nothing else: whoever
//! holds the key of an expired certificate can send any date.

use crate::chain_verifier::ChainVerifier;
use crate::connect::{CONNECT_TIMEOUT, connect};
use crate::error::Error;
use crate::trust::{Trust, config_with};
use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use lifecycle::names::Timestamp;
use rustls::CertificateError;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The most bytes of a response head.
const HEAD: usize = 8 * 1024;

/// What a server says the time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerDate {
    pub date: Timestamp,
    /// Whether its chain is in date then. If not, it is not this host's clock that is wrong.
    pub in_date: bool,
}

/// Asks one server for the time.
pub async fn date(server: &ServerUrl, trust: &Trust) -> Result<ServerDate, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(AtItsTime { inner: trust.verifier(&provider)?, window: Mutex::default() });
    let tls = config_with(verifier.clone(), &provider, None, b"http/1.1")?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let failed = |cause| Error::unreachable(server.to_string(), cause);
    let (mut stream, _) = connect(server, tls, deadline).await.map_err(failed)?;
    let request =
        format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.authority());
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD {
            if stream.read_buf(&mut head).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(head)
    };
    let head = match timeout_at(deadline, asked).await {
        Err(_) => return Err(failed(Unreachable::TimedOut("answer"))),
        Ok(head) => head.map_err(|error| failed(Unreachable::from_io(&error)))?,
    };
    let window = verifier.window.lock().ok().and_then(|window| *window);
    let date = header(&head).zip(window);
    let (date, window) =
        date.ok_or_else(|| failed(Unreachable::Garbage("no date in its answer".to_owned())))?;
    Ok(ServerDate { date, in_date: window.0 <= date.secs() && date.secs() <= window.1 })
}

/// Checks like the one inside, at the moment at which the last certificate of the chain begins.
#[derive(Debug)]
struct AtItsTime {
    inner: Arc<dyn ChainVerifier>,
    /// When the whole chain is in date, in Unix seconds.
    window: Mutex<Option<(u64, u64)>>,
}

impl ChainVerifier for AtItsTime {
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let window = window(std::iter::once(leaf).chain(sent))?;
        let moment = UnixTime::since_unix_epoch(Duration::from_secs(window.0));
        self.inner.verify_chain(leaf, sent, name, moment)?;
        if let Ok(mut place) = self.window.lock() {
            *place = Some(window);
        }
        Ok(())
    }
}

/// From the last beginning to the first end.
fn window<'a>(chain: impl Iterator<Item = &'a CertificateDer<'a>>) -> Result<(u64, u64), CertificateError> {
    let (mut begin, mut end) = (0, u64::MAX);
    for der in chain {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
        let secs = |at: i64| u64::try_from(at).map_err(|_| CertificateError::BadEncoding);
        begin = begin.max(secs(certificate.validity().not_before.timestamp())?);
        end = end.min(secs(certificate.validity().not_after.timestamp())?);
    }
    if begin > end { Err(CertificateError::Expired) } else { Ok((begin, end)) }
}

fn header(head: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(head).ok()?;
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    lines.next().filter(|status| status.starts_with("HTTP/1."))?;
    let dates = lines.filter_map(|line| line.split_once(':'));
    let mut dates = dates.filter(|(name, _)| name.eq_ignore_ascii_case("date"));
    imf_fixdate(dates.next()?.1.trim())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that servers may send.
fn imf_fixdate(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let (day, month, year, time) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    if parts.next() != Some("GMT") || parts.next().is_some() {
        return None;
    }
    Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_from_the_head_of_an_answer_and_from_nothing_else() {
        let read = |text: &str| header(text.as_bytes()).map(|at| at.to_string());
        let good = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nok";
        assert_eq!(read(good).as_deref(), Some("1994-11-06T08:49:37Z"));
        assert_eq!(read(&good.replace("HTTP/1.1", "SMTP")), None);
        assert_eq!(read(&good.replace("Date", "Dates")), None);
        assert_eq!(read(&good.replace("Nov", "Nev")), None);
        assert_eq!(read(&good.replace("GMT", "CET")), None);
        assert_eq!(read(&good.replace("06", "36")), None);
        assert_eq!(read(good.split_at(40).0), None);
    }
}
