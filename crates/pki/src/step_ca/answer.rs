//! Whether what step-ca answers is what it was asked for.

use lifecycle::names::{Fingerprint, Serial, SpiffeId, Timestamp};
use rustls_pki_types::CertificateDer;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};
use x509_parser::prelude::FromDer as _;

use crate::verify::is_issued_by;
use crate::{describe, x509_time};

/// CAs between a leaf and the root.
const DEPTH: usize = 3;
/// The largest leaf that goes on record: several times one with an RSA-4096 key.
const LEAF_BYTES: usize = 8 * 1024;

pub struct AskedLeaf<'a> {
    pub spki: &'a [u8],
    pub subject: &'a SpiffeId,
    pub common_name: Option<&'a str>,
    pub not_after: Timestamp,
    pub at: Timestamp,
}

/// A certificate that is what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedLeaf {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub der: Vec<u8>,
    /// The one that signed it first; none if the root did.
    pub chain: Vec<ReceivedIntermediate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedIntermediate {
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    pub der: Vec<u8>,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Misbehavior {
    pub what: String,
    /// Of the certificate, if it is one of this CA.
    pub serial: Option<Serial>,
}

/// Holds a certificate against what was asked for. `others` are what came with it, in any order.
pub fn check(
    asked: &AskedLeaf<'_>,
    leaf: &[u8],
    others: &[CertificateDer<'_>],
    root: &[u8],
) -> Result<ReceivedLeaf, Misbehavior> {
    let wrong = |what: String| Misbehavior { what, serial: None };
    if leaf.len() > LEAF_BYTES {
        return Err(wrong(format!("its certificate has more than {LEAF_BYTES} bytes")));
    }
    let facts = describe::facts(leaf).map_err(|_| wrong("it answered no certificate".to_owned()))?;
    let chain = path(leaf, others, root).map_err(|what| wrong(what.to_owned()))?;
    // From here on it is a certificate of this CA, which may have to be revoked.
    let wrong = |what: String| Misbehavior { what, serial: Some(facts.serial.clone()) };
    verify(leaf, &chain, root, asked.at.max(facts.not_before)).map_err(wrong)?;
    if facts.spki != asked.spki {
        return Err(wrong("the certificate is for another key".to_owned()));
    }
    names(leaf, asked).map_err(wrong)?;
    if facts.not_after != asked.not_after {
        let (got, asked) = (facts.not_after, asked.not_after);
        return Err(wrong(format!("the certificate ends at {got} and not at {asked}")));
    }
    if describe::has_positive_serial(leaf) != Some(true) {
        return Err(wrong("its serial number is not a positive one".to_owned()));
    }
    let chain = chain.iter().map(|der| {
        let facts = describe::facts(der).map_err(|_| wrong("an intermediate cannot be read".to_owned()))?;
        if facts.not_after < asked.not_after {
            return Err(wrong(format!(
                "the certificate outlives its issuer, which ends at {}",
                facts.not_after
            )));
        }
        Ok(ReceivedIntermediate {
            fingerprint: facts.fingerprint,
            not_after: facts.not_after,
            der: der.to_vec(),
        })
    });
    Ok(ReceivedLeaf {
        chain: chain.collect::<Result<_, Misbehavior>>()?,
        serial: facts.serial.clone(),
        fingerprint: facts.fingerprint,
        not_before: facts.not_before,
        not_after: facts.not_after,
        der: leaf.to_vec(),
    })
}

/// The CAs between a certificate and the root, by signatures.
fn path<'a>(
    leaf: &[u8],
    others: &'a [CertificateDer<'a>],
    root: &[u8],
) -> Result<Vec<&'a CertificateDer<'a>>, &'static str> {
    let mut chain: Vec<&CertificateDer<'_>> = Vec::new();
    let mut last = CertificateDer::from(leaf.to_vec());
    while !is_issued_by(&last, root) {
        let above = others.iter().find(|other| !chain.contains(other) && is_issued_by(&last, other));
        let above = above.filter(|_| chain.len() < DEPTH);
        let above = above.ok_or("the certificate was not signed under the root that was given for it")?;
        chain.push(above);
        last = above.clone().into_owned();
    }
    Ok(chain)
}

