//! The identity that SPIRE gives this host: an SVID and its key, in memory only, and another one whenever SPIRE renews it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::workload::{X509svid, X509svidResponse};
use client::TlsIdentity;
use client::workload::{SvidStream, WorkloadError};
use lifecycle::host::{Notices, SvidTerm};
use pki::svid::{self, SvidFacts};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::sleep;
use zeroize::Zeroizing;

use crate::clock;

/// The leaf, and CAs between it and the trust bundle.
const CERTIFICATES: usize = 5;
const KEY_BYTES: usize = 8 * 1024;
/// Between two answers that are taken up. What comes faster waits in the socket, where flow control stops the sender.
const TOGETHER: Duration = Duration::from_millis(200);

/// Where SPIRE is asked, and how often while it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpireConfig {
    pub socket: PathBuf,
    pub retry: Duration,
}

/// An SVID that this host may show.
pub struct Svid {
    pub term: SvidTerm,
    pub facts: SvidFacts,
    certificates: Vec<CertificateDer<'static>>,
    /// PKCS#8. It is never written to a disk.
    key: Zeroizing<Vec<u8>>,
}

/// Never the key.
impl std::fmt::Debug for Svid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Svid").field("id", &self.facts.id.to_string()).field("term", &self.term).finish()
    }
}

impl Svid {
    fn of(mut wire: X509svid, number: u64) -> Result<Self, &'static str> {
        let key = Zeroizing::new(std::mem::take(&mut wire.x509_svid_key));
        if key.is_empty() || key.len() > KEY_BYTES {
            return Err("its key is empty or too long");
        }
        let certificates =
            svid::split(&wire.x509_svid, CERTIFICATES).ok_or("its certificates cannot be read")?;
        let leaf = certificates.first().ok_or("it has no certificate")?;
        let facts = svid::facts(leaf).ok_or("its certificate is no X.509-SVID")?;
        if facts.id.to_string() != wire.spiffe_id {
            return Err("its certificate is of another SPIFFE id");
        }
        let term = SvidTerm { number, not_before: facts.not_before, not_after: facts.not_after };
        let svid = Self { term, facts, certificates, key };
        svid.credentials().check().map_err(|_| "its key is not that of its certificate")?;
        Ok(svid)
    }

    /// As whom this host comes.
    pub fn credentials(&self) -> TlsIdentity {
        let key: PrivateKeyDer<'static> = PrivatePkcs8KeyDer::from(self.key.to_vec()).into();
        TlsIdentity::new(self.certificates.clone(), key)
    }
}

/// What SPIRE gives this host.
#[derive(Debug, Clone)]
pub struct Svids {
    newest: watch::Receiver<Option<Arc<Svid>>>,
    trouble: watch::Receiver<String>,
}

impl Svids {
    /// The newest SVID; none before the first.
    pub fn take(&mut self) -> Option<Arc<Svid>> {
        self.newest.borrow_and_update().clone()
    }

    /// Waits for another SVID.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        self.newest.changed().await
    }

    /// Why SPIRE gave none when it was last asked.
    pub fn trouble(&mut self) -> String {
        self.trouble.borrow_and_update().clone()
    }

    /// Waits for either.
    pub async fn news(&mut self) -> Result<SvidNews, RecvError> {
        tokio::select! {
            changed = self.newest.changed() => changed.map(|()| SvidNews::Svid),
            changed = self.trouble.changed() => changed.map(|()| SvidNews::Trouble),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SvidNews {
    /// Another SVID.
    Svid,
    /// SPIRE gives none, for another reason than before.
    Trouble,
}

/// Asks for as long as somebody listens. That there is no SPIRE is no error.
pub fn follow(config: SpireConfig) -> Svids {
    let (sender, newest) = watch::channel(None);
    let (trouble, reason) = watch::channel(format!("{}: no answer yet", config.socket.display()));
    tokio::spawn(async move {
        let (mut number, mut notices) = (0, Notices::default());
        loop {
            let ended = tokio::select! {
                ended = listen(&config, &sender, &mut number) => ended,
                () = sender.closed() => return,
            };
            let why = format!("{}: {ended}", config.socket.display());
            trouble.send_if_modified(|known| {
                let is_news = *known != why;
                known.clone_from(&why);
                is_news
            });
            if let Some(count) = notices.note(&ended.to_string(), clock::now()) {
                let socket = config.socket.display();
                tracing::info!(%socket, count, "no SVID: {ended}");
            }
            sleep(config.retry).await;
        }
    });
    Svids { newest, trouble: reason }
}

/// The SVID that SPIRE gives now, for whoever looks once.
pub async fn look(config: &SpireConfig) -> Result<Svid, WorkloadError> {
    first(&mut SvidStream::open(&config.socket).await?, 0).await
}

async fn first(stream: &mut SvidStream, number: u64) -> Result<Svid, WorkloadError> {
    let X509svidResponse { svids } = stream.next().await?;
    // The first is the default; SPIRE gives several where several entries match.
    let none = || WorkloadError::Refused("an answer without an SVID".to_owned());
    let wire = svids.into_iter().next().ok_or_else(none)?;
    Svid::of(wire, number).map_err(|reason| WorkloadError::Refused(reason.to_owned()))
}

async fn listen(
    config: &SpireConfig,
    sender: &watch::Sender<Option<Arc<Svid>>>,
    number: &mut u64,
) -> WorkloadError {
    let mut stream = match SvidStream::open(&config.socket).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    loop {
        *number += 1;
        match first(&mut stream, *number).await {
            Ok(svid) => {
                let (id, not_after) = (svid.facts.id.to_string(), svid.facts.not_after);
                tracing::debug!(id, %not_after, "SVID received");
                sender.send_replace(Some(Arc::new(svid)));
            }
            Err(error) => return error,
        }
        sleep(TOGETHER).await;
    }
}
