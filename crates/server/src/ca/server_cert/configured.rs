//! A server certificate that the operator brought along: presented as it is, read again now and then, never
//! renewed here.

use super::{PresentedCertificate, ServerCertError, certified};
use crate::process::app::App;
use crate::process::config::OwnCertificate;
use crate::process::datadir::replace;
use lifecycle::names::{Span, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use std::io::Read;
use std::path::Path;

/// Far more than a chain or a key needs.
const MAX_BYTES: u64 = 64 * 1024;

/// A certificate that can be presented.
pub struct ConfiguredCertificate {
    pub chain: Vec<CertificateDer<'static>>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    key: zeroize::Zeroizing<Vec<u8>>,
}

/// Reads both files and holds them against each other and against the clock.
pub fn read(files: &OwnCertificate, at: Timestamp) -> Result<ConfiguredCertificate, String> {
    let wrong = |path: &Path, what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let chain = bounded(&files.cert).map_err(|error| wrong(&files.cert, &error))?;
    let chain = pki::pem::certificates(&chain).map_err(|error| wrong(&files.cert, &error))?;
    let leaf = chain.first().ok_or_else(|| wrong(&files.cert, &"it is empty"))?;
    let facts = pki::describe::facts(leaf).map_err(|error| wrong(&files.cert, &error))?;
    if facts.not_after <= at {
        return Err(wrong(&files.cert, &format!("it expired at {}", facts.not_after)));
    }
    let key = zeroize::Zeroizing::new(bounded(&files.key).map_err(|error| wrong(&files.key, &error))?);
    let given =
        ConfiguredCertificate { not_before: facts.not_before, not_after: facts.not_after, chain, key };
    given.certified(&[]).map_err(|error| wrong(&files.key, &error))?;
    Ok(given)
}

/// Whether this is the certificate in these files.
pub fn presents(files: &OwnCertificate, der: &[u8]) -> bool {
    let chain = bounded(&files.cert).ok().and_then(|text| pki::pem::certificates(&text).ok());
    chain.is_some_and(|chain| chain.first().is_some_and(|leaf| leaf.as_ref() == der))
}

fn bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl ConfiguredCertificate {
    /// With what stands above it, as far as these CAs are known to have signed it: a pin on any of them can be
    /// checked by whoever sees the chain.
    fn whole(&self, cas: &[&[u8]]) -> Vec<CertificateDer<'static>> {
        let mut chain = self.chain.clone();
        for _ in cas {
            let Some(last) = chain.last() else { break };
            let above = cas.iter().find(|ca| pki::verify::is_issued_by(last, ca) && last.as_ref() != **ca);
            match above {
                Some(ca) => chain.push(CertificateDer::from(ca.to_vec())),
                None => break,
            }
        }
        chain
    }

    /// Whether hosts that trust this root will recognise the control plane.
    pub fn leads_to(&self, cas: &[&[u8]], roots: &[&[u8]]) -> bool {
        self.whole(cas).last().is_some_and(|last| roots.iter().any(|root| last.as_ref() == *root))
    }

    fn certified(&self, cas: &[&[u8]]) -> Result<CertifiedKey, String> {
        let key = pki::pem::private_key(&self.key).map_err(|error| error.to_string())?;
        let certified = certified(self.whole(cas), &key);
        certified.ok_or_else(|| "this is not the key of the server certificate".to_owned())
    }
}

/// Presents what is in the files now.
pub fn present(
    app: &App,
    files: &OwnCertificate,
    presented: &PresentedCertificate,
) -> Result<(), ServerCertError> {
    let (at, view) = (app.now(), app.view());
    let given = read(files, at).map_err(ServerCertError::Make)?;
    let roots: Vec<&[u8]> = view.state.server_trust().collect();
    let issuers = view.state.issuers.values().filter(|issuer| issuer.is_of_domain());
    let issuers = issuers.map(|issuer| issuer.certificate.as_slice());
    let cas: Vec<&[u8]> = issuers.chain(roots.iter().copied()).collect();
    if !given.leads_to(&cas, &roots) {
        tracing::warn!("the server certificate was not issued under this domain's root: hosts refuse it");
    }
    let life = given.not_after.since(given.not_before);
    if at >= given.not_before.plus(Span::from_millis(life.millis() / 3 * 2)) {
        tracing::warn!(not_after = %given.not_after, "the server certificate expires soon: replace it");
    }
    let key = given.certified(&cas).map_err(ServerCertError::Make)?;
    let pem = pki::pem::chain_pem(key.cert.iter().map(|der| der.as_ref()));
    replace(&app.ca.dir.ca("server.pem"), pem.as_bytes(), 0o644)?;
    presented.set(key);
    Ok(())
}
