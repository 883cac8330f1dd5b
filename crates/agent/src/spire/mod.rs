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

/// The newest SVID; none before the first.
pub type Svids = watch::Receiver<Option<Arc<Svid>>>;

/// Asks for as long as somebody listens. That there is no SPIRE is no error.
pub fn follow(config: SpireConfig) -> Svids {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let (mut number, mut notices) = (0, Notices::default());
        loop {
            let ended = tokio::select! {
                ended = listen(&config, &sender, &mut number) => ended,
                () = sender.closed() => return,
            };
            if let Some(count) = notices.note(&ended.to_string(), clock::now()) {
                let socket = config.socket.display();
                tracing::info!(%socket, count, "no SVID: {ended}");
            }
            sleep(config.retry).await;
        }
    });
    receiver
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
        let X509svidResponse { svids } = match stream.next().await {
            Ok(answer) => answer,
            Err(error) => return error,
        };
        // The first is the default; SPIRE gives several where several entries match.
        let Some(wire) = svids.into_iter().next() else {
            return WorkloadError::Refused("an answer without an SVID".to_owned());
        };
        *number += 1;
        match Svid::of(wire, *number) {
            Ok(svid) => {
                let (id, not_after) = (svid.facts.id.to_string(), svid.facts.not_after);
                tracing::debug!(id, %not_after, "SVID received");
                sender.send_replace(Some(Arc::new(svid)));
            }
            Err(reason) => return WorkloadError::Refused(reason.to_owned()),
        }
        sleep(TOGETHER).await;
    }
}