/// Dates, path and use, as at a handshake.
fn verify(leaf: &[u8], chain: &[&CertificateDer<'_>], root: &[u8], at: Timestamp) -> Result<(), String> {
    let refused = |error: webpki::Error| format!("the certificate does not verify: {error}");
    let (leaf, root) = (CertificateDer::from(leaf), CertificateDer::from(root));
    let certificate = EndEntityCert::try_from(&leaf).map_err(refused)?;
    let anchor = anchor_from_trusted_cert(&root).map_err(refused)?;
    let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| (*der).clone()).collect();
    let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, KeyUsage::client_auth());
    certificate
        .verify_for_usage(algorithms, &[anchor], &chain, x509_time::unix_time(at), usage, None, None)
        .map_err(refused)?;
    uses(&leaf)
}

/// Client authentication and nothing beside it: webpki lets a certificate without any stated use pass for every use, and asks for no
/// more than one of several.
fn uses(leaf: &[u8]) -> Result<(), String> {
    let unread = |_| "the uses of the certificate cannot be read".to_owned();
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| unread(()))?;
    let extended = leaf.extended_key_usage().map_err(|_| unread(()))?;
    let only_client = ExtendedKeyUsage {
        any: false,
        server_auth: false,
        client_auth: true,
        code_signing: false,
        email_protection: false,
        time_stamping: false,
        ocsp_signing: false,
        other: Vec::new(),
    };
    if extended.is_none_or(|uses| *uses.value != only_client) {
        return Err("the certificate is not for client authentication alone".to_owned());
    }
    let usage = leaf.key_usage().map_err(|_| unread(()))?;
    if usage.is_some_and(|usage| usage.value.key_cert_sign() || usage.value.crl_sign()) {
        return Err("the certificate's key may sign certificates or revocation lists".to_owned());
    }
    Ok(())
}

/// The common name that was asked for, and the SPIFFE ID alone.
fn names(leaf: &[u8], asked: &AskedLeaf<'_>) -> Result<(), String> {
    let unread = |_| "the names of the certificate cannot be read".to_owned();
    let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| unread(()))?;
    let alternative = leaf.subject_alternative_name().map_err(|_| unread(()))?;
    let alternative = alternative.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    match alternative {
        [GeneralName::URI(uri)] if *uri == asked.subject.to_string() => {}
        [GeneralName::URI(uri)] => {
            return Err(format!("the certificate is for {} and not for {}", shown(uri), asked.subject));
        }
        _ => {
            return Err(format!(
                "the certificate has other names than {} alone: the provisioner's template decides that",
                asked.subject
            ));
        }
    }
    let common: Vec<&str> = leaf.subject().iter_common_name().filter_map(|name| name.as_str().ok()).collect();
    let expected: Vec<&str> = asked.common_name.into_iter().filter(|name| !name.is_empty()).collect();
    if leaf.subject().iter_attributes().count() > common.len() {
        return Err("its subject says more than the common name".to_owned());
    }
    if common == expected {
        return Ok(());
    }
    let common = common.first().copied().unwrap_or_default();
    Err(format!("its common name is '{}' and not '{}'", shown(common), expected.concat()))
}

/// So much of what a stranger wrote.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}

/// Whether a certificate can be the root of a step-ca: a CA that is signed by its own key.
pub fn is_root(der: &[u8]) -> bool {
    let certificate = CertificateDer::from(der);
    let is_ca = describe::facts(der).is_ok_and(|facts| facts.is_ca);
    is_ca && anchor_from_trusted_cert(&certificate).is_ok() && is_issued_by(&certificate, der)
}

/// Those of these CAs that the root vouches for, by signatures.
pub fn trusted_intermediates<'a>(root: &[u8], known: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let others: Vec<CertificateDer<'_>> = known.iter().map(|der| CertificateDer::from(*der)).collect();
    let is_trusted = |der: &&&[u8]| {
        let is_ca = describe::facts(der).is_ok_and(|facts| facts.is_ca);
        is_ca && path(der, &others, root).is_ok()
    };
    known.iter().filter(is_trusted).copied().collect()
}
