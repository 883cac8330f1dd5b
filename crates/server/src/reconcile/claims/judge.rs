//! Which claims of others are believed.

use super::board::BoardLines;
use super::own::digest;
use api::claims::{ClaimsDocument, HardwareDigest, MachineClaim, SignedClaims, claims_message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::State;
use pki::hierarchy::root_domain;
use pki::sign::{audit_domain, verify_audit, verify_audit_chain};
use rustls_pki_types::CertificateDer;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Documents whose signature is checked in one round. A line that is no document counts too: an answer holds millions of them.
const DOCUMENTS: usize = 256;
/// What cannot be read, or has more in it than a document may have.
const MALFORMED: &str = "malformed";
/// Of one document with its signature and chain.
const LINE_BYTES: usize = 9 * 1024 * 1024;
/// Domains that one root vouches for. One that was made elsewhere does not say which it is for: whoever has it can make up names.
const DOMAINS_OF_ROOT: usize = 64;
/// How far another domain's clock may be ahead.
const AHEAD: Span = Span::from_minutes(5);
/// A claim that lives longer could be repeated for as long.
const LONGEST_LIFE: Span = Span::from_days(1);

/// Domains and reasons that are logged: domains are whatever a stranger has written.
const LOGGED: usize = 256;

/// What is believed of the others.
#[derive(Default)]
pub struct ClaimJudge {
    pub heard: BTreeMap<String, NeighbourClaims>,
    logged: BTreeSet<IgnoredClaims>,
}

/// A line that is not believed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnoredClaims {
    pub reason: &'static str,
    /// As it says itself, if it can be read.
    pub domain: Option<String>,
}

impl From<&'static str> for IgnoredClaims {
    fn from(reason: &'static str) -> Self {
        Self { reason, domain: None }
    }
}

/// The newest document of a domain. Kept are the machines that are registered here too.
pub struct NeighbourClaims {
    issued_at: Timestamp,
    expires_at: Timestamp,
    document: [u8; 32],
    /// Which of the roots vouches for it.
    root: usize,
    /// By an identifier: since when its machine is active there.
    pub machines: BTreeMap<HardwareDigest, Timestamp>,
}

/// A document that is believed.
struct BelievedClaims {
    domain: String,
    heard: NeighbourClaims,
    claims: Vec<MachineClaim>,
}

/// A document that says what it must, which anybody could have written.
struct ReadClaims {
    domain: String,
    issued_at: Timestamp,
    expires_at: Timestamp,
    claims: Vec<MachineClaim>,
}

