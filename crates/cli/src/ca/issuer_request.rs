//! CSRs of new issuers, as `enlist ca roll prepare` writes them, and the certificates that answer them.

use crate::error::{CommandError, Exit};
use crate::reach;
use ::server::chance;
use lifecycle::names::{IssuerUse, Span, Timestamp};
use pki::hierarchy::{self, HierarchyError};
use pki::issuer::{SigningIssuer, issuer_id};
use pki::{csr, describe, pem, roll};
use serde::Serialize;
use std::path::Path;

/// A key that asks to become that of an issuer, for one use.
pub struct RequestedIssuer {
    pub spki: Vec<u8>,
    pub usage: IssuerUse,
    /// Whose issuer it would be, if a control plane made the request as it stands.
    pub domain: Option<String>,
}

/// What is reported of an issuer's certificate.
#[derive(Clone, Serialize)]
pub struct CertifiedIssuer {
    /// As `enlist ca show` names it once it is prepared.
    pub id: String,
    #[serde(rename = "use")]
    pub usage: &'static str,
    pub subject: String,
    pub serial: String,
    pub fingerprint: String,
    pub not_after: String,
}

/// Every request in the file, in order: one, or two with keys of their own.
pub fn read(path: &Path) -> Result<Vec<RequestedIssuer>, CommandError> {
    let mut requests: Vec<RequestedIssuer> = Vec::new();
    for der in pem::certificate_requests(&reach::read(path)?).map_err(|error| bad(path, &error))? {
        let request = csr::read_der(&der).map_err(|error| bad(path, &error))?;
        let usage = roll::requested_use(&der).map_err(|error| bad(path, &error))?;
        if requests.iter().any(|other| other.spki == request.spki) {
            return Err(bad(path, &"both requests are for the same key; an issuer needs a key of its own"));
        }
        requests.push(RequestedIssuer { spki: request.spki, usage, domain: roll::domain_of_request(&der) });
    }
    Ok(requests)
}

/// Signs an issuer for every request. Answers with the certificates in DER, in order.
pub fn sign(
    requests: &[RequestedIssuer],
    root: &SigningIssuer,
    at: Timestamp,
    lifetime: Span,
    refused: impl Fn(&HierarchyError) -> CommandError,
) -> Result<Vec<(CertifiedIssuer, Vec<u8>)>, CommandError> {
    let sign = |request: &RequestedIssuer| {
        let signed =
            hierarchy::sign_intermediate(root, &request.spki, request.usage, serial(at)?, at, lifetime);
        let der = signed.map_err(|error| refused(&error))?.der;
        let facts = facts(&der)?;
        let certified = CertifiedIssuer {
            id: issuer_id(&der).to_string(),
            usage: request.usage.as_str(),
            subject: facts.subject,
            serial: facts.serial.to_string(),
            fingerprint: facts.fingerprint.pin(),
            not_after: facts.not_after.to_string(),
        };
        Ok((certified, der))
    };
    requests.iter().map(sign).collect()
}

pub fn bad(path: &Path, error: &dyn std::fmt::Display) -> CommandError {
    let message = format!("{}: {error}", path.display());
    let hint =
        "give the file as `enlist ca roll prepare --csr-out` wrote it: one or two CSRs, PEM, unchanged";
    CommandError::new(Exit::Usage, "csr_invalid", message, hint)
}

pub fn serial(at: Timestamp) -> Result<[u8; 16], CommandError> {
    chance::serial(at).map_err(|error| CommandError::fault("chance", error.to_string()))
}

/// Of what was just signed.
pub fn facts(der: &[u8]) -> Result<describe::Facts, CommandError> {
    describe::facts(der).map_err(|error| CommandError::fault("signing", error.to_string()))
}
