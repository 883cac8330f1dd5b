//! What a certificate says about itself, unverified: for status pages, imports and reports.

use lifecycle::names::{Fingerprint, Serial, SpiffeId, Timestamp};
use std::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::x509_time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an X.509 certificate")]
pub struct DescribeError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub serial: Serial,
    /// As people write it: `O=Example, CN=worker:n-1`.
    pub subject: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub fingerprint: Fingerprint,
    pub common_name: Option<String>,
    pub is_ca: bool,
    /// The identity, if there is exactly one URI and Enlist issues such.
    pub spiffe: Option<SpiffeId>,
    pub spki: Vec<u8>,
}

/// Reads any certificate, version 1 included.
pub fn facts(der: &[u8]) -> Result<Facts, DescribeError> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| DescribeError)?;
    if !rest.is_empty() {
        return Err(DescribeError);
    }
    Ok(Facts {
        serial: Serial::from_bytes(certificate.raw_serial()).map_err(|_| DescribeError)?,
        subject: certificate.subject().to_string(),
        not_before: x509_time::timestamp(certificate.validity().not_before),
        not_after: x509_time::timestamp(certificate.validity().not_after),
        fingerprint: crate::digest::fingerprint(der),
        common_name: common_name(&certificate),
        is_ca: certificate.is_ca(),
        spiffe: spiffe(&certificate),
        spki: certificate.public_key().raw.to_vec(),
    })
}

/// Whether the serial number is one that RFC 5280 allows; nothing if this is no certificate.
pub(crate) fn has_positive_serial(der: &[u8]) -> Option<bool> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let octets = certificate.raw_serial();
    let is_negative = octets.first().is_some_and(|first| *first >= 0x80);
    Some(!is_negative && octets.iter().any(|octet| *octet != 0))
}

/// The host names and addresses a server certificate is for.
pub fn server_names(der: &[u8]) -> Result<Vec<String>, DescribeError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| DescribeError)?;
    let Some(names) = certificate.subject_alternative_name().map_err(|_| DescribeError)? else {
        return Ok(Vec::new());
    };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => match octets.len() {
            4 => <[u8; 4]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
            _ => <[u8; 16]>::try_from(*octets).ok().map(|octets| IpAddr::from(octets).to_string()),
        },
        _ => None,
    };
    Ok(names.value.general_names.iter().filter_map(text).collect())
}

/// Whether a CA's certificate lets it issue certificates to servers: it names no use, or this one. What cannot be read does not.
pub fn may_issue_to_servers(der: &[u8]) -> bool {
    let Ok((_, ca)) = X509Certificate::from_der(der) else { return false };
    match crate::extended_use::of_certificate(&ca) {
        Ok(None) => true,
        Ok(Some(uses)) => uses.any || uses.server_auth,
        Err(_) => false,
    }
}

pub(crate) fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let name = certificate.subject().iter_common_name().next();
    name.and_then(|name| name.as_str().ok()).map(str::to_owned)
}

fn spiffe(certificate: &X509Certificate<'_>) -> Option<SpiffeId> {
    let names = certificate.subject_alternative_name().ok()??;
    let mut uris = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(uri),
        _ => None,
    });
    match (uris.next(), uris.next()) {
        (Some(uri), None) => SpiffeId::parse(uri).ok(),
        _ => None,
    }
}

/// The URIs that a certificate names, whatever they are.
pub fn uris(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(uri).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_no_certificate_has_no_facts() {
        for bad in [&b""[..], b"\x30\x00", b"hello", &[0x30; 300]] {
            assert_eq!(super::facts(bad), Err(super::DescribeError));
        }
    }
}