impl ClaimJudge {
    /// Takes in what is believed; gives back why the rest is not.
    pub fn hear(
        &mut self,
        state: &State,
        roots: &[CertificateDer<'_>],
        lines: &BoardLines,
        now: Timestamp,
    ) -> Vec<IgnoredClaims> {
        let mut ignored: Vec<IgnoredClaims> = lines.is_cut.then(|| "too_large".into()).into_iter().collect();
        let registered: HashSet<HardwareDigest> =
            state.hardware.keys().map(|identifier| digest(&identifier.to_string())).collect();
        let mut left = DOCUMENTS;
        for line in lines.whole() {
            if left == 0 {
                ignored.push("too_many".into());
                break;
            }
            match self.judge(state, roots, (line, &mut left), now) {
                Ok(Some(BelievedClaims { domain, mut heard, claims })) => {
                    heard.machines = shared(&registered, claims);
                    self.heard.insert(domain, heard);
                }
                Ok(None) => {}
                Err(why) => {
                    if why.reason == MALFORMED {
                        left = left.saturating_sub(1);
                    }
                    ignored.push(why);
                }
            }
        }
        ignored
    }

    /// Cheap checks before signatures. None for what is known already, and for what is our own.
    fn judge(
        &self,
        state: &State,
        roots: &[CertificateDer<'_>],
        (line, left): (&[u8], &mut usize),
        now: Timestamp,
    ) -> Result<Option<BelievedClaims>, IgnoredClaims> {
        if line.len() > LINE_BYTES {
            return Err(MALFORMED.into());
        }
        let signed: SignedClaims = serde_json::from_slice(line).map_err(|_| MALFORMED)?;
        let document = STANDARD.decode(&signed.document).map_err(|_| MALFORMED)?;
        let read = read(&document)?;
        let domain = read.domain.clone();
        self.weigh((state, roots), (&signed, &document, read), left, now)
            .map_err(|reason| IgnoredClaims { reason, domain: Some(domain) })
    }

    fn weigh(
        &self,
        (state, roots): (&State, &[CertificateDer<'_>]),
        (signed, document, read): (&SignedClaims, &[u8], ReadClaims),
        left: &mut usize,
        now: Timestamp,
    ) -> Result<Option<BelievedClaims>, &'static str> {
        let ReadClaims { domain, issued_at, expires_at, claims } = read;
        let own = state.domain.as_ref().is_some_and(|own| own.name.as_str() == domain);
        if own {
            *left = left.saturating_sub(1);
            let roots: Vec<CertificateDer<'_>> = state.server_trust().map(CertificateDer::from).collect();
            let ours = verify(signed, document, (&domain, &roots), now);
            return if ours.is_ok() { Ok(None) } else { Err("impostor") };
        }
        if expires_at <= now {
            return Err("expired");
        }
        if issued_at > now.plus(AHEAD) {
            return Err("future");
        }
        if expires_at > issued_at.plus(LONGEST_LIFE) {
            return Err("long_lived");
        }
        let digest = pki::digest::checksum(document);
        match self.heard.get(&domain) {
            Some(known) if known.document == *digest.as_bytes() => return Ok(None),
            Some(known) if issued_at <= known.issued_at => return Err("replayed"),
            Some(_) | None => {}
        }
        *left = left.saturating_sub(1);
        let root = verify(signed, document, (&domain, roots), now)?;
        let of_root = self.heard.values().filter(|heard| heard.root == root).count();
        if of_root >= DOMAINS_OF_ROOT && !self.heard.contains_key(&domain) {
            return Err("too_many");
        }
        let (document, machines) = (*digest.as_bytes(), BTreeMap::new());
        let heard = NeighbourClaims { issued_at, expires_at, document, root, machines };
        Ok(Some(BelievedClaims { domain, heard, claims }))
    }

    /// Whether it is the first of its domain for this reason. When there were too many of them, none is.
    pub fn is_first(&mut self, ignored: &IgnoredClaims) -> bool {
        self.logged.len() < LOGGED && self.logged.insert(ignored.clone())
    }

    /// Who says nothing any more claims nothing any more.
    pub fn forget_expired(&mut self, now: Timestamp) {
        self.heard.retain(|_, heard| heard.expires_at > now);
    }
}

/// Those that are registered here too: whoever is active in both is among them.
fn shared(
    registered: &HashSet<HardwareDigest>,
    claims: Vec<MachineClaim>,
) -> BTreeMap<HardwareDigest, Timestamp> {
    let mut shared = BTreeMap::new();
    for claim in claims {
        let Ok(since) = Timestamp::parse(&claim.active_since) else { continue };
        let known = claim.hardware.into_iter().filter(|digest| registered.contains(digest));
        shared.extend(known.map(|digest| (digest, since)));
    }
    shared
}

fn read(document: &[u8]) -> Result<ReadClaims, &'static str> {
    let ClaimsDocument { domain, issued_at, expires_at, claims } =
        serde_json::from_slice(document).map_err(|_| MALFORMED)?;
    let time = |text: &str| Timestamp::parse(text).map_err(|_| MALFORMED);
    let (issued_at, expires_at) = (time(&issued_at)?, time(&expires_at)?);
    let named = (1..=255).contains(&domain.len()) && domain.bytes().all(|byte| byte.is_ascii_graphic());
    let timed = |claim: &MachineClaim| Timestamp::parse(&claim.active_since).is_ok();
    if !named || !claims.iter().all(timed) {
        return Err(MALFORMED);
    }
    Ok(ReadClaims { domain, issued_at, expires_at, claims })
}

/// Whether the domain that it names has signed it, and which of the roots says so.
fn verify(
    signed: &SignedClaims,
    document: &[u8],
    (domain, roots): (&str, &[CertificateDer<'_>]),
    now: Timestamp,
) -> Result<usize, &'static str> {
    let decoded = |text: &String| STANDARD.decode(text).map_err(|_| MALFORMED);
    let chain = signed.chain.iter().map(decoded).collect::<Result<Vec<_>, _>>()?;
    let (signer, above) = chain.split_first().ok_or(MALFORMED)?;
    let above: Vec<CertificateDer<'_>> =
        above.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let vouches = |root: &&CertificateDer<'_>| {
        verify_audit_chain(signer, &above, std::slice::from_ref(*root), now).is_ok()
    };
    let (number, root) = roots.iter().enumerate().find(|(_, root)| vouches(root)).ok_or("unknown_root")?;
    // The root of another domain vouches for that domain only. One that was made elsewhere does not say which it is for.
    let of_root = root_domain(root).is_none_or(|of| of == domain);
    if audit_domain(signer).as_deref() != Some(domain) || !of_root {
        return Err("wrong_domain");
    }
    let signature = decoded(&signed.signature)?;
    let signed = verify_audit(signer, &claims_message(document), &signature);
    signed.then_some(number).ok_or("bad_signature")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_claimed_often_is_kept_once() {
        let digest = HardwareDigest([7; 32]);
        let claim = MachineClaim { hardware: vec![digest; 128], active_since: "2026-11-17T09:30:00Z".into() };
        let shared = shared(&HashSet::from([digest]), vec![claim; 1000]);
        assert_eq!(shared.into_keys().collect::<Vec<_>>(), [digest]);
    }

    #[test]
    fn lines_that_are_no_documents_are_not_parsed_without_end() {
        let lines = BoardLines { body: b"{}\n".repeat(100_000), is_cut: false };
        let ignored = ClaimJudge::default().hear(&State::default(), &[], &lines, Timestamp::from_secs(1));
        assert_eq!(ignored.iter().filter(|ignored| ignored.reason == MALFORMED).count(), DOCUMENTS);
        assert_eq!(ignored.last().map(|ignored| ignored.reason), Some("too_many"));
    }
}
