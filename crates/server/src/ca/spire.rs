//! Trust domains beside our own whose SVIDs are accepted: their bundles, kept fresh, and which node an id stands for.
//!
//! A bundle that is empty, half-written, unreadable or gone takes nothing away: what was read last stays in use, and what is
//! wrong is in the log and in `ca show`.

use super::spire_bundle;
use crate::process::app::App;
use crate::process::config::{PathMap, SpireConfig};
use lifecycle::names::{NodeId, Timestamp, TrustDomain};
use pki::svid::{SvidId, TrustBundle, VerifiedSvid};
use pki::verify::{PeerCertificate, PeerError};
use rustls::pki_types::CertificateDer;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How often the files are read: at least every five seconds is promised.
const EVERY: Duration = Duration::from_secs(2);
const BUNDLE_BYTES: u64 = 64 * 1024;

/// What is known of one bundle.
#[derive(Debug, Clone, Default)]
struct ReadBundle {
    text: Vec<u8>,
    bundle: Option<Arc<TrustBundle>>,
    /// Why the file cannot be used now.
    fault: Option<String>,
}

struct SpireDomain {
    name: TrustDomain,
    file: PathBuf,
    map: PathMap,
    /// CAs of the domain itself, by which no SVID is accepted.
    own: Arc<[CertificateDer<'static>]>,
    read: RwLock<ReadBundle>,
}

#[derive(Default)]
pub struct SpireDomains {
    domains: Vec<SpireDomain>,
}

/// A CA of a trust domain, for who asks what is accepted.
pub struct SpireAnchor {
    pub domain: TrustDomain,
    pub anchor: Option<pki::svid::AnchorFacts>,
    pub fault: Option<String>,
}

impl SpireDomains {
    /// Reads every bundle once.
    pub fn new(configured: &[SpireConfig], own: Vec<CertificateDer<'static>>) -> Self {
        let own: Arc<[_]> = own.into();
        let domains = configured.iter().map(|spire| SpireDomain {
            name: spire.trust_domain.clone(),
            file: spire.bundle.clone(),
            map: spire.map.clone(),
            own: own.clone(),
            read: RwLock::default(),
        });
        let domains = Self { domains: domains.collect() };
        domains.read_again();
        domains
    }

    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    pub fn accepts(&self, domain: &TrustDomain) -> bool {
        self.domain(domain).is_some()
    }

    fn domain(&self, name: &TrustDomain) -> Option<&SpireDomain> {
        self.domains.iter().find(|domain| domain.name == *name)
    }

    fn read_again(&self) {
        self.domains.iter().for_each(SpireDomain::read_again);
    }

    /// The SVID that a handshake shows, if it is one of a configured trust domain; the inner error is why it is refused.
    pub fn check(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        at: Timestamp,
    ) -> Option<Result<PeerCertificate, PeerError>> {
        if self.is_empty() {
            return None;
        }
        let domain = self.domain(&SvidId::claimed(leaf)?.domain)?;
        // Until the bundle can be read, nobody is known: another replica may have it.
        Some(domain.bundle().map_or(Err(PeerError::UnknownIssuer), |bundle| bundle.check(leaf, chain, at)))
    }

    /// Whether the CA that vouches for it still does at this moment.
    pub fn trusts(&self, svid: &VerifiedSvid, at: Timestamp) -> bool {
        let bundle = self.domain(&svid.id.domain).and_then(SpireDomain::bundle);
        bundle.is_some_and(|bundle| bundle.holds(&svid.anchor, at))
    }

    /// The node that it stands for, registered or not.
    pub fn node(&self, id: &SvidId) -> Option<NodeId> {
        self.domain(&id.domain)?.map.node(&id.path)
    }

    /// When the newest CA of a bundle ends, of the bundle where that comes first; 0 of one that cannot be used now.
    pub fn first_end(&self) -> Option<Timestamp> {
        self.domains.iter().map(SpireDomain::end).min()
    }

    /// Every CA that is accepted, and every bundle that cannot be used.
    pub fn anchors(&self) -> Vec<SpireAnchor> {
        self.domains.iter().flat_map(SpireDomain::anchors).collect()
    }
}

impl SpireDomain {
    fn bundle(&self) -> Option<Arc<TrustBundle>> {
        self.read.read().unwrap_or_else(PoisonError::into_inner).bundle.clone()
    }

    fn end(&self) -> Timestamp {
        let ends = self
            .anchors()
            .into_iter()
            .map(|held| held.anchor.filter(|_| held.fault.is_none()).map(|anchor| anchor.not_after));
        ends.flatten().max().unwrap_or(Timestamp::from_secs(0))
    }

