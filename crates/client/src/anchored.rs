//! A server recognised by the CAs above its certificate, none of them denied by its root.

use crate::chain_verifier::ChainVerifier;
use crate::denied_issuers::{DeniedIssuers, PathJudge};
use crate::pinned::refusal;
use rustls::RootCertStore;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

/// Checks what the library's own verifier does, and every path that holds by the lists of the roots.
#[derive(Debug)]
pub(crate) struct AnchoredVerifier {
    pub(crate) roots: RootCertStore,
    pub(crate) denied: DeniedIssuers,
    pub(crate) denied_anchors: Vec<TrustAnchor<'static>>,
    /// When the anchors end that were named, in Unix seconds.
    pub(crate) anchor_ends: Vec<(TrustAnchor<'static>, u64)>,
    pub(crate) algorithms: WebPkiSupportedAlgorithms,
}

impl ChainVerifier for AnchoredVerifier {
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let judge = PathJudge::new(&self.denied, &self.denied_anchors);
        // The library asks neither when an anchor ends.
        let ended = |anchor: &TrustAnchor<'_>| {
            self.anchor_ends.iter().any(|(ended, end)| ended == anchor && *end < now.as_secs())
        };
        let leaf = EndEntityCert::try_from(leaf).map_err(refusal)?;
        leaf.verify_for_usage(
            self.algorithms.all,
            &self.roots.roots,
            sent,
            now,
            KeyUsage::server_auth(),
            None,
            Some(&|path| {
                if ended(path.anchor()) {
                    let time = UnixTime::since_unix_epoch(std::time::Duration::ZERO);
                    return Err(webpki::Error::CertExpired { time: now, not_after: time });
                }
                judge.judge(path)
            }),
        )
        .map_err(|error| judge.reason(refusal(error)))?;
        Ok(leaf.verify_is_valid_for_subject_name(name).map_err(refusal)?)
    }
}