    fn anchors(&self) -> Vec<SpireAnchor> {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |anchor| SpireAnchor { domain: self.name.clone(), anchor, fault: read.fault.clone() };
        match &read.bundle {
            Some(bundle) => bundle.anchors().map(|anchor| of(Some(anchor))).collect(),
            None => vec![of(None)],
        }
    }

    fn read_again(&self) {
        let before = self.read.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = text(&self.file).map_err(|error| error.to_string());
        let read = found.and_then(|text| match text == before.text && before.bundle.is_some() {
            true => Ok(None),
            false => {
                let bundle = spire_bundle::read(&self.name, &text, &self.own)?;
                Ok(Some((text, Arc::new(bundle))))
            }
        });
        let (domain, file) = (&self.name, self.file.display());
        let next = match read {
            Ok(Some((text, bundle))) => {
                tracing::info!(%domain, %file, cas = bundle.anchors().count(), "SPIRE trust bundle read");
                ReadBundle { text, bundle: Some(bundle), fault: None }
            }
            Ok(None) if before.fault.is_none() => return,
            Ok(None) => {
                tracing::info!(%domain, %file, "the SPIRE trust bundle can be read again");
                ReadBundle { fault: None, ..before }
            }
            Err(fault) if before.fault.as_ref() == Some(&fault) => return,
            Err(fault) => {
                let kept = before.bundle.is_some();
                tracing::warn!(%domain, %file, kept, "the SPIRE trust bundle cannot be used: {fault}; {}", match kept {
                    true => "the one that was read before stays in use",
                    false => "no SVID of this trust domain is accepted",
                });
                ReadBundle { fault: Some(fault), ..before }
            }
        };
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

/// What is in the file; one that is larger than any bundle is not read to its end.
fn text(file: &Path) -> std::io::Result<Vec<u8>> {
    let wrong = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    // A pipe would never end.
    if !std::fs::metadata(file)?.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    let mut text = Vec::new();
    std::fs::File::open(file)?.take(BUNDLE_BYTES + 1).read_to_end(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(0) => Err(wrong("it is empty")),
        Ok(length) if length <= BUNDLE_BYTES => Ok(text),
        _ => Err(wrong("it is longer than 64 KiB")),
    }
}

/// Reads the bundles again and again, until the process stops.
pub async fn follow(app: Arc<App>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = app.stopped() => return,
        }
        let reader = app.clone();
        // A file system that hangs must not hold up anything else.
        let read = tokio::task::spawn_blocking(move || reader.ca.spire.read_again()).await;
        if let Err(error) = read {
            tracing::error!(%error, "the SPIRE trust bundles could not be read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(file: &Path) -> SpireDomains {
        let trust_domain = TrustDomain::parse("spire.example").expect("a name");
        let map = PathMap::parse("/enlist/{node}").expect("a map");
        SpireDomains::new(&[SpireConfig { trust_domain, bundle: file.to_owned(), map }], Vec::new())
    }

    #[test]
    fn what_is_wrong_with_the_file_takes_nothing_away() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("bundle.pem");
        let domains = configured(&file);
        let accepted = |domains: &SpireDomains| {
            domains.read_again();
            let anchors = domains.anchors();
            (
                anchors.iter().filter(|held| held.anchor.is_some()).count(),
                anchors.iter().any(|held| held.fault.is_some()),
            )
        };
        assert_eq!(accepted(&domains), (0, true), "none yet");
        let name = TrustDomain::parse("spire.example").expect("a name");
        let at = Timestamp::from_secs(1_800_000_000);
        let ca = pki::ephemeral::create(&name, [1; 16], at).expect("a CA");
        let one = pki::pem::certificate_pem(ca.certificate());
        let other = pki::ephemeral::create(&name, [2; 16], at).expect("a CA");
        let both = format!("{one}{}", pki::pem::certificate_pem(other.certificate()));
        std::fs::write(&file, &both).expect("written");
        assert_eq!(accepted(&domains), (2, false));
        for spoilt in [
            "",
            &both[..both.len() - 40],
            "garbage",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            std::fs::write(&file, spoilt).expect("written");
            assert_eq!(accepted(&domains), (2, true), "{spoilt}");
        }
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(accepted(&domains), (2, true), "gone");
        std::fs::write(&file, &one).expect("written");
        assert_eq!(accepted(&domains), (1, false), "a CA that was taken out is no longer accepted");
    }
}
